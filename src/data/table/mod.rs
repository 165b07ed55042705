//! The user's table: CSV or JSON with integers or symbols.
//!
//! Each line, or each array of a JSON file, is a sequence. Sequences of different lengths are followed by an end token,
//! so that a model learns where they end. The last `data.valid_fraction` of the sequences is for validation. With
//! `data.column`, the selected column is one sequence from the first line to the last, cut into windows like a text. A
//! JSON array of numbers is also read as one sequence. A field of JSON objects may also hold arrays, each of which is a
//! sequence.
//!
//! ```text
//! 3,1,4,1        {"day": 1, "state": "sun"}       {"steps": [3, 1, 4, 1]}
//! 5,9            {"day": 2, "state": "rain"}      {"steps": [5, 9]}
//! 2,6,5,3        {"day": 3, "state": "sun"}       {"steps": [2, 6, 5, 3]}
//! ```
//!
//! The delimiter of CSV and the presence of a header are inferred (`delimiter`, `header`) unless `data.delimiter` and
//! `data.header` are set. The `data` command prints the inferred values, and uncertain guesses become warnings.

mod bins;
mod cells;
mod chat;
mod columns;
mod comments;
mod delimited;
mod delimiter;
mod digits;
mod edges;
mod enclosed;
mod fields;
mod files;
mod form;
mod fractions;
mod groups;
mod header;
mod json;
mod lists;
mod no_data;
mod numbered;
mod outliers;
mod part;
mod quotes;
mod records;
mod rows;
mod summaries;
mod targets;
mod texts;
mod values;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use csv::StringRecord;

use self::chat::ChatTemplate;
use self::fields::{FieldForm, FieldSelection, Fields};
use self::files::{Files, Line};
pub(super) use self::form::{Elements, Form};
use self::groups::Groups;
use self::json::JsonLayout;
use self::texts::TextSample;
use self::values::Encoder;
use super::config::{Column, Comment, DataConfig, Delimiter, Source, Tokens, Values};
use super::damage;
use super::dataset::Dataset;
use super::excerpt::excerpt;
use super::ids::Ids;
use super::reading::{TableFormat, TableReading};
use super::vocabulary::{END, Notation, Vocabulary};
use crate::error::{Error, Result};
#[cfg(feature = "parquet")]
use crate::files::{Columnar, ColumnarFormat};
use crate::files::{LFS_POINTER, Text, is_lfs_pointer};
use crate::numbers::counted;

/// Reads the table that `config` names, as JSON or CSV according to its extension, or else to its content. The
/// vocabulary is `given`, or else consists of the values of the table. The rows of several files follow one another.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    read(config, given, false)
}

/// Reads the pairs of the table that `config` names, for an encoder-decoder.
pub(super) fn load_pairs(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    read(config, given, true)
}

/// Returns true if a chat template next to the tokenizer of `config` may have written its conversations.
pub(super) fn has_chat_template(config: &DataConfig) -> bool {
    let Tokens::File(tokenizer) = &config.tokens else { return false };
    !config.has_pairs() && matches!(ChatTemplate::next_to(tokenizer), Ok(Some(_)))
}

fn read(config: &DataConfig, given: Option<&Vocabulary>, as_pairs: bool) -> Result<Dataset> {
    let selection = FieldSelection::of(config);
    // Texts between end tokens are the texts of a table.
    let reads_texts = |vocabulary: &Vocabulary| config.reads_texts() || vocabulary.is_of_texts();
    if let Some(vocabulary) =
        given.filter(|vocabulary| vocabulary.notation() != Notation::Words && !reads_texts(vocabulary))
    {
        let or_texts = match vocabulary.end() {
            Some(_) => ", or --set data.tokens=characters for the texts of a column",
            None => "",
        };
        let problem = format!(
            "reads integers or symbols, but the vocabulary of {vocabulary} contains neither; add --set \
             data.source=text to read the file as a text{or_texts}"
        );
        return Err(Error::key("data.source", "table", problem));
    }
    let files = config.path.files("data.path")?;
    if let Some(other) =
        files.iter().find(|file| files.len() > 1 && Source::by_extension(file) != Source::Table)
    {
        let problem =
            "is not a table by its extension, but is read together with others; remove it, or rename it";
        return Err(Error::file(other, problem));
    }
    let reading = TableReading { files: files.len(), ..TableReading::default() };
    let mut table = Table {
        config,
        given,
        files: Files { paths: files, current: 0 },
        encoder: None,
        ids: Ids::default(),
        rows: Vec::new(),
        counted: Vec::new(),
        is_stream: None,
        columns: Columns::default(),
        chosen: Chosen { column: config.column.clone(), selection, as_pairs, ..Chosen::default() },
        reading,
        seen: Seen::default(),
    };
    for file in 0..table.files.paths.len() {
        table.files.current = file;
        table.read_file()?;
    }
    table.push_groups()?;
    table.refuse_merged_fields()?;
    table.warn_of_empty();
    table.warn_of_lists();
    if !table.chosen.texts.is_empty() {
        return table.into_texts();
    }
    let Some(encoder) = table.encoder.take() else {
        return Err(Error::file(table.path(), "is empty; pass a table with data"));
    };
    table.into_dataset(encoder)
}

