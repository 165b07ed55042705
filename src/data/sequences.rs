//! The token ids of one split, in rows or as a stream cut into windows.

use std::ops::Range;
use std::sync::Arc;

use super::batch::{Batch, Role};
use super::config::DataConfig;
use super::ids::{Ids, mix};
use crate::error::{Error, Result};

/// One split of the data. Cheap to clone: clones share the ids.
#[derive(Debug, Clone)]
pub struct Sequences(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// Each sample stands by itself.
    Rows { targets: Arc<Rows>, source: Option<Arc<Rows>> },
    /// Samples are windows of one long stream.
    Windows(Windows),
}

impl Sequences {
    /// Samples that stand by themselves.
    pub(crate) fn rows(rows: Rows) -> Self {
        Sequences(Kind::Rows { targets: Arc::new(rows), source: None })
    }

    /// Answers, each beginning with the start token, and the sources that they answer.
    pub(crate) fn pairs(source: Rows, answers: Rows) -> Self {
        assert_eq!(source.len(), answers.len(), "each source has one answer");
        Sequences(Kind::Rows { targets: Arc::new(answers), source: Some(Arc::new(source)) })
    }

    /// Windows of `length` targets of the part `range` of a stream.
    pub(crate) fn windows(ids: Arc<Ids>, range: Range<usize>, length: usize) -> Self {
        assert!(length > 0 && range.len() > 1 && range.end <= ids.len(), "a stream has a target");
        Sequences(Kind::Windows(Windows { ids, range, length }))
    }

    /// A stream in windows of `data.length`, and its last part, for validation, in windows too.
    ///
    /// # Errors
    /// When either part is too short.
    pub(crate) fn cut(config: &DataConfig, ids: Ids) -> Result<(Self, Self)> {
        let (all, length) = (ids.len(), config.length);
        let train = config.train_part(all);
        let problem = if train < length + 1 {
            format!(
                "has {train} tokens for training, fewer than a window of `data.length` = {length} and the \
                 token after it; lower `data.length`, or give more data"
            )
        } else if all - train < 2 {
            let fraction = config.valid_fraction;
            format!(
                "has {all} tokens, of which `data.valid_fraction` = {fraction} leaves {} for validation, and \
                 2 are needed; raise it, or give more data",
                all - train
            )
        } else {
            let ids = Arc::new(ids);
            return Ok((
                Self::windows(ids.clone(), 0..train, length),
                Self::windows(ids, train..all, length),
            ));
        };
        Err(Error::file(&config.path, None, None, problem))
    }

    /// Samples an epoch. A stream has as many as windows side by side cover it.
    #[expect(clippy::len_without_is_empty, reason = "a split is never empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Rows { targets, .. } => targets.len(),
            Kind::Windows(windows) => windows.targets().div_ceil(windows.length),
        }
    }

    /// Positions of the longest input.
    pub fn time(&self) -> usize {
        match &self.0 {
            Kind::Rows { targets, .. } => targets.longest - 1,
            Kind::Windows(windows) => windows.length.min(windows.targets()),
        }
    }

    /// Positions of the longest source, for encoder-decoder data.
    pub fn source_time(&self) -> Option<usize> {
        match &self.0 {
            Kind::Rows { source, .. } => source.as_ref().map(|source| source.longest),
            Kind::Windows(_) => None,
        }
    }

    /// Targets an epoch that the loss counts.
    pub fn targets(&self) -> usize {
        match &self.0 {
            Kind::Rows { targets, .. } => targets.ids.len() - targets.len(),
            Kind::Windows(windows) => windows.targets(),
        }
    }

    /// Mixes all ids, and where rows end, into a hash.
    pub(crate) fn hash(&self, mut hash: u64) -> u64 {
        match &self.0 {
            Kind::Rows { targets, source } => {
                for rows in [Some(targets), source.as_ref()].into_iter().flatten() {
                    rows.ends.iter().for_each(|&end| hash = mix(hash, end as u64));
                    rows.ids.for_each(0..rows.ids.len(), |id| hash = mix(hash, id.into()));
                }
            }
            Kind::Windows(windows) => {
                hash = mix(hash, windows.length as u64);
                self.for_each_id(|id| hash = mix(hash, id.into()));
            }
        }
        hash
    }

    /// Visits all ids, those of sources too.
    pub(crate) fn for_each_id(&self, mut visit: impl FnMut(u32)) {
        match &self.0 {
            Kind::Rows { targets, source } => {
                for rows in [Some(targets), source.as_ref()].into_iter().flatten() {
                    rows.ids.for_each(0..rows.ids.len(), &mut visit);
                }
            }
            Kind::Windows(windows) => windows.ids.for_each(windows.range.clone(), visit),
        }
    }

    /// A sample that stands by itself as one list: the source and its length, where there is one, then the
    /// tokens.
    ///
    /// # Panics
    /// Where the samples are windows.
    pub(crate) fn row(&self, sample: usize) -> Vec<u32> {
        let Kind::Rows { targets, source } = &self.0 else { panic!("windows are no rows") };
        let mut row = Vec::new();
        if let Some(source) = source {
            source.ids.for_each(source.range(sample), |id| row.push(id));
            row.push(row.len() as u32);
        }
        targets.ids.for_each(targets.range(sample), |id| row.push(id));
        row
    }

    /// The places from which a full window can start, where the samples are windows of a stream.
    pub(crate) fn window_starts(&self) -> Option<Range<usize>> {
        match &self.0 {
            Kind::Rows { .. } => None,
            Kind::Windows(windows) => Some(0..windows.targets() - self.time() + 1),
        }
    }

    /// The stream that the samples are windows of, and the part of it that they cover.
    pub(crate) fn stream(&self) -> Option<(&Ids, Range<usize>)> {
        match &self.0 {
            Kind::Rows { .. } => None,
            Kind::Windows(windows) => Some((&windows.ids, windows.range.clone())),
        }
    }

    /// Fills `into` with the samples of the given numbers, which are below [`len`](Self::len).
    pub(crate) fn fill(&self, samples: impl ExactSizeIterator<Item = usize> + Clone, into: &mut Batch) {
        match &self.0 {
            Kind::Rows { targets, source } => {
                let ranges = samples.clone().map(|sample| targets.range(sample));
                fill_targets(into, &targets.ids, targets.roles.as_deref(), ranges);
                match source {
                    Some(source) => source.fill_source(samples, into),
                    None => into.source = None,
                }
            }
            Kind::Windows(windows) => self.fill_windows(samples.map(|sample| sample * windows.length), into),
        }
    }

    /// Fills `into` with the windows of a stream that start at the given places.
    ///
    /// # Panics
    /// Where the samples are no windows: ask [`window_starts`](Self::window_starts) first.
    pub(crate) fn fill_windows(
        &self,
        starts: impl ExactSizeIterator<Item = usize> + Clone,
        into: &mut Batch,
    ) {
        let Kind::Windows(windows) = &self.0 else { panic!("rows have no windows") };
        let ranges = starts.map(|start| {
            let start = windows.range.start + start;
            start..(start + windows.length + 1).min(windows.range.end)
        });
        fill_targets(into, &windows.ids, None, ranges);
        into.source = None;
    }
}

