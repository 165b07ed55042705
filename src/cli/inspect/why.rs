//! `inspect --why`: the parts of the score with which a head attends from one token to another.

use burn::tensor::backend::AutodiffBackend;
use serde_json::json;

use crate::analysis::Sample;
use crate::analysis::circuit::{Interventions, ScoreParts, explainable, run};
use crate::backend::Job;
use crate::cli::input;
use crate::cli::interventions::InterventionArgs;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::evaluation::DeviceBatch;
use crate::hooks::NoHooks;
use crate::numbers::{fixed, signed};
use crate::terminal::{print_json_line, say};
use crate::training::RunFolder;

/// The number of parts and pairs that the text lists.
const MAX_LISTED: usize = 8;

/// The query and the key of a head, such as `1.3:7:4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    head: [usize; 2],
    /// The positions of the query and the key; `None` for the last one.
    pair: [Option<usize>; 2],
}

/// Parses `LAYER.HEAD:QUERY:KEY`. A position is a number, or `last`.
pub fn parse(text: &str) -> Result<Asked, String> {
    let numbers = || {
        let mut parts = text.split(':');
        let (layer, head) = parts.next()?.split_once('.')?;
        let number = |text: &str| text.trim().parse().ok();
        let position = |text: &str| match text.trim() {
            "last" => Some(None),
            text => number(text).map(Some),
        };
        let head = [number(layer)?, number(head)?];
        let pair = [position(parts.next()?)?, position(parts.next()?)?];
        parts.next().is_none().then_some(Asked { head, pair })
    };
    numbers().ok_or_else(|| match ["cross.", "encoder."].iter().any(|other| text.starts_with(other)) {
        true => "scores are decomposed only for decoder self-attention, whose heads are written like 1.3"
            .to_string(),
        false => {
            "write a head and the positions of a query and a key, all from 0, such as 1.3:7:4 or 1.3:last:4"
                .to_string()
        }
    })
}

/// The job that decomposes a score.
pub struct Why<'a> {
    pub asked: Asked,
    pub interventions: &'a InterventionArgs,
    pub folder: &'a RunFolder,
    pub sample: &'a Sample,
}

impl Job for Why<'_> {
    type Output = ScoreParts;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<ScoreParts> {
        let Self { asked: Asked { head: [layer, head], pair }, interventions, folder, sample } = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let model = interventions.apply(model, &description, folder, &device)?;
        let (time, source_time) = (sample.inputs.len(), sample.source.as_ref().map_or(0, Vec::len));
        input::check_length(&description, time, source_time)?;
        let decoder = explainable(&model)?;
        let [query, key] = pair.map(|position| position.unwrap_or(time.saturating_sub(1)));
        let (layers, heads) = (decoder.blocks.len(), description.model.heads);
        let problem = if layer >= layers || head >= heads {
            format!(
                "{layer}.{head} is not a head of the model, whose heads are 0.0 to {}.{}",
                layers - 1,
                heads - 1
            )
        } else if query >= time {
            format!("position {query} is outside the text, whose positions are 0 to {}", time - 1)
        } else if key > query {
            format!("the key at position {key} is after the query at position {query}, which does not see it")
        } else if let Some(window) = decoder.config.window_of(layer).filter(|window| query - key >= *window) {
            format!(
                "the key at position {key} is outside the window of {window} of layer {layer}, so the query at position \
                 {query} does not see it"
            )
        } else if sample.documents.as_ref().is_some_and(|documents| documents[key] != documents[query]) {
            format!(
                "the key at position {key} is in another document than the query at position {query}, which does not see it"
            )
        } else {
            let inputs = DeviceBatch::new(&Sample::batch_of(std::slice::from_ref(sample)), &device).inputs;
            let documents = inputs.documents.clone();
            let memories = decoder.project_memory(inputs.source.clone(), &mut NoHooks)?;
            let pass = run(decoder, inputs, &memories, &Interventions::default())?;
            return ScoreParts::of(decoder, &pass, ([layer, head], [query, key]), documents.as_deref());
        };
        Err(Error::Input(format!("--why: {problem}")))
    }
}

/// Prints a decomposition as JSON or as text.
pub fn print(found: &ScoreParts, sample: &Sample, vocabulary: &Vocabulary, is_json: bool) {
    let (by_query, by_key) = (found.by_query(), found.by_key());
    if is_json {
        let mut value = json!(found);
        value["tokens"] = json!(sample.inputs);
        value["by_query"] = json!(by_query);
        value["by_key"] = json!(by_key);
        return print_json_line(&value);
    }
    let token =
        |position: usize| format!("`{}` at position {position}", vocabulary.token(sample.inputs[position]));
    say(&format!(
        "Head {}.{} attends from {} to {} with weight {}; its score is {}{}.",
        found.layer,
        found.head,
        token(found.query),
        token(found.key),
        fixed(found.weight, 3),
        fixed(found.score, 3),
        found
            .unbounded_score
            .map_or_else(String::new, |score| format!(" ({} before the softcap)", fixed(score, 3)))
    ));
    if found.position_bias != 0.0 {
        say(&format!("The position bias adds {}.", signed(found.position_bias, 3)));
    }
    let parts = |values: &[f64]| values.iter().copied().zip(found.parts.iter().cloned()).collect::<Vec<_>>();
    list("Parts of the query:", parts(&by_query));
    list("Parts of the key:", parts(&by_key));
    let pairs = found.pairs.iter().zip(&found.parts).flat_map(|(row, query)| {
        row.iter().zip(&found.parts).map(move |(&value, key)| (value, format!("{query} x {key}")))
    });
    list("Pairs of both, query first:", pairs.collect());
}

/// Lists the largest of some parts, and the sum of the others.
fn list(title: &str, mut parts: Vec<(f64, String)>) {
    parts.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let others = parts.split_off(MAX_LISTED.min(parts.len()));
    if !others.is_empty() {
        let sum = others.iter().map(|(value, _)| value).sum();
        parts.push((sum, format!("{} others together", others.len())));
    }
    say(title);
    parts.iter().for_each(|(value, name)| say(&format!("  {:>8}  {name}", signed(*value, 3))));
}
