//! Splits a table into training and validation sets.

use std::ops::Range;
use std::sync::Arc;

use super::{Line, Table, values::Encoder};
use crate::data::batch::Role;
use crate::data::config::{LongRows, MAX_SIZE, RowSplit};
use crate::data::dataset::Dataset;
use crate::data::excerpt::and_more;
use crate::data::sequences::{Rows, Sequences, split_rows};
use crate::data::vocabulary::{END, Vocabulary};
use crate::error::{Error, Result};
use crate::numbers::counted;

/// The maximum ratio of the longest row to the median row without a warning.
const MAX_LENGTH_RATIO: usize = 16;

/// Full-width delimiters. They are not single bytes, so `data.delimiter` cannot select them.
const FULL_WIDTH: [char; 4] = ['，', '；', '、', '｜'];

/// The minimum number of values of a row that is reported as long. A shorter row costs little.
const MIN_LONG_ROW: usize = 256;

impl<'a> Table<'a> {
    /// Returns the training and validation splits, as rows or as parts of a single sequence.
    pub(super) fn into_dataset(mut self, encoder: Encoder<'a>) -> Result<Dataset> {
        if self.config.bins > 0 || self.given.is_some_and(Vocabulary::is_bins) {
            return self.into_bins(encoder);
        }
        self.refuse_lists_in_cells(&encoder)?;
        self.warn_of_sequences_in_cells(&encoder);
        if self.is_stream != Some(true) {
            if let Some(lengths) = self.config.lengths {
                let problem = "applies to one long sequence, but each sequence of this table has its own \
                               length; remove it";
                return Err(self.config.wrong_lengths(lengths, problem));
            }
            return self.into_rows(encoder);
        }
        if self.config.split == RowSplit::Shuffle {
            let problem =
                "applies to tables with a sequence per row, but this table is a single sequence; remove it";
            return Err(Error::key("data.split", "\"shuffle\"", problem));
        }
        self.refuse_texts(&encoder)?;
        self.refuse_total_of_integers(&encoder)?;
        let vocabulary = encoder.finish(&mut self.ids, false, &mut self.reading.guesses)?;
        let vocabulary = vocabulary.with_columns(self.columns());
        let sets = Sequences::cut(self.config, self.ids)?;
        Ok(Dataset { table: Some(Arc::new(self.reading)), ..Dataset::without_floor(vocabulary, sets) })
    }

    /// Returns the names of the columns in reading order, without an index.
    pub(super) fn columns(&self) -> Vec<String> {
        self.reading.header.iter().flatten().cloned().collect()
    }

    /// Returns the splits with each row as a sequence.
    fn into_rows(mut self, encoder: Encoder<'a>) -> Result<Dataset> {
        let mut lengths: Vec<usize> = self.rows.iter().map(|(_, ids)| ids.len()).collect();
        lengths.sort_unstable();
        let (shortest, longest) =
            (lengths.first().copied().unwrap_or(0), lengths.last().copied().unwrap_or(0));
        let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        if longest > MAX_SIZE {
            let values = counted(longest, "value");
            let problem = format!(
                "has a row of {values}, but the maximum is {MAX_SIZE}; set `data.column` to read one column \
                 in windows"
            );
            return Err(self.problem(None, problem));
        }
        if longest >= MIN_LONG_ROW && longest > MAX_LENGTH_RATIO * median {
            let line = self.rows.iter().find(|(_, ids)| ids.len() == longest).map(|(line, _)| *line);
            self.reading.guesses.push(format!(
                "{} has {}, but half of the rows have {median} or fewer, so this row alone sets the \
                 context and the length of its batch; remove the line unless it is correct",
                line.map(|line| self.shown(line)).unwrap_or_default(),
                counted(longest, "value")
            ));
        } else if !self.reading.gaps.is_cut && !self.seen.own_ends {
            self.warn_of_odd_rows(&lengths);
        }
        self.warn_of_own_ends(&encoder);
        // Labels contain all targets of a sequence, so no end token is added to them.
        let has_labels = !self.counted.is_empty();
        let is_ended =
            self.given.map_or(shortest < longest && !has_labels, |vocabulary| vocabulary.end().is_some());
        if !is_ended && !has_labels && shortest < longest {
            self.reading.guesses.push(format!(
                "rows have {shortest} to {}, but the vocabulary of the weights does not have a token that \
                 ends a row, so the ends of rows are neither learned nor scored; to include them, train on \
                 rows of different lengths",
                counted(longest, "value")
            ));
        }
        let with_end = is_ended && !self.seen.own_ends;
        self.check_rows(&encoder, longest + usize::from(with_end), with_end)?;
        let (train, valid) = self.split(self.rows.len())?;
        let vocabulary = encoder.finish(&mut self.ids, with_end, &mut self.reading.guesses)?;
        let vocabulary = vocabulary.with_columns(self.columns());
        let end = vocabulary.end().filter(|_| with_end);
        let sets = (self.row_set(&train, end)?, self.row_set(&valid, end)?);
        self.report_long();
        Ok(Dataset { table: Some(Arc::new(self.reading)), ..Dataset::without_floor(vocabulary, sets) })
    }

