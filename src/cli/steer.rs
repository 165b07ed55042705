//! `--steer`: vectors from files of `activations` or of prompts.

use std::fmt;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;

use super::{input, prompt};
use crate::analysis::activations::{LOGITS, RecordableSite, WEIGHTS_ENTRY};
use crate::analysis::steering::{last_activation_mean, steered};
use crate::config::Config;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files::sha256;
use crate::hooks::HookSite;
use crate::model::{Architecture, Model};
use crate::numbers::counted;
use crate::training::RunFolder;
use crate::weights::file::WeightsFile;
use crate::weights::native::Description;

/// The maximum factor of an intervention. Norms of much larger activations overflow, which would erase the activations.
pub const MAX_FACTOR: f64 = 1e6;

/// A vector to add at a site: the mean of an activation in a file or on the prompts of a file, minus that of another file if
/// there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Steering {
    files: Vec<PathBuf>,
    site: String,
    factor: f64,
}

/// Parses `FILE:SITE*FACTOR` or `FILE,MINUS_FILE:SITE*FACTOR`; without a factor it is 1.
pub fn parse(text: &str) -> Result<Steering, String> {
    let parsed = || {
        let (rest, factor) = match text.rsplit_once('*') {
            Some((rest, factor)) => {
                (rest, factor.trim().parse().ok().filter(|it: &f64| it.abs() <= MAX_FACTOR)?)
            }
            None => (text, 1.0),
        };
        let (files, site) = rest.rsplit_once(':')?;
        let files: Vec<PathBuf> = files.split(',').map(PathBuf::from).collect();
        let is_complete = !site.is_empty() && files.iter().all(|file| !file.as_os_str().is_empty());
        (is_complete && files.len() <= 2).then(|| Steering { files, site: site.to_string(), factor })
    };
    parsed().ok_or_else(|| {
        "write FILE:SITE*FACTOR, such as a.safetensors:resid_post.1*2, or FILE,FILE:SITE*FACTOR for a difference, with a \
         factor of at most 1e6"
            .to_string()
    })
}

impl fmt::Display for Steering {
    /// Writes the text that [`parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        write!(f, "{}:{}*{}", files.join(","), self.site, self.factor)
    }
}

/// A vector with its site, and a description of both.
pub struct SteeringVector {
    site: HookSite,
    values: Vec<f32>,
    /// The origin of the vector, its factor and its site.
    pub description: String,
}

impl SteeringVector {
    /// Returns the model with the vector added.
    ///
    /// # Errors
    /// Returns an error if the site cannot be steered, or if its width differs.
    pub fn add_to<B: Backend>(&self, model: Model<B>) -> Result<Model<B>> {
        steered(model, self.site, &self.values).map_err(|error| Error::Input(format!("--steer: {error}")))
    }
}

impl Steering {
    /// Returns the vector, for which the model reads the prompts of files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or lacks the site, or if the model does not have the site.
    pub fn vector<B: Backend>(
        &self,
        model: &Model<B>,
        (description, folder): (&Description, &RunFolder),
        device: &B::Device,
    ) -> Result<SteeringVector> {
        let all = RecordableSite::all(model, device)?;
        let site = all.iter().map(|at| at.site).find(|site| site.to_string() == self.site);
        let Some(site) = site else {
            let problem = match self.site == LOGITS {
                true => "cannot be steered; add the vector to final",
                false => "is not a site of this model; `activations --list` lists all",
            };
            return Err(Error::Input(format!("--steer: `{}` {problem}", self.site)));
        };
        let mean = |path: &PathBuf| match prompt::is_prompts(path) {
            true => on_prompts(path, (model, site), (description, folder), device),
            false => Ok((self.mean(path)?, format!("the mean of {}", path.display()))),
        };
        let means = self.files.iter().map(mean).collect::<Result<Vec<_>>>()?;
        let (first, minus) = (&means[0].0, means.get(1).map(|(minus, _)| minus));
        if minus.is_some_and(|minus| minus.len() != first.len()) {
            let problem = "the files have activations of different widths; pass files of the same model";
            return Err(Error::Input(format!("--steer: {problem}")));
        }
        let subtracted = |at: usize| minus.map_or(0.0, |minus| minus[at]);
        let values =
            first.iter().enumerate().map(|(at, value)| (self.factor * (value - subtracted(at))) as f32);
        let origins: Vec<&str> = means.iter().map(|(_, origin)| origin.as_str()).collect();
        let description =
            format!("{} times {} is added to {}", self.factor, origins.join(" minus "), self.site);
        Ok(SteeringVector { site, values: values.collect(), description })
    }

