//! The plan of a study before any trial runs: its stages, the configs of its trials, and their budget.

use super::budget::Budget;
use super::recipe;
use super::space::{Setting, not_searched};
use super::stages::{MIN_FIRST_RUNG, Stages};
use super::training_set::{Pace, TrainingSet};
use crate::backend::{Device, MemoryEstimate};
use crate::config::{Config, Method, TuneConfig};
use crate::data::{Dataset, Source};
use crate::error::{Error, Result};
use crate::numbers::{counted, thousands};
use crate::training::{RunFolder, initial_weights, sizes_of};

/// The maximum number of steps of a trial.
const MAX_TRIAL_STEPS: usize = 1_000_000_000;
/// The maximum deviation of a trial's sequences from the budget without a warning, as a fraction of the budget.
const MAX_DEVIATION: f64 = 0.1;

/// The plan of a study before its first trial.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The stages of the study.
    pub stages: Stages,
    /// The settings of the search.
    pub tune: TuneConfig,
    /// The config on which the trials are based.
    pub(super) base: Config,
    pub(super) budget: Budget,
    /// The fingerprint of data read from files; `None` for generated data, which the config fully determines.
    pub(super) data: Option<u64>,
    /// The patience of the config itself; the recipe changes it for its trials only.
    patience: usize,
    /// The maximum number of training sequences of the study, and the number without rungs.
    pub study_sequences: (usize, usize),
    /// The warnings about the plan.
    pub warnings: Vec<String>,
    /// The notices about the plan.
    pub notices: Vec<String>,
}

/// A trial of the first stage.
#[derive(Debug)]
pub struct Candidate {
    /// The number, counted from 0.
    pub trial: usize,
    /// The values of the searched keys; empty if they are the config's own.
    pub setting: Setting,
    /// The config of the setting.
    pub config: Config,
    /// The reason why the trial does not fit into memory; `None` if it fits.
    pub too_large: Option<Error>,
}

impl Outline {
    /// Plans the study of `config` on its data.
    ///
    /// # Errors
    /// If every combination of the search is invalid.
    pub fn new(config: &Config, dataset: &Dataset) -> Result<Self> {
        let tune = config.tune.clone().unwrap_or_default();
        tune.check()?;
        check_shapes(config, &tune)?;
        let own = Config { tune: None, ..config.clone() };
        let (base, divisor) = match tune.method() {
            Method::Recipe => (recipe::base(&own), 4),
            Method::Grid | Method::Random | Method::Halving => (own, 1),
        };
        let set = TrainingSet::of(&base, dataset);
        let steps = tune.steps.unwrap_or((set.full_steps(&base) / divisor).max(1));
        // A larger value is more likely a typo, and sums over trials would not fit into an integer.
        let problem = format!("is too many steps for a trial; use at most {MAX_TRIAL_STEPS}");
        Error::check_key(steps <= MAX_TRIAL_STEPS, "tune.steps", steps, problem)?;
        // TOML integers are signed.
        let seed = base.run.seed;
        let fits = i64::try_from(seed.saturating_add(tune.seeds as u64 - 1)).is_ok();
        let problem =
            format!("with `run.seed` = {seed} exceeds the largest seed, {}; lower one of them", i64::MAX);
        Error::check_key(fits, "tune.seeds", tune.seeds, problem)?;
        let stages = Stages::new(&tune, &base, steps)?;
        let configs = stages.settings().into_iter().filter_map(|setting| base.with(&setting).ok());
        let configs = configs.collect::<Vec<_>>();
        let sequences_per_step = configs.iter().map(|config| set.pace(config).sequences_per_step);
        let budget = Budget::new(&base, set, steps, (stages.rungs, stages.eta), sequences_per_step);
        let data = (base.data.source() != Source::Sequences).then(|| dataset.fingerprint());
        let paced = configs.iter().map(|config| (set.pace(config).sequences_per_step, budget.seen(config)));
        let paced = paced.collect::<Vec<_>>();
        let (max, all) = study_sequences(&stages, &budget, &paced);
        let study_sequences = (max.saturating_mul(tune.seeds), all.saturating_mul(tune.seeds));
        let unequal = unequal_sequences(&stages, &budget, set.pace(&base), &paced);
        let (few, has_rungs) = (few_rungs(&stages, steps), stages.rungs > 1);
        let minutes = config.training.max_minutes;
        let limit = (minutes > 0.0).then(|| {
            format!(
                "`training.max_minutes` = {minutes} does not limit trials, because their results must not depend on \
                 the speed of the machine; best.toml keeps it"
            )
        });
        let warnings = few.clone().filter(|_| !has_rungs).into_iter().chain(unequal).chain(limit).collect();
        let notices = few.filter(|_| has_rungs).into_iter().collect();
        let patience = config.training.patience;
        let outline = Self { stages, tune, base, budget, data, patience, study_sequences, warnings, notices };
        let rungs = outline.tune.rungs.unwrap_or_default();
        let fits = outline.tune.rungs.is_none() || outline.rungs().is_sorted_by(|a, b| a < b);
        let problem = format!(
            "is too many for trials of {}, because each rung has `tune.eta` = {} times the steps of the \
            previous one; lower it, or raise `tune.steps`",
            counted(steps, "step"),
            outline.stages.eta
        );
        Error::check_key(fits, "tune.rungs", rungs, problem)?;
        for config in &configs {
            let steps = outline.budget.steps_to(config, outline.budget.full);
            outline.full_config(config).training.check_schedule(steps)?;
        }
        Ok(outline)
    }

