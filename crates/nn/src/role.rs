//! The role of each parameter of a module.
//!
//! Initialisation, weight decay and Muon select a parameter's treatment by its [`ParamRole`], never by the name of its
//! field. A module lists the roles by destructuring itself without `..`, so a new parameter without a role is a compile
//! error.

use burn::module::ParamId;
use burn::nn::{Embedding, Linear};
use burn::tensor::backend::Backend;

/// The role of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamRole {
    /// A lookup table of rows: token embeddings, position embeddings or biases by distance.
    Embedding,
    /// The matrix of the output layer, which maps the residual stream to logits.
    Head,
    /// The weight matrix of a layer within a block.
    Matrix {
        /// The number of columns of each matrix concatenated in it, such as queries, keys and values.
        columns: Vec<usize>,
        /// True if the layer's output is added to the residual stream.
        writes_to_residual: bool,
    },
    /// The scale of a norm, or a vector of the scale of differential attention's second maps.
    Gain,
    /// A vector added to each row.
    Bias,
}

impl ParamRole {
    /// Returns true if weight decay applies: to matrices and tables, not to gains and biases.
    pub fn decays(&self) -> bool {
        match self {
            Self::Embedding | Self::Head | Self::Matrix { .. } => true,
            Self::Gain | Self::Bias => false,
        }
    }
}

/// A module that reports the role of each of its parameters.
pub trait ParamRoles {
    /// Calls `visit` with each parameter and its role, in field order, which is the order in which Burn visits
    /// parameters.
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole));

    /// Returns the roles of all parameters, in the same order.
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

/// Visits the parameters of a linear layer whose weight has the given role.
pub(crate) fn visit_linear<B: Backend>(
    layer: &Linear<B>,
    role: ParamRole,
    visit: &mut dyn FnMut(ParamId, ParamRole),
) {
    let Linear { weight, bias } = layer;
    visit(weight.id, role);
    bias.iter().for_each(|bias| visit(bias.id, ParamRole::Bias));
}

/// Visits the parameters of a layer that reads the residual stream; `columns` are the widths of its concatenated
/// matrices.
pub(crate) fn visit_reader<B: Backend>(
    layer: &Linear<B>,
    columns: Vec<usize>,
    visit: &mut dyn FnMut(ParamId, ParamRole),
) {
    visit_linear(layer, ParamRole::Matrix { columns, writes_to_residual: false }, visit);
}

/// Visits the parameters of a layer whose output is added to the residual stream.
pub(crate) fn visit_writer<B: Backend>(layer: &Linear<B>, visit: &mut dyn FnMut(ParamId, ParamRole)) {
    let [_, d_model] = layer.weight.lazy_shape().dims();
    visit_linear(layer, ParamRole::Matrix { columns: vec![d_model], writes_to_residual: true }, visit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Architecture, ModelConfig, NormPlacement, Sizes, each_parameter};
    use crate::ops::Activation;
    use crate::position::PositionScheme;
    use burn_flex::Flex;

    #[test]
    fn every_parameter_has_a_role_matching_its_shape() {
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
            for ((id, shape), (role_id, role)) in found.iter().zip(&roles) {
                assert_eq!((id, role.decays()), (role_id, shape.num_dims() == 2), "{role:?} of {shape:?}");
                if let ParamRole::Matrix { columns, .. } = role {
                    assert_eq!(columns.iter().sum::<usize>(), shape[1], "{role:?} of {shape:?}");
                }
            }
        }
    }
}
