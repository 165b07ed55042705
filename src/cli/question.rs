//! Options that ask about one prediction of a model: a prompt, an answer, and what it is compared with.

mod aligned;
mod target;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::prompt;
use crate::analysis::circuit::QuestionPrompt;
use crate::data::{Documents, Vocabulary, documents_of, excerpt};
use crate::error::{Error, Result};
use crate::files::Text;
use crate::numbers::thousands;

/// The maximum number of tokens that an error shows.
const MAX_SHOWN: usize = 24;

/// A question about one prediction of the model.
#[derive(Debug, clap::Args)]
pub struct QuestionArgs {
    /// Explains the prediction at one token of the text: last, its position from 0, or the token itself (its last
    /// occurrence). A number is a position; token:9 is the token 9.
    #[arg(long, value_name = "TOKEN", requires = "given", allow_hyphen_values = true)]
    target: Option<String>,
    /// The predicted token to explain: its log-probability or, with --against, its logit. [default: the next token of
    /// the text, or else the token that the model predicts]
    #[arg(long, value_name = "TOKEN", requires = "given", allow_hyphen_values = true)]
    answer: Option<String>,
    /// Explains the logit of the answer minus the logit of this token.
    #[arg(long, value_name = "TOKEN", requires = "given", allow_hyphen_values = true)]
    against: Option<String>,
    /// A corrupted text of the same number of tokens: ablated components take their outputs on it instead of their mean.
    #[arg(long, value_name = "TEXT", requires = "given", allow_hyphen_values = true)]
    corrupt: Option<String>,
    /// Prints the tokens of the text and of the corrupted text side by side, and explains nothing: to correct a corrupted
    /// text with another number of tokens.
    #[arg(long, requires = "corrupt", conflicts_with = "json")]
    align: bool,
    /// Explains many predictions at once: a file of JSON objects, one per line, with text and, as the options of the same
    /// name, target, answer, against and corrupt.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["given", "target", "answer", "against", "corrupt"])]
    prompts: Option<PathBuf>,
}

/// A line of a file of prompts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptLine {
    text: String,
    target: Option<serde_json::Value>,
    answer: Option<String>,
    against: Option<String>,
    corrupt: Option<String>,
}

/// The texts of a prompt.
struct PromptParts<'a> {
    target: Option<&'a str>,
    answer: Option<&'a str>,
    against: Option<&'a str>,
    corrupt: Option<&'a str>,
}

impl QuestionArgs {
    /// Returns true if a file of prompts is given.
    pub fn has_prompts(&self) -> bool {
        self.prompts.is_some()
    }

    /// Returns the prompts of the question about a text with these `tokens`, or of the file of prompts, and the question
    /// as a sentence; `None` if the options ask no question.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if the target is not in the text, if an answer is not one token, or if
    /// the corrupted text has another number of tokens.
    pub fn prompts(
        &self,
        tokens: &[u32],
        vocabulary: &Vocabulary,
        documents: Documents,
    ) -> Result<Option<(Vec<QuestionPrompt>, String)>> {
        if let Some(path) = &self.prompts {
            let (prompts, ambiguity) = read_prompts(path, vocabulary, documents)?;
            let question = match &prompts[..] {
                [prompt] => question(prompt, vocabulary),
                prompts => format!(
                    "Question: the answers of {} prompts, such as the first: {}",
                    prompts.len(),
                    reason(&prompts[0], vocabulary)
                ),
            };
            return Ok(Some((prompts, with_note(question, ambiguity))));
        }
        let Self { target, answer, against, corrupt, .. } = self;
        if [target, answer, against, corrupt].into_iter().all(Option::is_none) {
            return Ok(None);
        }
        let parts = PromptParts {
            target: target.as_deref(),
            answer: answer.as_deref(),
            against: against.as_deref(),
            corrupt: corrupt.as_deref(),
        };
        let prompt = parts.prompt(tokens, vocabulary, documents).map_err(Error::Input)?;
        let question = question(&prompt, vocabulary);
        let ambiguity = target.as_deref().and_then(|it| target::ambiguity(it, tokens, vocabulary));
        Ok(Some((vec![prompt], with_note(question, ambiguity))))
    }

