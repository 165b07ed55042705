//! The native format: one safetensors file in 32-bit floats, with each parameter under its path in the model, such as
//! `blocks.0.attention.qkv.weight`.
//!
//! Equal weights give equal bytes. The tensors are in a fixed order, and the only metadata entry holds the model's
//! config and sizes, so that the file can be loaded on its own.

use std::{collections::HashMap, fs::File, io::Write, path::Path, rc::Rc};

use burn::module::{Module, ParamId};
use burn::prelude::*;
use burn::tensor::DType;
use burn_flex::Flex;
use burn_store::{ApplyError, ModuleSnapshot, TensorSnapshot, TensorSnapshotError};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, Metadata, TensorInfo, TensorView};
use serde::{Deserialize, Serialize};

use super::file::{LazyTensor, WeightsFile};
use crate::error::{Error, Result};
use crate::model::{Model, ModelConfig, Sizes};

/// The only metadata entry of a weights file.
const DESCRIPTION: &str = "causal-attention";

/// The model that a weights file belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The model's config.
    pub model: ModelConfig,
    /// The sizes that depend on the data.
    pub sizes: Sizes,
}

/// Named tensors on the host, in 32-bit floats.
pub type Tensors = Vec<(String, TensorData)>;

/// Collects the parameters of a module with their paths, in visiting order.
///
/// # Errors
/// If the device fails.
pub fn collect<B: Backend, M: Module<B>>(module: &M) -> Result<Tensors> {
    let read = |snapshot: TensorSnapshot| {
        let name = snapshot.full_path();
        let data = snapshot
            .to_data()
            .map_err(|error| Error::Failed(format!("cannot read `{name}` from the device: {error:?}")))?;
        Ok((name, data.convert::<f32>()))
    };
    module.collect(None, None, true).into_iter().map(read).collect()
}

/// Returns the paths of a module's parameters, in visiting order.
pub fn names<B: Backend, M: Module<B>>(module: &M) -> Vec<String> {
    module.collect(None, None, true).iter().map(TensorSnapshot::full_path).collect()
}

/// Replaces a module's parameters with `tensors`, which were read from the file `origin`.
///
/// # Errors
/// Returns an error that lists up to 32 tensors that are missing, unexpected or of a different shape.
pub fn apply<B: Backend, M: Module<B>>(module: M, tensors: Tensors, origin: &Path) -> Result<M> {
    apply_lazy(module, tensors.into_iter().map(|(name, data)| LazyTensor::from_data(name, data)), origin)
}

/// Same as [`apply`], but reads each tensor only when it is assigned.
fn apply_lazy<B: Backend, M: Module<B>>(
    mut module: M,
    tensors: impl Iterator<Item = LazyTensor>,
    origin: &Path,
) -> Result<M> {
    let snapshot = |tensor: LazyTensor| {
        let path = tensor.name.split('.').map(String::from).collect();
        let shape = tensor.shape.clone().into();
        let read = move || tensor.read().map_err(|error| TensorSnapshotError::DataError(error.to_string()));
        TensorSnapshot::from_closure(Rc::new(read), DType::F32, shape, path, Vec::new(), ParamId::new())
    };
    let result = module.apply(tensors.map(snapshot).collect(), None, None, true);
    let describe = |error: &ApplyError| match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("`{path}` has shape {:?}, not {:?}", found.to_vec(), expected.to_vec())
        }
        other => other.to_string(),
    };
    let missing = result.missing.iter().map(|(name, _)| format!("`{name}` is missing"));
    let unused = result.unused.iter().map(|name| format!("`{name}` is unexpected"));
    let problems: Vec<_> = missing.chain(result.errors.iter().map(describe)).chain(unused).collect();
    super::refuse(origin, &problems, "contains the weights of another model")?;
    Ok(module)
}

/// Serialises named tensors as a safetensors file, whose only metadata entry describes their model.
///
/// # Errors
/// If a tensor does not hold 32-bit floats in its shape.
pub fn to_bytes(tensors: &Tensors, description: Option<&Description>) -> Result<Vec<u8>> {
    let metadata = description.map(entry).map(|entry| HashMap::from([entry]));
    let views = tensors.iter().map(|(name, data)| {
        let view = TensorView::new(Dtype::F32, data.shape.to_vec(), data.as_bytes());
        (name, view.expect("the data of a tensor matches its shape"))
    });
    safetensors::serialize(views, metadata).map_err(|error| unwritable(&error))
}

/// Returns the metadata entry that describes the model of the weights.
pub fn entry(description: &Description) -> (String, String) {
    let json = serde_json::to_string(description).expect("a description holds plain values");
    (DESCRIPTION.to_string(), json)
}

