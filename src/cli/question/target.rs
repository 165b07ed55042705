//! The target of a question: the token of the text that the answer follows.

use super::shown;
use crate::data::{Vocabulary, excerpt};
use crate::numbers::counted;

/// The prefixes that distinguish a token such as `9` or `last` from a position.
const TOKEN: &str = "token:";
const POSITION: &str = "position:";

/// Returns the position of the target, the last token by default, or the problem if the text has no such token.
pub(super) fn position(
    target: Option<&str>,
    tokens: &[u32],
    vocabulary: &Vocabulary,
) -> Result<usize, String> {
    let last = tokens.len() - 1;
    let target = match target {
        None | Some("last") => return Ok(last),
        Some(target) => target,
    };
    let (number, is_position) = match target.strip_prefix(POSITION) {
        Some(number) => (number, true),
        None => (target, false),
    };
    // From the end, unless it is a token.
    let from_end =
        number.parse::<isize>().ok().filter(|it| *it < 0 && occurrence(number, tokens, vocabulary).is_none());
    if let Some(position) = from_end.and_then(|it| tokens.len().checked_add_signed(it)) {
        return Ok(position);
    }
    match number.parse::<usize>() {
        Ok(position) if position <= last => return Ok(position),
        Ok(position) => {
            let token = occurrence(number, tokens, vocabulary).filter(|_| !is_position);
            let remedy = token.map(|_| format!("; write {TOKEN}{number} for the token `{number}`"));
            return Err(format!(
                "target: position {position} is outside the text of {}, whose positions are 0 to {last}{}",
                counted(tokens.len(), "token"),
                remedy.unwrap_or_default()
            ));
        }
        Err(_) if is_position => {
            let number = excerpt(number);
            return Err(format!("target: `{number}` is not a position; write a number from 0 to {last}"));
        }
        Err(_) => {}
    }
    let token = target.strip_prefix(TOKEN).unwrap_or(target);
    occurrence(token, tokens, vocabulary).ok_or_else(|| {
        format!(
            "target: `{}` is not a token of the text, whose tokens are {}; pass one of them, or its position",
            excerpt(token),
            shown(tokens, vocabulary)
        )
    })
}

/// Returns a note if a target is taken as a position, but is another token of the text as well.
pub(super) fn ambiguity(target: &str, tokens: &[u32], vocabulary: &Vocabulary) -> Option<String> {
    let position: usize = target.parse().ok()?;
    let token = occurrence(target, tokens, vocabulary).filter(|it| *it != position)?;
    Some(format!(
        "(The target {target} is a position; {TOKEN}{target} is the token `{target}`, at position {token}.)"
    ))
}

/// Returns the position of the last occurrence of a token.
fn occurrence(token: &str, tokens: &[u32], vocabulary: &Vocabulary) -> Option<usize> {
    let is_target = |id: &u32| vocabulary.token(*id) == token || vocabulary.piece(*id) == token;
    tokens.iter().rposition(is_target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_digits_differs_from_a_position() {
        let (vocabulary, tokens) = (Vocabulary::integers(20, &[]), [9, 3, 9, 7]);
        let of = |target: &str| position(Some(target), &tokens, &vocabulary);
        for (target, expected) in [
            ("last", 3),
            ("-1", 3),
            ("-3", 1),
            ("3", 3),
            ("token:3", 1),
            ("token:9", 2),
            ("position:2", 2),
            ("token:7", 3),
        ] {
            assert_eq!(of(target), Ok(expected), "{target}");
        }
        assert!(of("9").unwrap_err().ends_with("positions are 0 to 3; write token:9 for the token `9`"));
        assert!(of("8").unwrap_err().ends_with("positions are 0 to 3"));
        assert!(of("position:9").unwrap_err().ends_with("positions are 0 to 3"));
        assert!(of("position:x").unwrap_err().starts_with("target: `x` is not a position"));
        assert!(of("token:8").unwrap_err().starts_with("target: `8` is not a token of the text"));
        let note = ambiguity("3", &tokens, &vocabulary).unwrap();
        assert_eq!(note, "(The target 3 is a position; token:3 is the token `3`, at position 1.)");
        assert_eq!(ambiguity("token:3", &tokens, &vocabulary), None);
        assert_eq!(ambiguity("1", &tokens, &vocabulary), None, "the text lacks the token");
        assert_eq!(ambiguity("2", &[5, 6, 2], &vocabulary), None, "both are the same");
    }
}
