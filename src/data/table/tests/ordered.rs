//! Tests what `data.order_by`, `data.group_by` and `data.long_rows` do to the sequences of a table, and what they say.

use super::silent::{column, guesses, sequences};
use super::*;
use crate::data::config::{LongRows, Tokens};
use crate::data::{Vocabulary, load_whole};

#[test]
fn texts_are_read_in_the_order_of_a_column() {
    let lines = "date,text\n2024-03-01,c\n2024-01-01,a\n2024-04-01,d\n2024-02-01,b\n";
    let records: String = ["03,c", "01,a", "04,d", "02,b"]
        .map(|it| it.split_once(',').unwrap())
        .map(|(month, text)| format!("{{\"date\":\"2024-{month}-01\",\"text\":\"{text}\"}}\n"))
        .concat();
    for (name, text) in [("a.csv", lines), ("a.jsonl", &records)] {
        let file = File::new(name, text);
        let (split, valid_fraction) = (RowSplit::Tail, 0.25);
        let config = DataConfig {
            tokens: Tokens::Characters,
            column: column("text"),
            order_by: column("date"),
            split,
            valid_fraction,
            ..file.config()
        };
        let dataset = load(&config, 0).unwrap();
        assert_eq!(
            sequences(&dataset),
            ["<end>a<end>", "<end>b<end>", "<end>c<end>", "<end>d<end>"],
            "{name}"
        );
        assert_eq!(dataset.valid.len(), 1, "{name}");
    }
}

#[test]
fn lists_are_not_ordered_and_the_remedy_works() {
    for (name, text) in [
        ("a.csv", "date,seq\n2024-01-01,\"[0, 0, 1]\"\n2024-01-02,\"[1, 0, 2]\"\n".to_string()),
        ("a.csv", "date,seq\n2024-01-01,0 0 1\n2024-01-02,1 0 2\n".to_string()),
        ("a.jsonl", "{\"date\":1,\"seq\":[0,0,1]}\n{\"date\":2,\"seq\":[1,0,2]}\n".to_string()),
    ] {
        let file = File::new(name, &text);
        let selected = DataConfig { column: column("seq"), ..file.config() };
        let problem = file.problem(DataConfig { order_by: column("date"), ..selected.clone() });
        assert!(problem.contains("omit"), "{name}: {problem}");
        assert!(
            !problem.contains("set `data.column`") && !problem.contains("with `data.column`"),
            "{problem}"
        );
        assert_eq!(sequences(&load(&selected, 0).unwrap()), ["0 0 1", "1 0 2"], "{name}");
        if name == "a.jsonl" {
            let problem = file.problem(DataConfig { group_by: column("date"), ..selected });
            assert!(problem.contains("omit `data.group_by`"), "{problem}");
        }
    }
    // Ids of a tokenizer are not texts.
    let file = File::new("a.jsonl", "{\"date\":1,\"ids\":[0,0,1]}\n".repeat(4));
    let problem = file.problem(DataConfig {
        column: column("ids"),
        order_by: column("date"),
        tokens: Tokens::Characters,
        ..file.config()
    });
    assert!(problem.contains("omit `data.order_by`"), "{problem}");
}

#[test]
fn sequences_that_are_cut_or_left_out_are_counted_once() {
    let file = File::new("rows.csv", "1,2,3,4,5\n1,2\n3,4\n5,1,2\n2,1\n");
    let vocabulary: Vocabulary = load(&file.config(), 0).unwrap().vocabulary;
    for (long_rows, what) in [(LongRows::Cut, "are cut"), (LongRows::Drop, "are left out")] {
        let config = DataConfig { long_rows, length: 2, ..file.config() };
        for dataset in [load(&config, 0).unwrap(), load_whole(&config, 0, &vocabulary).unwrap()] {
            let guesses = guesses(&dataset);
            let expected =
                format!("line 1 (and 1 more sequence) have more than `data.length` = 2 targets and {what}");
            assert!(guesses.contains(&expected), "{guesses}");
        }
    }
    let kept = DataConfig { long_rows: LongRows::Keep, length: 2, ..file.config() };
    assert!(!guesses(&load(&kept, 0).unwrap()).contains("data.length"));
}

#[test]
fn groups_in_both_files_cause_a_warning() {
    let [train, valid] = [["x", "y", "z"], ["w", "y", "z"]].map(|cases| {
        let rows = cases.map(|case| format!("{case},1\n{case},2\n"));
        File::new("a.csv", format!("case,act\n{}", rows.concat()))
    });
    let config = |valid: &File| DataConfig {
        group_by: column("case"),
        column: column("act"),
        valid_path: valid.config().path,
        ..train.config()
    };
    let warned = guesses(&load(&config(&valid), 0).unwrap());
    assert!(warned.contains("the group `y` (and 1 more group) have rows in both"), "{warned}");
    let other = File::new("a.csv", "case,act\nv,1\nv,2\nu,2\nu,1\n");
    assert!(!guesses(&load(&config(&other), 0).unwrap()).contains("in both"));
}

