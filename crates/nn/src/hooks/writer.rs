//! The components that write to the residual stream of a decoder, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{AttentionPoint, HookPoint, HookSite, Stack};

/// A component that writes to the residual stream of a decoder, by which commands and configs name it. Layers and heads
/// count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ResidualWriter {
    /// A head of the causal self-attention: layer and head.
    Head(usize, usize),
    /// A head of the cross-attention: layer and head.
    Cross(usize, usize),
    /// A feed-forward layer.
    FeedForward(usize),
}

impl ResidualWriter {
    /// Returns the site of the component's output, and its index among the heads there.
    pub fn site(self) -> (HookSite, usize) {
        let at = |layer, point| HookSite { stack: Stack::Decoder, layer, point };
        match self {
            Self::Head(layer, head) => (at(layer, HookPoint::SelfAttention(AttentionPoint::Output)), head),
            Self::Cross(layer, head) => (at(layer, HookPoint::CrossAttention(AttentionPoint::Output)), head),
            Self::FeedForward(layer) => (at(layer, HookPoint::FeedForwardOutput), 0),
        }
    }
}

impl fmt::Display for ResidualWriter {
    /// Writes the name: `1.3`, `cross.1.3` or `1.mlp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(layer, head) => write!(f, "{layer}.{head}"),
            Self::Cross(layer, head) => write!(f, "cross.{layer}.{head}"),
            Self::FeedForward(layer) => write!(f, "{layer}.mlp"),
        }
    }
}

impl FromStr for ResidualWriter {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (is_cross, rest) = name.strip_prefix("cross.").map_or((false, name), |rest| (true, rest));
            let (layer, head) = rest.split_once('.')?;
            let layer = layer.parse().ok()?;
            match (is_cross, head) {
                (false, "mlp") => Some(Self::FeedForward(layer)),
                (false, head) => Some(Self::Head(layer, head.parse().ok()?)),
                (true, head) => Some(Self::Cross(layer, head.parse().ok()?)),
            }
        };
        parse().ok_or_else(|| {
            format!("`{name}` is not a component; write a head as 1.3 or cross.1.3 (layer and head, from 0), and a \
                     feed-forward layer as 1.mlp")
        })
    }
}

impl TryFrom<String> for ResidualWriter {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<ResidualWriter> for String {
    fn from(component: ResidualWriter) -> Self {
        component.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_others_are_refused() {
        for component in
            [ResidualWriter::Head(1, 30), ResidualWriter::Cross(0, 2), ResidualWriter::FeedForward(12)]
        {
            assert_eq!(component.to_string().parse(), Ok(component));
        }
        for name in ["", "1", "1.", ".1", "1.x", "cross.1.mlp", "cross.1", "-1.0", "1.2.3", "1.*"] {
            assert!(name.parse::<ResidualWriter>().is_err(), "{name}");
        }
    }
}
