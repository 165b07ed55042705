//! The user's table: CSV or JSON of integers or of symbols.
//!
//! Each line, or each array of a JSON file, is a sequence. Sequences of different lengths are closed by an
//! end token, so that a model learns where one ends; the last `data.valid_fraction` of them are for
//! validation. With `data.column` that column, from the first line to the last, is one sequence, cut into
//! windows as a text is; and so are the numbers of a JSON array. A column of JSON objects may hold
//! sequences instead, an array each.
//!
//! ```text
//! 3,1,4,1        {"day": 1, "state": "sun"}       {"steps": [3, 1, 4, 1]}
//! 5,9            {"day": 2, "state": "rain"}      {"steps": [5, 9]}
//! 2,6,5,3        {"day": 3, "state": "sun"}       {"steps": [2, 6, 5, 3]}
//! ```
//!
//! The delimiter of CSV and whether its first line holds names are inferred (`delimiter`, `header`), unless
//! `data.delimiter` and `data.header` say them. What was inferred is kept for `data` to show, and a guess is a warning.

mod delimited;
mod delimiter;
mod header;
mod json;
mod reading;
mod rows;
mod targets;
mod values;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use csv::StringRecord;

use self::header::FirstLine;
pub use self::reading::TableReading;
use self::values::Encoder;
use super::config::{Column, DataConfig, Delimiter, Header, Values};
use super::dataset::Dataset;
use super::excerpt::excerpt;
use super::ids::Ids;
use super::vocabulary::{END, Notation, Vocabulary};
use crate::error::{Error, Result};
use crate::files::{Text, remove_quotes};
use crate::terminal::counted;

/// Columns that are named in an error.
const NAMED: usize = 20;

/// Reads the table that `config` names, in the format that its extension names, JSON or else CSV; by a given
/// vocabulary, or by that of its values.
pub(super) fn load(config: &DataConfig, given: Option<&Vocabulary>) -> Result<Dataset> {
    if let Some(vocabulary) = given.filter(|vocabulary| vocabulary.notation() != Notation::Words) {
        let problem = format!(
            "reads integers or symbols, and the vocabulary of {vocabulary} has none: add --set data.source=text to read \
             the file as a text"
        );
        return Err(Error::key("data.source", "table", problem));
    }
    let path = &config.path;
    if path.is_dir() {
        let problem = "is a folder; give the path of one CSV or JSON file";
        return Err(Error::key("data.path", path.display(), problem));
    }
    let text = Text::open(path)?.whole()?;
    let is_json = config.is_json();
    let reading = TableReading { format: if is_json { "json" } else { "csv" }, ..TableReading::default() };
    let mut table = Table {
        config,
        given,
        encoder: None,
        ids: Ids::default(),
        rows: Vec::new(),
        is_json,
        is_stream: None,
        ends_itself: false,
        skipped: 0,
        order: None,
        masks: Vec::new(),
        reading,
        drops_zeros: false,
    };
    match is_json {
        true if config.extension() == "json" && !json::is_lines(&text) => {
            json::elements(path, &text)?.try_for_each(|element| table.push_json(element?))
        }
        true => json::lines(path, &text).try_for_each(|line| table.push_json(line?)),
        false => table.read_delimited(&text),
    }?;
    let Some(encoder) = table.encoder.take() else {
        return Err(Error::file(path, "is empty; give a table to learn from"));
    };
    table.into_dataset(encoder)
}

/// The line in which a row begins, from 1, and its values.
type Row = (usize, StringRecord);

/// A sequence without empty values at its end: programs write them to make lines equally long.
fn trimmed(mut values: StringRecord) -> StringRecord {
    let filled = values.iter().zip(1..).filter(|(value, _)| !value.is_empty()).last();
    values.truncate(filled.map_or(0, |(_, count)| count));
    values
}

/// The rows without their first value.
fn shifted(rows: &[&Row]) -> Vec<Row> {
    rows.iter().map(|row| (row.0, row.1.iter().skip(1).collect())).collect()
}

/// The names of columns as an error lists them.
fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let more = names.len().checked_sub(NAMED + 1).map(|more| format!("{} more", more + 1));
    names.iter().take(NAMED).map(|name| excerpt(name)).chain(more).collect::<Vec<_>>().join(", ")
}

