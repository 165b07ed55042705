//! Checks for parts of a tokenizer file that make the `tokenizers` library fail or exhaust memory.

use serde_json::Value;

use crate::error::{Error, Result};

/// The maximum factor by which a normalizer may lengthen a text. Unicode's own normalization forms reach 18.
const MAX_GROWTH: usize = 64;

/// The maximum length of the text that a tokenizer may prepend, in bytes.
const MAX_PREPENDED_LENGTH: usize = 1024;

/// Returns an error if a tokenizer file replaces an empty match, or could expand a text excessively.
pub(super) fn check(json: &Value) -> Result<()> {
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let mut replacements = Vec::new();
        collect(&json[part], part, &mut replacements)?;
        check_growth(part, &replacements)?;
    }
    Ok(())
}

/// A literal pattern, and its replacement.
type Replacement<'a> = (&'a str, &'a str);

fn collect<'a>(value: &'a Value, part: &str, found: &mut Vec<Replacement<'a>>) -> Result<()> {
    match value {
        Value::Array(values) => return values.iter().try_for_each(|value| collect(value, part, found)),
        Value::Object(_) => {}
        _ => return Ok(()),
    }
    let content = value["content"].as_str().unwrap_or_default();
    if let Some(pattern) = value["pattern"]["String"].as_str() {
        if pattern.is_empty() {
            return Err(refused(part, "has an empty pattern, which matches everywhere"));
        }
        found.push((pattern, content));
    }
    if let Some(pattern) = value["pattern"]["Regex"].as_str() {
        // For patterns with look-around, the library reports a better error.
        let least = regex_syntax::parse(pattern).ok().map(|parsed| parsed.properties().minimum_len());
        let least = least.map(Option::unwrap_or_default);
        if least == Some(0) && value["type"] == "Replace" {
            return Err(refused(
                part,
                &format!("has the pattern `{pattern}`, which also matches the empty string"),
            ));
        }
        if content.len() > MAX_GROWTH * least.unwrap_or(1) {
            return Err(grows(part));
        }
    }
    if value["prepend"].as_str().is_some_and(|text| text.len() > MAX_PREPENDED_LENGTH) {
        return Err(grows(part));
    }
    value.as_object().into_iter().flatten().try_for_each(|(_, value)| collect(value, part, found))
}

/// Checks the growth of each pattern by its own replacement and all later ones.
fn check_growth(part: &str, replacements: &[Replacement<'_>]) -> Result<()> {
    for (index, (pattern, _)) in replacements.iter().enumerate() {
        let mut text = pattern.to_string();
        for (pattern, content) in &replacements[index..] {
            let grown = text.len() + text.matches(pattern).count() * content.len();
            if grown > (MAX_GROWTH + 1) * replacements[index].0.len() {
                return Err(grows(part));
            }
            text = text.replace(pattern, content);
        }
    }
    Ok(())
}

fn grows(part: &str) -> Error {
    refused(part, &format!("makes a text more than {MAX_GROWTH} times as long"))
}

fn refused(part: &str, problem: &str) -> Error {
    Error::Input(format!("cannot be used: its {part} {problem}; correct that part of the file"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(normalizers: &[Value]) -> String {
        let json = json!({"normalizer": {"type": "Sequence", "normalizers": normalizers}});
        check(&json).map_or_else(|error| error.to_string(), |()| "nothing".into())
    }

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    #[test]
    fn a_normalizer_that_multiplies_its_input_is_refused() {
        let regex = |pattern: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": " "});
        let llama = [json!({"type": "Prepend", "prepend": "▁"}), replace(" ", "▁")];
        for fine in [&llama[..], &[regex(" {2,}"), replace("``", "\""), replace("a", &"b".repeat(64))]] {
            assert_eq!(said(fine), "nothing");
        }
        let doubling = vec![replace("a", "aa"); 7];
        let doubled_in_turn = (0..7).map(|turn| replace(["a", "b"][turn % 2], ["bb", "aa"][turn % 2]));
        let grown = [doubling, doubled_in_turn.collect(), vec![replace("a", &"b".repeat(66))]];
        for normalizers in grown {
            assert!(
                said(&normalizers).contains("its normalizer makes a text more than 64 times"),
                "{normalizers:?}"
            );
        }
        assert!(said(&[json!({"type": "Prepend", "prepend": "x".repeat(1025)})]).contains(
            "makes a text more \
                                                                                           than"
        ));
        assert!(said(&[replace("", "x")]).contains("has an empty pattern"));
        assert!(said(&[regex("x*")]).contains("the pattern `x*`, which also matches the empty string"));
    }
}
