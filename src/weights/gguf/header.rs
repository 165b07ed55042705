//! The header of a GGUF file: the metadata, and the type, shape and position of each tensor.
//!
//! Lengths and counts in a file may be damaged, so each is compared with the rest of the file before it is used.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::TensorData;
use serde_json::Value;

use super::element::ElementType;
use crate::error::{Error, Result};
use crate::weights::file::{LazyTensor, MAX_HEADER_END, WeightsFile};

/// The first bytes of a file.
const MAGIC: &[u8] = b"GGUF";
/// The maximum number of keys, and of tensors.
const MAX_ENTRIES: u64 = 1 << 16;
/// The maximum total length of all lists.
const MAX_LISTED: u64 = 1 << 23;
/// The number of bytes that are read at once.
const READ_AHEAD: usize = 1 << 16;
/// The type number of a list.
const LIST: u32 = 9;

/// A header.
#[derive(Debug)]
pub(super) struct GgufHeader {
    /// The metadata by key.
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<StoredTensor>,
}

/// A tensor in a file.
#[derive(Debug, Clone)]
pub(super) struct StoredTensor {
    pub name: String,
    /// The shape, slowest dimension first.
    pub shape: Vec<usize>,
    element: ElementType,
    bytes: Range<usize>,
}

impl StoredTensor {
    /// Returns the tensor as it is in the file, to be read on demand.
    pub fn lazy(&self, file: &WeightsFile) -> LazyTensor {
        let (stored, file) = (self.clone(), file.clone());
        LazyTensor::new(self.name.clone(), self.shape.clone(), move || {
            let values = stored.element.read(&file, stored.bytes.clone())?;
            Ok(TensorData::new(values, stored.shape.clone()))
        })
    }
}

/// Returns true if a file starts like a GGUF file.
pub(super) fn is_gguf(file: &WeightsFile) -> Result<bool> {
    Ok(file.bytes(0..MAGIC.len())? == MAGIC)
}

impl GgufHeader {
    /// Reads the header of a GGUF file.
    ///
    /// # Errors
    /// Returns an error if the header is damaged, of another version, or has a tensor whose type is not supported.
    pub fn read(file: &WeightsFile) -> Result<Self> {
        let mut reader = HeaderReader { file, buffer: Vec::new(), start: 0, at: MAGIC.len(), listed: 0 };
        match u32::from_le_bytes(reader.number()?) {
            2 | 3 => {}
            version if (1..=3).contains(&version.swap_bytes()) => {
                let remedy = "convert it with `gguf-convert-endian FILE little` of the Python package gguf";
                return Err(file.error(format!("is big-endian; {remedy}")));
            }
            version => {
                return Err(file.error(format!(
                    "is GGUF of version {version}, but only the versions 2 and 3 are supported; convert the model again"
                )));
            }
        }
        let [tensors, keys] = [reader.count("tensors")?, reader.count("keys")?];
        let mut metadata = BTreeMap::new();
        for _ in 0..keys {
            let key = reader.text()?;
            let kind = u32::from_le_bytes(reader.number()?);
            let value = reader.value(kind)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(invalid(file, &format!("it has the key `{key}` twice")));
            }
        }
        let declared = (0..tensors).map(|_| reader.tensor()).collect::<Result<Vec<_>>>()?;
        let alignment = metadata.get("general.alignment").map_or(Some(32), Value::as_u64);
        let alignment = alignment.filter(|alignment| alignment.is_power_of_two() && *alignment <= 1 << 20);
        let alignment =
            alignment.ok_or_else(|| invalid(file, "`general.alignment` is not a power of two"))?;
        let first = reader.at.next_multiple_of(alignment as usize);
        let tensors = declared.into_iter().map(|declared| declared.locate(file, first));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        refuse_overlaps(file, &tensors)?;
        Ok(Self { metadata, tensors })
    }

    /// Returns the text of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.as_str()
    }

    /// Returns the non-negative integer of a key.
    pub fn size(&self, key: &str) -> Option<usize> {
        self.metadata.get(key)?.as_u64()?.try_into().ok()
    }

    /// Returns the values of a list; empty if the key is missing.
    pub fn list(&self, key: &str) -> &[Value] {
        self.metadata.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns a tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

/// Refuses tensors that share a name or bytes.
fn refuse_overlaps(file: &WeightsFile, tensors: &[StoredTensor]) -> Result<()> {
    let mut sorted: Vec<_> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| tensor.bytes.start);
    if let Some([a, b]) = sorted.array_windows().find(|[a, b]| a.bytes.end > b.bytes.start) {
        return Err(invalid(file, &format!("`{}` and `{}` overlap", a.name, b.name)));
    }
    sorted.sort_by_key(|tensor| &tensor.name);
    match sorted.array_windows().find(|[a, b]| a.name == b.name) {
        Some([a, _]) => Err(invalid(file, &format!("it has the tensor `{}` twice", a.name))),
        None => Ok(()),
    }
}

/// The error for a damaged file.
fn invalid(file: &WeightsFile, problem: &str) -> Error {
    file.error(format!("is not a valid GGUF file: {problem}; copy or download it again"))
}

/// A tensor as the header declares it.
struct DeclaredTensor {
    name: String,
    /// The shape, fastest dimension first.
    sizes: Vec<u64>,
    element: u32,
    /// The offset from the end of the header.
    offset: u64,
}

