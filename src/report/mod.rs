//! Pictures of a run and a page to explore it: plain data in, PNG, SVG and HTML out. Nothing here
//! knows a tensor: what a model does with a run's sequences is asked for and handed over.
//!
//! [`RunData`] is what a run folder holds; [`RunData::draw`] draws it. Each picture is a function from the
//! run's own data to a [`Picture`], which [`Picture::save`] writes into a folder:
//!
//! | picture | shows |
//! |---|---|
//! | [`LossCurve`] | training and validation loss, the floor, the learning rate |
//! | `attention`, `attention_over_time` | a head per layer, large: its map, and the same as curves |
//! | `heads` | the maps of all layers and heads on one scale |
//! | [`head_scores`] | what each head does, layer by head |
//! | `formation` | these scores along the run, below the loss |
//! | `prediction`, `generated` | predicted tokens after true ones; a continuation that runs free |
//! | `positions` | the loss at each position of the sequence, and its floor |
//! | `gradients` | the norm of the gradients, and how often they are clipped |
//! | `trials`, `effects`, `learning_rate`, `cost` | the trials of a study, by [`draw_study`] |
//! | [`rate_finder`] | a sweep over learning rates |
//!
//! [`Page`] holds what `report.html` of a run shows, and writes it.
//!
//! | file | holds |
//! |---|---|
//! | `run_data`, `reading` | what a run folder holds; what the model does with one sequence |
//! | `line_chart`, `heat_map`, `token_strip` | the three marks that every picture is made of |
//! | `axis`, `token_axis` | the axes of numbers and of tokens |
//! | `range`, `series`, `score` | ticks and numbers; smoothed points; the ranges of head scores |
//! | `weights`, `token` | binned attention; how tokens read |
//! | `picture`, `canvas`, `text`, `color` | title and file; lines, text and images in logical pixels; font; palette |
//! | `render` | from what is drawn to PNG and SVG |
//! | one file a picture | its data and its layout |
//! | `study` | the pictures and the page of a study |
//! | `page` | `report.html`, from the parts in `assets/report/` |

mod attention;
mod attention_over_time;
mod axis;
mod canvas;
mod color;
mod formation;
mod generated;
mod gradients;
mod head_scores;
mod heads;
mod heat_map;
mod line_chart;
mod loss;
mod page;
mod picture;
mod positions;
mod prediction;
mod range;
mod reading;
mod render;
mod run_data;
mod score;
mod series;
mod study;
mod text;
mod token;
mod token_axis;
mod token_strip;
mod weights;

pub use head_scores::head_scores;
pub use loss::LossCurve;
pub use page::Page;
pub use picture::{Format, Picture, Style};
pub use reading::{Reading, Target, TokenProbability};
pub use run_data::{RunData, Wanted, save_all};
pub use series::Point;
pub use study::{draw_study, rate_finder};

#[cfg(test)]
mod golden;
