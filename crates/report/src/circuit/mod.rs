//! `circuit`, `logit_lens`, `attribution` and `patching`: the explanation of a model's predictions.

mod diagram;
mod patching;

use plotters::style::RGBColor;

use crate::draw::color::{BACKGROUND, BLUE, GRID, VERMILION, color, mix};
use crate::draw::{
    Axis, HEADING, Interval, MARGIN, Picture, Rect, Scale, Text, TokenAxis, WIDTH, color_bar, round_up,
    stride_of,
};
use crate::numbers::{counted, fixed, signed};

pub use diagram::{Circuit, Component, Edge, HeadInput, Part};
pub use patching::Patching;

/// The width left of a row of a matrix, and that of the colour bar.
const LEFT: f64 = 190.0;
const BAR: f64 = 80.0;
/// Positions of a sequence that are shown.
const MOST_POSITIONS: usize = 128;
const TALLEST_ROW: f64 = 20.0;
const MOST_HEIGHT: f64 = 900.0;

/// The explanation of a model's predictions. Losses are in nats per token.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// The components that make the predictions, where they were found.
    pub circuit: Option<Circuit>,
    /// The number of sequences that the explanation was found on.
    pub sequences: usize,
    /// The inputs of the first sequence.
    pub inputs: Vec<String>,
    /// The targets of the first sequence.
    pub targets: Vec<String>,
    /// The prediction before the first layer and after each.
    pub lens: LogitLens,
    /// The same through a trained affine map at each depth.
    pub tuned_lens: Option<LogitLens>,
    /// The share of each component in the logit of the target, in the order of the model.
    pub attribution: Vec<Attribution>,
    /// The activations that carry the answer.
    pub patching: Option<Patching>,
}

/// The predictions of the final norm and head from the residual stream at each depth.
#[derive(Debug, Clone, Default)]
pub struct LogitLens {
    /// The mean loss at each depth.
    pub loss: Vec<f64>,
    /// The probability of each target of the first sequence, `[depth][position]`.
    pub probability: Vec<Vec<f64>>,
}

/// The share of one component in the logit of the target.
#[derive(Debug, Clone, Default)]
pub struct Attribution {
    /// The name of the component, as "layer 0 head 1".
    pub part: String,
    /// The mean over all targets.
    pub mean: f64,
    /// The share at each position of the first sequence.
    pub first: Vec<f64>,
}

/// Draws the explanation of `run`.
pub fn pictures(run: &str, found: &Explanation) -> Vec<Picture> {
    let circuit = found.circuit.as_ref().map(|circuit| circuit.picture(run));
    let patching = found.patching.as_ref().map(|patching| patching.picture(run));
    circuit.into_iter().chain([lens(run, found), attribution(run, found)]).chain(patching).collect()
}

/// The first positions, as many as are shown.
fn shown(tokens: &[String]) -> &[String] {
    &tokens[..tokens.len().min(MOST_POSITIONS)]
}

fn lens(run: &str, found: &Explanation) -> Picture {
    // The last layer on top, as the residual stream rises.
    let depth = |(depth, loss): (usize, &f64)| match depth {
        0 => format!("embedding: {} nats", fixed(*loss, 2)),
        depth => format!("after layer {}: {} nats", depth - 1, fixed(*loss, 2)),
    };
    let names = found.lens.loss.iter().enumerate().map(depth);
    let plain = names.zip(&found.lens.probability).map(|(name, row)| (name, row.as_slice()));
    // At the last depth there is nothing to tune.
    let depths = found.lens.loss.len() - 1;
    let tuned = |at: usize| {
        let lens = found.tuned_lens.as_ref().filter(|_| at < depths)?;
        Some((format!("tuned: {} nats", fixed(lens.loss[at], 2)), lens.probability[at].as_slice()))
    };
    let rows: Vec<_> = plain.enumerate().flat_map(|(at, row)| [Some(row), tuned(at)]).flatten().collect();
    let rows = rows.into_iter().rev().collect();
    let beside =
        if found.tuned_lens.is_some() { ", by itself and through an affine map trained for it" } else { "" };
    let note = format!(
        "the probability of each target by the final norm and head, read after each layer{beside}; the first of {}, \
         beside the mean loss of all",
        counted(found.sequences, "sequence")
    );
    let lens = Matrix { rows, tokens: shown(&found.targets), of: "target", color };
    let range = Interval { start: 0.0, end: 1.0 };
    lens.picture("logit_lens", &format!("{run}: logit lens"), &note, "probability", range)
}

fn attribution(run: &str, found: &Explanation) -> Picture {
    let tokens = shown(&found.inputs);
    let rows = found.attribution.iter().rev();
    let rows: Vec<_> =
        rows.map(|it| (format!("{} {}", it.part, signed(it.mean, 2)), it.first.as_slice())).collect();
    let largest =
        rows.iter().flat_map(|(_, row)| &row[..tokens.len()]).fold(0.0, |most: f64, it| most.max(it.abs()));
    let note = "what each part adds to the logit of the target, less the mean over the vocabulary; beside its name the \
                mean over all sequences";
    let range = Interval { start: -round_up(largest), end: round_up(largest) };
    let attribution = Matrix { rows, tokens, of: "input", color: diverging };
    attribution.picture("attribution", &format!("{run}: logit attribution"), note, "logit", range)
}

/// Blue above the middle of a scale, red below it.
fn diverging(fraction: f64) -> RGBColor {
    mix(BACKGROUND, if fraction < 0.5 { VERMILION } else { BLUE }, (2.0 * fraction - 1.0).abs().min(1.0))
}

/// A row of values over the positions of a sequence for each of some names.
struct Matrix<'a> {
    /// The rows from the top.
    rows: Vec<(String, &'a [f64])>,
    tokens: &'a [String],
    /// The role of the tokens, as "target".
    of: &'a str,
    color: fn(f64) -> RGBColor,
}

impl Matrix<'_> {
    fn picture(self, name: &'static str, title: &str, note: &str, unit: &str, range: Interval) -> Picture {
        let Self { rows, tokens, of, color } = self;
        let width = WIDTH - 2.0 * MARGIN - LEFT - BAR;
        let axis = TokenAxis::new(tokens, 60.0, width, true);
        let height = (MOST_HEIGHT / rows.len() as f64).min(TALLEST_ROW);
        let all = height * rows.len() as f64;
        let area = Rect { left: MARGIN + LEFT, top: HEADING + 6.0, width, height: all };
        // A bar of a few rows is higher than they are.
        let bar = Rect { left: area.right() + 10.0, width: 12.0, height: all.max(90.0), ..area };
        let below = (area.bottom() + axis.depth()).max(bar.bottom()) + MARGIN;
        let mut picture = Picture::new(name, below, title, note);
        let look = Text::new(10.0).right();
        for (row, (name, _)) in rows.iter().enumerate().step_by(stride_of(height, 12.0)) {
            let place = (area.left - 8.0, area.top + (row as f64 + 0.5) * height);
            picture.text(&look.fit(name, LEFT - 8.0), place, &look);
        }
        let values: Vec<Vec<f64>> = rows.iter().map(|(_, row)| row[..tokens.len()].to_vec()).collect();
        picture.image(area, move |across, down| {
            let row = &values[((down * values.len() as f64) as usize).min(values.len() - 1)];
            let value = row[((across * row.len() as f64) as usize).min(row.len() - 1)];
            color((value - range.start) / range.length())
        });
        picture.frame(area, GRID, 1.0);
        axis.draw(&mut picture, area, of);
        color_bar(&mut picture, bar, color, &Axis::new(unit, range, Scale::Linear));
        picture
    }
}
