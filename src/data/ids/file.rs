//! Token ids in a file, which may be larger than memory.
//!
//! Ids are read at their positions, without a memory map. The system keeps recently read parts of the file in its cache,
//! but they do not count as memory of the program, and a file that is truncated during a run causes an error instead of
//! a fatal signal.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Integer;
use crate::error::{Error, Result};

/// The number of bytes read at a time, a multiple of the size of every integer.
const CHUNK_BYTES: usize = 1 << 13;

/// The number of bytes read at a time in a pass over the whole file.
const PASS_BYTES: usize = 1 << 18;

/// The content of a file, or of a stream.
#[derive(Debug)]
pub(crate) enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

impl Bytes {
    /// Fills `into` with the bytes from `start`.
    fn read(&self, start: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => read_at(file, into, start),
            Self::Memory(bytes) => {
                let part = bytes.get(start as usize..start as usize + into.len());
                into.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], start: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, start)
}

#[cfg(windows)]
fn read_at(file: &File, mut into: &mut [u8], mut start: u64) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, start)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => (into, start) = (&mut into[read..], start + read as u64),
        }
    }
    Ok(())
}

/// Token ids in a part of a file. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct IdsInFile {
    pub bytes: Arc<Bytes>,
    pub path: PathBuf,
    pub integer: Integer,
    /// The offset of the first id, in bytes.
    pub start: u64,
    /// The number of ids.
    pub count: usize,
    /// The rows of the array that are read, in this order; all ids if `None`.
    pub rows: Option<Arc<SelectedRows>>,
}

/// Rows of an array of two dimensions.
#[derive(Debug)]
pub(crate) struct SelectedRows {
    pub columns: usize,
    pub indices: Vec<usize>,
}

impl IdsInFile {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the rows of an array with these indices.
    pub(crate) fn selected_rows(&self, columns: usize, indices: Vec<usize>) -> Self {
        let count = indices.len() * columns;
        Self { count, rows: Some(Arc::new(SelectedRows { columns, indices })), ..self.clone() }
    }

    /// Copies the ids from `index` into a slice.
    ///
    /// # Panics
    /// Unwinds with an [`Error`] if the file cannot be read, because it was truncated or its disk fails. The program
    /// reports that error.
    pub(crate) fn copy(&self, index: usize, into: &mut [u32]) {
        debug_assert!(index + into.len() <= self.count, "the ids are in the file");
        let Some(rows) = &self.rows else { return self.copy_stored(index, into) };
        let (mut row, mut column, mut rest) = (index / rows.columns, index % rows.columns, into);
        while !rest.is_empty() {
            let (part, after) = rest.split_at_mut((rows.columns - column).min(rest.len()));
            self.copy_stored(rows.indices[row] * rows.columns + column, part);
            (row, column, rest) = (row + 1, 0, after);
        }
    }

    /// Copies the ids from `index`, in the order of the file.
    fn copy_stored(&self, index: usize, into: &mut [u32]) {
        let mut buffer = [0; CHUNK_BYTES];
        let mut start = self.start + (index * self.integer.bytes) as u64;
        for part in into.chunks_mut(CHUNK_BYTES / self.integer.bytes) {
            let bytes = &mut buffer[..part.len() * self.integer.bytes];
            if let Err(error) = self.bytes.read(start, bytes) {
                std::panic::resume_unwind(Box::new(failed(&self.path, error)));
            }
            start += bytes.len() as u64;
            let mut ids = part.iter_mut();
            self.integer.decode(bytes, |id| *ids.next().expect("as many as integers") = id as u32);
        }
    }

