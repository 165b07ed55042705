//! `circuit`, `logit_lens` and `attribution`, and with `patching` all that `explain` found, drawn.

use plotters::style::RGBColor;

use super::draw::color::{BACKGROUND, BLUE, GREEN, GRID, INK, MUTED, VERMILION, color, mix, pale};
use super::draw::{
    Axis, HEADING, Interval, MARGIN, Picture, Place, Rect, Scale, Text, TokenAxis, WIDTH, color_bar,
    round_up, stride_of,
};
use super::patching;
use crate::analysis::circuit::{Component, Explanation, Input};
use crate::data::Vocabulary;
use crate::terminal::{counted, fixed, signed};

/// Boxes of the circuit, and the space between layers, through which the paths run.
const BOX: (f64, f64) = (190.0, 58.0);
const BETWEEN: f64 = 84.0;
/// The most boxes of a row, and the space between rows of one layer.
const MOST_ACROSS: usize = 8;
const ROW_GAP: f64 = 8.0;
/// What stands on the left of a row, and on the right of all.
const LEFT: f64 = 190.0;
const BAR: f64 = 80.0;
/// Positions of a sequence that are shown.
const MOST_POSITIONS: usize = 128;
const TALLEST_ROW: f64 = 20.0;
const MOST_HEIGHT: f64 = 900.0;

/// All pictures of what was found in `run`.
pub fn pictures(run: &str, found: &Explanation, vocabulary: &Vocabulary) -> Vec<Picture> {
    let shown = found.next.len().min(MOST_POSITIONS);
    let texts = |tokens: &[u32]| tokens.iter().take(shown).map(|&token| vocabulary.token(token)).collect();
    let (inputs, next): (Vec<String>, Vec<String>) = (texts(&found.inputs), texts(&found.next));

    // The last layer on top, as the stream rises.
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
    let rows = rows.into_iter().rev();
    let beside =
        if found.tuned_lens.is_some() { ", by itself and through an affine map trained for it" } else { "" };
    let note = format!(
        "the probability of each target by the final norm and head, read after each layer{beside}; the first of {}, \
         beside the mean loss of all",
        counted(found.sequences, "sequence")
    );
    let lens = Matrix { rows: rows.collect(), tokens: &next, of: "target", color };
    let range = Interval { start: 0.0, end: 1.0 };
    let lens = lens.picture("logit_lens", &format!("{run}: logit lens"), &note, "probability", range);

    let rows = found.attribution.iter().rev();
    let rows: Vec<_> =
        rows.map(|it| (format!("{} {}", it.part, signed(it.mean, 2)), it.first.as_slice())).collect();
    let largest =
        rows.iter().flat_map(|(_, row)| &row[..shown]).fold(0.0, |most: f64, it| most.max(it.abs()));
    let note = "what each part adds to the logit of the target, less the mean over the vocabulary; beside its name the \
                mean over all sequences";
    let range = Interval { start: -round_up(largest), end: round_up(largest) };
    let attribution = Matrix { rows, tokens: &inputs, of: "input", color: diverging };
    let title = format!("{run}: logit attribution");
    let attribution = attribution.picture("attribution", &title, note, "logit", range);
    let patching = found.patching.as_ref().map(|found| patching::picture(run, found, vocabulary));
    let circuit = found.no_circuit.is_none().then(|| circuit(run, found));
    circuit.into_iter().chain([lens, attribution]).chain(patching).collect()
}

/// Blue above the middle of a scale, red below it.
fn diverging(fraction: f64) -> RGBColor {
    mix(BACKGROUND, if fraction < 0.5 { VERMILION } else { BLUE }, (2.0 * fraction - 1.0).abs().min(1.0))
}

