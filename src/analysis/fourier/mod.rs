//! The Fourier analysis of models of modular addition (Nanda et al., 2023, arXiv 2301.05217).
//!
//! | file | holds |
//! |---|---|
//! | `waves` | sines and cosines over the residues, and their shares in a table |
//! | `measures` | the logits of all pairs, their key frequencies, and the loss with and without them |
//! | `neurons` | the frequency of each neuron |
//! | `model` | what a model computes for all pairs |

mod measures;
mod model;
mod neurons;
mod waves;

pub use measures::{PairLogits, key_frequencies};
pub use model::{embedding_shares, neuron_frequencies, pair_logits};
pub use neurons::{NeuronFrequency, neuron_frequency};
pub use waves::Waves;
