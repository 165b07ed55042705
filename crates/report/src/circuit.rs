//! `circuit`: the components of a circuit as boxes, and the connections between them as lines.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use crate::draw::color::{BACKGROUND, BLUE, GREEN, INK, MUTED, VERMILION, mix, pale};
use crate::draw::{Coordinates, HEADING, LEGEND_LINE, MARGIN, MIN_SIZE, Picture, Rect, Text};
use crate::numbers::{counted, signed};

/// The size of a box, and the vertical space between layers.
const BOX_SIZE: (f64, f64) = (190.0, 58.0);
const LAYER_GAP: f64 = 84.0;
/// The smallest such space, for circuits with many layers, and the height that they aim at.
const MIN_LAYER_GAP: f64 = 30.0;
const AIMED_HEIGHT: f64 = 1_800.0;
/// The maximum number of boxes in a row, the least distance between their centres, and the space between the rows of a
/// layer.
const MAX_BOXES_PER_ROW: usize = 7;
const MIN_PITCH: f64 = 100.0;
const ROW_GAP: f64 = 26.0;
/// The horizontal space between boxes, through which lines pass a row, and the distance between these lines.
const BOX_GAP: f64 = 26.0;
const LANE_GAP: f64 = 6.0;
/// The distance of a line from the boxes that it passes.
const CLEARANCE: f64 = 5.0;
/// The width reserved for the layers' names.
const NAMES_WIDTH: f64 = 60.0;
/// The vertical position below the legend.
const TOP: f64 = HEADING + 40.0;

/// The smallest set of components that an analysis found to reproduce a model's predictions.
#[derive(Debug, Clone, Default)]
pub struct Circuit {
    /// The components.
    pub components: Vec<Component>,
    /// The connections between components of the circuit.
    pub edges: Vec<Edge>,
    /// The number of further components of the circuit, which were not ablated alone.
    pub unconfirmed: usize,
    /// The number of components in the model (heads and feed-forward layers).
    pub model_components: usize,
    /// The gain: the difference between the model and the baseline.
    pub gain: f64,
    /// The fraction of the gain that the components recover.
    pub faithfulness: f64,
    /// The quantity that is explained, such as "loss".
    pub quantity: &'static str,
    /// The unit of the quantity, such as "nats".
    pub unit: &'static str,
    /// The ablation of components, such as "mean-ablated".
    pub ablated: &'static str,
    /// The name of the baseline, such as "the unigram baseline".
    pub baseline: String,
}

/// A component of a circuit.
#[derive(Debug, Clone)]
pub struct Component {
    /// The layer, counted from 0.
    pub layer: usize,
    /// The component within the layer.
    pub id: ComponentId,
    /// The kinds of the head, such as "previous token".
    pub kinds: Vec<String>,
    /// The change of the quantity when only this component is ablated.
    pub change: f64,
    /// True if the ablation improves the quantity.
    pub is_harmful: bool,
}

/// A component within a layer: a head or the feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentId {
    /// A self-attention head.
    Head(usize),
    /// A cross-attention head.
    CrossHead(usize),
    /// The feed-forward layer.
    FeedForward,
}

/// A connection between two components, each given with its layer.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The component whose output is read.
    pub from: (usize, ComponentId),
    /// The component that reads this output.
    pub to: (usize, ComponentId),
    /// The input through which the connection runs.
    pub input: ComponentInput,
    /// The change of the quantity when only this connection is ablated.
    pub change: f64,
}

/// An input of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComponentInput {
    /// The input of the queries.
    Query,
    /// The input of the keys.
    Key,
    /// The input of the values.
    Value,
    /// The input of a feed-forward layer.
    FeedForward,
}

/// The inputs from left to right, with their names and colours.
const INPUTS: [(ComponentInput, &str, RGBColor); 4] = [
    (ComponentInput::Query, "path into queries", BLUE),
    (ComponentInput::Key, "path into keys", VERMILION),
    (ComponentInput::Value, "path into values", GREEN),
    (ComponentInput::FeedForward, "path into a feed-forward layer", MUTED),
];

/// The boxes of a row, and the horizontal positions at which lines can pass between them.
struct Row<'a> {
    boxes: Vec<(&'a Component, Rect)>,
    lanes: Vec<f64>,
}

