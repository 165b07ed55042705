//! Building a model from its config.

use burn::nn::LinearConfig;
use burn::tensor::backend::Backend;

use super::block::Block;
use super::embedding::{Embeddings, token_embedding};
use super::{Architecture, Decoder, Encoder, Model, ModelConfig, OneLayerDecoder, Sizes, each_parameter};
use crate::ops::{Norm, NormKind};
use crate::position::{Direction, PositionSettings, Widths};
use crate::role::{ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure};

/// The maximum number of parameters of a model. A larger model is probably a typo: its weights alone would exceed 64
/// GB.
const MAX_PARAMETERS: usize = 16_000_000_000;

impl ModelConfig {
    /// Builds the model and initialises its parameters with the backend's random numbers.
    ///
    /// # Errors
    /// The errors of [`Self::check`]; [`Error::Argument`] if the model has too many parameters; [`Error::Shape`] if a
    /// size of the data is zero.
    pub fn init<B: Backend>(&self, sizes: Sizes, device: &B::Device) -> Result<Model<B>> {
        // Without a residual stream, no projection is scaled by the number of layers.
        let layers = if self.architecture == Architecture::OneLayer { 0 } else { self.layers };
        Ok(self.initialisation.apply(self.init_lazy(sizes, device)?, layers, self.zero_projections))
    }

    /// Builds the model for existing weights: no parameter takes memory before it is loaded.
    ///
    /// # Errors
    /// Same as [`Self::init`].
    pub fn init_lazy<B: Backend>(&self, sizes: Sizes, device: &B::Device) -> Result<Model<B>> {
        self.check()?;
        let Sizes { vocab, context, source_context } = sizes;
        let source = source_context.unwrap_or(0);
        let min_source = usize::from(self.architecture == Architecture::EncoderDecoder);
        for (name, size, min) in
            [("vocab", vocab, 1), ("context", context, 1), ("source_context", source, min_source)]
        {
            ensure(size >= min, Error::Shape, || format!("`sizes.{name}` = {size} must be at least {min}"))?;
        }
        let longest = context.max(source);
        let limit = self.position.max_positions(longest, self.largest_position);
        let has_positions =
            self.architecture == Architecture::OneLayer || limit.is_none_or(|limit| longest <= limit);
        let problem = format!("must be at least {longest}, the length of the longest sequence");
        Error::check(has_positions, "largest_position", self.largest_position, problem)?;
        let parameters: usize = self.counts::<B>(sizes, device).iter().map(|(_, count)| count).sum();
        let problem = format!("gives a model of {parameters} parameters; choose a smaller value");
        Error::check(parameters <= MAX_PARAMETERS, "d_model", self.d_model, problem)?;
        self.build(sizes, device)
    }

    /// Returns the number of parameters of the model that [`Self::init`] builds, which is the same on any backend.
    ///
    /// # Panics
    /// If [`Self::check`] fails.
    pub fn parameters<B: Backend>(&self, sizes: Sizes) -> usize {
        self.parameters_by_role::<B>(sizes).iter().map(|(_, count)| count).sum()
    }

    /// Returns the role and the number of elements of each parameter tensor, in the order of [`ParamRoles::roles`].
    ///
    /// # Panics
    /// If [`Self::check`] fails.
    pub fn parameters_by_role<B: Backend>(&self, sizes: Sizes) -> Vec<(ParamRole, usize)> {
        self.counts::<B>(sizes, &Default::default())
    }

    fn counts<B: Backend>(&self, sizes: Sizes, device: &B::Device) -> Vec<(ParamRole, usize)> {
        // Position tables are computed eagerly, but only learned ones count as parameters; the others are kept small.
        let sizes = match self.position.ends_with_context() {
            true => sizes,
            false => Sizes { context: 1, source_context: sizes.source_context.map(|_| 1), ..sizes },
        };
        let model = self.build::<B>(sizes, device).expect("the config was checked");
        let mut counts = Vec::new();
        each_parameter(&model, |_, shape| counts.push(shape.num_elements()));
        model.roles().into_iter().zip(counts).collect()
    }

    fn build<B: Backend>(&self, sizes: Sizes, device: &B::Device) -> Result<Model<B>> {
        let head = |bias| LinearConfig::new(self.d_model, sizes.vocab).with_bias(bias).init(device);
        if self.architecture == Architecture::OneLayer {
            return Ok(Model::OneLayer(OneLayerDecoder {
                embedding: token_embedding(sizes.vocab, self.d_model, device),
                attention: self.attention(0).init(device)?,
                head: head(self.bias),
                config: self.clone(),
            }));
        }
        let reads_source = self.architecture == Architecture::EncoderDecoder;
        let embedding = || Embeddings::new(self, sizes.vocab, device);
        let blocks = |reads_memory: bool| -> Result<Vec<Block<B>>> {
            (0..self.layers).map(|layer| Block::new(self, layer, reads_memory, device)).collect()
        };
        let norm = || self.norm.has_final_norm().then(|| self.residual_norm(device));
        let widths = Widths {
            d_model: self.d_model,
            heads: self.heads,
            d_head: self.head_width(),
            rotation: self.rotation(),
            largest_position: self.largest_position,
        };
        let position =
            |context, direction| self.position.init(&PositionSettings { widths, context, direction, device });
        let encoder = || -> Result<Encoder<B>> {
            let position = position(sizes.source_context.unwrap_or(0), Direction::Both);
            Ok(Encoder { embedding: embedding(), position, blocks: blocks(false)?, norm: norm() })
        };
        Ok(Model::Decoder(Decoder {
            encoder: reads_source.then(encoder).transpose()?,
            embedding: embedding(),
            position: position(sizes.context, Direction::Causal),
            local_position: self.local_rotation().and_then(|rotation| {
                let widths = Widths { rotation, ..widths };
                let settings =
                    PositionSettings { widths, context: sizes.context, direction: Direction::Causal, device };
                self.position.init(&settings)
            }),
            blocks: blocks(reads_source)?,
            norm: norm(),
            head: (!self.tie_embeddings).then(|| head(self.head_bias)),
            config: self.clone(),
        }))
    }

    /// Creates a norm of the residual stream.
    pub(super) fn residual_norm<B: Backend>(&self, device: &B::Device) -> Norm<B> {
        self.norm_of(self.norm_epsilon, self.bias, device)
    }

    /// Creates a norm of vectors of width `d_model`.
    pub(super) fn norm_of<B: Backend>(&self, epsilon: f64, bias: bool, device: &B::Device) -> Norm<B> {
        match self.norm_kind {
            NormKind::Layer => Norm::layer(self.d_model, epsilon, bias, device),
            NormKind::Rms => Norm::rms(self.d_model, epsilon, device).with_unit_offset(self.norm_unit_offset),
        }
    }
}
