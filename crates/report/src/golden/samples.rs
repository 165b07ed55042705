//! One sample or more of each picture of this crate, from fixed data with the labels of real runs.

use super::curves::{by_position, half_clipped};
use super::heads::{INDUCTION, KINDS, scores};
use super::{likely, loss, reading, target};
use crate::circuit::{Circuit, Component, ComponentId, ComponentInput, Edge};
use crate::comparison::{ComparedRun, Comparison, Setting, Validation, XAxisQuantity};
use crate::draw::color::{color, diverging};
use crate::draw::{ComparedToken, Interval, Outcome, Picture};
use crate::fourier::FourierCurves;
use crate::lengths::LengthPanel;
use crate::page::{Heads, Page};
use crate::patching::Patching;
use crate::phases::PhaseCurves;
use crate::reading::Reading;
use crate::scaling::Efficiency;
use crate::scores::{HeadScores, ScoredStep};
use crate::series::Point;
use crate::study::RatePoint;
use crate::token_matrix::TokenMatrix;
use crate::{comparison, formation, generated, gradients, lengths, positions, scaling, study};

const LENGTHS_NOTE: &str = "non-overlapping windows: every target counts; sliding windows: only the last eighth of each \
                            window counts, with at least 7/8 of the length as context";

/// A picture, with a name that tells it apart from other pictures of its kind.
pub(super) type NamedPicture = (&'static str, Picture);

/// Returns a sample of each kind of picture, of this width.
pub(super) fn samples(width: f64) -> Vec<NamedPicture> {
    [pages(width), curves(width), circuits(width), comparisons(width)].into_iter().flatten().collect()
}

pub(super) fn words(count: usize) -> Vec<String> {
    let words = ["the", "attention", "12", "␣looks", "7", "of", "transformers"];
    (0..count).map(|i| words[i % words.len()].to_string()).collect()
}

/// Returns the scores of `layers` layers with `heads` heads.
pub(super) fn head_values([layers, heads]: [usize; 2], at: usize) -> Vec<Vec<HeadScores>> {
    let value = |head: usize| Some(((head * 7 + at) % 11) as f64 / 11.0);
    let layers: Vec<Vec<Option<f64>>> =
        (0..layers).map(|layer| (0..heads).map(|head| value(layer * heads + head)).collect()).collect();
    let layers: Vec<&[Option<f64>]> = layers.iter().map(Vec::as_slice).collect();
    scores(&layers, INDUCTION)
}

/// Returns the maps of `layers` layers with `heads` heads; each head prefers keys at its own distance.
pub(super) fn maps([layers, heads]: [usize; 2], sizes: [usize; 2], is_causal: bool) -> Vec<Vec<Vec<f32>>> {
    let head = |number: usize| preferring(number * 2, sizes, is_causal);
    (0..layers).map(|layer| (0..heads).map(|i| head(layer * heads + i)).collect()).collect()
}

/// Returns a map whose weights fall with the distance of the key from the key `before` positions before the query.
fn preferring(before: usize, [queries, keys]: [usize; 2], is_causal: bool) -> Vec<f32> {
    let row = |query: usize| {
        let weight = move |key: usize| match is_causal && key > query {
            true => 0.0,
            false => 1.0 / (1 + (key + before).abs_diff(query).pow(2)) as f32,
        };
        let sum: f32 = (0..keys).map(weight).sum();
        (0..keys).map(move |key| weight(key) / sum)
    };
    (0..queries).flat_map(row).collect()
}

/// Returns the pictures of a page that shows this sequence.
pub(super) fn page(run: &str, reading: Reading, width: f64) -> Vec<Picture> {
    let heads = Heads {
        scores: head_values([3, 4], 3),
        kinds: KINDS.to_vec(),
        chance: head_values([3, 4], 1).swap_remove(0),
        measured_on: "128 validation sequences".to_string(),
        notes: vec!["induction 0.93".to_string(); 3],
        ..Heads::default()
    };
    Page::new(run.to_string(), (vec![reading], 0), heads).pictures(width)
}

fn pages(width: f64) -> Vec<NamedPicture> {
    let time = 31;
    let mut decoder = reading(time, maps([3, 4], [time; 2], true));
    decoder.inputs = words(time);
    decoder.targets = words(time).iter().enumerate().map(|(i, word)| Some(target(word, i > 9))).collect();
    decoder.most_likely = words(time + 1)[1..].iter().map(|word| vec![likely(word)]).collect();
    let mut translator = reading(5, maps([2, 8], [5; 2], true));
    translator.source = Some(words(7));
    translator.maps.cross = maps([2, 8], [5, 7], false);
    translator.maps.encoder = maps([2, 8], [7; 2], false);
    let pages = [("decoder", "repeat-decoder", decoder), ("translator", "reverse-translator", translator)];
    let named = |(name, run, reading)| page(run, reading, width).into_iter().map(move |it| (name, it));
    pages.into_iter().flat_map(named).collect()
}

fn curves(width: f64) -> Vec<NamedPicture> {
    let steps: Vec<ScoredStep> =
        (0..9).map(|at| ScoredStep { step: at * 60, heads: head_values([3, 4], at) }).collect();
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
    let generated = |tokens| generated::picture("repeat-decoder", "validation sequence 0", tokens, width);
    let formed = formation::picture(&loss(Some(0.5)), (&KINDS, &head_values([3, 4], 2)[0]), &steps, width);
    let samples = [
        ("run", Some(loss(Some(0.5)).picture(width))),
        ("run", formed),
        ("run", phases(width)),
        ("run", Some(grokked(width))),
        ("run", gradients::picture("repeat-decoder", &half_clipped(1.0), width)),
        ("run", positions::picture("repeat-decoder", &by_position(64), &floor, width)),
        ("words", generated(tokens(words(40)))),
        ("numbers", generated(tokens(numbers))),
        ("run", Some(lengths::picture("lengths", "loss by length", LENGTHS_NOTE, &panels, (true, width)))),
        ("run", Some(scaling::picture("repeat", &efficiency, "10 Gb/s; 50 µs", width))),
        ("run", rate_sweep(width)),
    ];
    samples.into_iter().filter_map(|(name, picture)| Some((name, picture?))).collect()
}

/// Draws two phases: the loss falls at step 120 with an induction head, and a previous-token head forms at step 60.
fn phases(width: f64) -> Option<Picture> {
    let rise = |step: u64, at: f64| 1.0 / (1.0 + ((at - step as f64) / 4.0).exp());
    let points = |steps: &mut dyn Iterator<Item = u64>, value: &dyn Fn(u64) -> f64| -> Vec<Point> {
        steps.map(|step| Point { step, value: value(step) }).collect()
    };
    let curves = PhaseCurves {
        run: "repeat-decoder".to_string(),
        steps: 400,
        training: points(&mut (1..=400), &|step| {
            4.0 - 2.2 * rise(step, 120.0) + 0.05 * (step as f64 * 2.4).sin()
        }),
        validation: points(&mut (0..=400).step_by(100), &|step| 4.0 - 2.2 * rise(step, 120.0)),
        determined: points(&mut (100..=140), &|step| 3.9 - 3.4 * rise(step, 120.0)),
        undetermined: points(&mut (100..=140), &|_| 4.1),
        scores: vec![
            (
                "head 1.3, induction".to_string(),
                points(&mut (0..=400), &|step| 0.05 + 0.8 * rise(step, 116.0)),
            ),
            (
                "head 0.0, previous token".to_string(),
                points(&mut (0..=400), &|step| 0.1 + 0.7 * rise(step, 60.0)),
            ),
        ],
        bands: vec![[52, 68], [111, 129]],
        note: "2 phases; the bands are from a tenth to nine tenths of the change".to_string(),
    };
    curves.picture(width)
}

/// Draws a run that generalises at step 700, long after it has memorised, with three frequencies.
fn grokked(width: f64) -> Picture {
    let fall = |step: u64, at: f64, width: f64| 1.0 / (1.0 + ((step as f64 - at) / width).exp());
    let points = |value: &dyn Fn(u64) -> f64| -> Vec<Point> {
        (0..=1000).step_by(20).map(|step| Point { step, value: value(step) }).collect()
    };
    let share = |frequency: usize| if [4, 17, 25].contains(&frequency) { 0.3 } else { 0.004 };
    let curves = FourierCurves {
        run: "grokking".to_string(),
        training: points(&|step| 4.7 * fall(step, 60.0, 12.0)),
        validation: points(&|step| {
            4.7 + 4.0 * (1.0 - fall(step, 80.0, 20.0)) - 8.7 * (1.0 - fall(step, 700.0, 25.0))
        }),
        restricted: points(&|step| 4.7 * fall(step, 600.0, 60.0)),
        excluded: points(&|step| 4.7 * fall(step, 60.0, 12.0) + 5.0 * (1.0 - fall(step, 450.0, 90.0))),
        stages: [("memorisation", [0, 100]), ("circuit formation", [100, 650]), ("cleanup", [650, 760])]
            .map(|(name, steps)| (name.to_string(), steps))
            .into(),
        embedding: (1..=28).map(|frequency| 0.9 * share(frequency)).collect(),
        logits: (1..=28).map(share).collect(),
        note: "key frequencies 4, 17 and 25".to_string(),
    };
    curves.picture(width)
}

/// Draws a sweep whose loss is lowest at the 40th of 50 rates, and explodes after it.
fn rate_sweep(width: f64) -> Option<Picture> {
    let mut rate = 1e-6;
    let point = |i: i32| {
        let smoothed =
            2.0 + 0.001 * f64::from((i - 40).pow(2)) + if i > 44 { f64::from(i - 44) } else { 0.0 };
        let noise = 0.1 * f64::from(i * 7 % 5 - 2);
        rate *= 1.3;
        RatePoint { rate, loss: smoothed + noise, smoothed }
    };
    let points: Vec<RatePoint> = (0..50).map(point).collect();
    let marks = Some([points[40].rate, points[31].rate]);
    study::rate_finder("repeat", &points, marks, ("the loss is lowest at 4.7e-2", width))
}

fn circuits(width: f64) -> Vec<NamedPicture> {
    let patching = Patching {
        pairs: 64,
        clean: 9.1,
        corrupted: -3.2,
        heads: (0..3).map(|layer| (0..4).map(|head| share(layer * 4 + head)).collect()).collect(),
        feed_forward: (0..3).map(share).collect(),
        stream: (0..4).map(|depth| (0..31).map(|at| share(depth * 5 + at)).collect()).collect(),
        together: 1,
        tokens: words(31),
        answers: ["attention", "transformers"].map(str::to_string),
    };
    let values = [0, 4, 9].map(|row| (0..31).map(|at| share(row + at)).collect::<Vec<f64>>());
    let signed = values.each_ref().map(|row| row.iter().map(|value| 6.0 * value - 2.0).collect::<Vec<f64>>());
    let named = |names: [&str; 3], rows| names.map(str::to_string).into_iter().zip(rows).collect();
    let depths = ["embedding: 4.11 nats", "after layer 10, tuned: 2.25 nats", "after layer 11: 2.19 nats"];
    let parts = ["output head: cross head 11 −0.25", "layer 0: head 3 +1.75", "embedding +0.50"];
    let tokens = &words(31);
    let lens = TokenMatrix {
        rows: named(depths, values.each_ref().map(Vec::as_slice)),
        tokens,
        role: "target",
        color,
        framed: &[],
    };
    let attribution = TokenMatrix {
        rows: named(parts, signed.each_ref().map(Vec::as_slice)),
        tokens,
        role: "input",
        color: diverging,
        framed: &[4, 5, 17],
    };
    let probability = ("probability", Interval { start: 0.0, end: 1.0 });
    let logit = ("logit", Interval { start: -2.0, end: 2.0 });
    let lens = lens.picture(
        ("logit_lens", width),
        "repeat-decoder: logit lens",
        "probability of each target after each layer",
        probability,
    );
    let attribution = attribution.picture(
        ("attribution", width),
        "repeat-decoder: logit attribution",
        "contribution of each component; + and − mark larger contributions",
        logit,
    );
    let circuit = circuit().picture("repeat-decoder", width);
    [circuit, patching.picture("repeat-decoder", width), lens, attribution].map(|it| ("run", it)).into()
}

/// Returns a fraction that varies with `at`.
fn share(at: usize) -> f64 {
    (at * 7 % 11) as f64 / 10.0
}

fn circuit() -> Circuit {
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
    Circuit {
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
    }
}

fn comparisons(width: f64) -> Vec<NamedPicture> {
    let names = ["rotary", "random_sinusoidal", "learned"].map(|name| format!("model.position = {name}"));
    let compared = comparison::pictures(&compared(&names), XAxisQuantity::Steps, &KINDS, width);
    let study = study::pictures(&study::tests::study(Some(0.5)), width);
    let compared = compared.into_iter().map(|picture| ("compared", picture));
    compared.chain(study.into_iter().map(|picture| ("study", picture))).collect()
}

/// Returns a comparison of one run per setting.
pub(super) fn compared(settings: &[String]) -> Comparison {
    let mean = |setting: usize| 1.5 + 0.1 * setting as f64;
    let setting = |(i, name): (usize, &String)| Setting {
        name: name.clone(),
        mean: Some(mean(i)),
        interval: Some([mean(i) - 0.25, mean(i) + 0.25]),
        excluded: None,
    };
    let run = |setting: usize| ComparedRun {
        name: format!("runs/repeat-decoder_{setting}"),
        setting,
        result: Some(mean(setting)),
        floor: None,
        curve: (1..9)
            .map(|step| Validation {
                step: step * 50,
                tokens: 1,
                seconds: 1.0,
                loss: 0.1 * setting as f64 + 3.0 / step as f64,
            })
            .collect(),
        heads: head_values([3, 4], setting),
        chance: head_values([3, 4], setting).swap_remove(0),
    };
    Comparison {
        settings: settings.iter().enumerate().map(setting).collect(),
        runs: (0..settings.len()).map(run).collect(),
        is_above_floor: false,
    }
}
