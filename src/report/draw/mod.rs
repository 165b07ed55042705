//! What every picture is made of: three marks over one set of axes, drawn in logical pixels.
//!
//! | file | holds |
//! |---|---|
//! | `line_chart`, `heat_map`, `token_strip` | the three marks |
//! | `axis`, `token_axis` | the axes of numbers and of tokens, and how tokens read |
//! | `number`, `text`, `color` | ranges, ticks and how numbers read; the font; the palette |
//! | `picture`, `render` | a picture and its title; from what is drawn to PNG and SVG |

mod axis;
pub(super) mod color;
mod heat_map;
mod line_chart;
mod number;
mod picture;
pub(super) mod render;
mod text;
mod token_axis;
mod token_strip;

pub(super) use axis::{Axis, LABEL, Scale};
pub(super) use heat_map::{HeatMap, WRITTEN_CELL, WeightScale, color_bar};
pub(super) use line_chart::{LineChart, Mark, Series, extremes, legend};
pub(super) use number::{Interval, labels, round_up, significant, tick_labels};
pub use picture::Picture;
pub(super) use picture::{HEADING, MARGIN, Place, Rect, WIDTH};
pub use render::{PictureFormat, Style};
pub(super) use text::Text;
pub(super) use token_axis::{TokenAxis, stride_of};
#[cfg(test)]
pub(super) use token_strip::tint;
pub(super) use token_strip::{Outcome, Step, TokenStrip};
