//! Circuits: which parts of a decoder make its prediction, and how they are wired (Elhage et al., 2021, "A Mathematical
//! Framework for Transformer Circuits").
//!
//! | file | holds |
//! |---|---|
//! | `pass` | a forward pass that records every activation and may replace it: all interventions go through it |

mod pass;

pub use pass::{Activations, Interventions, LayerActivations, Site, explained, run};