/// What was read so far.
struct Table<'a> {
    config: &'a DataConfig,
    given: Option<&'a Vocabulary>,
    /// Made for the first value.
    encoder: Option<Encoder<'a>>,
    ids: Ids,
    /// The line of each sequence, and where it lies in the ids.
    rows: Vec<(usize, Range<usize>)>,
    /// Whether a value may hold line breaks.
    is_json: bool,
    /// Whether all rows are one sequence; the first one decides.
    is_stream: Option<bool>,
    /// Whether sequences have end tokens of their own.
    ends_itself: bool,
    /// Columns at the left that are not read: an index.
    skipped: usize,
    /// The place of each column of the run's table, where this one has another order.
    order: Option<Vec<usize>>,
    /// Columns next to the one that is read that must be 1 throughout.
    masks: Vec<(usize, String)>,
    reading: TableReading,
    /// Whether an integer with leading zeros was read as a number.
    drops_zeros: bool,
}

impl<'a> Table<'a> {
    fn problem(&self, line: Option<usize>, problem: impl Into<String>) -> Error {
        Error::in_file(&self.config.path, line, None, problem)
    }

    /// The place of the column that is chosen by its number.
    fn numbered_column(&self) -> Option<usize> {
        match self.config.column {
            Column::Number(number) => Some(number - 1),
            Column::Name(_) => None,
        }
    }

    /// Adds a value of JSON.
    fn push_json(&mut self, json::Parsed { line, value, text }: json::Parsed<'_>) -> Result<()> {
        let values = json::values(value, self.config.column.name());
        let (values, is_one) = values.map_err(|problem| self.problem(Some(line), problem))?;
        self.reading.add(&values);
        let column = self.numbered_column().or(is_one.then_some(0));
        let row = (line, values);
        self.push(&row, column).map_err(|error| {
            // The error quotes the file, which may write a number in another way.
            let written = json::as_written(&row.1, text).map(|values| self.push(&(line, values), column));
            written.and_then(Result::err).unwrap_or(error)
        })
    }

