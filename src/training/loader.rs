//! Burn's `DataLoader` over the project's own: a loader of whole steps for training, and one of
//! batches for validation.
//!
//! Both are pure functions of (seed, step), so a run that starts at step k sees what the
//! undisturbed run saw there.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::prelude::*;

use super::step::StepBatches;
use crate::data::{Batch, Loader};
use crate::evaluation::{DeviceBatch, ValidBatch};

/// The steps `first..end` of a run.
#[derive(Debug, Clone)]
pub struct TrainSteps<B: Backend> {
    /// Batches by epoch and index.
    pub loader: Arc<Loader>,
    /// Batches whose gradients are averaged into one step.
    pub accumulate: usize,
    /// Every such step, its last one apart, has its accuracy measured.
    pub log_every: usize,
    /// The first step.
    pub first: usize,
    /// The step behind the last.
    pub end: usize,
    /// Where the batches go.
    pub device: B::Device,
}

impl<B: Backend> TrainSteps<B> {
    fn step(&self, step: usize, buffer: &mut Batch) -> StepBatches<B> {
        // An epoch ends with a step, as it does where one batch is as large as these together.
        let an_epoch = self.loader.batches().div_ceil(self.accumulate);
        let (epoch, first) = (step / an_epoch, step % an_epoch * self.accumulate);
        let batches =
            (first..first + self.accumulate).filter(|&index| self.loader.holds(index)).map(|index| {
                self.loader.batch(epoch, index, buffer);
                DeviceBatch::new(buffer, &self.device)
            });
        let batches = batches.collect();
        let measured = (step + 1).is_multiple_of(self.log_every) || step + 1 == self.end;
        StepBatches { step, batches, measured }
    }
}

impl<B: Backend> DataLoader<B, StepBatches<B>> for TrainSteps<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<StepBatches<B>> + 'a> {
        let mut buffer = Batch::default();
        let make = move |step: usize| self.step(self.first + step, &mut buffer);
        Box::new(Counted { make, next: 0, end: self.num_items() })
    }

    fn num_items(&self) -> usize {
        self.end.saturating_sub(self.first)
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, StepBatches<B>>> {
        Arc::new(Self { device: device.clone(), ..self.clone() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, StepBatches<B>>> {
        let end = (self.first + end).min(self.end);
        Arc::new(Self { first: self.first + start, end, ..self.clone() })
    }
}

/// A whole set, batch by batch, in its order.
#[derive(Debug, Clone)]
pub struct ValidBatches<B: Backend> {
    /// Batches by index.
    pub loader: Arc<Loader>,
    /// The batches `first..end` of the set.
    pub first: usize,
    /// The batch behind the last.
    pub end: usize,
    /// Where the batches go.
    pub device: B::Device,
}

impl<B: Backend> ValidBatches<B> {
    /// All of `loader`'s set.
    pub fn new(loader: Arc<Loader>, device: B::Device) -> Self {
        let end = loader.batches();
        Self { loader, first: 0, end, device }
    }
}

impl<B: Backend> DataLoader<B, ValidBatch<B>> for ValidBatches<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<ValidBatch<B>> + 'a> {
        let mut buffer = Batch::default();
        let make = move |index: usize| {
            self.loader.batch(0, self.first + index, &mut buffer);
            ValidBatch::new(buffer.clone(), &self.device)
        };
        Box::new(Counted { make, next: 0, end: self.num_items() })
    }

    fn num_items(&self) -> usize {
        self.end.saturating_sub(self.first)
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, ValidBatch<B>>> {
        Arc::new(Self { device: device.clone(), ..self.clone() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, ValidBatch<B>>> {
        let end = (self.first + end).min(self.end);
        Arc::new(Self { first: self.first + start, end, ..self.clone() })
    }
}

/// The items `0..end`, each made when it is asked for.
struct Counted<F> {
    make: F,
    next: usize,
    end: usize,
}

impl<T, F: FnMut(usize) -> T> Iterator for Counted<F> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let index = self.next;
        (index < self.end).then(|| {
            self.next += 1;
            (self.make)(index)
        })
    }
}

impl<T, F: FnMut(usize) -> T> DataLoaderIterator<T> for Counted<F> {
    fn progress(&self) -> Progress {
        Progress::new(self.next, self.end)
    }
}
