//! `--progress tui`: Burn's dashboard, fed from the run.
//!
//! Its own thread draws plots of loss and accuracy and answers keys: `q` offers to stop the run, which
//! then saves and ends as it does on Ctrl-C.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use burn::data::dataloader::Progress as Items;
use burn::train::Interrupter;
use burn::train::metric::{
    MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericAttributes, NumericEntry,
    SerializedEntry,
};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{MetricState, MetricsRenderer, MetricsRendererTraining, TrainingProgress};

use super::progress::Standing;
use crate::evaluation::Evaluation;

/// A quantity of the dashboard: its name, its unit, and whether more of it is better.
type Quantity = (&'static str, &'static str, bool);

const LOSS: Quantity = ("Loss", "nats", false);
const GAP: Quantity = ("Above the floor", "nats", false);
const ACCURACY: Quantity = ("Accuracy", "%", true);
const LEARNING_RATE: Quantity = ("Learning rate", "", false);
const SPEED: Quantity = ("Speed", "tokens/s", true);

/// Burn's dashboard on the terminal.
pub(super) struct Dashboard {
    renderer: TuiMetricsRendererWrapper,
    interrupter: Interrupter,
    /// The training loss that was shown last.
    loss: Option<f64>,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").finish_non_exhaustive()
    }
}

impl Dashboard {
    /// Takes the terminal; what the user asks to stop, `interrupter` tells.
    pub fn new(interrupter: Interrupter) -> Self {
        let mut renderer = TuiMetricsRendererWrapper::new(interrupter.clone(), None);
        for (name, unit, higher_is_better) in [LOSS, GAP, ACCURACY, LEARNING_RATE, SPEED] {
            renderer.register_metric(MetricDefinition {
                metric_id: id(name),
                name: name.to_string(),
                description: None,
                attributes: MetricAttributes::Numeric(NumericAttributes {
                    unit: (!unit.is_empty()).then(|| unit.to_string()),
                    higher_is_better,
                }),
            });
        }
        Self { renderer, interrupter, loss: None }
    }

    /// A step is done.
    pub fn step(&mut self, standing: &Standing) {
        let new = standing.train_loss.filter(|&loss| self.loss != Some(loss));
        self.loss = standing.train_loss;
        self.show(|renderer| {
            if let Some(loss) = new {
                renderer.update_train(state(LOSS, loss));
                renderer.update_train(state(LEARNING_RATE, standing.learning_rate));
                renderer.update_train(state(SPEED, standing.tokens_per_second));
            }
            renderer.render_train(done(standing), Vec::new());
        });
    }

    /// A validation is done.
    pub fn validated(&mut self, standing: &Standing, evaluation: &Evaluation, floor: Option<f64>) {
        self.show(|renderer| {
            renderer.update_valid(state(LOSS, evaluation.loss));
            if let Some(floor) = floor {
                renderer.update_valid(state(GAP, evaluation.loss - floor));
            }
            renderer.update_valid(state(ACCURACY, evaluation.accuracy * 100.0));
            renderer.render_train(done(standing), Vec::new());
        });
    }

    /// The renderer panics when the user asks for the end at once: a run saves all the same.
    fn show(&mut self, draw: impl FnOnce(&mut TuiMetricsRendererWrapper)) {
        let renderer = &mut self.renderer;
        if catch_unwind(AssertUnwindSafe(|| draw(renderer))).is_err() {
            self.interrupter.stop(Some("asked for on the dashboard"));
        }
    }
}

fn id(name: &str) -> MetricId {
    MetricId::new(Arc::new(name.to_string()))
}

fn state((name, unit, _): Quantity, value: f64) -> MetricState {
    let formatted = match value.abs() {
        0.001..1e5 => format!("{value:.4} {unit}"),
        _ => format!("{value:.3e} {unit}"),
    };
    let entry = SerializedEntry { formatted, serialized: value.to_string() };
    MetricState::Numeric(MetricEntry::new(id(name), entry), NumericEntry::Value(value))
}

fn done(standing: &Standing) -> TrainingProgress {
    let items = Items { items_processed: standing.step, items_total: standing.total };
    TrainingProgress { progress: None, global_progress: items, iteration: Some(standing.step) }
}
