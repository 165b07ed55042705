//! The header of a NumPy file (`.npy`).
//!
//! Six bytes of magic number, two of version, the length of the header, and the header: a Python dictionary with the
//! type, the order and the shape of the array (NumPy enhancement proposal 1).

use std::path::Path;

use super::{ArrayFormat, ArrayLayout};
use crate::data::ids::Integer;
use crate::error::{Error, Result};
use crate::files::quoted;

/// The first bytes of a NumPy file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Returns the layout of the array in a file that begins with `head`.
///
/// # Errors
/// Returns an error if the header is damaged, or if the array does not hold integers in one or two dimensions.
pub(super) fn layout(path: &Path, head: &[u8]) -> Result<ArrayLayout> {
    let damaged = || Error::file(path, "has a damaged NumPy header; save the array again with `numpy.save`");
    let (size, after) = match (head.get(6), head.get(8..)) {
        (Some(1), Some([a, b, ..])) => (u16::from_le_bytes([*a, *b]).into(), 10),
        (Some(2 | 3), Some([a, b, c, d, ..])) => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        _ => return Err(damaged()),
    };
    let header = head.get(after..after + size).and_then(|header| std::str::from_utf8(header).ok());
    let header = header.ok_or_else(damaged)?;
    let value = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start())
    };
    let (descr, order, shape) = (value("descr"), value("fortran_order"), value("shape"));
    let (descr, order, shape) = descr
        .zip(order)
        .zip(shape)
        .map(|((descr, order), shape)| (descr, order, shape))
        .ok_or_else(damaged)?;
    let integer = integer(path, descr)?;
    let sizes = shape.strip_prefix('(').and_then(|shape| shape.split_once(')')).ok_or_else(damaged)?.0;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape = sizes.map(str::parse).collect::<Result<Vec<usize>, _>>().map_err(|_| damaged())?;
    if !matches!(shape.len(), 1 | 2) {
        let problem = format!(
            "is an array with {} dimensions; reshape it to one dimension (a long sequence) or two (a sequence \
             in each row)",
            shape.len()
        );
        return Err(Error::file(path, problem));
    }
    // An array of one row or one column has the same bytes in both orders.
    if order.starts_with("True") && shape.iter().filter(|&&size| size > 1).count() > 1 {
        let file = quoted(path);
        let read = "import sys, numpy; a = numpy.load(sys.argv[1]); \
                    numpy.save(sys.argv[2], numpy.ascontiguousarray(a))";
        let problem = format!(
            "is in Fortran order, column by column; convert it with `python3 -c '{read}' {file} NEW.npy`"
        );
        return Err(Error::file(path, problem));
    }
    Ok(ArrayLayout { format: ArrayFormat::Npy, integer, start: (after + size) as u64, shape })
}

/// Returns the integer type of an array, from the value of `descr`.
fn integer(path: &Path, descr: &str) -> Result<Integer> {
    let refused = |name: &str, remedy: &str| {
        Err(Error::file(path, format!("is an array of {name}, which are not token ids; {remedy}")))
    };
    let Some(code) = descr.strip_prefix('\'').and_then(|rest| rest.split('\'').next()) else {
        return refused("records with several fields", "save one of its fields");
    };
    let (order, kind) = match code.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|" | "="), kind)) => (order, kind),
        _ => ("|", code),
    };
    let (kind, size) = kind.split_at_checked(1).unwrap_or((kind, ""));
    match (kind, size) {
        ("u" | "i" | "b", "1" | "2" | "4" | "8") => Ok(Integer {
            bytes: size.parse().expect("one of four digits"),
            is_signed: kind == "i",
            is_big_endian: order == ">",
        }),
        ("f", _) => {
            let bits = size.parse().map_or(0, |bytes: usize| 8 * bytes);
            let remedy = "quantise them, for example with `numpy.digitize`, and save integers";
            refused(&format!("floats (float{bits})"), remedy)
        }
        ("c", _) => refused("complex numbers", "save integers"),
        ("O", _) => {
            let remedy = "save integers as `numpy.uint32`, texts as a text file, and lists as JSON Lines";
            refused("Python objects", remedy)
        }
        ("U" | "S", _) => refused("strings", "write them as a text file or a table"),
        ("M" | "m", _) => refused("dates or durations", "save integers"),
        _ => refused(&format!("`{code}`"), "save integers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(descr: &str, order: &str, shape: &str, version: u8) -> Result<ArrayLayout> {
        let header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}    \n");
        let length = header.len() as u32;
        let length =
            if version == 1 { (length as u16).to_le_bytes().to_vec() } else { length.to_le_bytes().to_vec() };
        let head = [MAGIC, &[version, 0], &length, header.as_bytes(), &[9, 9]].concat();
        let layout = layout("a.npy".as_ref(), &head)?;
        assert_eq!(layout.start as usize, head.len() - 2);
        Ok(layout)
    }

    #[test]
    fn integers_in_one_or_two_dimensions_are_read() {
        for (descr, bytes, is_signed, is_big_endian) in [
            ("'<u2'", 2, false, false),
            ("'>i4'", 4, true, true),
            ("'|u1'", 1, false, false),
            ("'|b1'", 1, false, false),
            ("'<i8'", 8, true, false),
        ] {
            for version in [1, 2, 3] {
                let layout = read(descr, "False", "(5, 7)", version).unwrap();
                assert_eq!(layout.integer, Integer { bytes, is_signed, is_big_endian });
                assert_eq!(layout.shape, [5, 7]);
            }
        }
        assert_eq!(read("'<u2'", "True", "(11,)", 1).unwrap().shape, [11]);
        assert_eq!(read("'<u2'", "True", "(11, 1)", 1).unwrap().shape, [11, 1]);
    }

    #[test]
    fn other_arrays_are_refused_by_their_type() {
        let message = |descr, order, shape| read(descr, order, shape, 1).unwrap_err().to_string();
        for (descr, name) in [
            ("'<f4'", "floats (float32)"),
            ("'<c16'", "complex numbers"),
            ("'|O'", "Python objects"),
            ("'<U7'", "strings"),
            ("'<M8[ns]'", "dates or durations"),
            ("[('a', '<i4'), ('b', '<f8')]", "records with several fields"),
        ] {
            let message = message(descr, "False", "(5,)");
            assert!(
                message.starts_with(&format!("a.npy: is an array of {name}, which are not")),
                "{message}"
            );
        }
        assert!(message("'<u2'", "True", "(5, 7)").contains("is in Fortran order"));
        assert!(message("'<u2'", "False", "(2, 3, 5)").contains("3 dimensions"));
        assert!(message("'<u2'", "False", "()").contains("0 dimensions"));
        assert!(message("'<u2'", "False", "(x,)").contains("damaged"));
        assert!(layout("a.npy".as_ref(), b"\x93NUMPY\x01\0\xff\xff{").is_err());
    }
}
