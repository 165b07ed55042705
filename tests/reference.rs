//! Agreement with PyTorch, case by case, on both CPU backends.
//!
//! The cases are in `tests/reference/`, or in the folder that `REFERENCE_CASES` names, with other values of the same
//! shapes.

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

/// The tolerance relative to the case's largest value; it allows only for another order of summation.
const CLOSE: f64 = 1e-5;
