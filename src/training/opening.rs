//! Opening a run folder: whether there is a run, and whether its files belong together.
//!
//! Whoever copies the weights or the vocabulary of one run to another gets a model that reads other tokens than
//! it learned. So sizes are compared where a folder is opened, and the content of the vocabulary; that of the weights
//! where they are loaded; the message names the file at fault. What cannot be read at all is told by whoever needs it.

use std::path::PathBuf;

use super::history::{self, Row, Split};
use super::{
    checkpoint,
    run_folder::RunFolder,
    stopping::Ended,
    summary::{Hashes, Summary},
};
use crate::analysis::{Analysis, HeadHistory, Sample};
use crate::config::Config;
use crate::data::{Source, Vocabulary};
use crate::error::{Error, Result};
use crate::files::{hash, sha256};
use crate::model::{Architecture, ModelConfig, Sizes};
use crate::terminal::{counted, thousands};
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description};

const RESTORE: &str = "Copy this run's model.safetensors back, or remove it and let train --resume write it anew \
                       from a checkpoint";

const SCORES: &str = "scores other heads than those of the weights beside it: it is another run's. Remove it";

impl RunFolder {
    /// The run at `path`.
    ///
    /// # Errors
    /// If there is no folder, one that no run made, or one whose files belong to different runs.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let folder = Self::at(path);
        let shown = folder.path().display();
        let has_config = folder.config().is_file();
        let problem = match () {
            () if folder.path().is_file() => format!("`{shown}` is a file: name the folder of a run"),
            () if !folder.path().is_dir() => format!("there is no run folder `{shown}`: `train` makes one"),
            () if has_config && folder.path().join("trials").is_dir() => format!(
                "`{shown}` is the folder of a study: name one of its runs, `{shown}/trials/...`; `tune --resume {shown}` \
                 draws its own pictures"
            ),
            () if !has_config || !folder.checkpoints().is_dir() && !folder.model().is_file() => format!(
                "`{shown}` is not the folder of a run: it lacks config.toml, or checkpoints and weights"
            ),
            () => {
                folder.check_sizes()?;
                return Ok(folder);
            }
        };
        Err(Error::Input(problem))
    }

    /// `model.safetensors`, to be read.
    ///
    /// # Errors
    /// If the run has none yet, for it is written with the first validation; or it is not the one that the run
    /// wrote.
    pub fn weights(&self) -> Result<WeightsFile> {
        if !self.model().exists() && self.checkpoints().is_dir() {
            let run = self.path().display();
            return Err(Error::Input(format!(
                "`{run}` has no model.safetensors: it comes with a run's first validation; `train --resume {run}` goes \
                 on with it"
            )));
        }
        let file = WeightsFile::open_own(self.model())?;
        let is_own = self.wrote_weights(&file);
        file.release(0..file.len());
        match is_own {
            Some(false) => {
                Err(file
                    .error(format!("is not the file that the run wrote: its content has changed. {RESTORE}")))
            }
            Some(true) | None => Ok(file),
        }
    }

    /// Whether the weights are those that the run wrote; none where neither its summary says, nor, as long as it has
    /// none, its checkpoints.
    fn wrote_weights(&self, held: &[u8]) -> Option<bool> {
        match Hashes::read(self) {
            Some(hashes) => hashes.weights_sha256.map(|written| written == hash(held)),
            None => checkpoint::holds_weights(self, held),
        }
    }

    /// Whose weights `model.safetensors` holds, as a clause; none where nobody would ask: the best ones of a run that
    /// came to its end.
    pub fn weights_in_words(&self, summary: &Summary, config: &Config) -> Option<String> {
        let is_at_end = summary.best_step.is_some() && summary.ended != Ended::Diverged;
        let step = summary
            .best_step
            .or_else(|| checkpoint::step_of(self, &WeightsFile::open_own(self.model()).ok()?));
        let words = match step {
            Some(0) if config.run.start().is_none() => {
                "the untrained weights that the run began with".to_string()
            }
            Some(0) => "the weights that the run began with".to_string(),
            Some(step) => format!("the weights of step {}", thousands(step as f64)),
            None => "the last weights that were kept".to_string(),
        };
        (!is_at_end).then_some(words)
    }

    /// Whether weights, vocabulary, samples, metrics, analysis and head scores are of one run.
    fn check_sizes(&self) -> Result<()> {
        let Ok(weights) = WeightsFile::open_own(self.model()) else { return Ok(()) };
        let Ok(Description { model, sizes }) = native::description(&weights) else { return Ok(()) };
        let config = Config::load(Some(&self.config()), &[]).ok();
        let has_own_model = config.as_ref().is_none_or(|config| has_same_shape(&config.model, &model));
        // Weights that came from elsewhere may have room for more tokens than there are.
        let is_its_own =
            config.as_ref().is_some_and(|config| config.run.start().is_none()) && !self.is_imported();
        let vocab = sizes.vocab;
        let tokens = Vocabulary::read(self.vocabulary()).map_or(vocab, |vocabulary| vocabulary.size());
        let has_own_tokens = tokens <= vocab && !(is_its_own && tokens != vocab);
        let written = Hashes::read(self).and_then(|hashes| hashes.vocabulary_sha256);
        let source = config.map_or_else(Source::default, |config| config.data.source);
        let samples = Sample::read(&self.samples(), usize::MAX, source).unwrap_or_default();
        let analysis = Analysis::read(&self.analysis()).ok().flatten();
        let history = HeadHistory::open(&self.head_scores(), usize::MAX).unwrap_or_default();
        let mut scored = history.steps.iter();
        let summary = Summary::read(self).ok();
        let rows = summary.as_ref().and_then(|_| history::read(&self.metrics()).ok());
        let has_own_rows =
            rows.zip(summary.as_ref()).is_none_or(|(rows, summary)| are_rows_of(&rows, summary));
        let is_own = |analysis: &Analysis| {
            let is_best = |summary: &Summary| {
                let of_best = analysis.loss.is_none_or(|loss| is_same(Some(loss), summary.best_valid_loss));
                of_best && Some(analysis.step) == summary.best_step
            };
            are_heads_of(&analysis.heads, &model) && summary.as_ref().is_none_or(is_best)
        };
        let (path, problem) = match () {
            () if !has_own_model => {
                let problem = "holds the weights of another model than config.toml describes";
                (self.model(), format!("{problem}. {RESTORE}"))
            }
            () if !has_own_tokens && self.wrote_weights(&weights) == Some(false) => {
                let tokens = counted(tokens, "token");
                let problem = format!("is another run's: vocabulary.json has {tokens}, and it {vocab}");
                (self.model(), format!("{problem}. {RESTORE}"))
            }
            () if !has_own_tokens => {
                let tokens = counted(tokens, "token");
                let problem = format!("has {tokens}, and the weights beside it have {vocab}");
                (
                    self.vocabulary(),
                    format!("{problem}: it is another run's. Copy this run's vocabulary.json back"),
                )
            }
            () if written
                .is_some_and(|written| sha256(&self.vocabulary()).is_ok_and(|held| held != written)) =>
            {
                let problem = "is not the file that the run wrote, so its tokens may mean something else. Copy this \
                               run's vocabulary.json back";
                (self.vocabulary(), problem.to_string())
            }
            () if !samples.iter().all(|sample| is_read(sample, &model, sizes)) => {
                let problem = "holds sequences that the weights beside it cannot read: it is another run's. Copy \
                               this run's samples.json back";
                (self.samples(), problem.to_string())
            }
            () if !has_own_rows => {
                let problem = "ends with other losses than summary.json says: it is another run's. Copy this run's \
                               metrics.csv back";
                (self.metrics(), problem.to_string())
            }
            () if analysis.is_some_and(|analysis| !is_own(&analysis)) => {
                (self.analysis(), format!("{SCORES}, and they are scored anew"))
            }
            () if scored.any(|scored| !are_heads_of(&scored.heads, &model)) => {
                (self.head_scores(), format!("{SCORES}, or copy this run's head_scores.csv back"))
            }
            () => return Ok(()),
        };
        Err(Error::file(path, problem))
    }
}

