//! A table of numbers, each of which becomes the token of its bin.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::edges::edges;
use super::groups::points_of_thousands;
use super::{Line, Table, values::Encoder};
use crate::data::dataset::Dataset;
use crate::data::excerpt::{and_more, excerpt};
use crate::data::ids::Ids;
use crate::data::sequences::Sequences;
use crate::data::vocabulary::{BinsOf, NumberFormat, Vocabulary};
use crate::error::{Error, Result};
use crate::numbers::counted;

/// Returns the maximum number of decimals of the numbers, as they are written; `None` if there are too many.
fn decimals<'t>(mut texts: impl Iterator<Item = &'t str>, format: NumberFormat) -> Option<u32> {
    /// The number of decimals up to which a difference of common numbers is exact after rounding.
    const MAX_DECIMALS: u32 = 12;
    let mark = if format == NumberFormat::DecimalComma { ',' } else { '.' };
    texts.try_fold(0, |most, text| {
        let decimals = text.split_once(mark).map_or(0, |(_, decimals)| decimals.len() as u32);
        let is_plain = !text.contains(['e', 'E']) && decimals <= MAX_DECIMALS;
        is_plain.then(|| most.max(decimals))
    })
}

/// Rounds a difference of numbers with at most this many decimals to as many, so that equal changes are equal.
fn of_decimals(difference: f64, decimals: Option<u32>) -> f64 {
    let scale = decimals.map(|decimals| 10f64.powi(decimals as i32));
    scale.map_or(difference, |scale| (difference * scale).round() / scale)
}

