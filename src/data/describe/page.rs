//! A [`Description`] as a page of text.

use std::fmt;

use super::{Description, Sample, Split};

/// Tokens of a sample that are shown.
const SAMPLE_TOKENS: usize = 64;

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12}{} {}", "source", self.source, self.name)?;
        for (name, split) in [("training", &self.train), ("validation", &self.valid)] {
            writeln!(f, "{name:<12}{split}")?;
        }
        writeln!(f, "{:<12}{} positions", "context", self.context)?;
        let more = if self.vocab > self.tokens.len() { " …" } else { "" };
        writeln!(f, "{:<12}{}: {}{more}", "vocabulary", self.vocabulary, self.tokens.join(" "))?;
        if let Some(floor) = self.floor {
            writeln!(
                f,
                "{:<12}{:.4} nats a target on this validation set, {:.4} in expectation",
                "floor", floor.valid, floor.expected
            )?;
        }
        writeln!(
            f,
            "{:<12}{:.4} nats a target knowing frequencies, {:.4} knowing the token before",
            "yardsticks", self.unigram_entropy, self.bigram_entropy
        )?;
        writeln!(
            f,
            "{:<12}{} of {} validation samples also stand in training",
            "leakage", self.leaked, self.valid.samples
        )?;
        if self.unseen.is_empty() {
            writeln!(f, "{:<12}no token of validation is missing from training", "unseen")?;
        } else {
            writeln!(f, "{:<12}missing from training: {}", "unseen", shortened(&self.unseen, " ", 100))?;
        }
        let mark = if self.samples.iter().any(|sample| sample.determined.contains(&true)) {
            " (^ marks what a perfect model knows)"
        } else {
            ""
        };
        writeln!(f, "samples{mark}")?;
        self.samples.iter().try_for_each(|sample| write_sample(f, sample, self.separator))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.samples == 1 { "" } else { "s" };
        write!(f, "{} sample{plural}, {} targets", self.samples, self.targets)?;
        if self.determined > 0 {
            write!(f, ", {:.1} % of them determined", 100.0 * self.determined as f64 / self.targets as f64)?;
        }
        Ok(())
    }
}

fn write_sample(f: &mut fmt::Formatter<'_>, sample: &Sample, separator: &str) -> fmt::Result {
    if let Some(source) = &sample.source {
        writeln!(f, "  {} →", shortened(source, separator, SAMPLE_TOKENS))?;
    }
    writeln!(f, "  {}", shortened(&sample.tokens, separator, SAMPLE_TOKENS))?;
    if sample.determined.contains(&true) {
        let marks =
            sample.tokens.iter().zip(&sample.determined).take(SAMPLE_TOKENS).map(|(token, &is_known)| {
                let width = token.chars().count();
                if is_known { "^".repeat(width) } else { " ".repeat(width) }
            });
        let space = " ".repeat(separator.len());
        writeln!(f, "  {}", marks.collect::<Vec<_>>().join(&space).trim_end())?;
    }
    Ok(())
}

/// The first tokens, and a sign when there are more.
fn shortened(tokens: &[String], separator: &str, most: usize) -> String {
    let shown = tokens[..tokens.len().min(most)].join(separator);
    if tokens.len() > most { format!("{shown}{separator}…") } else { shown }
}
