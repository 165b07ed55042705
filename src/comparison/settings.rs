//! Comparison of runs: the settings in which they differ, their results, and a test of each difference against the
//! noise between seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::compared::ComparedRun;
use super::differences::{differing_keys, shown, values_of};
use super::listing::{is_run, is_study, read_all, runs_in, trials_in};
use super::statistics::{GroupMean, WelchTest, corrected};
use crate::error::{Error, Result};
use crate::numbers::{counted, fixed};

/// The maximum number of runs in a comparison.
const MAX_RUNS: usize = 50;

/// The maximum length of a setting's name in a table or a sentence, in characters. JSON output is never cut.
pub const MAX_NAME: usize = 60;
/// The significance level: differences with a larger p-value are attributed to chance.
const SIGNIFICANCE_LEVEL: f64 = 0.05;

/// Returns, for each run, true if an earlier run has the same setting and seed, so that both are the same run.
fn repeats(runs: &[ComparedRun], settings: &[BTreeMap<String, String>]) -> Vec<bool> {
    let is_same =
        |a: usize, b: usize| settings[a] == settings[b] && runs[a].experiment.seed == runs[b].experiment.seed;
    // Runs with a loss come before runs that were stopped.
    let has_ended = |index: usize| Measure::Loss.of(&runs[index]).is_some();
    let is_before = |a: usize, b: usize| (!has_ended(a), a) < (!has_ended(b), b);
    let is_repeat = |index: usize| (0..runs.len()).any(|it| is_same(it, index) && is_before(it, index));
    (0..runs.len()).map(is_repeat).collect()
}

/// A comparison of runs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The keys in which runs differ, without the seed.
    pub keys: Vec<String>,
    /// The quantity compared: the loss above the floor if all floors are known, otherwise the loss.
    pub measure: Measure,
    /// The settings, best first. The runs of a setting differ only in their seed, or agree in the key given as `by`.
    pub settings: Vec<ComparedSetting>,
    /// All runs, in the order of the settings, and within each setting best first.
    pub runs: Vec<ComparedRun>,
    /// The findings as sentences.
    pub sentences: Vec<String>,
}

/// The quantity by which settings are compared, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The lowest validation loss of a run.
    Loss,
    /// The lowest validation loss minus the loss of the optimal predictor.
    AboveFloor,
}

impl Measure {
    /// Returns the name of the quantity.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::AboveFloor => "loss above the floor",
        }
    }

    /// Returns the value for a run; `None` if it is not finite or the run did not end regularly.
    pub fn of(self, run: &ComparedRun) -> Option<f64> {
        let value = match self {
            Self::Loss => run.losses.best_valid_loss,
            Self::AboveFloor => run.losses.above_floor,
        };
        value.filter(|value| value.is_finite() && run.has_ended())
    }
}

/// The runs of one setting.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedSetting {
    /// The values of the keys in which settings differ.
    pub values: BTreeMap<String, String>,
    /// The number of runs, including runs without a loss.
    pub runs: usize,
    /// The mean of the runs' lowest validation losses.
    pub loss: Option<GroupMean>,
    /// The mean of the runs' losses above the floor.
    pub above_floor: Option<GroupMean>,
    /// The comparison with the best setting.
    pub beside_best: Option<WelchTest>,
    /// The p-value of that comparison, corrected for multiple tests (Holm).
    pub p_corrected: Option<f64>,
}

impl ComparedSetting {
    /// Creates a setting from the runs that share these values.
    fn new(values: BTreeMap<String, String>, members: &[&ComparedRun]) -> Self {
        let mean = |measure: Measure| {
            GroupMean::of(&members.iter().filter_map(|run| measure.of(run)).collect::<Vec<f64>>())
        };
        let [loss, above_floor] = [Measure::Loss, Measure::AboveFloor].map(mean);
        Self { values, runs: members.len(), loss, above_floor, beside_best: None, p_corrected: None }
    }

    /// Returns the keys and values, such as `model.heads = 4`.
    pub fn name(&self) -> String {
        let values: Vec<_> = self.values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if values.is_empty() { "the only setting".to_string() } else { values.join(", ") }
    }

    /// Returns the [name](Self::name), or the setting's number in a list if the name is too long.
    fn short_name(&self, number: usize) -> String {
        let name = self.name();
        if name.chars().count() <= MAX_NAME { name } else { format!("setting {number}") }
    }

    /// Returns the mean of a quantity.
    pub fn measured(&self, measure: Measure) -> Option<&GroupMean> {
        match measure {
            Measure::Loss => self.loss.as_ref(),
            Measure::AboveFloor => self.above_floor.as_ref(),
        }
    }
}