/// Fills a batch with the samples that lie at `ranges`; where there are no roles, no rule decides them.
fn fill_targets(
    into: &mut Batch,
    ids: &Ids,
    roles: Option<&[Role]>,
    ranges: impl ExactSizeIterator<Item = Range<usize>> + Clone,
) {
    let time = ranges.clone().map(|range| range.len()).max().unwrap_or(1) - 1;
    into.clear(ranges.len(), time);
    for (row, range) in ranges.enumerate() {
        let at = row * time..row * time + range.len() - 1;
        ids.copy(range.start..range.end - 1, &mut into.inputs[at.clone()]);
        ids.copy(range.start + 1..range.end, &mut into.targets[at.clone()]);
        match roles {
            Some(roles) => into.roles[at].copy_from_slice(&roles[range.start + 1..range.end]),
            None => into.roles[at].fill(Role::Unknown),
        }
    }
}

/// Samples of possibly different lengths, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    ids: Ids,
    /// The role of each id as a target; none where no rule decides it.
    roles: Option<Vec<Role>>,
    /// Where each row ends.
    ends: Vec<usize>,
    longest: usize,
}

impl Rows {
    /// Makes room for `rows` rows of together `ids` ids.
    pub(crate) fn reserve(&mut self, rows: usize, ids: usize) {
        self.ids.reserve(ids);
        self.ends.reserve(rows);
    }

    /// Adds a row of which no rule says what is determined.
    pub(crate) fn push(&mut self, row: &[u32]) {
        assert!(self.roles.is_none(), "either all rows have roles or none");
        self.ids.extend(row);
        self.end_row(row.len());
    }

    /// Adds a row with the role of each of its targets: `roles[i]` is that of `row[i + 1]`.
    pub(crate) fn push_with_roles(&mut self, row: &[u32], roles: impl ExactSizeIterator<Item = Role>) {
        assert_eq!(roles.len() + 1, row.len(), "each target has a role");
        let all = self.roles.get_or_insert_default();
        assert_eq!(all.len(), self.ids.len(), "either all rows have roles or none");
        // The first id of a row is no target.
        all.push(Role::Padding);
        all.extend(roles);
        self.ids.extend(row);
        self.end_row(row.len());
    }

    fn end_row(&mut self, length: usize) {
        self.ends.push(self.ids.len());
        self.longest = self.longest.max(length);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn range(&self, row: usize) -> Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        start..self.ends[row]
    }

    fn fill_source(&self, samples: impl ExactSizeIterator<Item = usize> + Clone, into: &mut Batch) {
        let time = samples.clone().map(|sample| self.range(sample).len()).max().unwrap_or(0);
        let source = into.source.get_or_insert_default();
        source.clear(samples.len(), time);
        for (row, sample) in samples.enumerate() {
            let range = self.range(sample);
            let at = row * time..row * time + range.len();
            self.ids.copy(range, &mut source.tokens[at.clone()]);
            source.padding[at].fill(false);
        }
    }
}

/// A part of a stream, cut into windows.
#[derive(Debug, Clone)]
struct Windows {
    ids: Arc<Ids>,
    range: Range<usize>,
    length: usize,
}

impl Windows {
    fn targets(&self) -> usize {
        self.range.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_changes_with_every_id_and_every_end_of_a_row() {
        let rows = |rows: &[&[u32]]| {
            let mut all = Rows::default();
            rows.iter().for_each(|row| all.push(row));
            Sequences::rows(all).hash(0)
        };
        let hash = rows(&[&[1, 2, 3], &[4, 5]]);
        assert_eq!(hash, rows(&[&[1, 2, 3], &[4, 5]]));
        for other in [
            rows(&[&[1, 2, 3], &[4, 6]]),
            rows(&[&[2, 1, 3], &[4, 5]]),
            rows(&[&[1, 2], &[3, 4, 5]]),
            rows(&[&[1, 2, 3], &[4, 5], &[0, 0]]),
        ] {
            assert_ne!(hash, other);
        }
    }
}
