//! Checks for cells that hold a whole sequence, such as `0,1,3`, `2-2-11` or `GATTACA`. Each cell would be one token.

use std::collections::HashSet;

use super::enclosed::BRACKETS;
use super::{Table, json, values::Encoder};
use crate::data::config::Values;
use crate::data::excerpt::excerpt;
use crate::error::Result;
use crate::numbers::counted;

/// The separators of lists, in the order in which they are tried.
const SEPARATORS: [char; 3] = [',', ';', '|'];

/// The separators that dates, times and fractions contain too. They separate lists only if there are more than three
/// parts on average.
const WEAK_SEPARATORS: [char; 4] = ['-', ':', '/', '_'];

/// The minimum length of sequences of characters, and the maximum number of different characters in them.
const MIN_CHARACTERS: usize = 8;
const MAX_ALPHABET: usize = 8;

/// The parts of the cells that may be sequences.
struct CellParts<'s> {
    /// The cells with several parts.
    cells: Vec<&'s str>,
    /// The different parts.
    parts: HashSet<&'s str>,
    /// The mean number of parts.
    mean: f64,
    unit: &'static str,
}

impl<'s> CellParts<'s> {
    /// Splits cells by a separator, or at white space if there is none.
    fn of(symbols: &[&'s str], separator: Option<char>) -> Self {
        let lists = symbols.iter().map(|cell| (*cell, split(cell, separator)));
        let lists: Vec<(&str, Vec<&str>)> = lists.filter(|(_, parts)| parts.len() > 1).collect();
        let count = lists.iter().map(|(_, parts)| parts.len()).sum::<usize>();
        let parts: HashSet<&str> = lists.iter().flat_map(|(_, parts)| parts.iter().copied()).collect();
        let unit = if parts.iter().all(|part| part.parse::<i64>().is_ok()) { "integer" } else { "word" };
        let mean = count as f64 / lists.len().max(1) as f64;
        Self { cells: lists.into_iter().map(|(cell, _)| cell).collect(), parts, mean, unit }
    }

    /// Splits cells into characters.
    fn of_characters(symbols: &[&'s str]) -> Self {
        let long =
            |cell: &&&'s str| cell.chars().count() >= MIN_CHARACTERS && cell.chars().all(char::is_alphabetic);
        let cells: Vec<&str> = symbols.iter().filter(long).copied().collect();
        let parts = cells.iter().flat_map(|cell| cell.split("").filter(|part| !part.is_empty())).collect();
        Self { cells, parts, mean: MIN_CHARACTERS as f64, unit: "character" }
    }

    /// Returns true if most cells are lists of integers, or of a few recurring parts.
    fn are_sequences(&self, symbols: &[&str]) -> bool {
        let recur = match self.unit {
            "integer" => true,
            "character" => self.parts.len() <= MAX_ALPHABET,
            _ => 2 * self.parts.len() <= self.cells.len(),
        };
        self.cells.len() > 1 && 2 * self.cells.len() >= symbols.len() && recur
    }
}

/// Splits a cell by a separator, or at white space if there is none. A number with commas has one part.
fn split(cell: &str, separator: Option<char>) -> Vec<&str> {
    let Some(separator) = separator else { return cell.split_whitespace().collect() };
    if !cell.contains(separator) {
        return Vec::new();
    }
    let parts: Vec<&str> = cell.split(separator).map(str::trim).filter(|part| !part.is_empty()).collect();
    let is_number = separator == ',' && parts.len() > 1 && is_grouped_number(&parts);
    if is_number { vec![cell] } else { parts }
}

/// Returns true for the parts of a number with thousands separators or a decimal comma.
fn is_grouped_number(parts: &[&str]) -> bool {
    let is_digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    is_digits(&parts[0].trim_start_matches(['-', '+']))
        && (parts.len() == 2 || parts[1..].iter().all(|part| is_digits(part) && part.len() == 3))
}

impl Table<'_> {
    /// Returns the symbols of a table.
    fn symbols<'e>(encoder: &'e Encoder<'_>) -> Option<Vec<&'e str>> {
        match encoder {
            Encoder::Symbols(symbols) => Some(symbols.keys().map(String::as_str).collect()),
            _ => None,
        }
    }

    /// Returns an error if a single sequence consists mostly of texts or lists that do not recur, because each would
    /// become a token.
    pub(super) fn refuse_texts(&self, encoder: &Encoder<'_>) -> Result<()> {
        let Some(symbols) = Self::symbols(encoder) else { return Ok(()) };
        if 2 * symbols.len() <= self.ids.len() || self.ids.len() < 3 {
            return Ok(());
        }
        // Advice for quoted lines sets these symbols.
        let is_chosen = self.config.values == Values::Symbols;
        let is_text = |symbol: &&&str| {
            let is_list = || SEPARATORS.into_iter().any(|separator| split(symbol, Some(separator)).len() > 2);
            split(symbol, None).len() > 2 || !is_chosen && is_list()
        };
        if 2 * symbols.iter().filter(is_text).count() <= symbols.len() {
            return Ok(());
        }
        let example = symbols.iter().min().map(|symbol| excerpt(symbol)).unwrap_or_default();
        let is_list = SEPARATORS.into_iter().any(|separator| example.contains(separator));
        let remedy = match is_list {
            true => "write each of these values as a separate row, without quotes",
            false => json::INTO_TOKENS,
        };
        let problem = format!(
            "has {} different texts in {}, such as `{example}`, and each would be one token; {remedy}",
            symbols.len(),
            counted(self.ids.len(), "row"),
        );
        Err(self.problem(None, problem))
    }

    /// Returns an error if most values are lists in brackets, as Python writes them, because each would be one token.
    pub(super) fn refuse_lists_in_cells(&self, encoder: &Encoder<'_>) -> Result<()> {
        let Some(symbols) = Self::symbols(encoder) else { return Ok(()) };
        let is_list = |symbol: &&&str| {
            let is_enclosed = |(open, close)| symbol.starts_with(open) && symbol.ends_with(close);
            BRACKETS.into_iter().any(is_enclosed) && symbol.contains(',')
        };
        let lists = symbols.iter().filter(is_list).count();
        // One column of several may hold the lists.
        let columns = if self.chosen.column.is_set() { 1 } else { self.reading.columns[1].max(1) };
        if self.config.values == Values::Symbols
            || self.given.is_some()
            || 2 * lists * columns <= symbols.len()
        {
            return Ok(());
        }
        let example = symbols.iter().filter(is_list).min().map(|symbol| excerpt(symbol)).unwrap_or_default();
        let problem = format!(
            "has lists in brackets, such as `{example}`, each of which would be one token; write each list as a row, or as a \
             JSON array in a .jsonl file, or set `data.values` = \"symbols\" to make each list a token"
        );
        Err(self.problem(None, problem))
    }

    /// Warns if most values are lists of integers or of a few recurring words, or strings of a few letters: each value
    /// may be an entire sequence.
    pub(super) fn warn_of_sequences_in_cells(&mut self, encoder: &Encoder<'_>) {
        let Some(symbols) = Self::symbols(encoder) else { return };
        let weak = WEAK_SEPARATORS.into_iter().map(|separator| CellParts::of(&symbols, Some(separator)));
        let lists = SEPARATORS.into_iter().map(|separator| CellParts::of(&symbols, Some(separator)));
        let mut splits = std::iter::once_with(|| CellParts::of(&symbols, None))
            .chain(lists)
            .chain(weak.filter(|split| split.mean > 3.0))
            .chain(std::iter::once_with(|| CellParts::of_characters(&symbols)));
        let Some(CellParts { cells, parts, unit, .. }) = splits.find(|split| split.are_sequences(&symbols))
        else {
            return;
        };
        let example = cells.iter().min().map(|symbol| excerpt(symbol)).unwrap_or_default();
        let is_one_of_many = !self.chosen.column.is_set() && self.reading.columns[1] > 1;
        let column = if is_one_of_many { "`data.column` to one of the columns and " } else { "" };
        let remedy: &str = match unit {
            "character" => &format!("set {column}`data.tokens` = \"characters\""),
            _ if self.config.group_by.is_set() => "write a row of the group for each",
            _ if example.contains(' ') => &format!("set {column}`data.tokens` = \"words\""),
            _ => {
                "write each of these values as a separate row, with the delimiter of the table between its parts, or set \
                 `data.delimiter` to the character between these parts or between the values"
            }
        };
        self.reading.guesses.push(format!(
            "a value such as `{example}` is one token, but {} consist of the same {}; to make each {unit} a token, \
             {remedy}",
            counted(cells.len(), "value"),
            counted(parts.len(), unit)
        ));
    }
}
