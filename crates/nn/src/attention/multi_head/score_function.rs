//! The scores of queries and keys and their softmax, apart from masks and positions.
//!
//! ```text
//! s_ij = scale q_i . k_j          scale = 1 / sqrt(d_head) unless given
//! s_ij = c tanh(s_ij / c)         with a softcap c (Gemma Team, 2024, arXiv 2408.00118)
//! p_ij = e^s_ij / (e^z + sum over k of e^s_ik)   with the sink z of the head
//! ```
//!
//! A softmax must give all its weight to some keys, and many heads give it to the first token when they have nothing to
//! read (Xiao et al., 2023, arXiv 2309.17453). A sink takes that weight instead. With a sink of zero, the denominator is
//! `1 + sum` (Miller, 2023, "Attention is off by one"); gpt-oss learns the sink of each head (OpenAI, 2025, arXiv
//! 2508.10925).

use burn::config::Config;
use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::display::display_line;
use crate::role::{ParamRole, ParamRoles};
use crate::{Result, range};

choices! {
    /// The sinks of attention: the values of `sinks`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Sinks {
        /// None: the weights of a query sum to 1.
        #[default]
        None,
        /// A sink of zero for each head, which adds 1 to the denominator of the softmax.
        OffByOne,
        /// A learned sink for each head, initially zero.
        Learned,
    }
}

/// The configuration of the scores and of their softmax.
#[derive(Config, Debug)]
pub struct ScoreConfig {
    /// The factor of the products of queries and keys; `1 / sqrt(d_head)` if absent.
    pub scale: Option<f64>,
    /// The bound of the scores; none if absent.
    pub softcap: Option<f64>,
    /// The sinks of the softmax.
    #[config(default = "Sinks::None")]
    pub sinks: Sinks,
}

impl ScoreConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if one is not positive.
    pub fn check(&self) -> Result<()> {
        [("scale", self.scale), ("softcap", self.softcap)].into_iter().try_for_each(|(name, number)| {
            number.map_or(Ok(()), |number| range::check(name, number.into(), range::Range::POSITIVE))
        })
    }

    /// Returns the module for attention with `maps` softmax maps.
    pub fn init<B: Backend>(&self, maps: usize, device: &B::Device) -> ScoreFunction<B> {
        let is_learned = self.sinks == Sinks::Learned;
        ScoreFunction {
            sinks: is_learned.then(|| Initializer::Zeros.init([maps], device)),
            kind: self.sinks,
            scale: self.scale,
            softcap: self.softcap,
        }
    }
}

/// The settings and parameters of the scores and of their softmax.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct ScoreFunction<B: Backend> {
    /// The learned sinks, `[heads]`; with differential attention, one for each of its maps, `[2 * heads]`.
    pub sinks: Option<Param<Tensor<B, 1>>>,
    /// The kind of sinks.
    #[module(skip)]
    pub kind: Sinks,
    /// The factor of the products of queries and keys; `1 / sqrt(d_head)` if absent.
    #[module(skip)]
    pub scale: Option<f64>,
    /// The bound of the scores.
    #[module(skip)]
    pub softcap: Option<f64>,
}

display_line!(ScoreFunction, self => {
    sinks: self.kind,
    scale: self.scale,
    softcap: self.softcap,
});

impl<B: Backend> ParamRoles for ScoreFunction<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { sinks, kind: _, scale: _, softcap: _ } = self;
        sinks.iter().for_each(|sinks| visit(sinks.id, ParamRole::Bias));
    }
}

impl<B: Backend> ScoreFunction<B> {
    /// Creates the plain function: `1 / sqrt(d_head)`, without a bound and sinks.
    pub fn plain() -> Self {
        Self { sinks: None, kind: Sinks::None, scale: None, softcap: None }
    }

    /// Returns the sink of each of `heads` heads, `[heads]`; `None` without sinks.
    pub fn sink_logits(&self, heads: usize, device: &B::Device) -> Option<Tensor<B, 1>> {
        match self.kind {
            Sinks::None => None,
            Sinks::OffByOne => Some(Tensor::zeros([heads], device)),
            Sinks::Learned => self.sinks.as_ref().map(Param::val),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tolerance};
    use burn_ndarray::NdArray;

    use super::*;
    use crate::attention::{Mask, MultiHeadAttentionConfig};
    use crate::ops::{Projections, ScorePosition};

    #[test]
    fn weights_match_the_equation() {
        let (device, scale, softcap) = (Default::default(), 0.7, 1.3);
        for (sinks, sink) in
            [(Sinks::None, None), (Sinks::OffByOne, Some(0.0)), (Sinks::Learned, Some(0.5f64))]
        {
            let scores = ScoreConfig { scale: Some(scale), softcap: Some(softcap), sinks };
            let config = MultiHeadAttentionConfig::new(6, 1).with_scores(scores);
            let mut attention = config.init::<NdArray>(&device).unwrap();
            attention.scores.sinks = attention.scores.sinks.map(|sinks| sinks.map(|initial| initial + 0.5));
            let input = Tensor::random([2, 5, 6], Distribution::Normal(0.0, 2.0), &device);
            let Projections::Packed(qkv) = attention.project(input.clone()) else { panic!() };
            let [query, key] = [0, 6].map(|start| qkv.clone().narrow(2, start, 6));
            let scores = (query.matmul(key.transpose()) * (scale / softcap)).tanh() * softcap;
            let sum = scores.clone().exp().sum_dim(2) + sink.map_or(0.0, f64::exp);
            let expected = (scores.exp() / sum).into_data();
            let found = attention.forward_with_weights(input, &Mask::none(), &ScorePosition::None);
            let weights = found.unwrap().1.squeeze_dim::<3>(1).into_data();
            weights.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }
}
