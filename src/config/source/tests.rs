//! Tests of config files and their overrides.

use super::*;
use crate::data::{Column, Task, Tokens};

fn message(text: &str, sets: &[&str]) -> String {
    let sets = sets.iter().map(ToString::to_string).collect::<Vec<_>>();
    match Config::parse(text, Path::new("a.toml"), &sets) {
        Ok(_) => "nothing".to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn invalid_values_are_quoted_with_file_and_line() {
    let cases = [
        ("[model]\n\nheads = \"four\"", "a.toml:3: `model.heads` = \"four\" must be a positive integer"),
        ("[model]\nheads = -4", "a.toml:2: `model.heads` = -4 must be a positive integer"),
        (
            "[data]\nperiod = [1,\n  2, 3]",
            "a.toml:2: `data.period` = [1, 2, 3] cannot be used: expected the shortest",
        ),
        (
            "[training]\noptimizer = 3",
            "a.toml:2: `training.optimizer` = 3 cannot be used: expected one of `adamw`",
        ),
        (
            "[training]\nlearning_rate = 1e-3\nwarmup = nan",
            "a.toml:3: `training.warmup` = nan must be a finite number",
        ),
        (
            "[run]\nseed = 18446744073709551615",
            "a.toml:2: `run.seed` = 18446744073709551615 does not fit into a 64-bit integer",
        ),
        ("[training]\nsteps = 30.5", "a.toml:2: `training.steps` = 30.5 must be a positive integer"),
        ("[run]\nseed = -1", "a.toml:2: `run.seed` = -1 must be a non-negative integer"),
        ("[model]\nheads = 5", "a.toml:2: `model.heads` = 5 must divide"),
        ("[tune]\ntrials = \"many\"", "a.toml:2: `tune.trials` = \"many\" must be a positive integer"),
        ("model = 3", "a.toml:1: `model` = 3 must be a section"),
        ("heads = 3", "a.toml:1: `heads` = 3 is outside its section; move it below [model]"),
    ];
    for (text, expected) in cases {
        let message = message(text, &[]);
        assert!(message.starts_with(expected) && message.lines().count() == 1, "{text}: {message}");
    }
}

#[test]
fn origin_of_value_is_its_written_line() {
    let text = "[training]\nprecision = \"f16\"\nwarmup = 8\nlearning_rate = 1e-3\n";
    let written = Written::parse(text, Some(Path::new("a.toml"))).unwrap();
    let line = |key: &str, value: &str| match written.origin_of_value(key, value) {
        Some(Origin::File(location)) => location.line,
        _ => None,
    };
    assert_eq!(line("training.precision", "f16"), Some(2));
    assert_eq!(line("training.warmup", "8.0"), Some(3));
    assert_eq!(line("training.learning_rate", "0.001"), Some(4));
    // A value from a search, and a default.
    assert_eq!((line("training.learning_rate", "0.003"), line("training.steps", "7")), (None, None));
}

#[test]
fn unknown_keys_suggest_similar_or_list_all() {
    let message = |text| message(text, &[]);
    assert_eq!(
        message("[model]\nhed = 4"),
        "a.toml:2: `model.hed` = 4 is an unknown key; did you mean `model.heads`?"
    );
    let unlike = message("[model]\nzzz = 4");
    assert!(
        unlike.contains("is an unknown key; the keys of [model] are architecture, d_model, heads,"),
        "{unlike}"
    );
    let unlike = message("[training]\nzzz = 4");
    assert!(unlike.contains("accumulate") && unlike.len() <= 500, "{} bytes: {unlike}", unlike.len());
    let section = message("[zzz]\nheads = 4");
    assert!(section.contains("the sections are run, data, model, training, analysis, tune"), "{section}");
    let searched = message("[tune.search]\nzzz = [1]");
    assert!(
        searched.starts_with("a.toml:2: `tune.search.zzz` = [1] is an unknown key") && searched.len() <= 500,
        "{searched}"
    );
}

#[test]
fn type_errors_use_plain_words() {
    for key in Config::default().values().into_keys() {
        for value in ["{ a = 1 }", "[[1]]", "1979-05-27"] {
            let message = message(&format!("{key} = {value}"), &[]);
            assert!(!message.contains("invalid type") && !message.contains("struct "), "{message}");
        }
    }
}

#[test]
fn set_values_parse_as_toml_or_string() {
    let config = |set: &str| Config::parse("", Path::new("a.toml"), &[set.to_string()]).unwrap();
    for text in
        ["2024", "1e5", "1.5", "true", "nan", "2024-01-05", "[a, b]", "[1]", "99999999999999999999", "2024#1"]
    {
        assert_eq!(config(&format!("data.path={text}")).data.path, text.into());
        assert_eq!(config(&format!("run.name={text}")).run.name, text);
        assert_eq!(config(&format!("data.tokens={text}")).data.tokens, Tokens::File(text.into()));
    }
    let paths = config("data.path=[\"a.csv\", \"b.csv\"]").data.path;
    assert!(paths.iter().eq(["a.csv", "b.csv"].map(Path::new)));
    assert_eq!(config("data.path=\"2024\"").data.path, "2024".into());
    assert_eq!(config(r#"data.path="C:\Users\a.txt""#).data.path, r"C:\Users\a.txt".into());
    assert_eq!(config("data.column=2024").data.column, Column::Number(2024));
    assert_eq!(config("data.column=\"2024\"").data.column, Column::Name("2024".into()));
    for name in ["2024-01-05", "1e5", "true"] {
        assert_eq!(config(&format!("data.column={name}")).data.column, Column::Name(name.into()));
    }
    assert_eq!(config("model.heads = 2").model.heads, 2);
    assert_eq!(config("data.period=[3, 5]").data, config("data.period = [3,5]").data);
    assert!(message("", &["model.heads=four"]).starts_with("--set: `model.heads` = \"four\" must be a"));
    assert!(message("", &["data.period=[3, \"x\"]"]).starts_with("--set: `data.period` = [3, \"x\"]"));
    assert!(message("", &["model.zzz=4"]).starts_with("--set: `model.zzz` = 4 is an unknown key"));
    assert!(
        message("", &["nothing.zzz=4"])
            .starts_with("--set: `nothing.zzz` = 4 is an unknown key; the sections are")
    );
    assert!(message("", &["model.heads=4\nlayers=3"]).contains("has more than one line"));
    let long = format!("run.name={}", "x".repeat(1 << 20));
    assert!(message("", &[&long]).len() < 500 && message("", &[&long[4..]]).len() < 500);
}

#[test]
fn text_without_quotes_in_a_file_is_refused() {
    for text in ["2024", "1e5", "true", "2024-01-05"] {
        for key in ["data.path", "run.name", "data.tokens", "run.from"] {
            let message = message(&format!("{key} = {text}"), &[]);
            let remedy = format!("`{key}` = {text} is not text; write it in quotes: \"{text}\"");
            assert!(message.starts_with("a.toml:1: ") && message.ends_with(&remedy), "{message}");
        }
    }
    assert!(message("[data]\npath = \"C:\\Users\\a.txt\"", &[]).contains("in single quotes"));
}

#[test]
fn an_empty_override_is_refused() {
    for key in ["data.path", "data.tokens", "run.from", "run.name", "data.column", "model.heads"] {
        let message = message("", &[&format!("{key}=")]);
        assert!(message.starts_with(&format!("--set {key}=: the value is empty")), "{message}");
    }
    assert!(message("", &["data.path=\"\""]).starts_with("--set: `data.path` = \"\" is empty"));
    assert_eq!(message("", &["run.name=\"\""]), "nothing");
}

#[test]
fn task_and_file_are_mutually_exclusive() {
    let both = message("", &["data.path=a.txt", "data.task=sort"]);
    assert!(both.starts_with("--set: `data.task` = \"sort\" generates sequences, but `data.path`"), "{both}");
    let both = message("[data]\nsource = \"sequences\"\npath = \"a.txt\"", &[]);
    assert!(both.starts_with("a.toml:2: `data.source` = \"sequences\" does not read a file"), "{both}");
    let config =
        |text: &str, set: &str| Config::parse(text, Path::new("a.toml"), &[set.into()]).unwrap().data;
    let generated = config("data.path = \"a.txt\"", "data.task=sort");
    assert_eq!((generated.source(), generated.path.is_empty()), (Source::Sequences, true));
    let read = config("data.task = \"sort\"", "data.path=a.txt");
    assert_eq!((read.source(), read.task), (Source::Text, Task::default()));
}

#[test]
fn misplaced_keys_suggest_their_section() {
    let message = |text| message(text, &[]);
    assert!(message("[training]\ndropout = 0.1").ends_with("did you mean `model.dropout`?"));
    // The suggestion is not `training.threads`.
    assert!(message("[training]\nheads = 4").ends_with("did you mean `model.heads`?"));
    assert!(message("[modle]\nheads = 4").ends_with("did you mean `model`?"));
    assert!(message("[training]\noptimiser = \"adam\"").ends_with("did you mean `training.optimizer`?"));
    let unlike = message("[run]\ncolour = \"red\"");
    assert!(unlike.ends_with("the keys of [run] are name, seed, from"), "{unlike}");
}

#[test]
fn search_keys_accept_quotes_but_no_duplicates() {
    let search = |text: &str| {
        let text = format!("[tune.search]\n{text}");
        Config::parse(&text, Path::new("a.toml"), &[]).map(|config| config.tune.unwrap().search)
    };
    let text = "\"training.batch_size\" = [16]\ntraining.learning_rate = { min = 1, max = 2 }\n";
    let keys = search(text).unwrap();
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["training.batch_size", "training.learning_rate"]);
    let twice = search("\"model.heads\" = [2]\nmodel.heads = [4]").unwrap_err().to_string();
    assert!(twice.starts_with("a.toml:") && twice.contains("appears twice"), "{twice}");
}
