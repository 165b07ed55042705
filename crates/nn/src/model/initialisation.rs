//! Initialisation of parameters.
//!
//! Burn initialises each parameter at its first read, in no fixed order. One pass over the finished model fixes the
//! order, so that equal seeds give equal models.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::{Distribution, Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::role::{ParamRole, ParamRoles};

choices! {
    /// The initialisation of linear layers; embeddings are always drawn from N(0, 0.02).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Initialisation {
        /// Uniform in `±1 / sqrt(d_in)`, PyTorch's default for linear layers. The scale of the outputs does not depend
        /// on the width.
        #[default]
        Uniform,
        /// As in GPT-2: weights from N(0, 0.02), zero biases, and projections into the residual stream divided by
        /// `sqrt(2 layers)`. Designed for widths of several hundred and more.
        Normal,
    }
}

impl Initialisation {
    /// Initialises all parameters of a model with `layers` blocks, in field order. With `zero_projections`, the weights
    /// of projections into the residual stream are zero instead.
    pub fn apply<B: Backend, M: Module<B> + ParamRoles>(
        self,
        module: M,
        layers: usize,
        zero_projections: bool,
    ) -> M {
        let [weights, output_deviation] = match self {
            Initialisation::Uniform => [None; 2],
            Initialisation::Normal => [0.02, 0.02 / (2.0 * layers as f64).sqrt().max(1.0)].map(Some),
        };
        let output_deviation = if zero_projections { Some(0.0) } else { output_deviation };
        let mut deviations = HashMap::new();
        module.visit_roles(&mut |id, role| {
            let deviation = match role {
                ParamRole::Matrix { writes_to_residual: true, .. } => output_deviation,
                ParamRole::Matrix { .. } | ParamRole::Head => weights,
                ParamRole::Bias => weights.map(|_| 0.0),
                ParamRole::Embedding | ParamRole::Gain => None,
            };
            deviations.extend(deviation.map(|deviation| (id, deviation)));
        });
        module.map(&mut Draw { deviations })
    }
}

/// Draws parameters with their standard deviations. A parameter without a standard deviation is only read, so that Burn
/// initialises it.
struct Draw {
    deviations: HashMap<ParamId, f64>,
}

impl<B: Backend> ModuleMapper<B> for Draw {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(&deviation) = self.deviations.get(&param.id) else {
            param.val();
            return param;
        };
        let (shape, device) = (param.lazy_shape(), param.lazy_device());
        let value = match deviation {
            0.0 => Tensor::zeros(shape, &device),
            _ => Tensor::random(shape, Distribution::Normal(0.0, deviation), &device),
        };
        Param::initialized(param.id, value.require_grad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Architecture, Model, ModelConfig, Sizes};
    use burn_ndarray::NdArray;

    type B = NdArray;

    const SIZES: Sizes = Sizes { vocab: 101, context: 103, source_context: None };

    fn config(initialisation: Initialisation) -> ModelConfig {
        ModelConfig { d_model: 128, heads: 4, layers: 8, initialisation, ..Default::default() }
    }

    fn model(initialisation: Initialisation) -> Model<B> {
        config(initialisation).init(SIZES, &Default::default()).unwrap()
    }

    /// Returns the standard deviation around zero.
    fn deviation<const D: usize>(parameter: &Param<Tensor<B, D>>) -> f64 {
        f64::from(parameter.val().powf_scalar(2.0).mean().sqrt().into_scalar())
    }

    #[test]
    fn normal_initialisation_matches_gpt2() {
        let Model::Decoder(model) = model(Initialisation::Normal) else { panic!() };
        let block = &model.blocks[5];
        let close = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.05, "{value}");
        close(deviation(&model.embedding.token.weight), 0.02);
        close(deviation(&block.attention.qkv.weight), 0.02);
        close(deviation(&block.feed_forward.up.weight), 0.02);
        close(deviation(&model.head.as_ref().unwrap().weight), 0.02);
        // Two sub-layers per block: 0.02 / sqrt(16).
        close(deviation(&block.attention.output.weight), 0.005);
        close(deviation(&block.feed_forward.down.weight), 0.005);
        assert_eq!(deviation(block.attention.qkv.bias.as_ref().unwrap()), 0.0);
        assert_eq!(deviation(&block.attention_norm.gamma), 1.0);
    }

    #[test]
    fn zero_projections_zeroes_residual_output_weights() {
        for initialisation in Initialisation::ALL {
            let Model::Decoder(plain) = model(initialisation) else { panic!() };
            let config = ModelConfig { zero_projections: true, ..config(initialisation) };
            let Model::Decoder(zero) = config.init::<B>(SIZES, &Default::default()).unwrap() else {
                panic!()
            };
            for (zero, plain) in zero.blocks.iter().zip(&plain.blocks) {
                assert_eq!(deviation(&zero.attention.output.weight), 0.0);
                assert_eq!(deviation(&zero.feed_forward.down.weight), 0.0);
                assert!(deviation(&plain.attention.output.weight) > 0.0);
                assert!(deviation(&zero.attention.qkv.weight) > 0.0);
            }
        }
    }

    #[test]
    fn uniform_initialisation_matches_pytorch() {
        let Model::Decoder(model) = model(Initialisation::Uniform) else { panic!() };
        let bound = 1.0 / 128f64.sqrt();
        for parameter in [&model.blocks[0].attention.qkv.weight, &model.blocks[0].feed_forward.up.weight] {
            let largest = f64::from(parameter.val().abs().max().into_scalar());
            assert!(largest <= bound * 1.0001 && largest > bound * 0.99, "{largest}");
        }
    }

    #[test]
    fn all_parameters_are_initialised_eagerly() {
        struct IsInitialised;
        impl burn::module::ModuleVisitor<B> for IsInitialised {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                assert!(param.is_initialized());
            }
        }
        let sizes = Sizes { vocab: 5, context: 7, source_context: Some(3) };
        for architecture in Architecture::ALL {
            for initialisation in Initialisation::ALL {
                let config = ModelConfig { architecture, initialisation, ..ModelConfig::default() };
                config.init::<B>(sizes, &Default::default()).unwrap().visit(&mut IsInitialised);
            }
        }
    }
}
