//! Formats a [`DataDescription`] as a page of text.

use std::fmt::{self, Display};

use super::{
    Baselines, DataDescription, DescribedDocuments, DescribedSample, DescribedSplit, DescribedVocabulary,
    EndOfText,
};
use crate::data::{Floor, TableReading};
use crate::{
    error::excerpt,
    numbers::{counted, part_of, thousands},
};

/// The maximum number of tokens printed per sample.
const MAX_SAMPLE_TOKENS: usize = 64;

/// The maximum number of values printed per table row.
const MAX_ROW_VALUES: usize = 16;

/// The maximum number of characters printed per token.
const MAX_LABEL_LENGTH: usize = 40;

impl Display for DataDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, text: &dyn Display| writeln!(f, "{name:<12}{text}");
        line("source", &format_args!("{} {}", self.source, in_one_line(&self.name)))?;
        if let Some(table) = &self.file.table {
            write_table(table, &mut line)?;
        }
        if let Some(array) = &self.file.array {
            line("format", array)?;
        }
        if let Some(text) = self.file.text.as_ref().filter(|text| text.files > 1) {
            let (count, size) = (counted(text.files, "file"), counted(text.bytes, "byte"));
            let more = if text.files > text.first.len() { ", …" } else { "" };
            let first = text.first.iter().map(|name| in_one_line(name)).collect::<Vec<_>>().join(", ");
            line("files", &format_args!("{count}, {size}: {first}{more}"))?;
        }
        line("training", &self.train)?;
        line("validation", &self.valid)?;
        if let Some(DescribedDocuments { train, valid, median_length }) = self.documents {
            let (train, valid) = (counted(train, "document"), thousands(valid as f64));
            let median = counted(median_length, "token");
            line(
                "documents",
                &format_args!("{train} in training, {valid} in validation; median length {median}"),
            )?;
        }
        if let Some([shortest, longest]) = self.size.lengths {
            line("lengths", &format_args!("{shortest} to {longest} in training, drawn for each batch"))?;
        }
        line("context", &counted(self.size.context, "position"))?;
        let DescribedVocabulary { name, size, tokens, end_of_text, separator } = &self.vocabulary;
        let more = if *size > tokens.len() { " …" } else { "" };
        line("vocabulary", &format_args!("{name}: {}{more}", labels(tokens, " ").join(" ")))?;
        if let Some(end) = end_of_text {
            line("end of text", end)?;
        }
        let Baselines { floor, unigram_entropy: unigram, bigram_entropy: bigram } = self.baselines;
        if let Some(Floor { valid, expected, standard_error }) = floor {
            let unit = "nats per token on this validation set";
            let error = standard_error
                .map_or(String::new(), |error| format!(" (estimated, standard error {error:.0e})"));
            line("floor", &format_args!("{valid:.4} {unit}, {expected:.4} in expectation{error}"))?;
        }
        line("entropy", &format_args!("{unigram:.4} nats per token (unigram), {bigram:.4} (bigram)"))?;
        let leaked = part_of(self.overlap.leaked, self.valid.samples, "validation sample");
        line("leakage", &format_args!("{leaked} also in training"))?;
        let unseen = match self.overlap.unseen.as_slice() {
            [] => "none; every validation token occurs in training".to_string(),
            unseen => format!("missing from training: {}", shortened(unseen, " ", 100)),
        };
        line("unseen", &unseen)?;
        let is_marked = self.samples.iter().any(|sample| sample.determined.contains(&true));
        writeln!(
            f,
            "samples{}",
            if is_marked { " (^ marks tokens that the optimal predictor knows)" } else { "" }
        )?;
        self.samples.iter().try_for_each(|sample| write_sample(f, sample, separator))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {}", in_one_line(warning)))
    }
}

impl Display for EndOfText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (id {}), declared by {}", self.token, self.id, self.declared_by)
    }
}

