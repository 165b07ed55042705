//! Tests of tables as users write them.

mod advice;
mod answers;
mod comments;
mod enclosed;
mod fields;
mod first_lines;
mod kept;
mod numbered;
mod ordered;
mod outliers;
mod refused;
mod silent;

use proptest::prelude::*;

use super::*;
use crate::data::config::{Count, Delimiter, Header, RowSplit, Source, Values};
use crate::data::{Role, Sequences, load, load_with};

/// A table in a temporary folder, and the config that reads it.
struct File(tempfile::TempDir, &'static str);

impl File {
    fn new(name: &'static str, text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        File(folder, name)
    }

    fn config(&self) -> DataConfig {
        let path = self.0.path().join(self.1);
        DataConfig {
            source: Some(Source::Table),
            path: path.into(),
            length: 3,
            valid_fraction: 0.4,
            split: RowSplit::Tail,
            ..DataConfig::default()
        }
    }

    /// Returns the error for an invalid table, with `FILE` instead of the path.
    fn problem(&self, config: DataConfig) -> String {
        let error = load(&config, 0).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string().replace(&self.config().path.to_string(), "FILE")
    }
}

/// Returns the warnings about a table.
fn warnings(config: &DataConfig) -> String {
    load(config, 0).unwrap().guesses().map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// Returns the samples of a split as text, without padding.
fn samples(vocabulary: &Vocabulary, split: &Sequences) -> Vec<String> {
    let batch = split.batches(split.len()).next().unwrap();
    let rows = batch.inputs.chunks(batch.time).zip(batch.targets.chunks(batch.time));
    let rows = rows.zip(batch.roles.chunks(batch.time)).map(|((inputs, targets), roles)| {
        let counted = roles.iter().filter(|&&role| role == Role::Unknown).count();
        let row = [&inputs[..1], &targets[..counted]].concat();
        vocabulary.check(&row).unwrap();
        vocabulary.decode(&row)
    });
    rows.collect()
}

fn both_splits(config: &DataConfig) -> [Vec<String>; 2] {
    let dataset = load(config, 0).unwrap();
    [&dataset.train, &dataset.valid].map(|split| samples(&dataset.vocabulary, split))
}

#[test]
fn last_lines_become_validation_sequences() {
    for (name, text) in [
        ("a.csv", "3,1,4\n1,5,9\n\n2, 6,5\n3,5,8\n9,7,9\n"),
        ("a.tsv", "x\ty\tz\n3\t1\t4\n1\t5\t9\n2\t6\t5\n3\t5\t8\n9\t7\t9"),
        ("a.txt", "\u{feff}3 1 4\r\n1  5 9\r\n2 6 5 \r\n3 5 8\r\n9 7 9\r\n"),
        ("a.jsonl", "[3,1,4]\n[1, 5, 9]\n\n [2,6,5]\n[3,5,8]\r\n[9,7,9]"),
    ] {
        let file = File::new(name, text);
        let [train, valid] = both_splits(&file.config());
        assert_eq!(train, ["3 1 4", "1 5 9", "2 6 5"], "{name}");
        assert_eq!(valid, ["3 5 8", "9 7 9"], "{name}");
        let dataset = load(&file.config(), 0).unwrap();
        assert_eq!((dataset.vocabulary.size(), dataset.vocabulary.end(), dataset.context()), (10, None, 2));
    }
}

#[test]
fn ragged_lines_end_with_an_end_token() {
    for text in ["3,1,4\n1\n5,9\n2\n", "3,1,4\n1,,\n5,9,\n2,,\n"] {
        let [train, valid] = both_splits(&File::new("a.csv", text).config());
        assert_eq!(train, ["3 1 4 <end>", "1 <end>"]);
        assert_eq!(valid, ["5 9 <end>", "2 <end>"]);
    }
}

#[test]
fn existing_end_tokens_are_not_duplicated() {
    let file = File::new("a.csv", "a,b,<end>\nb,<end>\na,a,b,<end>\nb,a,<end>\na,<end>\n");
    let config = file.config();
    let dataset = load(&config, 0).unwrap();
    let again = load_with(&config, 0, &dataset.vocabulary).unwrap();
    assert_eq!(samples(&dataset.vocabulary, &dataset.train)[..2], ["a b <end>", "b <end>"]);
    assert_eq!(again.fingerprint(), dataset.fingerprint());
    // Another table with the same vocabulary, but without end tokens.
    let other = load_with(&File::new("b.csv", "a,b\nb\na,a,b\n").config(), 0, &dataset.vocabulary).unwrap();
    assert_eq!(samples(&dataset.vocabulary, &other.train)[..1], ["a b <end>"]);
}

#[test]
fn header_is_detected_from_the_selected_column() {
    let file = File::new(
        "a.csv",
        "day,state\n2020-01-01,0\n2020-01-02,1\n2020-01-03,1\n2020-01-04,0\n2020-01-05,1\n",
    );
    let config = DataConfig { column: Column::Number(2), length: 1, ..file.config() };
    assert_eq!(load(&config, 0).unwrap().vocabulary.size(), 2);
}

#[test]
fn symbols_get_sorted_ids_stable_on_reload() {
    let text = "sun,rain,\"light, snow\"\nrain,sun\nsun,7\n";
    let quoted = "[\"sun\",\"rain\",\"light, snow\"]\n[\"rain\",\"sun\"]\n[\"sun\",7]\n";
    for file in [File::new("a.csv", text), File::new("a.jsonl", quoted)] {
        let dataset = load(&file.config(), 0).unwrap();
        assert_eq!(dataset.vocabulary.encode("7 rain sun <end>").unwrap(), [0, 2, 3, 4]);
        let train = samples(&dataset.vocabulary, &dataset.train);
        assert_eq!(train, ["sun rain \"light, snow\" <end>"]);
        let again = load_with(&file.config(), 0, &dataset.vocabulary).unwrap();
        assert_eq!(samples(&again.vocabulary, &again.valid), samples(&dataset.vocabulary, &dataset.valid));
    }
}

#[test]
fn a_column_is_one_sequence_in_windows() {
    let csv = "day,state\n1,0\n2,1\n3,2\n4,0\n5,1\n6,2\n7,0\n8,1\n";
    let json: String = (0..8).map(|day| format!("{{\"day\": {day}, \"state\": {}}}\n", day % 3)).collect();
    let arrays: String = (0..8).map(|day| format!("[{day}, {}]\n", day % 3)).collect();
    for (file, column) in [
        (File::new("a.csv", csv), Column::Name("state".into())),
        (File::new("a.csv", csv), Column::Number(2)),
        (File::new("a.json", json), Column::Name("state".into())),
        (File::new("a.ndjson", arrays), Column::Number(2)),
    ] {
        let [train, valid] = both_splits(&DataConfig { column, ..file.config() });
        assert_eq!((train, valid), (vec!["0 1 2 0".to_string()], vec!["1 2 0 1".to_string()]));
    }
}

#[test]
fn numbered_columns_are_reloaded_by_name() {
    let file = File::new("a.csv", "day,state\n1,0\n2,1\n3,2\n4,0\n5,1\n6,2\n7,0\n8,1\n");
    let column = Column::Number(2);
    let config = DataConfig { column: column.clone(), ..file.config() };
    let dataset = load(&config, 0).unwrap();
    let other = File::new("b.csv", "state,hour\n0,9\n1,9\n2,9\n0,9\n1,9\n2,9\n0,9\n1,9\n");
    let config = DataConfig { column: column.clone(), ..other.config() };
    assert_eq!(load_with(&config, 0, &dataset.vocabulary).unwrap().fingerprint(), dataset.fingerprint());
    let other = File::new("b.csv", "day,mood\n1,0\n2,1\n");
    let config = DataConfig { column, ..other.config() };
    let error = load_with(&config, 0, &dataset.vocabulary).unwrap_err().to_string();
    assert!(error.contains("b.csv:1: lacks 1 column (state) of the training data"), "{error}");
}

#[test]
fn json_arrays_match_json_lines() {
    let rows = ["3 1 4 <end>", "1 5 <end>", "9 2 <end>"].map(String::from);
    let named = Column::Name("steps".into());
    for (name, text, column) in [
        ("a.json", "[[3, 1, 4],\n [1, 5], [9, 2],\n [6, 5], [3, 5]]\n", Column::default()),
        (
            "a.json",
            "[{\"steps\": [3, 1, 4]}, {\"steps\": [1, 5], \"x\": 0}, {\"steps\": [9, 2]},
              {\"steps\": [6, 5]}, {\"steps\": [3, 5]}]",
            named.clone(),
        ),
        (
            "a.jsonl",
            "{\"steps\": [3, 1, 4]}\n{\"x\": 0, \"steps\": [1, 5]}\n{\"steps\": [9, 2]}\n{\"steps\": [6, \
             5]}\n{\"steps\": [3, 5]}\n",
            named,
        ),
    ] {
        let [train, valid] = both_splits(&DataConfig { column, ..File::new(name, text).config() });
        assert_eq!(
            (train, valid),
            (rows.to_vec(), vec!["6 5 <end>".into(), "3 5 <end>".to_string()]),
            "{text}"
        );
    }
    // An array of numbers, or one value of each record, is one sequence.
    let name = Column::Name("state".into());
    for (text, column) in [
        ("[0, 1, 2, 0,\n 1, 2, 0, 1]", Column::default()),
        (
            "[{\"state\": 0}, {\"state\": 1}, {\"state\": 2}, {\"state\": 0}, {\"state\": 1}, {\"state\": \
             2}, {\"state\": 0}, {\"state\": 1}]",
            name,
        ),
    ] {
        let [train, valid] = both_splits(&DataConfig { column, ..File::new("a.json", text).config() });
        assert_eq!((train, valid), (vec!["0 1 2 0".to_string()], vec!["1 2 0 1".to_string()]));
    }
}

#[cfg(unix)]
#[test]
fn a_table_is_read_from_a_stream() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"3;1;4\n1;5;9\n2;6;5\n").unwrap();
    drop(writer);
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)).into();
    let config =
        DataConfig { source: Some(Source::Table), path, valid_fraction: 0.4, ..DataConfig::default() };
    assert_eq!(both_splits(&config), [vec!["3 1 4".to_string()], vec!["1 5 9".into(), "2 6 5".into()]]);
}

