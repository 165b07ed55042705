//! The building blocks of all pictures: three kinds of charts and their axes, drawn in logical pixels.
//!
//! | file | holds |
//! |---|---|
//! | `line_chart`, `heat_map`, `token_strip` | the three kinds of charts |
//! | `weight_scale` | the colours of attention weights |
//! | `axis`, `token_axis` | the axes of numbers and of tokens, and the visible form of tokens |
//! | `number`, `color` | intervals, ticks and labels; the palette |
//! | `text`, `layout`, `fonts` | the style of text; its glyphs; embedded and installed fonts |
//! | `picture`, `style` | a picture and its title; the format, resolution and width of files |
//! | `render`, `pdf` | rendering to PNG and SVG, and to PDF |

mod axis;
pub mod color;
mod fonts;
mod heat_map;
mod layout;
mod line_chart;
mod number;
mod pdf;
mod picture;
mod render;
mod style;
mod text;
mod token_axis;
mod token_strip;
mod weight_scale;

pub use axis::{Axis, Scale};
pub(crate) use axis::{LABEL_SIZE, MIN_SIZE};
pub use heat_map::{HeatMap, draw_color_bar};
pub(crate) use heat_map::{MIN_VALUE_CELL, binned};
pub(crate) use line_chart::extremes;
pub use line_chart::{LineChart, Mark, Series, legend};
pub use number::{Interval, round_up};
pub(crate) use number::{labels, significant, tick_labels};
pub(crate) use picture::LEGEND_LINE;
pub use picture::{Coordinates, HEADING, MARGIN, Picture, Rect, WIDTH};
#[cfg(test)]
pub(crate) use render::raster;
pub use style::{PictureFormat, Style};
pub use text::Text;
pub use token_axis::TokenAxis;
pub(crate) use token_axis::stride_of;
#[cfg(test)]
pub(crate) use token_strip::tint;
pub use token_strip::{ComparedToken, Outcome, TokenStrip};
pub use weight_scale::{WeightColors, WeightScale};
