//! A run's pictures, from its folder alone: what `train` ends with and `plot` makes again.
//!
//! This joins the rooms that do not know each other: the run folder tells what happened, the
//! model what it attends to, and the report draws it.

use std::fs;
use std::path::PathBuf;

use crate::analysis::{HeadScores, View, most_inductive};
use crate::backend::{self, Job};
use crate::config::Config;
use crate::data::{Role, Vocabulary};
use crate::error::{Error, Result};
use crate::ops;
use crate::report::{
    AttentionMaps, AttentionOverTime, HeadMap, LossCurve, Picture, Point, PredictedToken, Predictions, Style,
};
use crate::training::{BackendName, Row, RunFolder, Sample, Split, Summary, read_metrics};
use crate::weights::native;

/// Draws every picture of the run in `folder` into its `plots/`, looking at the model on `backend`.
///
/// # Errors
/// If the folder lacks what a picture is made of, or cannot be written.
pub fn draw(folder: &RunFolder, backend: BackendName, style: &Style) -> Result<Vec<PathBuf>> {
    let config = Config::load(Some(&folder.config()), &[])?;
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let samples = Sample::read(folder)?;
    let sample = samples.get(config.analysis.sample).or(samples.first());
    let sample =
        sample.ok_or_else(|| Error::file(folder.samples(), None, None, "holds no sample to draw"))?;
    let view = backend::run(backend, Look { folder, sample })?;

    let plots = folder.plots();
    fs::create_dir_all(&plots).map_err(|error| Error::io("create", &plots, error))?;
    let sequence = format!("validation sequence {}", config.analysis.sample);
    let maps = attention_maps(folder, &config, &vocabulary, sample, &view, &sequence);
    Ok(vec![
        loss_curve(folder)?.save(&plots, style)?,
        maps.save(&plots, style)?,
        predictions(folder, &vocabulary, sample, &view, &sequence).save(&plots, style)?,
        AttentionOverTime(&maps).save(&plots, style)?,
    ])
}

/// Loads the best weights and looks at them reading one sample.
struct Look<'a> {
    folder: &'a RunFolder,
    sample: &'a Sample,
}

impl Job for Look<'_> {
    type Output = View;

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<View> {
        let (model, _) = native::load_model::<B::InnerBackend>(&self.folder.model(), &device)?;
        View::new(&model, self.sample, &device)
    }
}

fn loss_curve(folder: &RunFolder) -> Result<LossCurve> {
    let rows = read_metrics(&folder.metrics())?;
    let summary = Summary::read(folder)?;
    let points = |split: Split, value: fn(&Row) -> f64| {
        let rows = rows.iter().filter(|row| row.split == split);
        rows.map(|row| Point { step: row.step as u64, value: value(row) }).collect()
    };
    let last = rows.last().map_or(0, |row| row.step) as f64;
    let epochs = (last / summary.steps_per_epoch).floor() as u64;
    Ok(LossCurve {
        run: folder.name(),
        training: points(Split::Train, |row| row.loss),
        validation: points(Split::Valid, |row| row.loss),
        learning_rate: points(Split::Train, |row| row.learning_rate),
        epoch_ends: (1..=epochs)
            .map(|epoch| (epoch as f64 * summary.steps_per_epoch).ceil() as u64)
            .collect(),
        floor: summary.floor,
    })
}

/// The map of one head a layer: the one asked for, or the one with the highest induction score.
fn attention_maps(
    folder: &RunFolder,
    config: &Config,
    vocabulary: &Vocabulary,
    sample: &Sample,
    view: &View,
    sequence: &str,
) -> AttentionMaps {
    let maps = view.attention.iter().enumerate().map(|(layer, heads)| {
        let head = config.analysis.head.unwrap_or_else(|| most_inductive(heads, &sample.inputs));
        let scores = HeadScores::new(&heads[head], &sample.inputs);
        let note = format!("induction {:.2}", scores.induction);
        HeadMap { layer, head, note, weights: heads[head].clone() }
    });
    AttentionMaps {
        run: folder.name(),
        sequence: sequence.to_string(),
        tokens: sample.inputs.iter().map(|&token| vocabulary.token(token)).collect(),
        maps: maps.collect(),
    }
}

fn predictions(
    folder: &RunFolder,
    vocabulary: &Vocabulary,
    sample: &Sample,
    view: &View,
    sequence: &str,
) -> Predictions {
    let targets = sample.targets.iter().zip(&view.predictions).zip(&sample.roles);
    let steps = targets.filter(|&(_, &role)| role != Role::Padding).map(|((&truth, &predicted), &role)| {
        PredictedToken {
            truth: vocabulary.token(truth),
            predicted: vocabulary.token(predicted),
            determined: role == Role::Determined,
        }
    });
    Predictions { run: folder.name(), sequence: sequence.to_string(), steps: steps.collect() }
}
