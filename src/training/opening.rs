//! Opening a run folder: checks that it holds a run, and that its files belong together.
//!
//! Weights or a vocabulary copied from another run would give a model that reads different tokens than it was trained
//! on. Opening a folder therefore checks the sizes, and the hashes in the summary except the hashes of weights and
//! config. Loading the weights checks their hash. Each error names the file at fault. An unreadable file is reported
//! when it is needed.

use std::path::PathBuf;

use super::{
    checkpoint,
    run_folder::RunFolder,
    stopping::Ended,
    summary::{Hashes, Scores, Summary},
};
use crate::analysis::circuit::Explanation;
use crate::analysis::{Analysis, HeadHistory, Sample};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{HASH_MISMATCH, exists, has_entry, open_own, sha256};
use crate::model::{Architecture, ModelConfig, Sizes};
use crate::numbers::{counted, thousands};
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description};

/// The remedy for weights that do not belong to the run.
const RESTORE_REMEDY: &str = ", or remove it and let train --resume restore it from a checkpoint";

/// The problem if scores do not match the heads of the model.
const SCORES_PROBLEM: &str =
    "has a different number of heads than the weights next to it and belongs to another run";

impl RunFolder {
    /// Opens the run at `path`.
    ///
    /// # Errors
    /// If the folder does not exist, is not a run folder, or contains files of different runs.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let folder = Self::at(path);
        let shown = folder.path().display();
        if exists(folder.path())? {
            exists(&folder.config())?;
        }
        let has_config = has_entry(&folder.config());
        let problem = if folder.path().is_file() {
            format!("`{shown}` is a file; pass the folder of a run")
        } else if !folder.path().is_dir() {
            format!("`{shown}`: no such run folder; `train` writes one")
        } else if has_config && folder.path().join("trials").is_dir() {
            format!(
                "`{shown}` is the folder of a study; pass one of its runs, `{shown}/trials/...`, or draw the \
                study's pictures with `tune --resume {shown}`"
            )
        } else if !has_config || !folder.checkpoints().is_dir() && !folder.model().is_file() {
            format!("`{shown}` is not a run folder: it lacks config.toml, or checkpoints and weights")
        } else {
            open_own(&folder.config())?;
            folder.check_sizes()?;
            return Ok(folder);
        };
        Err(Error::Input(problem))
    }

    /// Opens `model.safetensors` without checking that the run wrote it.
    ///
    /// # Errors
    /// If the run does not have weights yet: the first validation writes them.
    pub fn unverified_weights(&self) -> Result<WeightsFile> {
        if !self.model().exists() && self.checkpoints().is_dir() {
            let run = self.path().display();
            return Err(Error::Input(format!(
                "`{run}` does not have a model.safetensors yet: the first validation writes it; continue the \
                run with `train --resume {run}`"
            )));
        }
        WeightsFile::open_own(self.model())
    }

    /// Opens `model.safetensors`.
    ///
    /// # Errors
    /// If the run does not have weights yet, or the file has changed since the run wrote it.
    pub fn weights(&self) -> Result<WeightsFile> {
        let file = self.unverified_weights()?;
        match self.wrote_weights(&file)? {
            Some(false) => Err(file.error(format!(
                "has changed since the run wrote it; copy this run's model.safetensors back{RESTORE_REMEDY}"
            ))),
            Some(true) | None => Ok(file),
        }
    }

    /// Opens `model.safetensors`, and logs a notice if the run diverged and so has no best weights.
    ///
    /// # Errors
    /// Same as [`Self::weights`].
    pub fn best_weights(&self) -> Result<WeightsFile> {
        if let (Ok(summary), Ok(config)) = (Summary::read(self), Config::load_own(&self.config()))
            && summary.losses.best_step.is_none()
            && summary.ended == Ended::Diverged
            && let Some(words) = self.describe_weights(&summary, &config)
        {
            let run = self.path().display();
            log::info!(
                "the run `{run}` diverged before any reliable validation, so model.safetensors holds {words}"
            );
        }
        self.weights()
    }

    /// Returns true if the run wrote these weights. `None` if neither its summary nor, without a summary, its
    /// checkpoints hold the hash.
    fn wrote_weights(&self, file: &WeightsFile) -> Result<Option<bool>> {
        let held = file.sha256()?;
        Ok(match Hashes::read(self) {
            Some(hashes) => hashes.weights_sha256.map(|written| written == held),
            None => checkpoint::holds_weights(self, &held),
        })
    }

    /// Returns a noun phrase for the weights in `model.safetensors`. `None` for the default: the best weights of a run
    /// that has not diverged.
    pub fn describe_weights(&self, summary: &Summary, config: &Config) -> Option<String> {
        let is_at_end = summary.losses.best_step.is_some() && summary.ended != Ended::Diverged;
        let step =
            summary.losses.best_step.or_else(|| checkpoint::step_of(self, &sha256(&self.model()).ok()?));
        let words = match step {
            Some(0) if config.run.start().is_none() => "the untrained weights".to_string(),
            Some(0) => "the weights at the start of the run".to_string(),
            Some(step) => format!("the weights of step {}", thousands(step as f64)),
            None => "the last saved weights".to_string(),
        };
        (!is_at_end).then_some(words)
    }

    /// Returns true if `config.toml` was edited after the run had ended. Such an edit is allowed, for example to
    /// continue the run or to set the new path of the data, but the results belong to the config before the edit.
    pub fn has_changed_config(&self) -> bool {
        let written = Hashes::read(self).and_then(|hashes| hashes.config_sha256);
        written.is_some_and(|written| sha256(&self.config()).is_ok_and(|held| held != written))
    }

    /// Rejects files whose hashes differ from those in the summary.
    fn check_hashes(&self, hashes: &Hashes) -> Result<()> {
        let mut foreign = Vec::new();
        for (path, written, alternative) in [
            (self.vocabulary(), &hashes.vocabulary_sha256, ""),
            (self.samples(), &hashes.samples_sha256, ""),
            (self.metrics(), &hashes.metrics_sha256, ""),
            (self.head_scores(), &hashes.head_scores_sha256, ", or remove it"),
            (self.snapshots(), &hashes.snapshots_sha256, ", or remove it"),
            (self.analysis(), &hashes.analysis_sha256, ", or remove it to score the heads again"),
        ] {
            if written.is_some() && sha256(&path).is_ok_and(|held| Some(&held) != written.as_ref()) {
                foreign.push((path, alternative));
            }
        }
        match &foreign[..] {
            [] => Ok(()),
            [(path, alternative)] => Err(Error::file(path, format!("{HASH_MISMATCH}{alternative}"))),
            [(first, _), (second, _), ..] => {
                let names = [first, second].map(|path| path.file_name().unwrap_or_default().display());
                let [first, second] = names;
                let problem = format!(
                    "does not match the {first} and {second} next to it and belongs to another run; copy \
                    this run's file back"
                );
                Err(Error::file(self.summary(), problem))
            }
        }
    }

    /// Rejects weights, vocabulary, samples, analysis and head scores that belong to different runs.
    fn check_sizes(&self) -> Result<()> {
        let hashes = Hashes::read(self).unwrap_or_default();
        self.check_hashes(&hashes)?;
        if has_entry(&self.summary()) {
            Scores::check(self)?;
        }
        let Ok(weights) = WeightsFile::open_own(self.model()) else { return Ok(()) };
        let Ok(Description { model, sizes }) = native::description(&weights) else { return Ok(()) };
        let config = Config::load_own(&self.config()).ok();
        let has_own_model = config.as_ref().is_none_or(|config| has_same_shape(&config.model, &model));
        // Weights that this run did not initialise may have embeddings for more tokens than the vocabulary has.
        let has_own_weights =
            config.as_ref().is_some_and(|config| config.run.start().is_none()) && !self.has_foreign_weights();
        let vocab = sizes.vocab;
        let tokens = Vocabulary::read(self.vocabulary()).map_or(vocab, |vocabulary| vocabulary.size());
        let has_own_tokens = tokens <= vocab && !(has_own_weights && tokens != vocab);
        let samples = Sample::read(&self.samples(), usize::MAX).unwrap_or_default();
        let [counts, vocab] = [tokens, vocab].map(|count| counted(count, "token"));
        // The file at fault, its problem, and the alternative to copying the run's own file back.
        let (path, problem, alternative) = if !has_own_model && self.wrote_weights(&weights)? == Some(true) {
            (
                self.config(),
                "describes a different model than the weights next to it, which this run wrote".to_string(),
                ", or restore its section [model]",
            )
        } else if !has_own_model {
            (
                self.model(),
                "holds the weights of a different model than config.toml describes".into(),
                RESTORE_REMEDY,
            )
        } else if !has_own_tokens && self.wrote_weights(&weights)? == Some(false) {
            (
                self.model(),
                format!("belongs to another run: vocabulary.json has {counts}, but the weights have {vocab}"),
                RESTORE_REMEDY,
            )
        } else if !has_own_tokens {
            let problem =
                format!("has {counts}, but the weights next to it have {vocab}: it belongs to another run");
            (self.vocabulary(), problem, "")
        } else if !samples.iter().all(|sample| is_readable(sample, &model, sizes)) {
            let problem =
                "contains sequences that the weights next to it cannot read, and belongs to another run";
            (self.samples(), problem.into(), "")
        } else if let Some((path, problem, alternative)) = self.mismatched_analysis(&model, &hashes) {
            (path, problem.into(), alternative)
        } else {
            return Ok(());
        };
        let name = path.file_name().unwrap_or_default().display();
        let problem = format!("{problem}; copy this run's {name} back{alternative}");
        Err(Error::file(path, problem))
    }

    /// Returns the first file of an analysis that does not fit the weights, its problem, and an alternative to
    /// restoring the file.
    fn mismatched_analysis(
        &self,
        model: &ModelConfig,
        hashes: &Hashes,
    ) -> Option<(PathBuf, &'static str, &'static str)> {
        let analysis = Analysis::read(&self.analysis()).ok().flatten();
        if analysis.is_some_and(|analysis| !scores_match(&analysis.heads, model)) {
            return Some((self.analysis(), SCORES_PROBLEM, ", or remove it to score them again"));
        }
        let circuit = Explanation::read(&self.circuit()).ok().flatten();
        let weights = hashes.weights_sha256.as_deref();
        if circuit.is_some_and(|circuit| !circuit_matches(&circuit, model, weights)) {
            let problem = "explains different weights than the ones next to it and belongs to another run";
            return Some((self.circuit(), problem, ", or remove it and run `explain` again"));
        }
        let history = HeadHistory::open(&self.head_scores(), usize::MAX).ok()?;
        let is_mismatched = history.all.iter().any(|scored| !scores_match(&scored.heads, model));
        is_mismatched.then(|| (self.head_scores(), SCORES_PROBLEM, ", or remove it"))
    }
}

