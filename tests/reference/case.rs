//! Reads a reference case and compares results with it.

use causal_attention::ops::Kernels;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::module::Param;
use burn::nn::{Embedding, Linear};
use burn::tensor::{Bool, Int, Tensor, TensorData, backend::Backend};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// A case with tensors named `input.*`, `weight.*` and `expected.*`.
pub struct Case {
    name: String,
    tensors: HashMap<String, TensorData>,
}

impl Case {
    /// Reads the case from the folder that `REFERENCE_CASES` names, or from `tests/reference/`.
    pub fn read(name: &str) -> Self {
        let folder = match std::env::var_os("REFERENCE_CASES") {
            Some(folder) => PathBuf::from(folder),
            None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reference"),
        };
        let path = folder.join(format!("{name}.safetensors"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.tensors().into_iter().map(|(key, view)| {
            let shape = view.shape().to_vec();
            let data = match view.dtype() {
                Dtype::F32 => {
                    TensorData::new(numbers(view.data(), |bytes| f64::from(f32::from_le_bytes(bytes))), shape)
                }
                Dtype::F64 => TensorData::new(numbers(view.data(), f64::from_le_bytes), shape),
                Dtype::I64 => TensorData::new(numbers(view.data(), i64::from_le_bytes), shape),
                other => panic!("{key}: {other:?}"),
            };
            (key, data)
        });
        Self { name: name.to_string(), tensors: tensors.collect() }
    }

    /// Returns a tensor as stored in the file.
    pub fn data(&self, key: &str) -> TensorData {
        self.tensors.get(key).unwrap_or_else(|| panic!("{} lacks {key}", self.name)).clone()
    }

    /// Returns the shape of a tensor, which must have rank `D`.
    pub fn shape<const D: usize>(&self, key: &str) -> [usize; D] {
        self.data(key).shape.dims()
    }

    /// Returns all numbers of a tensor, in double precision.
    pub fn numbers(&self, key: &str) -> Vec<f64> {
        self.data(key).convert::<f64>().to_vec::<f64>().unwrap()
    }

    pub fn float<B: Backend, const D: usize>(&self, key: &str) -> Tensor<B, D> {
        Tensor::from_data(self.data(key).convert::<f32>(), &Default::default())
    }

    pub fn int<B: Backend, const D: usize>(&self, key: &str) -> Tensor<B, D, Int> {
        Tensor::from_data(self.data(key), &Default::default())
    }

    /// Writes tensors to a separate safetensors file, under the names that `rename` returns.
    pub fn write_safetensors(&self, path: &Path, rename: impl Fn(&str) -> Option<String>) {
        let named = self.tensors.iter().filter_map(|(key, data)| Some((rename(key)?, data)));
        let floats: Vec<_> = named.map(|(name, data)| (name, data.clone().convert::<f32>())).collect();
        let views = floats.iter().map(|(name, data)| {
            (name, TensorView::new(Dtype::F32, data.shape.to_vec(), data.as_bytes()).unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }

    /// Returns a padding mask, which the files store as 1 for hidden positions.
    pub fn hidden<B: Backend, const D: usize>(&self, key: &str) -> Tensor<B, D, Bool> {
        self.int(key).equal_elem(1)
    }

    /// Counts the tensors named `{prefix}i{suffix}` for consecutive `i` from 0.
    pub fn count(&self, prefix: &str, suffix: &str) -> usize {
        (0..).take_while(|i| self.tensors.contains_key(&format!("{prefix}{i}{suffix}"))).count()
    }

    /// Creates a linear layer from PyTorch's layout, `[out, in]`; without a bias if the case has none.
    pub fn linear<B: Backend>(&self, weight: &str, bias: &str) -> Linear<B> {
        let bias = self.tensors.contains_key(bias).then(|| Param::from_tensor(self.float(bias)));
        Linear { weight: Param::from_tensor(self.float::<B, 2>(weight).transpose()), bias }
    }

    pub fn embedding<B: Backend>(&self, weight: &str) -> Embedding<B> {
        Embedding { weight: Param::from_tensor(self.float(weight)) }
    }

    /// Asserts that a result agrees within `tolerance` of the expected tensor's largest value.
    pub fn assert_close<B: Backend, const D: usize>(&self, key: &str, result: Tensor<B, D>, tolerance: f64) {
        assert_eq!(result.dims(), self.shape::<D>(key), "{}: shape of {key}", self.name);
        let result = result.into_data().convert::<f64>().to_vec::<f64>().unwrap();
        let expected = self.data(key).convert::<f64>().to_vec::<f64>().unwrap();
        let largest = expected.iter().filter(|x| x.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
        for (i, (result, expected)) in result.into_iter().zip(expected).enumerate() {
            let agrees = result == expected || (result - expected).abs() <= tolerance * largest;
            assert!(agrees, "{}: {key}[{i}] is {result}, not {expected}", self.name);
        }
    }
}

fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|chunk| number(chunk.try_into().unwrap())).collect()
}

/// Runs a check with the fused kernels, then with the reference ones.
pub fn with_both_kernels(check: impl Fn()) {
    Kernels::Fused.run(&check);
    Kernels::Reference.run(&check);
}
