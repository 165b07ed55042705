//! Where sequences come from: tasks with a known optimum, and a user's own files.
//!
//! Nothing here knows a model or a tensor. What goes in is a [`DataConfig`], what comes out are
//! integers below the size of a [`Vocabulary`]:
//!
//! | file | holds |
//! |---|---|
//! | [`config`] | the section `[data]` and its checks |
//! | [`tasks`] | one file a sequence task, each with the loss of its best possible predictor |
//! | [`sequences`] | the token ids of one split, in rows or as a stream cut into windows |
//! | [`batch`] | what a step sees: inputs, targets, and the role of each target |
//! | [`loader`] | the order of an epoch, a pure function of (seed, epoch) |
//! | `text` | the user's texts, as characters or by a tokenizer |
//! | `table` | the user's tables, a sequence a line or a column in windows |
//! | [`vocabulary`] | what an id stands for |
//! | [`describe`](mod@describe) | what training would see, for a person to look at |
//! | [`seed`] | random generators, each a pure function of (seed, purpose, position) |

pub mod batch;
pub mod config;
pub mod describe;
mod excerpt;
mod ids;
pub mod loader;
pub mod seed;
pub mod sequences;
mod table;
pub mod tasks;
mod text;
pub mod vocabulary;

pub use batch::{Batch, Role, SourceBatch};
pub use config::{Column, Count, DataConfig, Periods, Source, Tokens, Values};
pub use describe::{Description, describe};
pub(crate) use excerpt::excerpt;
pub use loader::{Loader, Order};
pub use sequences::Sequences;
pub use tasks::Task;
pub use vocabulary::{Notation, Vocabulary};

/// What a run trains and validates on.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the ids stand for; its size is the model's vocabulary.
    pub vocabulary: Vocabulary,
    /// The training set.
    pub train: Sequences,
    /// The validation set.
    pub valid: Sequences,
    /// The loss of the best possible predictor, where it is known.
    pub floor: Option<Floor>,
    /// The floor at each position, on the validation set; empty where it is not known.
    pub floor_by_position: Vec<f64>,
}

impl Dataset {
    /// The largest number of positions that a model needs: the longest input of both sets,
    /// sources included.
    pub fn context(&self) -> usize {
        [&self.train, &self.valid]
            .into_iter()
            .flat_map(|set| [set.time(), set.source_time().unwrap_or(0)])
            .max()
            .unwrap_or(0)
    }

    /// A number that changes with any id of either set: whether a run that is resumed still has
    /// the data that it began with.
    pub fn fingerprint(&self) -> u64 {
        self.valid.hash(self.train.hash(self.vocabulary.size() as u64))
    }
}

/// The mean loss of the best possible predictor over all counted targets, in nats a target.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Floor {
    /// In expectation over the sequences of the task.
    pub expected: f64,
    /// On the validation set at hand: what a run is compared with.
    pub valid: f64,
}
