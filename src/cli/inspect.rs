//! `inspect`: attention and predictions on a given input.

mod why;

use std::path::PathBuf;
use std::slice;

use burn::tensor::backend::AutodiffBackend;
use causal_attention_report::WeightColors;
use serde::Serialize;

use super::input::{self, OpenedRun, RunArgs};
use super::interventions::{InterventionArgs, named};
use super::patch::{PatchArgs, PatchSource};
use super::pictures::{PictureArgs, weight_colors};
use crate::analysis::circuit::Explanation;
use crate::analysis::{
    HeadScores, Sample, Score, Selected, Selection, View, ablation, inspect_sample, inspect_selected,
};
use crate::backend::{self, Job};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{check_output, write_atomically, write_output};
use crate::hooks::ResidualWriter;
use crate::numbers::{Bytes, counted};
use crate::reporting::{StoredMeans, chance, live_model, page, reading, save_all};
use crate::terminal::{PieceProgress, print_json_line, say};
use crate::training::RunFolder;

/// Inspect a run's model on a text: the attention and the scores of every head, and the probabilities of the next
/// token, as pictures and a page or as JSON.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: input::InputArgs,
    /// The folder for the pictures and the page; an existing folder is replaced only if inspect created it.
    /// [default: inspect/ in the run folder; none with --json]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The head that the large maps show in every layer, counted from 0. [default: the most important head of each
    /// layer]
    #[arg(long)]
    head: Option<usize>,
    #[command(flatten)]
    pictures: PictureArgs,
    /// The colour scale of attention weights. [default: linear]
    #[arg(long, value_parser = weight_colors())]
    color_scale: Option<WeightColors>,
    /// Skips the ablation, which takes one forward pass per head.
    #[arg(long)]
    no_ablation: bool,
    #[command(flatten)]
    interventions: InterventionArgs,
    #[command(flatten)]
    patch: PatchArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Prints JSON: tokens, weights as [layer][head][query][key], probabilities as [position][token] and scores;
    /// for an encoder-decoder also source, encoder_weights and cross_weights.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    part: PartArgs,
    /// Decomposes one attention score instead: a head and the positions of a query and a key, such as 1.3:7:4. Prints
    /// the contributions of the token embedding, the positions and each earlier component, on both sides.
    #[arg(long, value_name = "LAYER.HEAD:QUERY:KEY", value_parser = why::parse,
        conflicts_with_all = ["out", "head", "format", "resolution", "width", "no_title", "color_scale", "no_ablation", "layers", "heads", "only", "patch_from", "steer"])]
    why: Option<why::Asked>,
}

/// A part of the JSON.
#[derive(Debug, clap::Args)]
struct PartArgs {
    /// The layers in the JSON, e.g. "0,2-3", counted from 0. [default: all]
    #[arg(long, value_name = "LAYERS", requires = "json", conflicts_with = "out")]
    layers: Option<String>,
    /// The heads of each layer in the JSON, e.g. "0,2-3", counted from 0. [default: all]
    #[arg(long, value_name = "HEADS", requires = "json", conflicts_with = "out")]
    heads: Option<String>,
    /// The contents of the JSON besides the tokens; others are not computed or not kept in memory. The scores are those of
    /// the attention weights; ablation is the rise of the loss without each head, one pass per head. [default: all]
    #[arg(long, value_name = "CONTENTS", value_delimiter = ',', requires = "json", conflicts_with = "out")]
    only: Vec<Content>,
}

/// Contents of the JSON that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Content {
    Scores,
    Ablation,
    Weights,
    Probabilities,
}

/// The JSON output. For an encoder-decoder it includes the source, and the attention of the encoder and the
/// cross-attention.
#[derive(Debug, Default, Serialize)]
struct InspectReport<'a> {
    tokens: &'a [u32],
    /// The selected layers and heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heads: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<HeadRows<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoder_weights: Option<HeadRows<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cross_weights: Option<HeadRows<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<&'a [Vec<f32>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scores: Option<&'a [Vec<HeadScores>]>,
}

/// Attention maps as `[layer][head][query][key]`.
type HeadRows<'a> = Vec<Vec<Vec<&'a [f32]>>>;