    /// Returns the largest of the integers in one pass, or the index and the value of the first one that is negative or
    /// above `max`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn largest(&self, max: u64) -> Result<std::result::Result<u64, (usize, i128)>> {
        let (mut largest, mut index) = (0, 0);
        let mut buffer = vec![0; PASS_BYTES];
        while index < self.count {
            let count = (PASS_BYTES / self.integer.bytes).min(self.count - index);
            let bytes = &mut buffer[..count * self.integer.bytes];
            let start = self.start + (index * self.integer.bytes) as u64;
            self.bytes.read(start, bytes).map_err(|error| failed(&self.path, error))?;
            let mut of_block = 0;
            self.integer.decode(bytes, |id| of_block = of_block.max(id));
            if of_block > max {
                let (mut at, mut first) = (index, None);
                self.integer.decode(bytes, |id| {
                    first = first.or((id > max).then_some((at, id)));
                    at += 1;
                });
                let (at, id) = first.expect("the block contains such an integer");
                let value = if self.integer.is_signed { i128::from(id as i64) } else { i128::from(id) };
                return Ok(Err((at, value)));
            }
            (largest, index) = (largest.max(of_block), index + count);
        }
        Ok(Ok(largest))
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            let problem = "was truncated while it was being read; restore it, and repeat the command";
            Error::file(path, problem)
        }
        _ => Error::io("read", path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ids;
    use super::*;

    fn ids(bytes: Vec<u8>, integer: Integer, start: u64) -> IdsInFile {
        let count = (bytes.len() - start as usize) / integer.bytes;
        IdsInFile {
            bytes: Arc::new(Bytes::Memory(bytes)),
            path: "a.bin".into(),
            integer,
            start,
            count,
            rows: None,
        }
    }

    #[test]
    fn integers_of_every_type_are_decoded() {
        let decoded = |bytes: Vec<u8>, integer| {
            let mut copy = [0; 3];
            ids(bytes, integer, 0).copy(0, &mut copy);
            copy
        };
        for is_signed in [false, true] {
            for is_big_endian in [false, true] {
                for bytes in [1, 2, 4, 8] {
                    let integer = Integer { bytes, is_signed, is_big_endian };
                    let encode = |number: u64| match is_big_endian {
                        true => number.to_be_bytes()[8 - bytes..].to_vec(),
                        false => number.to_le_bytes()[..bytes].to_vec(),
                    };
                    let written = [3, 0, 0x7b].map(encode).concat();
                    assert_eq!(decoded(written, integer), [3, 0, 0x7b], "{integer:?}");
                    let largest = if is_signed { 1 << (8 * bytes - 1) } else { u64::MAX };
                    let wrong = ids([3, largest].map(encode).concat(), integer, 0).largest(1 << 20);
                    let is_narrow = bytes < 4 && !is_signed;
                    assert_eq!(wrong.unwrap().is_ok(), is_narrow, "{integer:?}");
                }
            }
        }
    }

    #[test]
    fn blocks_and_parts_follow_each_other() {
        let numbers = (0..10_007_u32).map(|index| index.wrapping_mul(40_503) % 65_521).collect::<Vec<_>>();
        let bytes =
            [7, 7].into_iter().chain(numbers.iter().flat_map(|&number| (number as u16).to_le_bytes()));
        let all = ids(bytes.collect(), Integer::unsigned(2), 2);
        assert_eq!(all.largest(65_535).unwrap(), Ok(u64::from(*numbers.iter().max().unwrap())));
        let first = numbers.iter().position(|&number| number > 65_000).unwrap();
        assert_eq!(all.largest(65_000).unwrap(), Err((first, numbers[first].into())));
        let part = Ids::File(IdsInFile { start: 2 + 5 * 2, count: 10_002, ..all });
        assert_eq!(part.len(), 10_002);
        let mut iter = part.iter(3..10_000);
        assert_eq!((iter.next(), iter.len()), (Some(numbers[8]), 9_996));
        assert!(iter.eq(numbers[9..10_005].iter().copied()));
        assert_eq!(
            part.iter(0..10_002).fold(0, |sum, id| sum + u64::from(id)),
            numbers[5..].iter().map(|&id| u64::from(id)).sum::<u64>()
        );
    }

    #[test]
    fn selected_rows_are_read_in_their_order() {
        let all = ids((0..12).collect(), Integer::unsigned(1), 0);
        let selected = all.selected_rows(3, vec![2, 0, 3]);
        assert_eq!(Ids::File(selected.clone()).iter(0..9).collect::<Vec<_>>(), [6, 7, 8, 0, 1, 2, 9, 10, 11]);
        let mut part = [0; 5];
        selected.copy(2, &mut part);
        assert_eq!(part, [8, 0, 1, 2, 9]);
    }

    #[test]
    fn a_truncated_file_unwinds_with_an_error() {
        let short = IdsInFile { count: 5, ..ids(vec![0; 8], Integer::unsigned(2), 0) };
        let panic = std::panic::catch_unwind(|| short.copy(2, &mut [0; 3])).unwrap_err();
        let error = panic.downcast::<Error>().unwrap();
        assert!(error.to_string().starts_with("a.bin: was truncated while it was being read"), "{error}");
    }
}
