//! The criteria of a circuit as plain data: faithfulness, completeness and minimality (Wang et al., 2022, arXiv 2211.00593).

use serde::{Deserialize, Serialize};

use super::gain::{Baseline, TOLERANCE};
use super::question::{Ablation, Quantity};

/// The quantity of the model, of a baseline and of the circuit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CircuitGain {
    /// The quantity that is explained.
    pub quantity: Quantity,
    /// The ablation of components.
    pub ablation: Ablation,
    /// The model's quantity on these sequences.
    pub model: f64,
    /// The quantity of the best baseline, which the gain refers to.
    pub baseline: f64,
    /// The best baseline.
    pub baseline_of: Baseline,
    /// The quantity with all components outside the circuit ablated.
    pub circuit: f64,
    /// The quantity with the components of the circuit ablated, and all others intact.
    pub complement: f64,
    /// The shares of the gain that the circuit and its complement recover.
    #[serde(flatten)]
    pub shares: Shares,
    /// The number of smaller sets of components that were all evaluated, none of which is a circuit at this tolerance;
    /// `None` after a greedy search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smaller_sets: Option<usize>,
    /// The number of components that were ablated alone, in the circuit or not.
    #[serde(default)]
    pub ablated_alone: usize,
    /// The reason why no circuit is reported, if any; components, edges and patching are then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_circuit: Option<String>,
}

/// The shares of the gain over the baseline that a circuit and its complement recover: 0 for the baseline, 1 for the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// The share that the circuit recovers (Wang et al., 2022). 0 if no circuit is reported.
    pub faithfulness: f64,
    /// Its 95 % interval over sequences or targets, at the mean gain of the model; `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faithfulness_interval: Option<[f64; 2]>,
    /// The share that the complement recovers. In a complete circuit it is about 0 or below. 1 if no circuit is reported:
    /// the complement is then the whole model.
    pub complement_share: f64,
    /// Its 95 % interval, as that of the circuit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complement_interval: Option<[f64; 2]>,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            faithfulness: 0.0,
            faithfulness_interval: None,
            complement_share: 1.0,
            complement_interval: None,
        }
    }
}

/// The circuit without one of its components: whether it needs this component (Wang et al., 2022).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Minimality {
    /// The quantity of the circuit without this component: all components outside the circuit are ablated too. `None` if
    /// the search ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<f64>,
    /// The 95 % interval of the change from the full model to this, over sequences or targets; `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_interval: Option<[f64; 2]>,
    /// The quantity of the circuit without all of its induction heads, and with only this one of them; `None` unless the
    /// sequences repeat random tokens and this is an induction head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_kind: Option<[f64; 2]>,
}

/// The minimum share of the gain by which the ablation of a harmful component improves the model.
const MIN_HARM: f64 = 0.01;

impl CircuitGain {
    /// Returns true if a component makes the model worse: with it `ablated`, the model improves by at least 1 % of the gain, and
    /// the interval of the change, if it is known, excludes zero. Without an interval, this says nothing about other sequences.
    pub fn is_harmful(&self, ablated: f64, interval: Option<[f64; 2]>) -> bool {
        let is_certain = interval.is_none_or(|[low, high]| low > 0.0 || high < 0.0);
        let is_large = (ablated - self.model).abs() >= MIN_HARM * (self.model - self.baseline).abs();
        self.quantity.is_worse(self.model, ablated) && is_certain && is_large
    }

    /// Returns the share of the gain over the baseline that `value` recovers: 0 for the baseline, 1 for the model.
    pub fn share(&self, value: f64) -> f64 {
        (value - self.baseline) / (self.model - self.baseline)
    }

    /// Returns the interval of the share that a quantity recovers, from the interval of its change from the model.
    pub fn share_interval(&self, change: [f64; 2]) -> [f64; 2] {
        let [one, other] = change.map(|change| self.share(self.model + change));
        [one.min(other), one.max(other)]
    }

    /// Returns true if the circuit is complete: the other components recover at most the tolerated share of the gain, rounded to
    /// percent.
    pub fn is_complete(&self) -> bool {
        (100.0 * self.shares.complement_share).round() <= 100.0 * TOLERANCE
    }
}
