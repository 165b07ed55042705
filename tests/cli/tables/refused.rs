//! Tables that are refused, each with a remedy.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{data, described, noise, refused, write};
use crate::text;

#[test]
fn masking_fields_are_refused_unless_trivial() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let record = |row: usize| vec![row % 3, row % 5, row % 7, 1];
    let read = |name: &str, more: &dyn Fn(usize) -> Value| {
        write(folder, name, "", 40, |row| {
            let mut fields = json!({ "input_ids": record(row) });
            fields.as_object_mut().unwrap().extend(more(row).as_object().unwrap().clone());
            fields.to_string()
        });
        data(folder, name, &["data.column=input_ids"]).output().unwrap()
    };
    for (field, value) in [
        ("labels", json!([-100, -100, 3, 1])),
        ("loss_mask", json!([0, 0, 1, 1])),
        ("completion_mask", json!([false, true, true, true])),
        ("attention_mask", json!([1, 1, 1, 0])),
        ("weights", json!([1.0, 0.5, 1.0, 1.0])),
        ("position_ids", json!([0, 1, 0, 1])),
    ] {
        let output = read("a.jsonl", &|_| json!({ field: value }));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{field}: {stderr}");
        assert!(stderr.starts_with(&format!("error: a.jsonl:1: has a field `{field}`")), "{stderr}");
        assert!(stderr.contains(&format!("remove `{field}` from every record")), "{stderr}");
    }
    let harmless = |row| {
        let (ones, all_true, equal) = ([1; 4], [true; 4], [1.0; 4]);
        json!({ "labels": record(row), "attention_mask": ones, "loss_mask": all_true, "weights": equal, "id": row })
    };
    assert!(read("a.jsonl", &harmless).status.success() && read("a.jsonl", &|_| json!({})).status.success());

    write(folder, "a.csv", "token,loss_mask\n", 200, |row| format!("{},{}", row % 5, row % 2));
    let stderr = refused(folder, "a.csv", &["data.column=token"]);
    assert!(stderr.contains("a.csv:2: has a field `loss_mask`"), "{stderr}");
}

#[test]
fn masking_fields_with_other_names_are_refused() {
    let dir = TempDir::new().unwrap();
    for field in [
        "\"label\":-100",
        "\"targets\":[1,2]",
        "\"weight\":0.5",
        "\"lossMask\":[0,1]",
        "\"loss-masks\":[0,1]",
        "\"answers\":[-100,1]",
        "\"answers\":[0,1]",
        "\"answers\":[false,true]",
        "\"prompt_len\":1",
        "\"decoder_input_ids\":[3,4]",
        "\"cu_seqlens\":[0,1,2]",
    ] {
        write(dir.path(), "weighed.jsonl", "", 60, |row| {
            format!("{{\"x\":[{},{}],{field}}}", row % 3, 2 + row % 5)
        });
        let stderr = refused(dir.path(), "weighed.jsonl", &["data.column=x"]);
        assert!(stderr.contains("changes the meaning of the targets"), "{field}: {stderr}");
    }
    write(dir.path(), "class.jsonl", "", 60, |row| {
        format!("{{\"x\":[{},{}],\"label\":2}}", row % 3, row % 5)
    });
    described(dir.path(), "class.jsonl", &["data.column=x"]);
    write(dir.path(), "marks.csv", "x,answers,tags\n", 60, |row| format!("{} 5 7,0 1 1,7 8 9", row % 3));
    let stderr = refused(dir.path(), "marks.csv", &["data.column=x"]);
    assert!(stderr.contains("marks.csv:2: has a field `answers`, which changes the meaning"), "{stderr}");
    // Zeros and ones may be another sequence of zeros and ones.
    let rows = |row: usize| format!("{} 1 0,0 1 1,7 8 9", row % 2);
    write(dir.path(), "sequences.csv", "x,answers,tags\n", 60, rows);
    let output = data(dir.path(), "sequences.csv", &["data.column=x"]).output().unwrap();
    let stdout = text(&output.stdout);
    let notice = "lists with one value for each token are not read: `answers`, `tags`;";
    assert!(output.status.success() && stdout.contains(notice), "{stdout}");
}

