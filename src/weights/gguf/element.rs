//! The types of tensors, and their conversion to 32-bit floats.
//!
//! A quantised tensor is a sequence of blocks of 32 values, each with a scale $d$ in half precision. A value is $d q$ in
//! `Q8_0`, $d (q - 8)$ in `Q4_0`, and $d q + m$ with an offset $m$ in `Q4_1`. A byte holds two 4-bit integers $q$: those
//! of value $i$ (low bits) and of value $i + 16$ (high bits).

use std::ops::Range;

use burn::tensor::{DType, f16};

use crate::error::Result;
use crate::weights::file::{WeightsFile, widen};

/// A supported type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementType {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4_1,
}

/// All types by their number in a file, with their names. Numbers in between are unused.
const TYPES: [(u32, &str, Option<ElementType>); 34] = [
    (0, "F32", Some(ElementType::F32)),
    (1, "F16", Some(ElementType::F16)),
    (2, "Q4_0", Some(ElementType::Q4_0)),
    (3, "Q4_1", Some(ElementType::Q4_1)),
    (6, "Q5_0", None),
    (7, "Q5_1", None),
    (8, "Q8_0", Some(ElementType::Q8_0)),
    (9, "Q8_1", None),
    (10, "Q2_K", None),
    (11, "Q3_K", None),
    (12, "Q4_K", None),
    (13, "Q5_K", None),
    (14, "Q6_K", None),
    (15, "Q8_K", None),
    (16, "IQ2_XXS", None),
    (17, "IQ2_XS", None),
    (18, "IQ3_XXS", None),
    (19, "IQ1_S", None),
    (20, "IQ4_NL", None),
    (21, "IQ3_S", None),
    (22, "IQ2_S", None),
    (23, "IQ4_XS", None),
    (24, "I8", None),
    (25, "I16", None),
    (26, "I32", None),
    (27, "I64", None),
    (28, "F64", None),
    (29, "IQ1_M", None),
    (30, "BF16", Some(ElementType::Bf16)),
    (34, "TQ1_0", None),
    (35, "TQ2_0", None),
    (39, "MXFP4", None),
    (40, "NVFP4", None),
    (41, "Q1_0", None),
];

/// The number of blocks that are decoded at once.
const BLOCKS_AT_ONCE: usize = 1 << 15;

impl ElementType {
    /// Returns the type with a number.
    ///
    /// # Errors
    /// Returns the name of a type that is not supported.
    pub fn numbered(number: u32) -> Result<Self, String> {
        match TYPES.iter().find(|(known, ..)| *known == number) {
            Some((_, _, Some(supported))) => Ok(*supported),
            Some((_, name, None)) => Err(name.to_string()),
            None => Err(number.to_string()),
        }
    }

    /// Returns the names of the supported types.
    pub fn supported() -> String {
        let names: Vec<_> =
            TYPES.iter().filter(|(.., known)| known.is_some()).map(|(_, name, _)| *name).collect();
        names.join(", ")
    }

    /// Returns the number of values and of bytes in a block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
        }
    }

    /// Reads the values in a range of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read(self, file: &WeightsFile, range: Range<usize>) -> Result<Vec<f32>> {
        let (count, size) = self.block();
        let mut values = Vec::with_capacity(range.len() / size * count);
        let step = BLOCKS_AT_ONCE * size;
        for start in range.clone().step_by(step) {
            self.decode(&file.bytes(start..range.end.min(start + step))?, &mut values);
        }
        Ok(values)
    }

    /// Decodes blocks and appends their values.
    fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        match self {
            Self::F32 => widen(bytes, DType::F32, values),
            Self::F16 => widen(bytes, DType::F16, values),
            Self::Bf16 => widen(bytes, DType::BF16, values),
            Self::Q8_0 => {
                for block in bytes.as_chunks::<34>().0 {
                    let scale = half(block, 0);
                    values.extend(block[2..].iter().map(|&byte| scale * f32::from(byte as i8)));
                }
            }
            Self::Q4_0 => {
                for block in bytes.as_chunks::<18>().0 {
                    let scale = half(block, 0);
                    values.extend(nibbles(&block[2..]).map(|integer| scale * (integer - 8.0)));
                }
            }
            Self::Q4_1 => {
                for block in bytes.as_chunks::<20>().0 {
                    let (scale, offset) = (half(block, 0), half(block, 2));
                    values.extend(nibbles(&block[4..]).map(|integer| scale * integer + offset));
                }
            }
        }
    }
}

/// Decodes a number in half precision.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Iterates over 4-bit integers: the low bits of all bytes, then the high bits.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let low = bytes.iter().map(|byte| f32::from(byte & 15));
    low.chain(bytes.iter().map(|byte| f32::from(byte >> 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(element: ElementType, bytes: &[u8]) -> Vec<f32> {
        let mut values = Vec::new();
        element.decode(bytes, &mut values);
        values
    }

    #[test]
    fn floats_are_widened() {
        // 1.5 and -2 in each type.
        assert_eq!(decoded(ElementType::F32, &[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0]), [1.5, -2.0]);
        assert_eq!(decoded(ElementType::F16, &[0, 0x3e, 0, 0xc0]), [1.5, -2.0]);
        assert_eq!(decoded(ElementType::Bf16, &[0xc0, 0x3f, 0, 0xc0]), [1.5, -2.0]);
    }

    #[test]
    fn blocks_are_dequantised() {
        // The scale is 0.5 in the first block and 2 in the second one.
        let blocks = |rest: &[u8]| [&[0, 0x38], rest, &[0, 0x40], rest].concat();
        let bytes: Vec<u8> = (0..32u8).map(|at| at.wrapping_mul(9)).collect();
        let first: Vec<f32> = bytes.iter().map(|&byte| 0.5 * f32::from(byte as i8)).collect();
        let values = decoded(ElementType::Q8_0, &blocks(&bytes));
        assert_eq!(values[..32], first);
        assert_eq!((values[1], values[31], values[33]), (4.5, 11.5, 18.0));
        assert_eq!(values[15], -60.5, "135 is -121");

        // The low bits are 0 to 15, the high bits 15 to 0.
        let nibbles: Vec<u8> = (0..16u8).map(|low| low | (15 - low) << 4).collect();
        let values = decoded(ElementType::Q4_0, &blocks(&nibbles));
        assert_eq!((values[0], values[15], values[16], values[31]), (-4.0, 3.5, 3.5, -4.0));
        assert_eq!((values[32], values[48], values.len()), (-16.0, 14.0, 64));

        // The offset is -1.
        let values = decoded(ElementType::Q4_1, &blocks(&[&[0, 0xbc], &nibbles[..]].concat()));
        assert_eq!((values[0], values[15], values[16], values[31]), (-1.0, 6.5, 6.5, -1.0));
        assert_eq!((values[33], values[63], values.len()), (1.0, -1.0, 64));
    }
}
