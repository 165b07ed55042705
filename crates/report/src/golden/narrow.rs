//! Golden tests of all pictures in the widths of PDFs: no text is cut, covered or too small.

use super::curves::{by_position, half_clipped};
use super::heads::{INDUCTION, KINDS, scores};
use super::{Pixels, identity, likely, loss, reading, target};
use crate::circuit::{Circuit, Component, ComponentId, ComponentInput, Edge};
use crate::comparison::{ComparedRun, Comparison, Setting, Validation, XAxisQuantity};
use crate::draw::color::color;
use crate::draw::{ComparedToken, Interval, Outcome, Picture, PictureFormat, Style, raster};
use crate::lengths::LengthPanel;
use crate::page::{Heads, Page};
use crate::patching::Patching;
use crate::scaling::Efficiency;
use crate::scores::ScoredStep;
use crate::token_matrix::TokenMatrix;
use crate::{comparison, formation, generated, gradients, lengths, positions, scaling, study};

/// Returns the width for which a PDF of this many points is drawn.
fn logical(points: u32) -> f64 {
    Style { format: PictureFormat::Pdf, width: points, ..Style::default() }.logical_width()
}

fn words(count: usize) -> Vec<String> {
    let words = ["the", "attention", "12", "␣looks", "7", "of", "transformers"];
    (0..count).map(|i| words[i % words.len()].to_string()).collect()
}

/// Returns the scores of three layers with four heads.
fn head_values(at: usize) -> Vec<Vec<crate::scores::HeadScores>> {
    let value = |head: usize| Some(((head * 7 + at) % 11) as f64 / 11.0);
    let layers: Vec<Vec<Option<f64>>> =
        (0..3).map(|layer| (0..4).map(|head| value(layer * 4 + head)).collect()).collect();
    let layers: Vec<&[Option<f64>]> = layers.iter().map(Vec::as_slice).collect();
    scores(&layers, INDUCTION)
}

fn pages(width: f64) -> Vec<Picture> {
    let time = 31;
    let mut decoder = reading(time, vec![vec![identity(time); 4]; 3]);
    decoder.inputs = words(time);
    decoder.targets = words(time).iter().enumerate().map(|(i, word)| Some(target(word, i > 9))).collect();
    decoder.most_likely = words(time + 1)[1..].iter().map(|word| vec![likely(word)]).collect();
    let mut translator = reading(5, vec![vec![identity(5); 8]; 2]);
    translator.source = Some(words(7));
    translator.maps.cross = vec![vec![vec![1.0 / 7.0; 35]; 8]; 2];
    translator.maps.encoder = vec![vec![identity(7); 8]; 2];
    let heads = || Heads {
        scores: head_values(3),
        kinds: KINDS.to_vec(),
        chance: head_values(1).swap_remove(0),
        measured_on: "128 validation sequences".to_string(),
        notes: vec!["induction 0.93".to_string(); 3],
        ..Heads::default()
    };
    let page = |reading| Page::new("repeat-decoder".to_string(), (vec![reading], 0), heads());
    [page(decoder), page(translator)].iter().flat_map(|page| page.pictures(width)).collect()
}

