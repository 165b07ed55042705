//! The models: what stands around attention to make a decoder of it.
//!
//! [`ModelConfig`] is the section `[model]` of a config, [`Model`] what it builds.

pub mod block;
mod config;
pub mod cross_block;
pub mod decoder;
pub mod embedding;
pub mod encoder;
pub mod encoder_decoder;
pub mod feed_forward;
mod initialisation;
pub mod loss;
pub mod one_layer;
mod residual;

pub use config::{Architecture, ModelConfig, Sizes};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use encoder_decoder::EncoderDecoder;
pub use initialisation::Initialisation;
pub use one_layer::OneLayerDecoder;
pub use residual::NormPlacement;

use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor, backend::Backend};

use crate::{Error, Result, ops};

/// Any of the architectures.
#[expect(clippy::large_enum_variant, reason = "a program holds one or two models, and a box is no module")]
#[derive(Module, Debug)]
pub enum Model<B: Backend> {
    /// Embedding, causal attention, head.
    OneLayer(OneLayerDecoder<B>),
    /// A stack of causal blocks.
    Decoder(Decoder<B>),
    /// An encoder, and a decoder that attends to its memory.
    EncoderDecoder(EncoderDecoder<B>),
}

/// What a model reads.
#[derive(Debug, Clone)]
pub struct Inputs<B: Backend> {
    /// The tokens whose successors are predicted, `[batch, time]`.
    pub tokens: Tensor<B, 2, Int>,
    /// What an encoder-decoder answers; no other model takes one.
    pub source: Option<Source<B>>,
}

/// A batch of sources.
#[derive(Debug, Clone)]
pub struct Source<B: Backend> {
    /// The sources' tokens, `[batch, source_time]`.
    pub tokens: Tensor<B, 2, Int>,
    /// Where they are padded, `[batch, source_time]`; `true` = hidden.
    pub padding: Tensor<B, 2, Bool>,
}

impl<B: Backend> Inputs<B> {
    /// Tokens without a source, `[batch, time]`.
    pub fn tokens(tokens: Tensor<B, 2, Int>) -> Self {
        Self { tokens, source: None }
    }
}

/// The attention weights of a forward pass, a tensor a layer in the order of the layers.
#[derive(Debug, Clone)]
pub struct AttentionMaps<B: Backend> {
    /// Causal self-attention, `[batch, heads, time, time]`.
    pub causal: Vec<Tensor<B, 4>>,
    /// The encoder's self-attention, `[batch, heads, source_time, source_time]`.
    pub encoder: Vec<Tensor<B, 4>>,
    /// The decoder's attention over the encoder's memory, `[batch, heads, time, source_time]`.
    pub cross: Vec<Tensor<B, 4>>,
}

impl<B: ops::Backend> Model<B> {
    /// Whether the model can read these inputs. That all ids lie below the vocabulary is to be
    /// checked where the ids are made.
    ///
    /// # Errors
    /// [`Error::Shape`] naming what does not fit, as a sequence beyond the context.
    pub fn check(&self, inputs: &Inputs<B>) -> Result<()> {
        let [batch, time] = inputs.tokens.dims();
        if batch == 0 || time == 0 {
            return Err(Error::Shape(format!("the tokens are [{batch}, {time}]: there is nothing to read")));
        }
        match (self, &inputs.source) {
            (Model::OneLayer(_), None) => Ok(()),
            (Model::Decoder(model), None) => model.check(time),
            (Model::EncoderDecoder(model), Some(source)) => model.check(source, batch, time),
            (Model::EncoderDecoder(_), None) => Err(Error::Shape(
                "an encoder-decoder needs a source to answer, but there is none".to_string(),
            )),
            (Model::OneLayer(_) | Model::Decoder(_), Some(source)) => Err(Error::Shape(format!(
                "a source of {:?} was given, but only an encoder-decoder reads one",
                source.tokens.dims()
            ))),
        }
    }

    /// The logits of the token that follows each token, `[batch, time, vocab]`.
    ///
    /// # Panics
    /// Where [`Self::check`] gives an error, with its message.
    pub fn forward(&self, inputs: Inputs<B>) -> Tensor<B, 3> {
        self.run(inputs, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`Self::forward`], with the causal self-attention's weights of each layer,
    /// `[batch, heads, time, time]`.
    ///
    /// # Panics
    /// As [`Self::forward`].
    pub fn forward_with_attention(&self, inputs: Inputs<B>) -> (Tensor<B, 3>, Vec<Tensor<B, 4>>) {
        let (logits, maps) = self.forward_with_maps(inputs);
        (logits, maps.causal)
    }

    /// [`Self::forward`], with the weights of every attention in the model.
    ///
    /// # Panics
    /// As [`Self::forward`].
    pub fn forward_with_maps(&self, inputs: Inputs<B>) -> (Tensor<B, 3>, AttentionMaps<B>) {
        let mut maps = AttentionMaps { causal: Vec::new(), encoder: Vec::new(), cross: Vec::new() };
        let logits = self.run(inputs, Some(&mut maps)).unwrap_or_else(|error| panic!("{error}"));
        (logits, maps)
    }

    fn run(&self, inputs: Inputs<B>, maps: Option<&mut AttentionMaps<B>>) -> Result<Tensor<B, 3>> {
        self.check(&inputs)?;
        let Inputs { tokens, source } = inputs;
        match (self, source) {
            (Model::EncoderDecoder(model), Some(source)) => model.forward(tokens, source, maps),
            (Model::OneLayer(model), _) => model.forward(tokens, maps.map(|maps| &mut maps.causal)),
            (Model::Decoder(model), _) => model.forward(tokens, maps.map(|maps| &mut maps.causal)),
            (Model::EncoderDecoder(_), None) => unreachable!("refused by the check"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    type B = NdArray;

    pub(super) const SIZES: Sizes = Sizes { vocab: 11, context: 7, source_context: None };

    fn model(architecture: Architecture) -> Model<B> {
        let config = ModelConfig { architecture, d_model: 15, heads: 3, ..ModelConfig::default() };
        config.init(SIZES, &Default::default()).unwrap()
    }

    #[test]
    fn future_tokens_cannot_change_past_logits() {
        for architecture in [Architecture::OneLayer, Architecture::Decoder] {
            let model = model(architecture);
            let logits = |tokens: [i64; 7]| {
                let tokens = Tensor::from_ints([tokens], &Default::default());
                model.forward(Inputs::tokens(tokens))
            };
            let before = logits([3, 1, 4, 1, 5, 9, 2]);
            let after = logits([3, 1, 4, 8, 7, 0, 10]);
            let past = |logits: Tensor<B, 3>| logits.narrow(1, 0, 3).into_data();
            let changed = |logits: Tensor<B, 3>| logits.narrow(1, 3, 1).into_data();
            assert_eq!(past(before.clone()), past(after.clone()), "{architecture:?}");
            assert_ne!(changed(before), changed(after), "{architecture:?}");
        }
    }

    #[test]
    fn a_sequence_beyond_learned_positions_names_both_lengths() {
        let inputs = Inputs::tokens(Tensor::zeros([2, 13], &Default::default()));
        let error = model(Architecture::Decoder).check(&inputs).unwrap_err().to_string();
        assert!(error.contains("13") && error.contains('7'), "{error}");
        assert!(model(Architecture::OneLayer).check(&inputs).is_ok());
    }
}
