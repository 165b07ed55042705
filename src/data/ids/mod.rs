//! Token ids, in memory or in a file that is larger than memory.

mod file;
mod integer;
mod memory;

use std::{collections::TryReserveError, ops::Range};

pub(crate) use self::file::{Bytes, IdsInFile};
pub(crate) use self::integer::Integer;
use self::memory::IdsInMemory;

/// The number of ids that an iterator reads from a file at a time.
const BLOCK: usize = 1 << 12;

/// Token ids that are read by index. Ids in memory can be extended.
#[derive(Debug)]
pub(crate) enum Ids {
    Memory(IdsInMemory),
    File(IdsInFile),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Memory(IdsInMemory::default())
    }
}

impl Ids {
    /// Reserves memory for `more` ids of two bytes.
    pub(crate) fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        self.in_memory().try_reserve(more)
    }

    /// Appends ids.
    pub(crate) fn extend(&mut self, more: &[u32]) {
        self.in_memory().extend(more);
    }

    /// Replaces each id. The new ids must not exceed the largest of the old ones.
    pub(crate) fn replace(&mut self, by: impl Fn(u32) -> u32) {
        self.in_memory().replace(by);
    }

    /// Returns the ids with each one mapped, in memory.
    pub(crate) fn mapped(&self, map: impl Fn(u32) -> u32) -> Self {
        let mut mapped = Self::default();
        for start in (0..self.len()).step_by(BLOCK) {
            let range = start..self.len().min(start + BLOCK);
            mapped.extend(&self.iter(range).map(&map).collect::<Vec<_>>());
        }
        mapped
    }

    fn in_memory(&mut self) -> &mut IdsInMemory {
        match self {
            Self::Memory(ids) => ids,
            Self::File(_) => unreachable!("ids in a file are never changed"),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(ids) => ids.len(),
            Self::File(ids) => ids.len(),
        }
    }

    /// Iterates over the ids at `range`.
    pub(crate) fn iter(&self, range: Range<usize>) -> Iter<'_> {
        match self {
            Self::Memory(ids) => Iter::Memory(ids, range),
            Self::File(ids) => Iter::File { ids, range, block: Vec::new().into_iter() },
        }
    }

    /// Copies the ids at `range` into a slice of the same length.
    pub(crate) fn copy(&self, range: Range<usize>, into: &mut [u32]) {
        match self {
            Self::Memory(ids) => ids.copy(range, into),
            Self::File(ids) => ids.copy(range.start, into),
        }
    }
}

/// An iterator over ids. It reads a file in blocks.
pub(crate) enum Iter<'a> {
    Memory(&'a IdsInMemory, Range<usize>),
    File {
        ids: &'a IdsInFile,
        /// The ids after the current block.
        range: Range<usize>,
        block: std::vec::IntoIter<u32>,
    },
}

impl Iterator for Iter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Iter::Memory(ids, range) => range.next().map(|index| ids.get(index)),
            Iter::File { ids, range, block } => {
                if block.len() == 0 && range.start < range.end {
                    let mut next = vec![0; range.len().min(BLOCK)];
                    ids.copy(range.start, &mut next);
                    range.start += next.len();
                    *block = next.into_iter();
                }
                block.next()
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Iter::Memory(_, range) => range.size_hint(),
            Iter::File { range, block, .. } => {
                let remaining = block.len() + range.len();
                (remaining, Some(remaining))
            }
        }
    }

    fn fold<T, F: FnMut(T, u32) -> T>(self, first: T, mut each: F) -> T {
        match self {
            Iter::Memory(ids, range) => range.fold(first, |folded, index| each(folded, ids.get(index))),
            Iter::File { ids, range, block } => {
                let mut folded = block.fold(first, &mut each);
                let mut next = vec![0; range.len().min(BLOCK)];
                for start in range.clone().step_by(BLOCK) {
                    let next = &mut next[..BLOCK.min(range.end - start)];
                    ids.copy(start, next);
                    folded = next.iter().fold(folded, |folded, &id| each(folded, id));
                }
                folded
            }
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Mixes a number into a hash: a step of FNV-1a on integers, with a rotation that feeds the high bits back.
pub(crate) fn mix(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(29)
}