    /// Returns the set of the rows with these indices, each followed by the `end` token.
    pub(super) fn row_set(&mut self, indices: &[usize], end: Option<u32>) -> Result<Sequences> {
        let (mut set, mut uncounted) = (Rows::default(), Vec::new());
        for &index in indices {
            let (line, ids) = self.rows[index].clone();
            let row: Vec<u32> = self.ids.iter(ids.clone()).chain(end).collect();
            let Some(length) = self.limited(line, row.len())? else { continue };
            match self.counted.get(ids).filter(|_| !self.counted.is_empty()) {
                Some(counted) => {
                    let role = |&counts: &bool| if counts { Role::Unknown } else { Role::Padding };
                    let roles = counted.iter().map(role).chain(end.map(|_| Role::Unknown));
                    let roles: Vec<Role> = roles.take(length).skip(1).collect();
                    match roles.contains(&Role::Unknown) {
                        true => set.push_with_roles(&row[..length], roles.into_iter()),
                        false => uncounted.push(line),
                    }
                }
                None => set.push(&row[..length]),
            }
        }
        self.report_uncounted(&uncounted, set.is_empty())?;
        match set.is_empty() {
            true => Err(self.all_left_out()),
            false => Ok(Sequences::rows(set)),
        }
    }

    /// Reports the sequences that are cut or left out because they are longer than `data.length`.
    pub(super) fn report_long(&mut self) {
        let lines = std::mem::take(&mut self.seen.long);
        let Some(&first) = lines.first() else { return };
        let (what, value) = match self.config.long_rows {
            LongRows::Drop => {
                self.reading.left_out = lines.len();
                ("left out", "drop")
            }
            _ => ("cut", "cut"),
        };
        let [has, is] = if lines.len() == 1 { ["has", "is"] } else { ["have", "are"] };
        self.reading.guesses.push(format!(
            "{}{} {has} more than `data.length` = {} targets and {is} {what}, because of `data.long_rows` = \"{value}\"",
            self.shown(first),
            and_more(lines.len() - 1, "sequence"),
            self.config.length
        ));
    }

    /// Reports the lines of sequences that are left out because none of their targets counts.
    ///
    /// # Errors
    /// Returns an error if `all` sequences of a set are left out.
    pub(super) fn report_uncounted(&mut self, lines: &[Line], all: bool) -> Result<()> {
        let Some(&line) = lines.first() else { return Ok(()) };
        let remedy = match self.config.long_rows {
            LongRows::Cut => "raise `data.length`, which may cut it, or add answers",
            _ => "add answers, labels other than -100, or turns of the role `assistant`",
        };
        if all {
            let problem = format!("has no target that counts in the loss in one of the sets; {remedy}");
            return Err(self.problem(None, problem));
        }
        self.reading.guesses.push(format!(
            "{}{} has no target that counts in the loss, so it is left out; {remedy}",
            self.shown(line),
            and_more(lines.len() - 1, "sequence")
        ));
        Ok(())
    }

    /// Returns the error for a set without a sequence.
    pub(super) fn all_left_out(&self) -> Error {
        let problem = format!(
            "has no sequence of at most `data.length` = {} targets for one of the sets; raise `data.length`, or set \
             `data.long_rows` = \"cut\"",
            self.config.length
        );
        self.problem(None, problem)
    }

    /// Returns the indices of the sequences for training and for validation, out of `all`.
    ///
    /// # Errors
    /// Returns an error if a set would be empty.
    pub(super) fn split(&self, all: usize) -> Result<(Vec<usize>, Vec<usize>)> {
        let train = self.config.train_part(all);
        if !self.config.is_one_split() && (train == 0 || train == all) {
            let problem = format!(
                "has {}, of which `data.valid_fraction` = {} leaves {train} for training and {} for validation, but \
                 each needs at least one; lower `data.valid_fraction`, or add rows",
                counted(all, "sequence"),
                self.config.valid_fraction,
                all - train
            );
            return Err(self.problem(None, problem));
        }
        Ok(split_rows(self.config, all))
    }

