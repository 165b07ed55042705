//! What a run folder holds for its pictures and its page.

use std::fs;
use std::path::{Path, PathBuf};

use super::draw::{Picture, Style};
use super::loss::LossCurve;
use super::reading::Reading;
use super::{
    attention, attention_over_time, formation, generated, gradients, head_scores, heads, positions,
    prediction,
};
use crate::analysis::{Analysis, FreeRunning, HeadHistory, HeadScores, HeadTallies, Sample, View};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::terminal::thousands;
use crate::training::{Ended, Row, RunFolder, Summary, read_metrics};

/// All that a run folder tells, and what its best weights do with its validation sequences.
#[derive(Debug)]
pub struct RunData {
    /// The run folder.
    pub folder: RunFolder,
    /// The run's config.
    pub config: Config,
    /// The run's vocabulary.
    pub vocabulary: Vocabulary,
    /// The rows of `metrics.csv`.
    pub rows: Vec<Row>,
    /// How the run ended.
    pub summary: Summary,
    /// Sequences with what the model does with each; at least one.
    pub readings: Vec<Reading>,
    /// The one that the pictures show.
    pub shown: usize,
    /// The model's own continuation of it.
    pub free_running: FreeRunning,
    /// The scores of all heads, `[layer][head]`.
    pub heads: Vec<Vec<HeadScores>>,
    /// What the scores were taken on, as "128 validation sequences".
    pub measured_on: String,
    /// What was analysed at the end of the run, where that was of the weights that are shown.
    pub analysis: Option<Analysis>,
    /// The scores along the run.
    pub history: HeadHistory,
}

impl RunData {
    /// Reads the run in `folder`; `look` asks its best weights what they do with sequences in its vocabulary, as
    /// many as memory allows and at least the first, and lets them continue the one of the given place.
    ///
    /// # Errors
    /// If the folder lacks what a picture is made of, or holds what cannot be understood, and those of `look`.
    pub fn read(
        folder: &RunFolder,
        look: impl FnOnce(&[Sample], usize, &Vocabulary) -> Result<(Vec<View>, FreeRunning)>,
    ) -> Result<Self> {
        let config = Config::load(Some(&folder.config()), &[])?;
        let vocabulary = Vocabulary::read(folder.vocabulary())?;
        if folder.is_imported() {
            return Err(Error::Input(format!(
                "the run `{}` was not trained here, so it has no curves and no validation sequences: look at it by \
                 `inspect`",
                folder.path().display()
            )));
        }
        let samples = Sample::read(&folder.samples(), vocabulary.size(), config.data.source)?;
        if samples.is_empty() {
            return Err(Error::file(folder.samples(), None, None, "holds no sample to draw"));
        }
        let longest = Sample::longest(config.model.layers * config.model.heads);
        let is_cut: Vec<bool> = samples.iter().map(|sample| sample.inputs.len() > longest).collect();
        let samples: Vec<Sample> = samples.into_iter().map(|sample| sample.beginning(longest)).collect();
        let rows = read_metrics(&folder.metrics())?;
        let summary = Summary::read(folder)?;
        // One that was made of earlier weights, before the run went on, says nothing of these.
        let analysis =
            Analysis::read(&folder.analysis())?.filter(|analysis| Some(analysis.step) == summary.best_step);
        let shown = config.analysis.sample.min(samples.len() - 1);
        let (views, free_running) = look(&samples, shown, &vocabulary)?;
        let shown = shown.min(views.len().saturating_sub(1));
        let (heads, measured_on) = match &analysis {
            Some(analysis) => {
                let sequences = [analysis.sequences, analysis.ablation_sequences];
                (analysis.heads.clone(), measured_on(sequences, analysis.first_tokens))
            }
            None => {
                let mut tallies = HeadTallies::default();
                for (view, sample) in views.iter().zip(&samples) {
                    tallies.add(&view.attention, &sample.inputs);
                }
                let first_tokens = is_cut.contains(&true).then_some(longest);
                (tallies.scores(), measured_on([views.len(); 2], first_tokens))
            }
        };
        // Where a run's end would make one think of other weights.
        let best = summary.best_step.filter(|_| summary.ended == Ended::Diverged);
        let by = best.map_or_else(String::new, |step| {
            format!(", by the weights of step {}, before the run diverged", thousands(step as f64))
        });
        let readings = samples.into_iter().zip(views).enumerate().map(|(index, (sample, view))| {
            let cut = if is_cut[index] { format!(", its first {longest} tokens") } else { String::new() };
            let sequence = format!("validation sequence {index}{cut}{by}");
            Reading::new(sequence, sample, view, &vocabulary)
        });
        Ok(Self {
            readings: readings.collect(),
            history: HeadHistory::open(&folder.head_scores(), usize::MAX)?,
            folder: folder.clone(),
            config,
            vocabulary,
            rows,
            summary,
            shown,
            free_running,
            heads,
            measured_on,
            analysis,
        })
    }

    /// The loss along the run.
    pub fn loss(&self) -> LossCurve {
        LossCurve::new(self.folder.name(), &self.rows, &self.summary)
    }

    /// Draws every picture that there is something to show of into `folder`, and says where they
    /// are.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn draw(&self, folder: &Path, style: &Style) -> Result<Vec<PathBuf>> {
        let (run, reading, loss) = (&self.folder.name(), &self.readings[self.shown], self.loss());
        let analysis = self.analysis.as_ref();
        let head = self.config.analysis.head;
        let of_reading = reading.pictures(run, (&self.heads, &self.measured_on), head);
        let others = [
            generated::picture(run, &reading.sequence, &self.free_running, &self.vocabulary),
            formation::picture(&loss, self.history.steps()),
            analysis.and_then(|analysis| positions::picture(run, analysis)),
            gradients::picture(run, &self.rows, self.config.training.max_gradient_norm),
        ];
        let loss = (!self.rows.is_empty()).then(|| loss.picture());
        save_all(loss.into_iter().chain(of_reading).chain(others.into_iter().flatten()), folder, style)
    }
}

impl Reading {
    /// The pictures of the attention and the predictions of this sequence, and of the scores of heads with what
    /// they were measured on. `head` is the one to show in every layer.
    pub fn pictures(
        &self,
        run: &str,
        (scores, measured_on): (&[Vec<HeadScores>], &str),
        head: Option<usize>,
    ) -> Vec<Picture> {
        let maps = self.shown_maps(scores, head);
        let maps = [attention::picture(run, self, &maps), attention_over_time::picture(run, self, &maps)];
        let all = [heads::picture(run, self)];
        let known = [prediction::picture(run, self), head_scores::picture(run, measured_on, scores)];
        maps.into_iter().chain(all).chain(known.into_iter().flatten()).collect()
    }
}

/// Saves pictures into a folder, which is made where there is none, and says where they are.
///
/// # Errors
/// If they cannot be written.
pub fn save_all(
    pictures: impl IntoIterator<Item = Picture>,
    folder: &Path,
    style: &Style,
) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))?;
    pictures.into_iter().map(|picture| picture.save(folder, style)).collect()
}

/// What the scores of a run were taken on.
fn measured_on([all, left_out]: [usize; 2], first_tokens: Option<usize>) -> String {
    let of = first_tokens.map_or_else(String::new, |tokens| format!("the first {tokens} tokens of "));
    let ablation = if left_out == all { String::new() } else { format!(", ablation on {left_out}") };
    format!("{of}{all} validation sequence{}{ablation}", if all == 1 { "" } else { "s" })
}
