//! The overfit check before a search: a model that can learn at all can memorise one small batch.
//!
//! The training loss must come close to the lowest possible loss on the batch, the entropy of the targets given their
//! prefixes. If no trial's model succeeds, the check tries other learning rates and no clipping. The change that
//! succeeds indicates the most likely reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{outline::Candidate, space::setting_shown};
use crate::backend::Device;
use crate::config::Config;
use crate::data::{Batch, Dataset, Role};
use crate::error::{Error, Result};
use crate::numbers::counted;
use crate::training::train_briefly;

/// The maximum number of trials that are checked.
const MAX_CHECKED_TRIALS: usize = 8;
/// The maximum number of targets in the batch: enough to rule out chance, few enough to train within seconds.
const BATCH_TARGETS: usize = 256;
const MAX_BATCH_SEQUENCES: usize = 8;
/// The maximum number of targets in the check of whether the inputs determine the labels.
const LABEL_CHECK_TARGETS: usize = 4_096;
const MAX_LABEL_CHECK_SEQUENCES: usize = 512;
/// The largest entropy of targets given their prefixes, as a fraction of a uniform guess's loss, at which labels count
/// as learnable.
const MAX_ENTROPY_FRACTION: f64 = 0.8;
/// The distance in nats below which the training loss counts as close to the lowest possible.
const MAX_GAP: f64 = 0.1;
/// The maximum number of steps, and the steps of linear warm-up.
const MAX_STEPS: usize = 300;
const WARMUP_STEPS: usize = 10;
/// The learning rates tried if a trial's own rate fails: multiples of this rate, then fixed rates.
const RATE_FACTORS: [f64; 6] = [0.1, 10.0, 0.01, 100.0, 0.001, 1_000.0];
const USUAL_RATES: [f64; 5] = [1e-3, 1e-2, 1e-4, 1e-1, 1e-5];

const SKIP_REMEDY: &str = "or skip the check with --set tune.overfit_check=false";

/// The result of the check. Losses are in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverfitCheck {
    /// The number of sequences in the batch.
    pub sequences: usize,
    /// The number of targets in the batch.
    pub targets: usize,
    /// The lowest possible loss on the batch.
    pub least: f64,
    /// The loss before the first step.
    pub first: f64,
    /// The loss at the end of the check.
    pub reached: f64,
    /// The number of completed steps.
    pub steps: usize,
    /// The learning rate.
    pub learning_rate: f64,
}

/// Trains the models of some candidates on one batch, each at its own rate, until one of them overfits it. Returns
/// `None` if no candidate's model can be built.
///
/// # Errors
/// If no candidate overfits: the lowest loss and the most likely reason. Reasons are labels that the
/// inputs do not determine, a learning rate that is too high or too low, and gradients clipped to almost nothing.
pub fn overfit(candidates: &[Candidate], dataset: &Dataset, on: &Device) -> Result<Option<OverfitCheck>> {
    let batch = first_batch(dataset, BATCH_TARGETS, MAX_BATCH_SEQUENCES);
    let learn = |config: &Config| learn(config, dataset, &batch, on);
    let mut tried = spread(candidates).peekable();
    if tried.peek().is_some() {
        check_labels(dataset, &batch)?;
    }
    let mut failed: Option<(&Candidate, OverfitCheck)> = None;
    for candidate in tried {
        // If a model cannot be built, its trial is recorded as failed later.
        let Ok(found) = learn(&candidate.config) else { continue };
        if found.has_overfitted() {
            return Ok(Some(found));
        }
        if failed.as_ref().is_none_or(|(_, lowest)| found.reached.total_cmp(&lowest.reached).is_lt()) {
            failed = Some((candidate, found));
        }
    }
    let Some((candidate, found)) = failed else { return Ok(None) };
    let whose = match candidate.setting.is_empty() {
        true => String::new(),
        false => format!(" of trial {:03} ({})", candidate.trial, setting_shown(&candidate.setting)),
    };
    let happened = format!(
        "in the overfit check, the loss{whose} on {} went from {:.2} to {:.2} nats per token in {}, but must \
         fall below {:.2}",
        counted(found.sequences, "sequence"),
        found.first,
        found.reached,
        counted(found.steps, "step"),
        found.least + MAX_GAP
    );
    Err(reason(candidate, &happened, learn)?)
}