impl<'a> Row<'a> {
    /// Creates a row whose boxes begin at `left`, one every `pitch`, with lanes up to `right`.
    fn new(components: &[&'a Component], (left, right, pitch): (f64, f64, f64), top: f64) -> Self {
        let (width, height) = (BOX_SIZE.0.min(pitch - BOX_GAP), BOX_SIZE.1);
        let area = |index: usize| {
            let left = left + (index as f64 + 0.5) * pitch - width / 2.0;
            Rect { left, top, width, height }
        };
        let boxes = components.iter().enumerate().map(|(index, component)| (*component, area(index)));
        let boxes: Vec<_> = boxes.collect();
        let count = ((right - MARGIN - NAMES_WIDTH) / LANE_GAP) as usize;
        let lanes = (0..=count).map(|index| MARGIN + NAMES_WIDTH + index as f64 * LANE_GAP);
        let is_free = |lane: &f64| {
            boxes.iter().all(|(_, area)| (lane - area.center().0).abs() >= area.width / 2.0 + CLEARANCE)
        };
        Self { lanes: lanes.filter(is_free).collect(), boxes }
    }

    /// Takes the free lane that is nearest to `x`, or the nearest of all if none is free.
    fn take_lane(&mut self, x: f64) -> f64 {
        let nearest =
            self.lanes.iter().enumerate().min_by(|a, b| (a.1 - x).abs().total_cmp(&(b.1 - x).abs()));
        match nearest.map(|(index, lane)| (index, *lane)) {
            Some((index, lane)) if self.lanes.len() > 1 => {
                self.lanes.remove(index);
                lane
            }
            Some((_, lane)) => lane,
            None => x,
        }
    }
}

impl Circuit {
    /// Draws the components and the connections between them in a picture of this width. Each layer with components is
    /// one level, or several if its components read each other.
    pub fn picture(&self, run: &str, width: f64) -> Picture {
        let (mut rows, bottom) = self.rows(width);
        let note = format!(
            "{} of {} recover {:.0} % of the gain over {}; a number is the change of the {quantity} when only that \
             component is {}; the width of a line is the change of the {quantity} when only that connection is ablated",
            self.components.len() + self.unconfirmed,
            counted(self.model_components, "component"),
            self.faithfulness * 100.0,
            self.baseline,
            self.ablated,
            quantity = self.quantity
        );
        let mut picture = Picture::new("circuit", (width, bottom), &format!("{run}: circuit"), &note);
        self.draw_edges(&mut picture, &mut rows);
        for Row { boxes, .. } in &rows {
            boxes.iter().for_each(|&(component, area)| self.draw_component(&mut picture, component, area));
        }
        // The rows of a layer share its name.
        let (layer_of, area) = (|row: &Row| row.boxes[0].0.layer, |row: &Row| row.boxes[0].1);
        for layer in rows.chunk_by(|a, b| layer_of(a) == layer_of(b)) {
            let ends = layer.iter().map(|row| (area(row).top, area(row).bottom()));
            let (top, bottom) =
                ends.fold((f64::INFINITY, 0.0_f64), |all, row| (all.0.min(row.0), all.1.max(row.1)));
            let middle = (top + bottom) / 2.0;
            let name = format!("layer {}", layer_of(&layer[0]));
            picture.text(&name, (MARGIN, middle), &Text::new(12.0).color(MUTED));
            if layer.len() > 1 {
                let x = MARGIN + NAMES_WIDTH - 4.0;
                picture.line(&[(x, top), (x, bottom)], MUTED, 1.0);
            }
        }
        self.draw_legend(&mut picture);
        picture
    }

