//! Tests of the description of a dataset.

use super::*;
use crate::data::{Column, Task, load, load_pairs};
use crate::error::Result;

fn describe(config: &DataConfig, seed: u64) -> Result<DataDescription> {
    Ok(DataDescription::of(config, &load(config, seed)?))
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn tasks_show_floor_and_mark_determined_tokens() {
    let config = DataConfig { task: Task::Sort, length: 6, train_samples: 5, ..DataConfig::default() };
    let description = describe(&config, 3).unwrap();
    let sample = &description.samples[0];
    assert_eq!((description.samples.len(), sample.tokens.len()), (3, 7));
    assert_eq!(sample.determined, [false, false, false, true, true, true, true]);
    assert_eq!((description.train.targets, description.train.determined), (30, 20));
    assert_eq!((description.vocabulary.size, description.vocabulary.tokens[16].as_str()), (17, "|"));
    let page = description.to_string();
    let floor = format!("floor       {:.4} nats per token", 2.0 * 16f64.ln() / 6.0);
    assert!(page.contains(&floor), "{page}");
    assert!(page.contains("5 samples, 30 targets, 66.7 % of them determined"), "{page}");
    // Each mark is below its token.
    let lines: Vec<&str> = page.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("samples (^ marks")).unwrap();
    let bar = lines[at + 1].find('|').unwrap();
    assert!(lines[at + 2][..bar].trim().is_empty() && lines[at + 2][bar..].starts_with('^'), "{page}");
}

#[test]
fn leaked_sequences_are_counted_and_reported() {
    // A large training set has all 240 sequences of `arithmetic`.
    let config = DataConfig { task: Task::Arithmetic, ..DataConfig::default() };
    let description = describe(&config, 0).unwrap();
    assert_eq!(description.overlap.leaked, 512);
    assert!(description.warnings[0].starts_with("512 of 512 validation sequences also occur in training"));
    assert_eq!(describe(&DataConfig::default(), 0).unwrap().warnings, [""; 0]);
}

#[test]
fn padded_rows_are_reported() {
    let row = |at: usize, filled: usize| {
        Vec::from_iter((0..8).map(move |index| if index < filled { 1 + (at * 7 + index * 3) % 9 } else { 0 }))
    };
    let warned = |rows: Vec<Vec<usize>>| {
        let line = |row: Vec<usize>| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(",") + "\n";
        let (_folder, path) = file("a.csv", &rows.into_iter().map(line).collect::<String>());
        let config = DataConfig { path: path.into(), ..DataConfig::default() };
        describe(&config, 0).unwrap().warnings.into_iter().find(|it| it.contains("looks like padding"))
    };
    let padded = |at: usize| row(at, 3 + at % 5);
    let right = warned((0..40).map(padded).collect()).unwrap();
    assert!(right.contains(" of 36 training rows end with several `0`, which looks like padding"), "{right}");
    let left = warned((0..40).map(|at| padded(at).into_iter().rev().collect()).collect()).unwrap();
    assert!(left.contains("training rows begin with several `0`"), "{left}");
    assert_eq!(warned((0..40).map(|at| row(at, 8)).collect()), None);
    // A token that also occurs within rows is not padding.
    let zeros = |at: usize| Vec::from_iter(padded(at).into_iter().map(|id| if id == 5 { 0 } else { id }));
    assert_eq!(warned((0..40).map(zeros).collect()), None);
}

#[test]
fn short_texts_with_unseen_characters_give_warnings() {
    let (_folder, path) = file("a.txt", &("to be or not to be\n".repeat(8) + "a question?!"));
    let config =
        DataConfig { source: Some(Source::Text), path: path.into(), length: 64, ..DataConfig::default() };
    let description = describe(&config, 0).unwrap();
    assert_eq!(description.overlap.unseen, ["!", "?", "a", "i", "q", "s", "u"]);
    let page = description.to_string();
    for part in [
        "vocabulary  15 characters: \\n ␣ ! ? a b",
        "  to␣be␣or␣not␣to␣be\\nto␣be",
        "unseen      missing from training: ! ? a i q s u",
        "warning: too little data: training has 3 windows of `data.length` = 64",
        "warning: validation has 16 targets, and a mean loss over fewer than 1,000 is uncertain",
        "validation  1 sample, 16 targets",
        "warning: training lacks 7 tokens of validation, which the model cannot learn",
    ] {
        assert!(page.contains(part), "{part}\nnot in\n{page}");
    }
    assert!(description.baselines.floor.is_none() && !page.contains("floor"));
    assert!(description.baselines.bigram_entropy < description.baselines.unigram_entropy);
}

#[test]
fn table_columns_and_pairs_are_described() {
    let (_folder, path) = file("a.csv", &"1,up\n2,down\n".repeat(400));
    let config = DataConfig {
        source: Some(Source::Table),
        path: path.into(),
        column: Column::Number(2),
        length: 5,
        ..DataConfig::default()
    };
    let description = describe(&config, 0).unwrap();
    assert_eq!(description.vocabulary.tokens, ["down", "up"]);
    assert!(
        description.baselines.bigram_entropy < 1e-9
            && (description.baselines.unigram_entropy - 2f64.ln()).abs() < 1e-3
    );
    let long = "x".repeat(100_000);
    std::fs::write(config.path.first(), format!("up,{long}\ndown,{long}\nup,{long}\n")).unwrap();
    let page = describe(&DataConfig { column: Column::default(), ..config }, 0).unwrap().to_string();
    assert!(page.contains(&format!("up {}…\n", &long[..40])) && page.len() < 2000, "{page}");
    let config = DataConfig { task: Task::Reverse, length: 5, ..DataConfig::default() };
    let pairs = DataDescription::of(&config, &load_pairs(&config, 0).unwrap());
    let sample = &pairs.samples[0];
    let source = sample.source.as_ref().unwrap();
    let answer: Vec<String> = source.iter().rev().cloned().chain(["<end>".to_string()]).collect();
    assert_eq!(sample.tokens[1..], answer);
    assert!(pairs.to_string().contains(&format!("  {} →", source.join(" "))));
}

