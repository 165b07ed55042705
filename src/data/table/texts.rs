//! Texts in a table, each of which is a sequence of tokens, and pairs and conversations of texts.
//!
//! ```text
//! a text          <end> e m m a <end>
//! a pair          <end> 2 + 3 <sep> 5 <end>               only the targets after <sep> count in the loss
//! a conversation  <end> <user> H i <end> <assistant> H e l l o <end>
//! ```
//!
//! The end token also begins a sequence, so that a model learns how sequences start. A tokenizer from a file has its own
//! begin and end tokens; without a token for the separator, a line break separates a pair.

use std::sync::Arc;

use super::chat::ChatTemplate;
use super::part::{Part, PartText};
use super::{Line, Table};
use crate::data::batch::Role;
use crate::data::config::{LongRows, LossOn, Tokens};
use crate::data::dataset::Dataset;
use crate::data::excerpt::excerpt;
use crate::data::sequences::{Rows, Sequences};
use crate::data::text::{DEFAULT_BPE_TOKENS, read_tokenizer};
use crate::data::vocabulary::{ASSISTANT, END, SEPARATOR, Vocabulary, role_token};
use crate::error::{Error, Result};
use crate::numbers::counted;

/// A sequence of texts and special tokens.
#[derive(Debug)]
pub(super) struct TextSample {
    pub line: Line,
    pub parts: Vec<Part>,
    /// True if the parts contain the tokens that begin a text.
    has_beginning: bool,
}

impl TextSample {
    /// Creates the sequence of a text.
    pub fn of_text(line: Line, text: &str) -> Self {
        Self::new(line, vec![Part::text(text, true), Part::special(END, true)])
    }

    /// Creates the sequence of a pair.
    pub fn of_pair(line: Line, source: &str, target: &str) -> Self {
        let parts = vec![
            Part::text(source, false),
            Part::special(SEPARATOR, false),
            Part::text(target, true),
            Part::special(END, true),
        ];
        Self::new(line, parts)
    }

    /// Creates the sequence of a conversation, given the role and the text of each turn. The turns of the assistant are
    /// the answers.
    pub fn of_turns(line: Line, turns: &[(String, String)]) -> Self {
        let parts = turns.iter().flat_map(|(role, text)| {
            let is_answer = role == ASSISTANT;
            [
                Part::special(&role_token(role), false),
                Part::text(text, is_answer),
                Part::special(END, is_answer),
            ]
        });
        Self::new(line, parts.collect())
    }

    fn new(line: Line, parts: Vec<Part>) -> Self {
        Self { line, parts, has_beginning: false }
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match &part.text {
            PartText::Text(text) => Some(text.as_str()),
            PartText::Special(_) | PartText::Ids(_) => None,
        })
    }
}

/// The ids of a sequence, and the role of each id as a target.
#[derive(Debug, Default)]
struct Encoded {
    ids: Vec<u32>,
    roles: Vec<Role>,
}

impl Encoded {
    fn extend(&mut self, ids: &[u32], role: Role) {
        self.ids.extend(ids);
        self.roles.resize(self.ids.len(), role);
    }
}

