//! The models: what stands around attention to make a decoder of it.
//!
//! [`ModelConfig`] is the section `[model]` of a config, [`Model`] what it builds.

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

pub use cache::ModelCache;
pub use config::{Architecture, ModelConfig, Sizes};
pub use decoder::Decoder;
pub use encoder::{Encoder, Source};
pub use initialisation::Initialisation;
pub use maps::AttentionMaps;
pub use one_layer::OneLayerDecoder;
pub use residual::NormPlacement;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Int, Shape, Tensor, backend::Backend};

use crate::attention::{KeyValueCache, Memory};
use crate::role::{ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure, ops};

/// Any of the architectures.
#[expect(clippy::large_enum_variant, reason = "a program holds one or two models, and a box is no module")]
#[derive(Module, Debug)]
pub enum Model<B: Backend> {
    /// Embedding, causal attention, head.
    OneLayer(OneLayerDecoder<B>),
    /// A stack of causal blocks, which may attend to what an encoder reads.
    Decoder(Decoder<B>),
}

/// What a model reads.
#[derive(Debug, Clone)]
pub struct Inputs<B: Backend> {
    /// The tokens whose successors are predicted, `[batch, time]`.
    pub tokens: Tensor<B, 2, Int>,
    /// What an encoder-decoder answers; no other model takes one.
    pub source: Option<Source<B>>,
}

impl<B: Backend> Inputs<B> {
    /// Tokens without a source, `[batch, time]`.
    pub fn tokens(tokens: Tensor<B, 2, Int>) -> Self {
        Self { tokens, source: None }
    }
}

/// Calls `work` with the number and the shape of each parameter of a module, in the order of its fields. Gradients are
/// kept by that number alone: whatever rank they are asked for with, they have their own.
pub fn each_parameter<B: Backend>(module: &impl Module<B>, work: impl FnMut(ParamId, Shape)) {
    struct Each<F>(F);
    impl<B: Backend, F: FnMut(ParamId, Shape)> ModuleVisitor<B> for Each<F> {
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
            (self.0)(parameter.id, parameter.lazy_shape());
        }
    }
    module.visit(&mut Each(work));
}