    /// Returns the mean over the positions of the activation in a file, `[d_model]` or `[time, d_model]`.
    fn mean(&self, path: &Path) -> Result<Vec<f64>> {
        let file = WeightsFile::open(path)?;
        let tensors = file.tensors().map_err(|error| match error {
            Error::File { .. } if path.extension().is_none_or(|it| it != "safetensors") => {
                file.error(NOT_A_VECTOR)
            }
            other => other,
        })?;
        let Some(tensor) = tensors.iter().find(|tensor| tensor.name == self.site) else {
            let names: Vec<&str> = tensors.iter().take(8).map(|tensor| tensor.name.as_str()).collect();
            let problem = format!("has no activation `{}`, only {}", self.site, names.join(", "));
            return Err(file.error(problem));
        };
        let width = match tensor.shape[..] {
            [width] | [_, width] if width > 0 => width,
            _ => return Err(file.error(format!("`{}` must be [time, d_model] or [d_model]", self.site))),
        };
        let values: Vec<f64> = tensor.read()?.iter::<f64>().collect();
        let rows = (values.len() / width).max(1) as f64;
        let mut mean = vec![0.0; width];
        for row in values.chunks(width) {
            mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value / rows);
        }
        Ok(mean)
    }

    /// Returns a warning if a file was recorded with weights other than those of the run.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn foreign_weights(&self, folder: &RunFolder) -> Result<Option<String>> {
        let mut held = None;
        for path in self.files.iter().filter(|path| !prompt::is_prompts(path)) {
            let Some(written) = WeightsFile::open(path)?.metadata()?.remove(WEIGHTS_ENTRY) else { continue };
            let held = match &mut held {
                Some(held) => held,
                empty => empty.insert(sha256(&folder.model())?),
            };
            if written != *held {
                return Ok(Some(format!(
                    "warning: --steer: {} was recorded with other weights than those of this run, so its directions can \
                     have another meaning here; record it again with `activations`",
                    path.display()
                )));
            }
        }
        Ok(None)
    }
}

/// The problem with a file that is neither safetensors nor, by its name, prompts.
const NOT_A_VECTOR: &str = "is not a file of `activations` (.safetensors); name a file of prompts .jsonl (JSON objects with text) \
                            or .txt (one prompt per line)";

/// Returns the mean activation at the last token of the prompts in a file, with its origin.
fn on_prompts<B: Backend>(
    path: &Path,
    (model, site): (&Model<B>, HookSite),
    (description, folder): (&Description, &RunFolder),
    device: &B::Device,
) -> Result<(Vec<f64>, String)> {
    if description.model.architecture == Architecture::EncoderDecoder {
        let problem = "an encoder-decoder reads two texts, so prompts do not give a vector; pass a file of `activations`";
        return Err(Error::Input(format!("--steer: {problem}")));
    }
    let vocabulary = Vocabulary::read(folder.vocabulary())?;
    let mut prompts = prompt::prompts(path, &vocabulary)?;
    let documents = Config::load_own(&folder.config())?.data.text_documents();
    for prompt in &mut prompts {
        // The last token sees only its own document.
        *prompt = prompt::last_document(prompt, documents, &vocabulary).to_vec();
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    input::check_length(description, longest, 0).map_err(|error| Error::file(path, error.to_string()))?;
    let mean = last_activation_mean(model, &prompts, site, device)
        .map_err(|error| Error::Input(format!("--steer: {error}")))?;
    let count = counted(prompts.len(), "prompt");
    Ok((mean, format!("the mean at the last token of the {count} of {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steering_names_files_a_site_and_a_factor() {
        let steering = |files: &[&str], site: &str, factor| Steering {
            files: files.iter().map(PathBuf::from).collect(),
            site: site.to_string(),
            factor,
        };
        assert_eq!(parse("a.st:resid_mid.0"), Ok(steering(&["a.st"], "resid_mid.0", 1.0)));
        assert_eq!(
            parse("c:/a.st,b.st:mlp.1.out*-2.5"),
            Ok(steering(&["c:/a.st", "b.st"], "mlp.1.out", -2.5))
        );
        for wrong in
            ["a.st", "a.st:", ":resid_mid.0", "a,b,c:resid_mid.0", "a:resid_mid.0*x", "a:resid_mid.0*inf"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
