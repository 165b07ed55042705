//! The user's table: CSV or JSON Lines of integers or of symbols.
//!
//! Without `data.column` each line is a sequence. Lines of different lengths are closed by an end
//! token, so that a model learns where a sequence ends; the last `data.valid_fraction` of the
//! lines are for validation. With `data.column` that column, from the first line to the last, is
//! one sequence, cut into windows as a text is.
//!
//! ```text
//! 3,1,4,1        {"day": 1, "state": "sun"}
//! 5,9            {"day": 2, "state": "rain"}
//! 2,6,5,3        {"day": 3, "state": "sun"}
//! ```
//!
//! A first line of names above lines of integers is a header; so is the first line of a CSV file
//! whose column is chosen by name.

mod delimited;
mod json_lines;
mod reader;
mod row;
mod values;

use self::reader::{Reader, first_column, header};
use self::row::{Layout, Row, problem_at};
use self::values::Encoder;
use super::Dataset;
use super::config::{Column, DataConfig, LARGEST};
use super::ids::Ids;
use super::sequences::{Rows, Sequences};
use super::vocabulary::{Notation, Vocabulary};
use crate::error::{Error, Result};

/// Reads the table that `config` names, by a given vocabulary, or by that of its values.
pub(crate) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    if let Some(vocabulary) = given.filter(|vocabulary| vocabulary.notation() != Notation::Words) {
        let problem = format!("reads integers or symbols, and the vocabulary of {vocabulary} has none");
        return Err(Error::key("data.source", "table", problem));
    }
    let mut table = Table {
        config,
        encoder: Encoder::new(config, given),
        ids: Ids::default(),
        ends: Vec::new(),
        line: Vec::new(),
    };
    table.read()?;
    if table.ids.len() == 0 {
        return Err(Error::file(&config.path, None, None, "is empty; give a table to learn from"));
    }
    match config.column {
        Column::None => table.into_rows(given),
        Column::Number(_) | Column::Name(_) => {
            let vocabulary = table.encoder.finish(&mut table.ids, false)?;
            let (train, valid) = config.cut_into_windows(table.ids)?;
            Ok(Dataset { vocabulary, train, valid, floor: None })
        }
    }
}

/// What was read so far.
struct Table<'a> {
    config: &'a DataConfig,
    encoder: Encoder<'a>,
    ids: Ids,
    /// Where each line ends in the ids.
    ends: Vec<usize>,
    /// The ids of one line.
    line: Vec<u32>,
}