/// A row of values over the positions of a sequence for each of some names.
struct Matrix<'a> {
    /// From the top.
    rows: Vec<(String, &'a [f64])>,
    tokens: &'a [String],
    /// What the tokens are.
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

/// The parts of the circuit, a row for each layer that has some, one more for its cross-attention, and the paths between its heads.
fn circuit(run: &str, found: &Explanation) -> Picture {
    // The cross-attention reads what the heads of its layer write, and the feed-forward layer stands behind it.
    let has_cross = |layer: usize| found.components.iter().any(|part| part.cross && part.layer == layer);
    let level = |part: &Component| (part.layer, part.cross || (part.feed_forward && has_cross(part.layer)));
    let mut levels: Vec<(usize, bool)> = found.components.iter().map(level).collect();
    levels.sort_unstable();
    levels.dedup();
    let count = |at: (usize, bool)| found.components.iter().filter(|part| level(part) == at).count();
    // A level takes as many rows as its boxes need, each from the top of the one below.
    let rows: Vec<usize> = levels.iter().map(|&at| count(at).div_ceil(MOST_ACROSS)).collect();
    let tall = |level: usize| rows[level] as f64 * (BOX.1 + ROW_GAP) - ROW_GAP;
    let top = HEADING + 40.0;
    let height =
        top + 24.0 + (0..levels.len()).map(|level| tall(level) + BETWEEN).sum::<f64>() - BETWEEN + MARGIN;
    let note = format!(
        "{} of {} recover {:.0} % of the gain over {}; each shows the change of the loss when it alone is mean-ablated; \
         lines are connections, the thicker the more the loss changes when the path is ablated",
        found.components.len(),
        counted(found.parts(), "component"),
        found.gain_kept * 100.0,
        found.baseline_of.name()
    );
    let mut picture = Picture::new("circuit", height, &format!("{run}: circuit"), &note);
    let gain = found.baseline - found.loss;
    let row = |at: (usize, bool)| {
        let mut parts: Vec<&Component> = found.components.iter().filter(|part| level(part) == at).collect();
        // The feed-forward layer stands behind its heads.
        parts.sort_by_key(|part| (part.feed_forward, part.head));
        parts
    };
    let most = levels.iter().map(|&at| count(at)).max().unwrap_or(1).min(MOST_ACROSS) as f64;
    let across = (WIDTH - 2.0 * MARGIN - 60.0) / most;
    let width = BOX.0.min(across - 12.0);
    let area = |at: (usize, bool), place: usize| {
        let level = levels.iter().position(|&it| it == at).unwrap_or(0);
        let (row, column) = (place / MOST_ACROSS, place % MOST_ACROSS);
        let left = MARGIN + 60.0 + (column as f64 + 0.5) * across - width / 2.0;
        let above: f64 = (level + 1..levels.len()).map(|level| tall(level) + BETWEEN).sum();
        Rect { left, top: top + 24.0 + above + row as f64 * (BOX.1 + ROW_GAP), width, height: BOX.1 }
    };
    let of_head = |[layer, head]: [usize; 2], cross: bool| {
        let place = row((layer, cross)).iter().position(|part| part.head == Some(head));
        area((layer, cross), place.unwrap_or(0))
    };
    let inputs =
        [(Input::Query, "queries", BLUE), (Input::Key, "keys", VERMILION), (Input::Value, "values", GREEN)];
    for (place, (input, _, color)) in inputs.into_iter().enumerate() {
        for edge in found.edges.iter().filter(|edge| edge.input == input) {
            let (from, to) = (of_head(edge.from, edge.from_cross), of_head(edge.to, edge.to_cross));
            let beside = (place as f64 - 1.0) * width / 4.0;
            let start: Place = (from.center().0 + beside, from.top);
            let end: Place = (to.center().0 + beside, to.bottom());
            let share = ((edge.path_ablated_loss - found.loss).abs() / gain).clamp(0.0, 1.0);
            picture.line(&[start, end], color, 1.0 + 4.0 * share);
            picture.dot(end, 3.0 + 2.0 * share, color);
        }
    }
    for &at in &levels {
        for (place, part) in row(at).into_iter().enumerate() {
            let area = area(at, place);
            let share = ((part.mean_ablated_loss - found.loss).abs() / gain).clamp(0.0, 1.0);
            // What makes the model worse has the other colour.
            let hue = if part.mean_ablated_loss < found.loss { VERMILION } else { BLUE };
            picture.rect(area, mix(BACKGROUND, pale(hue), 0.2 + 0.8 * share));
            picture.frame(area, MUTED, 1.0);
            let of = if part.cross { "cross " } else { "" };
            let name = part.head.map_or("feed-forward".to_string(), |head| format!("{of}head {head}"));
            let kinds: Vec<String> = part.kinds.iter().map(|kind| kind.name().replace('_', " ")).collect();
            let looks = [Text::new(13.0).bold(), Text::new(10.5), Text::new(10.5).color(INK)];
            // The note says what it is.
            let rise = signed(part.mean_ablated_loss - found.loss, 2);
            let rise = [format!("{rise} nats mean-ablated"), format!("{rise} nats")];
            let rise = rise.into_iter().find(|rise| looks[2].width(rise) <= width - 8.0).unwrap_or_default();
            for (line, (text, look)) in [name, kinds.join(", "), rise].iter().zip(looks).enumerate() {
                let place = (area.center().0, area.top + 13.0 + 16.0 * line as f64);
                let look = look.shrunk(text, width - 8.0, 8.0);
                picture.text(&look.fit(text, width - 8.0), place, &look.centered());
            }
        }
        let place = (MARGIN, area(at, 0).center().1);
        picture.text(&format!("layer {}", at.0), place, &Text::new(12.0).color(MUTED));
    }
    let mut left = MARGIN;
    for (_, name, color) in inputs {
        let look = Text::new(12.0);
        picture.line(&[(left, top - 16.0), (left + 22.0, top - 16.0)], color, 3.0);
        picture.text(&format!("by {name}"), (left + 28.0, top - 16.0), &look);
        left += 28.0 + look.width(&format!("by {name}")) + 20.0;
    }
    picture
}

#[cfg(test)]
mod tests;