#[test]
fn values_of_arrays_have_no_columns_to_ignore() {
    let file = File::new("a.jsonl", "[1,2,3]\n[1,null,3]\n");
    let problem = file.problem(file.config());
    assert!(problem.contains("is empty; write a value") && !problem.contains("ignore_columns"), "{problem}");
}

#[test]
fn an_object_of_columns_is_not_taken_for_records() {
    let file = File::new("a.json", "{\"a\":[0,1,2],\"b\":[4,5,6]}");
    let problem = file.problem(file.config());
    assert!(problem.contains("orient=\"records\"") && !problem.contains("jq"), "{problem}");
    let file = File::new("a.json", "{\"a\":[0,1],\"b\":[4,5,6]}");
    assert!(file.problem(file.config()).contains("jq"));
}

#[test]
fn keys_that_texts_and_windows_do_not_use_are_named() {
    let file = File::new("a.csv", "n,text\n1,ab\n2,ba\n".to_string() + &"3,ab\n".repeat(40));
    let texts = DataConfig { tokens: Tokens::Characters, column: column("text"), ..file.config() };
    assert!(texts.unused_keys(Some(&load(&texts, 0).unwrap())).readers("values").is_some());
    let windows = DataConfig { column: column("n"), length: 1, ..file.config() };
    let unused = windows.unused_keys(Some(&load(&windows, 0).unwrap()));
    assert!(unused.readers("long_rows").is_some() && unused.readers("values").is_none());
    let rows = File::new("a.csv", "1,2\n2,1\n1,2\n");
    let unused = rows.config().unused_keys(Some(&load(&rows.config(), 0).unwrap()));
    assert!(unused.readers("long_rows").is_none() && unused.readers("values").is_none());
}

#[test]
fn columns_of_later_files_are_found_in_their_own_headers() {
    let cells = |row: usize| [format!("s{}", row % 3), format!("{}", 5 + row % 2)];
    let table = |line: &dyn Fn(&str, [String; 2]) -> String, names: Option<&str>| {
        let names = names.map(|names| line(names, ["state".into(), "n".into()]));
        names.into_iter().chain((0..9).map(|row| line(&row.to_string(), cells(row)))).collect::<String>()
    };
    let natural = table(&|_, [a, b]| format!("{a},{b}\n"), Some(""));
    let reordered = table(&|_, [a, b]| format!("{b},{a}\n"), Some(""));
    let indexed = table(&|index, [a, b]| format!("{index},{a},{b}\n"), Some(""));
    let headless = table(&|_, [a, b]| format!("{a},{b}\n"), None);
    let expected: Vec<String> = (0..9).map(|row| cells(row).join(" ")).collect();
    let files = [("natural", &natural), ("reordered", &reordered), ("indexed", &indexed)];
    for (first, second, third) in
        [(0, 1, 0), (1, 0, 1), (0, 2, 0), (2, 0, 2), (2, 1, 0), (0, 1, 2), (0, 1, 3)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for (number, file) in [first, second, third].into_iter().enumerate() {
            let (name, text) = files.get(file).copied().unwrap_or(("headless", &headless));
            std::fs::write(folder.path().join(format!("{number}.csv")), text).unwrap();
            names.push(name);
        }
        let config = DataConfig {
            path: folder.path().into(),
            values: Values::Symbols,
            split: RowSplit::Tail,
            ..DataConfig::default()
        };
        let dataset = load(&config, 0).unwrap();
        let mut expected = expected.clone();
        if first == 1 {
            for row in &mut expected {
                *row = row.split(' ').rev().collect::<Vec<_>>().join(" ");
            }
        }
        assert_eq!(sequences(&dataset), [&expected[..]; 3].concat(), "{names:?}");
        let header = dataset.table.as_ref().unwrap().header.clone().unwrap();
        assert_eq!(header, if first == 1 { ["n", "state"] } else { ["state", "n"] }, "{names:?}");
        assert!(!guesses(&dataset).contains("lack values"), "{names:?}: {}", guesses(&dataset));
        // The weights of a run are scored on files in any order, too.
        let other = DataConfig { path: folder.path().join("1.csv").into(), ..config };
        let one = load_whole(&other, 0, &dataset.vocabulary).unwrap();
        assert_eq!(sequences(&one)[..9], expected[..], "{names:?}");
    }
}

#[test]
fn a_column_of_lists_in_brackets_is_refused() {
    let rows = (0..40).map(|row| format!("u{row},\"[{}, 1, {row}]\"\n", row % 3)).collect::<String>();
    let file = File::new("a.csv", format!("user,items\n{rows}"));
    let problem = file.problem(file.config());
    assert!(problem.contains("each of which would be one token"), "{problem}");
    let symbols = DataConfig { values: Values::Symbols, ..file.config() };
    assert_eq!(load(&symbols, 0).unwrap().vocabulary.size(), 82);
}
