//! The progress of `explain`, and its end by a time budget or a signal.

use std::cell::{OnceCell, RefCell};
use std::time::{Duration, Instant};

use crate::analysis::circuit::{ExplanationStage, Watch};
use crate::cli::signals;
use crate::error::Result;
use crate::terminal::{PieceProgress, ProgressKind, Waiting};
use crate::training::StopSignal;

/// The acknowledgement of a signal.
const NOTICE: &str = "\nnotice: interrupted; printing what is known; a second signal exits immediately\n";

/// Shows the progress of an explanation, and ends it after a time budget or a signal.
pub struct ExplanationWatch {
    kind: ProgressKind,
    started: Instant,
    /// The time until the search began.
    before: OnceCell<Duration>,
    budget: Option<Duration>,
    signal: StopSignal,
    shown: RefCell<Shown>,
}

/// The progress that is shown.
enum Shown {
    Loading(#[expect(dead_code, reason = "shown until it is dropped")] Waiting),
    Stage(ExplanationStage, usize, PieceProgress),
    Nothing,
}

impl ExplanationWatch {
    /// Starts the progress and the budget, in seconds.
    ///
    /// # Errors
    /// Returns an error if signal handlers cannot be installed.
    pub fn new(json: bool, budget: Option<f64>) -> Result<Self> {
        let kind = ProgressKind::next_to_result(json);
        Ok(Self {
            kind,
            started: Instant::now(),
            before: OnceCell::new(),
            // A budget that no clock measures is none.
            budget: budget.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            signal: signals::watch(NOTICE)?,
            shown: RefCell::new(Shown::Loading(Waiting::new(kind, "loading the model"))),
        })
    }

    /// Ends the progress. Returns the signal that ended the explanation, if any.
    pub fn finish(&self) -> Option<usize> {
        *self.shown.borrow_mut() = Shown::Nothing;
        self.signal.received()
    }
}

impl Watch for ExplanationWatch {
    fn report(&self, stage: ExplanationStage, done: usize, total: usize) {
        // Until now a signal ended the program immediately, because nothing was known.
        self.signal.defer();
        let mut shown = self.shown.borrow_mut();
        // The number of neurons grows with each round of ablations.
        if !matches!(*shown, Shown::Stage(current, all, _) if (current, all) == (stage, total)) {
            // Clears the line of the previous stage first.
            *shown = Shown::Nothing;
            *shown = Shown::Stage(stage, total, PieceProgress::of(self.kind, total, unit(stage)));
        }
        if let Shown::Stage(_, _, progress) = &*shown {
            progress.done(done);
        }
    }

    fn ends(&self, stage: ExplanationStage) -> bool {
        let is_over = |budget: Duration| {
            // Stages share the time that remains when the model is loaded.
            let before = *self.before.get_or_init(|| self.started.elapsed());
            self.started.elapsed() >= before + budget.saturating_sub(before).mul_f64(stage.share())
        };
        self.signal.received().is_some() || self.budget.is_some_and(is_over)
    }
}

/// Returns the units in which the progress of a stage is shown.
fn unit(stage: ExplanationStage) -> &'static str {
    match stage {
        ExplanationStage::Components => "components searched",
        ExplanationStage::Proof => "sets of components evaluated",
        ExplanationStage::SingleAblations => "components ablated alone",
        ExplanationStage::Weights => "parts of the weights",
        ExplanationStage::Lens => "parts of the logit lens",
        ExplanationStage::Connections => "parts of the search for connections",
        ExplanationStage::TunedLens => "parts of the tuned lens",
        ExplanationStage::Patching => "activations patched",
        ExplanationStage::Neurons => "neurons ablated",
        ExplanationStage::RandomWeights => "parts of the search with random weights",
    }
}