/// Returns a few candidates, spread evenly over the search, without those that do not fit into memory.
pub(super) fn spread(candidates: &[Candidate]) -> impl Iterator<Item = &Candidate> {
    let few = candidates.len().min(MAX_CHECKED_TRIALS);
    let chosen = (0..few).map(move |position| &candidates[position * candidates.len() / few]);
    chosen.filter(|candidate| candidate.too_large.is_none())
}

/// Returns the reason why a candidate did not overfit, derived from the change with which it does.
fn reason(
    candidate: &Candidate,
    happened: &str,
    learn: impl Fn(&Config) -> Result<OverfitCheck>,
) -> Result<Error> {
    let training = &candidate.config.training;
    let (own, norm) = (training.learning_rate, training.max_gradient_norm);
    let rates = RATE_FACTORS.map(|factor| factor * own).into_iter().chain(USUAL_RATES);
    // The candidate's own rate without clipping comes first: a higher rate can compensate for gradients clipped to
    // almost nothing, but is not the remedy.
    let unclipped = |rate: f64| (norm > 0.0).then_some((rate, 0.0));
    let changes = (unclipped(own).into_iter())
        .chain(rates.map(|rate| (rate, norm)))
        .chain(USUAL_RATES.into_iter().filter_map(unclipped));
    for (rate, clipping) in changes {
        let mut changed = candidate.config.clone();
        (changed.training.learning_rate, changed.training.max_gradient_norm) = (rate, clipping);
        if !learn(&changed)?.has_overfitted() {
            continue;
        }
        let shown = format!("{rate:.3e}").parse().unwrap_or(rate);
        let (key, value, fault, remedy) = if clipping != norm {
            ("training.max_gradient_norm", norm, "is too low", "raise")
        } else if rate < own {
            ("training.learning_rate", own, "is too high", "lower")
        } else {
            ("training.learning_rate", own, "is too low", "raise")
        };
        let unclipped = if clipping == norm { "" } else { " and no clipping (0)" };
        let works = format!("{happened}; with a learning rate of {shown:e}{unclipped} it does");
        return Ok(match candidate.setting.contains_key(key) {
            false => {
                Error::key(key, format!("{value:e}"), format!("{fault}: {works}; {remedy} it, {SKIP_REMEDY}"))
            }
            // The user did not set a searched key itself, but its values in [tune.search].
            true => Error::Input(format!(
                "{works}, so {value:e} {fault}; {remedy} the values of `{key}` in [tune.search], {SKIP_REMEDY}"
            )),
        });
    }
    Ok(Error::Input(format!(
        "{happened}; neither other learning rates, from 1e-5 to 0.1, nor unclipped gradients help; the model may be \
         too small (`model.d_model`, `model.layers`) or lack position information (`model.position`); change it, \
         {SKIP_REMEDY}"
    )))
}

impl OverfitCheck {
    fn has_overfitted(&self) -> bool {
        self.reached <= self.least + MAX_GAP
    }
}

/// Trains on one batch until the loss is close to its minimum, without regularisation that prevents memorisation:
/// dropout, label smoothing, weight decay.
fn learn(config: &Config, dataset: &Dataset, batch: &Batch, on: &Device) -> Result<OverfitCheck> {
    let mut plain = config.clone();
    plain.model.dropout = 0.0;
    plain.training.label_smoothing = 0.0;
    plain.training.weight_decay = 0.0;
    let mut found = OverfitCheck {
        sequences: batch.rows,
        targets: targets(batch),
        least: min_loss(batch),
        first: f64::NAN,
        reached: f64::INFINITY,
        steps: 0,
        learning_rate: plain.training.learning_rate,
    };
    let rate = |step, loss: f64| {
        if step == 0 {
            found.first = loss;
        }
        (found.steps, found.reached) = (step, if loss.is_finite() { loss } else { f64::INFINITY });
        let warmed = ((step + 1) as f64 / WARMUP_STEPS as f64).min(1.0);
        (loss.is_finite() && step < MAX_STEPS && !found.has_overfitted())
            .then_some(found.learning_rate * warmed)
    };
    train_briefly(&plain, dataset, on, Some(batch), rate)?;
    Ok(found)
}

