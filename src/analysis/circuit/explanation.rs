//! What a decoder computes, as plain data: which parts make its prediction, of which kind they are, and which of them
//! feed which.

use serde::{Deserialize, Serialize};

use super::gain::Baseline;
use super::kind::Kind;
use super::lens::{Attribution, Lens};
use super::patching::Patching;
use super::weights::{HeadWeights, Input};

/// A part of a circuit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Counted from 0.
    pub layer: usize,
    /// The head; none for a feed-forward layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// Whether the head is one of the cross-attention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cross: bool,
    /// Whether it is the feed-forward layer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub feed_forward: bool,
    /// What it does, as far as that is known.
    pub kinds: Vec<Kind>,
    /// The loss of the whole model with this component alone mean-ablated.
    pub mean_ablated_loss: f64,
}

/// A path from one head into another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Layer and head that write.
    pub from: [usize; 2],
    /// Layer and head that read.
    pub to: [usize; 2],
    /// Whether the head that writes is one of the cross-attention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_cross: bool,
    /// Whether the head that reads is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_cross: bool,
    /// By which input.
    pub input: Input,
    /// How strongly the weights of the two compose there.
    pub composition: f64,
    /// The same of random weights of these shapes.
    pub random: f64,
    /// The loss of the whole model with this path alone ablated: its reader gets what the sender's mean makes of it.
    pub path_ablated_loss: f64,
}

/// What a decoder computes: `circuit.json`. Losses are in nats per token. One that is read from a file is checked: its
/// lists fit each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Explanation {
    /// The SHA-256 of the weights that are explained.
    #[serde(default)]
    pub weights_sha256: Option<String>,
    /// What the memory or the time did not suffice for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// How many sequences it was found on, and their targets.
    pub sequences: usize,
    /// Targets in them.
    pub targets: usize,
    /// The model's loss on them.
    pub loss: f64,
    /// The loss of the best baseline, from which the gain is counted.
    pub baseline: f64,
    /// The best baseline.
    pub baseline_of: Baseline,
    /// The loss with all but the components mean-ablated.
    pub loss_of_circuit: f64,
    /// The share of the gain over the baseline that the components recover: 1 is the loss of the whole model, more is a
    /// lower loss.
    pub gain_kept: f64,
    /// The reason why no circuit is named, where there is none: components, edges and patching are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_circuit: Option<String>,
    /// The smallest set of parts that was found, from the most important on: by how far the loss moves when each is
    /// mean-ablated.
    pub components: Vec<Component>,
    /// Who feeds whom among their heads.
    pub edges: Vec<Edge>,
    /// All of it in words.
    pub sentences: Vec<String>,
    /// The prediction after each block.
    pub lens: Lens,
    /// The same through an affine map at each depth, trained on the training set; none where that is not known, and of
    /// models so wide that it takes too long.
    #[serde(default)]
    pub tuned_lens: Option<Lens>,
    /// What each part adds to the logit of the target.
    pub attribution: Vec<Attribution>,
    /// What carries the answer between clean and corrupted sequences; none where nothing breaks an answer.
    #[serde(default)]
    pub patching: Option<Patching>,
    /// What the weights of the heads say, `[layer][head]`.
    pub weights: Vec<Vec<HeadWeights>>,
    /// What random weights of the same shapes say.
    pub random_weights: HeadWeights,
    /// How many heads of the cross-attention there are.
    #[serde(default)]
    pub cross_heads: usize,
    /// The first sequence.
    pub inputs: Vec<u32>,
    /// Its targets.
    pub next: Vec<u32>,
}

impl Explanation {
    /// How many heads and feed-forward layers the model has.
    pub fn parts(&self) -> usize {
        self.cross_heads + self.weights.iter().map(|heads| heads.len() + 1).sum::<usize>()
    }
}
