//! The types of tensors, and their conversion to 32-bit floats.
//!
//! A quantised tensor is a sequence of blocks of 32 values, each with a scale $d$ in half precision. A value is $d q$ in
//! `Q8_0`, $d (q - 8)$ in `Q4_0`, and $d q + m$ with an offset $m$ in `Q4_1`. A byte holds two 4-bit integers $q$: those
//! of value $i$ (low bits) and of value $i + 16$ (high bits).
//!
//! A block of a type with `K` has 256 values in groups with integer scales $s$ of their own. A value is
//! $d s q - d' s' $ in `Q4_K` and `Q5_K`, with groups of 32, and $d s (q - 32)$ in `Q6_K`, with groups of 16. The bits of
//! $q$ beyond the fourth are in bytes of their own.

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
    Q4K,
    Q5K,
    Q6K,
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
    (12, "Q4_K", Some(ElementType::Q4K)),
    (13, "Q5_K", Some(ElementType::Q5K)),
    (14, "Q6_K", Some(ElementType::Q6K)),
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
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
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
            Self::Q4K => {
                for block in bytes.as_chunks::<144>().0 {
                    extend_by_groups(block, &block[16..], &[0; 32], values);
                }
            }
            Self::Q5K => {
                for block in bytes.as_chunks::<176>().0 {
                    extend_by_groups(block, &block[48..], &block[16..48], values);
                }
            }
            Self::Q6K => {
                for block in bytes.as_chunks::<210>().0 {
                    extend_by_short_groups(block, values);
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

/// Decodes a block of `Q4_K` or `Q5_K`: $d$, $d'$, scales, and the integers with their low four bits in `low` and the fifth
/// bit of group $g$ in bit $g$ of `high`.
fn extend_by_groups(block: &[u8], low: &[u8], high: &[u8], values: &mut Vec<f32>) {
    let (scale, offset) = (half(block, 0), half(block, 2));
    for (pair, bytes) in low.chunks_exact(32).enumerate() {
        for (is_high, group) in [2 * pair, 2 * pair + 1].into_iter().enumerate() {
            let (own_scale, own_offset) = six_bit_scales(&block[4..16], group);
            let (scale, offset) = (scale * f32::from(own_scale), offset * f32::from(own_offset));
            values.extend(bytes.iter().zip(high).map(|(byte, high)| {
                let integer = (byte >> (4 * is_high) & 15) | (high >> group & 1) << 4;
                scale * f32::from(integer) - offset
            }));
        }
    }
}

/// Returns the scale and the offset of one of eight groups, which are packed as 6-bit integers. The first four of each are
/// the low bits of bytes; their two high bits belong to the last four.
fn six_bit_scales(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let both = packed[group + 4];
    (both & 15 | packed[group - 4] >> 6 << 4, both >> 4 | packed[group] >> 6 << 4)
}

/// Decodes a block of `Q6_K`: the low four bits, the high two bits, the scales and $d$.
fn extend_by_short_groups(block: &[u8; 210], values: &mut Vec<f32>) {
    let scale = half(block, 208);
    for value in 0..256 {
        // A half of the block has four quarters of 32 values: the low bits of quarters 0 and 2 are in the same bytes, and
        // so are those of 1 and 3. The high bits of all four are in the same bytes.
        let (part, quarter, at) = (value / 128, value / 32 % 4, value % 32);
        let low = block[64 * part + 32 * (quarter % 2) + at] >> (4 * (quarter / 2)) & 15;
        let high = block[128 + 32 * part + at] >> (2 * quarter) & 3;
        let own_scale = block[192 + value / 16] as i8;
        values.push(scale * f32::from(own_scale) * (f32::from(low | high << 4) - 32.0));
    }
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

    #[test]
    fn blocks_of_groups_are_dequantised() {
        // The scale is 0.5 and the offset 2. Groups 0 and 7 have the scales 3 and 33 and the offsets 1 and 50.
        let mut scales = [0; 12];
        (scales[0], scales[4]) = (3, 1);
        (scales[3], scales[7], scales[11]) = (2 << 6, 3 << 6, 1 | 2 << 4);
        let start = [&[0, 0x38, 0, 0x40], &scales[..]].concat();
        let low = [[0x95; 32], [0; 32], [0; 32], [0xa6; 32]].concat();
        let values = decoded(ElementType::Q4K, &[&start[..], &low].concat());
        assert_eq!((values[0], values[31], values[32]), (5.5, 5.5, 0.0));
        assert_eq!((values[224], values[255], values.len()), (65.0, 65.0, 256));
        // The fifth bit adds 16 to group 0 of the first value and to group 7 of the last one.
        let mut high = [0; 32];
        (high[0], high[31]) = (1, 1 << 7);
        let values = decoded(ElementType::Q5K, &[&start[..], &high, &low].concat());
        assert_eq!((values[0], values[1], values[254], values[255]), (29.5, 5.5, 65.0, 329.0));
    }

    #[test]
    fn blocks_of_short_groups_are_dequantised() {
        // The low bits are 5 in the first quarter and 10 in the third one. Both have values 1 whose high bits are 2.
        let mut block = [0u8; 210];
        block[..32].fill(0xa5);
        block[129] = 2 | 2 << 4;
        block[192..208].fill(1);
        (block[193], block[197]) = (4, 0xfe);
        (block[208], block[209]) = (0, 0x38);
        let values = decoded(ElementType::Q6K, &block);
        assert_eq!((values[0], values[1], values[16], values[32]), (-13.5, 2.5, -54.0, -16.0));
        assert_eq!((values[64], values[65], values[80], values.len()), (-11.0, 5.0, 22.0, 256));
    }
}