/// Checks on a few hundred sequences that there are labels, and that the inputs determine them.
fn check_labels(dataset: &Dataset, batch: &Batch) -> Result<()> {
    let wide = first_batch(dataset, LABEL_CHECK_TARGETS, MAX_LABEL_CHECK_SEQUENCES);
    let (entropy, uniform) = (min_loss(&wide), (dataset.vocabulary.size() as f64).ln());
    if targets(batch) > 0 && entropy <= MAX_ENTROPY_FRACTION * uniform {
        return Ok(());
    }
    Err(Error::Input(format!(
        "overfit check: the labels cannot be learned: in {}, equal inputs have different targets, so no model can \
         reach a loss below {entropy:.2} nats per token (a uniform guess: {uniform:.2}); check [data], for example \
         try a longer `data.length`, {SKIP_REMEDY}",
        counted(wide.rows, "sequence")
    )))
}

fn targets(batch: &Batch) -> usize {
    batch.roles.iter().filter(|&&role| role != Role::Padding).count()
}

/// Returns the first sequences of the training set. In long sequences, only the first targets that count are kept.
fn first_batch(dataset: &Dataset, targets: usize, sequences: usize) -> Batch {
    let rows = (targets / dataset.train.time().max(1)).clamp(1, sequences);
    let mut batch = dataset.train.batches(rows).next().expect("a set has a sequence");
    for row in batch.roles.chunks_mut(batch.time) {
        let counted = row.iter_mut().filter(|role| **role != Role::Padding);
        counted.skip(targets).for_each(|role| *role = Role::Padding);
    }
    batch
}

