//! Where a token stands: attention by itself sees a set, not a sequence.
//!
//! | scheme | acts on | beyond the trained length |
//! |---|---|---|
//! | [`Learned`] | the embedding | ends: an error |
//! | [`Sinusoidal`] | the embedding | goes on |
//! | [`Rotary`] | queries and keys | goes on |
//! | [`Alibi`] | the scores | goes on, as it was made for |
//! | [`Relative`] | the scores | goes on, all far distances alike |
//!
//! [`Position`] holds any of them and says what it adds to the embeddings and what it does to the
//! scores; [`PositionScheme`] is the key `model.position`.

pub mod alibi;
mod learned;
pub mod relative;
mod rotary;
mod sinusoidal;

pub use alibi::Alibi;
pub use learned::Learned;
pub use relative::Relative;
pub use rotary::Rotary;
pub use sinusoidal::{Sinusoidal, sinusoids};

use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::ops::ScorePosition;
use crate::{Error, Result};

/// The position schemes, as `model.position` names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionScheme {
    /// No positions: only the causal mask tells first from last.
    None,
    /// A learned vector for each position, added to the embedding.
    #[default]
    Learned,
    /// Fixed sines and cosines, added to the embedding.
    Sinusoidal,
    /// Queries and keys turned by an angle that grows with the position.
    Rotary,
    /// Scores lowered in proportion to the distance.
    Alibi,
    /// A learned number for each head and range of distances, added to the scores.
    Relative,
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
    /// Whether tokens look back only.
    pub direction: Direction,
}

/// Which way attention looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Back only, as in a decoder.
    Causal,
    /// Both ways, as in an encoder.
    Both,
}

/// A position scheme with its parameters and tables.
#[derive(Module, Debug)]
pub enum Position<B: Backend> {
    /// A learned vector for each position.
    Learned(Learned<B>),
    /// Fixed sines and cosines.
    Sinusoidal(Sinusoidal<B>),
    /// Queries and keys turned by their position.
    Rotary(Rotary<B>),
    /// Scores lowered in proportion to the distance.
    Alibi(Alibi<B>),
    /// A learned number for each head and range of distances.
    Relative(Relative<B>),
}

impl PositionScheme {
    /// Every scheme.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Learned, Self::Sinusoidal, Self::Rotary, Self::Alibi, Self::Relative];

    /// Whether the scheme works at these sizes.
    ///
    /// # Errors
    /// [`Error::Key`] where the heads do not divide the width, or rotary positions find heads of odd
    /// width.
    pub fn check(self, d_model: usize, heads: usize) -> Result<()> {
        if heads == 0 || !d_model.is_multiple_of(heads) {
            return Err(Error::key("model.heads", heads, format!("must divide `model.d_model` = {d_model}")));
        }
        let d_head = d_model / heads;
        if self == PositionScheme::Rotary && !d_head.is_multiple_of(2) {
            let problem = format!(
                "turns pairs and so needs heads of even width, but `model.d_model` / `model.heads` = {d_head}"
            );
            return Err(Error::key("model.position", "\"rotary\"", problem));
        }
        Ok(())
    }

    /// The scheme for a model of these sizes; nothing for [`PositionScheme::None`].
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn init<B: Backend>(self, sizes: PositionSizes, device: &B::Device) -> Result<Option<Position<B>>> {
        let PositionSizes { d_model, heads, context, direction } = sizes;
        self.check(d_model, heads)?;
        Ok(match self {
            PositionScheme::None => None,
            PositionScheme::Learned => Some(Position::Learned(Learned::new(context, d_model, device))),
            PositionScheme::Sinusoidal => {
                Some(Position::Sinusoidal(Sinusoidal::new(context, d_model, device)))
            }
            PositionScheme::Rotary => Some(Position::Rotary(Rotary::new(context, d_model / heads, device))),
            PositionScheme::Alibi => Some(Position::Alibi(Alibi::new(heads, direction, device))),
            PositionScheme::Relative => Some(Position::Relative(Relative::new(heads, direction, device))),
        })
    }

    /// How many parameters [`Self::init`] makes.
    pub fn parameters(self, sizes: PositionSizes) -> usize {
        match self {
            PositionScheme::Learned => sizes.context * sizes.d_model,
            PositionScheme::Relative => relative::BUCKETS * sizes.heads,
            PositionScheme::None
            | PositionScheme::Sinusoidal
            | PositionScheme::Rotary
            | PositionScheme::Alibi => 0,
        }
    }
}

impl<B: Backend> Position<B> {
    /// Whether the scheme reaches over `time` tokens, the first of which stands at place `start`.
    ///
    /// # Errors
    /// As [`Self::embedding`].
    pub fn check(&self, start: usize, time: usize) -> Result<()> {
        match self {
            Position::Learned(learned) => learned.check(start, time),
            Position::Sinusoidal(_) | Position::Rotary(_) | Position::Alibi(_) | Position::Relative(_) => {
                Ok(())
            }
        }
    }

    /// What is added to the embeddings of `time` tokens, `[time, d_model]`, the first of which
    /// stands at place `start`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sequence is longer than the scheme knows positions for.
    pub fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        match self {
            Position::Learned(learned) => learned.embedding(start, time).map(Some),
            Position::Sinusoidal(sinusoidal) => Ok(Some(sinusoidal.embedding(start, time))),
            Position::Rotary(_) | Position::Alibi(_) | Position::Relative(_) => Ok(None),
        }
    }

    /// What the scheme does to the scores of the last `query_time` of `key_time` places.
    pub fn scores(&self, query_time: usize, key_time: usize) -> ScorePosition<B> {
        match self {
            Position::Learned(_) | Position::Sinusoidal(_) => ScorePosition::None,
            Position::Rotary(rotary) => rotary.scores(key_time),
            Position::Alibi(alibi) => ScorePosition::Bias(alibi.bias(query_time, key_time)),
            Position::Relative(relative) => ScorePosition::Bias(relative.bias(query_time, key_time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn only_learned_positions_end_at_the_trained_length() {
        let sizes = PositionSizes { d_model: 12, heads: 3, context: 5, direction: Direction::Causal };
        for scheme in [
            PositionScheme::Learned,
            PositionScheme::Sinusoidal,
            PositionScheme::Rotary,
            PositionScheme::Alibi,
            PositionScheme::Relative,
        ] {
            let position = scheme.init::<NdArray>(sizes, &Default::default()).unwrap().unwrap();
            assert!(position.embedding(0, 5).is_ok());
            position.scores(7, 7).check(3, 4, 7, 7).unwrap();
            match position.embedding(0, 7) {
                Ok(added) => {
                    assert_ne!(scheme, PositionScheme::Learned);
                    assert!(added.is_none_or(|added| added.dims() == [7, 12]));
                }
                Err(error) => {
                    assert_eq!(scheme, PositionScheme::Learned);
                    let message = error.to_string();
                    assert!(message.contains('7') && message.contains('5'), "{message}");
                }
            }
        }
    }

    #[test]
    fn rotary_refuses_heads_of_odd_width() {
        let error = PositionScheme::Rotary.check(15, 3).unwrap_err().to_string();
        assert!(error.contains("`model.position`") && error.contains("= 5"), "{error}");
    }
}
