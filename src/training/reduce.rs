//! The all-reduce of a step over all processes: gradients, validation tallies, and requests.

use burn::tensor::backend::AutodiffBackend;

use super::control::{Requests, Stop};
use super::gradients::{Exchange, Learned};
use super::step::{StepInfo, Trainee};
use crate::error::Result;
use crate::evaluation::Tally;
use crate::workers::Workers;

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
pub struct SingleProcess;

impl<B: AutodiffBackend> Reduce<B> for SingleProcess {
    fn gradients(
        &mut self,
        _model: &Trainee<B>,
        learned: Option<Learned<B>>,
        _step: StepInfo,
        requests: Requests,
    ) -> Result<(Learned<B>, Requests)> {
        Ok((learned.expect("a step has a sequence"), requests))
    }

    fn tally(&mut self, tally: Tally, _time: usize) -> Result<Tally> {
        Ok(tally)
    }
}

/// An all-reduce over MPI workers.
pub struct AllReduce {
    /// The workers.
    pub workers: Workers,
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
        // Every worker may receive a signal, but only worker 0 checks the time limit and shows losses.
        let requests = match requests {
            requests if self.workers.is_first() => requests,
            Requests { stop, .. } => {
                Requests { stop: stop.filter(|stop| *stop != Stop::TimeLimit), wants_loss: false }
            }
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
