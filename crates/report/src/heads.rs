//! `heads`: the attention maps of all heads on one sequence, as thumbnails in one grid and on one scale.

use crate::draw::{
    HEADING, HeatMap, MARGIN, Picture, Rect, Text, WeightColors, WeightScale, color::MUTED, stride_of,
};
use crate::numbers::counted;
use crate::reading::{Layer, Reading};

/// The width of the colour bar with its labels.
const BAR_WIDTH: f64 = 74.0;
/// The width of the layers' names, without and with the kind of attention.
const LAYER_NAME_WIDTH: f64 = 62.0;
const LAYER_AND_KIND_WIDTH: f64 = 88.0;
const GAP: f64 = 8.0;
/// The height of the head number above each thumbnail.
const HEAD_LABEL_HEIGHT: f64 = 18.0;
/// The maximum width of a thumbnail in a model of few and of many layers, which limits the height of the picture.
const MAX_THUMBNAIL_WIDTH: f64 = 300.0;
const MAX_THUMBNAIL_WIDTH_OF_MANY_LAYERS: f64 = 120.0;
/// The total height of the thumbnails of all layers, unless one of these limits applies.
const TOTAL_THUMBNAIL_HEIGHT: f64 = 900.0;
/// The width below which thumbnails are drawn in more rows, and the total height up to which they are.
const MIN_THUMBNAIL_WIDTH: f64 = 56.0;
const MAX_HEIGHT_OF_MORE_ROWS: f64 = 1_000.0;
/// The maximum number of heads in a single row. A model with few layers shows more heads in two rows per layer.
const MAX_HEADS_PER_SINGLE_ROW: usize = 8;
/// The maximum number of heads in a row of any model, so that each map stays visible.
const MAX_HEADS_PER_ROW: usize = 32;
const MAX_LAYERS_IN_TWO_ROWS: usize = 4;
/// The minimum width of a cell in logical pixels; longer sequences are binned.
const MIN_CELL_WIDTH: f64 = 0.5;
/// The minimum height of the picture's content, for the colour bar.
const MIN_CONTENT_HEIGHT: f64 = 150.0;

/// The grid of thumbnails.
#[derive(Clone, Copy)]
struct Grid {
    /// The number of heads in a row.
    columns: usize,
    /// The number of rows of a layer.
    rows: usize,
    /// The width of a thumbnail.
    side: f64,
}

