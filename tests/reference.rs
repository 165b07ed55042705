//! Agreement with PyTorch, case by case, on both CPU backends.
//!
//! The cases lie in `tests/reference/`, or in the folder that `REFERENCE_CASES` names: other
//! numbers of the same shapes.

#[path = "reference/case.rs"]
mod case;
#[path = "reference/gpt2.rs"]
mod gpt2;
#[path = "reference/heads.rs"]
mod heads;
#[path = "reference/layers.rs"]
mod layers;
#[path = "reference/lessons.rs"]
mod lessons;
#[path = "reference/one_layer_decoder.rs"]
mod one_layer_decoder;
#[path = "reference/optimisation.rs"]
mod optimisation;
#[path = "reference/positions.rs"]
mod positions;

/// How far a result may lie from PyTorch's, relative to the case's largest value: sums are taken
/// in another order, and no more.
const CLOSE: f64 = 1e-5;
