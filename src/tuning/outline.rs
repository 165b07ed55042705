//! What a study would do: its method, its trials' config and their budget, before any of them runs.

use super::budget::Budget;
use super::overfit::Candidate;
use super::proposal::{Agenda, Proposer};
use super::recipe;
use super::space::{Setting, Space, configured, keeps_its_shape};
use super::training_set::TrainingSet;
use crate::backend::{Device, Memory};
use crate::config::{Config, Method, TuneConfig};
use crate::data::{Dataset, Source};
use crate::error::{Error, Result};
use crate::training::Start;

/// Steps of the longest trial.
const MOST_STEPS: usize = 1_000_000_000;

/// What a study would do, before it is begun.
#[derive(Debug, Clone)]
pub struct Outline {
    pub(super) base: Config,
    pub(super) tune: TuneConfig,
    pub(super) proposer: Proposer,
    pub(super) budget: Budget,
    /// The fingerprint of data that is read; none of data that is drawn, which the config decides alone.
    pub(super) data: Option<u64>,
    /// The patience of the config itself, which the recipe replaces for its trials alone.
    patience: Option<usize>,
}

impl Outline {
    /// What the study of `config` would do with its data.
    ///
    /// # Errors
    /// If no combination of the search can be tried.
    pub fn new(config: &Config, dataset: &Dataset) -> Result<Self> {
        let tune = config.tune.clone().unwrap_or_default();
        tune.check()?;
        let space = Space::new(config)?;
        check_shapes(config, &tune)?;
        let (base, share) = match tune.method() {
            Method::Recipe => (recipe::base(space.base()), 4),
            Method::Grid | Method::Random | Method::Halving => (space.base().clone(), 1),
        };
        let set = TrainingSet::of(&base, dataset);
        let whole = set.whole_steps(&base);
        let steps = tune.steps.unwrap_or((whole / share).max(1));
        // Beyond this no trial could be told from a slip of the keyboard; what sums over trials fits.
        if steps > MOST_STEPS {
            return Err(Error::key(
                "tune.steps",
                steps,
                format!("is more than a trial takes: at most {MOST_STEPS}"),
            ));
        }
        // A config file holds signed numbers.
        let seed = base.run.seed;
        if seed.saturating_add(tune.seeds as u64 - 1) > i64::MAX as u64 {
            let problem = format!("and `run.seed` = {seed} go beyond the largest seed: lower one of them");
            return Err(Error::key("tune.seeds", tune.seeds, problem));
        }
        let space = Space::new(&Config { tune: config.tune.clone(), ..base.clone() })?;
        let proposer = Proposer::new(&tune, &space, seed, steps)?;
        let sequences_per_step = proposer.settings().into_iter().filter_map(|setting| {
            let config = configured(&base, &setting).ok()?;
            Some(set.sequences_per_step(&config))
        });
        let budget = Budget::new(&base, set, steps, (proposer.rungs, proposer.eta), sequences_per_step);
        let patience = (tune.method() == Method::Recipe).then_some(config.training.patience);
        let data = (base.data.source != Source::Sequences).then(|| dataset.fingerprint());
        let outline = Self { base, tune, proposer, budget, data, patience };
        if let (Some(asked), false) = (outline.tune.rungs, outline.rungs().is_sorted_by(|a, b| a < b)) {
            let problem = format!(
                "leaves trials of {steps} steps no room to be compared so often, each time `tune.eta` = {} times as \
                 far: lower it, or raise `tune.steps`",
                outline.proposer.eta
            );
            return Err(Error::key("tune.rungs", asked, problem));
        }
        Ok(outline)
    }

    /// What the study proposes first.
    pub fn first(&self) -> Agenda {
        self.proposer.agenda(|_, _| None)
    }

