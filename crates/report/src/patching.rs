//! `patching`: the fraction of the logit difference that each clean activation restores in a corrupted sequence.

use crate::draw::color::{MUTED, of_values};
use crate::draw::{
    Axis, HEADING, HeatMap, Interval, MARGIN, MIN_VALUE_CELL, Picture, Rect, Scale, Text, TokenAxis,
    draw_color_bar, round_up, stride_of,
};
use crate::numbers::{counted, fixed};

/// The width of the row names on the left, at most this fraction of the picture's width, and of the colour bar.
const ROW_NAMES_WIDTH: f64 = 110.0;
const MAX_NAMES_FRACTION: f64 = 0.29;
const BAR_WIDTH: f64 = 80.0;
/// The heights of the name above each map and of the head numbers below the map of heads.
const NAME_HEIGHT: f64 = 24.0;
const NUMBERS_HEIGHT: f64 = 44.0;
const MAX_ROW_HEIGHT: f64 = 26.0;
const MAX_STREAM_HEIGHT: f64 = 420.0;
const MAX_CELL_WIDTH: f64 = 64.0;
const GAP: f64 = 70.0;
/// The gap in maps narrower than this, and the width of the name of the feed-forward layers.
const NARROW_GAP: f64 = 24.0;
const MIN_WIDTH_FOR_GAP: f64 = 300.0;
const LAST_NAME_WIDTH: f64 = 94.0;

/// The fractions of the logit difference that patched activations recover.
#[derive(Debug, Clone, Default)]
pub struct Patching {
    /// The number of sequence pairs over which heads and feed-forward layers are averaged.
    pub pairs: usize,
    /// The mean logit difference on the clean sequences.
    pub clean: f64,
    /// The mean logit difference on the corrupted sequences.
    pub corrupted: f64,
    /// The fraction recovered by each head, `[layer][head]`.
    pub heads: Vec<Vec<f64>>,
    /// The fraction recovered by each feed-forward layer.
    pub feed_forward: Vec<f64>,
    /// The fraction recovered by the residual stream of one pair, `[depth][position]`.
    pub stream: Vec<Vec<f64>>,
    /// The number of adjacent positions of the residual stream that are patched together.
    pub together: usize,
    /// The tokens of that pair, such as "a", or "a→b" if the corrupted token differs.
    pub tokens: Vec<String>,
    /// The answers to the clean and the corrupted sequence of that pair.
    pub answers: [String; 2],
}

impl Patching {
    /// Draws three maps on one scale: the residual stream by depth and position, and the heads and feed-forward layers
    /// by layer. The picture has this width.
    pub fn picture(&self, run: &str, width: f64) -> Picture {
        let names = ROW_NAMES_WIDTH.min(MAX_NAMES_FRACTION * width);
        let maps = width - 2.0 * MARGIN - names - BAR_WIDTH;
        let axis = TokenAxis::new(&self.tokens, 90.0, maps, true);
        let layout = Layout::new(self, &axis, (MARGIN + names, maps));
        let Layout { stream, heads, feed_forward, .. } = layout;
        let bottom = heads.bottom() + NUMBERS_HEIGHT + MARGIN;
        let title = format!("{run}: activation patching");
        let mut picture = Picture::new("patching", (width, bottom), &title, &self.note());
        let all = || self.stream.iter().chain(&self.heads).flatten().chain(&self.feed_forward).copied();
        let lowest = all().fold(0.0, f64::min);
        let range = Interval {
            start: if lowest < -0.05 { -round_up(-lowest) } else { 0.0 },
            end: round_up(all().fold(1.0, f64::max)),
        };
        // The last layer is on top: the residual stream flows upwards.
        let mut map = |area: Rect, columns: usize, values: Vec<Option<f64>>| {
            let map = HeatMap { positions: [values.len() / columns, columns], bins: [1, 1], values };
            map.draw(&mut picture, area, range, 2, "–");
        };
        let rows = |rows: &[Vec<f64>], columns: usize| {
            let row =
                |row: &Vec<f64>| (0..columns).map(|column| row.get(column).copied()).collect::<Vec<_>>();
            rows.iter().rev().flat_map(row).collect()
        };
        map(stream, self.tokens.len(), rows(&self.stream, self.tokens.len()));
        map(heads, layout.max_heads, rows(&self.heads, layout.max_heads));
        map(feed_forward, 1, self.feed_forward.iter().rev().map(|&share| Some(share)).collect());

        self.draw_names(&mut picture, &layout);
        axis.draw(&mut picture, stream, "input");
        let height = stream.height.max(90.0);
        let bar = Rect { left: stream.right() + 10.0, width: 12.0, height, ..stream };
        let shade = move |fraction: f64| of_values(range)(range.start + fraction * range.length());
        draw_color_bar(&mut picture, bar, shade, &Axis::new("recovered fraction", range, Scale::Linear));
        picture
    }

