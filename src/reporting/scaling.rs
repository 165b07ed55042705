//! The predicted efficiency of more workers.

use causal_attention_report::Picture;
use causal_attention_report::scaling::{Efficiency, picture};

use crate::scaling::Scaled;

/// Draws the predicted efficiency by the number of workers, of the config that is called `name`; `note` names the link.
pub fn scaling_picture(name: &str, scaled: &[Scaled], note: &str) -> Picture {
    let efficiency = |scaled: &Scaled| Efficiency {
        workers: scaled.workers,
        growing: scaled.growing.efficiency,
        shared: scaled.shared.map(|shared| shared.efficiency),
    };
    picture(name, &scaled.iter().map(efficiency).collect::<Vec<_>>(), note)
}
