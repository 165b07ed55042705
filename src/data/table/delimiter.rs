//! Inference of the delimiter of a CSV table from its lines.
//!
//! Each candidate splits the first [`SAMPLE_LINES`] lines outside quotes. The score of a candidate is twice the
//! fraction of lines with the most frequent number of fields (at least two), plus the fraction of lines that it splits
//! at all. The second term decides for sequences of different lengths. The extension breaks ties. A tab that splits at
//! least half of the lines of a `.tsv` is always chosen. Words may contain spaces, so in `.csv` and `.tsv` files spaces
//! separate only numbers.

use csv::{ReaderBuilder, StringRecord, Trim};

/// The maximum number of lines that are inspected.
pub(super) const SAMPLE_LINES: usize = 1000;

/// The candidates, in the order in which ties are broken.
const CANDIDATES: [u8; 5] = *b"\t;|, ";
const CSV_CANDIDATES: [u8; 5] = *b",;\t| ";

/// The inferred delimiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Inferred {
    pub delimiter: u8,
    /// Another delimiter that also splits all lines into equal numbers of fields.
    pub rival: Option<u8>,
    /// The fraction of lines with the most frequent number of fields; 0 if no line is split.
    pub regularity: f64,
}

/// The statistics of a candidate on the sample.
#[derive(Debug)]
struct DelimiterCandidate {
    delimiter: u8,
    regularity: f64,
    /// The fraction of lines that the candidate splits.
    split: f64,
    /// True if all fields below the first line are numbers.
    is_numeric: bool,
}

/// Infers the delimiter of `text`, the content of a file with this extension.
pub(super) fn infer(text: &str, extension: &str) -> Inferred {
    let end = text.match_indices('\n').nth(SAMPLE_LINES - 1).map_or(text.len(), |(end, _)| end);
    let sample = &text[..end];
    let order = if extension == "csv" { CSV_CANDIDATES } else { CANDIDATES };
    let mut candidates: Vec<_> = order.into_iter().map(|byte| DelimiterCandidate::of(byte, sample)).collect();
    let others_split = candidates.iter().any(|other| other.delimiter != b' ' && other.split > 0.0);
    candidates.retain(|candidate| {
        let is_plain = !["csv", "tsv"].contains(&extension);
        let is_even = candidate.regularity == 1.0 || !others_split;
        candidate.delimiter != b' ' || candidate.is_numeric || is_plain && is_even
    });
    let is_tab = |candidate: &&DelimiterCandidate| candidate.delimiter == b'\t';
    let tab_of_tsv = candidates.iter().find(is_tab).filter(|tab| extension == "tsv" && tab.split >= 0.5);
    let first_best = candidates.iter().rev().max_by(|a, b| a.rank().total_cmp(&b.rank()));
    let Some(best) = tab_of_tsv.or(first_best).filter(|best| best.split > 0.0) else {
        let delimiter = if extension == "tsv" { b'\t' } else { b',' };
        return Inferred { delimiter, rival: None, regularity: 0.0 };
    };
    let rival = candidates.iter().find(|other| {
        let is_even = best.regularity == 1.0 && other.regularity == 1.0;
        is_even && other.delimiter != best.delimiter && other.delimiter != b' '
    });
    let (delimiter, rival) = match rival.map(|rival| rival.delimiter) {
        // Numbers with a decimal comma, such as 0,5;1,5.
        Some(b';') if best.delimiter == b',' && has_decimal_commas(sample) => (b';', Some(b',')),
        rival => (best.delimiter, rival),
    };
    Inferred { delimiter, rival, regularity: best.regularity }
}

/// Iterates over the records of a text, and keeps the spaces around values. Without `quotes`, quotes are part of the values.
pub(super) fn untrimmed(
    text: &str,
    delimiter: u8,
    quotes: bool,
) -> impl Iterator<Item = csv::Result<StringRecord>> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(delimiter).quoting(quotes);
    builder.from_reader(text.as_bytes()).into_records()
}

/// Iterates over the records of a text, with trimmed values. Adjacent spaces count as one delimiter.
pub(super) fn records(text: &str, delimiter: u8) -> impl Iterator<Item = csv::Result<StringRecord>> {
    records_with(text, delimiter, true)
}

/// Iterates over the records of a text like [`records`]. Without `quotes`, quotes are part of the values.
pub(super) fn records_with(
    text: &str,
    delimiter: u8,
    quotes: bool,
) -> impl Iterator<Item = csv::Result<StringRecord>> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).trim(Trim::All).delimiter(delimiter).quoting(quotes);
    builder.from_reader(text.as_bytes()).into_records().map(move |record| {
        let record = record?;
        if delimiter != b' ' {
            return Ok(record);
        }
        let mut values: StringRecord = record.iter().filter(|value| !value.is_empty()).collect();
        values.set_position(record.position().cloned());
        Ok(values)
    })
}

