//! A table of numbers, each of which becomes the token of its bin.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::numbers::{Notation, edges};
use super::{Table, values::Encoder};
use crate::data::dataset::Dataset;
use crate::data::excerpt::excerpt;
use crate::data::ids::Ids;
use crate::data::sequences::Sequences;
use crate::data::vocabulary::Vocabulary;
use crate::error::Result;
use crate::numbers::counted;

impl Table<'_> {
    /// Returns the splits of a table of numbers in bins. The `encoder` holds the texts of the numbers.
    pub(super) fn into_bins(mut self, encoder: Encoder<'_>) -> Result<Dataset> {
        if let Encoder::Given(vocabulary) = encoder {
            // The numbers were encoded by their bins already.
            return self.into_bins_of(vocabulary.clone());
        }
        let Encoder::Symbols(texts) = encoder else { unreachable!("numbers in bins are read as texts") };
        let numbers = self.parsed(&texts)?;
        let sequences: Vec<(usize, Range<usize>)> = match self.is_stream {
            Some(true) => vec![(1, 0..self.ids.len())],
            _ => self.rows.clone(),
        };
        let mut values: Vec<f64> = Vec::with_capacity(self.ids.len());
        let mut rows = Vec::with_capacity(sequences.len());
        for (line, range) in sequences {
            let start = values.len();
            let row: Vec<f64> = self.ids.iter(range).map(|id| numbers[id as usize]).collect();
            match self.config.difference {
                true => values.extend(row.windows(2).map(|pair| pair[1] - pair[0])),
                false => values.extend(row),
            }
            rows.push((line, start..values.len()));
        }
        let mut training: Vec<f64> = match self.is_stream {
            Some(true) => values[..self.config.train_part(values.len())].to_vec(),
            _ => {
                let (train, _) = self.split(rows.len())?;
                train.into_iter().flat_map(|row| &values[rows[row].1.clone()]).copied().collect()
            }
        };
        let edges = edges(&mut training, self.config.bins, self.config.binning);
        let lengths = || rows.iter().map(|(_, ids)| ids.len());
        let with_end = self.is_stream != Some(true) && lengths().min() < lengths().max();
        let vocabulary = Vocabulary::bins(edges, &training, with_end)?;
        if vocabulary.size() - usize::from(with_end) < self.config.bins {
            self.reading.guesses.push(format!(
                "the numbers recur, so they fill only {} instead of `data.bins` = {}; lower it, or set `data.values` = \
                 \"symbols\" to make each number a token",
                counted(vocabulary.size() - usize::from(with_end), "bin"),
                self.config.bins
            ));
        }
        let mut ids = Ids::default();
        for value in values {
            ids.extend(&[vocabulary.bin(value).unwrap_or_default()]);
        }
        (self.ids, self.rows) = (ids, rows);
        self.into_bins_of(vocabulary)
    }

    /// Returns the numbers of the texts, by id.
    fn parsed(&mut self, texts: &HashMap<String, u32>) -> Result<Vec<f64>> {
        let Some(notation) = Notation::of(texts.keys().map(String::as_str)) else {
            let is_number = |text: &String| Notation::Plain.parse(text).is_some();
            let other = texts.iter().filter(|(text, _)| !is_number(text)).min_by_key(|(_, id)| **id);
            let (text, id) = other.map_or((String::new(), 0), |(text, id)| (excerpt(text), *id));
            let position = self.ids.iter(0..self.ids.len()).position(|other| other == id).unwrap_or(0);
            let line = self.rows.iter().find(|(_, ids)| ids.contains(&position)).map(|(line, _)| *line);
            let problem = format!(
                "`{text}` is not a number, but `data.bins` reads numbers; remove the row, or write all numbers of the \
                 column alike"
            );
            return Err(self.problem(line, problem));
        };
        if notation != Notation::Plain {
            self.reading.guesses.push(format!(
                "the values are read as {}; write them in another way if this is wrong",
                notation.name()
            ));
        }
        let mut numbers = vec![0.0; texts.len()];
        for (text, &id) in texts {
            numbers[id as usize] = notation.parse(text).unwrap_or_default();
        }
        Ok(numbers)
    }

    /// Returns the splits of values that are encoded as bins.
    fn into_bins_of(mut self, vocabulary: Vocabulary) -> Result<Dataset> {
        let vocabulary = vocabulary.with_columns(self.columns());
        let sets = match self.is_stream {
            Some(true) => Sequences::cut(self.config, std::mem::take(&mut self.ids))?,
            _ => {
                let (train, valid) = self.split(self.rows.len())?;
                (self.row_set(&train, vocabulary.end())?, self.row_set(&valid, vocabulary.end())?)
            }
        };
        Ok(Dataset { table: Some(Arc::new(self.reading)), ..Dataset::without_floor(vocabulary, sets) })
    }
}
