//! Looking inside a trained model: what each head attends to, what it is worth, and what the model
//! predicts, as plain data.

pub mod ablation;
mod head;
mod view;

pub use head::{HeadScores, HeadTallies, HeadTally, most_inductive};
pub use view::View;
pub(crate) use view::floats;