    /// A few of the trials that are proposed first, for the overfit check: evenly spread over all of them, and
    /// only such as the memory of `device` holds. None of the models fits where there are none.
    ///
    /// # Errors
    /// Where no setting makes a config, or the run that trials start from cannot be read.
    pub fn candidates(&self, dataset: &Dataset, device: &Device) -> Result<Vec<Candidate>> {
        const MOST: usize = 8;
        let proposed = self.first().trials;
        let mut candidates = Vec::new();
        for place in 0..MOST.min(proposed.len()) {
            let trial = place * proposed.len() / MOST.min(proposed.len());
            let setting = proposed[trial].setting.clone();
            let config = configured(&self.base, &setting)?;
            let is_own = config.difference(&self.base, &["data", "model", "training"]).is_none();
            let setting = if is_own { Setting::new() } else { setting };
            candidates.push(Candidate { trial, setting, config });
        }
        let start = Start::of(&self.base)?;
        candidates.retain(|candidate| fits(&start, &candidate.config, dataset, device).is_ok());
        Ok(candidates)
    }

    /// How many of the trials that are proposed first the memory of `device` does not hold, of how many, and what
    /// is said of the first of them.
    ///
    /// # Errors
    /// If the run that trials start from cannot be read.
    pub fn too_large(&self, dataset: &Dataset, device: &Device) -> Result<(usize, usize, Option<Error>)> {
        let start = Start::of(&self.base)?;
        let proposed = self.first().trials;
        let refused = proposed.iter().filter_map(|trial| {
            let config = configured(&self.base, &trial.setting).ok()?;
            fits(&start, &config, dataset, device).err()
        });
        let mut refused = refused.collect::<Vec<_>>();
        let count = refused.len();
        Ok((count, proposed.len(), (count > 0).then(|| refused.swap_remove(0))))
    }

    /// The method with what it chooses from.
    pub fn proposer(&self) -> &Proposer {
        &self.proposer
    }

    /// Runs of each setting.
    pub fn seeds(&self) -> usize {
        self.tune.seeds
    }

    /// Steps of a trial at the config's own batch size.
    pub fn steps(&self) -> usize {
        self.budget.steps(&self.base)
    }

    /// The rungs, in steps at the config's own batch size.
    pub fn rungs(&self) -> Vec<usize> {
        (0..self.proposer.rungs).map(|rung| self.budget.rung(&self.base, rung)).collect()
    }

    /// Training sequences of the whole study at most, and what they would be without rungs: those of a
    /// trial do not depend on its batch size, as its steps do.
    pub fn study_sequences(&self) -> (usize, usize) {
        let (races, spared) = self.proposer.races();
        let sequences = |sequences: usize| sequences.saturating_mul(self.tune.seeds);
        let alone = self.budget.study_sequences(&[1], 0);
        (
            sequences(self.budget.study_sequences(&races, spared)),
            sequences(alone.saturating_mul(self.proposer.trials())),
        )
    }

    /// The config of a setting, which its runs are made of.
    ///
    /// # Errors
    /// If the config's own checks refuse the setting.
    pub fn config(&self, setting: &Setting) -> Result<Config> {
        configured(&self.base, setting)
    }

    /// Training sequences that so many steps of the runs of a setting's config see.
    pub fn sequences(&self, config: &Config, steps: usize) -> usize {
        self.budget.sequences(config, steps)
    }

    /// The config of one run of a setting's config: what `train` would make the same run of.
    pub fn trial_config(&self, config: &Config, seed: usize) -> Config {
        let mut config = config.clone();
        let steps = self.budget.steps(&config);
        config.training.validate_at = self.budget.validate_at(&config);
        config.training.validate_every = self.budget.validate_every(&config);
        config.training.log_every = self.budget.log_every(&self.base, &config);
        config.training.warmup = self.budget.warmup(&self.base, &config, steps);
        (config.training.steps, config.training.epochs) = (Some(steps), None);
        // A limit of time would end a trial by the speed of the machine.
        config.training.max_minutes = 0.0;
        config.training.checkpoint_every = 0;
        if seed > 0 {
            // Another seed draws other weights, another order and other dropout; what is learned stays.
            config.data.seed.get_or_insert(self.base.run.seed);
        }
        config.run.seed = self.base.run.seed.wrapping_add(seed as u64);
        config
    }

