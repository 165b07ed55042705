//! A weights file. Its tensors are read one by one, so that memory holds the model once, not twice.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::io::{Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, TensorData, bf16, f16};
use safetensors::tensor::{Dtype, Metadata};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::files::{self, Input, LFS_POINTER, digits, is_lfs_pointer};

/// An open weights file. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WeightsFile {
    path: PathBuf,
    length: usize,
    is_regular: bool,
    source: Arc<Mutex<dyn Readable>>,
}

/// A file, or the bytes of a pipe.
trait Readable: Read + Seek + Send + Debug {}

impl<T: Read + Seek + Send + Debug> Readable for T {}

/// A tensor that is read or computed on demand, so that few are in memory at the same time. Cheap to clone.
#[derive(Clone)]
pub struct LazyTensor {
    /// The name of the tensor.
    pub name: String,
    /// The shape of the tensor.
    pub shape: Vec<usize>,
    read: Rc<dyn Fn() -> Result<TensorData>>,
}

impl WeightsFile {
    /// Opens a file.
    ///
    /// # Errors
    /// Returns an error if the path cannot be read, or is not a file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let input = files::open(&path)?;
        Self::of(input, path)
    }

    /// Opens a file that this program wrote; unlike [`Self::open`], it refuses streams.
    ///
    /// # Errors
    /// Same as [`files::open_own`].
    pub fn open_own(path: PathBuf) -> Result<Self> {
        let file = files::open_own(&path)?;
        Self::of(Input::File(file), path)
    }

    fn of(input: Input, path: PathBuf) -> Result<Self> {
        let is_regular = matches!(input, Input::File(_));
        let (length, source): (u64, Arc<Mutex<dyn Readable>>) = match input {
            Input::Stream(bytes) => (bytes.len() as u64, Arc::new(Mutex::new(Cursor::new(bytes)))),
            Input::File(file) => {
                let length = file.metadata().map_err(|error| Error::io("read", &path, error))?.len();
                (length, Arc::new(Mutex::new(file)))
            }
        };
        Ok(Self { path, length: length as usize, is_regular, source })
    }

    /// Returns true for a regular file, which can be opened again by its path.
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the bytes of a range, clipped to the end of the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has been truncated since it was opened.
    pub fn bytes(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let end = range.end.min(self.length);
        let mut bytes = vec![0; end.saturating_sub(range.start)];
        self.fill(&mut bytes, range.start)?;
        Ok(bytes)
    }

    fn fill(&self, bytes: &mut [u8], start: usize) -> Result<()> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let read = source.seek(SeekFrom::Start(start as u64)).and_then(|_| source.read_exact(bytes));
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                self.error("was truncated while it was being read; wait until it is complete, then try again")
            }
            _ => Error::io("read", &self.path, error),
        })
    }

    /// Calls `each` with consecutive chunks of a range.
    fn for_each_chunk(&self, range: Range<usize>, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES.min(range.len())];
        for start in range.clone().step_by(CHUNK_BYTES) {
            let chunk = &mut buffer[..CHUNK_BYTES.min(range.end - start)];
            self.fill(chunk, start)?;
            each(chunk);
        }
        Ok(())
    }

    /// Returns the SHA-256 of the file, in hexadecimal digits.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn sha256(&self) -> Result<String> {
        let mut hash = Sha256::new();
        self.for_each_chunk(0..self.length, |bytes| hash.update(bytes))?;
        Ok(digits(&hash))
    }

    /// Returns the header of a safetensors file, and the offset of the first tensor.
    fn header(&self) -> Result<(Metadata, usize)> {
        if self.length == 0 {
            return Err(self.error("is empty; copy or download it again"));
        }
        let begin = self.bytes(0..SIGNATURE_BYTES)?;
        if begin.starts_with(b"GGUF") {
            return Err(self.error("is GGUF, not safetensors; run `import` on it, without --format native"));
        }
        if is_lfs_pointer(&begin) {
            return Err(self.error(LFS_POINTER));
        }
        let invalid = |problem: &str| {
            self.error(format!("is not a valid safetensors file: {problem}; copy or download it again"))
        };
        let size = begin.first_chunk::<LENGTH_BYTES>().map_or(0, |&size| u64::from_le_bytes(size));
        let start = usize::try_from(size).ok().and_then(|size| size.checked_add(LENGTH_BYTES));
        let start = start.filter(|&start| size > 0 && start <= self.length.min(MAX_HEADER_END));
        let start = start.ok_or_else(|| invalid("it lacks a header"))?;
        let header: Metadata = serde_json::from_slice(&self.bytes(LENGTH_BYTES..start)?)
            .map_err(|error| invalid(&format!("the header cannot be read: {error}")))?;
        match header.data_len().checked_add(start) {
            Some(end) if end == self.length => Ok((header, start)),
            _ => Err(invalid("its length does not match the tensors in its header")),
        }
    }

    /// Returns the metadata of a safetensors file.
    ///
    /// # Errors
    /// Returns an error if the file is incomplete or malformed.
    pub fn metadata(&self) -> Result<HashMap<String, String>> {
        Ok(self.header()?.0.metadata().clone().unwrap_or_default())
    }

    /// Returns the tensors of a safetensors file, sorted by name.
    ///
    /// # Errors
    /// Returns an error if the file is incomplete or malformed.
    pub fn tensors(&self) -> Result<Vec<LazyTensor>> {
        let (header, first) = self.header()?;
        let mut tensors: Vec<_> = header.tensors().into_iter().collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        let lazy = tensors.into_iter().map(|(name, information)| {
            let (file, stored, shape) = (self.clone(), information.dtype, information.shape.clone());
            let (start, end) = information.data_offsets;
            LazyTensor::new(name.clone(), shape.clone(), move || {
                let dtype = match stored {
                    Dtype::F64 => DType::F64,
                    Dtype::F32 => DType::F32,
                    Dtype::F16 => DType::F16,
                    Dtype::BF16 => DType::BF16,
                    other => {
                        return Err(file.error(format!(
                            "`{name}` has the type {other:?}; convert it to F32, F16, BF16 or F64"
                        )));
                    }
                };
                let mut values = Vec::with_capacity(shape.iter().product());
                file.for_each_chunk(first + start..first + end, |bytes| widen(bytes, dtype, &mut values))?;
                Ok(TensorData::new(values, shape.clone()))
            })
        });
        Ok(lazy.collect())
    }

    /// Creates an error about this file.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::file(&self.path, problem)
    }
}

