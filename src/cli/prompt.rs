//! The encoding of prompts and other input texts of the command line.

use std::io;
use std::path::{Path, PathBuf};

use rand::RngExt;
use serde::Deserialize;

use crate::data::seed::{Purpose, generator};
use crate::data::{Documents, Notation, Vocabulary, documents_of, excerpt};
use crate::error::{Error, Result};
use crate::files::Text;
use crate::terminal::warn;
use crate::weights::companions::Companions;

/// Encodes a text, such as [`encode`] or [`encode_part`].
type Encode = fn(&Vocabulary, &str) -> Result<Vec<u32>>;

/// Returns the ids of a text or of the text in a file, encoded by `encode`, or of a list of ids; empty if none is given.
///
/// # Errors
/// Returns an error if the input cannot be read, or has tokens outside the vocabulary.
pub fn tokens(
    text: &Option<String>,
    file: &Option<PathBuf>,
    ids: &Option<String>,
    vocabulary: &Vocabulary,
    encode: Encode,
) -> Result<Vec<u32>> {
    match (text, file, ids) {
        (Some(text), ..) => encode(vocabulary, text),
        (_, Some(path), _) => encode(vocabulary, &read(path)?),
        (_, _, Some(ids)) => self::ids(ids, vocabulary),
        (None, None, None) => Ok(Vec::new()),
    }
}

/// Reads the text of a file or a stream; `-` is standard input.
fn read(path: &Path) -> Result<String> {
    let text = match path == Path::new("-") {
        true => Text::of_stream(io::stdin(), Path::new("standard input"))?,
        false => Text::open(path)?,
    };
    text.read_to_string()
}

/// Reads the prompt in a file, without the line break at its end.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read_prompt(path: &Path) -> Result<String> {
    let text = read(path)?;
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(&text).to_string())
}

/// A line of a file of prompts; its other fields are for `explain`.
#[derive(Deserialize)]
struct PromptText {
    text: String,
}

/// Returns true if a file holds prompts, by its name: JSON objects with `text` (`.jsonl`), or a text per line (`.txt`).
pub fn is_prompts(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|it| ["jsonl", "txt"].iter().any(|known| it.eq_ignore_ascii_case(known)))
}

/// Returns the part of a prompt that its last token sees: the last document if documents are separate.
pub fn last_document<'t>(tokens: &'t [u32], documents: Documents, vocabulary: &Vocabulary) -> &'t [u32] {
    let documents = documents_of(documents, tokens, vocabulary).unwrap_or_default();
    let last = documents.chunk_by(|a, b| a == b).last().map_or(tokens.len(), <[u32]>::len);
    &tokens[tokens.len() - last..]
}

/// Returns the tokens of the prompts in a file: of the texts of JSON objects if its name ends in `.jsonl`, otherwise of its
/// lines. Empty lines are skipped.
///
/// # Errors
/// Returns an error that names the first line that cannot be read.
pub fn prompts(path: &Path, vocabulary: &Vocabulary) -> Result<Vec<Vec<u32>>> {
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"));
    let text = Text::open(path)?.read_to_string()?;
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let tokens = |(line, number): (&str, usize)| {
        let failed = |problem: String| Error::in_file(path, Some(number), None, problem);
        let prompt = match is_json {
            true => {
                serde_json::from_str::<PromptText>(line)
                    .map_err(|error| failed(format!("is not a prompt: {error}; write an object with text")))?
                    .text
            }
            false => line.to_string(),
        };
        let tokens = encode(vocabulary, &prompt).map_err(|error| failed(error.to_string()))?;
        match tokens.is_empty() {
            true => Err(failed("the text is empty; write at least one token".to_string())),
            false => Ok(tokens),
        }
    };
    let prompts = lines.map(tokens).collect::<Result<Vec<_>>>()?;
    match prompts.is_empty() {
        true => Err(Error::file(path, "has no prompts; write one per line")),
        false => Ok(prompts),
    }
}

/// Parses ids separated by spaces or commas, such as `3 1 4`.
fn ids(text: &str, vocabulary: &Vocabulary) -> Result<Vec<u32>> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let id = |(word, position): (&str, usize)| {
        let problem = || {
            let word = excerpt(word);
            format!("--tokens: `{word}` (token {position}) is not a token id; write ids, e.g. \"3 1 4\"")
        };
        word.parse().map_err(|_| Error::Input(problem()))
    };
    check_separators(text)?;
    let ids = words.zip(1..).map(id).collect::<Result<Vec<u32>>>()?;
    vocabulary.check(&ids)?;
    Ok(ids)
}

/// Rejects a number with a thousands separator, such as `1,000`, which would be read as the tokens 1 and 0, and an empty
/// value between commas.
fn check_separators(text: &str) -> Result<()> {
    let is_group = |part: &str| part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |word: &&str| {
        let groups = || word.split(',').skip(1);
        groups().next().is_some() && groups().all(is_group) && groups().any(|group| group.starts_with('0'))
    };
    let without_space: String = text.split_whitespace().collect();
    if without_space.contains(",,") || without_space.starts_with(',') {
        let problem = "the tokens have an empty value before a comma; write a token, or remove the comma";
        return Err(Error::Input(problem.into()));
    }
    match text.split_whitespace().find(is_number) {
        Some(word) => Err(Error::Input(format!(
            "`{}` is ambiguous: a comma separates tokens; write one number without its comma, and several \
             tokens with spaces",
            excerpt(word)
        ))),
        None => Ok(()),
    }
}

/// Rejects a comma between two digits, which may be a decimal comma.
fn check_decimal_commas(text: &str) -> Result<()> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    match text.match_indices(',').find(|&(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1))) {
        None => Ok(()),
        Some(_) => Err(Error::Input(format!(
            "`{}` is ambiguous: a comma separates numbers; write decimals with a point, and several numbers with spaces",
            excerpt(text)
        ))),
    }
}

