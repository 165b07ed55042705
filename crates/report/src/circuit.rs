//! `circuit`: the components of a circuit as boxes, and the connections between them as lines.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use crate::draw::color::{BACKGROUND, BLUE, GREEN, INK, MUTED, VERMILION, mix, pale};
use crate::draw::{Coordinates, HEADING, MARGIN, Picture, Rect, Text, WIDTH};
use crate::numbers::{counted, signed};

/// The size of a box, and the vertical space between layers.
const BOX_SIZE: (f64, f64) = (190.0, 58.0);
const LAYER_GAP: f64 = 84.0;
/// The smallest such space, for circuits with many layers, and the height that they aim at.
const MIN_LAYER_GAP: f64 = 30.0;
const AIMED_HEIGHT: f64 = 1_800.0;
/// The maximum number of boxes in a row, and the space between the rows of a layer.
const MAX_BOXES_PER_ROW: usize = 8;
const ROW_GAP: f64 = 8.0;
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
    (ComponentInput::Query, "queries", BLUE),
    (ComponentInput::Key, "keys", VERMILION),
    (ComponentInput::Value, "values", GREEN),
    (ComponentInput::FeedForward, "feed-forward", MUTED),
];

impl Circuit {
    /// Draws the components and the connections between them. Each layer with components is one level, or several if its
    /// components read each other.
    pub fn picture(&self, run: &str) -> Picture {
        let (levels, bottom) = self.levels();
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
        let mut picture = Picture::new("circuit", bottom, &format!("{run}: circuit"), &note);
        self.draw_edges(&mut picture, &levels.concat());
        for boxes in &levels {
            boxes.iter().for_each(|&(component, area)| self.draw_component(&mut picture, component, area));
            let (first, area) = boxes[0];
            let origin = (MARGIN, area.center().1);
            picture.text(&format!("layer {}", first.layer), origin, &Text::new(12.0).color(MUTED));
        }
        let mut left = MARGIN;
        for (_, name, color) in INPUTS {
            let style = Text::new(12.0);
            picture.line(&[(left, TOP - 16.0), (left + 22.0, TOP - 16.0)], color, 3.0);
            picture.text(&format!("via {name}"), (left + 28.0, TOP - 16.0), &style);
            left += 28.0 + style.width(&format!("via {name}")) + 20.0;
        }
        picture
    }

    /// Returns the boxes of each level, first layer first, and the height of the picture. Cross-attention reads the
    /// self-attention heads of the same layer, and is on a level above them. So is a feed-forward layer that reads heads of
    /// its layer.
    fn levels(&self) -> (Vec<Vec<(&Component, Rect)>>, f64) {
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
        let max_boxes = levels.values().map(Vec::len).max().unwrap_or(1).min(MAX_BOXES_PER_ROW) as f64;
        let pitch = (WIDTH - 2.0 * MARGIN - NAMES_WIDTH) / max_boxes;
        let (width, height) = (BOX_SIZE.0.min(pitch - 12.0), BOX_SIZE.1);
        let gap = (AIMED_HEIGHT / levels.len().max(1) as f64 - height).clamp(MIN_LAYER_GAP, LAYER_GAP);
        let (mut levels_of_boxes, mut top) = (Vec::new(), TOP + 24.0);
        // The last layer is on top: the residual stream flows upwards.
        for mut components in levels.into_values().rev() {
            components.sort_by_key(|component| component.id);
            let area = |index: usize| {
                let (row, column) = ((index / MAX_BOXES_PER_ROW) as f64, (index % MAX_BOXES_PER_ROW) as f64);
                let left = MARGIN + NAMES_WIDTH + (column + 0.5) * pitch - width / 2.0;
                Rect { left, top: top + row * (height + ROW_GAP), width, height }
            };
            let boxes = components.into_iter().enumerate().map(|(index, component)| (component, area(index)));
            let boxes: Vec<_> = boxes.collect();
            top = boxes[boxes.len() - 1].1.bottom() + gap;
            levels_of_boxes.push(boxes);
        }
        levels_of_boxes.reverse();
        (levels_of_boxes, top - gap + MARGIN)
    }

    /// Returns the size of a change of the quantity as a fraction of the gain.
    fn share(&self, change: f64) -> f64 {
        (change.abs() / self.gain).clamp(0.0, 1.0)
    }

    fn draw_edges(&self, picture: &mut Picture, boxes: &[(&Component, Rect)]) {
        let area = |(layer, id): (usize, ComponentId)| {
            Some(boxes.iter().find(|(component, _)| (component.layer, component.id) == (layer, id))?.1)
        };
        for (index, (input, _, color)) in INPUTS.into_iter().enumerate() {
            for edge in self.edges.iter().filter(|edge| edge.input == input) {
                let (Some(from), Some(to)) = (area(edge.from), area(edge.to)) else { continue };
                let shift = (index as f64 - 1.5) * from.width / 5.0;
                let start: Coordinates = (from.center().0 + shift, from.top);
                let end: Coordinates = (to.center().0 + shift, to.bottom());
                let share = self.share(edge.change);
                picture.line(&[start, end], color, 1.0 + 4.0 * share);
                picture.dot(end, 3.0 + 2.0 * share, color);
            }
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
        let change = [format!("{change} if ablated"), change];
        let change = change.into_iter().find(|change| styles[2].width(change) <= width).unwrap_or_default();
        for (line, (text, style)) in [name, kinds.join(", "), change].iter().zip(styles).enumerate() {
            let origin = (area.center().0, area.top + 13.0 + 16.0 * line as f64);
            let style = style.shrunk(text, width, 8.0);
            picture.text(&style.fit(text, width), origin, &style.centered());
        }
    }
}
