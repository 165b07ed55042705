//! Samples that are hard to draw: signed weights, other scripts, long tokens, many heads and runs, missing values.

use super::curves::{by_position, half_clipped};
use super::heads::{ABLATION, INDUCTION, KINDS, scores};
use super::predictions::{known_from, predictions};
use super::samples::{NamedPicture, compared, head_values, maps, page};
use super::{likely, loss, reading, target};
use crate::comparison::{self, XAxisQuantity};
use crate::draw::WIDTH;
use crate::loss::LossCurve;
use crate::patching::Patching;
use crate::reading::Reading;
use crate::{gradients, head_scores, positions};

/// Words in Greek, Cyrillic, Arabic, Hebrew, Armenian and Georgian, and with combining marks; the embedded font has all
/// of them.
const SCRIPTS: [&str; 8] = ["μάθηση", "внимание", "انتباه", "שלום", "բարև", "ყურადღება", "ẹ̀kọ́", "naïve"];
const LONG: [&str; 7] =
    ["internationalisation", "\u{202e}abc", "   ", "\n\n", "<script>", "", "counterrevolutionary"];

/// Returns the samples, of the default width.
pub(super) fn hard_samples() -> Vec<NamedPicture> {
    let long = "a run with a name that is too long for one line ".repeat(3).trim_end().to_string();
    let pages = [
        ("signed", page("differential-decoder", signed(14), WIDTH)),
        ("scripts", page("πολύγλωσσο", of_words(&SCRIPTS, 16), WIDTH)),
        ("long", page(&long, of_words(&LONG, 24), WIDTH)),
        ("binned", page("byte-decoder", reading(600, maps([2, 2], [600; 2], true)), WIDTH)),
    ];
    let pages = pages.into_iter().flat_map(|(name, page)| page.into_iter().map(move |it| (name, it)));
    let is_hard = |(_, picture): &NamedPicture| ["attention", "prediction"].contains(&picture.name);
    let mut samples: Vec<NamedPicture> = pages.filter(is_hard).collect();
    samples.extend(of_many_heads());
    samples.extend(losses());
    let settings: Vec<String> =
        (0..12).map(|i| format!("model.heads = {}, training.seed = {i}", i + 1)).collect();
    let compared = comparison::pictures(&compared(&settings), XAxisQuantity::Steps, &KINDS, WIDTH);
    samples.extend(compared.into_iter().take(1).map(|losses| ("many", losses)));
    let truth = ["3", "5", "7", "2", "11", "7", "5", "3"];
    let guess = ["1", "5", "7", "2", "10", "7", "5", "9"];
    samples.push(("numbers", predictions(&truth, &guess, known_from(2))));
    samples.push(("negative", negative_patching().picture("repeat-decoder", WIDTH)));
    samples
}

/// Returns a reading of signed weights, as of differential attention.
fn signed(time: usize) -> Reading {
    let mut reading = reading(time, maps([2, 4], [time; 2], true));
    let others = maps([2, 4], [time; 2], true);
    for (layer, others) in reading.maps.attention.iter_mut().zip(others) {
        for (head, other) in layer.iter_mut().zip(others.iter().cycle().skip(1)) {
            head.iter_mut().zip(other).for_each(|(weight, other)| *weight -= 0.6 * other);
        }
    }
    reading
}

/// Returns a reading of `time` of these words, in which some predictions are wrong.
fn of_words(words: &[&str], time: usize) -> Reading {
    let word = |i: usize| words[i % words.len()];
    let mut reading = reading(time, maps([2, 2], [time; 2], true));
    reading.inputs = (0..time).map(|i| word(i).to_string()).collect();
    reading.targets = (1..=time).map(|i| Some(target(word(i), i % 4 > 0))).collect();
    reading.most_likely =
        (1..=time).map(|i| vec![likely(word(if i % 3 == 0 { i + 2 } else { i }))]).collect();
    reading
}

fn of_many_heads() -> Vec<NamedPicture> {
    let chance = &head_values([12, 12], 2)[0];
    let values = |layer: usize| [0, 1, 2].map(|head| Some((layer * 3 + head) as f64 * 0.2 - 0.7));
    let layers = [values(0), values(1), [None, Some(f64::NAN), Some(1.1)]];
    let signed = scores(&layers.each_ref().map(|layer| &layer[..]), ABLATION);
    let measured = "128 validation sequences";
    let pictures = [
        (
            "many",
            head_scores::picture("gpt2", measured, &[INDUCTION], (&head_values([12, 12], 3), chance), WIDTH),
        ),
        ("signed", head_scores::picture("golden", measured, &[ABLATION], (&signed, &[]), WIDTH)),
    ];
    pictures.into_iter().filter_map(|(name, picture)| Some((name, picture?))).collect()
}

fn losses() -> Vec<NamedPicture> {
    let diverged = LossCurve {
        diverged: Some(560),
        weights: Some("the weights of step 500".to_string()),
        validation: Vec::new(),
        ..loss(None)
    };
    let mut gaps = by_position(11);
    gaps[4] = None;
    gaps[7] = Some(f64::INFINITY);
    let optional = [
        ("gaps", positions::picture("golden", &gaps, &[], WIDTH)),
        ("unclipped", gradients::picture("golden", &half_clipped(0.0), WIDTH)),
    ];
    let optional = optional.into_iter().filter_map(|(name, picture)| Some((name, picture?)));
    let empty = LossCurve { run: "golden".to_string(), diverged: Some(3), ..LossCurve::default() };
    [("diverged", diverged.picture(WIDTH)), ("empty", empty.picture(WIDTH))]
        .into_iter()
        .chain(optional)
        .collect()
}

fn negative_patching() -> Patching {
    let values = |count: usize| (0..count).map(|i| (i % 5) as f64 * 0.4 - 0.6).collect::<Vec<f64>>();
    Patching {
        pairs: 1,
        clean: 2.5,
        corrupted: -1.25,
        heads: vec![values(12); 6],
        feed_forward: values(6),
        stream: vec![values(8); 7],
        together: 2,
        tokens: ["The", "dog→cat", "barks", "loudly", ",", "so", "barks", "it"].map(str::to_string).to_vec(),
        answers: ["dog", "cat"].map(str::to_string),
    }
}
