//! The learning rate as a pure function of the step.
//!
//! A linear warm-up, `peak (step + 1) / (warmup + 1)`, lets Adam's second moments settle before the rate is high (Goyal
//! et al., 2017; Xiong et al., 2020). The five shapes after the warm-up are constant, linear, cosine (Loshchilov and
//! Hutter, 2017), inverse square root (Vaswani et al., 2017) and constant with a linear cooldown (Zhai et al., 2022).
//! Steps count from 0.

use std::f64::consts::PI;

use burn::{lr_scheduler::LrScheduler, tensor::backend::Backend};

use crate::config::{ScheduleKind, TrainingConfig};

/// A learning-rate schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The shape after the warm-up.
    pub kind: ScheduleKind,
    /// The highest rate.
    pub peak: f64,
    /// The lowest rate of a decaying schedule.
    pub min_rate: f64,
    /// The number of steps of linear warm-up.
    pub warmup: usize,
    /// The number of steps of the linear decay that ends a trapezoid.
    pub cooldown: usize,
    /// The number of steps of the run. Later steps use the minimum rate, except with a constant schedule.
    pub total: usize,
}

impl Schedule {
    /// Returns the schedule of a run of `total` steps.
    pub fn new(config: &TrainingConfig, total: usize) -> Self {
        let [warmup, cooldown] = config.ramps(total);
        Self {
            kind: config.schedule,
            peak: config.learning_rate,
            min_rate: config.min_learning_rate,
            warmup,
            cooldown,
            total,
        }
    }

    /// Returns the learning rate of `step`, counted from 0.
    pub fn at(&self, step: usize) -> f64 {
        let Self { kind, peak, min_rate, warmup, cooldown, total } = *self;
        // 1. Warm-up.
        if step < warmup {
            return peak * (step + 1) as f64 / (warmup as f64 + 1.0);
        }
        // 2. After the end.
        if step > total && kind != ScheduleKind::Constant {
            return min_rate;
        }
        // 3. From the peak to the minimum rate.
        let ratio = (step - warmup) as f64 / (total.saturating_sub(warmup)).max(1) as f64;
        match kind {
            ScheduleKind::Constant => peak,
            ScheduleKind::Linear => min_rate + (1.0 - ratio) * (peak - min_rate),
            ScheduleKind::Cosine => min_rate + 0.5 * (1.0 + (PI * ratio).cos()) * (peak - min_rate),
            ScheduleKind::InverseSqrt => {
                (peak * ((warmup as f64 + 1.0) / (step + 1) as f64).sqrt()).max(min_rate)
            }
            ScheduleKind::Trapezoid if step + cooldown <= total => peak,
            ScheduleKind::Trapezoid => {
                min_rate + (total - step) as f64 / cooldown.max(1) as f64 * (peak - min_rate)
            }
        }
    }
}

/// A [`Schedule`] for Burn's learner, which returns the rates of consecutive steps.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// The learning rates.
    pub schedule: Schedule,
    /// The next step.
    pub next: usize,
}

impl LrScheduler for Scheduler {
    // The state of the run holds the step.
    type Record<B: Backend> = ();

    fn step(&mut self) -> f64 {
        let rate = self.schedule.at(self.next);
        self.next += 1;
        rate
    }

    fn to_record<B: Backend>(&self) {}

    fn load_record<B: Backend>(self, _record: ()) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind) -> Schedule {
        Schedule { kind, peak: 1e-2, min_rate: 1e-3, warmup: 10, cooldown: 20, total: 110 }
    }

    #[test]
    fn warmup_is_linear_up_to_the_peak() {
        for kind in [
            ScheduleKind::Constant,
            ScheduleKind::Linear,
            ScheduleKind::Cosine,
            ScheduleKind::InverseSqrt,
            ScheduleKind::Trapezoid,
        ] {
            let schedule = schedule(kind);
            for step in 0..10 {
                let expected = 1e-2 * (step + 1) as f64 / 11.0;
                assert!((schedule.at(step) - expected).abs() < 1e-15);
            }
            assert!((schedule.at(10) - 1e-2).abs() < 1e-15, "{kind:?}");
        }
    }

    #[test]
    fn decay_ends_at_the_minimum_rate() {
        for kind in [ScheduleKind::Linear, ScheduleKind::Cosine] {
            let schedule = schedule(kind);
            assert!(
                (schedule.at(60) - 5.5e-3).abs() < 1e-12,
                "the rate is halfway down at half of the steps"
            );
            assert!((schedule.at(110) - 1e-3).abs() < 1e-12);
            assert_eq!(schedule.at(111), 1e-3);
            assert_eq!(schedule.at(usize::MAX), 1e-3);
        }
        let trapezoid = schedule(ScheduleKind::Trapezoid);
        assert_eq!([10, 90, 110, 111].map(|step| trapezoid.at(step)), [1e-2, 1e-2, 1e-3, 1e-3]);
        assert!(
            (trapezoid.at(100) - 5.5e-3).abs() < 1e-12,
            "the rate is halfway down at half of the cooldown"
        );
        assert!(
            (schedule(ScheduleKind::InverseSqrt).at(43) - 5e-3).abs() < 1e-12,
            "the rate halves when the step quadruples"
        );
        assert_eq!(schedule(ScheduleKind::Constant).at(5_000), 1e-2);
    }

    #[test]
    fn warmup_longer_than_the_run_stays_finite() {
        let schedule = Schedule {
            kind: ScheduleKind::Cosine,
            peak: 1.0,
            min_rate: 0.1,
            warmup: 50,
            cooldown: 0,
            total: 20,
        };
        assert!((0..100).all(|step| schedule.at(step).is_finite()));
    }

    #[test]
    fn scheduler_follows_the_schedule_from_any_step() {
        let schedule = schedule(ScheduleKind::Cosine);
        let mut scheduler = Scheduler { schedule, next: 7 };
        assert_eq!([scheduler.step(), scheduler.step()], [schedule.at(7), schedule.at(8)]);
    }
}