    /// Warns if the table contains end tokens, but not as the last value of each row.
    fn warn_of_own_ends(&mut self, encoder: &Encoder<'_>) {
        let Some(end) = encoder.end().filter(|_| self.seen.own_ends) else { return };
        let is_ended = |ids: &Range<usize>| {
            let mut ends = self.ids.iter(ids.clone()).map(|id| id == end);
            ends.position(|is_end| is_end) == Some(ids.len() - 1)
        };
        if let Some((line, _)) = self.rows.iter().find(|(_, ids)| !is_ended(ids)) {
            self.reading.guesses.push(format!(
                "the value `{END}` is the token that ends a row, so no other end token is added, but \
                 {} does not end with it; write it at the end of each row, or rename the value",
                self.shown(*line)
            ));
        }
    }

    /// Warns if very few rows, such as a footer, have another number of values than all other rows. `lengths` is in
    /// ascending order.
    fn warn_of_odd_rows(&mut self, lengths: &[usize]) {
        /// The minimum number of rows of the usual length for a warning.
        const MIN_USUAL_ROWS: usize = 20;
        /// The minimum number of rows per odd row for a warning. In smaller tables, only a single odd row is reported.
        const MIN_ROWS_PER_ODD_ROW: usize = 100;
        let usual = lengths.chunk_by(|one, next| one == next).max_by_key(|same| same.len());
        let (Some(usual), skipped) = (usual, self.columns.skipped) else { return };
        let (odd, usual_length) = (lengths.len() - usual.len(), usual[0]);
        if usual.len() < MIN_USUAL_ROWS || odd == 0 || odd > (lengths.len() / MIN_ROWS_PER_ODD_ROW).max(1) {
            return;
        }
        let Some((line, ids)) = self.rows.iter().find(|(_, ids)| ids.len() != usual_length) else { return };
        let more = and_more(odd - 1, "row");
        self.reading.guesses.push(format!(
            "{}{more} has {}, but {} have {}; remove the line if it is a footer, a comment or the \
             header of another file, or complete it (rows of different lengths end in the token `{END}`)",
            self.shown(*line),
            counted(ids.len() + skipped, "value"),
            counted(usual.len(), "row"),
            usual_length + skipped
        ));
    }

    /// Returns an error if a row has nothing to predict, or if there are too few rows. The longest row has `longest`
    /// tokens.
    pub(super) fn check_rows(&self, encoder: &Encoder<'_>, longest: usize, with_end: bool) -> Result<()> {
        if longest < 2 {
            let or_split =
                if self.is_json() { "" } else { ", or set `data.delimiter` to the separator of the values" };
            let full_width = |symbol: &String| symbol.chars().find(|it| FULL_WIDTH.contains(it));
            if self.config.group_by.is_set() {
                let problem = "has one row per group, so there is nothing to predict; set `data.group_by` to a column whose \
                               values recur";
                return Err(self.problem(None, problem));
            }
            if let Encoder::Symbols(symbols) = encoder
                && let Some(delimiter) = symbols.keys().find_map(full_width)
            {
                let problem =
                    format!("has one value per row; use an ASCII delimiter instead of `{delimiter}`");
                return Err(self.problem(None, problem));
            }
            let selected = self.chosen.fields.as_ref().and_then(|fields| fields.values.first()).copied();
            let column = selected.unwrap_or(self.columns.skipped);
            let others = match selected {
                Some(_) => ", without `data.columns` and `data.ignore_columns`,",
                None => "",
            };
            let name = self.columns.names.get(column).filter(|_| selected.is_some());
            let column = name.map_or_else(|| (column + 1).to_string(), |name| format!("{name:?}"));
            let problem = format!(
                "has one value per row, so there is nothing to predict; set `data.column` = {column}{others} to read all \
                 values as one sequence{or_split}"
            );
            return Err(self.problem(None, problem));
        }
        if let (false, Some((line, _))) = (with_end, self.rows.iter().find(|(_, ids)| ids.len() == 1)) {
            let problem = "has one value, so there is nothing to predict; remove this row";
            return Err(self.problem(Some(*line), problem));
        }
        let all = self.rows.len();
        let train_rows = self.config.train_part(all);
        if self.config.is_one_split() || train_rows > 0 && train_rows < all {
            return Ok(());
        }
        let remedy = match all {
            1 if longest > MIN_LONG_ROW => {
                "to read the values of this row as one long sequence, write each on its own line and set \
                 `data.column` = 1"
            }
            1 => "add rows",
            _ => "lower `data.valid_fraction`, or add rows",
        };
        let problem = format!(
            "has {}, of which `data.valid_fraction` = {} leaves {train_rows} for training and {} for \
             validation, but each needs at least one; {remedy}",
            counted(all, "row"),
            self.config.valid_fraction,
            all - train_rows
        );
        Err(self.problem(None, problem))
    }
}
