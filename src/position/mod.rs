//! Where a token stands: attention by itself sees a set, not a sequence.

mod learned;

pub use learned::Learned;

use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::ops::ScorePosition;

/// The position schemes, as `model.position` names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionScheme {
    /// No positions: only the causal mask tells first from last.
    None,
    /// A learned vector for each position, added to the embedding.
    #[default]
    Learned,
}

/// What a position scheme needs to know of its model.
#[derive(Debug, Clone, Copy)]
pub struct PositionSizes {
    /// Width of the embeddings.
    pub d_model: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Longest sequence in training.
    pub context: usize,
}

/// A position scheme with its parameters and tables.
#[derive(Module, Debug)]
pub enum Position<B: Backend> {
    /// A learned vector for each position.
    Learned(Learned<B>),
}

impl PositionScheme {
    /// The scheme for a model of these sizes; nothing for [`PositionScheme::None`].
    pub fn init<B: Backend>(self, sizes: PositionSizes, device: &B::Device) -> Option<Position<B>> {
        match self {
            PositionScheme::None => None,
            PositionScheme::Learned => {
                Some(Position::Learned(Learned::new(sizes.context, sizes.d_model, device)))
            }
        }
    }

    /// How many parameters [`Self::init`] makes.
    pub fn parameters(self, sizes: PositionSizes) -> usize {
        match self {
            PositionScheme::None => 0,
            PositionScheme::Learned => sizes.context * sizes.d_model,
        }
    }
}

impl<B: Backend> Position<B> {
    /// What is added to the embeddings of `time` tokens, `[time, d_model]`, the first of which
    /// stands at place `start`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the sequence is longer than the scheme knows positions for.
    pub fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        match self {
            Position::Learned(learned) => learned.embedding(start, time).map(Some),
        }
    }

    /// What the scheme does to the scores of the last `query_time` of `key_time` places.
    pub fn scores(&self, _query_time: usize, _key_time: usize) -> ScorePosition<B> {
        match self {
            Position::Learned(_) => ScorePosition::None,
        }
    }
}
