//! Where runs differ: what was set otherwise, what came of it, and whether that is more than noise between seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::compared::ComparedRun;
use super::differences::{differing_keys, shown, values_of};
use super::listing::{is_run, is_study, read_all, runs_in, trials_in};
use super::statistics::{Mean, WelchTest, corrected};
use crate::error::{Error, Result};
use crate::numbers::{counted, fixed};

/// No more runs than this are compared.
const MOST: usize = 50;

/// The longest name of a setting in a table or a sentence, in characters. JSON has all of it.
pub const MAX_NAME: usize = 60;
/// Differences with a larger probability than this come about by chance too often.
const SIGNIFICANT: f64 = 0.05;

/// Returns for each run whether one before it has the same setting and seed, so that both are one run twice.
fn repeats(runs: &[ComparedRun], settings: &[BTreeMap<String, String>]) -> Vec<bool> {
    let is_same =
        |a: usize, b: usize| settings[a] == settings[b] && runs[a].experiment.seed == runs[b].experiment.seed;
    (0..runs.len()).map(|index| (0..index).any(|other| is_same(other, index))).collect()
}

/// Runs side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The keys in which runs differ, the seed apart.
    pub keys: Vec<String>,
    /// What settings are compared by: the loss above the floor, where all floors are known, or the loss.
    pub measure: Measure,
    /// Runs that differ in their seed alone, or agree in the key that was asked for: the best setting first.
    pub settings: Vec<Setting>,
    /// All runs: those of the best setting first, the best of each first.
    pub runs: Vec<ComparedRun>,
    /// What there is to say of them.
    pub sentences: Vec<String>,
}

/// What settings are compared by, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The lowest validation loss of a run.
    Loss,
    /// By how much that lies above the loss of the optimal predictor.
    AboveFloor,
}

impl Measure {
    /// What it measures, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::AboveFloor => "loss above the floor",
        }
    }

    /// Its value of a run; none that is not finite.
    pub fn of(self, run: &ComparedRun) -> Option<f64> {
        let value = match self {
            Self::Loss => run.losses.best_valid_loss,
            Self::AboveFloor => run.losses.above_floor,
        };
        value.filter(|value| value.is_finite() && run.has_ended())
    }
}

/// Runs of one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// The keys in which settings differ, with their values here.
    pub values: BTreeMap<String, String>,
    /// How many runs it has, those without a loss among them.
    pub runs: usize,
    /// The lowest validation losses of its runs.
    pub loss: Option<Mean>,
    /// The same above the floor.
    pub above_floor: Option<Mean>,
    /// Beside the best setting.
    pub beside_best: Option<WelchTest>,
    /// The probability of that test, corrected for the number of tests (Holm).
    pub p_corrected: Option<f64>,
}

impl Setting {
    /// The setting of some runs, which share these values.
    fn new(values: BTreeMap<String, String>, members: &[&ComparedRun]) -> Self {
        let mean = |measure: Measure| {
            Mean::of(&members.iter().filter_map(|run| measure.of(run)).collect::<Vec<f64>>())
        };
        let [loss, above_floor] = [Measure::Loss, Measure::AboveFloor].map(mean);
        Self { values, runs: members.len(), loss, above_floor, beside_best: None, p_corrected: None }
    }

    /// Its keys and values, as `model.heads = 4`.
    pub fn name(&self) -> String {
        let values: Vec<_> = self.values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if values.is_empty() { "the one setting".to_string() } else { values.join(", ") }
    }

    /// Its [name](Self::name), or its number in a list where that is long.
    fn short_name(&self, number: usize) -> String {
        let name = self.name();
        if name.chars().count() <= MAX_NAME { name } else { format!("setting {number}") }
    }

    /// What settings are compared by.
    pub fn measured(&self, measure: Measure) -> Option<&Mean> {
        match measure {
            Measure::Loss => self.loss.as_ref(),
            Measure::AboveFloor => self.above_floor.as_ref(),
        }
    }
}

