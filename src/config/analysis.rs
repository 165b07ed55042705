//! The keys of `[analysis]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::training::MAX_STEPS;
use crate::error::{Error, Result};
use crate::range::{Number, Range, Ranged, Section};

/// The analysis after a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnalysisConfig {
    /// The number of validation sequences that the run keeps for its pictures. 8: enough to see typical sequences.
    pub samples: usize,
    /// The kept sequence in the attention pictures, counted from 0.
    pub sample: usize,
    /// The head in the attention pictures of every layer, counted from 0. Omitted: in each layer the head with the
    /// highest importance, for cross-attention by the circuit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// The number of validation sequences on which heads are scored and ablated. Ablations read at most a tenth as many
    /// tokens as the run was trained on, so a short run uses fewer. 128: the means are accurate to a few hundredths.
    pub sequences: usize,
    /// Steps between scorings of the heads during training. 0: never, because each scoring costs one forward pass
    /// per sequence.
    pub every: usize,
    /// The number of steps, evenly spaced on a logarithmic scale, at which the page's sequence is recorded. The page
    /// uses the snapshots to replay how heads form. 0: none. 12: the snapshots fit next to each other.
    pub snapshots: usize,
    /// Steps between copies of the weights in the folder `weights/` of the run, each as large as `model.safetensors`. The
    /// Fourier analysis of `modular_addition` follows the training with them. 0: none.
    pub weights_every: usize,
    /// True to explain the run at its end, as `explain` does. This takes seconds, on slow devices minutes.
    pub circuit: bool,
}

impl Default for AnalysisConfig {
    fn default() -> Self {
        Self {
            samples: 8,
            sequences: 128,
            every: 0,
            weights_every: 0,
            snapshots: 12,
            sample: 0,
            head: None,
            circuit: true,
        }
    }
}

/// The maximum number of sequences that are kept for pictures.
const MAX_SAMPLES: u64 = 1_000;

impl Section for AnalysisConfig {
    fn ranges(&self) -> Vec<Ranged> {
        let integer = |key, value: usize, min, max| (key, Some(value.into()), Range::Integer(min, max));
        vec![
            integer("samples", self.samples, 1, MAX_SAMPLES),
            integer("sample", self.sample, 0, MAX_SAMPLES - 1),
            integer("snapshots", self.snapshots, 0, 100),
            integer("sequences", self.sequences, 1, MAX_STEPS as u64),
            integer("every", self.every, 0, MAX_STEPS as u64),
            integer("weights_every", self.weights_every, 0, MAX_STEPS as u64),
            ("head", self.head.map(Number::from), Range::Integer(0, 65_535)),
        ]
    }
}

impl AnalysisConfig {
    /// Checks the keys, for a model with `heads` heads per layer.
    ///
    /// # Errors
    /// An error that names the key of the first invalid value.
    pub fn check(&self, heads: usize) -> Result<()> {
        self.check_ranges().map_err(Error::in_section("analysis"))?;
        for (key, number, of, count) in [
            ("analysis.sample", self.sample, "analysis.samples", self.samples),
            ("analysis.head", self.head.unwrap_or(0), "model.heads", heads),
        ] {
            let problem = format!("must be below `{of}` = {count}, since it counts from 0");
            Error::check_key(number < count, key, number, problem)?;
        }
        Ok(())
    }
}