/// Rejects a run whose config describes a different model than `written`, the description in its checkpoint.
pub(super) fn check_model(folder: &RunFolder, config: &Config, written: &Description) -> Result<()> {
    match has_same_shape(&config.model, &written.model) {
        true => Ok(()),
        false => {
            let problem =
                "describes a different model than the checkpoints of this run; restore its section [model]";
            Err(Error::file(folder.config(), problem))
        }
    }
}

/// Returns true if two configs describe models with the same parameters.
fn has_same_shape(config: &ModelConfig, weights: &ModelConfig) -> bool {
    // These keys affect initialisation and training only.
    let ModelConfig { dropout, initialisation, zero_projections, .. } = *config;
    ModelConfig { dropout, initialisation, zero_projections, ..weights.clone() } == *config
}

fn is_readable(sample: &Sample, model: &ModelConfig, sizes: Sizes) -> bool {
    let tokens = sample.inputs.iter().chain(&sample.targets).chain(sample.source.iter().flatten());
    let reads_source = model.architecture == Architecture::EncoderDecoder;
    let fits_context = !model.position.ends_with_context() || sample.inputs.len() <= sizes.context;
    sample.source.is_some() == reads_source
        && fits_context
        && tokens.into_iter().all(|&token| (token as usize) < sizes.vocab)
}

