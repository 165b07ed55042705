//! A model's weights in one safetensors file, each parameter under its path in the model, as
//! `blocks.0.attention.qkv.weight`, in 32-bit floats.
//!
//! Equal weights give equal bytes: the tensors are in a fixed order, and the metadata is one entry,
//! the model's config and sizes, by which a file can be loaded alone.

use std::{collections::HashMap, fs::File, path::Path, rc::Rc};

use burn::module::{Module, ParamId};
use burn::prelude::*;
use burn::tensor::{DType, Shape};
use burn_store::{ApplyError, ModuleSnapshot, TensorSnapshot, TensorSnapshotError};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::{StoredTensor, WeightsFile};
use crate::error::{Error, Result};
use crate::model::{Model, ModelConfig, Sizes};
use crate::ops;

/// The one entry of metadata in a weights file.
const DESCRIPTION: &str = "causal-attention";

/// What a weights file says of the model that it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The model's config.
    pub model: ModelConfig,
    /// The sizes that the data asked of it.
    pub sizes: Sizes,
}

/// Named tensors on the host, in 32-bit floats.
pub type Tensors = Vec<(String, TensorData)>;

/// The parameters of a module under their paths, in the order in which they are visited.
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

/// The paths of a module's parameters, in the order in which they are visited.
pub fn names<B: Backend, M: Module<B>>(module: &M) -> Vec<String> {
    module.collect(None, None, true).iter().map(TensorSnapshot::full_path).collect()
}

/// Puts `tensors` in the place of a module's parameters. `origin` is the file that they came from.
///
/// # Errors
/// Names the tensors that are missing, left over or of another shape, thirty-two of them at most.
pub fn apply<B: Backend, M: Module<B>>(module: M, tensors: Tensors, origin: &Path) -> Result<M> {
    let snapshot =
        |(name, data): (String, TensorData)| snapshot(&name, data.shape.clone(), move || Ok(data.clone()));
    apply_snapshots(module, tensors.into_iter().map(snapshot).collect(), origin)
}

/// A tensor by name that is read when it takes its place in a module.
fn snapshot(name: &str, shape: Shape, read: impl Fn() -> Result<TensorData> + 'static) -> TensorSnapshot {
    let path = name.split('.').map(String::from).collect();
    let read = move || read().map_err(|error| TensorSnapshotError::DataError(error.to_string()));
    TensorSnapshot::from_closure(Rc::new(read), DType::F32, shape, path, Vec::new(), ParamId::new())
}

fn apply_snapshots<B: Backend, M: Module<B>>(
    mut module: M,
    tensors: Vec<TensorSnapshot>,
    origin: &Path,
) -> Result<M> {
    let result = module.apply(tensors, None, None, true);
    let misfit = |error: &ApplyError| match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("`{path}` is {:?}, not {:?}", found.to_vec(), expected.to_vec())
        }
        other => other.to_string(),
    };
    let missing = result.missing.iter().map(|(name, _)| format!("`{name}` is missing"));
    let unused = result.unused.iter().map(|name| format!("`{name}` is left over"));
    let problems: Vec<_> = missing.chain(result.errors.iter().map(misfit)).chain(unused).collect();
    super::refuse(origin, &problems, "holds the weights of another model")?;
    Ok(module)
}

/// Named tensors as the bytes of a safetensors file, which says in its one entry of metadata what
/// model they belong to.
pub fn to_bytes(tensors: &Tensors, description: Option<&Description>) -> Result<Vec<u8>> {
    serialize(tensors, description.map(|description| (DESCRIPTION, json(description))))
}

/// Named tensors as the bytes of a safetensors file, with at most one entry of metadata.
pub(super) fn serialize(tensors: &Tensors, metadata: Option<(&str, String)>) -> Result<Vec<u8>> {
    let metadata = metadata.map(|(key, value)| HashMap::from([(key.to_string(), value)]));
    safetensors::serialize(views(tensors), metadata).map_err(|error| unwritten(&error))
}

/// Writes the weights of the model that is described into a new file, tensor by tensor: the file is never in memory.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, tensors: &Tensors, description: &Description) -> Result<()> {
    let metadata = HashMap::from([(DESCRIPTION.to_string(), json(description))]);
    let io = |error| Error::io("write", path, error);
    safetensors::serialize_to_file(views(tensors), Some(metadata), path).map_err(|error| match error {
        SafeTensorError::IoError(error) => io(error),
        other => unwritten(&other),
    })?;
    File::open(path).and_then(|file| file.sync_data()).map_err(io)
}

