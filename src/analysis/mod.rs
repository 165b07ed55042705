//! Looking inside a trained model: what each head attends to, as plain data.

mod config;
mod head;
mod view;

pub use config::AnalysisConfig;
pub use head::{HeadScores, most_inductive};
pub use view::View;
