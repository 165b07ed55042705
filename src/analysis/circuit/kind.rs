//! The known kinds of heads.

use serde::{Deserialize, Serialize};

use crate::analysis::{HeadScores, Score};

/// The minimum attention weight of a kind, averaged over queries: half of the head's attention.
const MIN_KIND_WEIGHT: f64 = 0.5;

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
    /// Attends to certain positions, independently of the tokens.
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

/// Returns the kinds of a head. `separator` is its weight on one token of the vocabulary, and `positional` the part of its
/// weights that depends on positions alone. `copies` is true if its OV circuit copies.
pub(super) fn kinds(
    scores: &HeadScores,
    [separator, positional]: [Option<f64>; 2],
    copies: bool,
) -> Vec<HeadKind> {
    let is_large = |weight: Option<f64>| weight.is_some_and(|weight| weight >= MIN_KIND_WEIGHT);
    let attends = |score: Score| is_large(scores[score]);
    let candidates = [
        (HeadKind::PreviousToken, attends(Score::Previous)),
        (HeadKind::Induction, attends(Score::Induction)),
        (HeadKind::Duplicate, attends(Score::Duplicate)),
        (HeadKind::Itself, attends(Score::Itself)),
        (HeadKind::FirstToken, attends(Score::First)),
        (HeadKind::Separator, is_large(separator)),
        (HeadKind::Positional, is_large(positional)),
        (HeadKind::Copying, copies),
    ];
    candidates.into_iter().filter(|(_, applies)| *applies).map(|(kind, _)| kind).collect()
}

/// Returns the kinds of a cross-attention head. `first` is its weight on the first source token, and `next` on source
/// tokens equal to the next token. `positional` is the part of its weights that depends on positions alone.
pub(super) fn cross_kinds([first, next]: [f64; 2], positional: Option<f64>) -> Vec<HeadKind> {
    let candidates = [
        (HeadKind::FirstToken, first >= MIN_KIND_WEIGHT),
        (HeadKind::NextToken, next >= MIN_KIND_WEIGHT),
        (HeadKind::Positional, positional.is_some_and(|weight| weight >= MIN_KIND_WEIGHT)),
    ];
    candidates.into_iter().filter(|(_, applies)| *applies).map(|(kind, _)| kind).collect()
}
