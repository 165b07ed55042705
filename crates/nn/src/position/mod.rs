//! Position schemes. Attention without positions sees a set of tokens, not a sequence.
//!
//! | scheme | acts on | beyond the trained length |
//! |---|---|---|
//! | [`Learned`] | the embedding | returns an error |
//! | [`Sinusoidal`] | the embedding | continues |
//! | [`RandomSinusoidal`] | the embedding | continues up to `largest_position`; training covers these positions |
//! | [`Rotary`] | queries and keys | continues |
//! | [`Alibi`] | the scores | continues; designed for length extrapolation |
//! | [`Relative`] | the scores | continues, with one bias for all large distances |
//!
//! [`Position`] is one of these schemes and computes its contribution to embeddings and scores. [`PositionScheme`] is
//! the field `position` of a [`ModelConfig`](crate::model::ModelConfig).

pub mod alibi;
mod documents;
mod learned;
mod random_sinusoidal;
pub mod relative;
mod rotary;
mod sinusoidal;

pub use alibi::Alibi;
pub use documents::DocumentPositions;
pub use learned::Learned;
pub use random_sinusoidal::{RandomSinusoidal, evaluation_positions};
pub use relative::Relative;
pub use rotary::{RopeScaling, Rotary, Rotation};
pub use sinusoidal::{Sinusoidal, sinusoids};

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, backend::Backend};
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::display::display_variant;
use crate::role::{ParamRole, ParamRoles};
use crate::{Error, Result, ops::ScorePosition};

choices! {
    /// The position schemes: the values of `position`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum PositionScheme {
        /// No positions; only the causal mask conveys the order.
        None,
        /// A learned vector for each position, added to the embedding.
        #[default]
        Learned,
        /// Fixed sines and cosines, added to the embedding.
        Sinusoidal,
        /// Sines and cosines of positions drawn at random below `largest_position`; training draws new ones for each
        /// batch.
        RandomSinusoidal uses ["largest_position"],
        /// Queries and keys rotated by an angle proportional to the position.
        Rotary uses ["rope_theta", "rope_theta_local", "rotary_fraction", "rotary_skip_every", "rope_scaling", "rope_factor", "rope_low_frequency_factor", "rope_high_frequency_factor", "rope_original_context"],
        /// Scores lowered in proportion to the distance.
        Alibi,
        /// A learned bias for each head and bucket of distances, added to the scores.
        Relative,
    }
}

/// The sizes and settings of a model that position schemes depend on.
#[derive(Debug, Clone, Copy)]
pub struct Widths {
    /// The width of the embeddings.
    pub d_model: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The width of a head.
    pub d_head: usize,
    /// The frequencies of rotary positions.
    pub rotation: Rotation,
    /// The number of positions that random positions are drawn from.
    pub largest_position: usize,
}

/// The direction of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the current and earlier tokens, as in a decoder.
    Causal,
    /// To all tokens, as in an encoder.
    Both,
}

/// The settings for which a position scheme is created.
#[derive(Debug, Clone, Copy)]
pub struct PositionSettings<'d, B: Backend> {
    /// The sizes and settings of the model.
    pub widths: Widths,
    /// The longest sequence in training.
    pub context: usize,
    /// The direction of attention.
    pub direction: Direction,
    /// The device.
    pub device: &'d B::Device,
}

/// The effects of a position scheme. Each method has a default without effect.
pub trait PositionModule<B: Backend> {
    /// Creates the scheme.
    fn init(settings: &PositionSettings<'_, B>) -> Self
    where
        Self: Sized;

    /// Visits the parameters of the scheme with their roles, in field order.
    fn visit_parameters(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let _ = visit;
    }

    /// Checks that the scheme has positions for `time` tokens.
    ///
    /// # Errors
    /// [`Error::Shape`] if the scheme has fewer positions.
    fn check(&self, time: usize) -> Result<()> {
        let _ = time;
        Ok(())
    }

    /// Returns the vectors added to the embeddings of `time` tokens from position `start` on, `[time, d_model]`.
    ///
    /// # Errors
    /// Same as [`Self::check`].
    fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        let _ = (start, time);
        Ok(None)
    }

    /// Returns the vectors added to the embeddings of packed documents, `[batch * time, d_model]`.
    ///
    /// # Errors
    /// Same as [`Self::check`], for the longest document.
    fn document_embedding(&self, documents: &DocumentPositions) -> Result<Option<Tensor<B, 2>>> {
        let _ = documents;
        Ok(None)
    }

    /// Returns the effect of the scheme on the scores of the last `query_time` of `key_time` positions.
    fn scores(&self, query_time: usize, key_time: usize) -> ScorePosition<B> {
        let _ = (query_time, key_time);
        ScorePosition::None
    }
}

