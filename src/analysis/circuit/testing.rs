//! Models with random weights for tests.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Distribution, Tensor};
use burn_ndarray::NdArray;

use crate::model::{Model, ModelConfig, Sizes};

/// Adds normal noise of a standard deviation to all parameters.
struct Noise(f64);
impl ModuleMapper<NdArray> for Noise {
    fn map_float<const D: usize>(
        &mut self,
        parameter: Param<Tensor<NdArray, D>>,
    ) -> Param<Tensor<NdArray, D>> {
        parameter.map(|it| it.random_like(Distribution::Normal(0.0, self.0)) + it)
    }
}

/// Returns a new model with noise of this standard deviation added to its parameters, so that no gain is one and no bias
/// is zero.
pub(super) fn noisy_model(config: &ModelConfig, sizes: Sizes, deviation: f64) -> Model<NdArray> {
    config.init::<NdArray>(sizes, &Default::default()).unwrap().map(&mut Noise(deviation))
}