/// Whether two configs make a model of the same parameters.
fn has_same_shape(config: &ModelConfig, weights: &ModelConfig) -> bool {
    // These decide how a model starts and trains, not what it is.
    let ModelConfig { dropout, initialisation, .. } = *config;
    ModelConfig { dropout, initialisation, ..weights.clone() } == *config
}

fn is_read(sample: &Sample, model: &ModelConfig, sizes: Sizes) -> bool {
    let tokens = sample.inputs.iter().chain(&sample.targets).chain(sample.source.iter().flatten());
    let reads_source = model.architecture == Architecture::EncoderDecoder;
    let is_short = !model.position.ends_with_context() || sample.inputs.len() <= sizes.context;
    sample.source.is_some() == reads_source
        && is_short
        && tokens.into_iter().all(|&token| (token as usize) < sizes.vocab)
}

/// Whether the last rows are those that the summary of their run knows.
fn are_rows_of(rows: &[Row], summary: &Summary) -> bool {
    let last = |split| rows.iter().rev().find(|row| row.split == split).map(|row| row.loss);
    is_same(last(Split::Train), summary.last_train_loss)
        && is_same(last(Split::Valid), summary.last_valid_loss)
}

/// Whether two files hold the same number, which each has rounded by itself, or both none.
fn is_same(a: Option<f64>, b: Option<f64>) -> bool {
    a.zip(b).map_or(a == b, |(a, b)| (a - b).abs() <= 1e-9 * a.abs())
}

/// Whether scores `[layer][head]` are of this model's heads. An encoder's may stand beside a decoder's.
fn are_heads_of<T>(scores: &[Vec<T>], model: &ModelConfig) -> bool {
    let layers = match model.architecture {
        Architecture::OneLayer => 1,
        Architecture::Decoder | Architecture::EncoderDecoder => model.layers,
    };
    let stacks = match model.architecture {
        Architecture::OneLayer | Architecture::Decoder => 1..=1,
        Architecture::EncoderDecoder => 1..=3,
    };
    let fits = stacks.into_iter().any(|stacks| scores.len() == stacks * layers);
    fits && scores.iter().all(|heads| heads.len() == model.heads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_of_a_model_with_as_many_layers_and_heads() {
        let model = ModelConfig { layers: 3, heads: 2, ..ModelConfig::default() };
        let scores = |layers: usize, heads: usize| vec![vec![0.0; heads]; layers];
        assert!(are_heads_of(&scores(3, 2), &model));
        assert!(!are_heads_of(&scores(3, 4), &model) && !are_heads_of(&scores(2, 2), &model));
        let one = ModelConfig { architecture: Architecture::OneLayer, ..model.clone() };
        assert!(are_heads_of(&scores(1, 2), &one) && !are_heads_of(&scores(3, 2), &one));
        let dropped = ModelConfig { dropout: 0.5, ..model.clone() };
        assert!(has_same_shape(&dropped, &model));
        assert!(!has_same_shape(&ModelConfig { d_model: 32, ..model.clone() }, &model));
    }
}