/// The line in which a row begins, and the values of the row.
type TableRow = (Line, StringRecord);

/// Removes empty values at the end of a row. Some programs pad lines to the same length with them.
fn trimmed(mut values: StringRecord) -> StringRecord {
    let filled = values.iter().zip(1..).filter(|(value, _)| !value.is_empty()).last();
    values.truncate(filled.map_or(0, |(_, count)| count));
    values
}

/// The state of reading a table.
struct Table<'a> {
    config: &'a DataConfig,
    given: Option<&'a Vocabulary>,
    files: Files,
    /// Created for the first value.
    encoder: Option<Encoder<'a>>,
    ids: Ids,
    /// The line of each sequence, and its range of ids.
    rows: Vec<(Line, Range<usize>)>,
    /// For each id, true if it counts as a target; empty if all do.
    counted: Vec<bool>,
    /// True if all rows together are one sequence; the first row decides.
    is_stream: Option<bool>,
    /// The columns that are found in the header.
    columns: Columns,
    /// The fields that the config selects.
    chosen: Chosen,
    reading: TableReading,
    seen: Seen,
}

/// The fields that the config selects, with the sequences that they form.
#[derive(Default)]
struct Chosen {
    /// `data.column`.
    column: Column,
    /// The columns of the config, and their indices in the current file.
    selection: Option<FieldSelection>,
    fields: Option<Arc<Fields>>,
    /// The rows of each group.
    groups: Groups,
    /// The texts, if they are split into tokens.
    texts: Vec<TextSample>,
    /// The chat template of the tokenizer, read for the first conversation.
    template: Option<Option<ChatTemplate>>,
    /// True for the pairs of an encoder-decoder.
    as_pairs: bool,
}

/// Properties of the values that have been read.
#[derive(Default)]
struct Seen {
    /// True if sequences have their own end tokens.
    own_ends: bool,
    /// True if the current file has comments, which are read as blank lines.
    has_comments: bool,
    /// True if an integer with leading zeros was read as a number.
    drops_zeros: bool,
    /// The numbers and booleans of JSON, and the strings with the same text, by what they become and their text. True
    /// for a string.
    literals: HashMap<(&'static str, String), bool>,
    /// The line in which each id occurs first, if ids are assigned in this order.
    first_lines: Vec<Line>,
    /// The lines with sequences longer than `data.length`, if these are cut or left out.
    long: BTreeSet<Line>,
    /// The fields of conversations that are not read.
    unread: BTreeSet<String>,
    /// The fields that are not read, but have one value for each token.
    unread_lists: BTreeSet<String>,
    /// The error about different values of objects that are one symbol, if values are symbols.
    merged: Option<Error>,
}

/// The selection of columns of a table, determined from its header.
#[derive(Default)]
struct Columns {
    /// The number of columns at the left that are skipped as an index.
    skipped: usize,
    /// The names in the header of the current file.
    names: Vec<String>,
    /// For each column of the run's table, its index in this table, if this table has another order.
    order: Option<Vec<usize>>,
    /// The indices and names of mask columns other than the selected column. They must keep all targets.
    masks: Vec<(usize, String)>,
}

impl Table<'_> {
    /// Reads a file.
    fn read_file(&mut self) -> Result<()> {
        // The columns of each file are found in its own header.
        self.columns = Columns::default();
        let path = self.path().to_path_buf();
        if path.is_dir() {
            let problem = "is a folder; pass the path of one CSV or JSON file";
            return Err(Error::key("data.path", path.display(), problem));
        }
        #[cfg(feature = "parquet")]
        if let Some(Columnar { format, lines }) = Columnar::read(&path)? {
            self.reading.format = match format {
                ColumnarFormat::Parquet => TableFormat::Parquet,
                ColumnarFormat::Arrow => TableFormat::Arrow,
            };
            return self.read_json(json::lines(&path, &lines));
        }
        let text = Text::open(&path)?.read_to_string()?;
        if is_lfs_pointer(text.as_bytes()) {
            return Err(Error::file(path, LFS_POINTER));
        }
        if let Some(format) = damage::markup(&text) {
            let problem = format!("is {format}, not a table; download or export the table itself");
            return Err(Error::file(path, problem));
        }
        let layout = JsonLayout::of(&text, &self.extension());
        self.reading.format = if layout.is_some() { TableFormat::Json } else { TableFormat::Csv };
        match layout {
            Some(JsonLayout::Array) => self.read_json(json::elements(&path, &text)?),
            Some(JsonLayout::Lines) => self.read_json(json::lines(&path, &text)),
            None if self.reads_lines() => {
                self.reading.format = TableFormat::Lines;
                // A line of text may begin with any character.
                let text =
                    if self.config.comment == Comment::Auto { text } else { self.without_comments(text) };
                self.read_lines(&text);
                Ok(())
            }
            None => {
                let text = self.without_comments(text);
                self.read_delimited(&text)
            }
        }
    }