    /// Returns the trials of the first stage, each with the result of a memory check for `device`.
    ///
    /// # Errors
    /// If the run from which trials start cannot be read.
    pub fn candidates(&self, dataset: &Dataset, device: &Device) -> Result<Vec<Candidate>> {
        if let Some(from) = self.base.run.start() {
            RunFolder::open(from)?.weights()?;
            // Otherwise, every trial would fail.
            initial_weights(&self.base, sizes_of(&self.base, dataset)?)?;
        }
        let candidate = |(trial, setting): (usize, Setting)| {
            let config = self.base.with(&setting)?;
            let memory = MemoryEstimate::of(&config, dataset, device);
            let fits = sizes_of(&config, dataset).and_then(|sizes| memory.check(&config, sizes, device));
            let is_own = config.difference(&self.base, &["data", "model", "training"]).is_none();
            let setting = if is_own { Setting::new() } else { setting };
            Ok(Candidate { trial, setting, config, too_large: fits.err() })
        };
        let proposed = self.stages.agenda(|_, _| None).trials;
        proposed.into_iter().map(|trial| trial.setting).enumerate().map(candidate).collect()
    }

    /// Returns the steps of a trial at the config's own batch size.
    pub fn steps(&self) -> usize {
        self.budget.steps(&self.base)
    }

    /// Returns the rungs, in steps at the config's own batch size; the last is the end of a trial.
    pub fn rungs(&self) -> Vec<usize> {
        (0..self.stages.rungs).map(|rung| self.budget.rung(&self.base, rung)).collect()
    }

    /// Returns the config of one run of a trial, with which `train` repeats that run.
    pub fn trial_config(&self, config: &Config, seed: usize) -> Config {
        let mut config = config.clone();
        let steps = self.budget.steps(&config);
        config.training.validate_at = self.budget.validate_at(&config);
        config.training.validate_every = self.budget.steps_to(&config, self.budget.interval);
        config.training.log_every =
            self.budget.scale_interval(&self.base, &config, self.base.training.log_every);
        self.budget.scale_ramps(&self.base, &mut config, &self.tune.search, steps);
        (config.training.steps, config.training.epochs) = (Some(steps), None);
        // A time limit would make the end of a trial depend on the speed of the machine.
        config.training.max_minutes = 0.0;
        config.training.checkpoint_every = 0;
        if seed > 0 {
            // Another seed changes the weights, the order of the data and dropout, but not the data itself.
            config.data.seed.get_or_insert(self.base.run.seed);
        }
        config.run.seed = self.base.run.seed.wrapping_add(seed as u64);
        config
    }