/// Generates table-like bytes, and arbitrary bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let table = proptest::collection::vec(
        proptest::sample::select(b"0123-9ab.,;\t \"\n\r[]{}:\\\xff".to_vec()),
        0..80,
    );
    prop_oneof![
        table,
        "(\\[([0-9]{1,2}, ?){0,4}[0-9]\\]\n){0,9}".prop_map(String::into_bytes),
        "(([0-9]{1,2},){0,4}[0-9x]\n){0,9}".prop_map(String::into_bytes),
        "(\\{\"b\": ?(\"x,?\"|[0-9])\\}\n){0,9}".prop_map(String::into_bytes),
        "\\[((\\[([0-9], ?){0,4}[0-9]\\]|[0-9]|\\{\"b\": (\\[1\\]|2)\\}),\n?){0,9}[0-9]\\]"
            .prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..80),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in bytes(),
        name in proptest::sample::select(vec!["a.csv", "a.jsonl", "a.json"]),
        values in proptest::sample::select(vec![Values::Auto, Values::Integers, Values::Symbols]),
        column in proptest::sample::select(vec![Column::default(), Column::Number(2), Column::Name("b".into())]),
        valid_fraction in 0.01..0.99,
    ) {
        let file = File::new(name, bytes);
        match load(&DataConfig { valid_fraction, values, column, ..file.config() }, 0) {
            Ok(dataset) => for split in [&dataset.train, &dataset.valid] {
                prop_assert!(!samples(&dataset.vocabulary, split).is_empty());
            },
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }
}