    /// Returns the tokens of a text and of the corrupted text side by side, as lines; `None` unless this is asked for.
    ///
    /// # Errors
    /// Returns an error if the corrupted text cannot be encoded.
    pub fn aligned(&self, tokens: &[u32], vocabulary: &Vocabulary) -> Result<Option<Vec<String>>> {
        let corrupt = self.corrupt.as_ref().filter(|_| self.align);
        let corrupted = corrupt.map(|text| prompt::encode(vocabulary, text)).transpose()?;
        Ok(corrupted.map(|corrupted| aligned::lines([tokens, &corrupted], vocabulary)))
    }

    /// Returns true if the tokens of both texts are only printed.
    pub fn only_aligns(&self) -> bool {
        self.align
    }
}

fn with_note(question: String, note: Option<String>) -> String {
    note.map(|note| format!("{question} {note}")).unwrap_or(question)
}

/// The name of an answer before the model has predicted it.
const PREDICTED: &str = "the predicted token";

/// Adds the token that the model predicts to a question that does not name the answer.
pub fn with_prediction(question: String, predicted: Option<u32>, vocabulary: &Vocabulary) -> String {
    match predicted {
        Some(id) => {
            question.replacen(PREDICTED, &format!("{PREDICTED} `{}` (id {id})", vocabulary.token(id)), 1)
        }
        None => question,
    }
}

/// Returns the question about a prompt as a sentence.
fn question(prompt: &QuestionPrompt, vocabulary: &Vocabulary) -> String {
    format!("Question: {}", reason(prompt, vocabulary))
}

fn reason(prompt: &QuestionPrompt, vocabulary: &Vocabulary) -> String {
    let token = |id: u32| format!("`{}` (id {id})", vocabulary.token(id));
    let answer = prompt.answer.map_or(PREDICTED.to_string(), token);
    let against = prompt.against.map(|id| format!(" and not {}", token(id))).unwrap_or_default();
    let position = prompt.tokens.len() - 1;
    format!("why {answer}{against} after {} at position {position}?", token(prompt.tokens[position]))
}

/// Reads the prompts of a file of JSON objects. Returns a note about the first ambiguous target, too.
fn read_prompts(
    path: &Path,
    vocabulary: &Vocabulary,
    documents: Documents,
) -> Result<(Vec<QuestionPrompt>, Option<String>)> {
    let mut note = None;
    let text = Text::open(path)?.read_to_string()?;
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let prompt = |(line, number): (&str, usize)| {
        let failed = |problem: String| Error::in_file(path, Some(number), None, problem);
        let line: PromptLine = serde_json::from_str(line).map_err(|error| {
            let text = error.to_string();
            // The line of the error is always the first one of its own text.
            let problem = text.split_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
            let remedy = "write an object with text, answer, against and corrupt";
            Error::in_file(
                path,
                Some(number),
                Some(error.column()),
                format!("is not a prompt: {problem}; {remedy}"),
            )
        })?;
        let tokens = prompt::encode(vocabulary, &line.text).map_err(|error| failed(error.to_string()))?;
        let target = line.target.map(|target| match target {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        });
        let parts = PromptParts {
            target: target.as_deref(),
            answer: line.answer.as_deref(),
            against: line.against.as_deref(),
            corrupt: line.corrupt.as_deref(),
        };
        let prompt = parts.prompt(&tokens, vocabulary, documents).map_err(failed)?;
        let ambiguity = || parts.target.and_then(|it| target::ambiguity(it, &tokens, vocabulary));
        note = note.take().or_else(ambiguity);
        Ok(prompt)
    };
    let mut prompts = lines.map(prompt).collect::<Result<Vec<_>>>()?;
    // Repeated prompts are no further evidence.
    let (all, mut known) = (prompts.len(), HashSet::new());
    prompts.retain(|prompt| known.insert(prompt.clone()));
    match all - prompts.len() {
        0 => {}
        1 => log::info!("1 prompt repeats an earlier one and is left out"),
        repeated => log::info!("{} prompts repeat earlier ones and are left out", thousands(repeated as f64)),
    }
    match prompts.is_empty() {
        true => Err(Error::file(path, "has no prompts; write one JSON object per line")),
        false => Ok((prompts, note)),
    }
}

