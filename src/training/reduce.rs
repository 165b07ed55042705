//! The all-reduce of a step over all processes: gradients, validation tallies, and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::backend::AutodiffBackend;

use super::gradients::{Exchange, Learned};
use super::step::Trainee;
use crate::error::Result;
use crate::evaluation::Tally;
use crate::workers::Workers;

/// The requests that the processes agree on between two steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requests {
    /// The number of the signal that asks the run to end, or 0.
    pub signal: usize,
    /// True if the time limit is reached.
    pub is_late: bool,
    /// True if an observer asks for a loss.
    pub wants_loss: bool,
}

/// The step whose gradients are reduced.
#[derive(Debug, Clone, Copy)]
pub struct StepInfo {
    /// The index of the step, from 0.
    pub step: usize,
    /// The number of counted targets of the step, over all shards.
    pub tokens: usize,
    /// True if the accuracy is measured.
    pub is_measured: bool,
}

/// A reduction over processes.
pub trait Reduce<B: AutodiffBackend> {
    /// Returns the gradients summed over all processes, and the requests that they agree on. `learned` is `None` for a
    /// process without sequences.
    ///
    /// # Errors
    /// If another process does not answer.
    fn gradients(
        &mut self,
        model: &Trainee<B>,
        learned: Option<Learned<B>>,
        step: StepInfo,
        requests: Requests,
    ) -> Result<(Learned<B>, Requests)>;

    /// Returns the sum of validation tallies over sequences of `time` positions.
    ///
    /// # Errors
    /// If another process does not answer.
    fn tally(&mut self, tally: Tally, time: usize) -> Result<Tally>;
}

/// A single process, which has nothing to reduce.
pub struct SingleProcess {
    /// The number of the last signal.
    pub signal: Arc<AtomicUsize>,
}

impl<B: AutodiffBackend> Reduce<B> for SingleProcess {
    fn gradients(
        &mut self,
        _model: &Trainee<B>,
        learned: Option<Learned<B>>,
        _step: StepInfo,
        requests: Requests,
    ) -> Result<(Learned<B>, Requests)> {
        let signal = self.signal.load(Ordering::Relaxed);
        Ok((learned.expect("a step has a sequence"), Requests { signal, ..requests }))
    }

    fn tally(&mut self, tally: Tally, _time: usize) -> Result<Tally> {
        Ok(tally)
    }
}

/// An all-reduce over MPI workers.
pub struct AllReduce {
    /// The workers.
    pub workers: Workers,
    /// The number of the last signal.
    pub signal: Arc<AtomicUsize>,
    /// The buffers of the reduction.
    pub exchange: Exchange,
}

impl<B: AutodiffBackend> Reduce<B> for AllReduce {
    fn gradients(
        &mut self,
        model: &Trainee<B>,
        learned: Option<Learned<B>>,
        step: StepInfo,
        requests: Requests,
    ) -> Result<(Learned<B>, Requests)> {
        // Only worker 0 checks the time limit and shows losses.
        let is_first = self.workers.is_first();
        let requests = Requests {
            signal: self.signal.load(Ordering::Relaxed),
            is_late: is_first && requests.is_late,
            wants_loss: is_first && requests.wants_loss,
        };
        self.exchange.sum(&self.workers, model, learned, step, requests)
    }

    fn tally(&mut self, tally: Tally, time: usize) -> Result<Tally> {
        let mut numbers = tally.numbers(time);
        let add = |sums: &mut [f64], others: &[f64]| {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        };
        self.workers.all_reduce(&mut numbers, &mut Vec::new(), add)?;
        Ok(Tally::from_numbers(&numbers))
    }
}
