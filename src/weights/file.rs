//! A weights file. A large one is mapped rather than read: a piece that was used leaves memory again, so that a model
//! is there once, not twice.

use std::fmt;
use std::io::Read;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use burn::tensor::{DType, TensorData, bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use crate::error::{Error, Result};
use crate::files::{self, Input, Mapped};

/// The bytes of a weights file. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WeightsFile {
    path: PathBuf,
    bytes: Arc<Bytes>,
}

#[derive(Debug)]
enum Bytes {
    /// Those of a large file.
    Mapped(Mapped),
    /// Those of a small file, which may change or shrink once it is read.
    Read(Vec<u8>),
    /// Those of a pipe.
    Streamed(Vec<u8>),
}

/// The largest file that is read into memory, in bytes. Larger ones are mapped: read, they would be in memory twice, as
/// bytes and as tensors.
const MAX_READ: u64 = 16_000_000;

/// A tensor that is read, or made, when it is asked for, so that few are in memory at once. Cheap to clone.
#[derive(Clone)]
pub struct LazyTensor {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    read: Rc<dyn Fn() -> Result<TensorData>>,
}

impl WeightsFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let input = files::open(&path)?;
        Self::of(input, path)
    }

    /// As [`Self::open`], a file that this program wrote, which is no stream.
    ///
    /// # Errors
    /// As [`files::open_own`].
    pub fn open_own(path: PathBuf) -> Result<Self> {
        let file = files::open_own(&path)?;
        Self::of(Input::File(file), path)
    }

    fn of(input: Input, path: PathBuf) -> Result<Self> {
        let failed = |error| Error::io("read", &path, error);
        let bytes = match input {
            Input::Stream(bytes) => Bytes::Streamed(bytes),
            Input::File(mut file) => match file.metadata().map_err(failed)?.len() {
                0..=MAX_READ => {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes).map_err(failed)?;
                    Bytes::Read(bytes)
                }
                _ => Bytes::Mapped(Mapped::new(&file, &path).map_err(failed)?),
            },
        };
        Ok(Self { path, bytes: Arc::new(bytes) })
    }

    /// Whether it is a regular file, which can be opened once more by its path.
    pub fn is_regular(&self) -> bool {
        !matches!(*self.bytes, Bytes::Streamed(_))
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors of a safetensors file, by name.
    ///
    /// # Errors
    /// When it is no whole one.
    pub fn tensors(&self) -> Result<Vec<LazyTensor>> {
        if self.is_empty() {
            return Err(self.error("is empty, where weights are expected: copy or download it anew"));
        }
        if self.starts_with(b"GGUF") {
            return Err(self.error(
                "is GGUF, the format of llama.cpp, which is not read: import the model's safetensors files, of which it \
                 was converted",
            ));
        }
        let file = SafeTensors::deserialize(self)
            .map_err(|error| self.error(format!("is no whole safetensors file: {error}")))?;
        let stored = |(name, view): (String, TensorView)| {
            let start = view.data().as_ptr().addr() - self.as_ptr().addr();
            let place = start..start + view.data().len();
            let (file, stored, shape) = (self.clone(), view.dtype(), view.shape().to_vec());
            LazyTensor::new(name.clone(), shape.clone(), move || {
                let dtype = match stored {
                    Dtype::F64 => DType::F64,
                    Dtype::F32 => DType::F32,
                    Dtype::F16 => DType::F16,
                    Dtype::BF16 => DType::BF16,
                    other => return Err(file.error(format!("`{name}` is {other:?}: floats are expected"))),
                };
                let mut values = Vec::with_capacity(shape.iter().product());
                // The file's own pages count as memory until they are given back.
                for start in place.clone().step_by(PIECE) {
                    let piece = start..(start + PIECE).min(place.end);
                    widen(&file[piece.clone()], dtype, &mut values);
                    file.release(piece);
                }
                Ok(TensorData::new(values, shape.clone()))
            })
        };
        let mut tensors: Vec<_> = file.tensors().into_iter().map(stored).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tensors)
    }

    /// What is wrong with the file.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::file(&self.path, problem)
    }

    /// Gives a piece of memory back: what is read of it again, comes from the file again.
    pub fn release(&self, piece: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(bytes) = &*self.bytes {
            // SAFETY: the map is read-only and of a file, so its bytes stay what they are. That the advice is not
            // taken costs memory alone.
            let _ = unsafe {
                bytes.map().unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    piece.start,
                    piece.len(),
                )
            };
        }
    }
}

impl Deref for WeightsFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.bytes {
            Bytes::Mapped(bytes) => bytes,
            Bytes::Read(bytes) | Bytes::Streamed(bytes) => bytes,
        }
    }
}

impl LazyTensor {
    /// A tensor that `read` makes, in 32-bit floats.
    pub fn new(name: String, shape: Vec<usize>, read: impl Fn() -> Result<TensorData> + 'static) -> Self {
        Self { name, shape, read: Rc::new(read) }
    }

    /// One that is there already.
    pub fn held(name: String, data: TensorData) -> Self {
        Self::new(name, data.shape.to_vec(), move || Ok(data.clone()))
    }

    /// The same by another name.
    pub fn renamed(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// The tensor in 32-bit floats.
    ///
    /// # Errors
    /// When it holds no floats, or cannot be read.
    pub fn read(&self) -> Result<TensorData> {
        (self.read)()
    }
}

impl fmt::Debug for LazyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name, self.shape)
    }
}

/// So much of a file is read at once: a multiple of a page and of every number's size.
const PIECE: usize = 1 << 22;

/// A tensor out of its bytes, in 32-bit floats, which a backend takes over without a copy.
pub(super) fn floats(bytes: &[u8], dtype: DType, shape: &[usize]) -> TensorData {
    let mut values = Vec::with_capacity(shape.iter().product());
    widen(bytes, dtype, &mut values);
    TensorData::new(values, shape)
}

/// Adds the numbers that bytes hold, little-endian, in 32-bit floats.
fn widen(bytes: &[u8], dtype: DType, values: &mut Vec<f32>) {
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

/// The transpose of a matrix: from PyTorch's layout of a linear layer, `[out, in]`, to Burn's,
/// `[in, out]`, and back. What is no matrix stays as it is.
pub(super) fn transposed(data: TensorData) -> TensorData {
    let [rows, columns] = data.shape[..] else { return data };
    let values = data.as_slice::<f32>().expect("weights are 32-bit floats");
    let columns_first = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    TensorData::new(columns_first.map(|at| values[at]).collect::<Vec<_>>(), [columns, rows])
}
