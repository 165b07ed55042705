//! What a run folder holds for its pictures and its page.

use std::fs;
use std::path::{Path, PathBuf};

use super::attention::attention;
use super::attention_over_time::attention_over_time;
use super::formation::formation;
use super::generated::generated;
use super::gradients::gradients;
use super::head_scores::head_scores;
use super::heads::heads;
use super::loss::LossCurve;
use super::picture::{Picture, Style};
use super::positions::positions;
use super::prediction::prediction;
use super::range::whole;
use super::reading::Reading;
use crate::analysis::{Analysis, FreeRunning, HeadHistory, HeadScores, HeadTallies, Sample, View};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
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

/// What the model is to do for a run's pictures.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The run folder, with the weights.
    pub folder: &'a RunFolder,
    /// The run's vocabulary.
    pub vocabulary: &'a Vocabulary,
    /// Sequences to look at, as many as memory allows.
    pub samples: &'a [Sample],
    /// The one to be continued.
    pub shown: usize,
}

impl RunData {
    /// Reads the run in `folder`; `look` asks the model what it does with the run's sequences: at least with the
    /// first.
    ///
    /// # Errors
    /// If the folder lacks what a picture is made of, or holds what cannot be understood, and those of `look`.
    pub fn read(
        folder: &RunFolder,
        look: impl FnOnce(Wanted<'_>) -> Result<(Vec<View>, FreeRunning)>,
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
        let (views, free_running) =
            look(Wanted { folder, vocabulary: &vocabulary, samples: &samples, shown })?;
        let shown = shown.min(views.len().saturating_sub(1));
        if let (Some(analysis), Some(view)) = (&analysis, views.first())
            && !analysis.heads.iter().map(Vec::len).eq(view.attention.iter().map(Vec::len))
        {
            let problem = "is of a model with other heads; without the file they are scored anew";
            return Err(Error::file(folder.analysis(), None, None, problem));
        }
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
        let readings = samples.into_iter().zip(views).enumerate().map(|(index, (sample, view))| {
            let cut = if is_cut[index] { format!(", its first {longest} tokens") } else { String::new() };
            let sequence = format!("validation sequence {index}{cut}{}", weights_of(&summary));
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
        let clip_limit = self.config.training.max_gradient_norm;
        let mut pictures = Vec::new();
        pictures.extend((!self.rows.is_empty()).then(|| loss.picture()));
        pictures.extend(reading.pictures(run, &self.heads, self.config.analysis.head));
        pictures.extend(generated(run, &reading.sequence, &self.free_running, &self.vocabulary));
        pictures.extend(head_scores(run, &self.measured_on, &self.heads));
        pictures.extend(formation(&loss, self.history.steps()));
        pictures.extend(self.analysis.as_ref().and_then(|analysis| positions(run, analysis)));
        pictures.extend(gradients(run, &self.rows, clip_limit));
        save_all(&pictures, folder, style)
    }
}

impl Reading {
    /// The pictures of the attention and the predictions of this sequence, the heads by their `scores`. `head` is
    /// the one to show in every layer.
    pub fn pictures(&self, run: &str, scores: &[Vec<HeadScores>], head: Option<usize>) -> Vec<Picture> {
        let maps = self.shown_maps(scores, head);
        let drawn = [attention(run, self, &maps), attention_over_time(run, self, &maps), heads(run, self)];
        drawn.into_iter().chain(prediction(run, self)).collect()
    }
}

/// Saves pictures into a folder, which is made where there is none, and says where they are.
///
/// # Errors
/// If they cannot be written.
pub fn save_all(pictures: &[Picture], folder: &Path, style: &Style) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))?;
    pictures.iter().map(|picture| picture.save(folder, style)).collect()
}

/// Whose weights are shown, where a run's end would make one think of others.
fn weights_of(summary: &Summary) -> String {
    match summary.best_step.filter(|_| summary.ended == Ended::Diverged) {
        Some(step) => format!(", by the weights of step {}, before the run diverged", whole(step as u64)),
        None => String::new(),
    }
}

/// What the scores of a run were taken on.
fn measured_on([all, left_out]: [usize; 2], first_tokens: Option<usize>) -> String {
    let sequences = |count: usize| match count {
        1 => "1 validation sequence".to_string(),
        count => format!("{count} validation sequences"),
    };
    let of = first_tokens.map_or_else(String::new, |tokens| format!("the first {tokens} tokens of "));
    match left_out == all {
        true => of + &sequences(all),
        false => format!("{of}{}, ablation on {left_out}", sequences(all)),
    }
}
