//! The check before a search: a model that can learn at all learns a few sequences by heart.
//!
//! Its training loss must come close to the least that is possible on them, the entropy of what follows
//! equal prefixes. Where no setting of the search does it, other rates are tried, and none clipped, so that
//! the answer says what is wrong rather than that something is.

mod course;
mod diagnosis;
mod sequences;

use serde::{Deserialize, Serialize};

use self::course::{Course, learn};
use self::diagnosis::Diagnosis;
use self::sequences::{few, least_loss};
use super::space::Setting;
use crate::backend::compute;
use crate::config::Config;
use crate::data::{Batch, Dataset, Role};
use crate::error::{Error, Result};
use crate::ops;

/// Targets to learn by heart: enough to be no accident, few enough for seconds.
const TARGETS: usize = 256;
const MOST_SEQUENCES: usize = 8;
/// Targets that tell whether labels follow from what came before.
const TARGETS_OF_LABELS: usize = 4_096;
const MOST_SEQUENCES_OF_LABELS: usize = 512;
/// Labels count as not learnable where what follows equal prefixes leaves so much of the loss of a guess.
const LEFT_TO_CHANCE: f64 = 0.8;
/// The training loss counts as near its least below so many nats above it.
const NEAR: f64 = 0.1;
const ANYWAY: &str = "or go on all the same with --set tune.baseline=false";

/// What the check found. Losses are in nats a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Sequences that were learned by heart.
    pub sequences: usize,
    /// Their targets.
    pub targets: usize,
    /// The least possible loss on them.
    pub least: f64,
    /// The loss before the first step.
    pub first: f64,
    /// The loss that was reached.
    pub reached: f64,
    /// Steps that it took.
    pub steps: usize,
    /// The learning rate.
    pub learning_rate: f64,
}

/// A trial that may show that something can be learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its number, counted from 0.
    pub trial: usize,
    /// Its values of the searched keys; none where they are the config's own.
    pub setting: Setting,
    /// What it trains.
    pub experiment: Config,
}

/// Trains a copy of a candidate's model on a few sequences alone: of the first candidate at its own rate and
/// at each of `rates`, those that a search would try beside it, then of the others, each at its own. The
/// first that learns them ends the check; nothing is found where none of their models can be made.
///
/// # Errors
/// What is wrong with the first candidate, where none learns them: a rate that is too high or too low,
/// gradients that are clipped to nothing, a parameter that no gradient reaches, or labels that the inputs do
/// not determine.
pub fn check<B: ops::AutodiffBackend>(
    candidates: &[Candidate],
    dataset: &Dataset,
    rates: &[f64],
    device: &B::Device,
) -> Result<Option<Baseline>> {
    if candidates.is_empty() {
        return Ok(None);
    }
    let batch = few(dataset, TARGETS, MOST_SEQUENCES);
    check_labels(dataset, &batch)?;
    let least = least_loss(&batch);
    let trainer = Trainer::<B> { dataset, batch: &batch, near: least + NEAR, device };
    let found = |course: &Course, rate: f64| Baseline {
        sequences: batch.rows,
        targets: targets(&batch),
        least,
        first: course.first,
        reached: course.reached,
        steps: course.steps,
        learning_rate: rate,
    };
    let mut failed: Option<(&Candidate, Course)> = None;
    let mut others = 0;
    for candidate in candidates {
        let rate = candidate.experiment.training.learning_rate;
        // A model that cannot be made is recorded as failed when its trial comes.
        let Ok(course) = trainer.learn(&candidate.experiment, rate) else { continue };
        if course.reached <= trainer.near {
            return Ok(Some(found(&course, rate)));
        }
        if failed.is_some() {
            others += 1;
            continue;
        }
        for &other in rates.iter().filter(|&&other| other != rate) {
            let course = trainer.learn(&candidate.experiment, other)?;
            if course.reached <= trainer.near {
                return Ok(Some(found(&course, other)));
            }
        }
        failed = Some((candidate, course));
    }
    match failed {
        None => Ok(None),
        Some((candidate, course)) => {
            let what_works = trainer.what_works(&candidate.experiment)?;
            Err(Diagnosis { candidate, course, others, rows: batch.rows, near: trainer.near }
                .error(what_works))
        }
    }
}