    /// Draws the colours that occur, of the paths and of components that harm the prediction, and explains the numbers, in
    /// rows above the boxes.
    fn draw_legend(&self, picture: &mut Picture) {
        let (style, right) = (Text::new(12.0), picture.width() - MARGIN);
        let of_input = |&(input, name, color): &(ComponentInput, &'static str, RGBColor)| {
            self.edges.iter().any(|edge| edge.input == input).then(|| (name.to_string(), Some(color)))
        };
        let mut named: Vec<(String, Option<RGBColor>)> = INPUTS.iter().filter_map(of_input).collect();
        if self.components.iter().any(|component| component.is_harmful) {
            named.push(("makes the prediction worse".to_string(), None));
        }
        let (mut entries, mut left, mut row) = (Vec::new(), MARGIN, 0);
        for (name, color) in named {
            let width = 28.0 + style.width(&name);
            if left > MARGIN && left + width > right {
                (left, row) = (MARGIN, row + 1);
            }
            entries.push((name, color, left, row));
            left += width + 20.0;
        }
        // The note, which names the ablation as well, is missing in pictures without a title.
        let numbers = format!("number: change of the {} if {}", self.quantity, self.ablated);
        let muted = Text::new(12.0).color(MUTED);
        let is_below = left > MARGIN && left + muted.width(&numbers) > right;
        let lines = if is_below { muted.lines(&numbers, right - MARGIN) } else { Vec::new() };
        row += lines.len();
        picture.raise_heading(row);
        let bottom = TOP - 16.0;
        for (name, color, left, at) in entries {
            let y = bottom - LEGEND_LINE * (row - at) as f64;
            draw_key(picture, (left, y), color);
            picture.text(&name, (left + 28.0, y), &style);
        }
        for (line, above) in lines.iter().zip((0..lines.len()).rev()) {
            picture.text(line, (MARGIN, bottom - LEGEND_LINE * above as f64), &muted);
        }
        if !is_below {
            picture.text(&numbers, (right, bottom), &muted.right());
        }
    }

    /// Returns the rows of boxes, first layer first, and the height of the picture. Cross-attention reads the self-attention
    /// heads of the same layer, and is on a level above them. So is a feed-forward layer that reads heads of its layer. A
    /// level with many boxes has several rows.
    fn rows(&self, width: f64) -> (Vec<Row<'_>>, f64) {
        let has_cross = |layer: usize| {
            self.components
                .iter()
                .any(|other| other.layer == layer && matches!(other.id, ComponentId::CrossHead(_)))
        };
        let has_inner_edge = |layer: usize| {
            let to = (layer, ComponentId::FeedForward);
            self.edges.iter().any(|edge| edge.from.0 == layer && edge.to == to)
        };
        let level = |&Component { layer, id, .. }: &Component| match id {
            ComponentId::Head(_) => 0,
            ComponentId::FeedForward if has_inner_edge(layer) => 2,
            ComponentId::CrossHead(_) | ComponentId::FeedForward => usize::from(has_cross(layer)),
        };
        let mut levels = BTreeMap::<(usize, usize), Vec<&Component>>::new();
        for component in &self.components {
            levels.entry((component.layer, level(component))).or_default().push(component);
        }
        let room = width - 2.0 * MARGIN - NAMES_WIDTH;
        let per_row = MAX_BOXES_PER_ROW.min((room / MIN_PITCH) as usize).max(1);
        let max_boxes = levels.values().map(Vec::len).max().unwrap_or(1).min(per_row) as f64;
        let pitch = room / max_boxes;
        let gap = (AIMED_HEIGHT / levels.len().max(1) as f64 - BOX_SIZE.1).clamp(MIN_LAYER_GAP, LAYER_GAP);
        let (mut rows, mut top) = (Vec::new(), TOP + 24.0);
        // The last layer is on top: the residual stream flows upwards.
        for mut components in levels.into_values().rev() {
            components.sort_by_key(|component| component.id);
            for row in components.chunks(per_row) {
                let left = MARGIN + NAMES_WIDTH + (max_boxes - row.len() as f64) / 2.0 * pitch;
                rows.push(Row::new(row, (left, width - MARGIN, pitch), top));
                top += BOX_SIZE.1 + ROW_GAP;
            }
            top += gap - ROW_GAP;
        }
        rows.reverse();
        (rows, top - gap + MARGIN)
    }

    /// Returns the size of a change of the quantity as a fraction of the gain.
    fn share(&self, change: f64) -> f64 {
        (change.abs() / self.gain).clamp(0.0, 1.0)
    }

