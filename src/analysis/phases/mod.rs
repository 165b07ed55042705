//! Phases of a run: intervals of steps in which a recorded curve changes far more steeply than right before and right
//! after.
//!
//! | file | holds |
//! |---|---|
//! | `change` | the changes of one curve, with a bound on false positives |
//! | `circuit_sizes` | the norms and the effective ranks of the circuits of a head |
//! | `confirmation` | the rise of the loss when a head is mean-ablated at the end |

mod change;
mod circuit_sizes;
mod confirmation;

pub use change::{ChangeCriterion, CurveChange, changes, crossings, num_windows};
pub use circuit_sizes::CircuitSizes;
pub use confirmation::{HeadAblation, LossByTarget, ablate_layers};

#[cfg(test)]
mod tests;