#[test]
fn titles_units_and_brackets_are_not_values() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let row = |row: usize| format!("{},{},{}", row % 3, row % 5, noise(row, 7));
    for (header, line) in [("a,b,c\nm,s,kg\n", 2), ("Sales of 2024\n\na,b,c\n", 1)] {
        write(folder, "titled.csv", header, 200, row);
        let stderr = refused(folder, "titled.csv", &[]);
        let problem = if line == 1 && header.starts_with("Sales") { "has 1 value" } else { "contains words" };
        assert!(stderr.contains(&format!("titled.csv:{line}: {problem}")), "{header}: {stderr}");
        write(folder, "titled.csv", "", 200, row);
        assert_eq!(described(folder, "titled.csv", &[])["vocab"], 7);
    }
    for (open, close) in [("[", "]"), ("(", ")"), ("{", "}")] {
        write(folder, "lists.csv", "", 200, |at| format!("{open}{}{close}", row(at)));
        assert!(refused(folder, "lists.csv", &[]).contains("remove the brackets"));
    }
    write(folder, "lists.jsonl", "", 200, |at| format!("[{}]", row(at)));
    assert_eq!(described(folder, "lists.jsonl", &[])["vocab"], 7);
    write(folder, "spaced.csv", "", 200, |at| format!("\"{}\", \"{}\"", at % 3, at % 5));
    assert!(refused(folder, "spaced.csv", &["data.values=symbols"]).contains("remove the space"));
}

#[test]
fn duplicate_json_keys_are_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let twice = |at: usize| match at {
        40 => "{\"tokens\":[1,2],\"tokens\":[3,4]}".to_string(),
        _ => "{\"tokens\":[1,2]}".to_string(),
    };
    write(folder, "twice.jsonl", "", 60, twice);
    let array = (0..60).map(twice).collect::<Vec<_>>().join(",\n");
    fs::write(folder.join("twice.json"), format!("[{array}]")).unwrap();
    for (file, location) in [("twice.jsonl", "twice.jsonl:41:"), ("twice.json", "twice.json:41:")] {
        let stderr = refused(folder, file, &["data.column=tokens"]);
        assert!(
            stderr.contains(location) && stderr.contains("the key `tokens` occurs twice in one object"),
            "{stderr}"
        );
    }
    write(folder, "within.jsonl", "", 60, |_| "{\"x\":[1,2],\"meta\":{\"a\":1,\"a\":1}}".into());
    assert!(refused(folder, "within.jsonl", &["data.column=x"]).contains("the key `a` occurs twice"));
}

#[cfg(unix)]
#[test]
fn fully_quoted_lines_are_refused_with_a_command() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let numbers = |at: usize| format!("\"{},{},{}\"\r", at % 3, at % 5, at % 7);
    let words = |at: usize| format!("\"w{},\"\"x y\"\",z\"", at % 3);
    let lists = |at: usize| format!("\"[{}, {}]\"", at % 3, at % 5);
    let strings = |at: usize| format!("\"[\"\"w{}\"\", \"\"x, y\"\"]\"", at % 3);
    let as_symbols = ["data.column=1", "data.values=symbols"];
    for (header, row, first, as_column) in [
        ("", &numbers as &dyn Fn(usize) -> String, json!(["0", "0", "0"]), &as_symbols[..]),
        ("\"a,b,c\"\n", &numbers, json!(["0", "0", "0"]), &as_symbols),
        ("a,b,c\n", &numbers, json!(["0", "0", "0"]), &as_symbols),
        ("", &words, json!(["w0", "x y", "z"]), &["data.column=1"]),
        ("", &lists, json!(["0", "0"]), &as_symbols),
        ("a,b\n", &lists, json!(["0", "0"]), &as_symbols),
        ("", &strings, json!(["w0", "x, y"]), &as_symbols),
    ] {
        write(folder, "it's.csv", header, 200, row);
        for sets in [&[][..], &["data.delimiter=comma"]] {
            let stderr = refused(folder, "it's.csv", sets);
            assert!(stderr.contains("it's.csv:2: is entirely in quotes"), "{stderr}");
            let command = stderr.split('`').nth(1).unwrap();
            let run = std::process::Command::new("sh").args(["-c", command]).current_dir(folder).status();
            assert!(run.unwrap().success(), "{command}");
            let keys: Vec<_> = stderr.split('`').skip(3).step_by(2).collect();
            assert_eq!(
                keys,
                as_column.iter().map(|set| set.split_once('=').unwrap().0).collect::<Vec<_>>(),
                "{stderr}"
            );
            let column = described(folder, "it's.csv", as_column);
            assert_eq!(column["table"]["columns"], json!([1, 1]), "{stderr}");
        }
        let read = described(folder, "it's.unquoted.csv", &[]);
        assert_eq!(read["table"]["rows"][0], first, "{header}");
    }
    write(folder, "one.csv", "\"order\"\n", 200, |at| format!("\"order, no. {}\"", at % 3));
    assert_eq!(described(folder, "one.csv", &["data.column=order"])["vocab"], 3);
}

