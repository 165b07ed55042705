//! The runs that a run started from, and the validation sequences that they were trained on.

use std::collections::HashSet;
use std::path::PathBuf;

use super::checkpoint::data_fingerprint;
use super::run_folder::RunFolder;
use super::start::dataset_of;
use crate::config::Config;
use crate::data::{DataConfig, Dataset, Sequences, Source, leaked_samples};

/// The minimum length of the windows of a text that are compared. Shorter ones recur by chance.
const MIN_WINDOW: usize = 16;

/// The maximum number of runs in a lineage; each may take a pass over its data.
const MAX_RUNS: usize = 16;

impl RunFolder {
    /// Returns this run and the runs that it started from, directly or through others, newest first.
    pub fn lineage(&self) -> Vec<Self> {
        let is_same =
            |run: &Self, other: &Self| run.path().canonicalize().ok() == other.path().canonicalize().ok();
        let mut runs = vec![self.clone()];
        while runs.len() < MAX_RUNS
            && let Some(start) = runs.last().and_then(Self::start)
            // A folder may have been replaced by a run that started from it.
            && !runs.iter().any(|run| is_same(run, &start))
        {
            runs.push(start);
        }
        runs
    }

    /// Returns the run that this run started from. `None` if there is none, or if its folder no longer exists. A
    /// missing folder is not reported, because a run is often shared without its predecessors.
    fn start(&self) -> Option<Self> {
        let config = Config::load_own(&self.config()).ok()?;
        Self::open(config.run.start()?).ok()
    }
}

/// The sequences of a set that the runs of a lineage were trained on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainedOn {
    /// The number of sequences. Sequences in both sets of the current run are not counted, because the warnings about
    /// its data report them.
    pub sequences: usize,
    /// The training data that could not be compared.
    pub unchecked: Vec<Unchecked>,
}

/// Training data that could not be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unchecked {
    /// A data file that has changed since a run.
    Changed(PathBuf),
    /// A data file that does not exist any more.
    Missing(PathBuf),
    /// A run that does not exist any more.
    MissingRun(PathBuf),
}

impl TrainedOn {
    /// Returns the reasons why data could not be compared, joined by "and"; `None` if all of it was. `runs` describes
    /// the runs.
    pub fn gaps(&self, runs: &str) -> Option<String> {
        let describe = |unchecked: &Unchecked| match unchecked {
            Unchecked::Changed(path) => format!("`{}` has changed since {runs} was trained", path.display()),
            Unchecked::Missing(path) => format!("the training data `{}` is missing", path.display()),
            Unchecked::MissingRun(path) => format!("the run `{}` is missing", path.display()),
        };
        let reasons: Vec<String> = self.unchecked.iter().map(describe).collect();
        (!reasons.is_empty()).then(|| reasons.join(" and "))
    }

    /// Returns the addition to a message with the number of sequences; empty if all data was compared.
    pub fn uncounted(&self, runs: &str) -> String {
        self.gaps(runs).map_or_else(String::new, |gaps| format!("; {gaps}, so the number may be higher"))
    }
}

/// Returns how many sequences of `set`, a set of `dataset`, the runs of a lineage were trained on, without its first
/// `skipped` runs. `data` is the section of the config from which `dataset` was read.
pub fn trained_on(
    lineage: &[RunFolder],
    skipped: usize,
    data: &DataConfig,
    dataset: &Dataset,
    set: &Sequences,
) -> TrainedOn {
    let (mut samples, mut unchecked, mut read) = (HashSet::new(), Vec::new(), Vec::new());
    for run in lineage.iter().skip(skipped) {
        let own = Config::load_own(&run.config()).ok().filter(|_| !run.is_imported());
        let own = own.filter(|own| own.data.source() != Source::Sequences);
        let Some((own, fingerprint)) = own.zip(data_fingerprint(run)) else { continue };
        if read.contains(&(own.data.clone(), fingerprint)) {
            continue;
        }
        match samples_of(run, &own, fingerprint, (data, dataset), set) {
            Some(seen) => samples.extend(seen),
            None if own.data.path.are_files() => {
                unchecked.push(Unchecked::Changed(own.data.path.first().to_path_buf()));
            }
            None => unchecked.push(Unchecked::Missing(own.data.path.first().to_path_buf())),
        }
        read.push((own.data, fingerprint));
    }
    let start =
        lineage.last().and_then(|run| Config::load_own(&run.config()).ok()?.run.start().map(PathBuf::from));
    let missing = start.filter(|start| lineage.len() < MAX_RUNS && !start.exists());
    unchecked.extend(missing.map(Unchecked::MissingRun));
    TrainedOn { sequences: samples.len(), unchecked }
}

/// Returns the indices of the sequences of `set` that the run in `folder` was trained on with the config `own`. `None`
/// if its data has changed since, or is missing.
fn samples_of(
    folder: &RunFolder,
    own: &Config,
    fingerprint: u64,
    (data, dataset): (&DataConfig, &Dataset),
    set: &Sequences,
) -> Option<Vec<usize>> {
    if own.data == *data {
        return (dataset.fingerprint() == fingerprint).then(Vec::new);
    }
    let are_texts =
        [&own.data, data].iter().all(|data| matches!(data.source(), Source::Text | Source::Array));
    if are_texts && data.length.min(set.targets()) < own.data.length.min(MIN_WINDOW) {
        return Some(Vec::new());
    }
    let own = dataset_of(own, folder).ok().filter(|own| own.fingerprint() == fingerprint)?;
    Some(leaked_samples(&own.train, set))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lineage_ends_at_missing_runs_and_cycles() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str, from: &str| {
            let folder = dir.path().join(name);
            fs::create_dir_all(folder.join("checkpoints")).unwrap();
            let from = dir.path().join(from);
            fs::write(folder.join("config.toml"), format!("[run]\nfrom = '{}'\n", from.display())).unwrap();
            RunFolder::at(folder)
        };
        let names = |run: &RunFolder| run.lineage().iter().map(RunFolder::name).collect::<Vec<_>>();
        run("first", "lost");
        run("second", "first");
        assert_eq!(names(&run("third", "second")), ["third", "second", "first"]);
        run("first", "third");
        assert_eq!(names(&RunFolder::at(dir.path().join("second"))), ["second", "first", "third"]);
        (0..40_usize).for_each(|number| drop(run(&number.to_string(), &(number + 1).to_string())));
        assert_eq!(names(&RunFolder::at(dir.path().join("0"))).len(), MAX_RUNS);
    }
}
