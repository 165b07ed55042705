//! The explanation of a decoder as plain data: the components that make its prediction, their kinds and their
//! connections.

use serde::{Deserialize, Serialize};

use super::chance::RandomEffects;
use super::criteria::{CircuitGain, Minimality};
use super::kind::HeadKind;
use super::kind_scores::KindScore;
use super::lens::{Attribution, Lens};
use super::pass::Site;
use super::patching::Patching;
use super::repeat::Repeated;
use super::watch::ExplanationStage;
use super::weights::{HeadInput, HeadWeights};

/// A token that a head attends to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AttendedToken {
    /// The position of the token.
    pub position: usize,
    /// The attention weight.
    pub weight: f64,
    /// The weight under uniform attention.
    #[serde(default)]
    pub chance: f64,
}

/// A component of a circuit: a head or a feed-forward layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The head; `None` for a feed-forward layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// True for a head of the cross-attention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cross: bool,
    /// True for a feed-forward layer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub feed_forward: bool,
    /// The known kinds of the head; empty for a feed-forward layer.
    pub kinds: Vec<HeadKind>,
    /// The scores of these kinds, except of copying, which depends on the weights alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kind_scores: Vec<KindScore>,
    /// The change of the quantity when only this component is ablated, as gradients estimate it; `None` for a model with
    /// few components, which are all ablated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated: Option<f64>,
    /// The quantity of the full model with only this component ablated.
    pub ablated: f64,
    /// The 95 % interval of the change that the ablation causes, over sequences or targets; `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The circuit without this component.
    #[serde(flatten)]
    pub minimality: Minimality,
    /// The tokens that the head attends to at the target, the largest weights first; empty unless a single prompt is
    /// explained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attends: Vec<AttendedToken>,
}

impl Component {
    /// Returns the site of the component's output.
    pub(super) fn site(&self) -> Site {
        match self.head {
            Some(head) if self.cross => Site::Cross(self.layer, head),
            Some(head) => Site::Head(self.layer, head),
            None => Site::FeedForward(self.layer),
        }
    }
}

/// The effect of a component by its path to the output alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectEffect {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The head, counted from 0; `None` for the feed-forward layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// True for a cross-attention head.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cross: bool,
    /// The quantity with this path ablated.
    pub ablated: f64,
    /// The 95 % interval of the change over the sequences, as that of a component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl DirectEffect {
    /// Returns true for the effect of this component.
    pub fn is_of(&self, component: &Component) -> bool {
        (self.layer, self.head, self.cross) == (component.layer, component.head, component.cross)
    }
}

/// A connection from one component to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Layer and head of the sender; the head of a feed-forward layer is `None`.
    pub from: (usize, Option<usize>),
    /// Layer and head of the receiver; the head of a feed-forward layer is `None`.
    pub to: (usize, Option<usize>),
    /// True if the sender is a cross-attention head.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_cross: bool,
    /// True if the receiver is a cross-attention head.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_cross: bool,
    /// The input of the receiving head that reads the output of the sender; `None` for a feed-forward layer, which has a
    /// single input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<HeadInput>,
    /// The composition score of the weights of two heads at this input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composition: Option<f64>,
    /// The composition score of random weights of the same shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<f64>,
    /// The change of the quantity when only this connection is ablated, as gradients estimate it; `None` for a circuit with
    /// few components, between which all connections are ablated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated: Option<f64>,
    /// The quantity of the full model with only this connection ablated: the receiver's input is computed with the
    /// sender ablated.
    pub ablated: f64,
    /// The 95 % interval of the change that the ablation causes, as for components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// The numbers of connections between the components of a circuit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedConnections {
    /// The connections from any component of the circuit to each input of any later one.
    pub possible: usize,
    /// The connections that were ablated: all, or those with the largest estimates.
    pub patched: usize,
}

/// The parts of an explanation that are unknown because it ended early.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The stages that ended early.
    pub stages: Vec<ExplanationStage>,
    /// The number of components of the circuit that were not ablated alone and are therefore not among the components.
    pub unconfirmed: usize,
}

