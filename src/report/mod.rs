//! Pictures of a run and a page to explore it: plain data in, PNG, SVG and HTML out. Nothing here
//! knows a tensor: what a model does with a run's sequences is asked for and handed over.
//!
//! [`RunData`] is what a run folder holds; [`RunData::draw`] draws it, and is the list of its pictures together with
//! [`Page::pictures`], the list of those that show one sequence. Each picture is a function from the run's own data
//! to a [`Picture`], or to none where there is nothing to show:
//!
//! | picture | shows |
//! |---|---|
//! | [`LossCurve`] | training and validation loss, the floor, the learning rate |
//! | `attention`, `attention_over_time` | a head per layer, large: its map, and the same as curves |
//! | `heads` | the maps of all layers and heads on one scale |
//! | `head_scores` | what each head does, layer by head |
//! | `formation` | these scores along the run, below the loss |
//! | `prediction`, `generated` | predicted tokens after true ones; a continuation that runs free |
//! | `circuit`, `logit_lens`, `attribution`, `patching` | what `explain` found, by [`circuit_pictures`] |
//! | `positions` | the loss at each position of the sequence, and its floor |
//! | `lengths` | the loss beyond the trained length, by [`lengths_picture`] and [`length_multiples`] |
//! | `gradients` | the norm of the gradients, and how often they are clipped |
//! | `trials`, `effects`, `learning_rate`, `cost` | the trials of a study, by [`draw_study`] |
//! | [`rate_finder`] | a sweep over learning rates |
//! | [`scaling_picture`] | the predicted efficiency of more workers |
//! | `losses`, `heads` | runs side by side, by [`comparison_pictures`] |
//!
//! [`Page`] holds what `report.html` of a run shows, and is its text.
//!
//! | file | holds |
//! |---|---|
//! | `run_data`, `reading` | what a run folder holds; what the model does with one sequence |
//! | one file a picture | its data and its layout |
//! | `draw` | what all of them are made of: three marks (line chart, heat map, token strip) and their axes |
//! | `series` | values along a run, smoothed |
//! | `study`, `comparison` | the pictures and the page of a study; of runs side by side |
//! | `page` | `report.html`, from the parts in `assets/report/` |

mod attention;
mod attention_over_time;
mod circuit;
mod comparison;
mod draw;
mod formation;
mod generated;
mod gradients;
mod head_scores;
mod heads;
mod lengths;
mod loss;
mod page;
mod patching;
mod positions;
mod prediction;
mod reading;
mod run_data;
mod scaling;
mod series;
mod study;

pub use circuit::pictures as circuit_pictures;
pub use comparison::{Along, comparison_page, comparison_pictures};
pub use draw::{Picture, PictureFormat, Style};
pub use lengths::{Curves, LengthPanel, lengths_picture, multiples as length_multiples};
pub use loss::LossCurve;
pub use page::Page;
pub use reading::{Reading, Target, TokenProbability};
pub use run_data::{RunData, save_all};
pub use scaling::scaling_picture;
pub use series::Point;
pub use study::{draw_study, rate_finder};

#[cfg(test)]
mod golden;
