//! The contents of a run folder for its pictures and its page.

use std::path::{Path, PathBuf};

use causal_attention_report::page::{Heads, Page};
use causal_attention_report::reading::Reading;
use causal_attention_report::{LossCurve, Picture, Style, formation, generated, gradients, positions};

use super::circuit;
use super::curves::{gradient_curve, loss_curve};
use super::live::{MAX_STARTS, live_model};
use super::page::{self, page};
use super::phases::chapters;
use super::reading::{continuation, reading, snapshot_frames};
use super::sample_views::SampleViews;
use super::{save_all, scores};
use crate::analysis::circuit::Explanation;
use crate::analysis::{Analysis, FreeRunning, HeadHistory, HeadTallies, Sample, Snapshots, View};
use crate::backend::{self, Device};
use crate::config::Config;
use crate::data::{Source, Vocabulary};
use crate::error::{Error, Result};
use crate::numbers::counted;
use crate::training::{Row, RunFolder, StoredPhases, Summary, dataset_of, read_metrics};

/// The contents of a run folder, and the output of its best weights for its validation sequences.
#[derive(Debug)]
pub struct RunData {
    /// The page of the run.
    pub page: Page,
    config: Config,
    vocabulary: Vocabulary,
    /// The rows of `metrics.csv`.
    rows: Vec<Row>,
    summary: Summary,
    /// The model's own continuation of the sequence shown in the pictures.
    free_running: FreeRunning,
    /// The analysis at the end of the run; if there is none, the scores of heads on the samples alone.
    analysis: Analysis,
    /// The explanation of the model's predictions, if there is one.
    circuit: Option<Explanation>,
}

impl RunData {
    /// Reads the run in `folder` and runs its best weights on `device`, on the first sequences of the run that fit into
    /// memory, at least one.
    ///
    /// # Errors
    /// Returns an error if the folder lacks a required file or contains an invalid one, or if the device fails.
    pub fn read(folder: &RunFolder, device: &Device) -> Result<Self> {
        let config = Config::load_own(&folder.config())?;
        let vocabulary = Vocabulary::read(folder.vocabulary())?;
        if folder.is_imported() {
            return Err(Error::Input(format!(
                "the run `{}` was imported, so it lacks curves and validation sequences; use `inspect`",
                folder.path().display()
            )));
        }
        let samples = Sample::read(&folder.samples(), vocabulary.size())?;
        if samples.is_empty() {
            return Err(Error::file(folder.samples(), "contains no samples"));
        }
        let max_length = Sample::max_length(config.model.layers * config.model.heads);
        let rows = read_metrics(&folder.metrics())?;
        let summary = Summary::read(folder)?;
        // `None` for the best weights of a run that has not diverged.
        let weights = folder.describe_weights(&summary, &config);
        let weights_note = weights.as_ref().map_or_else(String::new, |weights| format!(", with {weights}"));
        let name = |(index, sample): (usize, &Sample)| {
            let truncated = if sample.inputs.len() > max_length { " (truncated)" } else { "" };
            format!("validation sequence {index}{truncated}{weights_note}")
        };
        let names: Vec<String> = samples.iter().enumerate().map(name).collect();
        let is_truncated = samples.iter().any(|sample| sample.inputs.len() > max_length);
        let first_tokens = is_truncated.then_some(max_length);
        let stored = samples.clone();
        let samples: Vec<Sample> = samples.into_iter().map(|sample| sample.truncated(max_length)).collect();
        let shown = config.analysis.sample.min(samples.len() - 1);
        let job = SampleViews { folder, samples: &samples, stored: &stored, shown, vocabulary: &vocabulary };
        let (views, free_running, means) = backend::run(device, job)?;
        let analysis = Analysis::read(&folder.analysis())?
            .unwrap_or_else(|| Analysis { first_tokens, ..scored(&views, &samples) });
        let chance = scores::chance(&samples, &config.model);
        let readings = names.into_iter().zip(samples).zip(views);
        let readings = readings.map(|((name, sample), view)| reading(name, sample, view, &vocabulary));
        let readings: Vec<Reading> = readings.collect();
        let shown = shown.min(readings.len().saturating_sub(1));
        let circuit = Explanation::read(&folder.circuit())?;
        circuit.iter().try_for_each(|it| it.check_tokens(vocabulary.size(), &folder.circuit()))?;
        let heads = (config.analysis.head, circuit.as_ref());
        let mut page = Page {
            film: snapshot_frames(
                &Snapshots::open(&folder.snapshots(), usize::MAX)?,
                &readings[shown],
                &vocabulary,
            ),
            chapters: StoredPhases::read(folder)?.map_or_else(Vec::new, chapters),
            summary: page::summary(&summary),
            circuit: circuit.as_ref().map(page::circuit),
            loss: LossCurve { weights, ..loss_curve(folder.name(), &rows, &summary) },
            history: scores::history(&HeadHistory::open(&folder.head_scores(), usize::MAX)?.all),
            ..page(folder.name(), (readings, shown), (&analysis.heads, chance), heads, &config)
        };
        page.heads.measured_on = measured_on(&analysis) + &weights_note;
        let starts = starts(folder, &config, &vocabulary)?;
        page.model = Some(live_model(&folder.weights()?, &vocabulary, (&starts, &means))?);
        Ok(Self { page, config, vocabulary, rows, summary, free_running, analysis, circuit })
    }