/// Whether there is something to read in `what`, of this shape.
fn check_tokens(what: &str, [batch, time]: [usize; 2]) -> Result<()> {
    ensure(batch > 0 && time > 0, Error::Shape, || {
        format!("the {what} [{batch}, {time}]: there is nothing to read")
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
    /// Whether the model can read these inputs. That all ids lie below the vocabulary is to be
    /// checked where the ids are made.
    ///
    /// # Errors
    /// [`Error::Shape`] naming what does not fit, as a sequence beyond the context.
    pub fn check(&self, inputs: &Inputs<B>) -> Result<()> {
        let [batch, time] = inputs.tokens.dims();
        check_tokens("tokens are", [batch, time])?;
        self.check_source(inputs.source.as_ref())?;
        let [sources, _] = inputs.source.as_ref().map_or([batch, time], |source| source.tokens.dims());
        ensure(sources == batch, Error::Shape, || {
            format!("there are {sources} sources, but {batch} answers")
        })?;
        match self {
            Model::Decoder(Decoder { position: Some(position), .. }) => position.check(time),
            Model::OneLayer(_) | Model::Decoder(_) => Ok(()),
        }
    }

    /// Whether the model reads this source, or reads none where there is none.
    fn check_source(&self, source: Option<&Source<B>>) -> Result<()> {
        let encoder = match self {
            Model::OneLayer(_) => None,
            Model::Decoder(model) => model.encoder.as_ref(),
        };
        match (encoder, source) {
            (None, None) => Ok(()),
            (Some(encoder), Some(source)) => encoder.check(source),
            (Some(_), None) => Err(Error::Shape(
                "an encoder-decoder needs a source to answer, but there is none".to_string(),
            )),
            (None, Some(source)) => Err(Error::Shape(format!(
                "a source of {:?} was given, but only an encoder-decoder reads one",
                source.tokens.dims()
            ))),
        }
    }

    /// The logits of the token that follows each token.
    ///
    /// # Shapes
    /// `inputs.tokens` `[batch, time]`; the result is `[batch, time, vocab]`.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn forward(&self, inputs: Inputs<B>) -> Result<Tensor<B, 3>> {
        self.run(inputs, None)
    }

    /// [`Self::forward`], with the weights of every attention in the model.
    ///
    /// # Shapes
    /// As [`Self::forward`]; those of the weights stand at [`AttentionMaps`].
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn forward_with_maps(&self, inputs: Inputs<B>) -> Result<(Tensor<B, 3>, AttentionMaps<B>)> {
        let mut maps = AttentionMaps::default();
        let logits = self.run(inputs, Some(&mut maps))?;
        Ok((logits, maps))
    }

    fn run(&self, inputs: Inputs<B>, mut maps: Option<&mut AttentionMaps<B>>) -> Result<Tensor<B, 3>> {
        self.check(&inputs)?;
        let memories = self.project_memory(inputs.source, maps.as_deref_mut())?;
        let x = self.stream(inputs.tokens, &memories, None, maps)?;
        Ok(self.logits(x))
    }

    /// What each layer attends over of a source; nothing in a model that reads none.
    fn project_memory(
        &self,
        source: Option<Source<B>>,
        maps: Option<&mut AttentionMaps<B>>,
    ) -> Result<Vec<Memory<B>>> {
        self.check_source(source.as_ref())?;
        match self {
            Model::OneLayer(_) => Ok(Vec::new()),
            Model::Decoder(model) => model.project_memory(source, maps),
        }
    }

    /// What stands before the head, `[batch, time, d_model]`.
    fn stream(
        &self,
        tokens: Tensor<B, 2, Int>,
        memories: &[Memory<B>],
        caches: Option<&mut [KeyValueCache<B>]>,
        maps: Option<&mut AttentionMaps<B>>,
    ) -> Result<Tensor<B, 3>> {
        match self {
            Model::OneLayer(model) => {
                let cache = caches.map(|caches| &mut caches[0]);
                model.stream(tokens, cache, maps.map(|maps| &mut maps.causal))
            }
            Model::Decoder(model) => model.stream(tokens, memories, caches, maps),
        }
    }

    /// `[batch, time, d_model]` to `[batch, time, vocab]`.
    fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match self {
            Model::OneLayer(model) => ops::linear(&model.head, x),
            Model::Decoder(model) => model.logits(x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::PositionScheme;
    use burn::tensor::Tolerance;
    use burn_ndarray::NdArray;

    type B = NdArray;

    const SIZES: Sizes = Sizes { vocab: 11, context: 7, source_context: Some(5) };

    fn model(architecture: Architecture, position: PositionScheme) -> Model<B> {
        let config = ModelConfig { architecture, position, d_model: 18, heads: 3, ..ModelConfig::default() };
        config.init(SIZES, &Default::default()).unwrap()
    }

    fn inputs<const TIME: usize>(tokens: [i64; TIME], source: Option<([i64; 5], [bool; 5])>) -> Inputs<B> {
        let device = Default::default();
        let source = source.map(|(tokens, padding)| Source {
            tokens: Tensor::from_ints([tokens], &device),
            padding: Tensor::from_data([padding], &device),
        });
        Inputs { tokens: Tensor::from_ints([tokens], &device), source }
    }

    #[test]
    fn future_tokens_cannot_change_past_logits() {
        for architecture in [Architecture::OneLayer, Architecture::Decoder, Architecture::EncoderDecoder] {
            for position in PositionScheme::ALL {
                let model = model(architecture, position);
                let source = (architecture == Architecture::EncoderDecoder).then_some(([2; 5], [false; 5]));
                let logits = |tokens: [i64; 7]| model.forward(inputs(tokens, source)).unwrap();
                let before = logits([3, 1, 4, 1, 5, 9, 2]);
                let after = logits([3, 1, 4, 8, 7, 0, 10]);
                let past = |logits: &Tensor<B, 3>| logits.clone().narrow(1, 0, 3).into_data();
                let changed = |logits: &Tensor<B, 3>| logits.clone().narrow(1, 3, 1).into_data();
                assert_eq!(past(&before), past(&after), "{architecture:?} {position:?}");
                assert_ne!(changed(&before), changed(&after), "{architecture:?} {position:?}");
            }
        }
    }

    #[test]
    fn the_padding_of_a_source_cannot_change_logits() {
        for position in PositionScheme::ALL {
            let model = model(Architecture::EncoderDecoder, position);
            let padding = [false, false, false, true, true];
            let logits =
                |source| model.forward(inputs([3, 1, 4], Some((source, padding)))).unwrap().into_data();
            assert_eq!(logits([5, 9, 2, 0, 0]), logits([5, 9, 2, 6, 10]), "{position:?}");
            assert_ne!(logits([5, 9, 2, 0, 0]), logits([5, 9, 8, 0, 0]), "{position:?}");
        }
    }

    #[test]
    fn maps_come_with_every_layer_and_leave_the_logits_alone() {
        for architecture in [Architecture::OneLayer, Architecture::Decoder, Architecture::EncoderDecoder] {
            let model = model(architecture, PositionScheme::Rotary);
            let source = (architecture == Architecture::EncoderDecoder).then_some(([2; 5], [false; 5]));
            let inputs = inputs([3, 1, 4], source);
            let (logits, maps) = model.forward_with_maps(inputs.clone()).unwrap();
            let expected = model.forward(inputs).unwrap().into_data();
            logits.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            let dims = |maps: &[Tensor<B, 4>]| maps.iter().map(Tensor::dims).collect::<Vec<_>>();
            let (causal, encoder, cross) = match architecture {
                Architecture::OneLayer => (1, 0, 0),
                Architecture::Decoder => (2, 0, 0),
                Architecture::EncoderDecoder => (2, 2, 2),
            };
            assert_eq!(dims(&maps.causal), vec![[1, 3, 3, 3]; causal]);
            assert_eq!(dims(&maps.encoder), vec![[1, 3, 5, 5]; encoder]);
            assert_eq!(dims(&maps.cross), vec![[1, 3, 3, 5]; cross]);
        }
    }

    #[test]
    fn only_learned_positions_end_at_the_context() {
        for position in PositionScheme::ALL {
            let model = model(Architecture::Decoder, position);
            let inputs = Inputs::tokens(Tensor::zeros([2, 13], &Default::default()));
            match model.check(&inputs) {
                Ok(()) => assert_eq!(model.forward(inputs).unwrap().dims(), [2, 13, 11]),
                Err(error) => {
                    assert_eq!(position, PositionScheme::Learned);
                    let message = error.to_string();
                    assert!(message.contains("13") && message.contains('7'), "{message}");
                }
            }
        }
    }

    #[test]
    fn inputs_that_do_not_fit_the_architecture_are_refused() {
        let decoder = model(Architecture::Decoder, PositionScheme::Learned);
        let refused = |model: &Model<B>, inputs| model.check(&inputs).unwrap_err().to_string();
        let source = Some(([2; 5], [false; 5]));
        assert!(refused(&decoder, inputs([1, 2], source)).contains("[1, 5]"));
        assert!(
            refused(&decoder, Inputs::tokens(Tensor::zeros([2, 0], &Default::default()))).contains("[2, 0]")
        );
        let answers = model(Architecture::EncoderDecoder, PositionScheme::Learned);
        assert!(refused(&answers, inputs([1, 2], None)).contains("needs a source"));
        let mut two = inputs([1, 2], source);
        two.tokens = Tensor::zeros([2, 3], &Default::default());
        assert_eq!(refused(&answers, two), "there are 1 sources, but 2 answers");
    }
}
