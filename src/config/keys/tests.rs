//! Tests of the errors for keys and values, and of the bounds in the schema.

use super::*;
use crate::config::TuneConfig;

#[test]
fn defaults_document_every_key() {
    let text = defaults();
    let config = Config::parse(&text, "defaults.toml".as_ref(), &[]).unwrap();
    assert_eq!(config, Config { tune: Some(TuneConfig::default()), ..Config::default() });
    for section in keys_of("") {
        let (_, keys) = text.split_once(&format!("\n[{section}]\n")).unwrap();
        for key in keys_of(section) {
            let schema = &SCHEMA["properties"][section]["properties"][key];
            let line = |line: &str| line.starts_with(&format!("{key} =")) || line == format!("# {key} =");
            assert!(keys.lines().any(line), "{section}.{key}");
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 10), "{section}.{key}");
        }
    }
    let optimizer =
        "# The optimizer.\n# One of \"adamw\", \"adam\", \"sgd\", \"muon\".\noptimizer = \"adamw\"\n";
    assert!(text.contains(optimizer), "{text}");
    assert!(text.contains("\nepsilon = 1e-8\n"), "{text}");
}

#[test]
fn schema_matches_the_config_structs() {
    let schema = |section: &str, key: &str| &SCHEMA["properties"][section]["properties"][key];
    assert_eq!(SCHEMA["properties"]["model"]["additionalProperties"], false);
    assert_eq!(schema("training", "schedule")["oneOf"][1]["const"], "linear");
    assert_eq!(schema("data", "length")["type"], "integer");
    assert_eq!(schema("data", "tokens")["type"], "string");
    assert_eq!(*keys_of(""), ["run", "data", "model", "training", "analysis", "tune"]);
    assert!(!SCHEMA.to_string().contains("$ref"), "every key is described inline");
}

#[test]
fn schema_bounds_match_the_checks() {
    let checked = |section: &'static str| keys_of(section).iter().map(move |key| check_bounds(section, key));
    let bounds: usize = keys_of("").iter().flat_map(|section| checked(section)).sum();
    assert!(bounds > 80, "{bounds}");
    assert_eq!(SCHEMA["properties"]["model"]["properties"]["heads"]["minimum"], 1);
    assert_eq!(SCHEMA["properties"]["model"]["properties"]["dropout"]["exclusiveMaximum"], 1.0);
    assert_eq!(SCHEMA["properties"]["training"]["properties"]["learning_rate"]["exclusiveMinimum"], 0.0);
}

/// Checks that values within the bounds of a key's schema are accepted and values outside them refused. Returns the
/// number of bounds.
fn check_bounds(section: &str, key: &str) -> usize {
    let schema = &SCHEMA["properties"][section]["properties"][key];
    let is_refused = |value| is_out_of_range(section, key, value);
    let error = |value| error_of(section, key, value);
    let bound = |word: &str| schema.get(word).and_then(Json::as_f64);
    let step = if is_real(schema) { 1e-3 } else { 1.0 };
    let mut bounds = 0;
    for (word, outside) in [("minimum", -step), ("maximum", step)] {
        let Some(bound) = bound(word) else { continue };
        assert!(is_refused(bound + outside), "{section}.{key} {word}: {}", error(bound + outside));
        assert!(!is_refused(bound), "{section}.{key} {word}: {}", error(bound));
        bounds += 1;
    }
    for (word, within) in [("exclusiveMinimum", step), ("exclusiveMaximum", -step)] {
        let Some(bound) = bound(word) else { continue };
        assert!(is_refused(bound), "{section}.{key} {word}: {}", error(bound));
        assert!(!is_refused(bound + within), "{section}.{key} {word}: {}", error(bound + within));
        bounds += 1;
    }
    let is_number = is_real(schema) || schema["type"] == "integer" || schema["type"][0] == "integer";
    let has_min = bound("minimum").or(bound("exclusiveMinimum")).is_some();
    assert!(!is_number || has_min, "{section}.{key} has no range");
    for unrepresentable in ["1e308", "1e-60"].iter().filter(|_| is_real(schema)) {
        let set = format!("{section}.{key}={unrepresentable}");
        assert!(Config::parse("", "a.toml".as_ref(), &[set]).is_err(), "{section}.{key} = {unrepresentable}");
    }
    bounds
}

/// Returns the error of a config that sets a key to a number, or an empty string if there is none.
fn error_of(section: &str, key: &str, value: f64) -> String {
    let shown = format!("{value:?}");
    let set = format!("{section}.{key}={}", shown.strip_suffix(".0").unwrap_or(&shown));
    let read = Config::parse("", "a.toml".as_ref(), &[set]);
    read.map_or_else(|error| error.to_string(), |_| String::new())
}

/// Returns true if a number is refused because of the range of its key. A conflict with another key does not count.
fn is_out_of_range(section: &str, key: &str, value: f64) -> bool {
    let schema = &SCHEMA["properties"][section]["properties"][key];
    let clause = match (schema.get("minimum"), schema.get("maximum")) {
        (Some(min), Some(max)) => format!("must be in [{min}, {max}]"),
        _ => " integer".to_string(),
    };
    let clauses = [
        &clause,
        " integer",
        "must be finite and ",
        "must be in [0, 1)",
        "must be in (0, 1)",
        "must be in (0, 1]",
        "expected ",
    ];
    let error = error_of(section, key, value);
    error.starts_with(&format!("--set: `{section}.{key}` = "))
        && clauses.iter().any(|clause| error.contains(clause))
}

fn is_real(schema: &Json) -> bool {
    schema["type"] == "number" || schema["type"][0] == "number"
}
