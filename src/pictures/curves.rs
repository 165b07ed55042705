//! The course of a run, as curves.

use super::Story;
use crate::analysis::Score;
use crate::config::Shape;
use crate::report::{
    Formation, GradientCurve, LossByPosition, LossCurve, Point, ScheduleCurve, ScoreHistory,
};
use crate::terminal::thousands;
use crate::training::{Row, Schedule, Split};

/// Points of a drawn schedule: more than a picture has pixels across.
const SCHEDULE_POINTS: usize = 1_000;
/// The scores whose course shows a head being formed.
const FORMED: [Score; 3] = [Score::Induction, Score::Previous, Score::Duplicate];

impl Story {
    fn points(&self, split: Split, value: impl Fn(&Row) -> Option<f64>) -> Vec<Point> {
        let rows = self.rows.iter().filter(|row| row.split == split);
        rows.filter_map(|row| Some(Point { step: row.step as u64, value: value(row)? })).collect()
    }

    pub(super) fn loss_curve(&self) -> LossCurve {
        let last = self.rows.last().map_or(0, |row| row.step) as f64;
        let an_epoch = self.summary.steps_per_epoch;
        let epochs = (last / an_epoch).floor() as u64;
        LossCurve {
            run: self.folder.name(),
            training: self.points(Split::Train, |row| Some(row.loss)),
            validation: self.points(Split::Valid, |row| Some(row.loss)),
            learning_rate: self.points(Split::Train, |row| Some(row.learning_rate)),
            epoch_ends: (1..=epochs).map(|epoch| (epoch as f64 * an_epoch).ceil() as u64).collect(),
            floor: self.summary.floor,
        }
    }

    /// The norms of the gradients; none where the run ended before its first row of training.
    pub(super) fn gradients(&self) -> Option<GradientCurve> {
        let limit = self.config.training.max_gradient_norm;
        let norm = self.points(Split::Train, |row| row.gradient_norm);
        (!norm.is_empty()).then(|| GradientCurve {
            run: self.folder.name(),
            norm,
            clip_rate: self.points(Split::Train, |row| row.clip_rate),
            clip_limit: (limit > 0.0).then_some(limit),
        })
    }

    /// The schedule of the whole run, as it was planned.
    pub(super) fn schedule(&self) -> ScheduleCurve {
        let training = &self.config.training;
        let batches = (self.summary.steps_per_epoch * training.accumulate as f64).round() as usize;
        let schedule = Schedule::new(training, training.total_steps(batches));
        let every = (schedule.total / SCHEDULE_POINTS).max(1);
        let steps = (0..schedule.total).step_by(every).chain(schedule.total.checked_sub(1));
        let shape = match schedule.shape {
            Shape::Constant => "constant",
            Shape::Linear => "linear",
            Shape::Cosine => "cosine",
            Shape::InverseSqrt => "inverse square root",
        };
        ScheduleCurve {
            run: self.folder.name(),
            schedule: match schedule.warmup {
                0 => shape.to_string(),
                steps => format!("linear warm-up over {} steps, then {shape}", thousands(steps as f64)),
            },
            // Counted as the rows of metrics.csv count: the first step is 1.
            learning_rate: steps
                .map(|step| Point { step: step as u64 + 1, value: schedule.at(step) })
                .collect(),
            warmup: schedule.warmup as u64,
        }
    }

    /// The loss by position; none where the run was never validated.
    pub(super) fn positions(&self) -> Option<LossByPosition> {
        let analysis = self.analysis.as_ref().filter(|analysis| !analysis.loss_by_position.is_empty())?;
        Some(LossByPosition {
            run: self.folder.name(),
            measured_on: "the whole validation set".to_string(),
            losses: analysis.loss_by_position.clone(),
            floor: analysis.floor_by_position.iter().copied().map(Some).collect(),
        })
    }

    /// The heads along the run; none where they were not scored, or no score says anything, as of
    /// sequences of one token.
    pub(super) fn formation(&self) -> Option<Formation> {
        let (steps, scores) = self.score_history(&FORMED);
        (steps.len() > 1 && !scores.is_empty()).then(|| Formation { loss: self.loss_curve(), steps, scores })
    }

    /// The steps at which heads were scored, and the course of some scores.
    pub(super) fn score_history(&self, scores: &[Score]) -> (Vec<u64>, Vec<ScoreHistory>) {
        let history = self.history.steps();
        let course = |score: &Score| ScoreHistory {
            score: *score,
            values: history
                .iter()
                .map(|scored| {
                    let layers = scored.heads.iter();
                    layers.map(|heads| heads.iter().map(|head| head[*score]).collect()).collect()
                })
                .collect(),
        };
        let known = |history: &ScoreHistory| history.values.iter().flatten().flatten().any(Option::is_some);
        let scores = scores.iter().map(course).filter(known).collect();
        (history.iter().map(|scored| scored.step as u64).collect(), scores)
    }
}