impl Table<'_> {
    /// Returns the splits of a table of numbers in bins. The `encoder` holds the texts of the numbers.
    pub(super) fn into_bins(mut self, encoder: Encoder<'_>) -> Result<Dataset> {
        let longest = self.rows.iter().map(|(_, ids)| ids.len()).max().unwrap_or(0);
        if self.is_stream != Some(true) && longest < 2 {
            self.check_rows(&encoder, longest, true)?;
        }
        let Encoder::Symbols(texts) = encoder else { unreachable!("numbers in bins are read as texts") };
        let given = self.given.and_then(Vocabulary::bins_of);
        let of_numbers = self.of_numbers(&texts, given)?;
        let numbers = self.parsed(&texts, of_numbers.format)?;
        let text_of = |id| texts.iter().find(|(_, other)| **other == id).map(|(text, _)| text.clone());
        self.refuse_total(&numbers, |id| text_of(id).unwrap_or_default())?;
        self.refuse_rounded(&texts, &numbers)?;
        let decimals = decimals(texts.keys().map(String::as_str), of_numbers.format);
        let changes =
            |row: &[f64]| row.windows(2).map(|pair| of_decimals(pair[1] - pair[0], decimals)).collect();
        let (values, mut rows) = self.sequences(&numbers, |row| match of_numbers.difference {
            true => changes(&row),
            false => row,
        });
        if of_numbers.difference && self.is_stream != Some(true) {
            self.leave_out_empty(&mut rows)?;
            if rows.iter().all(|(_, changes)| changes.len() == 1) {
                let problem = "has one change per row, so there is nothing to predict; set `data.column` to one column of \
                               numbers, whose changes are one sequence";
                return Err(self.problem(None, problem));
            }
        }
        if of_numbers.difference && self.chosen.fields.as_ref().is_some_and(|fields| fields.values.len() > 1)
        {
            self.reading.guesses.push(
                "the changes are those from each value to the next, across the columns; to read the changes of one \
                 quantity, select one column"
                    .to_string(),
            );
        }
        if let Some(vocabulary) = self.given {
            self.warn_of_outside(&values, vocabulary);
            return self.into_bins_of(values, rows, vocabulary.clone());
        }
        let lengths = || rows.iter().map(|(_, ids)| ids.len());
        let with_end = self.is_stream != Some(true) && lengths().min() < lengths().max();
        let [mut training, validation] = match self.is_stream {
            Some(true) => {
                let (train, valid) = values.split_at(self.config.train_part(values.len()));
                [train.to_vec(), valid.to_vec()]
            }
            _ => {
                let (train, valid) = self.split(rows.len())?;
                [self.kept(&train, &rows, &values, with_end)?, self.kept(&valid, &rows, &values, with_end)?]
            }
        };
        let edges = edges(&mut training, self.config.bins, self.config.binning);
        let vocabulary = Vocabulary::bins(edges, &training, with_end, of_numbers)?;
        self.warn_of_outliers(&training, &validation, &vocabulary);
        self.warn_of_few_bins(vocabulary.size() - usize::from(with_end), of_numbers.difference);
        self.into_bins_of(values, rows, vocabulary)
    }

    /// Returns the numbers of all sequences, each converted by `convert`, and the range of each sequence. `numbers` has the
    /// number of each id.
    fn sequences(
        &self,
        numbers: &[f64],
        convert: impl Fn(Vec<f64>) -> Vec<f64>,
    ) -> (Vec<f64>, Vec<(Line, Range<usize>)>) {
        let sequences: Vec<(Line, Range<usize>)> = match self.is_stream {
            Some(true) => vec![(self.line(1), 0..self.ids.len())],
            _ => self.rows.clone(),
        };
        let mut values: Vec<f64> = Vec::with_capacity(self.ids.len());
        let mut rows = Vec::with_capacity(sequences.len());
        for (line, range) in sequences {
            let start = values.len();
            values.extend(convert(self.ids.iter(range).map(|id| numbers[id as usize]).collect()));
            rows.push((line, start..values.len()));
        }
        (values, rows)
    }

    /// Returns the numbers of the rows with these indices that `data.long_rows` keeps.
    fn kept(
        &mut self,
        indices: &[usize],
        rows: &[(Line, Range<usize>)],
        values: &[f64],
        with_end: bool,
    ) -> Result<Vec<f64>> {
        let mut kept = Vec::new();
        for (line, range) in indices.iter().map(|&index| rows[index].clone()) {
            let length = self.limited(line, range.len() + usize::from(with_end))?.unwrap_or(0);
            kept.extend_from_slice(&values[range.start..range.end.min(range.start + length)]);
        }
        match kept.is_empty() {
            true => Err(self.all_left_out()),
            false => Ok(kept),
        }
    }

    /// Warns if the numbers fill fewer bins than the config asks for.
    fn warn_of_few_bins(&mut self, bins: usize, of_changes: bool) {
        if bins >= self.config.bins {
            return;
        }
        let or_symbols = match of_changes {
            true => "",
            false => "; to make each number a token, set `data.values` = \"symbols\" and remove `data.bins`",
        };
        self.reading.guesses.push(format!(
            "the numbers recur, so they fill only {} instead of `data.bins` = {}{or_symbols}",
            counted(bins, "bin"),
            self.config.bins
        ));
    }

    /// Returns how the numbers are read: as for the `given` weights, or else according to the config and the texts.
    fn of_numbers(&mut self, texts: &HashMap<String, u32>, given: Option<BinsOf>) -> Result<BinsOf> {
        let fits = |format: NumberFormat| texts.keys().all(|text| format.parse(text).is_some());
        let difference = given.map_or(self.config.difference, |given| given.difference);
        if self.config.difference && !difference {
            let problem = "reads changes, but the weights were trained on the numbers themselves; omit it";
            return Err(Error::key("data.difference", true, problem));
        }
        let format = match given.map(|given| given.format) {
            Some(format) if fits(format) => format,
            _ => NumberFormat::of(texts.keys().map(String::as_str)).unwrap_or_default(),
        };
        // Commas between thousands, as in the data of the given weights, also allow points before decimals.
        if format != NumberFormat::DecimalComma {
            let mut texts: Vec<&str> = texts.keys().map(String::as_str).collect();
            texts.sort_unstable();
            if let Some(text) = NumberFormat::of_thousands(texts.into_iter()) {
                self.reading.guesses.push(points_of_thousands("the numbers", text));
            }
        }
        if format != given.map_or(NumberFormat::Plain, |given| given.format) {
            self.reading.guesses.push(format!(
                "the values are read as {}; write them in another way if this is wrong",
                format.name()
            ));
        }
        Ok(BinsOf { difference, format })
    }

    /// Removes the sequences of a single number, which lack a change.
    fn leave_out_empty(&mut self, rows: &mut Vec<(Line, Range<usize>)>) -> Result<()> {
        let Some((line, _)) = rows.iter().find(|(_, values)| values.is_empty()).cloned() else {
            return Ok(());
        };
        let all = rows.len();
        rows.retain(|(_, values)| !values.is_empty());
        if rows.is_empty() {
            let problem = "has no sequence of two numbers, but `data.difference` reads changes; remove it";
            return Err(self.problem(None, problem));
        }
        self.reading.guesses.push(format!(
            "{}{} has a single number, so it has no change and is left out",
            self.shown(line),
            and_more(all - rows.len() - 1, "sequence")
        ));
        Ok(())
    }

    /// Returns the numbers of the texts, by id.
    fn parsed(&self, texts: &HashMap<String, u32>, format: NumberFormat) -> Result<Vec<f64>> {
        if !texts.keys().all(|text| format.parse(text).is_some()) {
            let others = |format: NumberFormat| texts.keys().filter(move |text| format.parse(text).is_none());
            let format = NumberFormat::ALL.into_iter().min_by_key(|&format| others(format).count());
            let is_number = |text: &String| format.is_some_and(|format| format.parse(text).is_some());
            let other = texts.iter().filter(|(text, _)| !is_number(text)).min_by_key(|(_, id)| **id);
            let (text, id) = other.map_or((String::new(), 0), |(text, id)| (excerpt(text), *id));
            let position = self.first_position(id);
            let row = self.rows.iter().find(|(_, ids)| ids.contains(&position));
            let line = row.map(|(line, _)| *line).or(self.seen.first_lines.get(id as usize).copied());
            let place = match row {
                Some((_, ids)) if ids.len() > 1 => {
                    format!("{}: ", self.value_shown(self.columns.skipped + position - ids.start))
                }
                _ => String::new(),
            };
            let like_others = if texts.keys().any(is_number) { " like the others" } else { "" };
            let problem = format!(
                "{place}`{text}` is not a number{like_others}, but `data.bins` reads numbers; remove the row, write all \
                 numbers of the column alike, or set `data.column` to a column of numbers"
            );
            return Err(self.problem(line, problem));
        }
        let mut numbers = vec![0.0; texts.len()];
        for (text, &id) in texts {
            numbers[id as usize] = format.parse(text).unwrap_or_default();
        }
        Ok(numbers)
    }

    /// Returns the position at which an id occurs first.
    fn first_position(&self, id: u32) -> usize {
        self.ids.iter(0..self.ids.len()).position(|other| other == id).unwrap_or(0)
    }

    /// Returns an error for numbers that bins would round: integers that a float cannot hold, and different decimals that
    /// are the same float.
    fn refuse_rounded(&self, texts: &HashMap<String, u32>, numbers: &[f64]) -> Result<()> {
        /// The number of significant digits that a float can hold.
        const EXACT_DIGITS: usize = 15;
        let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
        let long = texts.iter().filter(|(text, _)| digits(text) > EXACT_DIGITS && !text.contains(['e', 'E']));
        let mut decimals = HashSet::new();
        let is_rounded = |(text, id): &(&String, &u32)| {
            let number = numbers[**id as usize];
            match text.parse::<i128>() {
                Ok(integer) => number as i128 != integer,
                Err(_) => !decimals.insert(number.to_bits()),
            }
        };
        let Some((text, id)) = long.filter(is_rounded).min_by_key(|(_, id)| **id) else { return Ok(()) };
        let problem = format!(
            "`{}` has more digits than bins can tell apart (about {EXACT_DIGITS}); subtract the same number from all \
             values, or leave out digits",
            excerpt(text)
        );
        let position = self.first_position(*id);
        let row = self.rows.iter().find(|(_, ids)| ids.contains(&position)).map(|(line, _)| *line);
        Err(self.problem(row.or(self.seen.first_lines.get(*id as usize).copied()), problem))
    }

    /// Returns the splits of the values in `rows` as tokens of a vocabulary.
    fn into_bins_of(
        mut self,
        values: Vec<f64>,
        rows: Vec<(Line, Range<usize>)>,
        vocabulary: Vocabulary,
    ) -> Result<Dataset> {
        let mut ids = Ids::default();
        for value in values {
            ids.extend(&[vocabulary.bin(value).unwrap_or_default()]);
        }
        (self.ids, self.rows) = (ids, rows);
        let vocabulary = vocabulary.with_columns(self.columns());
        let sets = match self.is_stream {
            Some(true) => Sequences::cut(self.config, std::mem::take(&mut self.ids))?,
            _ => {
                let (train, valid) = self.split(self.rows.len())?;
                (self.row_set(&train, vocabulary.end())?, self.row_set(&valid, vocabulary.end())?)
            }
        };
        self.report_long();
        Ok(Dataset { table: Some(Arc::new(self.reading)), ..Dataset::without_floor(vocabulary, sets) })
    }
}