/// Whether there are labels to learn by heart, and they follow from the inputs, as far as a few hundred
/// sequences tell.
fn check_labels(dataset: &Dataset, batch: &Batch) -> Result<()> {
    let wide = few(dataset, TARGETS_OF_LABELS, MOST_SEQUENCES_OF_LABELS);
    let (chance, guess) = (least_loss(&wide), (dataset.vocabulary.size() as f64).ln());
    if targets(batch) > 0 && chance <= LEFT_TO_CHANCE * guess {
        return Ok(());
    }
    Err(Error::Input(format!(
        "baseline check: the labels cannot be learned: in {} sequences the same tokens are followed by different \
         ones, so no model comes below {chance:.2} nats, where a guess has {guess:.2}; check [data], as a longer \
         `data.length`, {ANYWAY}",
        wide.rows
    )))
}

fn targets(batch: &Batch) -> usize {
    batch.roles.iter().filter(|&&role| role != Role::Padding).count()
}

/// What all attempts have in common.
struct Trainer<'a, B: ops::AutodiffBackend> {
    dataset: &'a Dataset,
    batch: &'a Batch,
    /// The loss that must be reached.
    near: f64,
    device: &'a B::Device,
}

impl<B: ops::AutodiffBackend> Trainer<'_, B> {
    fn learn(&self, experiment: &Config, rate: f64) -> Result<Course> {
        compute(&experiment.training, || {
            learn::<B>(experiment, self.dataset, (self.batch, self.near), rate, self.device)
        })
    }
}

#[cfg(test)]
mod tests {
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    use super::super::testing::small;
    use super::*;
    use crate::backend::Device;
    use crate::config::BackendName;
    use crate::terminal::ProgressKind;
    use crate::training::{Control, Target, dataset, train};

    fn candidate(trial: usize, sets: &[&str], setting: &str) -> Candidate {
        let sets = [&["training.learning_rate=3e-3"], sets].concat();
        let setting = setting.parse::<toml::Table>().unwrap().into_iter().collect();
        Candidate { trial, setting, experiment: small(&sets).unwrap() }
    }

    fn checked(sets: &[&str]) -> Result<Baseline> {
        checked_with(&[candidate(0, sets, "")], &[])
    }

    fn checked_with(candidates: &[Candidate], rates: &[f64]) -> Result<Baseline> {
        let dataset = dataset(&candidates[0].experiment)?;
        let found = check::<Autodiff<NdArray>>(candidates, &dataset, rates, &Default::default())?;
        Ok(found.expect("a model can be made"))
    }

    #[test]
    fn a_healthy_model_learns_a_few_sequences_by_heart_even_with_dropout() {
        let found = checked(&["model.dropout=0.5", "training.label_smoothing=0.2"]).unwrap();
        assert!(found.reached < found.least + NEAR && found.first > 1.5, "{found:?}");
        assert_eq!((found.sequences, found.targets), (8, 96));
    }

    #[test]
    fn what_starts_from_the_weights_of_a_run_begins_with_what_that_has_learned() {
        let fresh = checked(&[]).unwrap();
        let place = tempfile::tempdir().unwrap();
        let taught = small(&["training.learning_rate=3e-3", "training.steps=200"]).unwrap();
        let control = Control {
            progress: ProgressKind::None,
            signal: Default::default(),
            device: Device::processor(BackendName::Ndarray),
            until: None,
        };
        let target = Target::Folder(place.path().join("taught"));
        let run = train::<Autodiff<NdArray>>(&taught, &target, &Default::default(), &control).unwrap();
        let mut tuned = candidate(0, &[], "");
        tuned.experiment.run.from = run.folder.path().to_path_buf();
        let found = checked_with(&[tuned], &[]).unwrap();
        assert!(found.first < 0.9 * fresh.first, "{} after {}", found.first, fresh.first);
    }