fn curves(width: f64) -> Vec<Picture> {
    let steps: Vec<ScoredStep> =
        (0..9).map(|at| ScoredStep { step: at * 60, heads: head_values(at) }).collect();
    let token = |(i, word): (usize, &String)| ComparedToken {
        truth: Some(word.clone()),
        predicted: (i > 7).then(|| word.clone()),
        outcome: if i > 7 { Outcome::Hit } else { Outcome::Unknown },
    };
    let tokens = |words: Vec<String>| words.iter().enumerate().map(token).collect();
    let numbers = (0..19).map(|i| (i * 5 % 13).to_string()).collect();
    let panel = |name: &str| LengthPanel {
        name: name.to_string(),
        trained: 32,
        curves: vec![
            ("non-overlapping windows".to_string(), vec![(32, 0.1), (64, 0.4), (128, 0.9)]),
            ("sliding windows".to_string(), vec![(32, 0.1), (64, 0.2), (128, 0.3)]),
        ],
    };
    let panels = ["copy", "recall", "sort", "reverse"].map(panel);
    let efficiency = [2, 4, 8, 16, 32, 64].map(|workers| Efficiency {
        workers,
        weak_scaling: 0.9,
        strong_scaling: Some(1.0 / workers as f64),
    });
    let floor: Vec<f64> = by_position(64).iter().map(|loss| loss.unwrap_or(0.0) - 0.2).collect();
    [
        Some(loss(Some(0.5)).picture(width)),
        formation::picture(&loss(Some(0.5)), (&KINDS, &head_values(2)[0]), &steps, width),
        gradients::picture("repeat-decoder", &half_clipped(1.0), width),
        positions::picture("repeat-decoder", &by_position(64), &floor, width),
        generated::picture("repeat-decoder", "validation sequence 0", tokens(words(40)), width),
        generated::picture("repeat-decoder", "validation sequence 0", tokens(numbers), width),
        Some(lengths::picture("lengths", "loss by length", "a note", &panels, (true, width))),
        Some(scaling::picture("repeat", &efficiency, "10 Gb/s; 50 µs", width)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn circuits(width: f64) -> Vec<Picture> {
    let component = |layer: usize, id: ComponentId| Component {
        layer,
        id,
        kinds: vec!["duplicate token".to_string(), "induction".to_string()],
        change: 1.25,
        is_harmful: layer == 1,
    };
    let heads = |layer: usize| (0..5).map(move |head| component(layer, ComponentId::CrossHead(head)));
    let components =
        (0..3).flat_map(|layer| heads(layer).chain([component(layer, ComponentId::FeedForward)]));
    let edge = |(at, input): (usize, ComponentInput)| Edge {
        from: (0, ComponentId::CrossHead(at)),
        to: (2, ComponentId::CrossHead(at + 1)),
        input,
        change: 0.5,
    };
    let inputs =
        [ComponentInput::Query, ComponentInput::Key, ComponentInput::Value, ComponentInput::FeedForward];
    let circuit = Circuit {
        components: components.collect(),
        edges: inputs.into_iter().enumerate().map(edge).collect(),
        model_components: 30,
        gain: 2.0,
        faithfulness: 0.99,
        quantity: "loss",
        unit: "nats",
        ablated: "mean-ablated",
        baseline: "the unigram baseline".to_string(),
        ..Circuit::default()
    };
    let patching = Patching {
        pairs: 64,
        clean: 9.1,
        corrupted: -3.2,
        heads: vec![vec![0.25; 4]; 3],
        feed_forward: vec![0.5; 3],
        stream: vec![vec![0.75; 31]; 4],
        together: 1,
        tokens: words(31),
        answers: ["attention", "transformers"].map(str::to_string),
    };
    let values = vec![0.5; 31];
    let names =
        ["embedding: 4.11 nats", "after layer 10, tuned: 2.25 nats", "output head: cross head 11 −0.25"];
    let rows = names.map(|name| (name.to_string(), values.as_slice())).to_vec();
    let lens = TokenMatrix { rows, tokens: &words(31), role: "target", color, framed: &[] };
    let scale = ("probability", Interval { start: 0.0, end: 1.0 });
    vec![
        circuit.picture("repeat-decoder", width),
        patching.picture("repeat-decoder", width),
        lens.picture(("logit_lens", width), "repeat-decoder: logit lens", "the probability", scale),
    ]
}

fn comparisons(width: f64) -> Vec<Picture> {
    let setting = |name: &str| Setting {
        name: format!("model.position = {name}"),
        mean: Some(1.5),
        interval: Some([1.25, 1.75]),
    };
    let run = |setting: usize| ComparedRun {
        name: format!("runs/repeat-decoder_{setting}"),
        setting,
        result: Some(1.5 + 0.1 * setting as f64),
        floor: None,
        curve: (1..9)
            .map(|step| Validation { step: step * 50, tokens: 1, seconds: 1.0, loss: 3.0 / step as f64 })
            .collect(),
        heads: head_values(setting),
        chance: head_values(setting).swap_remove(0),
    };
    let compared = Comparison {
        settings: ["rotary", "random_sinusoidal", "learned"].map(setting).to_vec(),
        runs: (0..3).map(run).collect(),
        is_above_floor: false,
    };
    let compared = comparison::pictures(&compared, XAxisQuantity::Steps, &KINDS, width);
    compared.into_iter().chain(study::pictures(&study::tests::study(Some(0.5)), width)).collect()
}

#[test]
fn text_of_narrow_pictures_is_legible_and_apart() {
    let mut problems = Vec::new();
    for points in [Style::MIN_WIDTH, 246, 486, 675] {
        let width = logical(points);
        let all = [pages(width), curves(width), circuits(width), comparisons(width)];
        for mut picture in all.into_iter().flatten() {
            for has_title in [true, false] {
                if !has_title {
                    picture.remove_title();
                }
                let mut found = picture.text_problems(f64::from(points) / width);
                if !raster(&picture, 1).unwrap().has_clear_border() {
                    found.push("is cut at its edge".to_string());
                }
                let name = format!("{} at {points} points, title {has_title}", picture.name);
                problems.extend(found.into_iter().map(|problem| format!("{name}: {problem}")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn narrow_pictures_are_drawn_narrower() {
    assert_eq!([216, 246, 486, 675, 2_000].map(logical), [288.0, 328.0, 648.0, 900.0, 900.0]);
    assert_eq!(Style { width: 246, ..Style::default() }.logical_width(), 900.0, "pixels have no points");
    let scaled = loss(Some(0.5)).picture(900.0).text_problems(246.0 / 900.0);
    assert!(
        scaled.iter().any(|problem| problem.contains("points")),
        "a wide picture has small text: {scaled:?}"
    );
    let picture = loss(Some(0.5)).picture(logical(246));
    let pdf = Style { format: PictureFormat::Pdf, width: 246, ..Style::default() };
    let bytes = picture.encode(&pdf).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains("/MediaBox [0 0 246 "));
}