    /// Returns true if each line is a text: texts are read, but no column is selected, and neither the extension nor the
    /// config says that lines have columns.
    fn reads_lines(&self) -> bool {
        let is_csv = ["csv", "tsv"].contains(&&*self.extension()) || self.config.delimiter != Delimiter::Auto;
        let all_columns =
            |selection: &FieldSelection| selection.form == FieldForm::Texts && selection.is_unselective();
        !is_csv && self.chosen.selection.as_ref().is_some_and(all_columns)
    }

    /// Returns true if the rows are objects or arrays, whose values may contain line breaks.
    fn is_json(&self) -> bool {
        match self.reading.format {
            TableFormat::Csv | TableFormat::Lines => false,
            TableFormat::Json | TableFormat::Parquet | TableFormat::Arrow => true,
        }
    }

    /// Returns the extension of the file in lower case.
    fn extension(&self) -> String {
        DataConfig::extension_of(self.path())
    }

    /// Returns the index of the column that `data.column` selects by its number.
    fn numbered_column(&self) -> Option<usize> {
        match self.chosen.column {
            Column::Number(number) => Some(number - 1),
            Column::Name(_) => None,
        }
    }

    /// Adds a row as a sequence, or only its value at `column`, counted from 0.
    fn push(&mut self, (line, values): &TableRow, column: Option<usize>) -> Result<()> {
        let is_value = column.is_some();
        if *self.is_stream.get_or_insert(is_value) != is_value {
            let problem = if is_value {
                "is a single value, but the rows above are sequences"
            } else {
                "is a sequence, but the rows above are single values"
            };
            return Err(self.problem(Some(*line), format!("{problem}; use one kind of row throughout")));
        }
        let (start, all) = (self.ids.len(), values.len());
        for index in column.map_or(self.columns.skipped..all, |column| column..column + 1) {
            let id = match values.get(index) {
                None => {
                    let problem = match self.chosen.column.name() {
                        Some(name) => format!("lacks a value in the column `{name}`"),
                        None => format!("has {} but none in column {}", counted(all, "value"), index + 1),
                    };
                    Err(format!("{problem}; add it, because a column needs a value in every row"))
                }
                Some(value) => self.id(value).map_err(|problem| match all {
                    1 => problem,
                    _ => format!("{}: {problem}", self.value_shown(index)),
                }),
            };
            let id = id.map_err(|problem| self.problem(Some(*line), problem))?;
            self.ids.extend(&[id]);
            if id as usize == self.seen.first_lines.len() {
                self.seen.first_lines.push(*line);
            }
        }
        if self.ids.len() > start && !is_value {
            self.rows.push((*line, start..self.ids.len()));
        }
        Ok(())
    }

    /// Returns the id of a value, or an error message without the location.
    fn id(&mut self, value: &str) -> Result<u32, String> {
        if value.contains('\n') && !self.is_json() {
            let excerpt = excerpt(value);
            return Err(format!(
                "`{excerpt}` spans several lines; close its quote, write the value on one line, or set `data.column` to this \
                 column and `data.tokens` to read its cells as texts"
            ));
        }
        if value.is_empty() {
            // The values of JSON arrays do not have columns.
            let has_columns = !self.is_json() || self.chosen.fields.is_some();
            let several = self.is_stream == Some(false) && !self.chosen.column.is_set() && has_columns;
            let or_ignore = match several {
                true if !self.config.columns.is_empty() => ", or remove its column from `data.columns`",
                true => ", or leave its column out with `data.ignore_columns`",
                false => "",
            };
            return Err(format!("is empty; write a value, or remove it{or_ignore}"));
        }
        self.seen.own_ends |= value == END;
        let (config, given) = (self.config, self.given);
        let has_zeros =
            value.len() > 1 && value.starts_with('0') && value.bytes().all(|it| it.is_ascii_digit());
        let is_number = given.is_none_or(Vocabulary::is_integers)
            && config.values == Values::Auto
            && !self.seen.drops_zeros;
        if has_zeros && is_number && !matches!(self.encoder, Some(Encoder::Symbols(_))) {
            self.seen.drops_zeros = true;
            self.reading.guesses.push(format!(
                "`{}` is read as a number, without its leading zeros; set `data.values` = \"symbols\" if \
                 values are names, or \"integers\" if they are numbers",
                excerpt(value)
            ));
        }
        self.encoder.get_or_insert_with(|| Encoder::new(config, given, value)).id(value)
    }
}

#[cfg(test)]
mod tests;
