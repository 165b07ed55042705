//! The known kinds of heads.

use serde::{Deserialize, Serialize};

use crate::analysis::{HeadScores, Score};

/// The minimum attention weight of a kind, averaged over queries: half of the head's attention.
const MIN_KIND_WEIGHT: f64 = 0.5;
/// The maximum variation of a positional head's weights between sequences.
const MAX_POSITIONAL_VARIATION: f64 = 0.2;

/// A known behaviour of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadKind {
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

impl HeadKind {
    /// Returns the name used in files and pictures.
    pub fn name(self) -> &'static str {
        match self {
            HeadKind::PreviousToken => "previous_token",
            HeadKind::Induction => "induction",
            HeadKind::Duplicate => "duplicate",
            HeadKind::Itself => "itself",
            HeadKind::FirstToken => "first_token",
            HeadKind::Separator => "separator",
            HeadKind::NextToken => "next_token",
            HeadKind::Positional => "positional",
            HeadKind::Copying => "copying",
        }
    }
}

/// Returns the kinds of a head. `separator` is its weight on one token of the vocabulary. `variation` is the variation
/// of its weights between sequences. `copies` is true if its OV circuit copies.
pub(super) fn kinds(
    scores: &HeadScores,
    separator: Option<f64>,
    variation: Option<f64>,
    copies: bool,
) -> Vec<HeadKind> {
    let attends = |score: Score| scores[score].is_some_and(|weight| weight >= MIN_KIND_WEIGHT);
    let candidates = [
        (HeadKind::PreviousToken, attends(Score::Previous)),
        (HeadKind::Induction, attends(Score::Induction)),
        (HeadKind::Duplicate, attends(Score::Duplicate)),
        (HeadKind::Itself, attends(Score::Itself)),
        (HeadKind::FirstToken, attends(Score::First)),
        (HeadKind::Separator, separator.is_some_and(|weight| weight >= MIN_KIND_WEIGHT)),
        (HeadKind::Positional, variation.is_some_and(|variation| variation <= MAX_POSITIONAL_VARIATION)),
        (HeadKind::Copying, copies),
    ];
    candidates.into_iter().filter(|(_, applies)| *applies).map(|(kind, _)| kind).collect()
}

/// Returns the kinds of a cross-attention head. `first` is its weight on the first source token, and `next` on source
/// tokens equal to the next token. `variation` is the variation of its weights between sequences.
pub(super) fn cross_kinds([first, next]: [f64; 2], variation: Option<f64>) -> Vec<HeadKind> {
    let candidates = [
        (HeadKind::FirstToken, first >= MIN_KIND_WEIGHT),
        (HeadKind::NextToken, next >= MIN_KIND_WEIGHT),
        (HeadKind::Positional, variation.is_some_and(|variation| variation <= MAX_POSITIONAL_VARIATION)),
    ];
    candidates.into_iter().filter(|(_, applies)| *applies).map(|(kind, _)| kind).collect()
}