impl Comparison {
    /// Reads runs, or those in folders and studies, and puts them side by side; with them comes what is wrong with
    /// those that were passed by. Settings are told apart by the key `by`, or else by all in which runs differ.
    ///
    /// # Errors
    /// If fewer than two runs or more than 50 can be compared, one is named twice, or no run has the key.
    pub fn read(folders: &[PathBuf], by: Option<&str>) -> Result<(Self, Vec<Error>)> {
        let mut places = Vec::new();
        for folder in folders {
            places.extend(runs_of(folder)?);
        }
        if places.len() > MOST {
            let problem = format!("these are {} runs: at most {MOST} are compared at once", places.len());
            return Err(Error::Input(format!("{problem}; `tune` compares the trials of a study")));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = places.iter().find(|place| !seen.insert(whole(place))) {
            let twice = twice.display();
            return Err(Error::Input(format!("`{twice}` is named twice: a run is compared with others")));
        }
        let (runs, damaged) = read_all(&places, ComparedRun::read);
        if runs.len() < 2 {
            let found = counted(runs.len(), "run");
            let why = damaged.first().map_or_else(String::new, |error| format!(" ({error})"));
            return Err(Error::Input(format!(
                "{found} can be compared here{why}: name two or more, as compare runs/a runs/b"
            )));
        }
        Ok((Self::new(runs, by)?, damaged))
    }

    fn new(mut runs: Vec<ComparedRun>, by: Option<&str>) -> Result<Self> {
        let values = values_of(&runs);
        let keys = differing_keys(&values);
        if let Some(by) = by.filter(|by| !values.iter().any(|of| of.contains_key(*by))) {
            let differ = listed(&keys);
            return Err(Error::Input(format!(
                "--by {by}: no run here has this key; they differ in {differ}"
            )));
        }
        let told_apart = by.map_or_else(|| keys.clone(), |by| vec![by.to_string()]);
        let of_run: Vec<BTreeMap<String, String>> = values
            .iter()
            .map(|of| told_apart.iter().map(|key| (key.clone(), shown(of.get(key)))).collect())
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
            Setting::new(values.clone(), &of_setting.map(|it| &runs[it]).collect::<Vec<_>>())
        };
        let different: BTreeSet<_> = of_run.iter().collect();
        let mut settings: Vec<Setting> = different.into_iter().map(setting).collect();
        let key = |setting: &Setting| setting.measured(measure).map_or(f64::INFINITY, |mean| mean.mean);
        settings.sort_by(|a, b| key(a).total_cmp(&key(b)));

        // Without floors, losses on other data say nothing of each other.
        let is_data = |key: &&String| key.starts_with("data.") && *key != "data.train_samples";
        let is_comparable = measure == Measure::AboveFloor || !keys.iter().any(|key| is_data(&key));
        if let (Some(by), false) = (by, is_comparable) {
            return Err(Error::Input(format!(
                "the runs learned from different data whose floors are not known, and a mean of their losses by {by} \
                 says nothing: compare runs of the same data"
            )));
        }
        for (run, values) in runs.iter_mut().zip(&of_run) {
            run.setting = settings.iter().position(|setting| setting.values == *values).unwrap_or(0);
        }
        let value = |run: &ComparedRun| measure.of(run).unwrap_or(f64::INFINITY);
        runs.sort_by(|a, b| a.setting.cmp(&b.setting).then(value(a).total_cmp(&value(b))));
        tell_apart(&mut runs);
        if is_comparable {
            compare_with_best(&mut settings, measure);
        }
        let mut comparison = Self { keys, measure, settings, runs, sentences: Vec::new() };
        comparison.sentences = comparison.in_words(by, is_comparable);
        comparison.sentences.extend(comparison.remarks(&repeated));
        Ok(comparison)
    }

    /// Returns what a reader should know of single runs: those that are `repeated`, and those whose keys changed.
    fn remarks(&self, repeated: &[String]) -> Vec<String> {
        let mut remarks = Vec::new();
        if !repeated.is_empty() {
            remarks.push(format!(
                "{} not counted, for another run has the same setting and seed",
                match repeated {
                    [one] => format!("{one} is"),
                    several => format!("{} are", listed(several)),
                }
            ));
        }
        for run in &self.runs {
            remarks.extend(run.provenance.changes.iter().map(|change| format!("{} was {change}", run.name)));
        }
        for run in self.runs.iter().filter(|run| run.config_changed) {
            remarks.push(format!(
                "the config.toml of {} has changed since the run ended: its results are those of the keys that it had then",
                run.name
            ));
        }
        remarks
    }