fn views(tensors: &Tensors) -> impl Iterator<Item = (&String, TensorView<'_>)> {
    tensors.iter().map(|(name, data)| {
        let view = TensorView::new(Dtype::F32, data.shape.to_vec(), data.as_bytes());
        (name, view.expect("a tensor has as many numbers as its shape says"))
    })
}

fn json(description: &Description) -> String {
    serde_json::to_string(description).expect("a description holds plain values")
}

fn unwritten(error: &SafeTensorError) -> Error {
    Error::Failed(format!("the weights cannot be written: {error}"))
}

/// The tensors of a safetensors file, by name.
///
/// # Errors
/// If it is damaged or holds other than floats.
pub fn tensors(file: &WeightsFile) -> Result<Tensors> {
    file.tensors()?.iter().map(|tensor| Ok((tensor.name.clone(), tensor.read()?))).collect()
}

/// The model that a weights file describes, read from its header alone.
///
/// # Errors
/// If the file was not written by this program.
pub fn description(file: &WeightsFile) -> Result<Description> {
    let foreign = |problem: String| file.error(format!("does not say what model it holds: {problem}"));
    let (_, metadata) = SafeTensors::read_metadata(file).map_err(|error| foreign(error.to_string()))?;
    let json = metadata.metadata().as_ref().and_then(|entries| entries.get(DESCRIPTION));
    let json = json.ok_or_else(|| foreign(format!("it lacks the entry `{DESCRIPTION}`")))?;
    let mut description: Value = serde_json::from_str(json).map_err(|error| foreign(error.to_string()))?;
    // The name that the key had before there were other activations.
    if let Some(model) = description["model"].as_object_mut()
        && let Some(form) = model.remove("gelu")
    {
        let activation = if form == "tanh" { "gelu_tanh" } else { "gelu" };
        model.insert("activation".to_string(), activation.into());
    }
    serde_json::from_value(description).map_err(|error| foreign(error.to_string()))
}

/// The tensors of a weights file, and the model that it describes.
///
/// # Errors
/// If the file is damaged, was not written by this program, or holds a number that is not finite.
pub fn read(file: &WeightsFile) -> Result<(Tensors, Description)> {
    let (_, description) = checked(file)?;
    Ok((tensors(file)?, description))
}

/// What a weights file holds, before it is read: no model that diverged, and none that is much larger than its
/// weights, for what it says of itself may be damaged.
fn checked(file: &WeightsFile) -> Result<(Vec<StoredTensor>, Description)> {
    /// Parameters that any machine can hold.
    const SMALL: usize = 1 << 24;
    let tensors = file.tensors()?;
    let description = description(file)?;
    let Description { model, sizes } = &description;
    model.check().map_err(|error| file.error(error.to_string()))?;
    let held: usize = tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
    let largest = sizes.vocab.max(sizes.context).max(sizes.source_context.unwrap_or(0));
    if largest > u32::MAX as usize || model.parameters(*sizes) > held.max(SMALL).saturating_mul(2) {
        let problem = format!("is damaged: it describes a model much larger than its {held} numbers");
        return Err(file.error(problem));
    }
    let mut broken = Vec::new();
    for tensor in &tensors {
        broken.extend(super::not_finite(&tensor.name, &tensor.read()?));
    }
    super::refuse(file.path(), &broken, super::NOT_FINITE)?;
    Ok((tensors, description))
}

/// The model that a weights file describes, with its weights. Each goes from the file to its place by itself, so
/// that hardly more memory is taken than the model itself takes.
///
/// # Errors
/// As [`read`], and where the weights are not those of the model.
pub fn load_model<B: ops::Backend>(
    file: &WeightsFile,
    device: &B::Device,
) -> Result<(Model<B>, Description)> {
    let (tensors, description) = checked(file)?;
    let model = description.model.init_lazy(description.sizes, device)?;
    let snapshot = |tensor: StoredTensor| {
        snapshot(&tensor.name.clone(), tensor.shape.clone().into(), move || tensor.read())
    };
    Ok((apply_snapshots(model, tensors.into_iter().map(snapshot).collect(), file.path())?, description))
}