    /// Reads lines of which the first may be a header.
    fn read_delimited(&mut self, text: &str) -> Result<()> {
        if text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("sep=")) {
            let problem = "names the delimiter for Excel: remove this line, and set `data.delimiter`";
            return Err(self.problem(Some(1), problem));
        }
        let delimiter = self.delimiter(text);
        self.reading.delimiter = Some(Delimiter::Of(delimiter).to_string());
        let is_blank = |row: &Result<Row>| row.as_ref().is_ok_and(|(_, values)| values.is_empty());
        let mut rows = delimited::rows(&self.config.path, text, delimiter).skip_while(is_blank);
        let Some(first) = rows.next().transpose()? else { return Ok(()) };
        let sample: Vec<Result<Row>> = rows.by_ref().take(delimiter::SAMPLE).collect();
        let below: Vec<&Row> = sample.iter().map_while(|row| row.as_ref().ok()).collect();
        let width = usual_width(&below).unwrap_or(first.1.len());
        let is_comment = |value: &str| value.starts_with('#');
        if first.1.get(0).is_some_and(is_comment) && first.1.len() != width {
            let problem =
                "begins with `#` and has another number of values than the lines below: remove this comment";
            return Err(self.problem(Some(first.0), problem));
        }
        self.refuse_brackets(&first)?;
        self.refuse_quoted_rows(text, &first, &below)?;
        let mut column = self.numbered_column();
        // R writes row names below a header that has no name for them.
        let names_rows = first.1.len() + 1 == width
            && header::is_index(&below)
            && self.config.header != Header::Given(false);
        let first = match names_rows
            && header::judge(&first.1, &shifted(&below).iter().collect::<Vec<_>>(), None) == FirstLine::Names
        {
            true => (first.0, std::iter::once("").chain(first.1.iter()).collect()),
            false => first,
        };
        if let Some(name) = self.config.column.name() {
            let problem =
                format!("leaves no names, and `data.column` = {name} is one: give the column's number");
            let is_named = self.config.header != Header::Given(false);
            Error::check_key(is_named, "data.header", false, problem)?;
            column = Some(self.named_column(&first, name)?);
        }
        let known = self.given.map_or(&[][..], Vocabulary::columns);
        if self.has_header(&first, &below, column) {
            if first.1.len() != width {
                self.reading.guesses.push(format!(
                    "the header in line {} has {}, and most lines below have {}: set `data.delimiter` to another \
                     character if values are split in two, as numbers with a decimal comma are",
                    first.0,
                    counted(first.1.len(), "name"),
                    counted(width, "value")
                ));
            }
            match self.config.column {
                _ if first.1.iter().eq(known) => {}
                Column::Name(ref name) if !name.is_empty() => {}
                Column::Number(number) => {
                    let places = self.places(&first, known.get(number - 1..number).unwrap_or_default())?;
                    column = places.first().copied().or(column);
                }
                Column::Name(_) if known.is_empty() => {}
                Column::Name(_) => self.order = Some(self.places(&first, known)?),
            }
            self.read_header(&first.1, &below, column);
        } else {
            if !known.is_empty() {
                let names = listed(known.iter().map(String::as_str));
                self.reading.guesses.push(format!(
                    "{} has no header, so its columns are read in the order of the run's, which are {names}",
                    self.config.path.display()
                ));
            }
            self.reading.add(&first.1);
            self.push(&first, column)?;
        }
        if self.given.is_none()
            && self.config.values == Values::Auto
            && let Some(line) = header::words_above_numbers(&below, column)
        {
            let problem = "holds words, and the lines below it only numbers: remove it if it is a title, units or a \
                           comment, or set `data.values` = \"symbols\" to read each value as a name";
            return Err(self.problem(Some(line), problem));
        }
        sample.into_iter().chain(rows).try_for_each(|row| {
            let (line, mut values) = row?;
            if let Some(order) = &self.order {
                values = trimmed(order.iter().map(|&at| values.get(at).unwrap_or_default()).collect());
            }
            self.reading.add(&values);
            self.push(&(line, values), column)
        })
    }

    /// Refuses rows in brackets, whose first and last value would keep one.
    fn refuse_brackets(&self, (line, values): &Row) -> Result<()> {
        let ends = values.get(0).zip(values.get(values.len().saturating_sub(1)));
        let pairs = [('[', ']'), ('(', ')'), ('{', '}')];
        let is_list = |(first, last): (&str, &str)| {
            pairs.iter().any(|&(open, close)| {
                first.starts_with(open)
                    && !first.contains(close)
                    && last.ends_with(close)
                    && !last.contains(open)
            })
        };
        if values.len() > 1 && ends.is_some_and(is_list) {
            let problem = "is a list in brackets, which would become part of the values: remove the brackets, or name \
                           the file .jsonl where each line is a list as JSON writes it";
            return Err(self.problem(Some(*line), problem));
        }
        Ok(())
    }

    /// Refuses lines in quotes, each of which would be one value however it is split. A column of phrases is one, if it
    /// is chosen.
    fn refuse_quoted_rows(&self, text: &str, first: &Row, below: &[&Row]) -> Result<()> {
        // The first line may hold names, in quotes or without.
        let has_one_name = first.1.len() == 1;
        let is_plain = || text.lines().nth(first.0 - 1).is_some_and(|line| !line.contains('"'));
        let rows = || std::iter::once(first).filter(|_| below.is_empty()).chain(below.iter().copied());
        let filled = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines = filled.skip(usize::from(!below.is_empty())).take(rows().count());
        let is_quoted = |line: &str| line.len() > 1 && line.starts_with('"') && line.ends_with('"');
        let are_whole = rows().all(|row| row.1.len() == 1) && lines.into_iter().all(is_quoted);
        if !(are_whole && (has_one_name || is_plain())) {
            return Ok(());
        }
        let inner = rows().filter_map(|row| row.1.get(0)).collect::<Vec<_>>().join("\n");
        let delimiter::Inferred { delimiter, regularity, .. } = delimiter::infer(&inner, "csv");
        let is_number = |value: &str| value.parse::<f64>().is_ok();
        let are_numbers = |row: StringRecord| row.iter().all(is_number);
        let values = delimiter::records(&inner, delimiter).flatten();
        let are_phrases = !values.into_iter().all(are_numbers);
        let is_chosen = match &self.config.column {
            Column::Number(_) => are_phrases || self.config.values == Values::Symbols,
            Column::Name(name) => are_phrases && has_one_name && first.1.get(0) == Some(name.as_str()),
        };
        if regularity == 0.0 || is_chosen {
            return Ok(());
        }
        let and_symbols = if are_phrases { "" } else { " and `data.values` = \"symbols\"" };
        let problem = format!(
            "is in quotes as a whole, as are the lines below, so that it is one value: {}, or set `data.column` = \
             1{and_symbols} to make each line one token",
            remove_quotes(&self.config.path)
        );
        Err(self.problem(rows().next().map(|row| row.0), problem))
    }

    /// The places in a header of the columns of these names, each at the next one of its name.
    fn places(&self, (line, header): &Row, names: &[String]) -> Result<Vec<usize>> {
        let mut free: HashMap<&str, Vec<usize>> = HashMap::new();
        (0..header.len()).rev().for_each(|at| free.entry(&header[at]).or_default().push(at));
        let places: Vec<_> = names.iter().map(|name| free.get_mut(name.as_str())?.pop()).collect();
        let missing = names.iter().zip(&places).filter(|(_, place)| place.is_none());
        let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
        if missing.is_empty() {
            return Ok(places.into_iter().flatten().collect());
        }
        let problem = format!(
            "lacks {} ({}) that the weights were trained on, and has {}: rename its columns, or add those",
            counted(missing.len(), "column"),
            listed(missing),
            listed(header)
        );
        Err(self.problem(Some(*line), problem))
    }

    /// The delimiter, as `data.delimiter` or else the lines say.
    fn delimiter(&mut self, text: &str) -> u8 {
        if let Delimiter::Of(delimiter) = self.config.delimiter {
            return delimiter;
        }
        let delimiter::Inferred { delimiter, rival, regularity } =
            delimiter::infer(text, &self.config.extension());
        let name = |byte| Delimiter::Of(byte);
        if let Some(rival) = rival {
            self.reading.guesses.push(format!(
                "the lines are split at each {}, and each {} splits them as evenly: set `data.delimiter` to one of \
                 the two",
                name(delimiter),
                name(rival)
            ));
        }
        // Sequences of symbols differ in length, and so do sentences with commas.
        let mut sample = delimiter::records(text, delimiter).take(delimiter::SAMPLE).flatten();
        let is_phrase = |value: &str| value.contains(char::is_whitespace);
        if regularity < 0.9 && sample.any(|row| row.len() > 1 && row.iter().any(is_phrase)) {
            self.reading.guesses.push(format!(
                "the lines hold phrases, and are split at each {} into different numbers of values: set \
                 `data.delimiter` to that if it is right, or to a character that no line has",
                name(delimiter)
            ));
        }
        delimiter
    }

    /// Returns whether the first line holds names, as the config or else the lines below say.
    fn has_header(&mut self, first: &Row, below: &[&Row], column: Option<usize>) -> bool {
        if self.config.column.name().is_some() {
            return true;
        }
        let is_known = |vocabulary: &Vocabulary| {
            let header: HashSet<&str> = first.1.iter().collect();
            let columns = vocabulary.columns();
            !columns.is_empty() && columns.iter().all(|name| header.contains(name.as_str()))
        };
        let judged = match self.config.header {
            Header::Given(is_header) => return is_header,
            Header::Auto if self.given.is_some_and(is_known) => FirstLine::Names,
            Header::Auto => header::judge(&first.1, below, column),
        };
        let shown: Vec<String> = first.1.iter().take(4).map(excerpt).collect();
        let line = format!("line {} (`{}`)", first.0, shown.join(", "));
        match judged {
            FirstLine::Names => true,
            FirstLine::Data => false,
            FirstLine::Numbers => {
                self.reading.guesses.push(format!(
                    "{line} is read as data, though its numbers are unlike those below: add --set data.header=true if it is \
                     a header, or --set data.header=false if it is data"
                ));
                false
            }
            FirstLine::ProbablyNames => {
                self.reading.guesses.push(format!(
                    "{line} is taken as a header, because its values recur nowhere below: set `data.header` = false if \
                     it is data, or true if it is a header"
                ));
                true
            }
            FirstLine::Unknown => {
                self.reading.guesses.push(format!(
                    "{line} is taken as data, because nothing below tells: set `data.header` = true if it is a header, \
                     or false if it is data"
                ));
                false
            }
        }
    }

    /// Keeps the names of a header, and finds the columns that are not values.
    fn read_header(&mut self, names: &StringRecord, below: &[&Row], column: Option<usize>) {
        self.reading.header = Some(names.iter().map(str::to_string).collect());
        if let Some(order) = &self.order {
            let names = order.iter().filter_map(|&at| names.get(at));
            self.reading.header = Some(names.map(str::to_string).collect());
        } else if column.is_none() && header::has_index(names, below) {
            self.skipped = 1;
            self.reading.guesses.push(
                "column 1 has no name and no value twice: it is an index, and is not read; give it a name to read it"
                    .to_string(),
            );
        }
        let masks = names
            .iter()
            .enumerate()
            .filter(|&(at, name)| column.is_some_and(|column| column != at) && targets::is_mask(name));
        self.masks = masks.map(|(at, name)| (at, name.to_string())).collect();
    }

    /// The place of the column of a name in the first line.
    fn named_column(&self, first: &Row, name: &str) -> Result<usize> {
        let mut places =
            first.1.iter().enumerate().filter(|(_, value)| *value == name).map(|(place, _)| place);
        let place = places.next();
        if let Some(twin) = places.next() {
            let [first, twin] = [place.unwrap_or_default() + 1, twin + 1];
            let problem =
                format!("is the name of columns {first} and {twin}: give the number of one of them");
            return Err(Error::key("data.column", name, problem));
        }
        place.ok_or_else(|| {
            let path = self.config.path.display();
            let problem = format!("is no column of {path}, which has {}", listed(&first.1));
            Error::key("data.column", name, problem)
        })
    }

    /// Adds a row as a sequence, or the value of one column of it, counted from 0.
    fn push(&mut self, (line, values): &Row, column: Option<usize>) -> Result<()> {
        let is_value = column.is_some();
        if *self.is_stream.get_or_insert(is_value) != is_value {
            let what = if is_value { "is one value below sequences" } else { "is a sequence below values" };
            return Err(self.problem(Some(*line), format!("{what}; give either")));
        }
        let (start, all) = (self.ids.len(), values.len());
        let lets_count = |(at, name): &(usize, String)| {
            values.get(*at).is_some_and(|value| targets::lets_count(name, &serde_json::Value::from(value)))
        };
        let weighed = self.masks.iter().find(|mask| !lets_count(mask));
        if let Some((_, name)) = weighed {
            return Err(self.problem(Some(*line), targets::refusal(name)));
        }
        for index in column.map_or(self.skipped..all, |column| column..column + 1) {
            let id = match values.get(index) {
                None => {
                    let problem = match self.config.column.name() {
                        Some(name) => format!("has no value in the column `{name}`"),
                        None => format!("has {} and none in column {}", counted(all, "value"), index + 1),
                    };
                    Err(format!("{problem}; windows need one in every row"))
                }
                Some(value) => self.id(value).map_err(|problem| match all {
                    1 => problem,
                    _ => format!("value {}: {problem}", index + 1),
                }),
            };
            let id = id.map_err(|problem| self.problem(Some(*line), problem))?;
            self.ids.extend(&[id]);
        }
        if self.ids.len() > start && !is_value {
            self.rows.push((*line, start..self.ids.len()));
        }
        Ok(())
    }

    /// The id of a value, or what is wrong with it.
    fn id(&mut self, value: &str) -> Result<u32, String> {
        if value.contains('\n') && !self.is_json {
            let shown = excerpt(value);
            return Err(format!(
                "`{shown}` goes on over several lines: close its quote, or write the value in one line"
            ));
        }
        if value.len() > 1 && value.starts_with('"') && value.ends_with('"') && !self.is_json {
            let shown = excerpt(value);
            return Err(format!(
                "{shown} keeps its quotes, for a space stands before them: remove the space"
            ));
        }
        if value.is_empty() {
            return Err("an empty value; give it a name, or leave it out".into());
        }
        self.ends_itself |= value == END;
        let (config, given) = (self.config, self.given);
        let has_zeros =
            value.len() > 1 && value.starts_with('0') && value.bytes().all(|it| it.is_ascii_digit());
        let is_number = given.is_none() && config.values == Values::Auto && !self.drops_zeros;
        if has_zeros && is_number && !matches!(self.encoder, Some(Encoder::Symbols(_))) {
            self.drops_zeros = true;
            self.reading.guesses.push(format!(
                "`{}` is read as a number, without its leading zeros: set `data.values` = \"symbols\" if values are \
                 names, or \"integers\" if they are numbers",
                excerpt(value)
            ));
        }
        self.encoder.get_or_insert_with(|| Encoder::new(config, given, value)).id(value)
    }
}

/// The number of values that most lines have.
fn usual_width(rows: &[&Row]) -> Option<usize> {
    let mut counts = BTreeMap::new();
    rows.iter().for_each(|(_, values)| *counts.entry(values.len()).or_insert(0) += 1);
    counts.into_iter().max_by_key(|&(_, count)| count).map(|(width, _)| width)
}

#[cfg(test)]
mod tests;
