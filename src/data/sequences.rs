//! The token ids of one split, in rows or as a stream cut into windows.

mod rows;

use std::{ops::Range, sync::Arc};

pub(crate) use self::rows::{Rows, split_rows};
use super::batch::{Batch, Role};
use super::config::DataConfig;
use super::ids::{Ids, mix};
use crate::error::{Error, Result};
use crate::numbers::counted;

/// One split of the data. Cheap to clone: clones share the ids.
#[derive(Debug, Clone)]
pub struct Sequences {
    targets: Arc<Rows>,
    /// The source of each row, for an encoder-decoder.
    source: Option<Arc<Rows>>,
    /// The part of the stream whose windows are the samples; `None` if each row is a sample.
    windows: Option<Windows>,
    /// The lengths of the training batches, if they vary.
    lengths: Option<Lengths>,
}

/// A range of lengths from which each batch draws one.
#[derive(Clone)]
struct Lengths {
    /// The shortest and the longest length.
    range: [usize; 2],
    /// Draws the samples with the given indices at a length; `None` for a stream, whose windows can end anywhere.
    draw: Option<Arc<DrawAt>>,
}

/// A function that draws the samples with the given indices at a length.
type DrawAt = dyn Fn(usize, &[usize]) -> Rows + Send + Sync;

impl std::fmt::Debug for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lengths").field(&self.range).finish()
    }
}

/// A part of a stream, cut into windows of `length` targets.
#[derive(Debug, Clone)]
struct Windows {
    part: Range<usize>,
    length: usize,
}

impl Windows {
    fn targets(&self) -> usize {
        self.part.len() - 1
    }

    /// Returns the range of ids of the window that starts at `start` within the part. At the end of the part it is
    /// shorter.
    fn ids(&self, start: usize) -> Range<usize> {
        let start = self.part.start + start;
        start..(start + self.length + 1).min(self.part.end)
    }
}

impl Sequences {
    /// Creates a split in which each row is a sample.
    pub(crate) fn rows(rows: Rows) -> Self {
        Sequences { targets: Arc::new(rows), source: None, windows: None, lengths: None }
    }

    /// Creates a split of answers, each beginning with the start token, and of their sources.
    pub(crate) fn pairs(source: Rows, answers: Rows) -> Self {
        assert_eq!(source.ends.len(), answers.ends.len(), "each source has one answer");
        Sequences { source: Some(Arc::new(source)), ..Self::rows(answers) }
    }

    /// Creates a split of windows of `length` targets over a part of a stream.
    pub(crate) fn windows(stream: Arc<Rows>, part: Range<usize>, length: usize) -> Self {
        let has_target = length > 0 && part.len() > 1 && part.end <= stream.ids.len();
        assert!(has_target, "a part of a stream has at least one target");
        Sequences { targets: stream, source: None, windows: Some(Windows { part, length }), lengths: None }
    }

    /// Lets each training batch draw its length from `range`. `draw` creates the samples.
    pub(crate) fn with_drawn_lengths(
        self,
        range: [usize; 2],
        draw: impl Fn(usize, &[usize]) -> Rows + Send + Sync + 'static,
    ) -> Self {
        Sequences { lengths: Some(Lengths { range, draw: Some(Arc::new(draw)) }), ..self }
    }

    /// Lets each training batch of a stream draw its length from `data.lengths`, if that is set.
    fn with_lengths(self, config: &DataConfig) -> Self {
        Sequences { lengths: config.lengths.map(|range| Lengths { range, draw: None }), ..self }
    }

    /// Cuts a stream into windows of `data.length`: the last part for validation, the rest for training.
    ///
    /// # Errors
    /// Returns an error if either part is too short.
    pub(crate) fn cut(config: &DataConfig, ids: Ids) -> Result<(Self, Self)> {
        Self::cut_documents(config, ids, Vec::new())
    }

    /// Cuts a stream like [`cut`](Self::cut), with separate documents. `starts` holds the first id of each document but
    /// the first one, in ascending order.
    ///
    /// # Errors
    /// Same as [`cut`](Self::cut).
    pub(crate) fn cut_documents(config: &DataConfig, ids: Ids, starts: Vec<usize>) -> Result<(Self, Self)> {
        let (all, length) = (ids.len(), config.length);
        let stream = Arc::new(Rows { ids, starts, ..Rows::default() });
        if config.is_one_split() && all > 1 {
            let whole = Self::windows(stream, 0..all, length);
            return Ok((whole.clone().with_lengths(config), whole));
        }
        if config.is_one_split() {
            let problem =
                format!("has {}, so there is nothing to predict; use more data", counted(all, "token"));
            return Err(Error::file(config.path.first(), problem));
        }
        let train = config.train_part(all);
        let (key, longest) = match config.lengths {
            Some([_, longest]) if longest > length => ("data.lengths", longest),
            _ => ("data.length", length),
        };
        let problem = if train < longest + 1 {
            let remedy = match train {
                // A shorter window would leave too few tokens for validation, too.
                _ if train < 2 || all - train < 2 => "use more data".to_string(),
                _ => format!("lower `{key}` to {} or below, or use more data", train - 1),
            };
            format!(
                "has {} for training, fewer than a window of `{key}` = {longest} and the token after it; \
                 {remedy}",
                counted(train, "token")
            )
        } else if all - train < 2 {
            format!(
                "has {}, of which `data.valid_fraction` = {} leaves {} for validation, but 2 are needed; \
                 raise the fraction, or use more data",
                counted(all, "token"),
                config.valid_fraction,
                all - train
            )
        } else {
            let training = Self::windows(stream.clone(), 0..train, length).with_lengths(config);
            return Ok((training, Self::windows(stream, train..all, length)));
        };
        Err(Error::file(config.path.first(), problem))
    }

