//! The section `[model]` of a config: which model, of which size.

use burn::nn::LinearConfig;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::Model;
use super::block::BlockConfig;
use super::decoder::Decoder;
use super::embedding::{Embeddings, token_embedding};
use super::encoder::Encoder;
use super::encoder_decoder::EncoderDecoder;
use super::initialisation::Initialisation;
use super::one_layer::OneLayerDecoder;
use super::residual::NormPlacement;
use crate::ops::Gelu;
use crate::position::{Direction, PositionScheme, PositionSizes};
use crate::{Error, Result};

/// Which parts the model is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Embedding, causal attention, head; nothing else.
    OneLayer,
    /// A stack of causal blocks, as GPT-2.
    #[default]
    Decoder,
    /// A stack that reads a source, and one that writes its answer.
    EncoderDecoder,
}

/// The section `[model]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Which parts the model is made of.
    pub architecture: Architecture,
    /// Width of the stream. 64 learns the sequence tasks in seconds on two cores.
    pub d_model: usize,
    /// Number of heads; divides `d_model`. 4 leaves each head a width of 16.
    pub heads: usize,
    /// Number of key and value heads, which divides `heads`; 0 (the default) for as many as `heads`.
    pub key_value_heads: usize,
    /// Number of blocks. 2 is the least that can copy what followed an earlier match.
    pub layers: usize,
    /// Probability of dropping attention weights and elements of the sub-layers' outputs while
    /// training. 0: data that is drawn anew cannot be learnt by heart.
    pub dropout: f64,
    /// Position scheme. Learned, the simplest that works.
    pub position: PositionScheme,
    /// Where the norms stand. Pre-norm trains without warm-up.
    pub norm: NormPlacement,
    /// What the norms add to the variance. PyTorch's and GPT-2's default.
    pub norm_epsilon: f64,
    /// Inner width of the feed-forward layers, in multiples of `d_model`. 4 since the first Transformer.
    pub feed_forward: usize,
    /// Form of GELU. The exact one; GPT-2's weights want "tanh".
    pub gelu: Gelu,
    /// Whether projections and norms have biases, as in the first Transformer and GPT-2.
    pub bias: bool,
    /// Whether a stack's own head has a bias too. Off, as in GPT-2 and most that followed. The head of
    /// the one-layer decoder has one where `bias` is on.
    pub head_bias: bool,
    /// Whether the token embedding serves as head too. Off: small vocabularies save little by it.
    pub tie_embeddings: bool,
    /// Whether a norm follows the embeddings, as in BERT. Off, as in GPT-2.
    pub embedding_norm: bool,
    /// What that norm adds to the variance. BERT's number.
    pub embedding_norm_epsilon: f64,
    /// How linear layers start. Uniform suits any width.
    pub initialisation: Initialisation,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            architecture: Architecture::default(),
            d_model: 64,
            heads: 4,
            key_value_heads: 0,
            layers: 2,
            dropout: 0.0,
            position: PositionScheme::default(),
            norm: NormPlacement::default(),
            norm_epsilon: 1e-5,
            feed_forward: 4,
            gelu: Gelu::default(),
            bias: true,
            head_bias: false,
            tie_embeddings: false,
            embedding_norm: false,
            embedding_norm_epsilon: 1e-12,
            initialisation: Initialisation::default(),
        }
    }
}

/// The sizes that the data give a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Number of tokens that exist.
    pub vocab: usize,
    /// Longest sequence in training.
    pub context: usize,
    /// Longest source in training, for a model that reads one.
    pub source_context: Option<usize>,
}

/// More parameters than this are a slip of the keyboard: 64 GB of weights alone.
const MOST_PARAMETERS: usize = 16_000_000_000;

impl ModelConfig {
    /// Whether these keys make a model.
    ///
    /// # Errors
    /// [`Error::Key`] naming the key, its value and the remedy.
    pub fn check(&self) -> Result<()> {
        for (key, value, most) in [
            ("model.d_model", self.d_model, 65_536),
            ("model.layers", self.layers, 1_024),
            ("model.feed_forward", self.feed_forward, 64),
        ] {
            if value == 0 {
                return Err(Error::key(key, value, "must be at least 1"));
            }
            if value > most {
                return Err(Error::key(key, value, format!("is too large: at most {most}")));
            }
        }
        self.block().attention().check()?;
        self.position.check(self.d_model, self.heads)?;
        for (key, value) in [
            ("model.norm_epsilon", self.norm_epsilon),
            ("model.embedding_norm_epsilon", self.embedding_norm_epsilon),
        ] {
            if !(value > 0.0 && value < 1.0) {
                return Err(Error::key(key, value, "must lie above 0 and below 1, as 1e-5"));
            }
        }
        Ok(())
    }

