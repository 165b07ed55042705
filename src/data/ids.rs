//! Token ids, as small as they can be held.

use std::ops::Range;

/// Token ids in the narrowest type that holds them: half the memory for all but the largest
/// vocabularies.
#[derive(Debug)]
pub(crate) enum Ids {
    U16(Vec<u16>),
    U32(Vec<u32>),
}

impl Default for Ids {
    fn default() -> Self {
        Ids::U16(Vec::new())
    }
}

impl Ids {
    /// Makes room for `more` ids.
    pub(crate) fn reserve(&mut self, more: usize) {
        match self {
            Ids::U16(ids) => ids.reserve(more),
            Ids::U32(ids) => ids.reserve(more),
        }
    }

    /// Adds ids; all are widened when the first comes that needs it.
    pub(crate) fn extend(&mut self, more: &[u32]) {
        match self {
            Ids::U16(ids) if more.iter().all(|&id| id <= u16::MAX.into()) => {
                ids.extend(more.iter().map(|&id| id as u16));
            }
            Ids::U16(ids) => {
                *self = Ids::U32(ids.iter().copied().map(u32::from).chain(more.iter().copied()).collect());
            }
            Ids::U32(ids) => ids.extend_from_slice(more),
        }
    }

    /// Gives each id another one.
    pub(crate) fn replace(&mut self, by: impl Fn(u32) -> u32) {
        // As many ids are needed as before, so what fitted fits.
        match self {
            Ids::U16(ids) => ids.iter_mut().for_each(|id| *id = by(u32::from(*id)) as u16),
            Ids::U32(ids) => ids.iter_mut().for_each(|id| *id = by(*id)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Ids::U16(ids) => ids.len(),
            Ids::U32(ids) => ids.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        match self {
            Ids::U16(ids) => ids[index].into(),
            Ids::U32(ids) => ids[index],
        }
    }

    /// Visits the ids at `range` in their order.
    pub(crate) fn for_each(&self, range: Range<usize>, mut visit: impl FnMut(u32)) {
        match self {
            Ids::U16(ids) => ids[range].iter().for_each(|&id| visit(id.into())),
            Ids::U32(ids) => ids[range].iter().for_each(|&id| visit(id)),
        }
    }

    /// Copies the ids at `range` into a slice of the same length.
    pub(crate) fn copy(&self, range: Range<usize>, into: &mut [u32]) {
        match self {
            Ids::U16(ids) => {
                for (to, &from) in into.iter_mut().zip(&ids[range]) {
                    *to = from.into();
                }
            }
            Ids::U32(ids) => into.copy_from_slice(&ids[range]),
        }
    }
}

/// A step of FNV-1a, on whole numbers, with a rotation so that high bits come back.
pub(crate) fn mix(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_narrow_until_one_needs_more() {
        let mut ids = Ids::default();
        ids.extend(&[3, 65_535]);
        assert!(matches!(ids, Ids::U16(_)));
        ids.extend(&[7, 65_536]);
        assert!(matches!(ids, Ids::U32(_)));
        ids.extend(&[11]);
        let mut copy = [0; 4];
        ids.copy(1..5, &mut copy);
        assert_eq!((ids.len(), copy), (5, [65_535, 7, 65_536, 11]));
    }
}