    fn note(&self) -> String {
        let span = match self.together {
            1 => String::new(),
            together => format!(", {} patched together", counted(together, "position")),
        };
        format!(
            "fraction of the logit difference between both answers that one clean activation restores in the corrupted \
             sequence; mean difference {} clean, {} corrupted, over {}; residual stream: one pair{span}, answer {} \
             instead of {}",
            fixed(self.clean, 2),
            fixed(self.corrupted, 2),
            counted(self.pairs, "pair"),
            self.answers[0],
            self.answers[1],
        )
    }

    /// Draws the names of the maps, of their rows, and of the heads.
    fn draw_names(&self, picture: &mut Picture, layout: &Layout) {
        let Layout { stream, heads, feed_forward, row, cell, max_heads } = *layout;
        let depth = |depth: usize| match depth {
            0 => "embedding".to_string(),
            depth => format!("after layer {}", depth - 1),
        };
        let style = Text::new(10.0).color(MUTED);
        let mut name_rows = |area: Rect, count: usize, name: &dyn Fn(usize) -> String| {
            for index in (0..count).step_by(stride_of(row, 13.0)) {
                let origin = (area.left - 8.0, area.bottom() - (index as f64 + 0.5) * row);
                picture.text(&name(index), origin, &style.right());
            }
        };
        name_rows(stream, self.stream.len(), &depth);
        name_rows(heads, self.heads.len(), &|layer| format!("layer {layer}"));
        for head in (0..max_heads).step_by(stride_of(cell, 16.0)) {
            let origin = (heads.left + (head as f64 + 0.5) * cell, heads.bottom() + 9.0);
            picture.text(&head.to_string(), origin, &style.centered());
        }
        picture.text("head", (heads.center().0, heads.bottom() + 24.0), &Text::new(11.0).centered());
        let above = |area: Rect| (area.left, area.top - 12.0);
        picture.panel_name("residual stream", "by depth and position", above(stream), stream.width);
        picture.panel_name("heads", "", above(heads), heads.width);
        picture.panel_name("feed-forward", "", above(feed_forward), picture.width() - feed_forward.left);
    }
}

/// The rectangles of the three maps.
struct Layout {
    stream: Rect,
    heads: Rect,
    feed_forward: Rect,
    /// The height of a row, and the width of a head.
    row: f64,
    cell: f64,
    /// The largest number of heads in a layer.
    max_heads: usize,
}

impl Layout {
    /// Creates the layout of maps that begin at `left` and are `width` wide.
    fn new(patching: &Patching, axis: &TokenAxis, (left, width): (f64, f64)) -> Self {
        let row = (MAX_STREAM_HEIGHT / patching.stream.len() as f64).min(MAX_ROW_HEIGHT);
        let height = row * patching.stream.len() as f64;
        let stream = Rect { left, top: HEADING + NAME_HEIGHT, width, height };
        let max_heads = patching.heads.iter().map(Vec::len).max().unwrap_or(1).max(1);
        // The colour bar is next to the upper map only, so the heads and feed-forward layers can be wider.
        let gap = if width < MIN_WIDTH_FOR_GAP { NARROW_GAP } else { GAP };
        let room = width + BAR_WIDTH - gap - LAST_NAME_WIDTH;
        let cell = (room.min(width) / max_heads as f64).clamp(1.0, MAX_CELL_WIDTH);
        let top = stream.bottom() + axis.depth() + NAME_HEIGHT + 12.0;
        let (width, height) = (cell * max_heads as f64, row * patching.heads.len() as f64);
        let heads = Rect { left, top, width, height };
        let (left, width) = (heads.right() + gap, cell.clamp(MIN_VALUE_CELL, MAX_CELL_WIDTH));
        Self { stream, heads, feed_forward: Rect { left, width, ..heads }, row, cell, max_heads }
    }
}
