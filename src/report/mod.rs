//! Pictures of a run: plain data in, PNG or SVG out. Nothing here knows a tensor or a model.
//!
//! Each picture is plain data that implements [`Picture`]: [`LossCurve`], [`AttentionMaps`],
//! [`AttentionOverTime`] and [`Predictions`]. [`Picture::save`] draws one into a folder:
//!
//! ```
//! use causal_attention::report::{LossCurve, Picture, Point, Style};
//!
//! let loss = LossCurve {
//!     run: "repeat".to_string(),
//!     training: (0..100).map(|step| Point { step, value: 2.0 / (1.0 + step as f64) }).collect(),
//!     ..LossCurve::default()
//! };
//! let folder = tempfile::tempdir().unwrap();
//! let path = loss.save(folder.path(), &Style::default()).unwrap();
//! assert!(path.ends_with("loss.png"));
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `picture` | from data to a file: resolution, PNG and SVG |
//! | `canvas` | one surface over plotters' backends: lines, text and images in logical pixels |
//! | `text`, `color` | the font; the palette and the colour maps |
//! | `range`, `axis` | ticks and numbers; frames, curves and legends of line charts |
//! | `token` | how tokens read on an axis, and which of them are labelled |
//! | `weights`, `heat_map` | binned attention; one map with its labels, and the colour bar |
//! | one file a picture | its data and its layout |

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
mod loss;
mod picture;
mod positions;
mod prediction;
mod range;
mod schedule;
mod score;
mod series;
mod text;
mod token;
mod token_row;
mod weights;

pub use attention::{AttentionMaps, HeadMap};
pub use attention_over_time::AttentionOverTime;
pub use canvas::Canvas;
pub use color::ColorMap;
pub use formation::{Formation, ScoreHistory};
pub use generated::Generation;
pub use gradients::GradientCurve;
pub use head_scores::HeadScoreGrid;
pub use heads::AllHeads;
pub use loss::LossCurve;
pub use picture::{Format, Picture, Style};
pub use positions::LossByPosition;
pub use prediction::{PredictedToken, Predictions};
pub use schedule::ScheduleCurve;
pub use score::{HeadValues, Score};
pub use series::Point;

#[cfg(test)]
mod golden;
