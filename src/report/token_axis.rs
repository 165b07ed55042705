//! The tokens along one side of a map or chart: as many as have room, and their positions.

use super::axis::LABEL;
use super::canvas::{Canvas, Rect};
use super::color::MUTED;
use super::range::{Range, tick_labels};
use super::text::Text;
use super::token::{Labels, round_stride, size_that_fits};

/// The size of tokens, where they have room for it, and that of positions beside them.
const TOKEN: f64 = 10.0;
const POSITION: f64 = 8.5;
/// Longer sequences have positions beside their tokens: nobody counts so far.
const COUNTED: usize = 16;
/// Between the cells and the edge, beside the labels: the title.
const TITLE: f64 = 30.0;

/// Tokens below an area, or on the left of it.
#[derive(Debug, Clone)]
pub(crate) struct TokenAxis {
    tokens: Vec<String>,
    size: f64,
    labels: Labels,
    /// The width of the widest token.
    widest: f64,
    /// Every how many positions one is numbered; none where there are few.
    numbered: Option<usize>,
    /// Positions in a bin: where that is more than one, positions are labelled and no tokens.
    pub bin: usize,
    is_across: bool,
}

impl TokenAxis {
    /// Tokens in their visible form along `length` logical pixels, with cells no narrower than `narrowest`.
    pub fn new(tokens: &[String], length: f64, narrowest: f64, is_across: bool) -> Self {
        let pitch = length / tokens.len().max(1) as f64;
        let size = size_that_fits(pitch, TOKEN);
        let look = Text::new(size);
        let labels =
            if is_across { Labels::across(tokens, pitch, &look, size) } else { Labels::down(pitch, size) };
        // Digits are flat: their labels may need a wider stride than upward tokens.
        let digits = Text::new(POSITION).width(&tokens.len().to_string()) + 6.0;
        let stride = labels.stride;
        let every = stride * round_stride((digits / (pitch * stride as f64)).ceil() as usize);
        Self {
            widest: tokens.iter().map(|token| look.width(token)).fold(0.0, f64::max),
            tokens: tokens.to_vec(),
            size,
            labels,
            numbered: (tokens.len() > COUNTED).then_some(every),
            bin: round_stride((narrowest / pitch).ceil() as usize),
            is_across,
        }
    }

    /// How much room labels and title take beside the area.
    pub fn depth(&self) -> f64 {
        let numbers = Text::new(POSITION).width(&self.tokens.len().to_string()) + 8.0;
        match (self.is_across, self.bin > 1) {
            (true, true) => 42.0,
            (true, false) => self.height() + 28.0 + self.numbered.map_or(0.0, |_| 12.0),
            (false, true) => TITLE + Text::new(LABEL).width("1,000"),
            (false, false) => TITLE + self.widest + self.numbered.map_or(0.0, |_| numbers),
        }
    }

    /// The height of tokens below an area.
    fn height(&self) -> f64 {
        if self.labels.upward { self.widest } else { self.size }
    }

    /// Draws the labels beside `area`, and the title that says whether they are of a "query" or a "key".
    pub fn draw(&self, canvas: &mut Canvas, area: Rect, of: &str) {
        let title = match (self.bin, self.numbered, self.is_across) {
            (1, None, _) => of.to_string(),
            (1, Some(_), true) => format!("{of}: token and position"),
            (1, Some(_), false) => format!("{of}: position and token"),
            (bin, ..) => format!("{of} position, in bins of {bin}"),
        };
        if self.bin > 1 {
            self.positions(canvas, area);
        } else {
            self.tokens(canvas, area);
        }
        let look = Text::new(11.5).centered();
        let (x, y) = area.center();
        match self.is_across {
            true => canvas.text(&title, (x, area.bottom() + self.depth() - 10.0), &look),
            false => canvas.text(&title, (area.left - self.depth() + 7.0, y), &look.upward()),
        }
    }

    fn tokens(&self, canvas: &mut Canvas, area: Rect) {
        let (look, number) = (Text::new(self.size), Text::new(POSITION).color(MUTED));
        let count = self.tokens.len();
        let along = |i: usize| (i as f64 + 0.5) / count as f64;
        for i in (0..count).step_by(self.labels.stride) {
            let (x, y) = (area.left + along(i) * area.width, area.bottom() + 6.0);
            match (self.is_across, self.labels.upward) {
                (true, true) => canvas.text(&self.tokens[i], (x, y), &look.right().upward()),
                (true, false) => canvas.text(&self.tokens[i], (x, y + self.size / 2.0), &look.centered()),
                (false, _) => {
                    let place = (area.left - 6.0, area.top + along(i) * area.height);
                    canvas.text(&self.tokens[i], place, &look.right());
                }
            }
        }
        for i in (0..count).step_by(self.numbered.unwrap_or(count.max(1))).filter(|_| self.numbered.is_some())
        {
            let text = i.to_string();
            let (x, y) = (area.left + along(i) * area.width, area.top + along(i) * area.height);
            match self.is_across {
                true => canvas.text(&text, (x, area.bottom() + self.height() + 13.0), &number.centered()),
                false => canvas.text(&text, (area.left - self.widest - 12.0, y), &number.right()),
            }
        }
    }

    fn positions(&self, canvas: &mut Canvas, area: Rect) {
        let count = self.tokens.len() as f64;
        let (length, look) =
            (if self.is_across { area.width } else { area.height }, Text::new(LABEL).color(MUTED));
        let ticks = Range { start: 0.0, end: count }.whole_ticks((length / 45.0) as usize);
        for (tick, label) in ticks.iter().zip(tick_labels(&ticks)) {
            let along = tick / count * length;
            if self.is_across {
                let (x, bottom) = (area.left + along, area.bottom());
                canvas.line(&[(x, bottom), (x, bottom + 4.0)], MUTED, 1.0);
                canvas.text(&label, (x, bottom + 12.0), &look.centered());
            } else {
                let y = area.top + along;
                canvas.line(&[(area.left - 4.0, y), (area.left, y)], MUTED, 1.0);
                canvas.text(&label, (area.left - 7.0, y), &look.right());
            }
        }
    }
}