    /// Returns the config of a full run of a setting, which sees as many sequences as a run of the study's config.
    pub fn full_config(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let steps = self.budget.steps_to(&config, self.budget.full);
        self.budget.scale_ramps(&self.base, &mut config, &self.tune.search, steps);
        // `patience` counts validations, so they must follow as many sequences as in the config's own run.
        let scaled = |interval| self.budget.scale_interval(&self.base, &config, interval);
        let own = &self.base.training;
        let [validate_every, checkpoint_every, log_every] =
            [own.validate_every, own.checkpoint_every, own.log_every].map(scaled);
        let training = &mut config.training;
        (training.validate_every, training.checkpoint_every) = (validate_every, checkpoint_every);
        training.log_every = log_every;
        if self.tune.method() == Method::Recipe {
            config.training.patience = self.patience;
        }
        // The same number of epochs on a smaller training set would see fewer sequences.
        if config.training.epochs.is_none() || config.data.train_samples != self.base.data.train_samples {
            (config.training.steps, config.training.epochs) = (Some(steps), None);
        }
        config
    }
}

/// Returns the maximum number of training sequences of all trials, one run each, and the number without rungs. `paced`
/// lists, for each known setting, the sequences per step and the sequences seen at each rung.
fn study_sequences(stages: &Stages, budget: &Budget, paced: &[(usize, Vec<usize>)]) -> (usize, usize) {
    let known = || paced.iter().map(|(_, seen)| seen);
    // Later stages train with the best batch size of the first.
    let largest = (0..stages.rungs).map(|rung| known().map(|seen| seen[rung]).max().unwrap_or(0));
    let largest = largest.collect::<Vec<_>>();
    let (mut max, mut all) = (0usize, 0usize);
    for (number, trials) in stages.new_trials().into_iter().enumerate() {
        let seen = match number {
            0 => known().take(trials).cloned().collect(),
            _ => vec![largest.clone(); trials],
        };
        max = max.saturating_add(budget.stage_sequences(&seen, stages.extra_survivors()));
        all = seen.iter().filter_map(|seen| seen.last()).fold(all, |all, &last| all.saturating_add(last));
    }
    (max, all)
}

/// Returns a message if trials of `steps` steps are too short for as many rungs as halving needs to reach one trial.
fn few_rungs(stages: &Stages, steps: usize) -> Option<String> {
    let full = stages.full_rungs?;
    let few = match stages.rungs {
        1 => "halving stops no trial early".to_string(),
        rungs => format!("halving has {} instead of {full}", counted(rungs, "rung")),
    };
    let share = stages.eta.saturating_pow(full as u32 - 1);
    let needed = MIN_FIRST_RUNG.saturating_mul(share);
    let other = if steps >= share { format!(", or set `tune.rungs` = {full}") } else { String::new() };
    Some(format!(
        "{few}, because the first of {full} rungs would have fewer than {MIN_FIRST_RUNG} steps; raise \
        `tune.steps` to {needed}{other}"
    ))
}

