//! `heads`: the maps of all layers and heads of one sequence as thumbnails, in one grid on one scale.

use std::borrow::Cow;

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, MARGIN, WIDTH, heading};
use super::canvas::{Canvas, Rect};
use super::color::MUTED;
use super::heat_map::{BarValues, color_bar, draw_cells};
use super::picture::Picture;
use super::range::counted;
use super::text::Text;
use super::token::round_stride;
use super::weights::{Binned, WeightScale};
use crate::error::{Error, Result};

/// The attention of all heads over one sequence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AllHeads<'a> {
    /// The run's name.
    pub run: String,
    /// Which sequence it is, as "validation sequence 0".
    pub sequence: String,
    /// Tokens of the sequence.
    pub time: usize,
    /// The weights, `[layer][head]`, each `[query, key]` row by row. Borrowed where they are large.
    pub attention: Cow<'a, [Vec<Vec<f32>>]>,
}

/// The width of the colour bar with its labels.
const BAR: f64 = 74.0;
/// The column of the layers' names.
const LAYER: f64 = 62.0;
const GAP: f64 = 8.0;
/// Above each thumbnail: the number of its head.
const NAME: f64 = 18.0;
/// The widest thumbnail; with more layers they are smaller, so that the picture is not endless.
const WIDEST: f64 = 300.0;
const WIDEST_OF_MANY: f64 = 120.0;
const ALL_LAYERS: f64 = 900.0;
/// More heads than this are set in two rows a layer, while there are few layers.
const ROW: usize = 8;
/// More than this in more rows, so that each can be seen.
const MOST_ACROSS: usize = 32;
const FEW_LAYERS: usize = 4;
/// The narrowest cell in logical pixels; longer sequences are binned.
const NARROWEST_CELL: f64 = 0.5;
/// The least height of the picture's content, for the colour bar.
const LOWEST: f64 = 150.0;

impl AllHeads<'_> {
    fn heads(&self) -> usize {
        self.attention.iter().map(Vec::len).max().unwrap_or(1).max(1)
    }

    fn columns(&self) -> usize {
        let heads = self.heads();
        let few = heads > ROW && self.attention.len() <= FEW_LAYERS;
        heads.div_ceil(heads.div_ceil(MOST_ACROSS).max(1 + usize::from(few)))
    }

    fn side(&self) -> f64 {
        let width = f64::from(WIDTH) - 2.0 * MARGIN - BAR - LAYER;
        let widest = (ALL_LAYERS / self.attention.len().max(1) as f64).clamp(WIDEST_OF_MANY, WIDEST);
        (width / self.columns() as f64 - GAP).min(widest).floor()
    }

    fn bin(&self) -> usize {
        round_stride((self.time as f64 * NARROWEST_CELL / self.side()).ceil() as usize)
    }

    /// The height of one layer.
    fn layer(&self) -> f64 {
        let rows = self.heads().div_ceil(self.columns());
        rows as f64 * (NAME + self.side()) + GAP
    }
}

impl Picture for AllHeads<'_> {
    const NAME: &'static str = "heads";

    fn size(&self) -> (u32, u32) {
        let height = (self.attention.len() as f64 * self.layer()).max(LOWEST);
        (WIDTH, (HEADING + height + MARGIN).ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        if self.time == 0 || self.attention.is_empty() || self.attention.iter().any(Vec::is_empty) {
            return Err(Error::Shape(
                "attention maps need at least one token and one head a layer".to_string(),
            ));
        }
        for (layer, heads) in self.attention.iter().enumerate() {
            for (head, weights) in heads.iter().enumerate() {
                if weights.len() != self.time * self.time {
                    return Err(Error::Shape(format!(
                        "layer {layer}, head {head}: {} weights do not fit {time} tokens, which need [{time}, {time}]",
                        weights.len(),
                        time = self.time,
                    )));
                }
            }
        }
        Ok(())
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let (bin, side, columns) = (self.bin(), self.side(), self.columns());
        let bins = if bin > 1 { format!(" in bins of {bin}") } else { String::new() };
        let heads = self.attention.iter().map(Vec::len).sum();
        heading(
            canvas,
            &format!("{}: attention of every head", self.run),
            &format!(
                "{}, {}{bins}; {}; queries run down, the keys they see across",
                self.sequence,
                counted(self.time, "token"),
                counted(heads, "head"),
            ),
        )?;
        let maps: Vec<Vec<Binned>> = self
            .attention
            .iter()
            .map(|heads| heads.iter().map(|weights| Binned::new(weights, self.time, bin)).collect())
            .collect();
        let scale = WeightScale::of(maps.iter().flatten());
        let number = Text::new(9.5).color(MUTED);
        let name = Text::new(12.0).bold();
        // Every head is named while there is room for it, then numbered, then every second, and so on.
        let pitch = side + GAP;
        let width = |label: &str| number.width(label) + 4.0;
        let last = self.heads() - 1;
        let word = if width(&format!("head {last}")) <= pitch { "head " } else { "" };
        let every = round_stride((width(&format!("{word}{last}")) / pitch).ceil() as usize);
        for (layer, heads) in maps.iter().enumerate() {
            let top = HEADING + layer as f64 * self.layer();
            canvas.text(&format!("layer {layer}"), (MARGIN, top + NAME + 6.0), &name)?;
            for (head, map) in heads.iter().enumerate() {
                let left = MARGIN + LAYER + (head % columns) as f64 * (side + GAP);
                let top = top + (head / columns) as f64 * (NAME + side) + NAME;
                if (head % columns).is_multiple_of(every) {
                    canvas.text(&format!("{word}{head}"), (left, top - 7.0), &number)?;
                }
                draw_cells(canvas, Rect { left, top, width: side, height: side }, map, scale)?;
            }
        }
        let bar = Rect {
            left: MARGIN + LAYER + columns as f64 * (side + GAP) + 10.0,
            top: HEADING + NAME,
            width: 14.0,
            height: (self.attention.len() as f64 * self.layer() - NAME - GAP).clamp(LOWEST - NAME, 300.0),
        };
        color_bar(canvas, bar, BarValues::Weights(scale))
    }
}