    /// Returns the same part of a stream in windows of another length; `None` if each row is a sample.
    pub fn in_windows_of(&self, length: usize) -> Option<Self> {
        let windows = self.windows.as_ref()?;
        Some(Self::windows(self.targets.clone(), windows.part.clone(), length))
    }

    /// Returns the number of samples per epoch; for a stream, the number of adjacent windows that cover it.
    #[expect(clippy::len_without_is_empty, reason = "a split is never empty")]
    pub fn len(&self) -> usize {
        match &self.windows {
            None => self.targets.ends.len(),
            Some(windows) => windows.targets().div_ceil(windows.length),
        }
    }

    /// Returns the number of positions of the longest input.
    pub fn time(&self) -> usize {
        match &self.windows {
            None => self.targets.longest - 1,
            Some(windows) => windows.length.min(windows.targets()),
        }
    }

    /// Returns the number of positions of the longest input of any batch.
    pub fn longest(&self) -> usize {
        self.lengths.as_ref().map_or(0, |lengths| lengths.range[1]).max(self.time())
    }

    /// Returns the shortest and the longest length of a training batch, if each batch draws its own.
    pub fn lengths(&self) -> Option<[usize; 2]> {
        self.lengths.as_ref().map(|lengths| lengths.range)
    }

    /// Returns the number of positions of the longest source, for encoder-decoder data.
    pub fn source_time(&self) -> Option<usize> {
        self.source.as_ref().map(|source| source.longest)
    }

    /// Returns the number of targets per epoch that count in the loss.
    pub fn targets(&self) -> usize {
        match &self.windows {
            None if self.targets.roles.is_empty() => self.targets.ids.len() - self.targets.ends.len(),
            None => self.targets.roles.iter().filter(|&&role| role != Role::Padding).count(),
            Some(windows) => windows.targets() - self.targets.starts_within(&windows.part).len(),
        }
    }

    /// Returns the number of targets of the entire stream that count; `None` if each row is a sample.
    pub(crate) fn targets_of_stream(&self) -> Option<usize> {
        self.windows.as_ref().map(|_| self.targets.ids.len() - 1 - self.targets.starts.len())
    }

    /// Returns the length of each separate document; empty if documents are joined or rows are samples. A document at
    /// the end of the split has the length of its part.
    pub(crate) fn document_lengths(&self) -> Vec<usize> {
        let Some(Windows { part, .. }) = self.windows.as_ref().filter(|_| self.targets.is_separate()) else {
            return Vec::new();
        };
        let starts = self.targets.starts_within(part);
        let ends = starts.iter().chain([&part.end]);
        [&part.start].into_iter().chain(starts).zip(ends).map(|(start, end)| end - start).collect()
    }

    /// Returns the number of targets per epoch that the optimal predictor knows.
    pub(crate) fn determined(&self) -> usize {
        self.targets.roles.iter().filter(|&&role| role == Role::Determined).count()
    }

    /// Iterates over the rows with the ids of targets and sources, each with the range that belongs to this split.
    fn parts(&self) -> impl Iterator<Item = (&Rows, Range<usize>)> {
        let whole = |rows: &Rows| 0..rows.ids.len();
        let part = self.windows.as_ref().map_or(whole(&self.targets), |windows| windows.part.clone());
        let source = self.source.as_deref().map(|source| (source, whole(source)));
        std::iter::once((&*self.targets, part)).chain(source)
    }

    /// Mixes all ids and the ends of rows into a hash.
    pub(crate) fn hash(&self, mut hash: u64) -> u64 {
        if let Some([shortest, longest]) = self.lengths() {
            hash = mix(mix(hash, shortest as u64), longest as u64);
        }
        for (rows, part) in self.parts() {
            match &self.windows {
                None => rows.ends.iter().for_each(|&end| hash = mix(hash, end as u64)),
                Some(windows) => hash = mix(hash, windows.length as u64),
            }
            rows.ids.iter(part.clone()).for_each(|id| hash = mix(hash, id.into()));
            rows.starts_within(&part).iter().for_each(|&start| hash = mix(hash, start as u64));
            rows.uncounted().for_each(|target| hash = mix(hash, target as u64));
        }
        hash
    }

