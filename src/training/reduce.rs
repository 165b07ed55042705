//! The reduction of a step over all processes: gradients, validation tallies, and what the processes agree on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::backend::AutodiffBackend;

use super::gradients::{Exchange, Learned};
use super::step::Trainee;
use crate::error::Result;
use crate::evaluation::Tally;
use crate::workers::Workers;

/// What the processes agree on between two steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requests {
    /// The signal that asks the run to end; 0: none.
    pub signal: usize,
    /// Whether the time limit is reached.
    pub is_late: bool,
    /// Whether an observer wants to see a loss.
    pub wants_loss: bool,
}

/// A step of this process.
#[derive(Debug, Clone, Copy)]
pub struct StepInfo {
    /// The step, from 0.
    pub step: usize,
    /// The counted targets of the whole step.
    pub tokens: usize,
    /// Whether its accuracy is measured.
    pub is_measured: bool,
}

/// Reduces over processes.
pub trait Reduce<B: AutodiffBackend> {
    /// Returns the sum of the gradients over all processes, and what they agree on. A process without sequences has
    /// `learned` nothing.
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

/// A single process, which adds nothing.
pub struct SingleProcess {
    /// Set by a signal.
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

/// All-reduce over MPI workers.
pub struct AllReduce {
    /// The workers.
    pub workers: Workers,
    /// Set by a signal.
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
        // Worker 0 alone keeps the time and shows losses.
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
        self.workers.sum(&mut numbers, &mut Vec::new(), add)?;
        Ok(Tally::from_numbers(&numbers))
    }
}