/// Writes tensors to a new safetensors file with one metadata entry. Only one tensor at a time is in memory.
///
/// # Errors
/// Returns an error if a tensor cannot be read, or if the file cannot be written.
pub fn write(path: &Path, tensors: &[LazyTensor], metadata: (String, String)) -> Result<()> {
    let mut tensors: Vec<_> = tensors.iter().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let mut end = 0;
    let information = |tensor: &&LazyTensor| {
        let start = end;
        end += size_of::<f32>() * tensor.shape.iter().product::<usize>();
        let shape = tensor.shape.clone();
        (tensor.name.clone(), TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) })
    };
    let header = Metadata::new(Some(HashMap::from([metadata])), tensors.iter().map(information).collect())
        .and_then(|header| Ok(serde_json::to_vec(&header)?));
    let mut header = header.map_err(|error| unwritable(&error))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let io = |error| Error::io("write", path, error);
    let mut file = File::create(path).map_err(io)?;
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(&header).map_err(io)?;
    for tensor in tensors {
        file.write_all(tensor.read()?.as_bytes()).map_err(io)?;
    }
    file.sync_data().map_err(io)
}

fn unwritable(error: &SafeTensorError) -> Error {
    Error::Failed(format!("cannot write the weights: {error}"))
}

/// Reads all tensors of a safetensors file, by name.
///
/// # Errors
/// Returns an error if the file is damaged or contains types other than floats.
pub fn tensors(file: &WeightsFile) -> Result<Tensors> {
    file.tensors()?.iter().map(|tensor| Ok((tensor.name.clone(), tensor.read()?))).collect()
}

/// Returns true if the file's metadata shows that this program wrote it.
pub fn is_own(file: &WeightsFile) -> bool {
    file.metadata().is_ok_and(|entries| entries.contains_key(DESCRIPTION))
}

/// Reads the description of a weights file's model from the header alone.
///
/// # Errors
/// Returns an error if the file was not written by this program.
pub fn description(file: &WeightsFile) -> Result<Description> {
    let foreign = |problem: String| file.error(format!("does not describe its model: {problem}"));
    let entries = file.metadata()?;
    let json = entries
        .get(DESCRIPTION)
        .ok_or_else(|| foreign(format!("it lacks the metadata entry `{DESCRIPTION}`")))?;
    serde_json::from_str(json).map_err(|error| foreign(error.to_string()))
}

/// Reads the tensors of a weights file and the description of its model.
///
/// # Errors
/// Returns an error if the file is damaged, was not written by this program, or contains a non-finite value.
pub fn read(file: &WeightsFile) -> Result<(Tensors, Description)> {
    let (_, description) = checked(file)?;
    Ok((tensors(file)?, description))
}

/// Validates a weights file and returns its tensors and description. Refuses the weights of a diverged run. Also
/// refuses a description of a model much larger than the weights, because the file may be damaged.
///
/// # Errors
/// Same as [`read`].
pub fn checked(file: &WeightsFile) -> Result<(Vec<LazyTensor>, Description)> {
    /// A number of parameters that fits into the memory of any machine.
    const SMALL_MODEL_PARAMETERS: usize = 1 << 24;
    let tensors = file.tensors()?;
    let description = description(file)?;
    let Description { model, sizes } = &description;
    model.check().map_err(|error| file.error(Error::from(error).to_string()))?;
    let stored: usize = tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
    let largest = sizes.vocab.max(sizes.context).max(sizes.source_context.unwrap_or(0));
    let limit = stored.max(SMALL_MODEL_PARAMETERS).saturating_mul(2);
    if largest > u32::MAX as usize || model.parameters::<Flex>(*sizes) > limit {
        let problem = format!("is damaged: it describes a model much larger than its {stored} values");
        return Err(file.error(problem));
    }
    let mut non_finite = Vec::new();
    for tensor in &tensors {
        non_finite.extend(super::not_finite(&tensor.name, &tensor.read()?));
    }
    super::refuse(file.path(), &non_finite, super::NOT_FINITE)?;
    Ok((tensors, description))
}

/// Loads the model of a weights file. Tensors are moved into the model one by one, so that peak memory is little more
/// than the model itself.
///
/// # Errors
/// Same as [`read`]; also returns an error if the weights do not match the model.
pub fn load_model<B: Backend>(file: &WeightsFile, device: &B::Device) -> Result<(Model<B>, Description)> {
    let (tensors, description) = checked(file)?;
    Ok((model(&description, tensors, file.path(), device)?, description))
}

/// Creates a model with weights that are read from `origin` on demand.
///
/// # Errors
/// Returns an error if weights are missing, have other shapes or cannot be read.
pub fn model<B: Backend>(
    description: &Description,
    tensors: Vec<LazyTensor>,
    origin: &Path,
    device: &B::Device,
) -> Result<Model<B>> {
    let model = description.model.init_lazy(description.sizes, device)?;
    apply_lazy(model, tensors.into_iter(), origin)
}
