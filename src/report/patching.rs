//! `patching`: how much of an answer each activation brings back between a clean and a corrupted sequence.

use super::draw::color::{MUTED, color};
use super::draw::{
    Axis, HEADING, HeatMap, Interval, MARGIN, Picture, Rect, Scale, Text, TokenAxis, WIDTH, WRITTEN_CELL,
    color_bar, round_up, stride_of,
};
use crate::analysis::circuit::Patching;
use crate::data::Vocabulary;
use crate::terminal::{counted, fixed};

/// What stands on the left of all maps, and the colour bar on the right.
const LEFT: f64 = 110.0;
const BAR: f64 = 80.0;
/// Above each map: its name. Below that of heads: their numbers.
const NAME: f64 = 24.0;
const NUMBERS: f64 = 44.0;
const TALLEST_ROW: f64 = 26.0;
const MOST_HEIGHT: f64 = 420.0;
const WIDEST: f64 = 64.0;
const GAP: f64 = 70.0;

/// The stream by depth and position, the heads and the feed-forward layers by layer, on one scale.
pub(super) fn picture(run: &str, found: &Patching, vocabulary: &Vocabulary) -> Picture {
    let Patching { pair, stream, heads, feed_forward, together, .. } = found;
    let text = |token: u32| vocabulary.token(token);
    // What was exchanged is named with what came in its place.
    let names = pair.clean.iter().zip(&pair.corrupted).map(|(&clean, &corrupted)| match clean == corrupted {
        true => text(clean),
        false => format!("{}→{}", text(clean), text(corrupted)),
    });
    let names: Vec<String> = names.collect();
    let width = WIDTH - 2.0 * MARGIN - LEFT - BAR;
    let axis = TokenAxis::new(&names, 90.0, width, true);
    let row = (MOST_HEIGHT / stream.len() as f64).min(TALLEST_ROW);
    let left = MARGIN + LEFT;
    let of_stream = Rect { left, top: HEADING + NAME, width, height: row * stream.len() as f64 };
    let most = heads.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let cell = ((width - GAP - WIDEST) / most as f64).clamp(1.0, WIDEST);
    let of_heads = Rect {
        left,
        top: of_stream.bottom() + axis.depth() + NAME + 12.0,
        width: cell * most as f64,
        height: row * heads.len() as f64,
    };
    let of_layers =
        Rect { left: of_heads.right() + GAP, width: cell.clamp(WRITTEN_CELL, WIDEST), ..of_heads };

    let spans = match together {
        1 => String::new(),
        _ => format!(", {} patched at once", counted(*together, "position")),
    };
    let answers = pair.answers.map(text);
    let note = format!(
        "how much of the difference of both answers' logits one activation of the clean sequence brings back into the \
         corrupted one; it falls from {} to {} in the mean of {}; of the stream one pair{spans}, whose answer is {} \
         instead of {}",
        fixed(found.clean, 2),
        fixed(found.corrupted, 2),
        counted(found.pairs, "pair"),
        answers[0],
        answers[1],
    );
    let bottom = of_heads.bottom() + NUMBERS + MARGIN;
    let mut picture = Picture::new("patching", bottom, &format!("{run}: activation patching"), &note);
    let all = || stream.iter().chain(heads).flatten().chain(feed_forward).copied();
    let lowest = all().fold(0.0, f64::min);
    let range = Interval {
        start: if lowest < -0.05 { -round_up(-lowest) } else { 0.0 },
        end: round_up(all().fold(1.0, f64::max)),
    };
    // The last layer on top, as the stream rises.
    let mut map = |area: Rect, columns: usize, values: Vec<Option<f64>>| {
        let map = HeatMap { positions: [values.len() / columns, columns], bins: [1, 1], values };
        map.draw(&mut picture, area, range, 2, "–");
    };
    let rows = |rows: &[Vec<f64>], most: usize| {
        let row = |row: &Vec<f64>| (0..most).map(|at| row.get(at).copied()).collect::<Vec<_>>();
        rows.iter().rev().flat_map(row).collect()
    };
    map(of_stream, names.len(), rows(stream, names.len()));
    map(of_heads, most, rows(heads, most));
    map(of_layers, 1, feed_forward.iter().rev().map(|&share| Some(share)).collect());

    let depth = |depth: usize| match depth {
        0 => "embedding".to_string(),
        depth => format!("after layer {}", depth - 1),
    };
    let look = Text::new(10.0).color(MUTED);
    let mut name_rows = |area: Rect, count: usize, name: &dyn Fn(usize) -> String| {
        for at in (0..count).step_by(stride_of(row, 13.0)) {
            let place = (area.left - 8.0, area.bottom() - (at as f64 + 0.5) * row);
            picture.text(&name(at), place, &look.right());
        }
    };
    name_rows(of_stream, stream.len(), &depth);
    name_rows(of_heads, heads.len(), &|layer| format!("layer {layer}"));
    for head in (0..most).step_by(stride_of(cell, 16.0)) {
        let place = (of_heads.left + (head as f64 + 0.5) * cell, of_heads.bottom() + 9.0);
        picture.text(&head.to_string(), place, &look.centered());
    }
    picture.text("head", (of_heads.center().0, of_heads.bottom() + 24.0), &Text::new(11.0).centered());
    let above = |area: Rect| (area.left, area.top - 12.0);
    picture.panel_name("stream", "by depth and position", above(of_stream), width);
    picture.panel_name("heads", "", above(of_heads), of_heads.width);
    picture.panel_name("feed-forward", "", above(of_layers), GAP + WIDEST);
    axis.draw(&mut picture, of_stream, "input");
    let bar = Rect {
        left: of_stream.right() + 10.0,
        width: 12.0,
        height: (of_stream.height + axis.depth()).max(90.0),
        ..of_stream
    };
    color_bar(&mut picture, bar, color, &Axis::new("recovered share", range, Scale::Linear));
    picture
}