impl Table<'_> {
    fn read(&mut self) -> Result<()> {
        let mut reader = Reader::open(self.config)?;
        let (mut first, mut second) = (Row::default(), Row::default());
        if !reader.read(&mut first)? {
            return Ok(());
        }
        let has_second = reader.read(&mut second)?;
        let column = match header(self.config, &reader, &first, has_second.then_some(&second)) {
            Some(column) => column?,
            None => {
                self.push(&first, first_column(self.config), &reader)?;
                first_column(self.config)
            }
        };
        if has_second {
            self.push(&second, column, &reader)?;
        }
        while reader.read(&mut second)? {
            self.push(&second, column, &reader)?;
        }
        Ok(())
    }

    /// Adds a line, or the value of one column of it, counted from 0.
    fn push(&mut self, row: &Row, column: Option<usize>, reader: &Reader<'_>) -> Result<()> {
        let path = &self.config.path;
        let values = match column {
            None => 0..row.len(),
            Some(column) if column < row.len() => column..column + 1,
            Some(column) => {
                let problem = match &self.config.column {
                    Column::Name(name) => format!("has no value in the column `{name}`"),
                    _ => format!("has {} values and none in column {}", row.len(), column + 1),
                };
                let problem = format!("{problem}; windows need one in every line");
                return Err(problem_at(path, row, 0, Layout::Delimited(','), problem));
            }
        };
        self.line.clear();
        for index in values {
            match self.encoder.id(row.value(index), self.config) {
                Ok(id) => self.line.push(id),
                Err(problem) => return Err(problem_at(path, row, index, reader.layout(), problem)),
            }
        }
        if !self.line.is_empty() {
            self.ids.extend(&self.line);
            self.ends.push(self.ids.len());
        }
        Ok(())
    }

    /// Each line as a sequence.
    fn into_rows(mut self, given: Option<&Vocabulary>) -> Result<Dataset> {
        let path = &self.config.path;
        let problem = |problem: &str| Error::file(path, None, None, problem);
        let starts = || std::iter::once(0).chain(self.ends.iter().copied());
        let lengths = || starts().zip(&self.ends).map(|(start, end)| end - start);
        let (shortest, longest) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        let is_ragged = shortest < longest;
        if longest > LARGEST {
            let long = format!("has a line of {longest} values; name a `data.column` to cut it into windows");
            return Err(problem(&long));
        }
        let with_end = given.map_or(is_ragged, |vocabulary| vocabulary.end().is_some());
        let known = match &self.encoder {
            Encoder::Symbols { ids } => ids.contains_key(super::vocabulary::END),
            Encoder::Undecided | Encoder::Integers { .. } | Encoder::Given(_) => false,
        };
        let vocabulary = self.encoder.finish(&mut self.ids, with_end && !known)?;
        let end = vocabulary.end().filter(|_| with_end && !known);
        if longest + usize::from(end.is_some()) < 2 {
            return Err(problem(
                "has one value a line, so nothing can be predicted; \
                 set `data.column` = 1 to read all lines as one sequence",
            ));
        }
        let train_lines = self.config.train_part(self.ends.len());
        if train_lines == 0 || train_lines == self.ends.len() {
            let few = format!(
                "has {} lines, of which `data.valid_fraction` = {} leaves {train_lines} for training \
                 and {} for validation; both need one",
                self.ends.len(),
                self.config.valid_fraction,
                self.ends.len() - train_lines
            );
            return Err(problem(&few));
        }
        let (mut train, mut valid) = (Rows::default(), Rows::default());
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        for (number, (start, &stop)) in starts.zip(&self.ends).enumerate() {
            self.line.resize(stop - start, 0);
            self.ids.copy(start..stop, &mut self.line);
            self.line.extend(end);
            if number < train_lines { &mut train } else { &mut valid }.push(&self.line);
        }
        let (train, valid) = (Sequences::rows(train), Sequences::rows(valid));
        Ok(Dataset { vocabulary, train, valid, floor: None })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::config::{Count, Source, Values};
    use crate::data::{Batch, Loader, Order, Role};

    /// A table in a folder that is removed with it, and the config that reads it.
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
                source: Source::Table,
                path,
                length: 3,
                valid_fraction: 0.4,
                ..DataConfig::default()
            }
        }

        /// What a wrong table says, after the path.
        fn problem(&self, config: DataConfig) -> String {
            let error = config.load(0).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string().replace(&self.config().path.display().to_string(), "FILE")
        }
    }

    /// The samples of a split as text, without padding.
    fn samples(vocabulary: &Vocabulary, split: &Sequences) -> Vec<String> {
        let mut batch = Batch::default();
        Loader::new(split.clone(), split.len(), 0, Order::InOrder).batch(0, 0, &mut batch);
        let rows = batch.inputs.chunks(batch.time).zip(batch.targets.chunks(batch.time));
        let rows = rows.zip(batch.roles.chunks(batch.time)).map(|((inputs, targets), roles)| {
            let counted = roles.iter().filter(|&&role| role == Role::Undetermined).count();
            let row = [&inputs[..1], &targets[..counted]].concat();
            vocabulary.check(&row).unwrap();
            vocabulary.decode(&row)
        });
        rows.collect()
    }

    fn both(config: &DataConfig) -> [Vec<String>; 2] {
        let dataset = config.load(0).unwrap();
        [&dataset.train, &dataset.valid].map(|split| samples(&dataset.vocabulary, split))
    }

    #[test]
    fn each_line_is_a_sequence_and_the_last_ones_are_for_validation() {
        for (name, text) in [
            ("a.csv", "3,1,4\n1,5,9\n\n2, 6,5\n3,5,8\n9,7,9\n"),
            ("a.tsv", "x\ty\tz\n3\t1\t4\n1\t5\t9\n2\t6\t5\n3\t5\t8\n9\t7\t9"),
            ("a.txt", "\u{feff}3 1 4\r\n1  5 9\r\n2 6 5 \r\n3 5 8\r\n9 7 9\r\n"),
            ("a.jsonl", "[3,1,4]\n[1, 5, 9]\n\n [2,6,5]\n[3,5,8]\r\n[9,7,9]"),
        ] {
            let file = File::new(name, text);
            let [train, valid] = both(&file.config());
            assert_eq!(train, ["3 1 4", "1 5 9", "2 6 5"], "{name}");
            assert_eq!(valid, ["3 5 8", "9 7 9"], "{name}");
            let dataset = file.config().load(0).unwrap();
            assert_eq!(
                (dataset.vocabulary.size(), dataset.vocabulary.end(), dataset.context()),
                (10, None, 2)
            );
        }
    }

    #[test]
    fn lines_of_different_lengths_are_closed_by_an_end_token() {
        for text in ["3,1,4\n1\n5,9\n2\n", "3,1,4\n1,,\n5,9,\n2,,\n"] {
            let [train, valid] = both(&File::new("a.csv", text).config());
            assert_eq!(train, ["3 1 4 <end>", "1 <end>"]);
            assert_eq!(valid, ["5 9 <end>", "2 <end>"]);
        }
    }

    #[test]
    fn symbols_get_ids_in_their_order_and_are_read_again_by_them() {
        let text = "sun,rain,\"light, snow\"\nrain,sun\nsun,7\n";
        let quoted = "[\"sun\",\"rain\",\"light, snow\"]\n[\"rain\",\"sun\"]\n[\"sun\",7]\n";
        for file in [File::new("a.csv", text), File::new("a.jsonl", quoted)] {
            let dataset = file.config().load(0).unwrap();
            assert_eq!(dataset.vocabulary.encode("7 rain sun <end>").unwrap(), [0, 2, 3, 4]);
            let train = samples(&dataset.vocabulary, &dataset.train);
            assert_eq!(train, ["sun rain light, snow <end>"]);
            let again = file.config().load_with(0, &dataset.vocabulary).unwrap();
            assert_eq!(
                samples(&again.vocabulary, &again.valid),
                samples(&dataset.vocabulary, &dataset.valid)
            );
        }
    }

    #[test]
    fn a_column_is_one_sequence_in_windows() {
        let csv = "day,state\n1,0\n2,1\n3,2\n4,0\n5,1\n6,2\n7,0\n8,1\n";
        let json: String =
            (0..8).map(|day| format!("{{\"day\": {day}, \"state\": {}}}\n", day % 3)).collect();
        let arrays: String = (0..8).map(|day| format!("[{day}, {}]\n", day % 3)).collect();
        for (file, column) in [
            (File::new("a.csv", csv), Column::Name("state".into())),
            (File::new("a.csv", csv), Column::Number(2)),
            (File::new("a.json", json), Column::Name("state".into())),
            (File::new("a.ndjson", arrays), Column::Number(2)),
        ] {
            let [train, valid] = both(&DataConfig { column, ..file.config() });
            assert_eq!((train, valid), (vec!["0 1 2 0".to_string()], vec!["1 2 0 1".to_string()]));
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_line_and_column() {
        let wrong = |name, text: &str, config: fn(DataConfig) -> DataConfig| {
            let file = File::new(name, text);
            file.problem(config(file.config()))
        };
        let as_is = |config| config;
        let three = |config| DataConfig { vocab: Count::Of(3), ..config };
        let second = |config| DataConfig { column: Column::Number(2), ..config };
        let named = |config| DataConfig { column: Column::Name("b".into()), ..config };
        for (message, starts) in [
            (
                wrong("a.csv", "1,2\n\n3,x\n", as_is),
                "FILE:3:3: `x` is no integer; mend it, or set `data.values`",
            ),
            (wrong("a.csv", "1,2\n3,\"4.5\"\n", as_is), "FILE:2:3: `4.5` is no integer"),
            (wrong("a.csv", "1.5,2\n3,4\n", as_is), "FILE:1:1: `1.5` is no integer"),
            (
                wrong("a.csv", "1,2\n3, -4\n", as_is),
                "FILE:2:4: `-4` is outside the vocabulary: ids run from 0 to 1048575",
            ),
            (
                wrong("a.csv", "1,2\n3,1\n", three),
                "FILE:2:1: `3` is outside the vocabulary: ids run from 0 to 2; raise `data.vocab` = 3",
            ),
            (
                wrong("a.csv", "1,2\n3,99999999999999999999\n", as_is),
                "FILE:2:3: `99999999999999999999` is outside",
            ),
            (wrong("a.csv", "1,2\n3,,4\n", as_is), "FILE:2:3: an empty value"),
            (
                wrong("a.csv", "1,2\n3\n", second),
                "FILE:2:1: has 1 values and none in column 2; windows need one in every line",
            ),
            (wrong("a.csv", "a,c\n3,4\n", named), "`data.column` = b is no column of FILE, which has a, c"),
            (
                wrong("a.csv", "1\n2\n3\n", as_is),
                "FILE: has one value a line, so nothing can be predicted; set `data.column` = 1",
            ),
            (wrong("a.csv", "1,2\n", as_is), "FILE: has 1 lines, of which"),
            (wrong("a.csv", "\n\n", as_is), "FILE: is empty"),
            (wrong("a.jsonl", "[1, 2]\n[3, \"x\"]\n", as_is), "FILE:2:5: `x` is no integer"),
            (wrong("a.jsonl", "[1, 2]\n[3, 1.0]\n", as_is), "FILE:2:5: `1.0` is no integer"),
            (wrong("a.jsonl", "[1, 2]\n[3, 4\n", as_is), "FILE:2:"),
            (
                wrong("a.jsonl", "{\"a\": 1}\n", as_is),
                "FILE:1:1: cannot be read: invalid type: map, expected an array",
            ),
            (wrong("a.jsonl", "[[1]]\n", as_is), "FILE:1:"),
            (
                wrong("a.jsonl", "{\"b\": 1}\n{\"a\": 1, \"b\": \"x\"}\n", named),
                "FILE:2:15: `x` is no integer",
            ),
            (wrong("a.jsonl", "{\"b\": 1}\n{\"a\": 1}\n", named), "FILE:2:1: has no value in the column `b`"),
        ] {
            assert!(message.starts_with(starts), "{message}\nnot\n{starts}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_named_by_line_and_byte() {
        for (name, text) in [("a.csv", &b"1,2\n\"\xc3\xa4\" ,\xff\n"[..]), ("a.jsonl", b"[1]\n[\"a\xff\"]")] {
            let file = File::new(name, text);
            let message = file.problem(file.config());
            let byte = text.iter().position(|&byte| byte == 0xff).unwrap();
            assert!(message.starts_with(&format!("FILE:2: is not UTF-8 at byte {byte}; ")), "{message}");
        }
    }

    #[test]
    fn a_folder_or_a_missing_file_is_refused() {
        let file = File::new("a.csv", "1,2");
        let folder = DataConfig { path: file.0.path().into(), ..file.config() };
        assert!(file.problem(folder).contains("is a folder; give the path of one CSV or JSON Lines file"));
        let missing = DataConfig { path: file.0.path().join("b.csv"), ..file.config() };
        assert!(file.problem(missing).starts_with("cannot read `"));
        let zero = DataConfig { column: Column::Number(0), ..file.config() };
        assert!(file.problem(zero).starts_with("`data.column` = 0 must be 1 or above"));
    }

    #[test]
    fn a_value_that_the_weights_have_not_seen_is_named() {
        let file = File::new("a.csv", "1,2\n3,0\n");
        let error = file.config().load_with(0, &Vocabulary::integers(3, &[])).unwrap_err().to_string();
        assert!(error.contains(":2:1: `3` is not in the vocabulary of 3 integers"), "{error}");
    }

    /// Bytes as a table has them, and any bytes.
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
            proptest::collection::vec(any::<u8>(), 0..80),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in bytes(),
            is_json: bool,
            values in proptest::sample::select(vec![Values::Auto, Values::Integers, Values::Symbols]),
            column in proptest::sample::select(vec![Column::None, Column::Number(2), Column::Name("b".into())]),
            valid_fraction in 0.01..0.99,
        ) {
            let file = File::new(if is_json { "a.jsonl" } else { "a.csv" }, bytes);
            match (DataConfig { values, column, valid_fraction, ..file.config() }).load(0) {
                Ok(dataset) => for split in [&dataset.train, &dataset.valid] {
                    prop_assert!(!samples(&dataset.vocabulary, split).is_empty());
                },
                Err(error) => prop_assert_eq!(error.exit_code(), 2),
            }
        }
    }
}
