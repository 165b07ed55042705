//! A run's pictures and its page, from its folder alone: what `train` ends with, and what `plot` and
//! `report` make again.
//!
//! This joins the rooms that do not know each other: the run folder tells what happened, the model
//! what it attends to, and the report draws it.
//!
//! | file | turns into what the report draws |
//! |---|---|
//! | `curves` | the course of the run |
//! | `reading` | what the model does with one sequence |
//! | `page` | all of it, to explore |
//! | `study` | the trials of a study, and a sweep over learning rates |

mod curves;
mod page;
mod reading;
mod study;

use std::fs;
use std::path::{Path, PathBuf};

use crate::analysis::{
    Analysis, FreeRunning, HeadHistory, HeadScores, HeadTallies, MOST_WEIGHTS, Sample, View,
};
use crate::backend::{self, Device, Job};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::ops;
use crate::report::{AttentionOverTime, Generation, HeadScoreGrid, Page, Picture, Style};
use crate::training::{DeviceBatch, Row, RunFolder, Summary, read_metrics};
use crate::weights::native;

pub use reading::Reading;
use reading::{head_values, measured_on};
pub use study::{draw_study, of_study, of_sweep};

/// All that a run folder tells, and what its best weights do with its validation sequences.
#[derive(Debug)]
pub struct Story {
    folder: RunFolder,
    config: Config,
    rows: Vec<Row>,
    summary: Summary,
    /// Sequences with what the model does with each; at least one.
    readings: Vec<Reading>,
    /// The one that the pictures show.
    shown: usize,
    /// The model's own continuation of it.
    generated: Generation,
    /// `[layer][head]`.
    heads: Vec<Vec<HeadScores>>,
    measured_on: String,
    analysis: Option<Analysis>,
    history: HeadHistory,
}

impl Story {
    /// Reads the run in `folder`, and looks at its best weights on `device`.
    ///
    /// # Errors
    /// If the folder lacks what a picture is made of, or holds what cannot be understood.
    pub fn read(folder: &RunFolder, device: &Device) -> Result<Self> {
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
        let is_cut = samples.iter().map(|sample| sample.inputs.len() > longest).collect::<Vec<_>>();
        let samples = samples.into_iter().map(|sample| sample.beginning(longest)).collect::<Vec<_>>();
        let rows = read_metrics(&folder.metrics())?;
        let summary = Summary::read(folder)?;
        // One that was made of earlier weights, before the run went on, says nothing of these.
        let analysis =
            Analysis::read(&folder.analysis())?.filter(|analysis| Some(analysis.step) == summary.best_step);
        let shown = config.analysis.sample.min(samples.len() - 1);
        let look = Look { folder, samples: &samples, shown, vocabulary: &vocabulary };
        let (views, free) = backend::run(device, look)?;
        let shown = shown.min(views.len() - 1);
        if let (Some(analysis), Some(view)) = (&analysis, views.first())
            && !analysis.heads.iter().map(Vec::len).eq(view.attention.iter().map(Vec::len))
        {
            let problem = "is of a model with other heads; without the file they are scored anew";
            return Err(Error::file(folder.analysis(), None, None, problem));
        }
        let sequence = |index: usize| match is_cut[index] {
            true => format!("validation sequence {index}, its first {longest} tokens"),
            false => format!("validation sequence {index}"),
        };
        let texts = |tokens: &[u32]| tokens.iter().map(|&token| vocabulary.token(token)).collect();
        let generated = Generation {
            run: folder.name(),
            sequence: sequence(shown),
            prompt: texts(&free.prompt),
            generated: texts(&free.generated),
            truth: texts(&free.truth),
        };
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
            Reading::of_sample(folder.name(), sequence(index), sample, view, &vocabulary)
        });
        Ok(Self {
            readings: readings.collect(),
            shown,
            generated,
            summary,
            history: HeadHistory::open(&folder.head_scores(), usize::MAX)?,
            folder: folder.clone(),
            config,
            rows,
            heads,
            measured_on,
            analysis,
        })
    }

    /// Draws every picture that there is something to show of into the run's `plots/`, and says where
    /// they are.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn draw(&self, style: &Style) -> Result<Vec<PathBuf>> {
        let plots = self.folder.plots();
        create(&plots)?;
        let reading = &self.readings[self.shown];
        let mut drawn = Vec::new();
        if !self.rows.is_empty() {
            drawn.push(self.loss_curve().save(&plots, style)?);
        }
        drawn.extend(reading.draw(&self.heads, self.config.analysis.head, &plots, style)?);
        if !self.generated.generated.is_empty() {
            drawn.push(self.generated.save(&plots, style)?);
        }
        let scores = self.head_scores();
        if !scores.scores.is_empty() {
            drawn.push(scores.save(&plots, style)?);
        }
        if let Some(formation) = self.formation() {
            drawn.push(formation.save(&plots, style)?);
        }
        if let Some(positions) = self.positions() {
            drawn.push(positions.save(&plots, style)?);
        }
        drawn.push(self.schedule().save(&plots, style)?);
        if let Some(gradients) = self.gradients() {
            drawn.push(gradients.save(&plots, style)?);
        }
        Ok(drawn)
    }

    /// What `report.html` shows.
    pub fn page(&self, style: &Style) -> Page {
        page::of_run(self, style)
    }

    fn head_scores(&self) -> HeadScoreGrid {
        HeadScoreGrid {
            run: self.folder.name(),
            measured_on: self.measured_on.clone(),
            scores: head_values(&self.heads),
        }
    }
}