    /// What differs, and whether by more than noise.
    fn in_words(&self, by: Option<&str>, is_comparable: bool) -> Vec<String> {
        let mut sentences = Vec::new();
        let others: Vec<String> = self.keys.iter().filter(|key| Some(key.as_str()) != by).cloned().collect();
        if let (Some(by), false) = (by, others.is_empty()) {
            sentences.push(format!(
                "runs with the same {by} differ in {} too: what is due to {by} alone is not known",
                listed(&others)
            ));
        }
        for (number, setting) in (1..).zip(&self.settings) {
            let lost = setting.runs - setting.loss.map_or(0, |mean| mean.count);
            if lost > 0 {
                let of = counted(setting.runs, "run");
                sentences.push(format!(
                    "{}: {lost} of {of} did not run to an end with a finite loss, and {} left out",
                    setting.short_name(number),
                    if lost == 1 { "is" } else { "are" }
                ));
            }
        }
        let Some((best, rest)) = self.settings.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return sentences;
        };
        if !is_comparable {
            sentences.push(
                "the runs learned from different data whose floors are not known: their losses are not compared"
                    .to_string(),
            );
            return sentences;
        }
        let single = self.settings.iter().filter(|setting| setting.runs == 1).count();
        if single > 0 {
            let which =
                if single == self.settings.len() { "every setting has" } else { "some settings have" };
            sentences.push(format!(
                "{which} a single run: how much of a difference is noise between seeds is not known; train more \
                 with other values of run.seed"
            ));
        }
        let noise = if by.is_none() || others.is_empty() {
            "noise between seeds"
        } else {
            "what runs differ by otherwise"
        };
        sentences.extend((2..).zip(rest).filter_map(|setting| beside(best, setting, noise)));
        if rest.iter().filter(|setting| setting.beside_best.is_some()).count() > 1 {
            sentences.push("p is corrected for the number of comparisons (Holm)".to_string());
        }
        sentences
    }
}

/// A setting beside the best one, and whether the difference is more than `noise`.
fn beside(best: &Setting, (number, setting): (usize, &Setting), noise: &str) -> Option<String> {
    let (test, p) = (setting.beside_best?, setting.p_corrected?);
    let [low, high] = test.interval.map(|end| fixed(end, 4));
    let p_shown = if p < 1e-4 { "p < 0.0001".to_string() } else { format!("p = {p:.4}") };
    let verdict = match p < SIGNIFICANT {
        true => format!("more than {noise}"),
        false => format!("no more than {noise}, as far as these runs can tell"),
    };
    Some(format!(
        "{} beside {}: {} nats higher (95 % interval {low} to {high}; Welch's t-test, {p_shown}): {verdict}",
        setting.short_name(number),
        best.short_name(1),
        fixed(test.difference, 4),
    ))
}

/// Tests each setting beside the best one.
fn compare_with_best(settings: &mut [Setting], measure: Measure) {
    let Some((best, rest)) = settings.split_first_mut() else { return };
    let Some(best) = best.measured(measure).copied() else { return };
    for setting in rest.iter_mut() {
        setting.beside_best = setting.measured(measure).and_then(|mean| WelchTest::new(&best, mean));
    }
    let p: Vec<f64> = rest.iter().filter_map(|setting| Some(setting.beside_best?.p)).collect();
    let tested = rest.iter_mut().filter(|setting| setting.beside_best.is_some());
    tested.zip(corrected(&p)).for_each(|(setting, p)| setting.p_corrected = Some(p));
}

/// A run, or those in a folder of runs or a study.
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
        return Err(Error::Input(format!("`{shown}` is no run and holds none: train makes them")));
    }
    let runs = runs.iter().map(|run| runs_of(run)).collect::<Result<Vec<_>>>()?;
    Ok(runs.concat())
}

fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Runs of the same name are called by their paths.
fn tell_apart(runs: &mut [ComparedRun]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.path.display().to_string();
        }
    }
}

fn listed(keys: &[String]) -> String {
    if keys.is_empty() { "nothing but the seed".to_string() } else { keys.join(", ") }
}
