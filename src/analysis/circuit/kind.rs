//! The kinds of heads that are known.

use serde::{Deserialize, Serialize};

use crate::analysis::{HeadScores, Score};

/// The attention weight, in the mean over queries, by which a head is of a kind: most of what it looks at.
const KIND: f64 = 0.5;
/// How far its weights may differ from sequence to sequence where a head looks by position alone.
const POSITIONAL: f64 = 0.2;

/// What a head is known to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Looks at the token before.
    PreviousToken,
    /// Looks at what followed the same token earlier (Olsson et al., 2022).
    Induction,
    /// Looks at the same token earlier.
    Duplicate,
    /// Looks at its own token.
    Itself,
    /// Rests on the first token (Xiao et al., 2023, arXiv 2309.17453).
    FirstToken,
    /// Looks at one token of the vocabulary wherever it stands.
    Separator,
    /// Looks at tokens of the source like the one that comes next, in cross-attention.
    NextToken,
    /// Looks by position, whatever the tokens.
    Positional,
    /// Makes the tokens that it looks at likelier.
    Copying,
}

impl Kind {
    /// Its name in files and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Kind::PreviousToken => "previous_token",
            Kind::Induction => "induction",
            Kind::Duplicate => "duplicate",
            Kind::Itself => "itself",
            Kind::FirstToken => "first_token",
            Kind::Separator => "separator",
            Kind::NextToken => "next_token",
            Kind::Positional => "positional",
            Kind::Copying => "copying",
        }
    }
}

/// What a head does, by its scores, the weight that it puts on one token, how far its weights differ between
/// sequences, and whether it copies by its weights.
pub(super) fn kinds(
    scores: &HeadScores,
    separator: Option<f64>,
    uneven: Option<f64>,
    copies: bool,
) -> Vec<Kind> {
    let looks = |score: Score| scores[score].is_some_and(|weight| weight >= KIND);
    let of_kind = [
        (Kind::PreviousToken, looks(Score::Previous)),
        (Kind::Induction, looks(Score::Induction)),
        (Kind::Duplicate, looks(Score::Duplicate)),
        (Kind::Itself, looks(Score::Itself)),
        (Kind::FirstToken, looks(Score::First)),
        (Kind::Separator, separator.is_some_and(|weight| weight >= KIND)),
        (Kind::Positional, uneven.is_some_and(|far| far <= POSITIONAL)),
        (Kind::Copying, copies),
    ];
    of_kind.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect()
}

/// What a head of the cross-attention does, by its weights on the first token of the source and on tokens like the next
/// one, and how far its weights differ between sequences.
pub(super) fn cross_kinds([first, next]: [f64; 2], uneven: Option<f64>) -> Vec<Kind> {
    let of_kind = [
        (Kind::FirstToken, first >= KIND),
        (Kind::NextToken, next >= KIND),
        (Kind::Positional, uneven.is_some_and(|far| far <= POSITIONAL)),
    ];
    of_kind.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect()
}