/// The explanation of a decoder: `circuit.json`. Deserialization checks that the lists
/// and numbers are consistent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Explanation {
    /// The sequences and the weights that are explained.
    #[serde(flatten)]
    pub basis: Basis,
    /// The quantity of the model, of a baseline and of the circuit.
    #[serde(flatten)]
    pub gain: CircuitGain,
    /// The components of the circuit, the most important first. Importance is the change of the quantity when a
    /// component is ablated.
    pub components: Vec<Component>,
    /// The connections between the components of the circuit.
    pub edges: Vec<Edge>,
    /// The numbers of connections that are possible, and that were tested.
    #[serde(default)]
    pub connections: TestedConnections,
    /// The parts that are unknown because the explanation ended early; `None` if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// The explanation as sentences.
    pub sentences: Vec<String>,
    /// The effects with random weights; `None` at the end of training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_effects: Option<RandomEffects>,
    /// The heads that a repetition reveals; `None` for other sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
    /// The neurons of the feed-forward layers with the largest effects.
    #[serde(flatten)]
    pub neurons: NeuronAnalysis,
    /// The effects of the components: their predictions by depth, contributions and patches.
    #[serde(flatten)]
    pub views: Views,
    /// The weight analysis of the heads.
    #[serde(flatten)]
    pub heads: HeadAnalysis,
}

/// A neuron of a feed-forward layer: a column of its hidden activation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Neuron {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The index of the neuron in the layer, counted from 0.
    pub neuron: usize,
    /// The estimated change of the quantity when only this neuron is ablated.
    pub estimated: f64,
    /// The quantity of the full model with only this neuron ablated.
    pub ablated: f64,
    /// The 95 % interval of the change that the ablation causes, as for components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The tokens at which the neuron is most active, in descending order of the magnitude of its activation.
    pub contexts: Vec<NeuronContext>,
}

/// A token at which a neuron is active, with the tokens before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeuronContext {
    /// The tokens; the neuron is active at the last one.
    pub tokens: Vec<u32>,
    /// The activation of the neuron, after the activation function.
    pub activation: f64,
}

/// The origin of the contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextSource {
    /// The validation set.
    ValidationSet,
    /// The validation sequences stored with the run.
    StoredSequences,
    /// The explained input itself.
    Input,
}

/// The neurons with the largest effects of those that were ablated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NeuronAnalysis {
    /// The neurons, the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neurons: Vec<Neuron>,
    /// The number of neurons that were ablated: those that gradients and curvature rank first.
    #[serde(default, rename = "neurons_tested")]
    pub tested: usize,
    /// The number of neurons of the model.
    #[serde(default, rename = "neurons_of_model")]
    pub of_model: usize,
    /// The origin of the contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neuron_contexts: Option<ContextSource>,
}

/// The sequences and the weights that are explained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// The SHA-256 of the explained weights.
    pub weights_sha256: Option<String>,
    /// A note if the sequences are truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The number of sequences that the circuit was found on.
    pub sequences: usize,
    /// The number of targets in these sequences.
    pub targets: usize,
    /// The tokens of the first sequence.
    pub inputs: Vec<u32>,
    /// The targets of the first sequence.
    pub next: Vec<u32>,
    /// The positions of the first sequence whose targets are explained.
    pub positions: Vec<usize>,
}

/// The effects of the components: their predictions by depth, contributions and patches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Views {
    /// The logit lens: the prediction before the first block and after each block.
    pub lens: Lens,
    /// The tuned lens: the prediction through an affine map at each depth, trained on the training set. `None` if the
    /// training set is unknown, or if training would take too much memory or time.
    pub tuned_lens: Option<Lens>,
    /// The logit lens after the attention of each block, before its feed-forward layer.
    pub lens_after_attention: Lens,
    /// The contribution of each component to the logit of the target, or to the difference between two answers.
    pub attribution: Vec<Attribution>,
    /// The effect of each component of the circuit by its path to the output alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectEffect>,
    /// The activation patching between clean and corrupted sequences; `None` if no corruption changes the answer.
    pub patching: Option<Patching>,
}

/// The weight analysis of the heads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadAnalysis {
    /// The weight analysis of each head, `[layer][head]`.
    pub weights: Vec<Vec<HeadWeights>>,
    /// The weight analysis of random weights of the same shapes.
    pub random_weights: HeadWeights,
    /// The number of cross-attention heads.
    pub cross_heads: usize,
}

impl Explanation {
    /// Returns the number of components of the circuit, including those that were not ablated alone.
    pub fn circuit_components(&self) -> usize {
        self.components.len() + self.cut.as_ref().map_or(0, |cut| cut.unconfirmed)
    }

    /// Returns the number of heads and feed-forward layers of the model.
    pub fn model_components(&self) -> usize {
        self.heads.cross_heads + self.heads.weights.iter().map(|heads| heads.len() + 1).sum::<usize>()
    }
}
