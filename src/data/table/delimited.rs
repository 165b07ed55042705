//! Reads CSV and its variants with tabs, semicolons, spaces or pipes as delimiters.

use std::collections::BTreeMap;
use std::path::Path;

use csv::StringRecord;

use super::header::{self, FirstLine};
use super::no_data::{self, HeaderNames};
use super::summaries::Summaries;
use super::texts::TextSample;
use super::{Line, Table, TableRow, delimiter, trimmed};
use crate::data::config::{Delimiter, Header, Values};
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};
use crate::files::quoted;
use crate::numbers::counted;

/// The minimum number of rows below a line of words that may be a header as written by R.
const MIN_ROWS_OF_R: usize = 5;

/// Iterates over the rows of delimited values. The spaces around values are kept if the values are texts.
fn rows<'t>(
    (path, file): (&'t Path, usize),
    text: &'t str,
    delimiter: u8,
    (quotes, are_texts): (bool, bool),
) -> impl Iterator<Item = Result<TableRow>> + 't {
    let records: Box<dyn Iterator<Item = csv::Result<StringRecord>>> = match are_texts && delimiter != b' ' {
        true => Box::new(delimiter::untrimmed(text, delimiter, quotes)),
        false => Box::new(delimiter::records_with(text, delimiter, quotes)),
    };
    records.map(move |record| {
        let failed = |error| Error::file(path, format!("cannot be read as a table: {error}"));
        let values = record.map_err(failed)?;
        let number = values.position().map_or(1, |position| {
            // The position of a record includes the blank lines before it.
            let rest = &text[position.byte() as usize..];
            let blank_lines = &rest[..rest.len() - rest.trim_start_matches(['\r', '\n']).len()];
            position.line() as usize + blank_lines.matches('\n').count()
        });
        Ok((Line { file, number }, trimmed(values)))
    })
}