#[test]
fn numbers_are_quoted_as_written() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "a.jsonl", "", 60, |_| "{\"w\": 0.50, \"x\": [7, 1e0]}".into());
    assert!(refused(dir.path(), "a.jsonl", &["data.column=x"]).contains("value 2: `1e0` is not an integer"));
    assert!(refused(dir.path(), "a.jsonl", &["data.column=w"]).contains(":1: `0.50` is not an integer"));
}

#[test]
fn csv_lines_without_data_are_refused_by_number() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let words = ["up", "down", "left"];
    let rows = |count: usize| {
        (0..count).map(|row| format!("{},{}\n", words[row % 3], words[row * 7 % 3])).collect::<String>()
    };
    let numbers = (0..100).map(|row| format!("{},{}\n", row % 5, row % 3)).collect::<String>();
    for (text, expected) in [
        (format!("a,b\n-,-\n{numbers}"), ":2: is a separator of dashes"),
        (format!("a,b\n---,---\n{}", rows(90)), ":2: is a separator of dashes"),
        (format!("a,b\n{numbers}\n(100 rows affected)\n"), ":103: is a row count, not a row"),
        (format!("x,y\n{}x,y\n{}", rows(90), rows(90)), ":92: repeats the names of line 1"),
        (
            format!("x,y\n{numbers}{numbers}{}x,y\n{numbers}", numbers.repeat(10)),
            ":1202: repeats the names of line 1",
        ),
        (format!("{}'a,b',c\n", rows(90)), ":91: has a value in single quotes that the delimiter splits"),
    ] {
        fs::write(folder.join("a.csv"), &text).unwrap();
        let stderr = refused(folder, "a.csv", &[]);
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}

#[test]
fn repeated_headers_of_joined_files_are_refused() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let rows = |count: usize| {
        (0..count)
            .map(|row| format!("{},{}\n", ["a", "b", "c"][noise(row, 3)], ["x", "y"][row % 2]))
            .collect::<String>()
    };
    let part = format!("kind,colour\n{}", rows(100));
    for (second, expected) in [
        ("colour,kind", "a.csv:102: has the names of line 1 in another order or among others"),
        ("kind,colour,size", "a.csv:102: has the names of line 1 in another order or among others"),
        ("Kind,Colour", "a.csv:102: repeats the names of line 1"),
    ] {
        fs::write(folder.join("a.csv"), format!("{part}{second}\n{}", rows(100))).unwrap();
        let stderr = refused(folder, "a.csv", &[]);
        assert!(stderr.contains(expected), "{second}: {stderr}");
    }
    fs::write(folder.join("a.csv"), format!("{}{part}", part.trim_end())).unwrap();
    let stderr = refused(folder, "a.csv", &[]);
    assert!(stderr.contains("a.csv:101: ends in the names of line 1"), "{stderr}");
    assert!(stderr.contains("insert a line break before `kind`"), "{stderr}");
    fs::write(folder.join("a.csv"), format!("kind,colour\n{}{}", rows(1100), part)).unwrap();
    assert!(refused(folder, "a.csv", &[]).contains("a.csv:1102: repeats the names of line 1"));
    // Names that also occur as values are not a header.
    let values = "kind,colour\n".to_string() + &"colour,kind\nkind,kind\n".repeat(60);
    fs::write(folder.join("a.csv"), values).unwrap();
    described(folder, "a.csv", &["data.header=true"]);
}

#[test]
fn doubled_quotes_belong_to_the_value() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    write(folder, "a.csv", "reader,book\n", 100, |at| {
        format!("{},{}", ["Ann", "Bob"][at % 2], [r#""""Ulysses""""#, "Emma"][at / 2 % 2])
    });
    let read = described(folder, "a.csv", &[]);
    assert_eq!(read["table"]["rows"][0], json!(["Ann", "\"Ulysses\""]));
    write(folder, "a.csv", "reader,book\n", 100, |at| format!("Ann, \"b{}\"", at % 3));
    assert!(refused(folder, "a.csv", &[]).contains("a.csv:2: value 2: \"b0\" keeps its quotes"));
}