/// Returns a warning if trials are compared after different numbers of sequences, because they have few large steps.
/// `own` is the pace of the config itself; `paced` is as in [`study_sequences`].
fn unequal_sequences(
    stages: &Stages,
    budget: &Budget,
    own: Pace,
    paced: &[(usize, Vec<usize>)],
) -> Option<String> {
    let deviations = paced.iter().map(|(step, seen)| (step, seen, budget.largest_deviation(seen)));
    let (step, seen, (rung, deviation)) = deviations.max_by(|a, b| a.2.1.total_cmp(&b.2.1))?;
    if deviation <= MAX_DEVIATION {
        return None;
    }
    let mut remedy = match stages.rungs {
        1 => {
            let largest = paced.iter().map(|(step, _)| step).max()?;
            // A trial can be half a step too long or too short.
            let sequences = (*largest as f64 * 0.5 / MAX_DEVIATION).ceil() as usize;
            format!("raise `tune.steps` to {}", sequences.div_ceil(own.sequences_per_step))
        }
        _ => "raise `tune.steps` or lower `tune.rungs`".to_string(),
    };
    if stages.has_search() {
        remedy += ", or search smaller batches";
    }
    Some(format!(
        "trials are compared after different numbers of sequences: {} instead of {} with {} per step; {remedy}",
        thousands(seen[rung] as f64),
        thousands(budget.sequences_to(rung) as f64),
        thousands(*step as f64)
    ))
}