    /// Iterates over all ids, including those of sources.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.parts().flat_map(|(rows, part)| rows.ids.iter(part))
    }

    /// Returns the offset of a sample: its index if each row is a sample, or the start of its adjacent window within
    /// the part of the stream.
    pub(crate) fn offset(&self, sample: usize) -> usize {
        self.windows.as_ref().map_or(sample, |windows| sample * windows.length)
    }

    /// Returns the range of ids of the sample at an offset: its first input, then its targets.
    fn range(&self, offset: usize) -> Range<usize> {
        match &self.windows {
            None => self.targets.range(offset),
            Some(windows) => windows.ids(offset),
        }
    }

    /// Returns the source of a sample (empty if it has none), and the first input of the sample with all its targets.
    pub(crate) fn sample(&self, sample: usize) -> (Vec<u32>, Vec<u32>) {
        let source = self.source.iter().flat_map(|source| source.ids.iter(source.range(sample)));
        (source.collect(), self.targets.ids.iter(self.range(self.offset(sample))).collect())
    }

    /// Returns, for the first input and each target of a sample, true if the optimal predictor knows it.
    pub(crate) fn is_determined(&self, sample: usize) -> Vec<bool> {
        let role = |index| self.targets.roles.get(index).copied();
        self.range(self.offset(sample)).map(|index| role(index) == Some(Role::Determined)).collect()
    }

    /// Returns, for the first input and each target of a sample, true if it counts; never for the first input.
    pub(crate) fn is_counted(&self, sample: usize) -> Vec<bool> {
        let range = self.range(self.offset(sample));
        let Rows { roles, starts, .. } = &*self.targets;
        let is_counted = |index: usize| {
            roles.get(index).is_none_or(|role| *role != Role::Padding)
                && starts.binary_search(&index).is_err()
        };
        range.clone().map(|index| index > range.start && is_counted(index)).collect()
    }

    /// Returns the offsets at which a full window can start, if the samples are windows of a stream.
    pub(crate) fn window_starts(&self) -> Option<Range<usize>> {
        self.windows.as_ref().map(|windows| 0..windows.targets() - self.time() + 1)
    }

    /// Returns the stream whose windows are the samples, and the part that they cover.
    pub(crate) fn stream(&self) -> Option<(&Ids, Range<usize>)> {
        self.windows.as_ref().map(|windows| (&self.targets.ids, windows.part.clone()))
    }

    /// Returns a batch of the samples at the given [offsets](Self::offset). Windows may start at any of the
    /// [`window_starts`](Self::window_starts).
    pub(crate) fn batch(&self, offsets: impl ExactSizeIterator<Item = usize> + Clone) -> Batch {
        let source = self.source.as_ref().map(|source| source.source_batch(offsets.clone()));
        Batch { source, ..self.targets.batch(offsets.map(|offset| self.range(offset))) }
    }

    /// Iterates over batches of up to `rows` samples for validation: each sample once, in order. A stream is cut into
    /// adjacent windows, the last of which may be shorter.
    pub fn batches(&self, rows: usize) -> impl ExactSizeIterator<Item = Batch> {
        (0..self.len()).step_by(rows).map(move |first| {
            let samples = first..self.len().min(first + rows);
            self.batch(samples.map(|sample| self.offset(sample)))
        })
    }

    /// Returns a batch like [`batch`](Self::batch) with samples of another length. Windows of a stream that would not
    /// fit start earlier.
    pub(crate) fn batch_at(&self, length: usize, offsets: &[usize]) -> Batch {
        let drawn = self.lengths.as_ref().and_then(|lengths| lengths.draw.as_ref());
        match (drawn, &self.windows) {
            (Some(draw), _) => {
                let rows = draw(length, offsets);
                rows.batch((0..offsets.len()).map(|row| rows.range(row)))
            }
            (None, Some(windows)) => {
                let windows = Windows { length, ..windows.clone() };
                let last = windows.targets().saturating_sub(length);
                self.targets.batch(offsets.iter().map(|&offset| windows.ids(offset.min(last))))
            }
            (None, None) => self.batch(offsets.iter().copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncounted_targets_stay_inputs_of_later_ones() {
        use Role::{Determined, Padding, Unknown};
        let split = |roles: [Role; 4]| {
            let mut rows = Rows::default();
            rows.push_with_roles(&[1, 2, 3, 4, 5], roles.into_iter());
            rows.push_with_roles(&[6, 7], [Unknown].into_iter());
            Sequences::rows(rows)
        };
        let masked = split([Padding, Unknown, Padding, Determined]);
        let batch = masked.batches(2).next().unwrap();
        assert_eq!(batch.inputs, [1, 2, 3, 4, 6, 0, 0, 0]);
        assert_eq!(batch.roles[..4], [Padding, Unknown, Padding, Determined]);
        assert_eq!(batch.roles[4..], [Unknown, Padding, Padding, Padding]);
        assert_eq!((batch.counted(), masked.targets(), masked.determined()), (3, 3, 1));
        assert_eq!(masked.is_counted(0), [false, false, true, false, true]);
        assert_ne!(masked.hash(0), split([Unknown, Unknown, Padding, Determined]).hash(0));
    }

    #[test]
    fn hash_depends_on_ids_and_row_boundaries() {
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