impl DelimiterCandidate {
    fn of(delimiter: u8, sample: &str) -> Self {
        let (mut lines, mut split) = (0usize, 0usize);
        // The first line may hold names.
        let [mut is_first_numeric, mut is_rest_numeric] = [true; 2];
        // The number of lines with each number of fields.
        let mut counts: Vec<usize> = Vec::new();
        for record in records(sample, delimiter).map_while(Result::ok) {
            if record.iter().all(str::is_empty) {
                continue;
            }
            lines += 1;
            split += usize::from(record.len() > 1);
            counts.resize(counts.len().max(record.len() + 1), 0);
            counts[record.len()] += 1;
            let is_number = |value: &str| value.parse::<f64>().is_ok();
            let are_numbers = record.iter().all(is_number);
            match lines {
                1 => is_first_numeric = are_numbers,
                _ => is_rest_numeric &= are_numbers,
            }
        }
        let most_frequent =
            (0..counts.len()).max_by_key(|&fields| counts[fields]).filter(|&fields| fields > 1);
        let part = |count: usize| count as f64 / lines.max(1) as f64;
        let regularity = most_frequent.map_or(0.0, |fields| part(counts[fields]));
        let is_numeric = is_rest_numeric && (lines > 1 || is_first_numeric);
        DelimiterCandidate { delimiter, regularity, split: part(split), is_numeric }
    }

    /// Weights the regularity twice as much as the fraction of lines that are split.
    fn rank(&self) -> f64 {
        2.0 * self.regularity + self.split
    }
}

/// Returns true if each comma is between digits.
fn has_decimal_commas(sample: &str) -> bool {
    let bytes = sample.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    sample.match_indices(',').all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(text: &str, extension: &str) -> char {
        infer(text, extension).delimiter.into()
    }

    #[test]
    fn delimiters_inside_quotes_are_ignored() {
        for (line, expected) in [
            ("1,2 3", ','),
            ("1\t2 3", '\t'),
            ("\"a,b\";c", ';'),
            ("1 2 3", ' '),
            ("12", ','),
            ("\"a \"\",\"\" b\"\tc", '\t'),
            ("a|b c", '|'),
        ] {
            assert_eq!(inferred(line, "csv"), expected, "{line}");
        }
    }

    #[test]
    fn most_lines_determine_the_delimiter() {
        let ham = "ham\tOk, see you at 5, then\nspam\tWIN, now\nham\tno commas\n".repeat(40);
        for extension in ["tsv", "csv", "txt", ""] {
            assert_eq!(inferred(&ham, extension), '\t', "{extension}");
        }
        assert_eq!(inferred(&format!("# written on 5, May\n{}", "1;2;3\n".repeat(40)), "csv"), ';');
    }

    #[test]
    fn spaces_separate_numbers_but_not_phrases() {
        let words = "place order\nsend invoice\npay\n".repeat(40);
        assert_eq!((inferred(&words, "csv"), inferred(&words, "tsv")), (',', '\t'));
        assert_eq!(inferred(&"place order\nsend it\n".repeat(40), "csv"), ',');
        assert_eq!((inferred("a b\n1 2\n3 4 5\n", "csv"), inferred("1 2\n3 4 5\n", "")), (' ', ' '));
        assert_eq!(inferred("a b\nc d\n", "txt"), ' ');
        assert_eq!(inferred("New York, 5\nBerlin, 6\n", "txt"), ',');
    }

    #[test]
    fn ragged_sequences_use_the_most_splitting_delimiter() {
        assert_eq!(inferred("3,1,4\n1\n5,9\n2\n", "csv"), ',');
        assert_eq!(inferred("a;b c;d\nb\na;c\n", "txt"), ';');
    }

    #[test]
    fn extension_breaks_ties_and_rival_is_reported() {
        let both = "a,b\tc\nd,e\tf\n";
        for (extension, delimiter, rival) in [("csv", b',', b'\t'), ("tsv", b'\t', b','), ("", b'\t', b',')] {
            let inferred = infer(both, extension);
            assert_eq!((inferred.delimiter, inferred.rival), (delimiter, Some(rival)), "{extension}");
        }
        assert_eq!(inferred("0,5;1,25\n3,5;4,0\n", "csv"), ';');
        assert_eq!(infer("1, 2, 3\n4, 5, 6\n", "csv").rival, None);
    }
}