/// Returns true if an explanation belongs to this model and, if the hash `written` is known, to these weights.
fn circuit_matches(circuit: &Explanation, model: &ModelConfig, written: Option<&str>) -> bool {
    let is_of_weights = |explained: &str| written.is_none_or(|written| written == explained);
    scores_match(&circuit.heads.weights, model)
        && circuit.basis.weights_sha256.as_deref().is_none_or(is_of_weights)
}

/// Returns true if the scores `[layer][head]` fit the heads of this model. An encoder-decoder may have scores of its
/// encoder as well.
fn scores_match<T>(scores: &[Vec<T>], model: &ModelConfig) -> bool {
    let (layers, stacks) = match model.architecture {
        Architecture::OneLayer => (1, 1),
        Architecture::Decoder => (model.layers, 1),
        Architecture::EncoderDecoder => (model.layers, 3),
    };
    (1..=stacks).any(|stacks| scores.len() == stacks * layers)
        && scores.iter().all(|heads| heads.len() == model.heads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_scores_must_match_layers_and_heads() {
        let model = ModelConfig { layers: 3, heads: 2, ..ModelConfig::default() };
        let scores = |layers: usize, heads: usize| vec![vec![0.0; heads]; layers];
        assert!(scores_match(&scores(3, 2), &model));
        assert!(!scores_match(&scores(3, 4), &model) && !scores_match(&scores(2, 2), &model));
        let one = ModelConfig { architecture: Architecture::OneLayer, ..model.clone() };
        assert!(scores_match(&scores(1, 2), &one) && !scores_match(&scores(3, 2), &one));
        let dropped = ModelConfig { dropout: 0.5, ..model.clone() };
        assert!(has_same_shape(&dropped, &model));
        assert!(!has_same_shape(&ModelConfig { d_model: 32, ..model.clone() }, &model));
    }
}
