//! `--steer`: vectors from files of `activations`.

use std::fmt;
use std::path::PathBuf;

use burn::tensor::backend::Backend;

use crate::analysis::activations::{LOGITS, RecordableSite, WEIGHTS_ENTRY};
use crate::analysis::steering::steered;
use crate::error::{Error, Result};
use crate::files::sha256;
use crate::model::Model;
use crate::training::RunFolder;
use crate::weights::file::WeightsFile;

/// The maximum factor of an intervention. Norms of much larger activations overflow, which would erase the activations.
pub const MAX_FACTOR: f64 = 1e6;

/// A vector to add at a site: the mean over the positions of an activation, minus that of another file if there is one.
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
        "write FILE:SITE*FACTOR, such as a.safetensors:resid_post.1*2, with a factor of at most 1e6"
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

impl Steering {
    /// Returns the model with the vector added.
    ///
    /// # Errors
    /// Returns an error if a file lacks the site, or if the site cannot be steered.
    pub fn apply<B: Backend>(&self, model: Model<B>, device: &B::Device) -> Result<Model<B>> {
        let all = RecordableSite::all(&model, device)?;
        let site = all.iter().map(|at| at.site).find(|site| site.to_string() == self.site);
        let Some(site) = site else {
            let problem = match self.site == LOGITS {
                true => "cannot be steered; add the vector to final",
                false => "is not a site of this model; `activations --list` lists all",
            };
            return Err(Error::Input(format!("--steer: `{}` {problem}", self.site)));
        };
        let vectors = self.files.iter().map(|file| self.mean(file)).collect::<Result<Vec<_>>>()?;
        let (first, minus) = (&vectors[0], vectors.get(1));
        if minus.is_some_and(|minus| minus.len() != first.len()) {
            let problem = "the files have activations of different widths; pass files of the same model";
            return Err(Error::Input(format!("--steer: {problem}")));
        }
        let subtracted = |at: usize| minus.map_or(0.0, |minus| minus[at]);
        let vector =
            first.iter().enumerate().map(|(at, value)| (self.factor * (value - subtracted(at))) as f32);
        steered(model, site, &vector.collect::<Vec<_>>())
            .map_err(|error| Error::Input(format!("--steer: {error}")))
    }

    /// Returns the mean over the positions of the activation in a file, `[d_model]` or `[time, d_model]`.
    fn mean(&self, path: &PathBuf) -> Result<Vec<f64>> {
        let file = WeightsFile::open(path)?;
        let tensors = file.tensors()?;
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
        for path in &self.files {
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

    /// Describes the vector.
    pub fn describe(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        format!(
            "{} times the mean of {} is added to {}",
            self.factor,
            files.join(" minus that of "),
            self.site
        )
    }
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
