//! Tables as other programs write them: accepted formats, warnings and refusals.

#[cfg(feature = "parquet")]
mod columnar;
mod headers;
mod refused;
mod warned;

use std::{fmt::Write, fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{program, text};

/// Returns the output of `data --json` for a file.
fn described(folder: &Path, file: &str, sets: &[&str]) -> Value {
    let output = data(folder, file, sets).arg("--json").output().unwrap();
    assert!(output.status.success(), "{file} {sets:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that `data` refuses a file in one line, and returns the line.
fn refused(folder: &Path, file: &str, sets: &[&str]) -> String {
    let output = data(folder, file, sets).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{file} {sets:?}: {stderr}");
    stderr
}

fn data(folder: &Path, file: &str, sets: &[&str]) -> std::process::Command {
    let mut command = program(folder);
    command.args(["data", "--set", &format!("data.path={file}")]);
    for set in sets {
        command.args(["--set", set]);
    }
    command
}

/// Writes a header and one line for each row number below `rows`.
fn write(folder: &Path, name: &str, header: &str, rows: usize, row: impl Fn(usize) -> String) {
    let rows = (0..rows).fold(header.to_string(), |mut rows, number| {
        let _ = writeln!(rows, "{}", row(number));
        rows
    });
    fs::write(folder.join(name), rows).unwrap();
}

/// Returns a pseudo-random number below `below`.
fn noise(row: usize, below: usize) -> usize {
    (row + 1).wrapping_mul(2_654_435_761).wrapping_mul(row + 7) / 65_536 % below
}

fn warns(described: &Value, part: &str) -> bool {
    described["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains(part))
}

#[test]
fn delimiter_is_inferred_from_many_lines_and_printed() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let orders = ["place order", "send invoice", "send reminder", "pay", "cancel order", "make delivery"];
    write(folder, "orders.csv", "", 800, |row| orders[row % 6].into());
    let stderr = refused(folder, "orders.csv", &[]);
    assert!(stderr.contains("set `data.column` = 1") && stderr.contains("`data.delimiter`"), "{stderr}");
    let column = described(folder, "orders.csv", &["data.column=1"]);
    assert_eq!((&column["vocab"], &column["table"]["rows"][0]), (&json!(6), &json!(["place order"])));
    let split = described(folder, "orders.csv", &["data.delimiter=space"]);
    assert_eq!(split["table"]["rows"][0], json!(["place", "order"]));

    let messages = ["ham\tOk, see you at 5, then", "spam\tWIN a prize! Call now", "ham\tno commas here"];
    write(folder, "messages.tsv", "", 200, |row| messages[row % 3].into());
    let read = described(folder, "messages.tsv", &[]);
    assert_eq!(read["table"]["delimiter"], "tab");
    assert_eq!(read["table"]["rows"][0], json!(["ham", "Ok, see you at 5, then"]));
    assert_eq!((&read["table"]["columns"], &read["vocab"]), (&json!([2, 2]), &json!(5)));
    let stdout = text(&data(folder, "messages.tsv", &[]).output().unwrap().stdout);
    let format = "\nformat      csv with delimiter tab, 2 columns\nheader      none\n";
    assert!(stdout.contains(format), "{stdout}");
    assert!(stdout.contains("\nfirst rows  ham | Ok, see you at 5, then\n"), "{stdout}");

    let stderr = refused(folder, "messages.tsv", &["data.delimiter=tabs"]);
    assert!(
        stderr.starts_with("error: --set: `data.delimiter` = \"tabs\" cannot be used: expected"),
        "{stderr}"
    );
}

#[test]
fn train_split_gets_all_remaining_rows() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "ten.csv", "", 10, |row| format!("{row},1"));
    for (fraction, train) in [("0.8", 2), ("0.9", 1), ("0.7", 3), ("0.1", 9)] {
        let read = described(dir.path(), "ten.csv", &[&format!("data.valid_fraction={fraction}")]);
        assert_eq!(
            (&read["train"]["samples"], &read["valid"]["samples"]),
            (&json!(train), &json!(10 - train))
        );
    }
}

#[test]
fn leading_spaces_and_tabs_are_literal() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "b.csv", "", 60, |row| format!("{},{}", row % 3, row % 5));
    write(dir.path(), " b.csv", "", 60, |row| format!("{},{}", row % 3, row % 11));
    assert_eq!(described(dir.path(), " b.csv", &[])["vocab"], 11);
    write(dir.path(), "tabs.csv", "", 60, |row| format!("{}\t{}", row % 3, row % 5));
    assert_eq!(described(dir.path(), "tabs.csv", &["data.delimiter=\t"])["vocab"], 5);
}

#[test]
fn line_breaks_in_symbols_and_paths_are_escaped() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "a\nb.jsonl", "", 60, |_| "[\"x\\ny\", \"z\\tz\"]".into());
    fs::write(dir.path().join("config.toml"), "[data]\npath = \"a\\nb.jsonl\"\n").unwrap();
    let output = program(dir.path()).arg("data").output().unwrap();
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("source      table a\\nb.jsonl\n"), "{stdout}");
    assert!(
        stdout.contains("symbols: x\\ny z\\tz\n") && stdout.contains("first rows  x\\ny | z\\tz\n"),
        "{stdout}"
    );
    fs::write(dir.path().join("config.toml"), "[data]\npath = \"c\\nd.csv\"\n").unwrap();
    let stderr = text(&program(dir.path()).arg("data").output().unwrap().stderr);
    assert!(stderr.lines().count() == 1 && stderr.contains("c\\nd.csv"), "{stderr}");
}