impl Table<'_> {
    /// Adds a conversation, in the format of the tokenizer's chat template if it has one.
    pub(super) fn push_turns(&mut self, line: Line, turns: &[(String, String)]) -> Result<()> {
        if self.chosen.template.is_none() {
            self.chosen.template = Some(match &self.config.tokens {
                Tokens::File(path) => ChatTemplate::next_to(path)?,
                _ => None,
            });
        }
        let sample = match self.chosen.template.as_ref().and_then(Option::as_ref) {
            None => TextSample::of_turns(line, turns),
            Some(template) => {
                let parts = template.parts(turns).map_err(|problem| self.problem(Some(line), problem))?;
                TextSample { line, parts, has_beginning: true }
            }
        };
        self.chosen.texts.push(sample);
        Ok(())
    }

    /// Adds a sequence of token ids; `mask` holds the ones that count as targets, or `None` if all do.
    pub(super) fn push_ids(&mut self, line: Line, ids: Vec<u32>, mask: Option<Vec<bool>>) -> Result<()> {
        if !matches!(self.config.tokens, Tokens::File(_)) {
            let problem = "has token ids instead of a text; set `data.tokens` to the tokenizer.json that they belong to, or \
                           remove it to read the ids as integers";
            return Err(self.problem(Some(line), problem));
        }
        let counts = mask.unwrap_or_else(|| vec![true; ids.len()]);
        let mut rest = &ids[..];
        let parts = counts.chunk_by(|one, next| one == next).map(|run| {
            let (part, after) = rest.split_at(run.len());
            rest = after;
            Part { is_answer: run[0], text: PartText::Ids(part.to_vec()) }
        });
        let parts = parts.collect();
        self.chosen.texts.push(TextSample { line, parts, has_beginning: true });
        Ok(())
    }

    /// Returns the splits of the texts.
    pub(super) fn into_texts(mut self) -> Result<Dataset> {
        let samples = std::mem::take(&mut self.chosen.texts);
        let (train, valid) = self.split(samples.len())?;
        let vocabulary = match self.given {
            Some(vocabulary) => vocabulary.clone(),
            None => self.text_vocabulary(&samples, &train)?,
        };
        let vocabulary = vocabulary.with_columns(self.columns());
        let needs_end = samples.iter().any(|sample| !sample.has_beginning);
        if needs_end && vocabulary.end().is_none() {
            if self.given.is_some() {
                let problem = format!(
                    "holds texts, each of which ends in an end-of-text token, but the vocabulary of {vocabulary} lacks \
                     one; train on it without the weights, or join the texts to a text file"
                );
                return Err(self.problem(None, problem));
            }
            let problem =
                "lacks an end-of-text token, but each text needs one; use a tokenizer that declares one";
            return Err(Error::key("data.tokens", &self.config.tokens, problem));
        }
        if !self.seen.unread.is_empty() {
            let names = Vec::from_iter(std::mem::take(&mut self.seen.unread)).join(", ");
            let (what, text) = match self.chosen.fields.is_some() {
                true => ("pairs", "the source"),
                false => ("conversations", "`content`"),
            };
            self.reading.guesses.push(format!(
                "fields of {what} are not read: {names}; write what the model must learn into {text}"
            ));
        }
        let has_source = |sample: &TextSample| sample.parts.iter().any(|part| !part.is_answer);
        self.reading.has_sources = !self.chosen.as_pairs && samples.iter().any(has_source);
        let rows = if self.chosen.as_pairs { Self::pair_rows } else { Self::text_rows };
        let mut set = |indices: &[usize]| rows(&mut self, &samples, indices, &vocabulary);
        let sets = (set(&train)?, set(&valid)?);
        self.report_long();
        Ok(Dataset { table: Some(Arc::new(self.reading)), ..Dataset::without_floor(vocabulary, sets) })
    }

    /// Builds the vocabulary that `data.tokens` selects. The validation set must not influence the tokens, except that
    /// it may not have characters of its own.
    fn text_vocabulary(&self, samples: &[TextSample], train: &[usize]) -> Result<Vocabulary> {
        let mut special: Vec<&str> = vec![END];
        for part in samples.iter().flat_map(|sample| &sample.parts) {
            if let PartText::Special(name) = &part.text
                && !special.contains(&name.as_str())
            {
                special.push(name);
            }
        }
        let training = || train.iter().flat_map(|&index| samples[index].texts());
        match &self.config.tokens {
            Tokens::Auto | Tokens::Characters => {
                let characters = samples.iter().flat_map(TextSample::texts).flat_map(str::chars);
                Vocabulary::characters_with(characters, &special)
            }
            Tokens::Words => Vocabulary::words(training(), &special, self.config.vocab),
            Tokens::Bpe => {
                let vocab = self.config.vocab.or(DEFAULT_BPE_TOKENS);
                Vocabulary::byte_pairs(training().map(str::to_string), &special, vocab)
            }
            Tokens::File(path) => read_tokenizer(self.config, path),
        }
    }

    /// Encodes the samples at `indices` as one sequence each.
    fn text_rows(
        &mut self,
        samples: &[TextSample],
        indices: &[usize],
        vocabulary: &Vocabulary,
    ) -> Result<Sequences> {
        let mut rows = Rows::default();
        let mut uncounted = Vec::new();
        for &index in indices {
            let Encoded { ids, roles } = self.encoded(&samples[index], vocabulary)?;
            let Some(length) = self.limited(samples[index].line, ids.len())? else { continue };
            if !roles[1..length].contains(&Role::Unknown) {
                uncounted.push(samples[index].line);
                continue;
            }
            rows.push_with_roles(&ids[..length], roles[1..length].iter().copied());
        }
        self.report_uncounted(&uncounted, rows.is_empty())?;
        if rows.is_empty() {
            return Err(self.all_left_out());
        }
        Ok(Sequences::rows(rows))
    }

    /// Encodes the samples at `indices` as sources and answers.
    fn pair_rows(
        &mut self,
        samples: &[TextSample],
        indices: &[usize],
        vocabulary: &Vocabulary,
    ) -> Result<Sequences> {
        let (mut sources, mut answers) = (Rows::default(), Rows::default());
        let end = Vec::from_iter(vocabulary.end());
        for &index in indices {
            let sample = &samples[index];
            let [source, .., target, _] = &sample.parts[..] else { continue };
            let [source, target] = [source, target].map(|part| self.part_ids(sample.line, part, vocabulary));
            let (source, answer) = (source?, [&end[..], &target?, &end].concat());
            // The first id of an answer is not a target.
            let source_length = self.limited(sample.line, source.len() + 1)?;
            let length = self.limited(sample.line, answer.len())?;
            let Some((source_length, length)) = source_length.zip(length) else { continue };
            sources.push(&source[..source_length - 1]);
            answers.push_with_roles(&answer[..length], (1..length).map(|_| Role::Unknown));
        }
        if answers.is_empty() {
            return Err(self.all_left_out());
        }
        Ok(Sequences::pairs(sources, answers))
    }

    /// Returns the ids of a sample.
    fn encoded(&self, sample: &TextSample, vocabulary: &Vocabulary) -> Result<Encoded> {
        let mut encoded = Encoded::default();
        // A tokenizer without a begin token starts with the text.
        if !sample.has_beginning {
            encoded.extend(vocabulary.added_tokens()[0], Role::Padding);
        }
        let role = |part: &Part| {
            let counts = part.is_answer || self.config.loss_on == LossOn::All;
            if counts { Role::Unknown } else { Role::Padding }
        };
        let mut rest = &sample.parts[..];
        while let [part, after @ ..] = rest {
            // Adjacent texts are encoded as one, as in a prompt.
            let texts: Vec<&str> = rest.iter().map_while(|part| part.as_text(vocabulary)).collect();
            if texts.is_empty() {
                encoded.extend(&self.part_ids(sample.line, part, vocabulary)?, role(part));
                rest = after;
                continue;
            }
            let ids = vocabulary.encode_parts(&texts);
            let ids = ids.map_err(|error| self.problem(Some(sample.line), error.to_string()))?;
            rest.iter().zip(ids).for_each(|(part, ids)| encoded.extend(&ids, role(part)));
            rest = &rest[texts.len()..];
        }
        Ok(encoded)
    }

    /// Returns the ids of a part.
    fn part_ids(&self, line: Line, part: &Part, vocabulary: &Vocabulary) -> Result<Vec<u32>> {
        match &part.text {
            PartText::Ids(ids) => {
                vocabulary.check(ids).map_err(|error| self.problem(Some(line), error.to_string()))?;
                Ok(ids.clone())
            }
            PartText::Special(name) if name == END => Ok(Vec::from_iter(vocabulary.end())),
            PartText::Special(name) if name == SEPARATOR => vocabulary.separator(),
            PartText::Special(name) => vocabulary.special(name).map(|id| vec![id]).ok_or_else(|| {
                let problem = format!(
                    "has a turn of the role `{}`, but the vocabulary of {vocabulary} has no token `{name}` for it; use a \
                     vocabulary that has one, or remove the turn",
                    excerpt(name.trim_matches(['<', '>']))
                );
                self.problem(Some(line), problem)
            }),
            PartText::Text(text) => vocabulary.encode(text).map_err(|error| self.problem(Some(line), error.to_string())),
        }
    }

    /// Returns the number of ids of a sequence of `ids` ids that `data.long_rows` keeps; `None` to drop it.
    ///
    /// # Errors
    /// Returns an error if a sequence is too long or has nothing to predict.
    pub(super) fn limited(&mut self, line: Line, ids: usize) -> Result<Option<usize>> {
        let length = self.config.length;
        if ids <= length.saturating_add(1) {
            return Ok(Some(ids));
        }
        if matches!(self.config.long_rows, LongRows::Cut | LongRows::Drop) {
            self.seen.long.insert(line);
        }
        match self.config.long_rows {
            LongRows::Keep => Ok(Some(ids)),
            LongRows::Cut => Ok(Some(length + 1)),
            LongRows::Drop => Ok(None),
            LongRows::Error => {
                let problem = format!(
                    "has {}, more than `data.length` = {length}; raise it, or set `data.long_rows` to \"cut\" or \"drop\"",
                    counted(ids - 1, "target")
                );
                Err(self.problem(Some(line), problem))
            }
        }
    }
}
