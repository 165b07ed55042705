//! The token ids of samples or of a stream, with the roles of targets and the starts of documents.

use std::ops::Range;

use rand::seq::SliceRandom;

use crate::data::batch::{Batch, Role, SourceBatch};
use crate::data::config::{DataConfig, RowSplit};
use crate::data::ids::Ids;
use crate::data::seed::{Purpose, generator};

/// Samples of possibly different lengths, stored one after another; or a stream.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(super) ids: Ids,
    /// The role of each id as a target; empty if all roles are [`Role::Unknown`].
    pub(super) roles: Vec<Role>,
    /// The end of each row.
    pub(super) ends: Vec<usize>,
    pub(super) longest: usize,
    /// The first id of each separate document of a stream but the first one; empty if documents are joined.
    pub(super) starts: Vec<usize>,
}

/// Returns the indices of the rows for training and for validation, out of `all`. The same rows are drawn for every
/// seed of a run; `data.seed` draws others.
pub(crate) fn split_rows(config: &DataConfig, all: usize) -> (Vec<usize>, Vec<usize>) {
    let mut indices: Vec<usize> = (0..all).collect();
    if config.is_one_split() {
        return (indices.clone(), indices);
    }
    if config.split != RowSplit::Tail {
        indices.shuffle(&mut generator(config.seed.unwrap_or(0), Purpose::Split, [0, 0]));
    }
    let valid = indices.split_off(config.train_part(all));
    (indices, valid)
}

impl Rows {
    /// Returns true without any row.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Creates rows of `length` ids each.
    pub(crate) fn of_equal_length(ids: Ids, length: usize) -> Self {
        let ends = (1..=ids.len() / length).map(|row| row * length).collect();
        Self { ids, ends, longest: length, ..Self::default() }
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: &[u32]) {
        self.ids.extend(row);
        self.ends.push(self.ids.len());
        self.longest = self.longest.max(row.len());
    }

    /// Appends a row with the role of each target: `roles[i]` is the role of `row[i + 1]`.
    pub(crate) fn push_with_roles(&mut self, row: &[u32], roles: impl Iterator<Item = Role>) {
        // The first id of a row is not a target.
        self.roles.push(Role::Padding);
        self.roles.extend(roles);
        self.push(row);
        assert_eq!(self.roles.len(), self.ids.len(), "each target has a role");
    }

    pub(super) fn range(&self, row: usize) -> Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        start..self.ends[row]
    }

    /// Returns true if the documents of a stream are separate.
    pub(super) fn is_separate(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Returns the starts of the documents that begin within a part of the stream, after its first id.
    pub(super) fn starts_within(&self, part: &Range<usize>) -> &[usize] {
        let at = |end: usize| self.starts.partition_point(|&start| start < end);
        // In an empty part, the range would end before it starts.
        self.starts.get(at(part.start + 1)..at(part.end)).unwrap_or_default()
    }

    /// Iterates over the ids within rows that are not counted as targets.
    pub(super) fn uncounted(&self) -> impl Iterator<Item = usize> {
        let first = |index: usize| index == 0 || self.ends.binary_search(&index).is_ok();
        let roles = self.roles.iter().enumerate();
        roles.filter(move |&(index, &role)| role == Role::Padding && !first(index)).map(|(index, _)| index)
    }

    /// Returns a batch of the samples at `ranges`.
    pub(super) fn batch(&self, ranges: impl ExactSizeIterator<Item = Range<usize>> + Clone) -> Batch {
        let time = ranges.clone().map(|range| range.len()).max().unwrap_or(1) - 1;
        let mut batch = Batch::padding(ranges.len(), time);
        for (row, range) in ranges.clone().enumerate() {
            let positions = row * time..row * time + range.len() - 1;
            self.ids.copy(range.start..range.end - 1, &mut batch.inputs[positions.clone()]);
            self.ids.copy(range.start + 1..range.end, &mut batch.targets[positions.clone()]);
            match self.roles.get(range.start + 1..range.end) {
                Some(roles) => batch.roles[positions].copy_from_slice(roles),
                None => batch.roles[positions].fill(Role::Unknown),
            }
        }
        for (row, range) in ranges.enumerate() {
            for start in self.starts_within(&range) {
                let input = start - range.start;
                // The target at an input is the next id.
                batch.roles[row * time + input - 1] = Role::Padding;
                if input < time {
                    let documents = batch.documents.get_or_insert_with(|| vec![0; batch.inputs.len()]);
                    documents[row * time + input..(row + 1) * time].iter_mut().for_each(|it| *it += 1);
                }
            }
        }
        batch
    }

    pub(super) fn source_batch(&self, samples: impl ExactSizeIterator<Item = usize> + Clone) -> SourceBatch {
        let time = samples.clone().map(|sample| self.range(sample).len()).max().unwrap_or(0);
        let positions = samples.len() * time;
        let lengths = samples.clone().map(|sample| self.range(sample).len()).collect();
        let mut source = SourceBatch { time, tokens: vec![0; positions], lengths };
        for (row, sample) in samples.enumerate() {
            let range = self.range(sample);
            let at = row * time..row * time + range.len();
            self.ids.copy(range, &mut source.tokens[at]);
        }
        source
    }
}