/// Checks that a search does not change the shape of the weights from which trials start. `train` and the rate finder
/// ignore the search, so they skip this check.
fn check_shapes(config: &Config, tune: &TuneConfig) -> Result<()> {
    let is_shape = |key: &str| key.starts_with("model.") && key != "model.dropout";
    let shape = tune.search.iter().find(|(key, _)| config.run.start().is_some() && is_shape(key));
    let problem = "cannot be searched with `run.from`, whose weights have a fixed shape; search keys of \
        [training], or remove `run.from`";
    shape.map_or(Ok(()), |(key, value)| Err(not_searched(key, value, problem)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::overfit::spread, *};
    use crate::{config::BackendName, training::dataset};

    fn outline_of(text: &str) -> Result<Outline> {
        let config = Config::parse(text, Path::new("study.toml"), &[])?;
        // The data is loaded without the vocabulary of the run to start from.
        Outline::new(&config, &crate::data::load(&config.data, config.run.seed)?)
    }

    #[test]
    fn searching_shapes_of_given_weights_is_refused() {
        let outline = |key: &str| {
            let text = format!("[run]\nfrom = \"somewhere\"\n[tune.search]\n\"{key}\" = [0.125]");
            let text = text.replace("heads\" = [0.125]", "heads\" = [2]");
            outline_of(&text)
        };
        let message = outline("model.heads").unwrap_err().to_string();
        assert!(message.contains("`tune.search.model.heads`") && message.contains("`run.from`"), "{message}");
        assert!(outline("model.dropout").is_ok() && outline("training.learning_rate").is_ok());
    }

    #[test]
    fn time_limit_does_not_apply_to_trials() {
        let is_warned_of = |training: &str| {
            let text = format!(
                "[training]\n{training}\n[tune]\nmethod = \"grid\"\n[tune.search]\n\"training.learning_rate\" = [1e-3]"
            );
            let warnings = outline_of(&text).unwrap().warnings;
            warnings.iter().any(|warning| warning.starts_with("`training.max_minutes` = 0.5 does not limit"))
        };
        assert!(is_warned_of("max_minutes = 0.5") && !is_warned_of("max_minutes = 0.0"));
    }

    #[test]
    fn batches_beyond_the_budget_log_a_warning() {
        let of = |search: &str, more: &str| {
            let text = format!(
                "[data]\ntrain_samples = 512\n[training]\nsteps = 20\nbatch_size = 8\n[tune]\n{more}\n\
                 [tune.search]\n\"training.batch_size\" = {search}"
            );
            outline_of(&text).unwrap()
        };
        let uneven = of("[8, 512]", "method = \"grid\"\nseeds = 2");
        assert_eq!(uneven.study_sequences, (2 * 672, 2 * 672));
        let message = "trials are compared after different numbers of sequences: 512 instead of 160 with 512 per step; \
                    raise `tune.steps` to 320, or search smaller batches";
        assert_eq!(uneven.warnings, [message]);
        let advised = of("[8, 512]", "method = \"grid\"\nsteps = 320");
        assert_eq!((advised.study_sequences, advised.warnings), ((2 * 2_560, 2 * 2_560), vec![]));
        assert!(of("[8, 16, 32]", "method = \"grid\"").warnings.is_empty());
        let raced = of("[8, 32]", "rungs = 2\neta = 2\nsteps = 10");
        assert!(raced.warnings[0].contains("96 instead of 80 with 32 per step"), "{:?}", raced.warnings);
    }

    #[test]
    fn halving_with_few_rungs_logs_a_warning() {
        let of = |steps: usize, more: &str| {
            let search = "\"training.learning_rate\" = { min = 1e-4, max = 1e-2 }";
            let text = format!("[tune]\ntrials = 9\nsteps = {steps}\n{more}\n[tune.search]\n{search}");
            outline_of(&text).unwrap()
        };
        let remedy = "the first of 3 rungs would have fewer than 10 steps; raise `tune.steps` to 90";
        for (steps, few, other) in [
            (20, "halving stops no trial early", ", or set `tune.rungs` = 3"),
            (8, "halving stops no trial early", ""),
            (89, "halving has 2 rungs instead of 3", ", or set `tune.rungs` = 3"),
        ] {
            let Outline { warnings, notices, .. } = of(steps, "");
            assert_eq!([warnings, notices].concat(), [format!("{few}, because {remedy}{other}")]);
        }
        assert_eq!((of(20, "").warnings.len(), of(89, "").notices.len()), (1, 1));
        for (steps, more) in [(90, ""), (20, "rungs = 3"), (9, "rungs = 3"), (20, "method = \"random\"")] {
            let outline = of(steps, more);
            assert!(outline.warnings.is_empty() && outline.notices.is_empty(), "{:?}", outline.warnings);
        }
    }

    #[test]
    fn a_short_recipe_counts_its_largest_batches() {
        let outline = outline_of("[training]\nsteps = 20\nbatch_size = 8").unwrap();
        let largest = outline
            .budget
            .seen(&outline.base.with(&[("training.batch_size".into(), 64.into())].into()).unwrap());
        assert_eq!(largest.last(), Some(&64), "one step exceeds the 40 sequences of a trial");
        let new_trials = outline.stages.new_trials();
        let later = new_trials[1..].iter().sum::<usize>() * 64;
        assert_eq!(outline.study_sequences.1, 40 + 48 + 32 + 64 + later);
        assert!(
            outline.warnings[0].contains("raise `tune.steps` or lower `tune.rungs`"),
            "{:?}",
            outline.warnings
        );
    }

    #[test]
    fn overfit_check_samples_trials_that_fit_memory() {
        let candidates = |text: &str| {
            let config = Config::parse(text, Path::new("study.toml"), &[]).unwrap();
            let dataset = dataset(&config).unwrap();
            let device = Device::processor(BackendName::Ndarray);
            Outline::new(&config, &dataset).unwrap().candidates(&dataset, &device).unwrap()
        };
        let text = "[model]\nd_model = 24\n[tune]\nmethod = \"grid\"\n[tune.search]\n\
                    \"training.learning_rate\" = [1e-4, 1e-3, 1e-2]\n\"model.d_model\" = [16, 65536, 48]\n\
                    \"model.layers\" = [1, 512]";
        let found = candidates(text);
        let too_large = found.iter().filter_map(|candidate| candidate.too_large.as_ref()).collect::<Vec<_>>();
        assert_eq!((too_large.len(), found.len()), (6, 18));
        assert!(too_large[0].to_string().starts_with("`model.d_model` = 65536"), "{too_large:?}");
        assert_eq!(spread(&found).map(|candidate| candidate.trial).collect::<Vec<_>>(), [0, 2, 4, 13, 15]);
        // The recipe starts with the config's own values.
        let found = candidates("");
        assert!(found[0].setting.is_empty() && !found[1].setting.is_empty());
    }
}