    /// Builds the model and draws its parameters from the backend's random numbers.
    ///
    /// # Errors
    /// Those of [`Self::check`]; [`Error::Key`] where the model would be too large to hold;
    /// [`Error::Shape`] where a size of the data is zero.
    pub fn init<B: Backend>(&self, sizes: Sizes, device: &B::Device) -> Result<Model<B>> {
        self.check()?;
        if sizes.vocab == 0 || sizes.context == 0 {
            return Err(Error::Shape(format!(
                "a model needs a vocabulary and a context of at least 1, but they are {} and {}",
                sizes.vocab, sizes.context
            )));
        }
        if self.architecture == Architecture::EncoderDecoder && sizes.source_context.unwrap_or(0) == 0 {
            return Err(Error::Shape("an encoder-decoder needs sources of at least one token".to_string()));
        }
        let parameters = self.parameters(sizes);
        if parameters > MOST_PARAMETERS {
            let problem = format!("makes a model of {parameters} parameters: choose a smaller one");
            return Err(Error::key("model.d_model", self.d_model, problem));
        }
        let block = self.block();
        let places = self.position_sizes(sizes.context, Direction::Causal);
        let source_places = self.position_sizes(sizes.source_context.unwrap_or(0), Direction::Both);
        let model = match self.architecture {
            Architecture::OneLayer => Model::OneLayer(OneLayerDecoder {
                embedding: token_embedding(sizes.vocab, self.d_model, device),
                attention: block.attention().init(device)?,
                head: self.head(sizes.vocab).init(device),
            }),
            Architecture::Decoder => Model::Decoder(Decoder {
                embedding: self.embeddings(sizes.vocab, device)?,
                position: self.position.init(places, device)?,
                blocks: (0..self.layers).map(|_| block.init(device)).collect::<Result<_>>()?,
                norm: block.final_norm(device),
                head: (!self.tie_embeddings).then(|| self.head(sizes.vocab).init(device)),
            }),
            Architecture::EncoderDecoder => Model::EncoderDecoder(EncoderDecoder {
                encoder: Encoder {
                    embedding: self.embeddings(sizes.vocab, device)?,
                    position: self.position.init(source_places, device)?,
                    blocks: (0..self.layers).map(|_| block.init(device)).collect::<Result<_>>()?,
                    norm: block.final_norm(device),
                },
                embedding: self.embeddings(sizes.vocab, device)?,
                position: self.position.init(places, device)?,
                blocks: (0..self.layers).map(|_| block.init_cross(device)).collect::<Result<_>>()?,
                norm: block.final_norm(device),
                head: (!self.tie_embeddings).then(|| self.head(sizes.vocab).init(device)),
            }),
        };
        // Nothing returns to a stream where there is none.
        let layers = if self.architecture == Architecture::OneLayer { 0 } else { self.layers };
        Ok(self.initialisation.apply(model, layers))
    }

    /// How many parameters [`Self::init`] makes, counted without making them.
    pub fn parameters(&self, sizes: Sizes) -> usize {
        let block = self.block();
        let places = self.position_sizes(sizes.context, Direction::Causal);
        let source_places = self.position_sizes(sizes.source_context.unwrap_or(0), Direction::Both);
        let table = sizes.vocab * self.d_model;
        let embeddings = table + if self.embedding_norm { 2 * self.d_model } else { 0 };
        let untied_head = (self.d_model + usize::from(self.has_head_bias())) * sizes.vocab;
        let head = if self.tie_embeddings { 0 } else { untied_head };
        let stack = |block_parameters: usize, places: PositionSizes| {
            embeddings
                + self.position.parameters(places)
                + self.layers * block_parameters
                + block.final_norm_parameters()
        };
        match self.architecture {
            Architecture::OneLayer => table + block.attention().parameters() + untied_head,
            Architecture::Decoder => stack(block.parameters(), places) + head,
            Architecture::EncoderDecoder => {
                stack(block.parameters(), source_places) + stack(block.cross_parameters(), places) + head
            }
        }
    }

    /// Blocks of all stacks together; the one-layer decoder counts as one.
    pub fn blocks(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 1,
            Architecture::Decoder => self.layers,
            Architecture::EncoderDecoder => 2 * self.layers,
        }
    }

    /// The inner width of the feed-forward layers; 0 where the architecture has none.
    pub fn inner_width(&self) -> usize {
        match self.architecture {
            Architecture::OneLayer => 0,
            Architecture::Decoder | Architecture::EncoderDecoder => self.feed_forward * self.d_model,
        }
    }

    fn block(&self) -> BlockConfig {
        BlockConfig::new(self.d_model, self.heads, self.inner_width())
            .with_key_value_heads((self.key_value_heads > 0).then_some(self.key_value_heads))
            .with_gelu(self.gelu)
            .with_dropout(self.dropout)
            .with_bias(self.bias)
            .with_norm(self.norm)
            .with_norm_epsilon(self.norm_epsilon)
    }

    fn embeddings<B: Backend>(&self, vocab: usize, device: &B::Device) -> Result<Embeddings<B>> {
        let epsilon = self.embedding_norm.then_some(self.embedding_norm_epsilon);
        Embeddings::new(vocab, self.d_model, epsilon, self.dropout, device)
    }

    fn has_head_bias(&self) -> bool {
        match self.architecture {
            Architecture::OneLayer => self.bias,
            Architecture::Decoder | Architecture::EncoderDecoder => self.head_bias,
        }
    }

    fn head(&self, vocab: usize) -> LinearConfig {
        LinearConfig::new(self.d_model, vocab).with_bias(self.has_head_bias())
    }

    fn position_sizes(&self, context: usize, direction: Direction) -> PositionSizes {
        PositionSizes { d_model: self.d_model, heads: self.heads, context, direction }
    }
}

#[cfg(test)]
mod tests;
