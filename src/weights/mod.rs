//! Weights from and to safetensors files.
//!
//! [`native`] is the project's own naming: each parameter under its path in the model.

pub mod native;