/// Returns the warnings from reading a table.
fn guesses(name: &'static str, text: &str, column: Column) -> String {
    let file = File::new(name, text);
    let dataset = load(&DataConfig { column, ..file.config() }, 0).unwrap();
    dataset.guesses().cloned().collect::<Vec<_>>().join("\n")
}

#[test]
fn fields_that_split_records_are_reported() {
    let named = || Column::Name("x".into());
    let json = "{\"x\": [1, 2], \"split\": \"train\"}\n".repeat(9);
    assert!(guesses("t.jsonl", &json, named()).starts_with("`split` is not read"));
    let rows = "x,fold\n".to_string() + &"1,1\n2,2\n".repeat(9);
    assert!(guesses("t.csv", &rows, named()).starts_with("`fold` is not read"));
    assert!(guesses("t.csv", &rows, Column::default()).starts_with("`fold` is read as a value"));
    assert_eq!(guesses("t.csv", &rows, Column::Name("fold".into())), "");
}

#[test]
fn units_below_a_header_are_reported() {
    let rows = "x,y,p\ny,x,p\n".repeat(20);
    let units = guesses("t.csv", &format!("a,b,c\ns,kg,m\n{rows}"), Column::default());
    assert!(units.contains("line 2 (`s, kg, m`), below the header"), "{units}");
    assert!(!guesses("t.csv", &format!("a,b,c\n{rows}"), Column::default()).contains("below the header"));
}

#[test]
fn duplicate_columns_absent_from_run_are_refused() {
    let [run, other] = ["open,move\n", "open,open,move\n"].map(|header| {
        let row = if header.len() > 10 { "lo,lo,up\nhi,lo,up\n" } else { "lo,up\nhi,up\n" };
        File::new("t.csv", header.to_string() + &row.repeat(20))
    });
    let vocabulary = load(&run.config(), 0).unwrap().vocabulary;
    let error = load_with(&other.config(), 0, &vocabulary).unwrap_err().to_string();
    assert!(error.contains("more columns named `open`") && error.contains("remove column 2"), "{error}");
}

