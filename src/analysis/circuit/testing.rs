//! Models with the same random weights in every run of the tests.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{ElementConversion, Tensor, TensorData};
use burn_ndarray::NdArray;

use crate::kernels::random::random;
use crate::model::{Model, ModelConfig, Sizes};

/// Adds noise of a standard deviation to constant parameters (gains and biases), and replaces random ones by noise.
struct Noise {
    deviation: f64,
    /// The number of parameters so far: the seed of the next one.
    seed: u64,
}

impl ModuleMapper<NdArray> for Noise {
    fn map_float<const D: usize>(
        &mut self,
        parameter: Param<Tensor<NdArray, D>>,
    ) -> Param<Tensor<NdArray, D>> {
        self.seed += 1;
        let (seed, deviation) = (self.seed, self.deviation);
        parameter.map(|old| {
            let uniform = TensorData::new(random(seed, old.shape().num_elements()), old.shape());
            let uniform = Tensor::from_data(uniform, &old.device());
            let noise = uniform * (deviation * 3f64.sqrt());
            let first = old.clone().slice([const { 0..1 }; D]).expand(old.shape());
            if old.clone().equal(first).all().into_scalar().elem() { old + noise } else { noise }
        })
    }
}

/// Returns a new model with noise of this standard deviation in its parameters, so that no gain is one and no bias is
/// zero.
pub(super) fn noisy_model(config: &ModelConfig, sizes: Sizes, deviation: f64) -> Model<NdArray> {
    let model = config.init::<NdArray>(sizes, &Default::default()).unwrap();
    model.map(&mut Noise { deviation, seed: 0 })
}
