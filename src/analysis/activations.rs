//! The activations of a forward pass at chosen hook sites.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use burn::tensor::{DType, Tensor, TensorData, backend::Backend};
use safetensors::tensor::{Dtype, TensorView};

use crate::error::{Error, Result};
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, Patch, Stack};
use crate::model::{Inputs, Model, Source};

/// The name of the logits among the recorded activations.
pub const LOGITS: &str = "logits";

/// The metadata entry of a file of activations with the SHA-256 of the weights that computed them.
pub const WEIGHTS_ENTRY: &str = "causal_attention.weights_sha256";

/// A hook site of a model, with the sizes of its activation that do not depend on the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordableSite {
    /// The site.
    pub site: HookSite,
    /// The number of heads; `None` if the activation is not per head.
    heads: Option<usize>,
    /// The number of columns; for scores and patterns they are the keys.
    width: usize,
}

impl RecordableSite {
    /// Returns the sites of a model, in the order in which a forward pass reaches them.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the model cannot read a single token.
    pub fn all<B: Backend>(model: &Model<B>, device: &B::Device) -> Result<Vec<Self>> {
        let token = || Tensor::zeros([1, 1], device);
        let has_source = matches!(model, Model::Decoder(decoder) if decoder.encoder.is_some());
        let source = has_source.then(|| Source { tokens: token(), lengths: vec![1] });
        let mut found = Sites(Vec::new());
        model.forward_hooked(Inputs { source, ..Inputs::tokens(token()) }, &mut found)?;
        Ok(found.0)
    }

    /// Returns the shape of the activation for a sequence of `time` tokens: `[time, width]`, or
    /// `[heads, query_time, width]`.
    pub fn shape(&self, time: usize, source_time: usize) -> Vec<usize> {
        use AttentionPoint::{Key, Parts, Pattern, Scores, Value};
        let queries = if self.site.stack == Stack::Encoder { source_time } else { time };
        let (rows, columns) = match self.site.point {
            HookPoint::CrossAttention(Key | Value) => (source_time, self.width),
            HookPoint::CrossAttention(Scores | Pattern) => (queries, source_time),
            HookPoint::SelfAttention(Scores | Parts | Pattern) => (queries, queries),
            _ => (queries, self.width),
        };
        self.heads.into_iter().chain([rows, columns]).collect()
    }
}

/// Collects the sites of a pass over one token.
struct Sites(Vec<RecordableSite>);

impl<B: Backend> Hooks<B> for Sites {
    fn wants(&self, _site: HookSite) -> bool {
        true
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let [_, _, width] = activation.dims();
        self.0.push(RecordableSite { site, heads: None, width });
        activation
    }

    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, heads, _, width] = activation.dims();
        self.0.push(RecordableSite { site, heads: Some(heads), width });
        activation
    }
}

/// A recorded activation of one sequence.
#[derive(Debug, Clone)]
pub struct Activation {
    /// The name of the site, or [`LOGITS`].
    pub name: String,
    /// The values; see [`RecordableSite::shape`].
    pub data: TensorData,
}

/// Records the activations of one sequence at `sites`, with a patch applied, and the logits if `with_logits` is true,
/// as numbers of type `dtype`.
///
/// # Errors
/// [`crate::Error::Shape`] if the model cannot read the sequence.
pub fn record<B: Backend>(
    (model, patch): (&Model<B>, &Patch),
    inputs: Inputs<B>,
    sites: &BTreeSet<HookSite>,
    with_logits: bool,
    dtype: DType,
) -> Result<Vec<Activation>> {
    let mut recorder = SiteRecorder { sites, dtype, recorded: Vec::new() };
    let logits = model.forward_hooked(inputs, &mut patch.hooks(0, &mut recorder))?;
    if with_logits {
        recorder.keep(LOGITS.to_string(), logits);
    }
    Ok(recorder.recorded)
}

/// Returns the patch that takes the activations of a pass over `inputs`. At each site, the pairs are a patched position
/// and the position in `inputs` whose value it takes.
///
/// # Errors
/// [`crate::Error::Shape`] if the model cannot read the inputs.
pub fn patch_from<B: Backend>(
    model: &Model<B>,
    inputs: Inputs<B>,
    positions: BTreeMap<HookSite, Vec<[usize; 2]>>,
) -> Result<Patch> {
    let sites = positions.keys().copied().collect();
    let recorded = record((model, &Patch::default()), inputs, &sites, false, DType::F32)?;
    let mut recorded: HashMap<_, _> = recorded.into_iter().map(|it| (it.name, it.data)).collect();
    let mut patch = Patch::default();
    for (site, pairs) in positions {
        if let Some(values) = recorded.remove(&site.to_string()) {
            patch.insert(site, values, pairs);
        }
    }
    Ok(patch)
}

/// Serialises activations as a safetensors file with these metadata entries.
///
/// # Errors
/// Returns an error if an activation exceeds the range of its type.
pub fn to_safetensors(activations: &[Activation], metadata: HashMap<String, String>) -> Result<Vec<u8>> {
    let views = activations.iter().map(view).collect::<Result<Vec<_>>>()?;
    safetensors::serialize(views, Some(metadata))
        .map_err(|error| Error::Failed(format!("cannot serialise activations: {error}")))
}

/// Returns the view of an activation that a safetensors file stores.
fn view(Activation { name, data }: &Activation) -> Result<(&str, TensorView<'_>)> {
    if !data.iter::<f32>().all(f32::is_finite) {
        return Err(Error::Input(format!(
            "the activation `{name}` has numbers that are infinite or NaN in this type; write it as f32, or check the \
             weights with `evaluate`"
        )));
    }
    let dtype = if data.dtype == DType::F16 { Dtype::F16 } else { Dtype::F32 };
    let view = TensorView::new(dtype, data.shape.to_vec(), data.as_bytes());
    Ok((name, view.expect("the data of an activation matches its shape")))
}

/// Keeps the activations at the chosen sites.
struct SiteRecorder<'a> {
    sites: &'a BTreeSet<HookSite>,
    dtype: DType,
    recorded: Vec<Activation>,
}

impl SiteRecorder<'_> {
    /// Copies an activation of a batch with one sequence to the host.
    fn keep<B: Backend, const D: usize>(&mut self, name: String, activation: Tensor<B, D>) {
        let mut data = activation.into_data().convert_dtype(self.dtype);
        data.shape = data.shape.to_vec()[1..].to_vec().into();
        self.recorded.push(Activation { name, data });
    }
}

impl<B: Backend> Hooks<B> for SiteRecorder<'_> {
    fn wants(&self, site: HookSite) -> bool {
        self.sites.contains(&site)
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.keep(site.to_string(), activation.clone());
        activation
    }

    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        self.keep(site.to_string(), activation.clone());
        activation
    }
}