#[test]
fn row_ends_that_weights_lack_are_reported() {
    let [run, other] = ["1,2,3\n", "1,2,3\n1,2\n"].map(|rows| File::new("t.csv", rows.repeat(9)));
    let vocabulary = load(&run.config(), 0).unwrap().vocabulary;
    let read = load_with(&other.config(), 0, &vocabulary).unwrap();
    assert!(read.guesses().any(|guess| guess.contains("does not have a token that ends a row")));
}

#[test]
fn sequences_in_cells_are_reported() {
    let cells = |cell: fn(usize) -> String| {
        let rows = (0..60).map(|row| format!("s{row},{}\n", cell(row))).collect::<String>();
        guesses("t.csv", &format!("session,items\n{rows}"), Column::Name("items".into()))
    };
    let notes = |row: usize| {
        format!("{} {} {}", ["C4", "E4"][row % 2], ["G4", "A4", "C4"][row % 3], ["G4", "E4"][row / 6 % 2])
    };
    assert!(cells(notes).contains("12 values consist of the same 4 words"), "{}", cells(notes));
    let items = |row: usize| format!("{} {}", row % 5, row % 7);
    assert!(
        cells(items)
            .contains("each cell of the column `items`, such as `0 0`, is read as a sequence of integers")
    );
    for lists in [
        |row: usize| format!("\"{},{},{}\"", row % 3, row % 4, row % 2),
        |row: usize| format!("{};{}", row % 5, ["4;5", "1"][row % 2]),
        |row: usize| format!("{}-{}-{}-4", row % 3, row % 4, row % 2),
    ] {
        assert!(cells(lists).contains("values consist of the same"), "{}", cells(lists));
    }
    let letters = |row: usize| format!("GATT{}ACA", ["AC", "GT", "TG"][row % 3]);
    assert!(cells(letters).contains("3 values consist of the same 4 characters"), "{}", cells(letters));
    for values in [
        |row: usize| format!("2024-01-{:02}", 1 + row % 9),
        |row: usize| format!("\"{},{}00\"", 1 + row % 9, 1 + row % 3),
        |row: usize| format!("\"{},5\"", row % 9),
        |row: usize| format!("{:02}:{}0", row % 9, row % 5),
        |row: usize| ["mercedes", "volkswagen", "lamborghini"][row % 3].to_string(),
        |row: usize| format!("a-{}", row % 9),
    ] {
        assert!(!cells(values).contains("is one token"), "{}", cells(values));
    }
    let phrases = |row: usize| ["ok thanks", "where are you", "no"][row % 3].to_string();
    assert!(!cells(phrases).contains("is one token"), "{}", cells(phrases));
}

#[test]
fn end_tokens_in_only_some_rows_are_reported() {
    let all = "a,b,<end>\nb,<end>\n".repeat(9);
    assert_eq!(guesses("t.csv", &all, Column::default()), "");
    let some = all.clone() + "a,b,c\n";
    assert!(guesses("t.csv", &some, Column::default()).contains("line 19 does not end with it"));
}

#[test]
fn leading_zeros_are_reported_for_a_given_vocabulary() {
    let [run, other] = ["7,8,9\n", "007,8,9\n"].map(|row| File::new("t.csv", row.repeat(9)));
    let vocabulary = load(&run.config(), 0).unwrap().vocabulary;
    let read = load_with(&other.config(), 0, &vocabulary).unwrap();
    assert!(read.guesses().any(|guess| guess.starts_with("`007` is read as a number")));
}

#[test]
fn doubtful_readings_cause_warnings() {
    let rows = "ann,buy,ok\nbob,sell,no\nann,sell,no\n".repeat(9);
    let guesses = |text: &str, column: Column| {
        let file = File::new("a.csv", text);
        let dataset = load(&DataConfig { column, ..file.config() }, 0).unwrap();
        dataset.table.as_ref().unwrap().guesses.join("\n")
    };
    let none = Column::default;
    assert_eq!(guesses(&rows, none()), "");
    for (text, expected) in [
        (format!("user,act,res\n{rows}ann,buy,\n"), "1 row lacks values in the last columns, up to `res`"),
        (
            format!("{rows}\nact,count,sum\n{rows}"),
            "line 28 is blank, and the lines below it are read as more rows",
        ),
        (format!("{rows}#bob,buy,ok\n"), "1 line begins with `#` and is read as data"),
    ] {
        let warnings = guesses(&text, none());
        assert!(warnings.contains(expected), "{expected}: {warnings}");
    }
    let numbered = format!("0,1,2\n{rows}");
    assert!(
        guesses(&numbered, Column::Number(1))
            .contains("another column has the name `1`; to select the latter, add --set 'data.column=\"1\"'")
    );
    assert!(!guesses(&numbered, Column::Name("1".into())).contains("another column"));
}
