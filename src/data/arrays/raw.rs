//! Files that hold only token ids: nanoGPT's `.bin`, and llm.c's with a header of 1024 bytes.

use std::collections::HashSet;
use std::path::Path;

use super::{ArrayFormat, ArrayLayout};
use crate::data::config::Dtype;
use crate::data::ids::Integer;
use crate::error::{Error, Result};
use crate::files;
use crate::numbers::{counted, thousands};

/// The magic numbers of llm.c, with the sizes of the ids in bytes.
const LLM_C: [(u32, usize); 2] = [(20_240_520, 2), (20_240_801, 4)];

/// The size of the header of llm.c: 256 integers.
const LLM_C_HEADER: u64 = 1024;

/// The number of different values of upper halves below which 16-bit words are halves of larger integers: ids of up to
/// 2^20.
const MAX_UPPER_HALF: u16 = 16;

/// Returns the layout of the ids in a file of `length` bytes that begins with `head`. A type of `"auto"` is inferred.
///
/// # Errors
/// Returns an error if the file does not hold ids, or has another length than they have.
pub(super) fn layout(path: &Path, dtype: Dtype, head: &[u8], length: u64) -> Result<ArrayLayout> {
    if let Some(layout) = llm_c(path, head, length)? {
        return Ok(layout);
    }
    let integer = match dtype.integer() {
        Some(integer) => integer,
        None => {
            refuse_other_formats(path, head)?;
            inferred(path, head, length)?
        }
    };
    if !length.is_multiple_of(integer.bytes as u64) {
        let problem = format!(
            "has {}, which is not a multiple of {}, the size of {}; copy the file again, or set `data.dtype` to \
             the type of its ids",
            counted(length as usize, "byte"),
            integer.bytes,
            name(integer)
        );
        return Err(Error::file(path, problem));
    }
    let count = (length / integer.bytes as u64) as usize;
    Ok(ArrayLayout { format: ArrayFormat::Raw, integer, start: 0, shape: vec![count] })
}

/// Returns the layout of a file of llm.c: a magic number, a version, the number of ids, and zeros.
fn llm_c(path: &Path, head: &[u8], length: u64) -> Result<Option<ArrayLayout>> {
    let word = |index: usize| head.as_chunks().0.get(index).map(|bytes| u32::from_le_bytes(*bytes));
    let magic = LLM_C.into_iter().find(|(magic, _)| word(0) == Some(*magic));
    // Version 7 is that of Llama 3.
    let is_known =
        |&((_, bytes), _): &((u32, usize), u32)| word(1) == Some(1) || bytes == 4 && word(1) == Some(7);
    let Some(((_, bytes), count)) = magic.zip(word(2)).filter(is_known) else {
        return Ok(None);
    };
    let expected = LLM_C_HEADER + u64::from(count) * bytes as u64;
    if length != expected {
        let problem = format!(
            "is incomplete or damaged: its header counts {}, which need {}, but it has {}; copy it again",
            counted(count as usize, "token"),
            counted(expected as usize, "byte"),
            thousands(length as f64)
        );
        return Err(Error::file(path, problem));
    }
    let integer = Integer::unsigned(bytes);
    Ok(Some(ArrayLayout {
        format: ArrayFormat::LlmC,
        integer,
        start: LLM_C_HEADER,
        shape: vec![count as usize],
    }))
}

/// Returns an error for text, and for a file in another binary format.
fn refuse_other_formats(path: &Path, head: &[u8]) -> Result<()> {
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    // The last character may be cut.
    let is_utf8 = text.len() + 4 > head.len();
    let is_plain =
        |character: char| !character.is_control() || matches!(character, '\t' | '\n' | '\r' | '\x0c');
    let is_of_number = |character: char| character.is_ascii_digit() || " \t\r\n,".contains(character);
    let problem = if is_utf8 && text.chars().all(is_of_number) {
        format!(
            "holds numbers as text, not an array; write each on its own line with tr -s ', \\t\\r' '\\n' < {} > NEW.csv, and \
             read NEW.csv with --set data.source=table --set data.column=1",
            files::quoted(path)
        )
    } else if is_utf8 && text.chars().all(is_plain) {
        "is text, not an array of token ids; set `data.source` = \"text\" to read it as a text".to_string()
    } else if let Some((what, remedy)) = files::recognised(path, head) {
        format!("looks like {what}, not an array of token ids; {remedy}")
    } else if let Some(bytes) = size_of_floats(head) {
        format!(
            "looks like float{}, not an array of token ids; to read numbers in bins, write each on its own line with \
             `python3 -c 'import sys, numpy; numpy.savetxt(sys.argv[2], numpy.fromfile(sys.argv[1], \"<f{bytes}\"))' {} \
             NEW.csv`, and set `data.column` = 1 and `data.bins` = 32",
            8 * bytes,
            files::quoted(path)
        )
    } else {
        return Ok(());
    };
    Err(Error::file(path, format!("{problem}; if it does hold token ids, set `data.dtype` to their type")))
}

