//! Models: everything around attention that makes up a decoder or encoder-decoder.
//!
//! [`ModelConfig`] describes a model; [`Model`] is the model it builds.

pub mod block;
mod build;
mod cache;
mod config;
pub mod decoder;
pub mod embedding;
pub mod encoder;
pub mod feed_forward;
mod initialisation;
pub mod loss;
mod maps;
pub mod one_layer;
mod residual;
mod writers;

pub use cache::ModelCache;
pub use config::{Architecture, LayerSpan, ModelConfig, QkNormScope, Sizes};
pub use decoder::Decoder;
pub use encoder::{Encoder, Source};
pub use initialisation::Initialisation;
pub use maps::AttentionMaps;
pub use one_layer::OneLayerDecoder;
pub use residual::NormPlacement;

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::nn::Embedding;
use burn::tensor::{Int, Shape, Tensor, backend::Backend};

use crate::attention::{KeyValueCache, Memory};
use crate::display::display_variant;
use crate::hooks::{Hooks, NoHooks, Patch};
use crate::position::DocumentPositions;
use crate::role::{ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure, ops};

/// A model of any architecture.
#[derive(Module, Debug)]
#[module(custom_display)]
#[expect(clippy::large_enum_variant, reason = "a program holds few models, and rarely moves them")]
pub enum Model<B: Backend> {
    /// The one-layer decoder: embedding, causal attention, output layer.
    OneLayer(OneLayerDecoder<B>),
    /// A stack of causal blocks, optionally with an encoder.
    Decoder(Decoder<B>),
}

display_variant!(Model { OneLayer, Decoder });

/// The inputs of a model.
#[derive(Debug, Clone)]
pub struct Inputs<B: Backend> {
    /// The tokens whose successors are predicted, `[batch, time]`.
    pub tokens: Tensor<B, 2, Int>,
    /// The source of an encoder-decoder; other models take none.
    pub source: Option<Source<B>>,
    /// The document of each token, `[batch][time]`, if several documents are packed into a sequence: adjacent tokens
    /// with the same number belong together. Tokens attend only to their own document, in which positions count from
    /// 0, so each document gets the logits that it would get alone.
    pub documents: Option<Arc<[Vec<u32>]>>,
}

impl<B: Backend> Inputs<B> {
    /// Creates inputs from tokens `[batch, time]`, without a source, each sequence a single document.
    pub fn tokens(tokens: Tensor<B, 2, Int>) -> Self {
        Self { tokens, source: None, documents: None }
    }

    /// Packs several documents into each sequence, given the document of each token, `[batch][time]`.
    pub fn with_documents(self, documents: &[Vec<u32>]) -> Self {
        Self { documents: Some(documents.into()), ..self }
    }
}

/// Calls `work` with the id and the shape of each parameter of a module, in field order. Gradients are stored by id
/// alone, so the id is enough to find a gradient, whatever rank is requested.
pub fn each_parameter<B: Backend>(module: &impl Module<B>, work: impl FnMut(ParamId, Shape)) {
    struct Each<F>(F);
    impl<B: Backend, F: FnMut(ParamId, Shape)> ModuleVisitor<B> for Each<F> {
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
            (self.0)(parameter.id, parameter.lazy_shape());
        }
    }
    module.visit(&mut Each(work));
}

/// Checks that there are tokens and, where ids can be read without delay, that each has a row in the `table`. `name` is the
/// argument that holds them.
fn check_tokens<B: Backend>(name: &str, tokens: &Tensor<B, 2, Int>, table: &Embedding<B>) -> Result<()> {
    let [batch, time] = tokens.dims();
    ensure(batch > 0 && time > 0, Error::Shape, || {
        format!("`{name}` is [{batch}, {time}], but no axis may be empty")
    })?;
    let [vocab, _] = table.weight.lazy_shape().dims();
    let unknown = ops::id_outside(tokens, vocab);
    ensure(unknown.is_none(), Error::Shape, || {
        let id = unknown.unwrap_or_default();
        format!("`{name}` contains the id {id}, but the vocabulary has the ids 0 to {}", vocab - 1)
    })
}

impl<B: Backend> ParamRoles for Model<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        match self {
            Model::OneLayer(model) => model.visit_roles(visit),
            Model::Decoder(model) => model.visit_roles(visit),
        }
    }
}

impl<B: Backend> Model<B> {
    /// Checks that the model can read these inputs. Ids of tokens are checked on the CPU only: reading them from a GPU
    /// would delay each step.
    ///
    /// # Errors
    /// [`Error::Shape`] with the mismatched shape, for example a sequence longer than the context, or with the id that
    /// is not in the vocabulary.
    pub fn check(&self, inputs: &Inputs<B>) -> Result<()> {
        let [batch, time] = inputs.tokens.dims();
        check_tokens("inputs.tokens", &inputs.tokens, self.table())?;
        self.check_source(inputs.source.as_ref())?;
        let [sources, _] = inputs.source.as_ref().map_or([batch, time], |source| source.tokens.dims());
        ensure(sources == batch, Error::Shape, || {
            format!("the number of sources is {sources}, but the number of answers is {batch}")
        })?;
        let longest = match &inputs.documents {
            None => time,
            Some(documents) => {
                let wrong = documents.iter().map(Vec::len).find(|tokens| *tokens != time);
                let shape = [documents.len(), wrong.unwrap_or(time)];
                ensure(shape == [batch, time], Error::Shape, || {
                    format!("`inputs.documents` is {shape:?}, but must be [batch][time] = [{batch}, {time}]")
                })?;
                DocumentPositions::new(documents).longest()
            }
        };
        match self {
            Model::Decoder(Decoder { position: Some(position), .. }) => position.check(longest),
            Model::OneLayer(_) | Model::Decoder(_) => Ok(()),
        }
    }

