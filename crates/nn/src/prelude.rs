//! The items most often needed to build a model: `use causal_attention_nn::prelude::*`.

pub use crate::attention::{
    CausalAttention, CausalAttentionConfig, KeyValueCache, Mask, MultiHeadAttention,
    MultiHeadAttentionConfig, SplitHeads, SplitHeadsConfig,
};
pub use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, NoHooks, Stack};
pub use crate::model::loss::cross_entropy;
pub use crate::model::{
    Architecture, AttentionMaps, Initialisation, Inputs, Model, ModelCache, ModelConfig, NormPlacement,
    Sizes, Source,
};
pub use crate::ops::{Activation, Kernels, KeyRange, Norm, NormKind, Precision, ScorePosition};
pub use crate::position::{PositionScheme, RopeScaling};
pub use crate::role::{ParamRole, ParamRoles};
