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
mod heat_map;
mod loss;
mod picture;
mod prediction;
mod range;
mod text;
mod token;
mod weights;

pub use attention::{AttentionMaps, HeadMap};
pub use attention_over_time::AttentionOverTime;
pub use axis::Point;
pub use canvas::Canvas;
pub use color::ColorMap;
pub use loss::LossCurve;
pub use picture::{Format, Picture, Style};
pub use prediction::{PredictedToken, Predictions};

#[cfg(test)]
mod golden;
