//! `attention`: the labelled attention map of one head per layer on one sequence.

use crate::draw::color::MUTED;
use crate::draw::{
    Coordinates, HEADING, HeatMap, MARGIN, MIN_SIZE, Picture, Rect, Text, TokenAxis, WeightColors,
    WeightScale,
};
use crate::numbers::counted;
use crate::reading::{Layer, Reading};

/// The maximum width of a cell, for short sequences.
const MAX_CELL_WIDTH: f64 = 64.0;
/// The minimum width of a map with its tokens in a row of several, and of a map, for sequences of one or two tokens.
const MIN_PANEL_WIDTH: f64 = 220.0;
const MIN_MAP_WIDTH: f64 = 150.0;
/// The maximum width of a map; a single wider map would be taller than a screen.
const MAX_MAP_WIDTH: f64 = 700.0;
/// The maximum width of a label, as a fraction of the map's width.
const MAX_LABEL_FRACTION: f64 = 0.2;
/// The space between maps.
const GAP: f64 = 18.0;
/// The height of the title above a map.
const TITLE_HEIGHT: f64 = 24.0;
/// The width of the colour bar with its labels.
const BAR_WIDTH: f64 = 74.0;

/// The layout of a map of a given width: its cells and the tokens next to them.
struct Layout {
    queries: TokenAxis,
    keys: TokenAxis,
    /// The width and height of the grid of cells.
    cells: (f64, f64),
}

impl Layout {
    fn new(layer: &Layer<'_>, width: f64) -> Self {
        let [queries, keys] = layer.tokens;
        let axis = |tokens, length, is_horizontal| {
            TokenAxis::new(tokens, width * MAX_LABEL_FRACTION, length, is_horizontal)
        };
        // The size of the labels depends on the width of the cells, and vice versa.
        let left = |length| axis(queries, length, false).depth();
        let left = left(width - left(width));
        let cell = ((width - left) / keys.len() as f64).min(MAX_CELL_WIDTH);
        let side = (cell * keys.len() as f64).max(MIN_MAP_WIDTH).min(width - left).floor();
        // Cells are square, unless that would make the map very flat or very tall.
        let height = side * queries.len() as f64 / keys.len() as f64;
        let min_height = (queries.len() as f64 * 14.0).clamp(1.0, side);
        let height = height.clamp(min_height.min(height.max(60.0)), side * 1.25).floor();
        Self { queries: axis(queries, height, false), keys: axis(keys, side, true), cells: (side, height) }
    }

    fn width(&self) -> f64 {
        self.queries.depth() + self.cells.0
    }

    fn height(&self) -> f64 {
        TITLE_HEIGHT + self.cells.1 + self.keys.depth() + GAP
    }

    fn map(&self, layer: &Layer<'_>, head: usize) -> HeatMap {
        layer.map(head, [self.queries.bin, self.keys.bin])
    }
}

/// Draws the map of one head per layer on a sequence; with an encoder, for each kind of attention. All maps share the
/// scale of the picture `heads`, which fits all heads. The picture has this width.
pub fn picture(
    run: &str,
    reading: &Reading,
    layers: &[Layer<'_>],
    (colors, picture_width): (WeightColors, f64),
) -> Picture {
    let room = picture_width - 2.0 * MARGIN - BAR_WIDTH;
    let columns = match (&reading.source, layers.last().map_or(1, |last| last.index + 1)) {
        (None, 4) => 2,
        (_, layers) => layers.min(3),
    };
    let columns = columns.min((room / MIN_PANEL_WIDTH) as usize).max(1);
    let width = room / columns as f64 - GAP;
    let layouts: Vec<Layout> =
        layers.iter().map(|layer| Layout::new(layer, width.min(MAX_MAP_WIDTH))).collect();
    let rows = layouts.chunks(columns).map(|row| row.iter().map(Layout::height).fold(0.0, f64::max));
    let rows: Vec<f64> = rows.collect();
    let title = format!("{run}: attention, {}", title_of(layers));
    let note = note(reading, &layouts, colors);
    let mut picture =
        Picture::new("attention", (picture_width, HEADING + rows.iter().sum::<f64>()), &title, &note);
    let all = layers
        .iter()
        .zip(&layouts)
        .flat_map(|(layer, layout)| (0..layer.heads.len()).map(move |head| layout.map(layer, head)));
    let scale = WeightScale::of(all, colors);
    let names = layers.iter().map(|layer| Text::new(13.0).bold().width(&layer.name) + 8.0);
    let panel = layouts.iter().map(Layout::width).chain(names).fold(0.0, f64::max).min(width);
    let pitch = panel + GAP;
    let left = (picture_width - columns as f64 * pitch - BAR_WIDTH) / 2.0;
    let mut top = HEADING;
    for ((layers, layouts), height) in layers.chunks(columns).zip(layouts.chunks(columns)).zip(&rows) {
        for (column, (layer, layout)) in layers.iter().zip(layouts).enumerate() {
            let left = left + column as f64 * pitch;
            let (width, height) = layout.cells;
            let area = Rect { left: left + layout.queries.depth(), top: top + TITLE_HEIGHT, width, height };
            layer.draw_title(&mut picture, (left, top + 10.0), area.left - left, panel);
            scale.draw(&mut picture, area, &layout.map(layer, layer.shown));
            layout.queries.draw(&mut picture, area, "query");
            layout.keys.draw(&mut picture, area, "key");
        }
        top += height;
    }
    let height = layouts.first().map_or(1.0, |layout| layout.cells.1).max(120.0);
    let bar = Rect { left: left + columns as f64 * pitch, top: HEADING + TITLE_HEIGHT, width: 14.0, height };
    scale.draw_bar(&mut picture, bar);
    picture
}

/// Describes the sequence, the axes and the colours of the maps.
fn note(reading: &Reading, layouts: &[Layout], colors: WeightColors) -> String {
    let is_binned = layouts.iter().any(|layout| layout.queries.bin.max(layout.keys.bin) > 1);
    let bins = if is_binned {
        "; a cell covers several positions and shows the total weight on its keys, averaged over its queries"
    } else {
        ""
    };
    let shared = match colors {
        WeightColors::Linear | WeightColors::SquareRoot => "all heads share one colour scale",
        WeightColors::PerHead => "each head has its own colour scale",
    };
    format!(
        "{}, {}; rows are queries, columns are keys; {shared}{bins}",
        reading.sequence,
        counted(reading.inputs.len(), "token"),
    )
}

/// Describes the shown heads in a title: the name of the head if there is only one.
pub(crate) fn title_of<'a>(layers: &'a [Layer<'_>]) -> &'a str {
    if let [layer] = layers { &layer.name } else { "one head per layer" }
}

impl Layer<'_> {
    /// Draws the name and note of the shown head above a panel of `width` that starts at `left`. The text is indented
    /// by `indent`, or by less if it needs the space.
    pub(crate) fn draw_title(&self, picture: &mut Picture, (left, y): Coordinates, indent: f64, width: f64) {
        let name = Text::new(13.0).bold().shrunk(&self.name, width, MIN_SIZE);
        let note = Text::new(11.5).color(MUTED);
        let text = name.fit(&self.name, width);
        let after = name.width(&text) + 8.0;
        let fits = after + note.width(&self.note) <= width;
        let note_text = if fits { self.note.as_str() } else { "" };
        let x = left + indent.min(width - after - note.width(note_text)).max(0.0);
        picture.text(&text, (x, y), &name);
        picture.text(note_text, (x + after, y), &note);
    }
}