impl Comparison {
    /// Reads runs, or the runs in folders and studies, and compares them. The errors describe runs that were skipped.
    /// Settings are grouped by the key `by`, if given, otherwise by all keys in which runs differ.
    ///
    /// # Errors
    /// Returns an error if fewer than two or more than 50 runs are comparable, one is passed twice, or no run has the
    /// key.
    pub fn read(folders: &[PathBuf], by: Option<&str>) -> Result<(Self, Vec<Error>)> {
        let mut run_folders = Vec::new();
        for folder in folders {
            run_folders.extend(runs_of(folder)?);
        }
        if run_folders.len() > MAX_RUNS {
            return Err(Error::Input(format!(
                "{} runs are more than the maximum of {MAX_RUNS}; pass fewer (`tune` compares the trials of a study)",
                run_folders.len()
            )));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = run_folders.iter().find(|folder| !seen.insert(canonical(folder))) {
            let twice = twice.display();
            return Err(Error::Input(format!("`{twice}` is passed twice; remove one")));
        }
        let (runs, damaged) = read_all(&run_folders, ComparedRun::read);
        if runs.len() < 2 {
            let found = counted(runs.len(), "run");
            let why = damaged.first().map_or_else(String::new, |error| format!(" ({error})"));
            return Err(Error::Input(format!(
                "only {found} to compare{why}; pass two or more, e.g. compare runs/a runs/b"
            )));
        }
        Ok((Self::new(runs, by)?, damaged))
    }

    fn new(mut runs: Vec<ComparedRun>, by: Option<&str>) -> Result<Self> {
        let values = values_of(&runs);
        let keys = differing_keys(&values);
        if let Some(by) = by.filter(|by| !values.iter().any(|of| of.contains_key(*by))) {
            let differ = joined(&keys);
            return Err(Error::Input(format!("--by {by}: no run has this key; the runs differ in {differ}")));
        }
        let grouping = by.map_or_else(|| keys.clone(), |by| vec![by.to_string()]);
        let of_run: Vec<BTreeMap<String, String>> = values
            .iter()
            .map(|of| grouping.iter().map(|key| (key.clone(), shown(of.get(key)))).collect())
            .collect();
        let repeats = match by {
            Some(_) => vec![false; runs.len()],
            None => repeats(&runs, &of_run),
        };
        let repeated: Vec<String> =
            (0..runs.len()).filter(|&it| repeats[it]).map(|it| runs[it].name.clone()).collect();

        let all_floors = runs.iter().all(|run| run.losses.floor.is_some());
        let measure = if all_floors { Measure::AboveFloor } else { Measure::Loss };
        let setting = |values: &BTreeMap<String, String>| {
            let of_setting = (0..runs.len()).filter(|&it| of_run[it] == *values && !repeats[it]);
            ComparedSetting::new(values.clone(), &of_setting.map(|it| &runs[it]).collect::<Vec<_>>())
        };
        let different: BTreeSet<_> = of_run.iter().collect();
        let mut settings: Vec<ComparedSetting> = different.into_iter().map(setting).collect();
        let key =
            |setting: &ComparedSetting| setting.measured(measure).map_or(f64::INFINITY, |mean| mean.mean);
        settings.sort_by(|a, b| key(a).total_cmp(&key(b)));

        // Without floors, losses on different data are not comparable.
        let is_data = |key: &&String| key.starts_with("data.") && *key != "data.train_samples";
        let is_comparable = measure == Measure::AboveFloor || !keys.iter().any(|key| is_data(&key));
        if let (Some(by), false) = (by, is_comparable) {
            return Err(Error::Input(format!(
                "the runs were trained on different data with unknown floors, so the means of their losses by {by} are \
                 not comparable; compare runs on the same data"
            )));
        }
        for (run, values) in runs.iter_mut().zip(&of_run) {
            run.setting = settings.iter().position(|setting| setting.values == *values).unwrap_or(0);
        }
        let value = |run: &ComparedRun| measure.of(run).unwrap_or(f64::INFINITY);
        runs.sort_by(|a, b| a.setting.cmp(&b.setting).then(value(a).total_cmp(&value(b))));
        make_names_unique(&mut runs);
        if is_comparable {
            compare_with_best(&mut settings, measure);
        }
        let mut comparison = Self { keys, measure, settings, runs, sentences: Vec::new() };
        comparison.sentences = comparison.in_words(by, is_comparable);
        comparison.sentences.extend(comparison.remarks(&repeated));
        Ok(comparison)
    }

    /// Returns remarks on single runs: those that are `repeated`, and those whose keys changed.
    fn remarks(&self, repeated: &[String]) -> Vec<String> {
        let mut remarks = Vec::new();
        if !repeated.is_empty() {
            remarks.push(format!(
                "{} not counted, because another run has the same setting and seed",
                match repeated {
                    [one] => format!("{one} is"),
                    several => format!("{} are", joined(several)),
                }
            ));
        }
        for run in &self.runs {
            remarks.extend(run.provenance.changes.iter().map(|change| format!("{} was {change}", run.name)));
        }
        for run in self.runs.iter().filter(|run| run.config_changed) {
            remarks.push(format!(
                "the config.toml of {} has changed since the run ended; its results belong to the original config",
                run.name
            ));
        }
        remarks
    }

    /// Returns the findings as sentences, with a verdict on each difference.
    fn in_words(&self, by: Option<&str>, is_comparable: bool) -> Vec<String> {
        let mut sentences = Vec::new();
        let others: Vec<String> = self.keys.iter().filter(|key| Some(key.as_str()) != by).cloned().collect();
        if let (Some(by), false) = (by, others.is_empty()) {
            sentences.push(format!(
                "runs with the same {by} also differ in {}, so the effect of {by} alone is unknown",
                joined(&others)
            ));
        }
        for (number, setting) in (1..).zip(&self.settings) {
            let excluded = setting.runs - setting.loss.map_or(0, |mean| mean.count);
            if excluded > 0 {
                let of = counted(setting.runs, "run");
                sentences.push(format!(
                    "{}: {excluded} of {of} {} excluded, because {} diverged, did not end or was never validated",
                    setting.short_name(number),
                    if excluded == 1 { "is" } else { "are" },
                    if excluded == 1 { "it" } else { "each of them" }
                ));
            }
        }
        let Some((best, rest)) = self.settings.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return sentences;
        };
        if !is_comparable {
            sentences.push(
                "the runs were trained on different data with unknown floors, so their losses are not compared"
                    .to_string(),
            );
            return sentences;
        }
        let single = self.settings.iter().filter(|setting| setting.runs == 1).count();
        if single > 0 {
            let which =
                if single == self.settings.len() { "every setting has" } else { "some settings have" };
            sentences.push(format!(
                "{which} a single run, so the noise between seeds is unknown; train more runs with other values of \
                 run.seed"
            ));
        }
        let noise = if by.is_none() || others.is_empty() {
            "the noise between seeds"
        } else {
            "the other differences between the runs"
        };
        sentences.extend((2..).zip(rest).filter_map(|setting| difference_in_words(best, setting, noise)));
        if rest.iter().filter(|setting| setting.beside_best.is_some()).count() > 1 {
            sentences.push("p is corrected for multiple comparisons (Holm)".to_string());
        }
        sentences
    }
}