    /// Checks that there is a valid source if and only if the model reads one.
    fn check_source(&self, source: Option<&Source<B>>) -> Result<()> {
        let encoder = match self {
            Model::OneLayer(_) => None,
            Model::Decoder(model) => model.encoder.as_ref(),
        };
        match (encoder, source) {
            (None, None) => Ok(()),
            (Some(encoder), Some(source)) => encoder.check(source),
            (Some(_), None) => {
                Err(Error::Shape("an encoder-decoder needs a source, but none is given".to_string()))
            }
            (None, Some(source)) => Err(Error::Shape(format!(
                "a source of {:?} is given, but only an encoder-decoder reads a source",
                source.tokens.dims()
            ))),
        }
    }

    /// Returns, for each token, the logits of the next token.
    ///
    /// # Shapes
    /// `inputs.tokens` `[batch, time]`; the result is `[batch, time, vocab]`.
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn forward(&self, inputs: Inputs<B>) -> Result<Tensor<B, 3>> {
        self.forward_hooked(inputs, &mut NoHooks)
    }

    /// Like [`Self::forward`], and also returns the attention weights of every layer.
    ///
    /// # Shapes
    /// Same as [`Self::forward`]; see [`AttentionMaps`] for the weights.
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn forward_with_maps(&self, inputs: Inputs<B>) -> Result<(Tensor<B, 3>, AttentionMaps<B>)> {
        self.patched_with_maps(inputs, &Patch::default())
    }

    /// Like [`Self::forward_with_maps`], with activations replaced by a patch.
    ///
    /// # Shapes
    /// Same as [`Self::forward_with_maps`].
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn patched_with_maps(
        &self,
        inputs: Inputs<B>,
        patch: &Patch,
    ) -> Result<(Tensor<B, 3>, AttentionMaps<B>)> {
        let [_, time] = inputs.tokens.dims();
        let documents = inputs.documents.clone();
        let mut maps = AttentionMaps::default();
        let logits = self.forward_hooked(inputs, &mut patch.hooks(0, &mut maps))?;
        let mask = |layer| self.config().mask::<B>(layer, documents.clone());
        maps.visible = (0..self.layers()).map(|layer| mask(layer).visible_keys(time, time)).collect();
        Ok((logits, maps))
    }

    /// Returns the config of the model.
    pub fn config(&self) -> &ModelConfig {
        match self {
            Model::OneLayer(model) => &model.config,
            Model::Decoder(model) => &model.config,
        }
    }

    /// Returns the token embedding, that of the decoder in an encoder-decoder.
    fn table(&self) -> &Embedding<B> {
        match self {
            Model::OneLayer(model) => &model.embedding,
            Model::Decoder(model) => &model.embedding.token,
        }
    }

    /// Returns the number of layers with causal self-attention.
    fn layers(&self) -> usize {
        match self {
            Model::OneLayer(_) => 1,
            Model::Decoder(model) => model.blocks.len(),
        }
    }

    /// Like [`Self::forward`], with hooks that read or replace activations.
    ///
    /// # Shapes
    /// Same as [`Self::forward`].
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn forward_hooked(&self, inputs: Inputs<B>, hooks: &mut dyn Hooks<B>) -> Result<Tensor<B, 3>> {
        self.check(&inputs)?;
        let memories = self.project_memory(inputs.source.clone(), hooks)?;
        let x = self.hidden_states(inputs, &memories, None, hooks)?;
        Ok(self.logits(x))
    }

    /// Returns the memory of each layer for a source; an empty list in a model without a source.
    fn project_memory(&self, source: Option<Source<B>>, hooks: &mut dyn Hooks<B>) -> Result<Vec<Memory<B>>> {
        self.check_source(source.as_ref())?;
        match self {
            Model::OneLayer(_) => Ok(Vec::new()),
            Model::Decoder(model) => model.project_memory(source, hooks),
        }
    }

    /// Returns the residual stream before the final norm, `[batch, time, d_model]`.
    fn hidden_states(
        &self,
        inputs: Inputs<B>,
        memories: &[Memory<B>],
        caches: Option<&mut [KeyValueCache<B>]>,
        hooks: &mut dyn Hooks<B>,
    ) -> Result<Tensor<B, 3>> {
        match self {
            Model::OneLayer(model) => model.hidden_states(inputs, caches.map(|caches| &mut caches[0]), hooks),
            Model::Decoder(model) => model.hidden_states(inputs, memories, caches, hooks),
        }
    }

    /// Returns the logits of a residual stream, `[batch, time, d_model]` to `[batch, time, vocab]`.
    fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match self {
            Model::OneLayer(model) => ops::linear(&model.head, x),
            Model::Decoder(model) => model.logits(x),
        }
    }
}

#[cfg(test)]
mod tests;