impl Grid {
    /// Creates the grid of the layers' heads, at most `max_heads` in each, within the width `room`. If its thumbnails are
    /// small, they are drawn in more rows, unless that makes the picture tall.
    fn new(layers: &[Layer<'_>], max_heads: usize, room: f64) -> Self {
        let has_two_rows = max_heads > MAX_HEADS_PER_SINGLE_ROW && layers.len() <= MAX_LAYERS_IN_TWO_ROWS;
        let rows = max_heads.div_ceil(MAX_HEADS_PER_ROW).max(1 + usize::from(has_two_rows));
        let widest = (TOTAL_THUMBNAIL_HEIGHT / layers.len().max(1) as f64)
            .clamp(MAX_THUMBNAIL_WIDTH_OF_MANY_LAYERS, MAX_THUMBNAIL_WIDTH);
        let grid = |columns: usize| Self {
            columns,
            rows: max_heads.div_ceil(columns),
            side: (room / columns as f64 - GAP).min(widest).floor(),
        };
        let most = max_heads.div_ceil(rows);
        let is_low = |grid: &Self| {
            let height: f64 = layers.iter().map(|layer| grid.layer_height(layer)).sum();
            height <= MAX_HEIGHT_OF_MORE_ROWS
        };
        let low: Vec<Self> = (1..=most).rev().map(grid).filter(is_low).collect();
        let legible = low.iter().find(|grid| grid.side >= MIN_THUMBNAIL_WIDTH);
        legible.or(low.last()).copied().unwrap_or_else(|| grid(most))
    }

    /// Returns the height of the thumbnails of a layer. Cells are square, unless that would make the map very flat or very
    /// tall.
    fn height(&self, layer: &Layer<'_>) -> f64 {
        let [queries, keys] = layer.tokens.map(<[String]>::len);
        (self.side * queries as f64 / keys as f64).clamp(self.side / 4.0, self.side * 2.0).floor()
    }

    /// Returns the height of a layer with all its rows.
    fn layer_height(&self, layer: &Layer<'_>) -> f64 {
        self.rows as f64 * (HEAD_LABEL_HEIGHT + self.height(layer)) + GAP
    }
}

/// Draws the maps of all heads over one sequence, layer by layer; with an encoder, for each kind of attention. The picture
/// has this width.
pub fn picture(
    run: &str,
    reading: &Reading,
    layers: &[Layer<'_>],
    (colors, picture_width): (WeightColors, f64),
) -> Picture {
    let max_heads = layers.iter().map(|layer| layer.heads.len()).max().unwrap_or(1).max(1);
    let names = if reading.source.is_some() { LAYER_AND_KIND_WIDTH } else { LAYER_NAME_WIDTH };
    let grid = Grid::new(layers, max_heads, picture_width - 2.0 * MARGIN - BAR_WIDTH - names);
    let Grid { columns, side, .. } = grid;
    let heights: Vec<f64> = layers.iter().map(|layer| grid.layer_height(layer)).collect();
    let content = heights.iter().sum::<f64>().max(MIN_CONTENT_HEIGHT);

    let longest = layers.iter().flat_map(|layer| layer.tokens.map(<[String]>::len)).max().unwrap_or(1);
    let bin = stride_of(side, longest as f64 * MIN_CELL_WIDTH);
    let bins =
        if bin > 1 { format!(" in bins of {bin} (mean over queries, sum over keys)") } else { String::new() };
    let all = layers.iter().map(|layer| layer.heads.len()).sum();
    let note = format!(
        "{}, {}{bins}; {}; rows are queries, columns are keys",
        reading.sequence,
        counted(reading.inputs.len(), "token"),
        counted(all, "head"),
    );
    let title = format!("{run}: attention of all heads");
    let mut picture = Picture::new("heads", (picture_width, HEADING + content + MARGIN), &title, &note);

    let maps = |layer: &Layer<'_>| (0..layer.heads.len()).map(|head| layer.map(head, [bin; 2])).collect();
    let maps: Vec<Vec<HeatMap>> = layers.iter().map(maps).collect();
    let scale = WeightScale::of(maps.iter().flatten(), colors);
    let (number, pitch) = (Text::new(9.5).color(MUTED), side + GAP);
    let (prefix, stride) = labels(max_heads - 1, pitch, &number);
    let mut top = HEADING;
    for ((layer, maps), layer_height) in layers.iter().zip(&maps).zip(&heights) {
        let kind = if reading.source.is_some() { layer.kind.name() } else { "" };
        name_layer(&mut picture, layer.index, kind, top + HEAD_LABEL_HEIGHT, &number);
        let height = grid.height(layer);
        for (head, map) in maps.iter().enumerate() {
            let left = MARGIN + names + (head % columns) as f64 * pitch;
            let top = top + (head / columns) as f64 * (HEAD_LABEL_HEIGHT + height) + HEAD_LABEL_HEIGHT;
            if (head % columns).is_multiple_of(stride) {
                picture.text(&format!("{prefix}{head}"), (left, top - 7.0), &number);
            }
            scale.draw(&mut picture, Rect { left, top, width: side, height }, map);
        }
        top += layer_height;
    }
    let left = MARGIN + names + columns as f64 * pitch + 10.0;
    let height = heights.iter().sum::<f64>() - HEAD_LABEL_HEIGHT - GAP;
    let height = height.clamp(MIN_CONTENT_HEIGHT - HEAD_LABEL_HEIGHT, 300.0);
    let bar = Rect { left, top: HEADING + HEAD_LABEL_HEIGHT, width: 14.0, height };
    scale.draw_bar(&mut picture, bar);
    picture
}

/// Returns the prefix of the heads' numbers, up to the number `last`, and the stride at which heads are numbered. If
/// there is too little space, the prefix is dropped first; then the stride increases.
fn labels(last: usize, pitch: f64, style: &Text) -> (&'static str, usize) {
    let width = |label: &str| style.width(label) + 4.0;
    let prefix = if width(&format!("head {last}")) <= pitch { "head " } else { "" };
    (prefix, stride_of(pitch, width(&format!("{prefix}{last}"))))
}

/// Draws the name of a layer, and below it the kind of attention, one word per line.
fn name_layer(picture: &mut Picture, layer: usize, kind: &str, top: f64, style: &Text) {
    picture.text(&format!("layer {layer}"), (MARGIN, top + 6.0), &Text::new(12.0).bold());
    for (line, word) in kind.split_whitespace().enumerate() {
        picture.text(word, (MARGIN, top + 22.0 + line as f64 * 12.0), style);
    }
}
