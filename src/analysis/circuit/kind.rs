//! The known kinds of heads.

use serde::{Deserialize, Serialize};

use crate::analysis::{HeadScores, Score};

/// The minimum attention weight, averaged over queries, by which a head counts as of a kind: half of its
/// attention.
const KIND: f64 = 0.5;
/// The maximum difference of a positional head's weights between sequences.
const POSITIONAL: f64 = 0.2;

/// A known behaviour of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Attends to the previous token.
    PreviousToken,
    /// Attends to the token that followed an earlier occurrence of the current token (Olsson et al., 2022).
    Induction,
    /// Attends to earlier occurrences of the current token.
    Duplicate,
    /// Attends to the current token.
    Itself,
    /// Attends to the first token as an attention sink (Xiao et al., 2023, arXiv 2309.17453).
    FirstToken,
    /// Attends to one token of the vocabulary at any position.
    Separator,
    /// Attends to source tokens equal to the next token, in cross-attention.
    NextToken,
    /// Attends by position, independently of the tokens.
    Positional,
    /// Raises the logits of the tokens that it attends to.
    Copying,
}

impl Kind {
    /// Returns the name used in files and pictures.
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

/// Returns the kinds of a head. `separator` is its weight on one token of the vocabulary, `uneven` the difference of
/// its weights between sequences, and `copies` is true if its OV circuit copies.
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

/// Returns the kinds of a cross-attention head. The first argument holds its weights on the first source token and on
/// source tokens equal to the next one; `uneven` is the difference of its weights between sequences.
pub(super) fn cross_kinds([first, next]: [f64; 2], uneven: Option<f64>) -> Vec<Kind> {
    let of_kind = [
        (Kind::FirstToken, first >= KIND),
        (Kind::NextToken, next >= KIND),
        (Kind::Positional, uneven.is_some_and(|far| far <= POSITIONAL)),
    ];
    of_kind.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect()
}