    /// The config of a whole run of a setting's config: as many sequences as the study's own run sees.
    pub fn whole_config(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let steps = self.budget.whole(&config);
        config.training.warmup = self.budget.warmup(&self.base, &config, steps);
        if let Some(patience) = self.patience {
            config.training.patience = patience;
        }
        // Epochs of a smaller training set would see fewer sequences.
        if config.training.epochs.is_none() || config.data.train_samples != self.base.data.train_samples {
            (config.training.steps, config.training.epochs) = (Some(steps), None);
        }
        config
    }

    /// Steps of the runs of a setting's config to a rung, counted from 0, and whether there are more to come.
    pub fn rung(&self, config: &Config, rung: usize) -> (usize, bool) {
        let step = self.budget.rung(config, rung);
        (step, step < self.budget.steps(config))
    }
}

/// Whether the memory of a device holds the run of a trial's config.
fn fits(start: &Start, config: &Config, dataset: &Dataset, device: &Device) -> Result<()> {
    let sizes = start.sizes(config, dataset)?;
    Memory::of(config, dataset, device).check(config, sizes, device)
}

/// Weights that trials start from fit the model of their run alone. `train` and the rate finder, which let a
/// search stand, do not ask.
fn check_shapes(config: &Config, tune: &TuneConfig) -> Result<()> {
    let of_shape = |key: &str| key.starts_with("model.") && key != "model.dropout";
    let searched = tune.searched();
    match searched.into_iter().find(|(key, _)| keeps_its_shape(config) && of_shape(key)) {
        None => Ok(()),
        Some((key, value)) => {
            let problem = "cannot be searched with `run.from`: the weights that trials start from have one shape; search \
                           keys of [training], or leave `run.from` out";
            Err(Error::key(format!("tune.search.{key}"), value.to_string().replace('\n', ""), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::BackendName;
    use crate::training::dataset;

    fn outline_of(text: &str) -> Result<Outline> {
        let config = Config::parse(text, Path::new("study.toml"), &[])?;
        // What a run to start from would have for its vocabulary is not asked for here.
        Outline::new(&config, &crate::data::load(&config.data, config.run.seed)?)
    }

    #[test]
    fn a_search_does_not_change_the_shape_of_weights_that_it_starts_from() {
        let outline = |key: &str| {
            let text = format!("[run]\nfrom = \"somewhere\"\n[tune.search]\n\"{key}\" = [0.125]");
            let text = text.replace("heads\" = [0.125]", "heads\" = [2]");
            outline_of(&text)
        };
        let said = outline("model.heads").unwrap_err().to_string();
        assert!(said.contains("`tune.search.model.heads`") && said.contains("`run.from`"), "{said}");
        assert!(outline("model.dropout").is_ok() && outline("training.learning_rate").is_ok());
    }

    #[test]
    fn the_overfit_check_has_a_few_trials_from_all_over_the_search_that_the_memory_holds() {
        let candidates = |text: &str| {
            let config = Config::parse(text, Path::new("study.toml"), &[]).unwrap();
            let dataset = dataset(&config).unwrap();
            let outline = Outline::new(&config, &dataset).unwrap();
            let device = Device::processor(BackendName::Ndarray);
            let (too_large, of, why) = outline.too_large(&dataset, &device).unwrap();
            let told = why.map(|why| why.to_string()).unwrap_or_default();
            (outline.candidates(&dataset, &device).unwrap(), too_large, of, told)
        };
        let text = "[model]\nd_model = 24\n[tune]\nmethod = \"grid\"\n[tune.search]\n\
                    \"training.learning_rate\" = [1e-4, 1e-3, 1e-2]\n\"model.d_model\" = [16, 65536, 48]\n\
                    \"model.layers\" = [1, 512]";
        let (found, too_large, of, told) = candidates(text);
        assert_eq!(found.iter().map(|candidate| candidate.trial).collect::<Vec<_>>(), [0, 2, 4, 13, 15]);
        assert_eq!((too_large, of), (6, 18));
        assert!(told.starts_with("`model.d_model` = 65536"), "{told}");
        // The recipe begins with the config's own values.
        let (found, ..) = candidates("");
        assert!(found[0].setting.is_empty() && !found[1].setting.is_empty());
    }
}
