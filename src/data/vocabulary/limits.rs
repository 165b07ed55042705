//! Checks for parts of a tokenizer file that make the `tokenizers` library fail or exhaust memory.

use serde_json::Value;

use crate::error::{Error, Result};

/// The maximum factor by which a tokenizer may lengthen a text. The normalization forms of Unicode reach 18.
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

/// A literal pattern and its replacement.
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
        let min_length = regex_syntax::parse(pattern).ok().map(|parsed| parsed.properties().minimum_len());
        let min_length = min_length.map(Option::unwrap_or_default);
        if min_length == Some(0) && value["type"] == "Replace" {
            return Err(refused(
                part,
                &format!("has the pattern `{pattern}`, which also matches the empty string"),
            ));
        }
        if content.len() > MAX_GROWTH * min_length.unwrap_or(1) {
            return Err(grows_too_much(part));
        }
    }
    if value["prepend"].as_str().is_some_and(|text| text.len() > MAX_PREPENDED_LENGTH) {
        return Err(grows_too_much(part));
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
                return Err(grows_too_much(part));
            }
            text = text.replace(pattern, content);
        }
    }
    Ok(())
}

fn grows_too_much(part: &str) -> Error {
    refused(part, &format!("can make a text more than {MAX_GROWTH} times as long"))
}

fn refused(part: &str, problem: &str) -> Error {
    Error::Input(format!("the tokenizer's {part} {problem}; correct that part of its file"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(normalizers: &[Value]) -> String {
        let json = json!({"normalizer": {"type": "Sequence", "normalizers": normalizers}});
        check(&json).map_or_else(|error| error.to_string(), |()| "allowed".into())
    }

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    #[test]
    fn normalizers_that_expand_texts_excessively_are_refused() {
        let regex = |pattern: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": " "});
        let llama = [json!({"type": "Prepend", "prepend": "▁"}), replace(" ", "▁")];
        for allowed in [&llama[..], &[regex(" {2,}"), replace("``", "\""), replace("a", &"b".repeat(64))]] {
            assert_eq!(message(allowed), "allowed");
        }
        let doubling = vec![replace("a", "aa"); 7];
        let alternating = (0..7).map(|turn| replace(["a", "b"][turn % 2], ["bb", "aa"][turn % 2]));
        let growing = [doubling, alternating.collect(), vec![replace("a", &"b".repeat(66))]];
        for normalizers in growing {
            let expected = "the tokenizer's normalizer can make a text more than 64 times";
            assert!(message(&normalizers).contains(expected), "{normalizers:?}");
        }
        let prepend = json!({"type": "Prepend", "prepend": "x".repeat(1025)});
        assert!(message(&[prepend]).contains("can make a text more than"));
        assert!(message(&[replace("", "x")]).contains("has an empty pattern"));
        assert!(message(&[regex("x*")]).contains("the pattern `x*`, which also matches the empty string"));
    }
}
