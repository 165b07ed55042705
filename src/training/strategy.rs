//! The strategy inside Burn's learner: it hands the run to the learner's loop and takes it back.
//!
//! Burn's stock strategy knows only epochs: it validates and saves at their ends and loses what an
//! interrupt leaves unfinished. This one runs the loop over steps of [`Run`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::train::{
    Learner, SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents,
    ValidLoader,
};

use super::run::{Parts, Run};
use super::step::Trainee;
use super::stopping::Ended;
use crate::error::Result;
use crate::ops;

/// Hands a [`Run`] to Burn's learner and takes it back, with how it ended.
pub struct StepStrategy<B: ops::AutodiffBackend> {
    run: Mutex<Option<Run<B>>>,
    ended: Mutex<Option<Result<Ended>>>,
}

impl<B: ops::AutodiffBackend> StepStrategy<B> {
    /// A strategy that continues `run`.
    pub fn new(run: Run<B>) -> Self {
        Self { run: Mutex::new(Some(run)), ended: Mutex::new(None) }
    }

    /// The run and how it ended, once the learner has returned.
    pub fn finish(&self) -> Option<(Run<B>, Result<Ended>)> {
        take(&self.run).zip(take(&self.ended))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<T>(mutex: &Mutex<Option<T>>) -> Option<T> {
    lock(mutex).take()
}

impl<B: ops::AutodiffBackend> SupervisedLearningStrategy<Parts<B>> for StepStrategy<B> {
    fn fit(
        &self,
        components: TrainingComponents<Parts<B>>,
        mut learner: Learner<Parts<B>>,
        train: TrainLoader<Parts<B>>,
        valid: ValidLoader<Parts<B>>,
        _starting_epoch: usize,
    ) -> (Trainee<B>, SupervisedTrainingEventProcessor<Parts<B>>) {
        if let Some(run) = lock(&self.run).as_mut() {
            let ended = run.steps(&mut learner, &train, &valid, &components.interrupter);
            run.outputs.progress.finish();
            *lock(&self.ended) = Some(ended);
        }
        (learner.model(), components.event_processor)
    }
}