    #[test]
    fn a_rate_that_is_too_high_or_too_low_is_told_with_one_that_works() {
        let said = checked(&["training.learning_rate=1"]).unwrap_err().to_string();
        assert!(
            said.contains("`training.learning_rate` = 1e0 is too high") && said.contains("with 1e-"),
            "{said}"
        );
        let low = ["training.learning_rate=1e-6", "training.min_learning_rate=0"];
        let said = checked(&low).unwrap_err().to_string();
        assert!(said.contains("is too low") && said.lines().count() == 1, "{said}");
        for (rate, part) in [("1e-8", "is too low"), ("1e30", "is too high")] {
            let sets = [&format!("training.learning_rate={rate}"), "training.min_learning_rate=0"];
            let said = checked(&sets).unwrap_err().to_string();
            assert!(said.starts_with("`training.learning_rate`") && said.contains(part), "{said}");
        }
    }

    #[test]
    fn clipping_that_lets_nothing_move_is_told() {
        for optimizer in ["sgd", "adamw"] {
            let held = [&format!("training.optimizer={optimizer}"), "training.max_gradient_norm=1e-9"];
            let rate = if optimizer == "sgd" { "training.learning_rate=0.3" } else { "run.seed=0" };
            let said = checked(&[held[0], held[1], rate]).unwrap_err().to_string();
            assert!(said.starts_with("`training.max_gradient_norm` = 1e-9 holds"), "{said}");
        }
        // At other rates than its own too.
        let said = checked(&["training.optimizer=sgd", "training.max_gradient_norm=1e-9"]);
        let said = said.unwrap_err().to_string();
        assert!(said.starts_with("`training.max_gradient_norm` = 1e-9 holds"), "{said}");
    }

    #[test]
    fn a_rate_that_the_search_tries_too_may_stand_for_one_that_fails() {
        let found = checked_with(&[candidate(0, &["training.learning_rate=10"], "")], &[10.0, 3e-3]).unwrap();
        assert_eq!(found.learning_rate, 3e-3);
    }

    #[test]
    fn one_trial_that_learns_is_enough_and_one_that_cannot_be_made_is_passed_over() {
        let hopeless = candidate(0, &["training.learning_rate=10"], "");
        // Ten heads do not divide a width of 24.
        let mut impossible = candidate(1, &[], "");
        impossible.experiment.model.heads = 10;
        let healthy = candidate(2, &[], "");
        let all = [hopeless, impossible.clone(), healthy];
        assert_eq!(checked_with(&all, &[]).unwrap().learning_rate, 3e-3);
        let dataset = dataset(&impossible.experiment).unwrap();
        let checked = |candidates: &[Candidate]| {
            check::<Autodiff<NdArray>>(candidates, &dataset, &[], &Default::default()).unwrap()
        };
        assert_eq!((checked(&[impossible]), checked(&[])), (None, None));
    }

    #[test]
    fn a_value_that_comes_from_a_search_is_not_blamed_on_the_user() {
        let searched = candidate(7, &["training.learning_rate=10"], "\"training.learning_rate\" = 10.0");
        let said = checked_with(&[searched.clone(), searched], &[]).unwrap_err().to_string();
        let starts =
            "baseline check: 8 sequences could not be learned by heart by trial 007 (learning_rate 10.0): ";
        assert!(said.starts_with(starts) && said.contains("and another trial fails too"), "{said}");
        assert!(said.contains("1e1 is too high. Search lower values of `training.learning_rate`"), "{said}");
        let other = candidate(0, &["training.learning_rate=10"], "\"model.d_model\" = 24");
        let said = checked_with(&[other], &[]).unwrap_err().to_string();
        assert!(said.starts_with("`training.learning_rate` = 1e1 is too high."), "{said}");
        assert!(said.contains("by trial 000 (d_model 24)"), "{said}");
    }

    #[test]
    fn labels_that_do_not_follow_from_what_came_before_are_told() {
        let said = checked(&["data.task=random", "data.length=1", "data.train_samples=512"])
            .unwrap_err()
            .to_string();
        assert!(said.contains("labels cannot be learned") && said.contains("tune.baseline=false"), "{said}");
    }
}
