//! The heads and the feed-forward layers of a model as nodes of its circuit.

use std::fmt;

use serde::Serialize;

use crate::analysis::circuit::{Component, DirectEffect, Edge};

/// A head or a feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CircuitNode {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The head, counted from 0; `None` for the feed-forward layer.
    pub head: Option<usize>,
    /// True for a head of the cross-attention.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cross: bool,
}

impl CircuitNode {
    /// Returns the sender and the receiver of a connection.
    pub(super) fn ends(edge: &Edge) -> [Self; 2] {
        let node = |(layer, head): (usize, Option<usize>), cross: bool| Self { layer, head, cross };
        [node(edge.from, edge.from_cross), node(edge.to, edge.to_cross)]
    }

    /// Returns the heads among which the node is matched: its layer, and the kind of attention.
    pub(super) fn group(self) -> (usize, bool) {
        (self.layer, self.cross)
    }
}

impl From<&Component> for CircuitNode {
    fn from(component: &Component) -> Self {
        Self { layer: component.layer, head: component.head, cross: component.cross }
    }
}

impl From<&DirectEffect> for CircuitNode {
    fn from(effect: &DirectEffect) -> Self {
        Self { layer: effect.layer, head: effect.head, cross: effect.cross }
    }
}

/// Writes the name that `--ablate` takes, such as `1.3`, `cross.1.3` or `1.mlp`.
impl fmt::Display for CircuitNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, head, cross } = self;
        match head {
            Some(head) if *cross => write!(f, "cross.{layer}.{head}"),
            Some(head) => write!(f, "{layer}.{head}"),
            None => write!(f, "{layer}.mlp"),
        }
    }
}
