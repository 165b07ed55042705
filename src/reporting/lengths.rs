//! The loss of a run beyond the trained length.

use causal_attention_report::Picture;
use causal_attention_report::lengths::{LengthPanel, picture};

use crate::evaluation::{AtLength, Protocol};

/// Draws the loss of a run at each length by both protocols, above the floor where that is known.
pub fn lengths_picture(run: &str, lengths: &[AtLength], trained: usize) -> Picture {
    let is_above_floor = lengths.iter().all(|at| at.gap.is_some());
    let curves = [(Protocol::Windows, "windows side by side"), (Protocol::Sliding, "sliding windows")];
    let curves = curves.map(|(protocol, name)| {
        let of_protocol = lengths.iter().filter(|at| at.protocol == protocol);
        (name.to_string(), of_protocol.map(|at| (at.length, at.gap.unwrap_or(at.loss))).collect())
    });
    let panel = LengthPanel { name: String::new(), trained, curves: curves.into() };
    let note = "side by side every target counts; sliding the last eighth of each window, which has most of the length \
                before it";
    picture("lengths", &format!("{run}: loss by length"), note, &[panel], is_above_floor)
}
