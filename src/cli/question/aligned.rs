//! The tokens of two texts side by side.

use crate::data::Vocabulary;
use crate::numbers::counted;

/// The maximum number of pairs of tokens that are compared to align the parts in which the texts differ.
const MAX_PAIRS: usize = 1 << 22;

/// A row of the table: the position in each text, if it has a token there.
type AlignedTokens = [Option<usize>; 2];

/// Returns the table of the tokens of a text and a corrupted text, as lines. Rows that differ begin with a mark.
pub(super) fn lines(texts: [&[u32]; 2], vocabulary: &Vocabulary) -> Vec<String> {
    let [text, corrupted] = texts.map(<[u32]>::len);
    let summary = format!(
        "The text has {}, the corrupted text {corrupted}; rows with * differ.",
        counted(text, "token")
    );
    let cell = |side: usize, position: Option<usize>| {
        let token = position.map(|at| (at.to_string(), format!("`{}`", vocabulary.token(texts[side][at]))));
        token.unwrap_or_default()
    };
    let is_equal = |row: &AlignedTokens| matches!(row, [Some(a), Some(b)] if texts[0][*a] == texts[1][*b]);
    let row = |row: &AlignedTokens| {
        let mark = if is_equal(row) { " " } else { "*" };
        (mark, cell(0, row[0]), cell(1, row[1]))
    };
    let heading =
        (" ", ("position".to_string(), "text".to_string()), ("position".into(), "corrupted".into()));
    let rows = aligned(texts);
    let rows: Vec<_> = std::iter::once(heading).chain(rows.iter().map(row)).collect();
    let width = rows.iter().map(|(_, (_, token), _)| token.chars().count()).max().unwrap_or(0);
    let line = |(mark, (at, token), (other_at, other)): &(&str, (String, String), (String, String))| {
        format!("{mark} {at:>8}  {token:<width$}  {other_at:>8}  {other}").trim_end().to_string()
    };
    std::iter::once(summary).chain(rows.iter().map(line)).collect()
}

/// Aligns two texts such that as many equal tokens as possible share a row.
fn aligned([a, b]: [&[u32]; 2]) -> Vec<AlignedTokens> {
    let start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let ends = a[start..].iter().rev().zip(b[start..].iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let [rows, columns] = [a.len() - start - end, b.len() - start - end];
    let equal = |first: usize, other: usize, count: usize| {
        (0..count).map(move |at| [Some(first + at), Some(other + at)])
    };
    let middle = match rows * columns <= MAX_PAIRS {
        true => matched([&a[start..start + rows], &b[start..start + columns]]),
        false => Vec::new(),
    };
    let mut found: Vec<AlignedTokens> = equal(0, 0, start).collect();
    let (mut i, mut j) = (0, 0);
    for (next_i, next_j) in middle.into_iter().chain([(rows, columns)]) {
        // Tokens between two matches share rows as far as possible.
        let differing = (next_i - i).max(next_j - j);
        found.extend((0..differing).map(|at| {
            [(i + at < next_i).then_some(start + i + at), (j + at < next_j).then_some(start + j + at)]
        }));
        if next_i < rows {
            found.push([Some(start + next_i), Some(start + next_j)]);
        }
        (i, j) = (next_i + 1, next_j + 1);
    }
    found.extend(equal(start + rows, start + columns, end));
    found
}

/// Returns the positions of a longest common subsequence.
fn matched([a, b]: [&[u32]; 2]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    // The length of the longest common subsequence of the rests of both texts.
    let mut lengths = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * width + j] = match a[i] == b[j] {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tokens_share_rows() {
        let rows = |a: &[u32], b: &[u32]| aligned([a, b]);
        let both = |a, b| [Some(a), Some(b)];
        assert_eq!(rows(&[1, 2, 3], &[1, 2, 3]), [both(0, 0), both(1, 1), both(2, 2)]);
        // The second token is replaced by two.
        let expected = [both(0, 0), both(1, 1), [None, Some(2)], both(2, 3), both(3, 4)];
        assert_eq!(rows(&[1, 2, 3, 4], &[1, 7, 8, 3, 4]), expected);
        // A token is missing between two other differences.
        let expected = [both(0, 0), both(1, 1), [Some(2), None], both(3, 2), both(4, 3)];
        assert_eq!(rows(&[9, 1, 2, 3, 9], &[8, 1, 3, 7]), expected);
        assert_eq!(rows(&[], &[5]), [[None, Some(0)]]);
    }

    #[test]
    fn differing_rows_are_marked() {
        let vocabulary = Vocabulary::integers(20, &[]);
        let lines = lines([&[1, 2, 13], &[1, 4, 5, 13]], &vocabulary);
        assert_eq!(
            lines,
            [
                "The text has 3 tokens, the corrupted text 4; rows with * differ.",
                "  position  text  position  corrupted",
                "         0  `1`          0  `1`",
                "*        1  `2`          1  `4`",
                "*                        2  `5`",
                "         2  `13`         3  `13`",
            ]
        );
    }
}
