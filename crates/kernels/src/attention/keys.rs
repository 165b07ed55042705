//! The keys that a query sees.

use std::ops::Range;

/// The range of keys visible to a query, `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first visible key.
    pub first: u32,
    /// One past the last visible key; equal to `first` if no key is visible.
    pub end: u32,
}

impl KeyRange {
    /// Returns the keys as a range of positions.
    pub fn range(self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}

/// Returns the range from the first to the last key in any of these ranges; `None` if all are empty.
pub fn span(ranges: impl Iterator<Item = Range<usize>>) -> Option<Range<usize>> {
    let ranges = ranges.filter(|keys| !keys.is_empty());
    ranges.reduce(|all, keys| all.start.min(keys.start)..all.end.max(keys.end))
}

/// A mask of individual query-key pairs that are hidden.
#[derive(Clone, Copy, Debug)]
pub struct HiddenPairs<'a> {
    /// The mask: a non-zero entry hides the pair.
    pub hidden: &'a [u8],
    /// `[batch, query_time, key_time]`; the first two axes are broadcast if they are 1.
    pub shape: [usize; 3],
}

impl HiddenPairs<'_> {
    /// Returns the mask row of a query, `[key_time]`.
    #[inline(always)]
    pub(super) fn row(&self, sequence: usize, query: usize) -> &[u8] {
        let [batch, queries, keys] = self.shape;
        let row = if batch == 1 { 0 } else { sequence * queries } + if queries == 1 { 0 } else { query };
        &self.hidden[row * keys..][..keys]
    }
}
