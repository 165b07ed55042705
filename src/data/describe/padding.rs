//! Rows that seem to be padded to the same length with a token.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::dataset::Dataset;
use crate::numbers::part_of;

/// The maximum number of rows that are inspected.
const MAX_ROWS: usize = 1000;

/// Returns a warning if many training rows begin or end with different numbers of one token, which hardly occurs
/// elsewhere in them, because the loss then counts padding.
pub(super) fn warning(dataset: &Dataset) -> Option<String> {
    let Dataset { train, table, vocabulary, .. } = dataset;
    let is_of_rows = train.stream().is_none() && (table.is_some() || dataset.array.is_some());
    if !is_of_rows || train.source_time().is_some() {
        return None;
    }
    let rows = Vec::from_iter((0..train.len().min(MAX_ROWS)).map(|row| {
        let counted = train.is_counted(row);
        // The first token is never a target.
        let tokens = train.sample(row).1.into_iter().zip(counted).skip(1);
        Vec::from_iter(tokens.filter(|(_, is_counted)| *is_counted).map(|(token, _)| token))
    }));
    let reversed = Vec::from_iter(rows.iter().map(|row| Vec::from_iter(row.iter().rev().copied())));
    let (end, (token, count)) = [("end", &reversed), ("begin", &rows)]
        .into_iter()
        .find_map(|(end, rows)| Some((end, padding(rows)?)))?;
    let remedy = match table.is_some() {
        true => "remove it, because rows may have different lengths",
        false => "write the rows without it to a .jsonl file, where rows may have different lengths",
    };
    Some(format!(
        "{} {end} with several `{}`, which looks like padding, and the loss counts these targets; {remedy}",
        part_of(count, rows.len(), "training row"),
        vocabulary.token(token)
    ))
}

/// Returns the token with which rows of equal length seem to be padded at their beginning, and the number of such rows.
fn padding(rows: &[Vec<u32>]) -> Option<(u32, usize)> {
    /// The minimum number of rows.
    const MIN_ROWS: usize = 10;
    let length = rows.first()?.len();
    if rows.len() < MIN_ROWS || rows.iter().any(|row| row.len() != length) {
        return None;
    }
    let mut counts = BTreeMap::new();
    rows.iter().filter_map(|row| row.first()).for_each(|token| *counts.entry(*token).or_insert(0) += 1);
    let token = *counts.iter().max_by_key(|(_, count)| **count)?.0;
    let runs = Vec::from_iter(rows.iter().map(|row| row.iter().take_while(|it| **it == token).count()));
    let padded = runs.iter().filter(|run| **run > 1).count();
    let is_varied = runs.iter().collect::<BTreeSet<_>>().len() > 2;
    let recurs = |(row, run): (&Vec<u32>, &usize)| row[*run..].contains(&token);
    let elsewhere = rows.iter().zip(&runs).filter(|pair| recurs(*pair)).count();
    (2 * padded >= rows.len() && is_varied && 20 * elsewhere < rows.len()).then_some((token, padded))
}