/// Writes the format and the first rows of a table with `line`, which takes a name and a text.
fn write_table(
    table: &TableReading,
    line: &mut impl FnMut(&str, &dyn Display) -> fmt::Result,
) -> fmt::Result {
    line("format", &format_of(table))?;
    if table.files > 1 {
        line("files", &counted(table.files, "file"))?;
    }
    if let Some(groups) = &table.groups {
        line("groups", &format_args!("{}, each of which is a sequence", counted(groups.len(), "group")))?;
    }
    if table.comments > 0 {
        line("comments", &format_args!("{}, which are skipped", counted(table.comments, "line")))?;
    }
    let names = table.header.as_ref().map(|names| shortened(names, " | ", MAX_ROW_VALUES));
    if table.delimiter.is_some() {
        line("header", &names.as_deref().unwrap_or("none"))?;
    }
    for (row, values) in table.rows.iter().enumerate() {
        let name = if row == 0 { "first rows" } else { "" };
        line(name, &shortened(values, " | ", MAX_ROW_VALUES))?;
    }
    Ok(())
}

/// Returns the format of a table, its delimiter and its columns.
fn format_of(table: &TableReading) -> String {
    let columns = match table.columns {
        // Conversations are not values of columns.
        [_, 0] => return table.format.to_string(),
        [min, max] if min == max => counted(max, "column"),
        [min, max] => format!("{min} to {}", counted(max, "column")),
    };
    match &table.delimiter {
        Some(delimiter) => format!("{} with delimiter {delimiter}, {columns}", table.format),
        None => format!("{}, {columns}", table.format),
    }
}

impl Display for DescribedSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", counted(self.samples, "sample"), counted(self.targets, "target"))?;
        if self.determined > 0 {
            write!(f, ", {:.1} % of them determined", 100.0 * self.determined as f64 / self.targets as f64)?;
        }
        Ok(())
    }
}

fn write_sample(f: &mut fmt::Formatter<'_>, sample: &DescribedSample, separator: &str) -> fmt::Result {
    if let Some(source) = &sample.source {
        writeln!(f, "  {} →", shortened(source, separator, MAX_SAMPLE_TOKENS))?;
    }
    writeln!(f, "  {}", shortened(&sample.tokens, separator, MAX_SAMPLE_TOKENS))?;
    if sample.determined.contains(&true) {
        let labels = labels(&sample.tokens, separator);
        let mark = |(label, is_known): (&String, &bool)| {
            let mark = if *is_known { "^" } else { " " };
            mark.repeat(label.chars().count())
        };
        let marks = labels.iter().zip(&sample.determined).take(MAX_SAMPLE_TOKENS).map(mark);
        let marks = marks.collect::<Vec<_>>().join(&" ".repeat(separator.len()));
        writeln!(f, "  {}", marks.trim_end())?;
    }
    Ok(())
}

/// Returns the tokens as printed on the page: long tokens are truncated, control characters are escaped, and tokens
/// that contain spaces are quoted if the `separator` is a space.
fn labels(tokens: &[String], separator: &str) -> Vec<String> {
    let label = |token: &String| match token.chars().nth(MAX_LABEL_LENGTH) {
        None => in_one_line(token),
        Some(_) => excerpt(token, MAX_LABEL_LENGTH),
    };
    let is_quoted = |token: &str| separator == " " && token.contains(' ');
    let quoted = |label: String| if is_quoted(&label) { format!("\"{label}\"") } else { label };
    tokens.iter().map(label).map(quoted).collect()
}

/// Returns a text with its control characters escaped.
fn in_one_line(text: &str) -> String {
    if text.contains(char::is_control) { excerpt(text, usize::MAX) } else { text.to_string() }
}

/// Joins the first tokens, with an ellipsis if there are more.
fn shortened(tokens: &[String], separator: &str, max: usize) -> String {
    let first = labels(&tokens[..tokens.len().min(max)], separator).join(separator);
    if tokens.len() > max { format!("{first}{separator}…") } else { first }
}