/// Returns the loss of a model that knows the distribution of these sequences: the mean entropy of the targets given
/// their prefixes.
fn min_loss(batch: &Batch) -> f64 {
    // The counts of targets, by source and prefix.
    let mut followers: BTreeMap<_, BTreeMap<u32, usize>> = BTreeMap::new();
    for (position, &target) in
        batch.targets.iter().enumerate().filter(|&(position, _)| batch.roles[position] != Role::Padding)
    {
        let row = position / batch.time;
        let source =
            batch.source.as_ref().map(|source| &source.tokens[row * source.time..(row + 1) * source.time]);
        let first = match &batch.documents {
            None => row * batch.time,
            Some(documents) => {
                let is_other = |document: &u32| *document != documents[position];
                let before = documents[row * batch.time..position].iter().rposition(is_other);
                row * batch.time + before.map_or(0, |before| before + 1)
            }
        };
        let prefix = &batch.inputs[first..=position];
        *followers.entry((source, prefix)).or_default().entry(target).or_default() += 1;
    }
    let (mut loss, mut targets) = (0.0, 0);
    for counts in followers.values() {
        let all = counts.values().sum::<usize>();
        targets += all;
        loss -= counts.values().map(|&count| count as f64 * (count as f64 / all as f64).ln()).sum::<f64>();
    }
    loss / targets.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{super::testing::small, *};
    use crate::{config::BackendName, training::dataset};

    fn candidate(trial: usize, sets: &[&str], setting: &str) -> Candidate {
        let sets = [&["training.learning_rate=3e-3"], sets].concat();
        let setting = setting.parse::<toml::Table>().unwrap().into_iter().collect();
        Candidate { trial, setting, config: small(&sets).unwrap(), too_large: None }
    }

    fn checked(candidates: &[Candidate]) -> Result<Option<OverfitCheck>> {
        let dataset = dataset(&candidates[0].config)?;
        let on = Device::processor(BackendName::Ndarray);
        overfit(candidates, &dataset, &on)
    }

    fn refused(sets: &[&str]) -> String {
        checked(&[candidate(0, sets, "")]).unwrap_err().to_string()
    }

    #[test]
    fn healthy_model_overfits_one_batch_despite_dropout() {
        let healthy = candidate(0, &["model.dropout=0.5", "training.label_smoothing=0.2"], "");
        let found = checked(&[healthy]).unwrap().unwrap();
        assert!(found.reached < found.least + MAX_GAP && found.first > 1.5, "{found:?}");
        assert_eq!((found.sequences, found.targets), (8, 96));
    }

    #[test]
    fn targets_after_a_long_prompt_are_kept() {
        let pair = |row: usize| {
            let prompt = "ab".repeat(200 + row);
            format!("{{\"prompt\": \"{prompt}\", \"completion\": \"{}\"}}\n", ["a", "b"][row % 2])
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.jsonl");
        std::fs::write(&path, (0..40).map(pair).collect::<String>()).unwrap();
        let path = format!("data.path={}", path.display());
        let config = small(&[&path, "data.source=table", "data.tokens=characters"]).unwrap();
        let dataset = dataset(&config).unwrap();
        let batch = first_batch(&dataset, BATCH_TARGETS, MAX_BATCH_SEQUENCES);
        assert!(batch.time > 400 && targets(&batch) > 0, "{} positions", batch.time);
        check_labels(&dataset, &batch).unwrap();
    }

    #[test]
    fn bad_learning_rates_are_diagnosed() {
        let message = refused(&["training.learning_rate=1"]);
        assert!(message.starts_with("`training.learning_rate` = 1e0 is too high: "), "{message}");
        assert!(
            message.contains(" nats per token in 300 steps, but must fall below ")
                && message.contains("with a learning rate of 1e-"),
            "{message}"
        );
        let message = refused(&["training.learning_rate=1e-6", "training.min_learning_rate=0"]);
        assert!(message.contains("is too low") && message.lines().count() == 1, "{message}");
    }

    #[test]
    fn excessive_clipping_is_diagnosed() {
        let sgd = ["training.optimizer=sgd", "training.learning_rate=0.3", "training.max_gradient_norm=1e-9"];
        for sets in [&sgd[..], &sgd[2..]] {
            let message = refused(sets);
            assert!(message.starts_with("`training.max_gradient_norm` = 1e-9 is too low: "), "{message}");
        }
    }

    #[test]
    fn one_overfitting_trial_suffices() {
        let hopeless = candidate(0, &["training.learning_rate=10"], "");
        // Ten heads do not divide a width of 24.
        let mut impossible = candidate(1, &[], "");
        impossible.config.model.heads = 10;
        let mut all = [hopeless, impossible, candidate(2, &[], "")];
        assert_eq!(checked(&all).unwrap().unwrap().learning_rate, 3e-3);
        assert_eq!(checked(&all[1..2]).unwrap(), None);
        all.iter_mut().for_each(|one| one.too_large = Some(Error::Input("too large".into())));
        assert_eq!(checked(&all).unwrap(), None);
    }

    #[test]
    fn the_lowest_loss_of_all_trials_is_reported() {
        let rate = |trial, rate: &str| {
            candidate(trial, &[&format!("training.learning_rate={rate}"), "training.min_learning_rate=0"], "")
        };
        let searched = [("1e-9", 0), ("1e-5", 1), ("1e-8", 2)].map(|(value, trial)| Candidate {
            setting: toml::from_str(&format!("\"training.learning_rate\" = {value}")).unwrap(),
            ..rate(trial, value)
        });
        let message = checked(&searched).unwrap_err().to_string();
        assert!(message.contains("the loss of trial 001 (learning_rate 1e-5)"), "{message}");
    }

    #[test]
    fn searched_values_are_attributed_to_their_trial() {
        let searched = || candidate(7, &["training.learning_rate=10"], "\"training.learning_rate\" = 10.0");
        let message = checked(&[searched(), searched()]).unwrap_err().to_string();
        let starts =
            "in the overfit check, the loss of trial 007 (learning_rate 10.0) on 8 sequences went from ";
        assert!(message.starts_with(starts), "{message}");
        assert!(
            message.contains("1e1 is too high; lower the values of `training.learning_rate`"),
            "{message}"
        );
    }

    #[test]
    fn unlearnable_labels_are_reported() {
        let message = refused(&["data.task=random", "data.length=1", "data.train_samples=512"]);
        assert!(
            message.contains("labels cannot be learned") && message.contains("tune.overfit_check=false"),
            "{message}"
        );
    }

    #[test]
    fn least_loss_is_the_conditional_entropy() {
        // 1 is followed by 2 and by 3; their successors are certain.
        let batch = Batch {
            rows: 2,
            time: 2,
            inputs: vec![1, 2, 1, 3],
            targets: vec![2, 5, 3, 5],
            roles: vec![Role::Undetermined; 4],
            source: None,
            documents: None,
        };
        assert!((min_loss(&batch) - 2f64.ln() / 2.0).abs() < 1e-12);
    }
}