/// Declares the modules of the schemes, each with the name of its scheme.
macro_rules! positions {
    ($($scheme:ident),+ $(,)?) => {
        /// A position scheme with its parameters and tables.
        #[derive(Module, Debug)]
        #[module(custom_display)]
        pub enum Position<B: Backend> {
            $(#[doc = concat!("The scheme [`", stringify!($scheme), "`].")] $scheme($scheme<B>)),+
        }

        display_variant!(Position { $($scheme),+ });

        impl<B: Backend> Position<B> {
            fn module(&self) -> &dyn PositionModule<B> {
                match self {
                    $(Self::$scheme(module) => module),+
                }
            }
        }

        impl PositionScheme {
            /// Creates the scheme; returns `None` for [`PositionScheme::None`]. The head width must have passed
            /// [`Self::check`].
            pub fn init<B: Backend>(self, settings: &PositionSettings<'_, B>) -> Option<Position<B>> {
                match self {
                    Self::None => None,
                    $(Self::$scheme => Some(Position::$scheme($scheme::init(settings)))),+
                }
            }
        }
    };
}

positions! { Learned, Sinusoidal, RandomSinusoidal, Rotary, Alibi, Relative }

impl<B: Backend> ParamRoles for Position<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        self.module().visit_parameters(visit);
    }
}

impl PositionScheme {
    /// Returns true if no sequence can be longer than the training context.
    pub fn ends_with_context(self) -> bool {
        match self {
            Self::Learned => true,
            Self::None
            | Self::Sinusoidal
            | Self::RandomSinusoidal
            | Self::Rotary
            | Self::Alibi
            | Self::Relative => false,
        }
    }

    /// Returns the number of positions of a model trained on sequences up to `context`; `None` if unlimited.
    pub fn max_positions(self, context: usize, largest_position: usize) -> Option<usize> {
        match self {
            Self::RandomSinusoidal => Some(largest_position),
            Self::Learned => Some(context),
            Self::None | Self::Sinusoidal | Self::Rotary | Self::Alibi | Self::Relative => None,
        }
    }

    /// Checks that the scheme supports heads of this width.
    ///
    /// # Errors
    /// [`Error::Argument`] for rotary positions and heads of odd width.
    pub fn check(self, d_head: usize) -> Result<()> {
        let needs_pairs = match self {
            Self::Rotary => true,
            Self::None
            | Self::Learned
            | Self::Sinusoidal
            | Self::RandomSinusoidal
            | Self::Alibi
            | Self::Relative => false,
        };
        let problem =
            format!("needs heads of even width, but they are {d_head} wide; set `d_head` to an even number");
        Error::check(!needs_pairs || d_head.is_multiple_of(2), "position", format!("\"{self}\""), problem)
    }
}

/// Returns what `time` positions from `start` on add to their embeddings, and their effect on the scores over all
/// positions up to the last one.
///
/// # Errors
/// [`Error::Shape`] if the sequence extends beyond the last position.
pub fn contributions<B: Backend>(
    position: Option<&Position<B>>,
    start: usize,
    time: usize,
) -> Result<(Option<Tensor<B, 2>>, ScorePosition<B>)> {
    match position {
        None => Ok((None, ScorePosition::None)),
        Some(position) => Ok((position.embedding(start, time)?, position.scores(time, start + time))),
    }
}

/// Returns the same as [`contributions`] for packed documents, given the document of each token, `[batch][time]`.
/// Positions count from 0 in each document. The vectors added to the embeddings are `[batch * time, d_model]`, and the
/// scores need no change: rotations and biases depend on distances only.
///
/// # Errors
/// [`Error::Shape`] if a document extends beyond the last position.
pub fn document_contributions<B: Backend>(
    position: Option<&Position<B>>,
    documents: &[Vec<u32>],
) -> Result<(Option<Tensor<B, 2>>, ScorePosition<B>)> {
    let Some(position) = position else { return Ok((None, ScorePosition::None)) };
    let time = documents.first().map_or(0, Vec::len);
    Ok((position.document_embedding(&DocumentPositions::new(documents))?, position.scores(time, time)))
}

impl<B: Backend> Position<B> {
    /// Checks that the scheme has positions for `time` tokens.
    ///
    /// # Errors
    /// [`Error::Shape`] if the scheme has fewer positions.
    pub fn check(&self, time: usize) -> Result<()> {
        self.module().check(time)
    }

    /// Returns the vectors added to the embeddings of `time` tokens from position `start` on, `[time, d_model]`.
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn embedding(&self, start: usize, time: usize) -> Result<Option<Tensor<B, 2>>> {
        self.module().embedding(start, time)
    }

    /// Returns the vectors added to the embeddings of packed documents, `[batch * time, d_model]`.
    ///
    /// # Errors
    /// Same as [`Self::check`], for the longest document.
    pub fn document_embedding(&self, documents: &DocumentPositions) -> Result<Option<Tensor<B, 2>>> {
        self.module().document_embedding(documents)
    }

    /// Returns the effect of the scheme on the scores of the last `query_time` of `key_time` positions.
    pub fn scores(&self, query_time: usize, key_time: usize) -> ScorePosition<B> {
        self.module().scores(query_time, key_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;
    use burn_ndarray::NdArray;

    #[test]
    fn only_learned_positions_end_at_the_trained_length() {
        for scheme in PositionScheme::ALL.into_iter().filter(|&scheme| scheme != PositionScheme::None) {
            let rotation = ModelConfig::default().rotation();
            let widths = Widths { d_model: 12, heads: 3, d_head: 4, rotation, largest_position: 31 };
            let (direction, device) = (Direction::Causal, &Default::default());
            let settings = PositionSettings::<NdArray> { widths, context: 5, direction, device };
            let position = scheme.init(&settings).unwrap();
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
        let error = PositionScheme::Rotary.check(5).unwrap_err().to_string();
        assert!(error.contains("`position`") && error.contains("are 5 wide"), "{error}");
    }
}