fn rows(maps: &[Vec<Vec<f32>>], keys: usize) -> HeadRows<'_> {
    maps.iter().map(|heads| heads.iter().map(|map| map.chunks(keys).collect()).collect()).collect()
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let run = args.run.open(&[])?;
    let OpenedRun { folder, config, .. } = &run;
    if let Some(asked) = args.why {
        return print_score(asked, &args, &run);
    }
    let out = args.out.clone().or_else(|| (!args.json).then(|| folder.path().join("inspect")));
    out.iter().try_for_each(|out| check_output(out, "inspect"))?;
    args.check_pictures(out.is_some())?;
    let vocabulary = Vocabulary::read(run.folder.vocabulary())?;
    let sample = args.given.sample(&vocabulary, config)?;
    args.given.warn_without_source(&vocabulary, config);
    let source = args.patch.source(config, |text| args.given.with_text(text).sample(&vocabulary, config))?;
    if let Some(head) = args.head.filter(|&head| head >= config.model.heads) {
        let problem =
            format!("must be below `model.heads` = {}; heads are counted from 0", config.model.heads);
        return Err(Error::key("--head", head, problem));
    }
    let PartArgs { layers, heads, only } = &args.part;
    if layers.is_some() || heads.is_some() || !only.is_empty() {
        return print_selected(&args, &run, (&sample, source));
    }
    let circuit = out.as_ref().map_or(Ok(None), |_| Explanation::read(&folder.circuit()))?;
    let (view, scores) = run.compute(Inspect(&args, folder, &sample, source))?;
    if !view.probabilities.iter().flatten().all(|probability| probability.is_finite()) {
        return Err(Error::not_finite());
    }

    if args.json {
        print_all(&sample, &view, &scores);
    }
    let Some(out) = out else { return Ok(()) };
    let style = args.pictures.style()?;
    let options = [args.interventions.options(), args.patch.options()].concat();
    let name = named(folder.name(), &options);
    let shown = (args.head.or(config.analysis.head), circuit.as_ref());
    let initial = sample.clone();
    let chance = chance(slice::from_ref(&initial), &config.model);
    let reading = reading("the given input".to_string(), sample, view, &vocabulary);
    let mut page = page(name, (vec![reading], 0), (&scores, chance), shown, config);
    page.heads.colors = args.color_scale.unwrap_or_default();
    page.model = Some(match options.is_empty() {
        false => {
            let options = options.join(" ");
            Err(format!("This page does not include the model, because it is altered: {options}."))
        }
        true => live_model(&folder.best_weights()?, &vocabulary, (&[initial], &StoredMeans::default()))?,
    });
    let written = write_output(&out, "inspect", |folder| {
        save_all(&args.pictures.titled(page.pictures(style.logical_width())), folder, &style)?;
        write_atomically(&folder.join("report.html"), page.html().as_bytes())
    })?;
    if !args.json {
        written.iter().for_each(|path| say(&path.display().to_string()));
    }
    Ok(())
}

impl Args {
    /// Returns an error if an option of pictures is given but nothing is drawn.
    fn check_pictures(&self, is_drawn: bool) -> Result<()> {
        self.pictures.style()?;
        let head = self.head.map(|_| "--head");
        let color_scale = self.color_scale.map(|_| "--color-scale");
        match head.or(self.pictures.given()).or(color_scale) {
            Some(option) if !is_drawn => Err(Error::Input(format!(
                "{option} has no effect with --json alone, which draws nothing; omit it, or pass --out DIR"
            ))),
            _ => Ok(()),
        }
    }
}

/// Prints all results as JSON.
fn print_all(sample: &Sample, view: &View, scores: &[Vec<HeadScores>]) {
    let source = sample.source.as_deref();
    print_json_line(&InspectReport {
        tokens: &sample.inputs,
        weights: Some(rows(&view.maps.attention, sample.inputs.len())),
        source,
        encoder_weights: source.map(|source| rows(&view.maps.encoder, source.len())),
        cross_weights: source.map(|source| rows(&view.maps.cross, source.len())),
        probabilities: Some(&view.probabilities),
        scores: Some(scores),
        ..InspectReport::default()
    });
}

/// Prints the parts of an attention score.
fn print_score(asked: why::Asked, args: &Args, run: &OpenedRun) -> Result<()> {
    let vocabulary = Vocabulary::read(run.folder.vocabulary())?;
    let sample = args.given.sample(&vocabulary, &run.config)?;
    let (interventions, folder) = (&args.interventions, &run.folder);
    let found = run.compute(why::Why { asked, interventions, folder, sample: &sample })?;
    why::print(&found, &sample, &vocabulary, args.json);
    Ok(())
}

/// Prints the selected part as JSON.
fn print_selected(args: &Args, run: &OpenedRun, (sample, source): (&Sample, PatchSource)) -> Result<()> {
    let (selection, found) = run.compute(Select(args, &run.folder, &run.config, (sample, source)))?;
    if !found.probabilities.iter().flatten().all(|probability| probability.is_finite()) {
        return Err(Error::not_finite());
    }
    let source = sample.source.as_deref();
    let source_rows = |maps, time: usize| selection.weights.then(|| rows(maps, time));
    print_json_line(&InspectReport {
        tokens: &sample.inputs,
        layers: Some(&selection.layers),
        heads: Some(&selection.heads),
        weights: source_rows(&found.attention, sample.inputs.len()),
        source,
        encoder_weights: source.and_then(|source| source_rows(&found.encoder, source.len())),
        cross_weights: source.and_then(|source| source_rows(&found.cross, source.len())),
        probabilities: selection.probabilities.then_some(&found.probabilities[..]),
        scores: (!found.scores.is_empty()).then_some(&found.scores[..]),
    });
    Ok(())
}

