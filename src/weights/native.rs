//! A model's weights in one safetensors file, each parameter under its path in the model, as
//! `blocks.0.attention.query_key_value.weight`, in 32-bit floats.
//!
//! Equal weights give equal bytes: the tensors are in a fixed order, and the metadata is one entry,
//! the model's config and sizes, by which a file can be loaded alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::prelude::*;
use burn::tensor::DType;
use burn_store::{ModuleSnapshot, TensorSnapshot};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use super::file::FileBytes;
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
pub fn apply<B: Backend, M: Module<B>>(mut module: M, tensors: Tensors, origin: &Path) -> Result<M> {
    let expected = module
        .collect(None, None, true)
        .into_iter()
        .map(|snapshot| (snapshot.full_path(), snapshot.shape.to_vec()))
        .collect::<BTreeMap<_, _>>();
    let found = tensors.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>();

    let mut problems = Vec::new();
    for name in expected.keys().filter(|name| !found.contains(name.as_str())) {
        problems.push(format!("`{name}` is missing"));
    }
    for (name, data) in &tensors {
        let shape = data.shape.to_vec();
        match expected.get(name) {
            None => problems.push(format!("`{name}` is left over")),
            Some(expected) if *expected != shape => {
                problems.push(format!("`{name}` is {shape:?}, not {expected:?}"))
            }
            Some(_) => {}
        }
    }
    if !problems.is_empty() {
        let problem = format!("holds the weights of another model: {}", super::listed(&problems));
        return Err(Error::file(origin, None, None, problem));
    }

    let snapshots = tensors.into_iter().map(|(name, data)| {
        let path = name.split('.').map(String::from).collect();
        TensorSnapshot::from_data(data, path, Vec::new(), ParamId::new())
    });
    let result = module.apply(snapshots.collect(), None, None, true);
    match result.errors.first() {
        None => Ok(module),
        Some(error) => Err(Error::file(origin, None, None, error.to_string())),
    }
}

/// Named tensors as the bytes of a safetensors file, which says in its one entry of metadata what
/// model they belong to.
pub fn to_bytes(tensors: &Tensors, description: Option<&Description>) -> Result<Vec<u8>> {
    let metadata = description.map(|description| {
        let json = serde_json::to_string(description).expect("a description holds plain values");
        (DESCRIPTION.to_string(), json)
    });
    serialize(tensors, metadata)
}

/// Named tensors as the bytes of a safetensors file, with at most one entry of metadata.
pub(super) fn serialize(tensors: &Tensors, metadata: Option<(String, String)>) -> Result<Vec<u8>> {
    let unwritable = |error| Error::Failed(format!("the weights cannot be written: {error}"));
    let views = tensors
        .iter()
        .map(|(name, data)| {
            Ok((name.as_str(), TensorView::new(Dtype::F32, data.shape.to_vec(), data.as_bytes())?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(unwritable)?;
    let metadata = metadata.map(|entry| HashMap::from([entry]));
    safetensors::serialize(views, metadata).map_err(unwritable)
}

/// Named tensors out of the bytes of a safetensors file, by name; `path` is named in errors.
pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Tensors> {
    let damaged = |problem: String| Error::file(path, None, None, problem);
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| damaged(format!("is no whole safetensors file: {error}")))?;
    let read = |(name, view): (String, TensorView)| {
        if view.dtype() != Dtype::F32 {
            return Err(damaged(format!("`{name}` is {:?}: 32-bit floats are expected", view.dtype())));
        }
        Ok((name, TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), DType::F32)))
    };
    let mut tensors = file.tensors().into_iter().map(read).collect::<Result<Tensors>>()?;
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(tensors)
}

/// The model that a weights file describes; `path` is named in errors.
///
/// # Errors
/// If the file was not written by this program.
pub fn description(bytes: &[u8], path: &Path) -> Result<Description> {
    let foreign = |problem: String| {
        Error::file(path, None, None, format!("does not say what model it holds: {problem}"))
    };
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| foreign(error.to_string()))?;
    let json = metadata.metadata().as_ref().and_then(|entries| entries.get(DESCRIPTION));
    let json = json.ok_or_else(|| foreign(format!("it lacks the entry `{DESCRIPTION}`")))?;
    serde_json::from_str(json).map_err(|error| foreign(error.to_string()))
}

/// The model that the weights file at `path` describes, read from its header alone: the length of a JSON object in
/// eight bytes, and the object.
///
/// # Errors
/// If the file cannot be read, or was not written by this program.
pub fn read_description(path: &Path) -> Result<Description> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(rename = "__metadata__")]
        metadata: HashMap<String, String>,
    }

    let io = |error| Error::io("read", path, error);
    let foreign = || Error::file(path, None, None, "does not say what model it holds");
    let mut file = std::fs::File::open(path).map_err(io)?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(io)?;
    let mut header = Vec::new();
    // As much as the format allows.
    file.take(u64::from_le_bytes(length).min(100_000_000)).read_to_end(&mut header).map_err(io)?;
    let Header { metadata } = serde_json::from_slice(&header).map_err(|_| foreign())?;
    let description = metadata.get(DESCRIPTION).ok_or_else(foreign)?;
    serde_json::from_str(description).map_err(|_| foreign())
}

/// The tensors of a weights file, and the model that it describes.
///
/// # Errors
/// If the file cannot be read, is damaged, or was not written by this program.
pub fn read(path: &Path) -> Result<(Tensors, Description)> {
    let bytes = FileBytes::open(path)?;
    let tensors = from_bytes(&bytes, path)?;
    let is_finite = |data: &TensorData| data.iter::<f32>().any(f32::is_finite);
    if !tensors.is_empty() && !tensors.iter().any(|(_, data)| is_finite(data)) {
        let problem = "holds no finite number: its training has diverged, or the file is damaged";
        return Err(Error::file(path, None, None, problem));
    }
    Ok((tensors, description(&bytes, path)?))
}

/// Refuses a description of a model much larger than its weights, before it is made: what stands
/// there may be damaged.
fn check_size(tensors: &Tensors, description: &Description, path: &Path) -> Result<()> {
    /// Parameters that any machine can hold.
    const SMALL: usize = 1 << 24;
    let Description { model, sizes } = description;
    model.check().map_err(|error| Error::file(path, None, None, error.to_string()))?;
    let held: usize = tensors.iter().map(|(_, data)| data.num_elements()).sum();
    let largest = sizes.vocab.max(sizes.context).max(sizes.source_context.unwrap_or(0));
    if largest > u32::MAX as usize || model.parameters(*sizes) > held.max(SMALL).saturating_mul(2) {
        let problem = format!("is damaged: it describes a model much larger than its {held} numbers");
        return Err(Error::file(path, None, None, problem));
    }
    Ok(())
}

/// The model that a weights file describes, with its weights.
///
/// # Errors
/// As [`read`], and where the weights are not those of the model.
pub fn load_model<B: ops::Backend>(path: &Path, device: &B::Device) -> Result<(Model<B>, Description)> {
    let (tensors, description) = read(path)?;
    check_size(&tensors, &description, path)?;
    let model = description.model.init(description.sizes, device)?;
    Ok((apply(model, tensors, path)?, description))
}
