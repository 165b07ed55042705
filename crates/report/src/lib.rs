#![doc = include_str!("../README.md")]
//! ## Modules
//!
//! A [`Picture`] combines three marks, [`LineChart`], [`HeatMap`] and [`TokenStrip`], with an [`Axis`] or a
//! [`TokenAxis`]. Each module below draws pictures from plain data, or returns none if there is nothing to draw:
//!
//! | module | shows |
//! |---|---|
//! | [`loss`] | training and validation loss by step, the entropy floor, the learning rate |
//! | [`gradients`] | the gradient norm, and the fraction of steps that are clipped |
//! | [`attention`], [`attention_over_time`] | one head per layer: its map, and its weights as curves |
//! | [`heads`] | the maps of all layers and heads on one scale |
//! | [`head_scores`], [`formation`] | the scores of heads, layer by head; the same by step, below the loss |
//! | [`prediction`], [`generated`] | predicted tokens next to the true ones; a free-running continuation |
//! | [`circuit`], [`patching`] | the components of a circuit; the activations that carry an answer |
//! | [`token_matrix`] | values over the tokens of a sequence, such as a logit lens |
//! | [`phases`] | the phases of a run: its losses and the scores of heads, with the phases as bands |
//! | [`fourier`] | the progress measures and the frequencies of a run on modular addition |
//! | [`positions`], [`lengths`] | the loss by position, and at lengths beyond the training context |
//! | [`scaling`] | the predicted efficiency of more workers |
//! | [`study`] | the trials of a hyper-parameter search, and a sweep over learning rates |
//! | [`comparison`] | the losses and the head scores of several runs |
//!
//! [`page::Page`] is the interactive page of a run; [`study`] and [`comparison`] also create pages. [`numbers`] holds
//! the number formats.
#![deny(missing_docs)]

pub mod attention;
pub mod attention_over_time;
pub mod circuit;
pub mod comparison;
mod draw;
pub mod error;
pub mod formation;
pub mod fourier;
pub mod generated;
pub mod gradients;
pub mod head_scores;
pub mod heads;
pub mod lengths;
pub mod loss;
pub mod numbers;
pub mod page;
pub mod patching;
pub mod phases;
pub mod positions;
pub mod prediction;
pub mod reading;
pub mod scaling;
pub mod scores;
mod series;
pub mod study;
pub mod token_matrix;

pub use draw::{
    Axis, ComparedToken, Coordinates, HEADING, HeatMap, Interval, LineChart, MARGIN, Mark, Outcome, Picture,
    PictureFormat, Rect, Scale, Series, Style, Text, TokenAxis, TokenStrip, WIDTH, WeightColors, WeightScale,
    color, draw_color_bar, legend, round_up,
};
pub use error::{Error, Result};
pub use fourier::FourierCurves;
pub use loss::LossCurve;
pub use phases::PhaseCurves;
pub use series::Point;

/// The names of the pictures of an explanation.
pub const CIRCUIT_PICTURES: [&str; 4] = ["circuit", "logit_lens", "attribution", "patching"];

/// The name of the picture of the phases of a run.
pub const PHASES_PICTURE: &str = "phases";

/// The name of the picture of the Fourier analysis of a run.
pub const FOURIER_PICTURE: &str = "fourier";

/// The names of the pictures of a run, except those of an explanation, of its phases and of its Fourier analysis.
pub const RUN_PICTURES: [&str; 10] = [
    "loss",
    "attention",
    "attention_over_time",
    "heads",
    "prediction",
    "head_scores",
    "generated",
    "formation",
    "positions",
    "gradients",
];

#[cfg(test)]
mod golden;