/// Describes the difference between a setting and the best one, compared with `noise`.
fn difference_in_words(
    best: &ComparedSetting,
    (number, setting): (usize, &ComparedSetting),
    noise: &str,
) -> Option<String> {
    let (test, p) = (setting.beside_best?, setting.p_corrected?);
    let [low, high] = test.interval.map(|end| fixed(end, 4));
    let p_shown = if p < 1e-4 { "p < 0.0001".to_string() } else { format!("p = {p:.4}") };
    let verdict = match p < SIGNIFICANCE_LEVEL {
        true => format!("more than {noise}"),
        false => format!("not significantly more than {noise}"),
    };
    Some(format!(
        "{} compared with {}: {} nats higher (95 % interval {low} to {high}; Welch's t-test, {p_shown}): {verdict}",
        setting.short_name(number),
        best.short_name(1),
        fixed(test.difference, 4),
    ))
}

/// Tests each setting against the best one.
fn compare_with_best(settings: &mut [ComparedSetting], measure: Measure) {
    let Some((best, rest)) = settings.split_first_mut() else { return };
    let Some(best) = best.measured(measure).copied() else { return };
    for setting in rest.iter_mut() {
        setting.beside_best = setting.measured(measure).and_then(|mean| WelchTest::new(&best, mean));
    }
    let p: Vec<f64> = rest.iter().filter_map(|setting| Some(setting.beside_best?.p)).collect();
    let tested = rest.iter_mut().filter(|setting| setting.beside_best.is_some());
    tested.zip(corrected(&p)).for_each(|(setting, p)| setting.p_corrected = Some(p));
}

/// Returns the run in a folder, or the runs of a study or of a folder of runs.
fn runs_of(folder: &Path) -> Result<Vec<PathBuf>> {
    if is_study(folder) {
        return trials_in(folder);
    }
    if is_run(folder) {
        return Ok(vec![folder.to_path_buf()]);
    }
    let runs = runs_in(folder)?;
    if runs.is_empty() {
        let shown = folder.display();
        return Err(Error::Input(format!(
            "`{shown}` is not a run and contains none; create one with `train`"
        )));
    }
    let runs = runs.iter().map(|run| runs_of(run)).collect::<Result<Vec<_>>>()?;
    Ok(runs.concat())
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Replaces names that occur more than once with the paths of the runs.
fn make_names_unique(runs: &mut [ComparedRun]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.path.display().to_string();
        }
    }
}

fn joined(keys: &[String]) -> String {
    if keys.is_empty() { "nothing but the seed".to_string() } else { keys.join(", ") }
}