/// Returns the size in bytes of the floats that a file seems to hold: all are 0 or have common exponents, and most differ.
fn size_of_floats(head: &[u8]) -> Option<usize> {
    /// The minimum number of values, because a few ids may look like floats.
    const MIN_VALUES: usize = 16;
    let are_floats = |values: Vec<f64>| {
        let is_common = |value: &f64| *value == 0.0 || (1e-9..1e9).contains(&value.abs());
        let different: HashSet<u64> = values.iter().map(|value| value.to_bits()).collect();
        values.len() >= MIN_VALUES && 2 * different.len() > values.len() && values.iter().all(is_common)
    };
    let (four, eight) = (head.as_chunks().0, head.as_chunks().0);
    // Two floats of 4 bytes are a common one of 8 bytes.
    if are_floats(four.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect()) {
        return Some(4);
    }
    are_floats(eight.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()).then_some(8)
}

/// Infers the type of ids: the upper parts of most ids in 4 or 8 bytes are 0.
fn inferred(path: &Path, head: &[u8], length: u64) -> Result<Integer> {
    let words: Vec<u16> = head.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
    let part = |size: usize, index: usize| words.iter().copied().skip(index).step_by(size);
    let is_zero = |mut words: Box<dyn Iterator<Item = u16> + '_>| words.all(|word| word == 0);
    let varies = |size: usize| part(size, 0).any(|word| Some(&word) != words.first());
    if length.is_multiple_of(8)
        && words.len() >= 8
        && varies(4)
        && [2, 3].into_iter().all(|index| is_zero(Box::new(part(4, index))))
        && part(4, 1).all(|word| word < MAX_UPPER_HALF)
    {
        return Ok(Integer::unsigned(8));
    }
    let largest = |index: usize| part(2, index).max().unwrap_or(0);
    let is_upper = largest(1) == 0 || largest(1) < MAX_UPPER_HALF && largest(0) >= 256;
    if length.is_multiple_of(4) && words.len() >= 4 && varies(2) && is_upper {
        return Ok(Integer::unsigned(4));
    }
    // In the wrong byte order, small ids become multiples of 256.
    let swapped = words.iter().filter(|word| word.swap_bytes() < 1 << 12).count();
    let small = words.iter().filter(|&&word| word < 1 << 12).count();
    if words.len() >= 8 && swapped == words.len() && 2 * small < words.len() {
        let file = files::quoted(path);
        let read = "import sys, numpy; numpy.save(sys.argv[2], numpy.fromfile(sys.argv[1], \">u2\"))";
        let problem = format!(
            "looks like big-endian uint16; convert it with `python3 -c '{read}' {file} NEW.npy`, or set \
             `data.dtype` = \"uint16\" if it is little-endian"
        );
        return Err(Error::file(path, problem));
    }
    Ok(Integer::unsigned(2))
}

