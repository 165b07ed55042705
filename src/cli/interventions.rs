//! Options that ablate, scale or steer a model.

use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use glob::Pattern;

use super::steer::{self, MAX_FACTOR, Steering};
use super::{input, prompt};
use crate::analysis::Sample;
use crate::analysis::interventions::{means, scaled};
use crate::config::Config;
use crate::data::{Role, Vocabulary, documents_of};
use crate::error::{Error, Result};
use crate::hooks::ResidualWriter;
use crate::model::{Architecture, Model};
use crate::numbers::counted;
use crate::terminal::warn;
use crate::training::RunFolder;
use crate::weights::native::Description;

/// Interventions on components of the model: heads such as 1.3 (layer and head, from 0), cross-attention heads such as
/// cross.1.3, and feed-forward layers such as 1.mlp.
#[derive(Debug, clap::Args)]
pub struct InterventionArgs {
    /// Ablates components, e.g. "1.3,2.*,0.mlp" (layer.head; 2.* is all heads of layer 2 and its feed-forward layer): their
    /// outputs become their means over the run's stored validation sequences, over the texts of --mean-from, or zero with
    /// --zero.
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',')]
    ablate: Vec<String>,
    /// Replaces the outputs of ablated components by zero instead of their means.
    #[arg(long, requires = "ablate")]
    zero: bool,
    /// Replaces the outputs of ablated components by their means, as is the default.
    #[arg(long, requires = "ablate", conflicts_with = "zero")]
    mean: bool,
    /// Takes the means of ablated components over all positions of the texts in this file: JSON objects with text, one
    /// per line (.jsonl), or one text per line. [default: the run's stored validation sequences]
    #[arg(long, value_name = "FILE", requires = "ablate", conflicts_with = "zero")]
    mean_from: Option<PathBuf>,
    /// Scales the outputs of components, e.g. "1.3=0.5,0.mlp=2".
    #[arg(long = "scale", value_name = "COMPONENT=FACTOR", value_delimiter = ',')]
    scale: Vec<String>,
    /// Adds a vector to the activation at a site, at all positions: the mean over the positions of that site in a file of
    /// `activations`, or over the last tokens of the prompts in a file (.jsonl: JSON objects with text, one per line; .txt:
    /// one prompt per line), times a factor. With two files, separated by a comma, the mean of the second is subtracted.
    #[arg(long, value_name = "FILE:SITE*FACTOR", value_parser = steer::parse)]
    steer: Vec<Steering>,
}

/// The mean outputs of mean-ablated components.
pub type Means = Vec<(ResidualWriter, Vec<f32>)>;

