//! The items most often needed to build a model: `use causal_attention_nn::prelude::*`.

pub use crate::attention::{
    CausalAttention, CausalAttentionConfig, KeyValueCache, Mask, MultiHeadAttention,
    MultiHeadAttentionConfig, SplitHeads, SplitHeadsConfig,
};
pub use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, NoHooks, Stack};
pub use crate::model::loss::cross_entropy;
pub use crate::model::{
    Architecture, AttentionMaps, Inputs, Model, ModelCache, ModelConfig, NormPlacement, Sizes, Source,
};
pub use crate::ops::{Activation, Norm, NormKind, ScorePosition};
pub use crate::position::PositionScheme;
pub use crate::role::{ParamRole, ParamRoles};