/// Encodes a JSON array of symbols or numbers, such as `["Confirmation of receipt", "Check"]`. `None` for other texts.
fn encode_json(vocabulary: &Vocabulary, text: &str) -> Option<Result<Vec<u32>>> {
    let values: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let id = |(value, position): (serde_json::Value, usize)| {
        let word = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        vocabulary.word(&word).ok_or_else(|| {
            let word = excerpt(&word);
            Error::Input(format!("`{word}` (value {position}) is not in the vocabulary of {vocabulary}"))
        })
    };
    Some(values.into_iter().zip(1..).map(id).collect())
}

/// Encodes a text as a complete document. Commas may separate words, unless the vocabulary has a comma.
///
/// # Errors
/// Returns an error that names the first part outside the vocabulary.
pub fn encode(vocabulary: &Vocabulary, text: &str) -> Result<Vec<u32>> {
    encode_by(Vocabulary::encode_whole, vocabulary, text)
}

/// Encodes a text without the tokens that begin and end a document, such as a source; otherwise like [`encode`].
///
/// # Errors
/// Returns the same errors as [`encode`].
pub fn encode_part(vocabulary: &Vocabulary, text: &str) -> Result<Vec<u32>> {
    encode_by(Vocabulary::encode, vocabulary, text)
}

fn encode_by(encoded: Encode, vocabulary: &Vocabulary, text: &str) -> Result<Vec<u32>> {
    let ids = encoded(vocabulary, text).or_else(|error| match vocabulary.notation() {
        Notation::Words => {
            if let Some(ids) = encode_json(vocabulary, text) {
                return ids;
            }
            if vocabulary.is_integers() {
                check_separators(text)?;
            }
            if vocabulary.is_bins() {
                check_decimal_commas(text)?;
            }
            vocabulary.encode(&text.replace(',', " ")).map_err(|_| error)
        }
        Notation::Characters | Notation::Text => Err(error),
    })?;
    if let ([first, second, ..], [begin, ..]) = (&ids[..], vocabulary.added_tokens()[0])
        && (first, second) == (begin, begin)
    {
        warn(&format!(
            "notice: the text begins with `{}`, which the tokenizer adds too, so it is read twice; remove it, or pass the \
             ids of a chat template with --tokens",
            vocabulary.token(*begin)
        ));
    }
    if vocabulary.is_bins() {
        let words = text.split([',', ' ', '\n', '\t', '[', ']']).filter_map(|word| word.parse().ok());
        let numbers: Vec<f64> = words.filter(|number: &f64| number.is_finite()).collect();
        if let Some(warning) = vocabulary.far_outside(&numbers) {
            warn(&format!("warning: {warning}"));
        }
    }
    if let Some(warning) = vocabulary.warn_of_unknown(ids.iter().copied()) {
        warn(&format!("warning: {warning}"));
    }
    Ok(ids)
}

/// Returns the begin-of-text tokens of a decoder, from the transformers metadata or else from the vocabulary.
pub fn begin_tokens(companions: &Companions, vocabulary: &Vocabulary) -> Vec<u32> {
    let known =
        |ids: Vec<u32>| Vec::from_iter(ids.into_iter().filter(|&id| (id as usize) < vocabulary.size()));
    let declared = companions.begin().map(known).filter(|ids| !ids.is_empty());
    // The end token of a row or a text is not a start: a model may never have read it as an input.
    declared.unwrap_or_else(|| Vec::from_iter(vocabulary.added_tokens()[0].first().copied()))
}

/// Returns the first token of a text without a prompt: a line break, or else a character drawn from the seed.
/// Returns no token if the vocabulary consists of words, or of subwords without a line break.
pub fn first_token(vocabulary: &Vocabulary, seed: u64) -> Vec<u32> {
    let line_break = match vocabulary.notation() {
        Notation::Words => return Vec::new(),
        Notation::Characters | Notation::Text => vocabulary.encode("\n").unwrap_or_default(),
    };
    if !line_break.is_empty() {
        warn(
            "notice: without a prompt, the text starts after a line break; use --prompt TEXT for another start",
        );
        return line_break;
    }
    if vocabulary.notation() == Notation::Text {
        return Vec::new();
    }
    let drawn = generator(seed, Purpose::Sampling, [u64::MAX, 0]).random_range(0..vocabulary.size() as u32);
    let label = vocabulary.token(drawn);
    warn(&format!(
        "notice: without a prompt, the text starts with `{label}`, drawn with --seed; use --prompt TEXT for another \
         start"
    ));
    vec![drawn]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of one vocabulary with their ids; without ids, a text is refused.
    #[derive(Deserialize)]
    struct Texts {
        kind: String,
        tokens: Vec<String>,
        cases: Vec<(String, Option<Vec<u32>>)>,
    }

    #[test]
    fn texts_are_read_as_in_the_page() {
        // The test of the page's tokenizer, tests/page/typed.test.mjs, reads the same file.
        let texts: Vec<Texts> = serde_json::from_str(include_str!("../../tests/page/texts.json")).unwrap();
        for Texts { kind, tokens, cases } in texts {
            let end = tokens.iter().zip(0..).find_map(|(token, id)| (token == "<end>").then_some(id));
            let vocabulary = match kind.as_str() {
                "integers" => Vocabulary::integers(tokens.len() - 1, &["<end>"]),
                _ => Vocabulary::symbols(tokens, end).unwrap(),
            };
            for (text, ids) in cases {
                assert_eq!(encode(&vocabulary, &text).ok(), ids, "{text:?}");
            }
        }
    }
}