#[test]
fn description_serializes_to_json() {
    let json = serde_json::to_value(describe(&DataConfig::default(), 0).unwrap()).unwrap();
    assert_eq!(json["name"], "repeat");
    assert_eq!(json["train"]["samples"], 8192);
    assert!(json["floor"]["valid"].as_f64().unwrap() > 0.0);
    assert_eq!(json["samples"][0]["determined"][0], false);
}

#[test]
fn texts_resembling_tables_cause_warnings() {
    let verse = "Now is the winter, of our discontent\nMade glorious summer\n".repeat(9);
    let table = "day,state\nmon,sun\ntue,rain\n".repeat(9);
    let json = "{\"state\": \"sun\"}\n[3, 1]\n".repeat(9);
    let ids = (0..50).map(|id| (id % 7).to_string()).collect::<Vec<_>>().join(" ");
    let (_folder, path) = file("rows.json", &format!("[{}]", vec!["[1, 2, 3]"; 20].join(", ")));
    let as_text =
        DataConfig { path: path.into(), source: Some(Source::Text), length: 8, ..DataConfig::default() };
    let warnings = describe(&as_text, 0).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("the text is JSON")), "{warnings:?}");
    let (_folder, path) = file("ids.txt", &(ids + "\n"));
    let warnings =
        describe(&DataConfig { path: path.into(), length: 8, ..DataConfig::default() }, 0).unwrap().warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains("`tr -s ' ' '\\n' < FILE > NEW.csv`")),
        "{warnings:?}"
    );
    for (text, expected) in [
        (&verse, None),
        (&table, Some("2 values in each line")),
        (&json, Some("a JSON array or object in each line")),
    ] {
        let (_folder, path) = file("a.dat", text);
        let config = DataConfig { path: path.into(), length: 8, ..DataConfig::default() };
        let warnings = describe(&config, 0).unwrap().warnings;
        let warning = warnings.iter().find(|warning| warning.contains("not as a table"));
        assert_eq!(
            warning.is_some_and(|warning| warning.contains(expected.unwrap_or("\0"))),
            expected.is_some(),
            "{warnings:?}"
        );
        assert_eq!(warning.is_some(), expected.is_some(), "{warnings:?}");
    }
}

#[test]
fn advice_for_texts_of_json_succeeds() {
    let advice = |config: &DataConfig| {
        let warnings = describe(config, 0).unwrap().warnings;
        let is_advice = |warning: &String| warning.contains("JSON") || warning.contains("table");
        warnings.into_iter().find(is_advice).unwrap_or_default()
    };
    let as_text = |path: std::path::PathBuf| DataConfig {
        path: path.into(),
        source: Some(Source::Text),
        length: 8,
        ..DataConfig::default()
    };
    let array = format!("[{}]", vec!["[1, 2, 3]"; 60].join(",\n"));
    for (text, column) in [
        ("[3, 1, 4, 1]\n".repeat(60), ""),
        (array.clone(), ""),
        ("{\"day\": 1, \"state\": \"sun\"}\n".repeat(60), "state"),
        (format!("[{}]", vec!["{\"state\": \"sun\"}"; 60].join(", ")), "state"),
    ] {
        let (_folder, path) = file("a.txt", &text);
        let advice = advice(&as_text(path.clone()));
        assert!(advice.contains("set `data.source` = \"table\""), "{advice}");
        assert_eq!(advice.contains("and `data.column` to a field"), !column.is_empty(), "{advice}");
        let config = DataConfig { source: Some(Source::Table), ..as_text(path) };
        load(&DataConfig { column: Column::Name(column.into()), ..config }, 0).unwrap();
    }
    let object = format!("{{\"a\": [{}]}}", vec!["1"; 200].join(",\n"));
    let [tuples, lists] = ["(3, 1, 4)\n", "['a', 'b']\n"].map(|line| line.repeat(60));
    for text in [tuples, lists, object, "[[1], [2]]\n".repeat(60)] {
        let (_folder, path) = file("a.txt", &text);
        assert!(!advice(&as_text(path)).contains("data.source"), "{text}");
    }
    let table = "mon,sun\ntue,rain\n".repeat(30);
    for (name, text, extension) in [("a.csv", &array, ".json"), ("a.json", &table, ".csv")] {
        let (_folder, path) = file(name, text);
        let expected = format!("; rename the file to {extension} and set `data.source` = \"table\"");
        assert!(advice(&as_text(path)).contains(&expected), "{name}");
    }
}

#[test]
fn tables_in_a_folder_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.csv", "b.tsv", "c.txt"] {
        std::fs::write(folder.path().join(name), "x,y,z\ny,x\nz,x,y,x\n".repeat(20)).unwrap();
    }
    let config = DataConfig { path: folder.path().into(), length: 8, ..DataConfig::default() };
    let warnings = describe(&config, 0).unwrap().warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("a.csv` (and 1 more file) has the extension of a table")),
        "{warnings:?}"
    );
}