impl PromptParts<'_> {
    /// Returns the prompt, or the problem with its parts.
    fn prompt(
        &self,
        tokens: &[u32],
        vocabulary: &Vocabulary,
        documents: Documents,
    ) -> Result<QuestionPrompt, String> {
        if tokens.is_empty() {
            return Err("the text is empty; pass at least one token".to_string());
        }
        let position = target::position(self.target, tokens, vocabulary)?;
        let token =
            |name: &str, text: Option<&str>| text.map(|text| one_token(name, text, vocabulary)).transpose();
        let answer = token("answer", self.answer)?.or(tokens.get(position + 1).copied());
        let against = token("against", self.against)?;
        if answer.is_some() && answer == against {
            return Err(
                "the answer and the token that it is compared with are the same; pass two tokens".into()
            );
        }
        let corrupted =
            self.corrupt.map(|text| corrupted(text, (tokens, position), vocabulary)).transpose()?;
        let tokens = tokens[..=position].to_vec();
        let documents = documents_in(&tokens, corrupted.as_deref(), vocabulary, documents)?;
        Ok(QuestionPrompt { tokens, answer, against, corrupted, documents })
    }
}

/// Returns the document of each token of a prompt, if there are several separate ones, or the problem with them.
fn documents_in(
    tokens: &[u32],
    corrupted: Option<&[u32]>,
    vocabulary: &Vocabulary,
    documents: Documents,
) -> Result<Option<Vec<u32>>, String> {
    let of = |tokens: &[u32]| documents_of(documents, tokens, vocabulary);
    let found = of(tokens);
    let end = vocabulary.end().filter(|_| documents == Documents::Separate);
    if let Some(end) = end.filter(|end| tokens.last() == Some(end)) {
        return Err(format!(
            "the target `{}` ends a document, and this model was trained on separate documents, so it does not predict the \
             first token of the next one; pass another target",
            vocabulary.token(end)
        ));
    }
    if corrupted.is_some_and(|corrupted| of(corrupted) != found) {
        return Err(
            "corrupt: the corrupted text has its documents elsewhere; end them at the same tokens".into()
        );
    }
    Ok(found)
}

/// Returns the tokens of a text for an error.
fn shown(tokens: &[u32], vocabulary: &Vocabulary) -> String {
    let shown = tokens.iter().take(MAX_SHOWN).map(|&id| format!("`{}`", vocabulary.token(id)));
    let more = if tokens.len() > MAX_SHOWN { " ..." } else { "" };
    shown.collect::<Vec<_>>().join(" ") + more
}

/// Returns the id of an answer, or the problem if it is not one token.
fn one_token(name: &str, text: &str, vocabulary: &Vocabulary) -> Result<u32, String> {
    let ids = prompt::encode_part(vocabulary, text).map_err(|error| format!("{name}: {error}"))?;
    if let [id] = ids[..] {
        return Ok(id);
    }
    if ids.is_empty() {
        return Err(format!("{name}: the text `{}` has no token; pass one token", excerpt(text)));
    }
    let spaced = vocabulary.encode(&format!(" {text}")).ok().filter(|ids| ids.len() == 1);
    let hint = match spaced {
        Some(_) => format!("; did you mean `{}`, with a space?", excerpt(&format!(" {text}"))),
        None => "; pass one of its tokens".to_string(),
    };
    let listed: Vec<String> =
        ids.iter().take(MAX_SHOWN).map(|&id| format!("`{}` (id {id})", vocabulary.token(id))).collect();
    Err(format!(
        "{name}: `{}` must be one token, but has {}: {}{hint}",
        excerpt(text),
        ids.len(),
        listed.join(" ")
    ))
}

/// Returns the corrupted tokens up to the target, or the problem if the texts do not match.
fn corrupted(
    text: &str,
    (tokens, position): (&[u32], usize),
    vocabulary: &Vocabulary,
) -> Result<Vec<u32>, String> {
    let corrupted = prompt::encode(vocabulary, text).map_err(|error| error.to_string())?;
    if corrupted.len() != tokens.len() {
        return Err(format!(
            "corrupt: the corrupted text has {} tokens, but the text has {}; write both with the same number of tokens, which \
             --align shows side by side: {} and {}",
            corrupted.len(),
            tokens.len(),
            shown(&corrupted, vocabulary),
            shown(tokens, vocabulary)
        ));
    }
    match corrupted[..=position] == tokens[..=position] {
        true => Err(format!(
            "corrupt: the corrupted text equals the text up to the target at position {position}; change a token before it"
        )),
        false => Ok(corrupted[..=position].to_vec()),
    }
}