impl InterventionArgs {
    /// Returns the options as they are written on the command line.
    pub fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if !self.ablate.is_empty() {
            let how = match (self.zero, self.mean) {
                (true, _) => " --zero",
                (false, true) => " --mean",
                (false, false) => "",
            };
            let mean_from = self.mean_from.as_ref().map(|path| format!(" --mean-from {}", path.display()));
            let mean_from = mean_from.unwrap_or_default();
            options.push(format!("--ablate {}{how}{mean_from}", self.ablate.join(",")));
        }
        if !self.scale.is_empty() {
            options.push(format!("--scale {}", self.scale.join(",")));
        }
        options.extend(self.steer.iter().map(|steering| format!("--steer {steering}")));
        options
    }

    /// Returns the model with the interventions, and prints what they are.
    ///
    /// # Errors
    /// Returns an error if a component does not exist or is changed twice, or if mean ablation lacks sequences.
    pub fn apply<B: Backend>(
        &self,
        model: Model<B>,
        description: &Description,
        folder: &RunFolder,
        device: &B::Device,
    ) -> Result<Model<B>> {
        Ok(self.apply_with_means(model, description, folder, device)?.0)
    }

    /// Like [`Self::apply`], and returns the mean output of each mean-ablated component. The model adds the mean of a head to
    /// the bias after all heads, so the output of the head itself is zero.
    pub fn apply_with_means<B: Backend>(
        &self,
        mut model: Model<B>,
        description: &Description,
        folder: &RunFolder,
        device: &B::Device,
    ) -> Result<(Model<B>, Means)> {
        let mut kept = Means::new();
        // Prompts are read by the model without other interventions, as files of `activations` are.
        let vectors = self.steer.iter().map(|it| it.vector(&model, (description, folder), device));
        let vectors = vectors.collect::<Result<Vec<_>>>()?;
        let all = ResidualWriter::all(&model);
        let mut ablated = Vec::new();
        for pattern in &self.ablate {
            ablated.extend(matching("--ablate", pattern.trim(), &all)?);
        }
        ablated.sort_unstable();
        ablated.dedup();
        let factors = self.factors(&all, &ablated)?;
        if !ablated.is_empty() {
            let (means, how) = self.replacements(&model, description, folder, (&ablated, device))?;
            let names: Vec<String> = ablated.iter().map(ResidualWriter::to_string).collect();
            let whose = match (self.zero, ablated.len()) {
                (true, _) => "",
                (false, 1) => "its ",
                (false, _) => "their ",
            };
            warn(&format!("notice: {} replaced by {whose}{how}: {}", are(ablated.len()), names.join(", ")));
            for (at, &component) in ablated.iter().enumerate() {
                model = scaled(model, component, 0.0, means.as_ref().map(|means| means[at].as_slice()));
                kept.extend(means.as_ref().map(|means| (component, means[at].clone())));
            }
        }
        if !factors.is_empty() {
            let names: Vec<String> =
                factors.iter().map(|(component, factor)| format!("{component} by {factor}")).collect();
            warn(&format!("notice: {} scaled: {}", are(factors.len()), names.join(", ")));
        }
        for (component, factor) in factors {
            model = scaled(model, component, factor, None);
        }
        // The vector enters a bias, which ablation and scaling would change too.
        for (steering, vector) in self.steer.iter().zip(&vectors) {
            model = vector.add_to(model)?;
            warn(&format!("notice: {}", vector.description));
            if let Some(warning) = steering.foreign_weights(folder)? {
                warn(&warning);
            }
        }
        Ok((model, kept))
    }

    /// Returns the scaled components with their factors.
    fn factors(
        &self,
        all: &[ResidualWriter],
        ablated: &[ResidualWriter],
    ) -> Result<Vec<(ResidualWriter, f64)>> {
        let mut factors = Vec::new();
        for assignment in &self.scale {
            let problem = || {
                let problem = "is not a component with a factor of at most 1e6; write it as 1.3=0.5";
                Error::Input(format!("--scale: `{assignment}` {problem}"))
            };
            let (pattern, factor) = assignment.split_once('=').ok_or_else(problem)?;
            let factor: f64 = factor
                .trim()
                .parse()
                .ok()
                .filter(|factor: &f64| factor.abs() <= MAX_FACTOR)
                .ok_or_else(problem)?;
            for component in matching("--scale", pattern.trim(), all)? {
                if ablated.contains(&component) || factors.iter().any(|(other, _)| *other == component) {
                    let problem = "is changed twice; name it once in --ablate or --scale";
                    return Err(Error::Input(format!("the component {component} {problem}")));
                }
                factors.push((component, factor));
            }
        }
        Ok(factors)
    }

    /// Returns the mean outputs of ablated components, or `None` for zero ablation, with a description.
    fn replacements<B: Backend>(
        &self,
        model: &Model<B>,
        description: &Description,
        folder: &RunFolder,
        (ablated, device): (&[ResidualWriter], &B::Device),
    ) -> Result<(Option<Vec<Vec<f32>>>, String)> {
        if self.zero {
            return Ok((None, "zero (zero ablation)".to_string()));
        }
        let (samples, origin) = match &self.mean_from {
            Some(path) => {
                let samples = texts(path, description, folder)?;
                let origin = format!("{} of {}", counted(samples.len(), "text"), path.display());
                (samples, origin)
            }
            None if folder.samples().is_file() => {
                let samples = Sample::read(&folder.samples(), description.sizes.vocab)?;
                let origin = counted(samples.len(), "stored validation sequence");
                (samples, origin)
            }
            None => Default::default(),
        };
        if samples.is_empty() {
            let problem = "lacks stored validation sequences, over which mean ablation takes its means; name a file of texts \
                           with --mean-from, or add --zero";
            return Err(Error::Input(format!("the run `{}` {problem}", folder.path().display())));
        }
        Ok((Some(means(model, &samples, ablated, device)?), format!("mean over {origin} (mean ablation)")))
    }
}

/// Returns the sequences of the texts in a file.
fn texts(path: &Path, description: &Description, folder: &RunFolder) -> Result<Vec<Sample>> {
    if description.model.architecture == Architecture::EncoderDecoder {
        let problem = "an encoder-decoder reads two texts; omit the option, or add --zero";
        return Err(Error::Input(format!("--mean-from: {problem}")));
    }
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let texts = prompt::prompts(path, &vocabulary)?;
    let documents = Config::load_own(&folder.config())?.data.text_documents();
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    input::check_length(description, longest, 0).map_err(|error| Error::file(path, error.to_string()))?;
    let sample = |tokens: Vec<u32>| Sample {
        targets: tokens.clone(),
        roles: vec![Role::Unknown; tokens.len()],
        documents: documents_of(documents, &tokens, &vocabulary),
        inputs: tokens,
        source: None,
    };
    Ok(texts.into_iter().map(sample).collect())
}

/// Returns the name of a run, with the options that alter its model if there are any.
pub fn named(run: String, options: &[String]) -> String {
    if options.is_empty() { run } else { format!("{run} ({})", options.join(" ")) }
}

fn are(count: usize) -> String {
    format!("{} {}", counted(count, "component"), if count == 1 { "is" } else { "are" })
}

/// Returns the components that match a pattern.
fn matching(option: &str, pattern: &str, all: &[ResidualWriter]) -> Result<Vec<ResidualWriter>> {
    let wanted = Pattern::new(pattern)
        .map_err(|error| Error::Input(format!("{option}: `{pattern}` is not a pattern: {error}")))?;
    let found: Vec<ResidualWriter> =
        all.iter().copied().filter(|component| wanted.matches(&component.to_string())).collect();
    if found.is_empty() {
        let names: Vec<String> = all.iter().map(ResidualWriter::to_string).collect();
        let (first, last) =
            (names.first().cloned().unwrap_or_default(), names.last().cloned().unwrap_or_default());
        return Err(Error::Input(format!(
            "{option}: `{pattern}` matches no component of this model; the components are {first} to {last}, as \
             layer.head or layer.mlp"
        )));
    }
    Ok(found)
}
