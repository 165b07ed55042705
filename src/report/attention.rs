//! `attention`: for one sequence, the map of one head a layer, large and labelled.

use plotters::backend::DrawingBackend;
use serde::{Deserialize, Serialize};

use super::axis::{HEADING, MARGIN, WIDTH, heading};
use super::canvas::{Canvas, Rect};
use super::color::MUTED;
use super::heat_map::{BarValues, MapLayout, color_bar};
use super::picture::Picture;
use super::range::counted;
use super::score::head_name;
use super::text::Text;
use super::token::visible;
use super::weights::{Binned, WeightScale};
use crate::error::{Error, Result};

/// Attention weights of some heads over one sequence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AttentionMaps {
    /// The run's name.
    pub run: String,
    /// Which sequence it is, as "validation sequence 0".
    pub sequence: String,
    /// The text of each input token.
    pub tokens: Vec<String>,
    /// The heads that are shown, for example one a layer.
    pub maps: Vec<HeadMap>,
}

/// The attention weights of one head over one sequence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HeadMap {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The head within its layer, counted from 0.
    pub head: usize,
    /// What is to be said about the head beside its name, as "induction 0.93"; may be empty.
    pub note: String,
    /// `[query, key]`, row by row; each row adds up to 1.
    pub weights: Vec<f32>,
}

impl HeadMap {
    /// The head's name, as "layer 0, head 3".
    pub fn name(&self) -> String {
        head_name(self.layer, self.head)
    }

    /// Writes the name and the note above a panel of `width` at `left`: from `indent` on, or further
    /// to the left where they need the room.
    pub(crate) fn title<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        left: f64,
        indent: f64,
        width: f64,
        y: f64,
    ) -> Result<()> {
        let (name, note) = (Text::new(13.0).bold(), Text::new(11.5).color(MUTED));
        let after = name.width(&self.name()) + 8.0;
        let text = note.fit(&self.note, width - after);
        let x = left + indent.min(width - after - note.width(&text)).max(0.0);
        canvas.text(&self.name(), (x, y), &name)?;
        canvas.text(&text, (x + after, y), &note)
    }
}

impl AttentionMaps {
    /// The heads that the title names: the head where there is only one.
    pub(crate) fn shown(&self) -> String {
        match &self.maps[..] {
            [map] => map.name(),
            maps if maps.iter().enumerate().all(|(i, map)| i == map.layer) => "one head a layer".to_string(),
            maps => format!("{} heads", maps.len()),
        }
    }

    pub(crate) fn visible_tokens(&self) -> Vec<String> {
        self.tokens.iter().map(|token| visible(token)).collect()
    }

    pub(crate) fn check_shapes(&self) -> Result<()> {
        let time = self.tokens.len();
        if time == 0 || self.maps.is_empty() {
            return Err(Error::Shape("attention maps need at least one token and one head".to_string()));
        }
        match self.maps.iter().find(|map| map.weights.len() != time * time) {
            None => Ok(()),
            Some(map) => Err(Error::Shape(format!(
                "{}: {} weights do not fit {time} tokens, which need [{time}, {time}]",
                map.name(),
                map.weights.len(),
            ))),
        }
    }
}

/// The space between maps.
const GAP: f64 = 18.0;
/// The height of a map's own title.
const TITLE: f64 = 24.0;
/// The width of the colour bar with its labels.
const BAR: f64 = 74.0;
/// The widest map: one alone would otherwise be taller than a screen.
const WIDEST_MAP: f64 = 700.0;

/// How many maps stand side by side.
fn columns(maps: usize) -> usize {
    match maps {
        0..=3 => maps.max(1),
        4 => 2,
        _ => 3,
    }
}

impl AttentionMaps {
    fn layout(&self) -> MapLayout {
        let columns = columns(self.maps.len()) as f64;
        let width = (f64::from(WIDTH) - 2.0 * MARGIN - BAR) / columns - GAP;
        MapLayout::new(&self.visible_tokens(), width.min(WIDEST_MAP))
    }
}

impl Picture for AttentionMaps {
    const NAME: &'static str = "attention";

    fn size(&self) -> (u32, u32) {
        let layout = self.layout();
        let rows = self.maps.len().div_ceil(columns(self.maps.len())) as f64;
        let height = HEADING + rows * (TITLE + layout.side + layout.below + GAP);
        (WIDTH, height.ceil() as u32)
    }

    fn check(&self) -> Result<()> {
        self.check_shapes()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<()> {
        let time = self.tokens.len();
        heading(
            canvas,
            &format!("{}: attention, {}", self.run, self.shown()),
            &format!(
                "{}, {}; a row is a query, its cells are the keys it sees",
                self.sequence,
                counted(time, "token")
            ),
        )?;
        let layout = self.layout();
        let maps: Vec<Binned> =
            self.maps.iter().map(|map| Binned::new(&map.weights, time, layout.bin)).collect();
        let scale = WeightScale::of(&maps);
        let columns = columns(maps.len());
        let pitch = layout.width() + GAP;
        let left = (f64::from(WIDTH) - columns as f64 * pitch - BAR) / 2.0;
        for (i, (head, map)) in self.maps.iter().zip(&maps).enumerate() {
            let left = left + (i % columns) as f64 * pitch;
            let top = HEADING + (i / columns) as f64 * (TITLE + layout.side + layout.below + GAP);
            head.title(canvas, left, layout.left, layout.width(), top + 10.0)?;
            layout.draw(canvas, (left, top + TITLE), map, scale)?;
        }
        let bar = Rect {
            left: left + columns as f64 * pitch,
            top: HEADING + TITLE,
            width: 14.0,
            height: layout.side,
        };
        color_bar(canvas, bar, BarValues::Weights(scale))
    }
}