/// Makes the folder `path` where there is none.
pub fn create(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))
}

impl Reading {
    /// Draws the attention and the predictions of this sequence into `folder`, the heads by their
    /// `scores`, and says where the pictures are. `head` is the one to show in every layer; without it
    /// [`shown_head`](crate::analysis::shown_head) of each.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn draw(
        &self,
        scores: &[Vec<HeadScores>],
        head: Option<usize>,
        folder: &Path,
        style: &Style,
    ) -> Result<Vec<PathBuf>> {
        let maps = self.attention_maps(scores, head);
        let mut drawn = vec![
            maps.save(folder, style)?,
            AttentionOverTime(&maps).save(folder, style)?,
            self.all_heads().save(folder, style)?,
        ];
        let predictions = self.predictions();
        if !predictions.steps.is_empty() {
            drawn.push(predictions.save(folder, style)?);
        }
        Ok(drawn)
    }

    /// The scores of all heads over this sequence.
    pub fn head_scores(&self, scores: &[Vec<HeadScores>]) -> HeadScoreGrid {
        HeadScoreGrid {
            run: self.run.clone(),
            measured_on: self.sequence.clone(),
            scores: head_values(scores),
        }
    }
}

/// Loads the best weights and looks at them reading the first samples, as many as memory allows.
struct Look<'a> {
    folder: &'a RunFolder,
    samples: &'a [Sample],
    /// The one to be continued.
    shown: usize,
    vocabulary: &'a Vocabulary,
}

impl Job for Look<'_> {
    type Output = (Vec<View>, FreeRunning);

    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let (model, description) = native::load_model::<B::InnerBackend>(&self.folder.weights()?, &device)?;
        let mut views = Vec::with_capacity(self.samples.len());
        let mut weights = 0;
        for sample in self.samples {
            let view = View::new(&model, DeviceBatch::new(&sample.batch(), &device).inputs)?;
            weights += view.attention.iter().flatten().map(Vec::len).sum::<usize>();
            views.push(view);
            if weights > MOST_WEIGHTS {
                break;
            }
        }
        let shown = &self.samples[self.shown.min(views.len() - 1)];
        let free = FreeRunning::new((&model, description.sizes), self.vocabulary, shown, &device)?;
        Ok((views, free))
    }
}
