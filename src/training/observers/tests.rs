//! Tests of early stopping and of the detection of explosions.

use super::*;
use crate::backend::choose;
use crate::config::{Config, Monitor, TrainingConfig};
use crate::training::metrics::Split;
use crate::training::{Control, Mode, RunFolder, RunInputs, RunPath, launch_with};
use serde::Deserialize;

fn row(split: Split, loss: f64, accuracy: f64) -> Row {
    let gradient_norm = (split == Split::Train).then_some(loss + 5.0);
    let (step, epoch, learning_rate, tokens, seconds, clip_rate) = (1, 1, 0.1, 1, 1.0, None);
    let objective = None;
    Row {
        step,
        epoch,
        split,
        loss,
        accuracy,
        learning_rate,
        gradient_norm,
        tokens,
        seconds,
        clip_rate,
        objective,
    }
}

#[test]
fn losses_explode_far_above_uniform_and_their_start() {
    let has_exploded = |first, last, valid, start| {
        let mut explosion = Explosion::default();
        explosion.train(first, true);
        explosion.train(last, false);
        explosion.validate(valid, 2.8, start).is_some()
    };
    assert!(has_exploded(2.9, 5e6, 5e6, None));
    assert!(!has_exploded(2.9, 0.1, 9.0, None), "a memorised training set is not an explosion");
    assert!(!has_exploded(2.9, 3.0, 3.1, None), "an untrained model is not an explosion");
    assert!(!has_exploded(300.0, 200.0, 200.0, None), "untrained weights may have a large loss");
    assert!(!has_exploded(9.0, 12.5, 12.5, Some(12.0)), "weights of other data may have a large loss");
    assert!(has_exploded(9.0, 13.5, 13.5, Some(12.0)));
}

#[test]
fn recovered_losses_reset_the_explosion_count() {
    let mut explosion = Explosion::default();
    explosion.train(2.8, true);
    let mut is_lasting = |loss| {
        explosion.train(loss, false);
        explosion.validate(loss, 2.8, None);
        explosion.is_lasting()
    };
    assert_eq!(
        [50.0, 40.0, 3.0, 50.0, 40.0, 30.0].map(&mut is_lasting),
        [false, false, false, false, false, true]
    );
}

/// Returns the index of the validation at which early stopping ends the run, for the given values of the monitored
/// metric. The other metrics get worse.
fn stops_at(values: &[f64], config: &TrainingConfig) -> Option<usize> {
    let mut stopping = EarlyStopping::default();
    let mut rows = Vec::new();
    values.iter().enumerate().position(|(at, &value)| {
        let other = at as f64;
        let (train, valid) = match config.monitor {
            Monitor::ValidLoss => ([(other, -other); 2], (value, -other)),
            Monitor::ValidAccuracy => ([(other, -other); 2], (other, -value)),
            // The mean of these two rows is the value.
            Monitor::TrainLoss | Monitor::GradientNorm => {
                ([(value - 0.5, -other), (value + 0.5, -other)], (other, -other))
            }
            Monitor::TrainAccuracy => ([(other, 0.5 - value), (other, -0.5 - value)], (other, -other)),
        };
        rows.extend(train.map(|(loss, accuracy)| row(Split::Train, loss, accuracy)));
        rows.push(row(Split::Valid, valid.0, valid.1));
        stopping.observe(&rows, config)
    })
}

#[test]
fn patience_counts_validations_below_min_delta() {
    use Monitor::{GradientNorm, TrainAccuracy, TrainLoss, ValidAccuracy, ValidLoss};
    for monitor in [ValidLoss, ValidAccuracy, TrainLoss, TrainAccuracy, GradientNorm] {
        let config = TrainingConfig { patience: 2, min_delta: 0.1, monitor, ..Default::default() };
        let small = [3.0, 2.0, 1.95, 1.91, 1.0];
        assert_eq!(stops_at(&small, &config), Some(3), "{monitor:?}: 0.05 and 0.09 are not improvements");
        let improving_again = [3.0, 2.0, 1.95, 1.8, 1.75, 1.75];
        assert_eq!(
            stops_at(&improving_again, &config),
            Some(5),
            "{monitor:?}: an improvement resets the count"
        );
    }
    assert_eq!(stops_at(&[1.0; 50], &TrainingConfig::default()), None);
}

#[test]
fn patience_resets_when_the_monitor_changes() {
    let accuracy = TrainingConfig { patience: 1, monitor: Monitor::ValidAccuracy, ..Default::default() };
    let mut stopping = EarlyStopping::default();
    for _ in 0..2 {
        stopping.observe(&[row(Split::Valid, 2.0, 0.5)], &accuracy);
    }
    assert!(stopping.is_stale(&accuracy));
    let loss = TrainingConfig { monitor: Monitor::ValidLoss, ..accuracy.clone() };
    assert!(!stopping.is_stale(&loss), "the loss has not been monitored yet");
    assert!(!stopping.observe(&[row(Split::Valid, 2.0, 0.5)], &loss), "the first value is the best");
    assert_eq!((stopping.best, stopping.stale), (Some(2.0), 0));

    let train = TrainingConfig { monitor: Monitor::TrainLoss, ..accuracy };
    let mut stopping = EarlyStopping::default();
    let rows = [row(Split::Train, 2.0, 0.5), row(Split::Valid, 2.0, 0.5), row(Split::Valid, 2.0, 0.5)];
    assert!(!stopping.observe(&rows[..2], &train) && !stopping.observe(&rows, &train));
    assert_eq!((stopping.best, stopping.stale), (Some(2.0), 0));
}

/// An observer that counts the steps of a run across resumes.
struct Steps(std::sync::Arc<std::sync::Mutex<Vec<usize>>>, usize);

impl Observer for Steps {
    fn step(&mut self, _moment: &Moment<'_>) {
        self.1 += 1;
        self.0.lock().unwrap().push(self.1);
    }

    fn restore(&mut self, part: &Value) -> Result<(), serde_json::Error> {
        self.1 = usize::deserialize(part)?;
        Ok(())
    }

    fn part(&self) -> Option<(&'static str, Value)> {
        Some(("steps", self.1.into()))
    }
}

#[test]
fn custom_observer_state_is_restored_on_resume() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let counted = std::sync::Arc::default();
    let train = |steps, mode| {
        let set = [
            &format!("training.steps={steps}"),
            "training.batch_size=2",
            "data.train_samples=8",
            "data.valid_samples=2",
            "data.length=6",
            "analysis.circuit=false",
        ];
        let set = set.map(ToString::to_string);
        let config = Config::parse("", std::path::Path::new("config.toml"), &set).unwrap();
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(Steps(std::sync::Arc::clone(&counted), 0))];
        let control = Control::unwatched(choose(None, None).unwrap());
        launch_with(&config, mode, &control, RunInputs { observers, ..RunInputs::default() }).unwrap();
    };
    train(3, Mode::New(RunPath::Folder(run.clone())));
    train(5, Mode::Resume(RunFolder::at(run)));
    assert_eq!(*counted.lock().unwrap(), [1, 2, 3, 4, 5]);
}
