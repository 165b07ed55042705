//! The integers of a binary file: their width, sign and byte order.

/// The type of the integers in a binary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Integer {
    /// The size in bytes: 1, 2, 4 or 8.
    pub bytes: usize,
    pub is_signed: bool,
    pub is_big_endian: bool,
}

impl Integer {
    /// Returns the little-endian unsigned integer of this size.
    pub(crate) fn unsigned(bytes: usize) -> Self {
        Self { bytes, is_signed: false, is_big_endian: false }
    }

    /// Decodes the integers in `bytes`. Negative ones become larger than any id.
    pub(crate) fn decode(self, bytes: &[u8], mut each: impl FnMut(u64)) {
        /// Decodes integers of `N` bytes by the function for their byte order.
        fn decode<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> u64, each: &mut impl FnMut(u64)) {
            bytes.as_chunks().0.iter().for_each(|bytes| each(number(*bytes)));
        }
        let each = &mut each;
        match (self.bytes, self.is_signed, self.is_big_endian) {
            (1, false, _) => decode(bytes, |it| u8::from_le_bytes(it).into(), each),
            (1, true, _) => decode(bytes, |it| i8::from_le_bytes(it) as u64, each),
            (2, false, false) => decode(bytes, |it| u16::from_le_bytes(it).into(), each),
            (2, true, false) => decode(bytes, |it| i16::from_le_bytes(it) as u64, each),
            (2, false, true) => decode(bytes, |it| u16::from_be_bytes(it).into(), each),
            (2, true, true) => decode(bytes, |it| i16::from_be_bytes(it) as u64, each),
            (4, false, false) => decode(bytes, |it| u32::from_le_bytes(it).into(), each),
            (4, true, false) => decode(bytes, |it| i32::from_le_bytes(it) as u64, each),
            (4, false, true) => decode(bytes, |it| u32::from_be_bytes(it).into(), each),
            (4, true, true) => decode(bytes, |it| i32::from_be_bytes(it) as u64, each),
            (_, _, false) => decode(bytes, u64::from_le_bytes, each),
            (_, _, true) => decode(bytes, u64::from_be_bytes, each),
        }
    }
}