impl DeclaredTensor {
    /// Determines the bytes of the tensor; `first` is the position of the first tensor.
    fn locate(self, file: &WeightsFile, first: usize) -> Result<StoredTensor> {
        let Self { name, sizes, element, offset } = self;
        let element = ElementType::numbered(element).map_err(|element| {
            file.error(format!(
                "`{name}` has the type {element}, but the supported types are {}; use a file with one of these",
                ElementType::supported()
            ))
        })?;
        let (values, bytes) = element.block();
        let length = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let is_whole = |length: &u64| *length > 0 && sizes[0].is_multiple_of(values as u64);
        let Some(length) = length.filter(is_whole) else {
            return Err(invalid(file, &format!("`{name}` has the impossible shape {sizes:?}")));
        };
        let start = (first as u64).checked_add(offset);
        let end =
            (length / values as u64).checked_mul(bytes as u64).and_then(|length| length.checked_add(start?));
        match (start, end) {
            (Some(start), Some(end)) if end <= file.length() as u64 => {
                let shape = sizes.iter().rev().map(|&size| size as usize).collect();
                Ok(StoredTensor { name, shape, element, bytes: start as usize..end as usize })
            }
            _ => Err(invalid(file, &format!("`{name}` ends after the end of the file"))),
        }
    }
}

/// Reads a header from its start.
struct HeaderReader<'a> {
    file: &'a WeightsFile,
    /// The bytes of the file from `start`.
    buffer: Vec<u8>,
    start: usize,
    /// The position in the file.
    at: usize,
    /// The length of all lists so far.
    listed: u64,
}

impl HeaderReader<'_> {
    fn invalid(&self, problem: &str) -> Error {
        invalid(self.file, problem)
    }

    /// Returns the next bytes.
    fn take(&mut self, length: u64) -> Result<&[u8]> {
        let end = (self.at as u64).saturating_add(length);
        if end > self.file.length() as u64 {
            return Err(self.invalid("it ends within its header"));
        }
        if end > MAX_HEADER_END as u64 {
            return Err(self.invalid("its header is too long"));
        }
        let (at, end) = (self.at, end as usize);
        if end > self.start + self.buffer.len() {
            self.buffer = self.file.bytes(at..end.max(at + READ_AHEAD))?;
            self.start = at;
        }
        self.at = end;
        Ok(&self.buffer[at - self.start..end - self.start])
    }

    /// Returns the next bytes as an array.
    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N as u64)?;
        Ok(*bytes.first_chunk().expect("take returns the requested length"))
    }

    fn count(&mut self, what: &str) -> Result<u64> {
        let count = u64::from_le_bytes(self.number()?);
        if count > MAX_ENTRIES {
            Err(self.invalid(&format!("it declares {count} {what}")))
        } else {
            Ok(count)
        }
    }

    fn text(&mut self) -> Result<String> {
        let length = u64::from_le_bytes(self.number()?);
        let text = String::from_utf8(self.take(length)?.to_vec());
        text.map_err(|_| self.invalid("a text in its header is not UTF-8"))
    }

    /// Reads a value of the type with the number `kind`.
    fn value(&mut self, kind: u32) -> Result<Value> {
        Ok(match kind {
            0 => u8::from_le_bytes(self.number()?).into(),
            1 => i8::from_le_bytes(self.number()?).into(),
            2 => u16::from_le_bytes(self.number()?).into(),
            3 => i16::from_le_bytes(self.number()?).into(),
            4 => u32::from_le_bytes(self.number()?).into(),
            5 => i32::from_le_bytes(self.number()?).into(),
            // The shortest decimal number, such as 1e-5, is the one from which the file was made.
            6 => f32::from_le_bytes(self.number()?).to_string().parse::<f64>().unwrap_or(f64::NAN).into(),
            7 => (self.number::<1>()? != [0]).into(),
            8 => self.text()?.into(),
            LIST => {
                let kind = u32::from_le_bytes(self.number()?);
                let length = u64::from_le_bytes(self.number()?);
                self.listed = self.listed.saturating_add(length);
                if kind == LIST || self.listed > MAX_LISTED {
                    return Err(self.invalid("it has lists of lists, or lists that are too long"));
                }
                Value::Array((0..length).map(|_| self.value(kind)).collect::<Result<_>>()?)
            }
            10 => u64::from_le_bytes(self.number()?).into(),
            11 => i64::from_le_bytes(self.number()?).into(),
            12 => f64::from_le_bytes(self.number()?).into(),
            _ => return Err(self.invalid(&format!("a value has the unknown type {kind}"))),
        })
    }

    fn tensor(&mut self) -> Result<DeclaredTensor> {
        let name = self.text()?;
        let rank = u32::from_le_bytes(self.number()?);
        if !(1..=4).contains(&rank) {
            return Err(self.invalid(&format!("`{name}` has {rank} dimensions")));
        }
        let sizes = (0..rank).map(|_| self.number().map(u64::from_le_bytes)).collect::<Result<_>>()?;
        let element = u32::from_le_bytes(self.number()?);
        Ok(DeclaredTensor { name, sizes, element, offset: u64::from_le_bytes(self.number()?) })
    }
}
