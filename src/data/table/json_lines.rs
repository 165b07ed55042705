//! JSON Lines: an array a line, or an object of which one member is read.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::delimited::not_utf8;
use super::row::{Layout, Row};
use crate::data::excerpt::excerpt;
use crate::error::{Error, Result};

/// Reads lines of JSON.
#[derive(Debug)]
pub(super) struct JsonLines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    /// The member that is read of an object.
    member: Option<&'a str>,
    bytes: Vec<u8>,
    /// Lines and bytes before the next line.
    lines: usize,
    offset: u64,
}

impl<'a> JsonLines<'a> {
    pub fn open(path: &'a Path, member: Option<&'a str>) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io("read", path, error))?;
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(JsonLines { path, reader, member, bytes: Vec::new(), lines: 0, offset: 0 })
    }

    pub fn layout(&self) -> Layout<'a> {
        self.member.map_or(Layout::Array, Layout::Member)
    }

    /// Reads the next line that is not blank into `row`; false at the end of the file.
    pub fn read(&mut self, row: &mut Row) -> Result<bool> {
        loop {
            row.clear();
            self.bytes.clear();
            let read = self
                .reader
                .read_until(b'\n', &mut self.bytes)
                .map_err(|error| Error::io("read", self.path, error))?;
            if read == 0 {
                return Ok(false);
            }
            self.lines += 1;
            (row.line, row.byte) = (self.lines, self.offset);
            self.offset += read as u64;
            let text = std::str::from_utf8(&self.bytes)
                .map_err(|error| not_utf8(self.path, row.line, row.byte + error.valid_up_to() as u64))?;
            let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_end();
            if !text.trim_start().is_empty() {
                self.parse(text, row)?;
                return Ok(true);
            }
        }
    }

    fn parse(&self, text: &str, row: &mut Row) -> Result<()> {
        let line = row.line;
        let mut json = serde_json::Deserializer::from_str(text);
        let parsed = json.deserialize_any(Line { row, member: self.member }).and_then(|()| json.end());
        parsed.map_err(|error| {
            // The position is said already, and serde_json counts each line as the first.
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or(&message);
            let message = in_short(message);
            let wanted = match self.member {
                None => "one array of values a line".to_string(),
                Some(name) => format!("one object a line, with a value named `{name}`"),
            };
            let problem = format!("cannot be read: {message}; JSON Lines has {wanted}");
            Error::file(self.path, Some(line), Some(error.column().max(1)), problem)
        })
    }
}

/// What serde_json says, of which a long string that it quotes is cut.
fn in_short(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            let quoted = excerpt(&message[first + 1..last]);
            format!("{}{quoted}{}", &message[..=first], &message[last..])
        }
        _ => message.to_string(),
    }
}

/// Reads an array, or one member of an object, into a row.
struct Line<'a> {
    row: &'a mut Row,
    member: Option<&'a str>,
}

impl<'de> Visitor<'de> for Line<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.member.is_some() { "an object" } else { "an array" })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        if self.member.is_some() {
            return Err(serde::de::Error::invalid_type(serde::de::Unexpected::Seq, &self));
        }
        while array.next_element_seed(Value(self.row))?.is_some() {}
        self.row.trim_end();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Some(member) = self.member else {
            return Err(serde::de::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        while let Some(key) = object.next_key::<String>()? {
            if key == member {
                object.next_value_seed(Value(self.row))?;
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Reads one value into a row: what it says, as text.
struct Value<'a>(&'a mut Row);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or a symbol")
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.push(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.push(&value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.push(&value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.push(&format!("{value:?}"));
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push("");
        Ok(())
    }
}