/// Parses numbers and ranges such as `0,2-3`, each below `count`, and returns them in ascending order; all without a text.
fn numbers(option: &str, text: Option<&str>, count: usize) -> Result<Vec<usize>> {
    let Some(text) = text else { return Ok((0..count).collect()) };
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bounds = [first, last].map(|bound| bound.trim().parse::<usize>().ok());
        match bounds {
            [Some(first), Some(last)] if first <= last && last < count => found.extend(first..=last),
            [Some(first), Some(last)] if first <= last => {
                let problem = format!("the model has {count}, counted from 0");
                return Err(Error::Input(format!("{option}: {last} does not exist; {problem}")));
            }
            _ => {
                let problem = "is not a list of numbers and ranges; write it as 0,2-3";
                return Err(Error::Input(format!("{option}: `{text}` {problem}")));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The job that runs a model on a sequence and keeps a part.
struct Select<'a>(&'a Args, &'a RunFolder, &'a Config, (&'a Sample, PatchSource<'a>));

impl Job for Select<'_> {
    type Output = (Selection, Selected);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self(args, folder, config, (sample, source)) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let (model, means) = args.interventions.apply_with_means(model, &description, folder, &device)?;
        let source_time = sample.source.as_ref().map_or(0, Vec::len);
        input::check_length(&description, sample.inputs.len(), source_time)?;
        let PartArgs { layers, heads, only } = &args.part;
        let keeps = |content| only.is_empty() || only.contains(&content);
        let selection = Selection {
            layers: numbers("--layers", layers.as_deref(), ablation::heads(&model).len())?,
            heads: numbers("--heads", heads.as_deref(), config.model.heads)?,
            weights: keeps(Content::Weights),
            scores: keeps(Content::Scores),
            probabilities: keeps(Content::Probabilities),
        };
        let heads = selection.layers.len() * selection.heads.len();
        // Without the weights, only those of one layer are in memory.
        let held = if selection.weights { heads } else { config.model.heads };
        check_memory(held, sample.inputs.len() + source_time)?;
        let pieces = PieceProgress::new(true, heads, "heads ablated");
        let is_ablated = keeps(Content::Ablation) && !args.no_ablation;
        let done = is_ablated.then_some(|done| pieces.done(done as usize));
        let patch = source.patch(&model, &description, sample.inputs.len(), &device)?;
        let mut found = inspect_selected((&model, &patch), sample, &selection, done, &device)?;
        for (at, heads) in selection.layers.iter().zip(&mut found.scores) {
            let is_ablated = |head: usize| means.iter().any(|(it, _)| *it == ResidualWriter::Head(*at, head));
            let heads = selection.heads.iter().zip(heads);
            heads.filter(|(head, _)| is_ablated(**head)).for_each(|(_, head)| head.remove(Score::Ablation));
        }
        Ok((selection, found))
    }
}

/// The job that runs a model on a sequence.
struct Inspect<'a>(&'a Args, &'a RunFolder, &'a Sample, PatchSource<'a>);

impl Job for Inspect<'_> {
    type Output = (View, Vec<Vec<HeadScores>>);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self(args, folder, sample, source) = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let (model, means) = args.interventions.apply_with_means(model, &description, folder, &device)?;
        let source_time = sample.source.as_ref().map_or(0, Vec::len);
        input::check_length(&description, sample.inputs.len(), source_time)?;
        let heads = ablation::heads(&model).iter().sum::<usize>();
        check_memory(heads, sample.inputs.len() + source_time)?;
        let pieces = PieceProgress::new(args.json, heads, "heads ablated");
        let done = (!args.no_ablation).then_some(|done| pieces.done(done as usize));
        let patch = source.patch(&model, &description, sample.inputs.len(), &device)?;
        let (view, mut scores) = inspect_sample((&model, &patch), sample, done, &device)?;
        // Without its mean, a mean-ablated head has no effect that could be measured.
        for (component, _) in means {
            if let ResidualWriter::Head(layer, head) = component
                && sample.source.is_none()
            {
                scores[layer][head].remove(Score::Ablation);
            }
        }
        Ok((view, scores))
    }
}

/// The number of copies of each attention weight in memory, from its computation to the output.
const COPIES_PER_WEIGHT: f64 = 4.0;

/// Checks that the attention maps of all `heads` over `tokens` tokens fit into memory.
fn check_memory(heads: usize, tokens: usize) -> Result<()> {
    let (needed, free) =
        (COPIES_PER_WEIGHT * 4.0 * heads as f64 * (tokens as f64).powi(2), backend::free_memory());
    if needed <= free {
        return Ok(());
    }
    let (heads, tokens) = (counted(heads, "head"), counted(tokens, "token"));
    Err(Error::Input(format!(
        "the attention maps of {heads} over {tokens} need about {} of memory, but only {} is free; shorten the input",
        Bytes(needed),
        Bytes(free)
    )))
}
