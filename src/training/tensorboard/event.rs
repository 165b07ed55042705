//! A record of an event file: an `Event` encoded in Protocol Buffers, framed as in TFRecord.
//!
//! A record is the length of its data (eight bytes, little-endian), the checksum of the length, the data, and the
//! checksum of the data. A checksum is CRC-32C (RFC 3720), rotated by fifteen bits, plus a constant. Only a few fields
//! of an event are ever written. TensorFlow's `event.proto`, `summary.proto` and `tensor.proto` define their numbers.

use crc::{CRC_32_ISCSI, Crc};

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The value of a tag.
#[derive(Debug)]
pub(super) enum Value<'a> {
    /// A point of a curve.
    Scalar(f32),
    /// A text in Markdown.
    Text(&'a str),
    /// A PNG file.
    Png(&'a [u8]),
}

/// Returns the first event of a file, which names the version of the format.
pub(super) fn version_event(time: f64) -> Vec<u8> {
    [double(1, time), bytes(3, b"brain.Event:2")].concat()
}

/// Returns an event with values at a step, written at a time in seconds since 1970.
pub(super) fn event(time: f64, step: u64, values: &[(&str, Value)]) -> Vec<u8> {
    let values =
        values.iter().map(|(tag, value)| bytes(1, &[bytes(1, tag.as_bytes()), field(value)].concat()));
    [double(1, time), number(2, step), bytes(5, &values.collect::<Vec<_>>().concat())].concat()
}

/// Returns the bytes of an event after its time, which comes first.
pub(super) fn without_time(event: &[u8]) -> &[u8] {
    event.get(9..).unwrap_or_default()
}

/// Returns true if an event belongs to this step and its first value has this tag.
pub(super) fn begins_with(event: &[u8], step: u64, tag: &str) -> bool {
    let tag = bytes(1, tag.as_bytes());
    let Some(rest) = without_time(event).strip_prefix(&number(2, step)[..]) else { return false };
    // Skips the keys and lengths of two messages, at most eleven bytes each.
    rest.windows(tag.len()).take(22).any(|window| window == tag)
}

fn field(value: &Value) -> Vec<u8> {
    match value {
        Value::Scalar(scalar) => [key(2, 5), scalar.to_le_bytes().to_vec()].concat(),
        Value::Text(text) => {
            // A tensor of one string (type 7), which the plugin "text" displays.
            let plugin = bytes(9, &bytes(1, &bytes(1, b"text")));
            [bytes(8, &[number(1, 7), bytes(8, text.as_bytes())].concat()), plugin].concat()
        }
        Value::Png(png) => {
            // The first chunk of a PNG holds width and height. Colour space 3 is RGB.
            let size = |at: usize| {
                png.get(at..at + 4)
                    .map_or(0, |size| size.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
            };
            bytes(4, &[number(1, size(20)), number(2, size(16)), number(3, 3), bytes(4, png)].concat())
        }
    }
}

fn key(field: u64, kind: u64) -> Vec<u8> {
    varint(field << 3 | kind)
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [key(field, 0), varint(value)].concat()
}

fn double(field: u64, value: f64) -> Vec<u8> {
    [key(field, 1), value.to_le_bytes().to_vec()].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [key(field, 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// Encodes seven bits per byte, the lowest first. The eighth bit marks that more bytes follow.
fn varint(mut value: u64) -> Vec<u8> {
    let mut written = Vec::new();
    while value >= 0x80 {
        written.push(value as u8 | 0x80);
        value >>= 7;
    }
    written.push(value as u8);
    written
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    CRC.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Returns the record of an event.
pub(super) fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &checksum(&length), event, &checksum(event)].concat()
}

/// Returns the events of the intact records at the beginning of a file, each with the end of its record.
pub(super) fn events(file: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (length, rest) = file.get(at..)?.split_first_chunk::<8>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let size = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (event, rest) = rest.split_at_checked(size)?;
        let is_intact = *sum == checksum(length) && rest.starts_with(&checksum(event));
        at += 16 + size;
        is_intact.then_some((event, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_events_match_the_format() {
        // RFC 3720, B.4: the CRC of thirty-two zeros is 0x8a9136aa.
        assert_eq!(CRC.checksum(&[0; 32]), 0x8a91_36aa);
        let written = record(&[0; 32]);
        assert_eq!(written.len(), 8 + 4 + 32 + 4);
        assert_eq!(written[..8], [32, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(written[44..], 0x0fd7_fffa_u32.to_le_bytes());
        assert_eq!(varint(300), [0xac, 0x02]);
        let event = event(1.5, 300, &[("loss", Value::Scalar(0.25))]);
        // Field 1 is a double and field 2 a varint. Field 5 is a message that contains a message, whose field 1 is a
        // text and whose field 2 is a float.
        let values = [0x2a, 13, 0x0a, 11, 0x0a, 4, b'l', b'o', b's', b's', 0x15, 0, 0, 0x80, 0x3e];
        assert_eq!(event, [&[0x09], &1.5_f64.to_le_bytes()[..], &[0x10, 0xac, 0x02], &values].concat());
        assert!(begins_with(&event, 300, "loss"));
        assert!(!begins_with(&event, 300, "los") && !begins_with(&event, 301, "loss"));
    }

    #[test]
    fn reading_stops_at_the_first_damaged_record() {
        let [first, second] = [1, 2].map(|step| record(&event(0.0, step, &[("a", Value::Text("b"))])));
        let file = [first.clone(), second].concat();
        let ends = |file: &[u8]| events(file).map(|(_, end)| end).collect::<Vec<_>>();
        assert_eq!(ends(&file), [first.len(), file.len()]);
        for cut in first.len()..file.len() {
            assert_eq!(ends(&file[..cut]), [first.len()], "cut at {cut}");
            let mut flipped = file.clone();
            flipped[cut] ^= 1;
            assert_eq!(ends(&flipped), [first.len()], "flipped at {cut}");
        }
    }
}