    /// Draws the connections as lines that pass between the boxes of the rows on their way.
    fn draw_edges(&self, picture: &mut Picture, rows: &mut [Row]) {
        let place = |rows: &[Row], (layer, id): (usize, ComponentId)| {
            rows.iter().enumerate().find_map(|(row, Row { boxes, .. })| {
                let found = boxes.iter().find(|(it, _)| (it.layer, it.id) == (layer, id));
                found.map(|(_, area)| (row, *area))
            })
        };
        let mut edges: Vec<&Edge> = self.edges.iter().collect();
        edges.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()));
        let mut lines = Vec::new();
        // The strongest connections take the straightest ways.
        for edge in edges {
            let (Some((first, from)), Some((last, to))) = (place(rows, edge.from), place(rows, edge.to))
            else {
                continue;
            };
            let index = INPUTS.iter().position(|(input, ..)| *input == edge.input).unwrap_or(0);
            let (x, y) = (index as f64 - 1.5, self.share(edge.change));
            let start = (from.center().0 + x * from.width / 5.0, from.top);
            let end = (to.center().0 + x * to.width / 5.0, to.bottom());
            let between = if first < last { &mut rows[first + 1..last] } else { &mut [] };
            lines.push((route(start, end, between), INPUTS[index].2, y));
        }
        // And are drawn last.
        for (line, color, share) in lines.iter().rev() {
            picture.line(line, *color, 1.0 + 4.0 * share);
            picture.dot(line[line.len() - 1], 3.0 + 2.0 * share, *color);
        }
    }

    fn draw_component(&self, picture: &mut Picture, component: &Component, area: Rect) {
        let Component { id, kinds, change, is_harmful, .. } = component;
        // Vermilion marks a component whose ablation improves the prediction.
        let hue = if *is_harmful { VERMILION } else { BLUE };
        picture.rect(area, mix(BACKGROUND, pale(hue), 0.2 + 0.8 * self.share(*change)));
        picture.frame(area, MUTED, 1.0);
        let name = match id {
            ComponentId::Head(head) => format!("head {head}"),
            ComponentId::CrossHead(head) => format!("cross head {head}"),
            ComponentId::FeedForward => "feed-forward".to_string(),
        };
        let styles = [Text::new(13.0).bold(), Text::new(10.5), Text::new(10.5).color(INK)];
        let width = area.width - 8.0;
        // The picture's note explains the number, so a narrow box has only the number.
        let change = format!("{} {}", signed(*change, 2), self.unit);
        let change = [format!("{change} if {}", self.ablated), change];
        let change = change.into_iter().find(|change| styles[2].width(change) <= width).unwrap_or_default();
        let kinds = kinds_within(kinds, &styles[1], width);
        for (line, (text, style)) in [name, kinds, change].iter().zip(styles).enumerate() {
            let origin = (area.center().0, area.top + 13.0 + 16.0 * line as f64);
            let style = style.shrunk(text, width, MIN_SIZE);
            picture.text(&style.fit(text, width), origin, &style.centered());
        }
    }
}

/// Returns the kinds of a head that fit into `width`, with the number of the others.
fn kinds_within(kinds: &[String], style: &Text, width: f64) -> String {
    let first = |count: usize| match kinds.len() - count {
        0 => kinds.join(", "),
        others => format!("{} +{others}", kinds[..count].join(", ")),
    };
    let fits = |text: &String| style.shrunk(text, width, MIN_SIZE).width(text) <= width;
    (1..=kinds.len()).rev().map(first).find(fits).unwrap_or_else(|| kinds.join(", "))
}

/// Draws the mark of an entry of the legend: a line in the colour of a path, or a box of a harmful component.
fn draw_key(picture: &mut Picture, (left, y): Coordinates, color: Option<RGBColor>) {
    match color {
        Some(color) => picture.line(&[(left, y), (left + 22.0, y)], color, 3.0),
        None => {
            let area = Rect { left: left + 5.0, top: y - 6.0, width: 12.0, height: 12.0 };
            picture.rect(area, pale(VERMILION));
            picture.frame(area, MUTED, 1.0);
        }
    }
}

/// Returns the corners of a line from `start` to `end` that passes the rows in between, from bottom to top, in their lanes.
fn route(start: Coordinates, end: Coordinates, between: &mut [Row]) -> Vec<Coordinates> {
    let (mut line, mut x, mut left) = (vec![start], start.0, between.len() as f64 + 1.0);
    for row in between {
        x = row.take_lane(x + (end.0 - x) / left);
        left -= 1.0;
        let (_, area) = row.boxes[0];
        line.extend([(x, area.bottom() + CLEARANCE), (x, area.top - CLEARANCE)]);
    }
    line.push(end);
    line
}

#[cfg(test)]
mod tests;
