//! Circuits: the components of a decoder that make its prediction, and their connections (Elhage et al., 2021, "A
//! Mathematical Framework for Transformer Circuits").
//!
//! | file | holds |
//! |---|---|
//! | `pass` | a forward pass that records and replaces activations, used for all interventions |
//! | `replaced` | the outputs that a pass replaces before they are computed |
//! | `lens` | the logit lens after each block, and direct logit attribution |
//! | `tuned` | the tuned lens: the prediction after each block through a trained affine map |
//! | `weights` | QK and OV circuits of heads from their weights, and the composition of heads |
//! | `weight_analysis` | the weight analysis of all heads, and the identity of components |
//! | `eigenvalues` | the eigenvalues of a matrix |
//! | `score_parts` | why a head attends: the parts of the score of a query and a key |
//! | `pairs` | clean and corrupted sequences |
//! | `patching` | activation patching between a clean and a corrupted sequence |
//! | `question` | what is explained: the loss, or the preference for an answer |
//! | `chance` | the effects in a model with random weights, as plain data |
//! | `random` | the effects of components in a model with random weights |
//! | `repeat` | the standard probe for induction heads: random tokens, repeated once |
//! | `bench` | a decoder on fixed sequences, with any of its components ablated |
//! | `estimates` | what ablations change, estimated from gradients (attribution patching) |
//! | `variants` | a pass and variants of it, which start from its residual streams |
//! | `search` | the search for a circuit, by estimates and ablations |
//! | `paths` | the connections between the components of a circuit |
//! | `watch` | the progress of an explanation, and its early end |
//! | `gain` | the gain over simple baselines, and its significance test |
//! | `kind` | the known kinds of heads |
//! | `kind_scores` | the evidence for the kinds of a head |
//! | `neurons` | the neurons of feed-forward layers with the largest effects, and where they are active |
//! | `explain` | the search for a small set of components that preserves the prediction, their kinds and connections |
//! | `explanation` | the result, as plain data |
//! | `criteria` | its faithfulness, completeness and minimality |
//! | `full_values` | the quantity of the full model, which an ablation changes |
//! | `transplant` | a head of one decoder in another one, with aligned residual streams |
//! | `attended` | the tokens that a head attends to at the target of a prompt |
//! | `stored` | the result as read from a file, with checks |
//! | `memory` | an estimate of the memory that an explanation needs |
//! | `sentences` | the result as sentences |

mod attended;
mod bench;
mod certify;
mod chance;
mod criteria;
mod direct;
mod eigenvalues;
mod estimates;
mod explain;
mod explanation;
mod full_values;
mod gain;
mod kind;
mod kind_scores;
mod lens;
mod memory;
mod neurons;
mod pairs;
mod pass;
mod patching;
mod paths;
mod question;
mod random;
mod redundant;
mod repeat;
mod replaced;
mod score_parts;
mod search;
mod sentences;
mod stored;
mod stream_parts;
#[cfg(test)]
mod testing;
mod transplant;
mod tuned;
mod unigram;
mod variants;
mod watch;
mod weight_analysis;
mod weights;

pub use chance::{RandomEffect, RandomEffects};
pub use criteria::{CircuitGain, Minimality, Shares};
pub use explain::{ExplanationContext, explain};
pub use explanation::{
    AttendedToken, Basis, Component, ContextSource, Cut, DirectEffect, Edge, Explanation, HeadAnalysis,
    Neuron, NeuronAnalysis, NeuronContext, TestedConnections, Views,
};
pub use gain::Baseline;
pub use kind::HeadKind;
pub use kind_scores::KindScore;
pub use lens::{Attribution, Lens, attribute, contributions};
pub use memory::{affordable_samples, check_memory, tuned_lens_skip_reason};
pub use neurons::{NeuronSearch, context_samples};
pub use pairs::Pair;
pub use pass::{Activations, Interventions, Site, explainable, run};
pub use patching::Patching;
pub use question::{Ablation, Quantity, Question, QuestionPrompt};
pub use repeat::{HeadOfKind, Repeated, repeated_sequences};
pub use score_parts::ScoreParts;
pub use transplant::{HeadTransplant, alignment, transplant};
pub use unigram::unigram;
pub use watch::{ExplanationStage, Unwatched, Watch};
pub use weights::{HeadInput, HeadMatrices, HeadWeights, to_embedding};

#[cfg(test)]
pub(crate) mod tests;