impl LazyTensor {
    /// Creates a tensor whose values `read` returns as 32-bit floats.
    pub fn new(name: String, shape: Vec<usize>, read: impl Fn() -> Result<TensorData> + 'static) -> Self {
        Self { name, shape, read: Rc::new(read) }
    }

    /// Creates a tensor from values in memory.
    pub fn from_data(name: String, data: TensorData) -> Self {
        Self::new(name, data.shape.to_vec(), move || Ok(data.clone()))
    }

    /// Renames the tensor.
    pub fn renamed(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Returns the values as 32-bit floats.
    ///
    /// # Errors
    /// Returns an error if the tensor does not hold floats, or cannot be read.
    pub fn read(&self) -> Result<TensorData> {
        (self.read)()
    }
}

impl fmt::Debug for LazyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name, self.shape)
    }
}

/// The chunk size in bytes, a multiple of the size of every number type.
const CHUNK_BYTES: usize = 1 << 20;
/// The number of bytes at the start of a file from which its format is recognised.
const SIGNATURE_BYTES: usize = 64;
/// The size in bytes of the header's length field.
const LENGTH_BYTES: usize = 8;
/// The maximum offset of the end of a header.
pub(super) const MAX_HEADER_END: usize = 100_000_000;

/// Decodes a tensor to 32-bit floats, which a backend uses without a copy.
pub(super) fn floats(bytes: &[u8], dtype: DType, shape: &[usize]) -> TensorData {
    let mut values = Vec::with_capacity(shape.iter().product());
    widen(bytes, dtype, &mut values);
    TensorData::new(values, shape)
}

/// Decodes little-endian numbers and appends them as 32-bit floats.
pub(super) fn widen(bytes: &[u8], dtype: DType, values: &mut Vec<f32>) {
    fn extend<const N: usize>(values: &mut Vec<f32>, bytes: &[u8], number: impl Fn([u8; N]) -> f32) {
        values.extend(bytes.as_chunks().0.iter().copied().map(number));
    }
    match dtype {
        DType::F64 => extend(values, bytes, |bytes| f64::from_le_bytes(bytes) as f32),
        DType::F16 => extend(values, bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
        DType::BF16 => extend(values, bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => extend(values, bytes, f32::from_le_bytes),
    }
}

/// Transposes a matrix: from PyTorch's layout of a linear layer, `[out, in]`, to Burn's, `[in, out]`, and back. Tensors
/// of other ranks are returned unchanged.
pub(super) fn transposed(data: TensorData) -> TensorData {
    let [rows, columns] = data.shape[..] else { return data };
    let values = data.as_slice::<f32>().expect("weights are 32-bit floats");
    let columns_first = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    TensorData::new(columns_first.map(|at| values[at]).collect::<Vec<_>>(), [columns, rows])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_during_reading_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let header = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 8]].concat();
        std::fs::write(&path, &bytes).unwrap();
        let file = WeightsFile::open(&path).unwrap();
        let tensor = file.tensors().unwrap().remove(0);
        assert_eq!(tensor.read().unwrap(), TensorData::new(vec![0f32; 2], [2]));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(bytes.len() as u64 - 1).unwrap();
        for error in [tensor.read().unwrap_err(), file.sha256().unwrap_err()] {
            let expected = format!("{}: was truncated while it was being read", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}
