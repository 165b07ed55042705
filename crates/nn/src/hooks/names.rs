//! The names of hook sites, after those of TransformerLens.
//!
//! | name | activation |
//! |---|---|
//! | `embed` | [`HookPoint::Embedding`] |
//! | `resid_pre.3`, `resid_mid.3`, `resid_post.3` | the residual stream of block 3 |
//! | `attn.3.q`, `.k`, `.v`, `.scores`, `.parts`, `.pattern`, `.out` | the self-attention of block 3 |
//! | `cross.3.q` and so on | the cross-attention of block 3 |
//! | `mlp.3.hidden`, `mlp.3.out` | the feed-forward layer of block 3 |
//! | `final` | [`HookPoint::Final`] |
//!
//! Sites of an encoder begin with `encoder.`; sites of a decoder lack a prefix.

use std::fmt;

use super::{AttentionPoint, HookPoint, HookSite, Stack};

impl AttentionPoint {
    fn name(self) -> &'static str {
        match self {
            AttentionPoint::Query => "q",
            AttentionPoint::Key => "k",
            AttentionPoint::Value => "v",
            AttentionPoint::Scores => "scores",
            AttentionPoint::Parts => "parts",
            AttentionPoint::Pattern => "pattern",
            AttentionPoint::Output => "out",
        }
    }
}

impl fmt::Display for HookSite {
    /// Writes the name of the site, such as `attn.3.pattern`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stack, layer, point } = self;
        if *stack == Stack::Encoder {
            f.write_str("encoder.")?;
        }
        match point {
            HookPoint::Embedding => f.write_str("embed"),
            HookPoint::ResidualPre => write!(f, "resid_pre.{layer}"),
            HookPoint::SelfAttention(point) => write!(f, "attn.{layer}.{}", point.name()),
            HookPoint::CrossAttention(point) => write!(f, "cross.{layer}.{}", point.name()),
            HookPoint::ResidualMid => write!(f, "resid_mid.{layer}"),
            HookPoint::FeedForwardHidden => write!(f, "mlp.{layer}.hidden"),
            HookPoint::FeedForwardOutput => write!(f, "mlp.{layer}.out"),
            HookPoint::ResidualPost => write!(f, "resid_post.{layer}"),
            HookPoint::Final => f.write_str("final"),
        }
    }
}
