//! Agreement with PyTorch, case by case, on both CPU backends, and with the entropy floor of a tiny task.
//!
//! The cases are in `tests/reference/`. `REFERENCE_CASES` can name another folder, whose cases have the same shapes but
//! other values.

#[path = "reference/case.rs"]
mod case;
#[path = "reference/gpt2.rs"]
mod gpt2;
#[path = "reference/heads.rs"]
mod heads;
mod kinds;
#[path = "reference/layers.rs"]
mod layers;
#[path = "reference/learns.rs"]
mod learns;
#[path = "reference/lessons.rs"]
mod lessons;
#[path = "reference/one_layer_decoder.rs"]
mod one_layer_decoder;
#[path = "reference/optimisation.rs"]
mod optimisation;
#[path = "reference/positions.rs"]
mod positions;

/// The tolerance relative to the largest expected value, which allows only for differences in summation order.
const CLOSE: f64 = 1e-5;
