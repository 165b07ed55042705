//! Token ids in memory, in compact storage.

use std::{collections::TryReserveError, ops::Range};

use crate::kernels::allocator::fallible;

/// Token ids of two bytes each, or four bytes once an id needs them. This halves the memory for all but the largest
/// vocabularies.
#[derive(Debug, Default)]
pub(crate) struct IdsInMemory {
    low: Vec<u16>,
    /// The upper halves; empty while all of them are 0.
    high: Vec<u16>,
}

impl IdsInMemory {
    /// Reserves memory for `more` ids of two bytes.
    pub(crate) fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        fallible(|| self.low.try_reserve_exact(more))
    }

    /// Appends ids.
    pub(crate) fn extend(&mut self, more: &[u32]) {
        let before = self.len();
        self.low.extend(more.iter().map(|&id| id as u16));
        if !self.high.is_empty() || more.iter().any(|&id| id > u16::MAX.into()) {
            self.high.resize(before, 0);
            self.high.extend(more.iter().map(|&id| (id >> 16) as u16));
        }
    }

    /// Replaces each id. The new ids must not exceed the largest of the old ones.
    pub(crate) fn replace(&mut self, by: impl Fn(u32) -> u32) {
        for index in 0..self.len() {
            let id = by(self.get(index));
            self.low[index] = id as u16;
            if let Some(high) = self.high.get_mut(index) {
                *high = (id >> 16) as u16;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.low.len()
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        let high = self.high.get(index).copied().unwrap_or(0);
        u32::from(high) << 16 | u32::from(self.low[index])
    }

    /// Copies the ids at `range` into a slice of the same length.
    pub(crate) fn copy(&self, range: Range<usize>, into: &mut [u32]) {
        into.iter_mut().zip(range).for_each(|(to, index)| *to = self.get(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_narrow_until_one_needs_more() {
        let mut ids = IdsInMemory::default();
        ids.extend(&[3, 65_535]);
        assert!(ids.high.is_empty());
        ids.extend(&[7, 65_536]);
        assert_eq!(ids.high, [0, 0, 0, 1]);
        ids.extend(&[11]);
        let mut copy = [0; 4];
        ids.copy(1..5, &mut copy);
        assert_eq!((ids.len(), copy), (5, [65_535, 7, 65_536, 11]));
        ids.replace(|id| id.wrapping_sub(1));
        assert_eq!((0..5).map(|index| ids.get(index)).collect::<Vec<_>>(), [2, 65_534, 6, 65_535, 10]);
    }
}
