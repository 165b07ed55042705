//! Pictures of a run and a page to explore it: plain data in, PNG, SVG and HTML out. Nothing here
//! knows a tensor, a model or a config.
//!
//! Each picture is plain data that implements [`Picture`]; [`Picture::save`] draws one into a folder:
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
//! | picture | shows |
//! |---|---|
//! | [`LossCurve`] | training and validation loss, the floor, the learning rate |
//! | [`AttentionMaps`], [`AttentionOverTime`] | a few heads, large: their maps, and the same as curves |
//! | [`AllHeads`] | the maps of all layers and heads on one scale |
//! | [`HeadScoreGrid`] | what each head does, layer by head |
//! | [`Formation`] | these scores along the run, below the loss |
//! | [`Predictions`], [`Generation`] | predicted tokens after true ones; a continuation that runs free |
//! | [`LossByPosition`] | the loss at each position of the sequence, and its floor |
//! | [`ScheduleCurve`], [`GradientCurve`] | the learning rate; the gradients and how often they are cut |
//! | [`TrialCurves`], [`KeyEffects`], [`RateAgainstLoss`], [`CostAgainstAccuracy`] | the trials of a study |
//! | [`SweepCurve`] | a sweep over learning rates |
//!
//! [`Page`] and [`StudyPage`] hold what `report.html` shows, and write it.
//!
//! | file | holds |
//! |---|---|
//! | `picture` | from data to a file: resolution, PNG and SVG |
//! | `canvas` | one surface over plotters' backends: lines, text and images in logical pixels |
//! | `text`, `color` | the font; the palette and the colour maps |
//! | `range`, `series`, `axis` | ticks and numbers; smoothed points; frames, curves and legends |
//! | `token`, `token_row` | how tokens read on an axis; true and predicted ones side by side |
//! | `weights`, `heat_map` | binned attention; one map with its labels, and the colour bar |
//! | `score` | the scores of heads, their names, units and ranges |
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
mod loss;
mod page;
mod picture;
mod positions;
mod prediction;
mod range;
mod schedule;
mod score;
mod series;
mod study;
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
pub use page::{Page, PageMaps, PagePrediction, PageSample, TokenProbability};
pub use picture::{Format, Picture, Style};
pub use positions::LossByPosition;
pub use prediction::{PredictedToken, Predictions};
pub use schedule::ScheduleCurve;
pub use score::HeadValues;
pub use series::Point;
pub use study::{
    CostAgainstAccuracy, KeyEffects, RateAgainstLoss, StudyPage, StudyResult, StudyTrial, SweepCurve,
    SweepPoint, TrialCurves, TrialEnding, Value,
};

#[cfg(test)]
mod golden;
