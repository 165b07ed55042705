//! The purpose of each parameter of a module.
//!
//! Initialisation, weight decay and Muon treat a parameter by its [`ParamRole`]; no name of a field decides anything.
//! A module states the roles by destructuring itself without `..`, so that a new parameter does not compile before it
//! has one.

use burn::module::ParamId;
use burn::nn::{Embedding, Linear};
use burn::tensor::backend::Backend;

/// The purpose of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamRole {
    /// A table, of which rows are read: of tokens, positions or distances.
    Embedding,
    /// The matrix of the head, which makes logits of the residual stream.
    Head,
    /// A matrix of a layer within a block.
    Matrix {
        /// Columns of the matrices that stand side by side in it, as queries, keys and values.
        columns: Vec<usize>,
        /// Whether its result is added to the residual stream.
        writes_to_stream: bool,
    },
    /// The factors of a norm.
    Gain,
    /// What is added to each row.
    Bias,
}

impl ParamRole {
    /// Whether weight decay applies: to matrices and tables, not to gains and biases.
    pub fn decays(&self) -> bool {
        match self {
            Self::Embedding | Self::Head | Self::Matrix { .. } => true,
            Self::Gain | Self::Bias => false,
        }
    }
}

/// A module that knows what its parameters are for.
pub trait ParamRoles {
    /// Calls `visit` with each parameter and its role, in the order in which Burn visits them: that of the fields.
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole));

    /// The roles of all parameters, in the same order.
    fn roles(&self) -> Vec<ParamRole> {
        let mut roles = Vec::new();
        self.visit_roles(&mut |_, role| roles.push(role));
        roles
    }
}

impl<M: ParamRoles> ParamRoles for Option<M> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        self.iter().for_each(|module| module.visit_roles(visit));
    }
}

impl<M: ParamRoles> ParamRoles for Vec<M> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        self.iter().for_each(|module| module.visit_roles(visit));
    }
}

impl<B: Backend> ParamRoles for Embedding<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { weight } = self;
        visit(weight.id, ParamRole::Embedding);
    }
}

/// Visits the parameters of a linear layer whose weight has this role.
pub(crate) fn linear<B: Backend>(
    layer: &Linear<B>,
    role: ParamRole,
    visit: &mut dyn FnMut(ParamId, ParamRole),
) {
    let Linear { weight, bias } = layer;
    visit(weight.id, role);
    bias.iter().for_each(|bias| visit(bias.id, ParamRole::Bias));
}

/// Visits those of a layer that reads the residual stream, into matrices of these columns.
pub(crate) fn reading<B: Backend>(
    layer: &Linear<B>,
    columns: Vec<usize>,
    visit: &mut dyn FnMut(ParamId, ParamRole),
) {
    linear(layer, ParamRole::Matrix { columns, writes_to_stream: false }, visit);
}

/// Visits those of a layer that writes to the residual stream.
pub(crate) fn writing<B: Backend>(layer: &Linear<B>, visit: &mut dyn FnMut(ParamId, ParamRole)) {
    let [_, d_model] = layer.weight.lazy_shape().dims();
    linear(layer, ParamRole::Matrix { columns: vec![d_model], writes_to_stream: true }, visit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Architecture, ModelConfig, NormPlacement, Sizes, each_parameter};
    use crate::ops::Activation;
    use crate::position::PositionScheme;
    use burn_flex::Flex;

    #[test]
    fn every_parameter_has_a_role_that_fits_its_shape() {
        let sizes = Sizes { vocab: 11, context: 7, source_context: Some(5) };
        let base = ModelConfig { d_model: 24, heads: 3, layers: 2, ..ModelConfig::default() };
        let mut configs =
            PositionScheme::ALL.map(|position| ModelConfig { position, ..base.clone() }).to_vec();
        configs.push(ModelConfig { architecture: Architecture::OneLayer, ..base.clone() });
        configs.push(ModelConfig { architecture: Architecture::EncoderDecoder, ..base.clone() });
        configs.push(ModelConfig {
            key_value_heads: 1,
            d_head: 10,
            d_inner: 40,
            activation: Activation::Swiglu,
            qk_norm: true,
            embedding_norm: true,
            head_bias: true,
            norm: NormPlacement::Post,
            ..base
        });
        for config in configs {
            let model = config.init_lazy::<Flex>(sizes, &Default::default()).unwrap();
            let (mut found, mut roles) = (Vec::new(), Vec::new());
            each_parameter(&model, |id, shape| found.push((id, shape)));
            model.visit_roles(&mut |id, role| roles.push((id, role)));
            assert_eq!(found.len(), roles.len(), "{config:?}");
            for ((id, shape), (of, role)) in found.iter().zip(&roles) {
                assert_eq!((id, role.decays()), (of, shape.num_dims() == 2), "{role:?} of {shape:?}");
                if let ParamRole::Matrix { columns, .. } = role {
                    assert_eq!(columns.iter().sum::<usize>(), shape[1], "{role:?} of {shape:?}");
                }
            }
        }
    }
}