impl Table<'_> {
    /// Reads the lines. The first line may be a header.
    pub(super) fn read_delimited(&mut self, text: &str) -> Result<()> {
        self.refuse_other_formats(text)?;
        let delimiter = self.delimiter(text);
        self.reading.delimiter = Some(Delimiter::Of(delimiter).to_string());
        let are_texts = self.config.reads_texts();
        let path = self.path().to_path_buf();
        let quotes = self.reads_quotes(text, delimiter)?;
        let mut rows =
            rows((&path, self.files.current), text, delimiter, (quotes, are_texts)).skip_while(is_blank);
        let Some(written) = rows.next().transpose()? else { return Ok(()) };
        // The names of a header are trimmed.
        let mut first = (written.0, without_spaces(&written.1));
        let sample: Vec<Result<TableRow>> = rows.by_ref().take(delimiter::SAMPLE_LINES).collect();
        let below: Vec<&TableRow> = sample.iter().map_while(|row| row.as_ref().ok()).collect();
        let width = usual_width(&below).unwrap_or(first.1.len());
        self.check_beginning(text, delimiter, (&first, &below, width))?;
        if delimiter != b' ' && !are_texts {
            self.warn_of_trimmed(text, delimiter);
        }
        self.name_row_names(&mut first, &below, width);
        if self.config.header != Header::Given(false) {
            self.name_numbers_of(&first, &below, width);
        }
        let column = self.selected_column(&first)?;
        below.iter().try_for_each(|row| self.refuse_quotes(text, row, delimiter, column))?;
        let names: Vec<&str> = first.1.iter().collect();
        let recur_together = no_data::names_recur_together(&names, &below);
        let names = HeaderNames { first: &first, names: &names, recur_together };
        let lists = self.column_of_lists(&below, column);
        let lists = lists.map(|list| self.read_first_of_lists(&first, &below, list)).transpose()?;
        let column = match lists {
            Some(list) => Some(list),
            None => self.read_first((&first, &written), &below, width, column)?,
        };
        if self.reading.header.is_none() {
            self.refuse_quotes(text, &first, delimiter, column)?;
        }
        self.warn_of_joined_column(&first, &below);
        self.refuse_words_above_numbers(&below, column)?;
        self.warn_of_shifted_columns(text, (delimiter, quotes), column);
        let (mut widths, mut last, mut summaries) = (self.reading.columns, None, Summaries::default());
        sample.into_iter().chain(rows).try_for_each(|row| {
            let row = row?;
            self.refuse_row(&row, width, &names)?;
            self.refuse_surplus(&row, column)?;
            self.refuse_quotes(text, &row, delimiter, column)?;
            summaries.add(row.0, &row.1);
            let (line, mut values) = row;
            widths = self.reading.columns;
            last = Some(values.len().saturating_sub(self.columns.skipped));
            if let Some(order) = &self.columns.order {
                values = trimmed(order.iter().map(|&at| values.get(at).unwrap_or_default()).collect());
            }
            self.push_delimited((line, values), (column, lists))
        })?;
        let is_cut = !text.ends_with(['\n', '\r']);
        self.warn_of_misreadings(text, last.filter(|_| is_cut), widths);
        self.warn_of_summaries(summaries, column.is_some() || self.chosen.fields.is_some());
        Ok(())
    }

    /// Adds a row, of which a column is selected, or a column of lists.
    fn push_delimited(
        &mut self,
        row: TableRow,
        (column, lists): (Option<usize>, Option<usize>),
    ) -> Result<()> {
        self.reading.add(&row.1.iter().skip(self.columns.skipped).collect());
        let names = self.reading.header.as_ref().map_or(0, |names| names.len() + self.columns.skipped);
        let is_complete = column.is_some() || self.chosen.fields.is_some();
        self.reading.gaps.short += usize::from(!is_complete && (1..names).contains(&row.1.len()));
        match (self.chosen.fields.clone(), lists) {
            (Some(fields), _) => self.push_fields(&row, &fields),
            (None, Some(list)) => self.push_list(&row, list),
            (None, None) => {
                self.check_masks(row.0, &row.1)?;
                self.push(&row, column)
            }
        }
    }

    /// Adds an empty name to a header that lacks the name of the row names.
    fn name_row_names(&mut self, first: &mut TableRow, below: &[&TableRow], width: usize) {
        let Some(is_certain) = self.lacks_name_of_row_names(first, below, width) else { return };
        if !is_certain {
            self.reading.guesses.push(format!(
                "{} has one value less than all lines below, whose first values are unique, so it is read as a header \
                 without a name for the first column, as R writes it; set `data.header` = false if it is data",
                self.shown(first.0)
            ));
        }
        first.1 = std::iter::once("").chain(first.1.iter()).collect();
    }

    /// Reads each line as a text.
    pub(super) fn read_lines(&mut self, text: &str) {
        let skipped = usize::from(self.config.header == Header::Given(true));
        for (line, text) in (1..).zip(text.lines()).skip(skipped) {
            if text.trim().is_empty() {
                self.reading.gaps.empty += 1;
                continue;
            }
            self.reading.add(&[text].into_iter().collect());
            self.chosen.texts.push(TextSample::of_text(self.line(line), text));
        }
    }

    /// Returns an error for lines near the beginning that are not data. Most rows have `width` values.
    fn check_beginning(
        &self,
        text: &str,
        delimiter: u8,
        (first, below, width): (&TableRow, &[&TableRow], usize),
    ) -> Result<()> {
        self.refuse_comment(first, width)?;
        self.refuse_conversations(first, below)?;
        self.refuse_brackets(first, below)?;
        self.refuse_title(first, below)?;
        self.refuse_backslashes(text, delimiter)?;
        self.refuse_quoted_rows(text, first, below)?;
        self.refuse_beginning(first, below)
    }

    /// Returns the index of the column that decides about the first line: the selected one, or the only column of values.
    fn selected_column(&self, first: &TableRow) -> Result<Option<usize>> {
        let named = self.chosen.selection.as_ref().map_or_else(
            || self.chosen.column.name().map(|name| ("data.column", name.to_string())),
            |selection| selection.named().map(|(key, name)| (key, name.to_string())),
        );
        if let Some((key, name)) = &named {
            let problem = format!(
                "excludes column names, but `{key}` = \"{name}\" is one; use the column's number, without quotes"
            );
            Error::check_key(self.config.header != Header::Given(false), "data.header", false, problem)?;
        }
        match (&self.chosen.selection, &named) {
            (Some(selection), _) => Ok(self.column_to_judge(selection, first)),
            (None, Some((key, name))) => self.named_column(first, key, name).map(Some),
            (None, None) => Ok(self.numbered_column().map(|index| self.numbered_in(index + 1, first))),
        }
    }

    /// Returns an error for a line of Excel or Markdown that is not part of CSV.
    fn refuse_other_formats(&self, text: &str) -> Result<()> {
        if text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("sep=")) {
            let problem = "names the delimiter for Excel; remove this line, and set `data.delimiter`";
            return Err(self.problem(Some(self.line(1)), problem));
        }
        let Some(line) = text.lines().position(is_markdown_rule) else { return Ok(()) };
        let file = quoted(self.path());
        let problem = format!(
            "is the separator line of a Markdown table; convert the file with grep -v '^[-:| ]*$' {file} | \
             sed 's/^ *| *//; s/ *| *$//' > NEW.csv"
        );
        Err(self.problem(Some(self.line(line + 1)), problem))
    }

    /// Recognises a header as written by R, which lacks a name for the column of row names. Returns true if the line
    /// certainly holds names, and false if only its length suggests it; `None` for other lines.
    fn lacks_name_of_row_names(&self, first: &TableRow, below: &[&TableRow], width: usize) -> Option<bool> {
        if first.1.len() + 1 != width
            || !header::is_index(below, 0)
            || self.config.header == Header::Given(false)
        {
            return None;
        }
        let judged = header::judge(&first.1, &shifted(below).iter().collect::<Vec<_>>(), None);
        let is_alone = below.len() >= MIN_ROWS_OF_R && below.iter().all(|row| row.1.len() == width);
        match judged {
            FirstLine::Names => Some(true),
            FirstLine::Data => None,
            _ => is_alone.then_some(false),
        }
    }

    /// Returns an error for a comment above the table if its number of values differs from the rows below.
    fn refuse_comment(&self, (line, values): &TableRow, width: usize) -> Result<()> {
        let is_comment = values.get(0).is_some_and(|value| value.starts_with('#'));
        let problem = "starts with `#` and differs from the lines below in its number of values; set `data.comment` = \"#\" to skip \
             comments";
        if is_comment && values.len() != width { Err(self.problem(Some(*line), problem)) } else { Ok(()) }
    }

    /// Warns if a column after the first is selected by its number, but lines have different numbers of values, so that a
    /// value with a delimiter may move the column. With a header, lines with more values than names are refused.
    fn warn_of_shifted_columns(
        &mut self,
        text: &str,
        (delimiter, quotes): (u8, bool),
        column: Option<usize>,
    ) {
        let selected = self.chosen.fields.as_ref().map(|fields| fields.last()).or(column);
        if self.reading.header.is_some() || selected.is_none_or(|last| last == 0) {
            return;
        }
        let lines = delimiter::records_with(text, delimiter, quotes).take(delimiter::SAMPLE_LINES).flatten();
        let widths: BTreeMap<usize, Option<u64>> = lines
            .filter(|line| line.iter().any(|value| !value.is_empty()))
            .map(|line| (line.len(), line.position().map(csv::Position::line)))
            .collect();
        if let (Some((&min, _)), Some((&max, Some(line)))) =
            (widths.first_key_value(), widths.last_key_value())
            && min < max
        {
            self.reading.guesses.push(format!(
                "lines have {min} to {}, such as line {line}, so a selected column may hold different things in them; enclose a \
                 value that contains the delimiter in double quotes, or set `data.delimiter`",
                counted(max, "value")
            ));
        }
    }

    /// Returns an error for a line of words above numbers only: a title, units or a comment.
    fn refuse_words_above_numbers(&self, below: &[&TableRow], column: Option<usize>) -> Result<()> {
        if self.given.is_none()
            && self.config.values == Values::Auto
            && let Some((line, word)) = header::words_above_numbers(below, column)
        {
            let problem = format!(
                "contains words, such as `{}`, above lines of numbers; remove it if it is a title, units or a comment, \
                 or set `data.values` = \"symbols\" to read each value as a name",
                excerpt(word)
            );
            return Err(self.problem(Some(line), problem));
        }
        Ok(())
    }

    /// Returns the delimiter from `data.delimiter`, or else inferred from the lines.
    fn delimiter(&mut self, text: &str) -> u8 {
        if let Delimiter::Of(delimiter) = self.config.delimiter {
            return delimiter;
        }
        let delimiter::Inferred { delimiter, rival, regularity } = delimiter::infer(text, &self.extension());
        let name = |byte| Delimiter::Of(byte);
        if let Some(rival) = rival {
            self.reading.guesses.push(format!(
                "the inferred delimiter is {}, but {} splits the lines equally well; set `data.delimiter` to \
                 one of them",
                name(delimiter),
                name(rival)
            ));
        }
        // Lines that are split into different numbers of values may be sequences of symbols, or sentences with commas.
        let mut sample = delimiter::records(text, delimiter).take(delimiter::SAMPLE_LINES).flatten();
        let is_phrase = |value: &str| value.contains(char::is_whitespace);
        if regularity < 0.9 && sample.any(|row| row.len() > 1 && row.iter().any(is_phrase)) {
            self.reading.guesses.push(format!(
                "the lines contain phrases, and the inferred delimiter {} splits them into different numbers \
                 of values; set `data.delimiter` to it if this is correct, or to a character that no line \
                 contains",
                name(delimiter)
            ));
        }
        delimiter
    }
}

/// Returns a row without the spaces around its values.
fn without_spaces(values: &StringRecord) -> StringRecord {
    let mut trimmed: StringRecord = values.iter().map(str::trim).collect();
    trimmed.set_position(values.position().cloned());
    trimmed
}

/// Returns true if no value of a row contains more than spaces.
fn is_blank(row: &Result<TableRow>) -> bool {
    row.as_ref().is_ok_and(|(_, values)| values.iter().all(|value| value.trim().is_empty()))
}

/// Returns true for the line below the header of a Markdown table.
fn is_markdown_rule(line: &str) -> bool {
    line.contains('|') && line.contains("--") && line.chars().all(|it| "-:| \t".contains(it))
}

/// Returns the rows without their first value.
fn shifted(rows: &[&TableRow]) -> Vec<TableRow> {
    rows.iter().map(|row| (row.0, row.1.iter().skip(1).collect())).collect()
}

/// Returns the most frequent number of values per line.
fn usual_width(rows: &[&TableRow]) -> Option<usize> {
    let mut counts = BTreeMap::new();
    rows.iter().for_each(|(_, values)| *counts.entry(values.len()).or_insert(0) += 1);
    counts.into_iter().max_by_key(|&(_, count)| count).map(|(width, _)| width)
}