    /// Adds an explanation to the page, draws it into `folder`, and returns the paths of the pictures. Redraws the pictures
    /// of attention if the explanation finds other heads important.
    ///
    /// # Errors
    /// Returns an error if the pictures cannot be written.
    pub fn add_circuit(&mut self, found: Explanation, folder: &Path, style: &Style) -> Result<Vec<PathBuf>> {
        let Page { readings, sample, heads, .. } = &self.page;
        let known = (&self.analysis.heads[..], heads.chance.clone());
        let chosen = (self.config.analysis.head, Some(&found));
        let Heads { shown, notes, .. } = scores::heads(String::new(), known, &readings[*sample], chosen);
        if shown != heads.shown {
            self.page.heads.shown = shown;
            self.page.heads.notes = notes;
            save_all(&self.page.pictures(style.logical_width()), folder, style)?;
        }
        let found_in = (self.page.run.as_str(), style.logical_width());
        let pictures = circuit::pictures(found_in, &found, &self.vocabulary);
        self.page.circuit = Some(page::circuit(&found));
        self.circuit = Some(found);
        save_all(&pictures, folder, style)
    }

    /// Writes every picture for which there is data into `folder`, and returns their paths.
    ///
    /// # Errors
    /// Returns an error if the pictures cannot be written.
    pub fn draw(&self, folder: &Path, style: &Style) -> Result<Vec<PathBuf>> {
        save_all(&self.pictures(style.logical_width()), folder, style)
    }

    /// Returns every picture for which there is data, each `width` logical pixels wide.
    pub fn pictures(&self, width: f64) -> Vec<Picture> {
        let Page { run, loss, readings, sample, history, .. } = &self.page;
        let Analysis { loss_by_position, floor_by_position, .. } = &self.analysis;
        let steps = continuation(&self.free_running, &self.vocabulary);
        let limit = self.config.training.max_gradient_norm;
        let others = [
            generated::picture(run, &readings[*sample].sequence, steps, width),
            formation::picture(loss, (&scores::formed(), &self.page.heads.chance), history, width),
            positions::picture(run, loss_by_position, floor_by_position, width),
            gradients::picture(run, &gradient_curve(&self.rows, limit, &self.summary), width),
        ];
        // A run can diverge before its first row.
        let loss = (!self.rows.is_empty() || loss.diverged.is_some()).then(|| loss.picture(width));
        let found =
            self.circuit.iter().flat_map(|found| circuit::pictures((run, width), found, &self.vocabulary));
        let pictures = loss.into_iter().chain(self.page.pictures(width)).chain(others.into_iter().flatten());
        pictures.chain(found).collect()
    }
}

/// Returns the scores of heads on the samples alone, from the model's attention on them.
fn scored(views: &[View], samples: &[Sample]) -> Analysis {
    let mut tallies = HeadTallies::default();
    for (view, sample) in views.iter().zip(samples) {
        tallies.add(&view.maps.attention, sample.documents());
    }
    let [sequences, ablation_sequences] = [views.len(); 2];
    Analysis { heads: tallies.scores(), sequences, ablation_sequences, ..Analysis::default() }
}

/// Returns the sequences that the page offers as inputs: newly generated ones for a task, the stored samples for a
/// file.
fn starts(folder: &RunFolder, config: &Config, vocabulary: &Vocabulary) -> Result<Vec<Sample>> {
    match config.data.source() {
        Source::Sequences => {
            let drawn = dataset_of(config, folder);
            Ok(drawn.map_or_else(|_| Vec::new(), |drawn| Sample::first(&drawn.valid, MAX_STARTS)))
        }
        Source::Text | Source::Table | Source::Array | Source::Memory => {
            Sample::read(&folder.samples(), vocabulary.size())
        }
    }
}

/// Returns the data on which the scores of a run were measured, such as "128 validation sequences".
fn measured_on(Analysis { sequences, ablation_sequences, first_tokens, .. }: &Analysis) -> String {
    let prefix =
        first_tokens.map_or_else(String::new, |count| format!("the first {} of ", counted(count, "token")));
    let is_all = ablation_sequences == sequences;
    let ablation = if is_all { String::new() } else { format!(", ablation on {ablation_sequences}") };
    format!("{prefix}{}{ablation}", counted(*sequences, "validation sequence"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_counts_use_correct_plurals() {
        let on = |sequences: usize, ablation_sequences: usize, first_tokens: Option<usize>| {
            measured_on(&Analysis { sequences, first_tokens, ablation_sequences, ..Analysis::default() })
        };
        assert_eq!(on(1, 1, Some(1)), "the first 1 token of 1 validation sequence");
        assert_eq!(on(1_024, 16, None), "1,024 validation sequences, ablation on 16");
    }
}