/// Returns the name of an integer type, as in NumPy.
pub(super) fn name(integer: Integer) -> String {
    let sign = if integer.is_signed { "int" } else { "uint" };
    let order = if integer.is_big_endian && integer.bytes > 1 { "big-endian " } else { "" };
    format!("{order}{sign}{}", 8 * integer.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: Dtype, bytes: &[u8]) -> Result<ArrayLayout> {
        layout("a.bin".as_ref(), dtype, bytes, bytes.len() as u64)
    }

    fn bytes<const N: usize>(ids: &[u32], encode: fn(u32) -> [u8; N]) -> Vec<u8> {
        ids.iter().flat_map(|&id| encode(id)).collect()
    }

    #[test]
    fn types_are_inferred_from_the_values() {
        let gpt2 = [5962, 22307, 25, 198, 8421, 356, 5120, 597, 2252, 11, 3285, 502];
        let large = [128_000, 9906, 1917, 13, 70_002, 311, 2, 65_540];
        let few = [1, 0, 3, 2, 2, 1, 0, 0, 1, 3, 2, 0];
        for ids in [&gpt2[..], &large, &few] {
            let four = read(Dtype::Auto, &bytes(ids, u32::to_le_bytes)).unwrap();
            assert_eq!((four.integer, four.shape), (Integer::unsigned(4), vec![ids.len()]), "{ids:?}");
            let eight = read(Dtype::Auto, &bytes(ids, |id| u64::from(id).to_le_bytes())).unwrap();
            assert_eq!(eight.integer, Integer::unsigned(8), "{ids:?}");
        }
        for ids in [&gpt2[..], &few, &[7; 12], &[0, 65_000, 0, 3]] {
            let two = read(Dtype::Auto, &bytes(ids, |id| (id as u16).to_le_bytes())).unwrap();
            assert_eq!((two.integer, two.shape), (Integer::unsigned(2), vec![ids.len()]), "{ids:?}");
        }
        let big = read(Dtype::Auto, &bytes(&few, |id| (id as u16 * 13 + 5).to_be_bytes())).unwrap_err();
        assert!(big.to_string().contains("looks like big-endian uint16"), "{big}");
        let given = read(Dtype::Uint8, &bytes(&few, u32::to_le_bytes)).unwrap();
        assert_eq!((given.integer, given.shape), (Integer::unsigned(1), vec![48]));
    }

    #[test]
    fn other_files_are_refused_unless_the_type_is_given() {
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0, 0, 0, 13]].concat();
        let text = b"To be, or not to be, that is the question.\n".as_slice();
        for (bytes, expected) in [
            (text, "a.bin: is text, not an array of token ids; set `data.source` = \"text\""),
            (&png, "a.bin: looks like a PNG image, not an array of token ids; "),
            (b"SQLite format 3\0\x10\0", "looks like an SQLite database, not"),
            (b"PK\x03\x04\x14\0\0\0", "a zip archive (also .docx, .xlsx, .npz and .pt), not an array"),
            (b"PAR1\x15\x04\x15\0", "Parquet, not an array of token ids; "),
        ] {
            let message = read(Dtype::Auto, bytes).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("set `data.dtype`"), "{message}");
            assert!(read(Dtype::Uint8, bytes).is_ok());
        }
        let numbers = Vec::from_iter((0..40).map(|at| f64::from(at).sin() * 20.0));
        let single = numbers.iter().flat_map(|&number| (number as f32).to_le_bytes()).collect::<Vec<_>>();
        let double = numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        for (bytes, name) in [(single, "float32"), (double, "float64")] {
            let message = read(Dtype::Auto, &bytes).unwrap_err().to_string();
            assert!(message.contains(&format!("looks like {name}, not")), "{message}");
        }
        let odd = read(Dtype::Auto, &[1, 0, 2, 0, 3]).unwrap_err().to_string();
        let expected = "a.bin: has 5 bytes, which is not a multiple of 2, the size of uint16; copy";
        assert!(odd.starts_with(expected), "{odd}");
    }

    #[test]
    fn headers_of_llm_c_are_skipped_and_checked() {
        let header = |magic: u32, count: u32| {
            let mut header = [magic, 1, count].map(u32::to_le_bytes).concat();
            header.resize(1024, 0);
            header
        };
        let ids = [3, 1, 4, 1, 5];
        let two = [header(20_240_520, 5), bytes(&ids, |id| (id as u16).to_le_bytes())].concat();
        let four = [header(20_240_801, 5), bytes(&ids, u32::to_le_bytes)].concat();
        let mut seventh = four.clone();
        seventh[4] = 7;
        for (file, bytes) in [(two, 2), (four, 4), (seventh, 4)] {
            let layout = read(Dtype::Auto, &file).unwrap();
            assert_eq!((layout.integer.bytes, layout.start, layout.shape), (bytes, 1024, vec![5]));
            let cut = read(Dtype::Auto, &file[..file.len() - 2]).unwrap_err().to_string();
            assert!(cut.contains("its header counts 5 tokens"), "{cut}");
        }
    }
}
