//! Warnings about a dataset, to read before training.

use std::collections::BTreeSet;

use super::{overlap, padding, sorted};
use crate::data::config::{Count, DataConfig, MAX_SIZE, RowSplit, Source, Tokens};
use crate::data::dataset::Dataset;
use crate::data::excerpt::and_more;
use crate::data::table::{Elements, Form};
use crate::data::vocabulary::Notation;
use crate::numbers::{counted, part_of, thousands};

/// The maximum size of an integer vocabulary that is not checked for unused ids.
const MAX_UNCHECKED_VOCABULARY: usize = 1000;

/// A vocabulary is sparse if fewer than `1 / SPARSITY` of its integers occur.
const SPARSITY: usize = 10;

/// The minimum number of training windows without a warning. A model memorises fewer windows before it learns anything
/// else.
const MIN_WINDOWS: usize = 20;

/// The minimum number of validation targets without a warning. With fewer targets, the standard error of the mean loss
/// is about 0.05 nats or more.
const MIN_TARGETS: usize = 1000;

/// Returns warnings about a dataset that was loaded from `config`, such as too little data, validation samples that
/// also occur in training, and tokens that training lacks. A run that starts from a trained one (`has_start`) may know
/// those tokens. This takes several passes over the data.
pub fn warnings(config: &DataConfig, dataset: &Dataset, has_start: bool) -> Vec<String> {
    let Dataset { train, valid, .. } = dataset;
    let unseen = if has_start { 0 } else { overlap::unseen(dataset).len() };
    of(config, dataset, overlap::leaked(train, valid), unseen)
}

/// Returns the same as [`warnings`], given the number of leaked sequences and of tokens that training lacks.
pub(super) fn of(config: &DataConfig, dataset: &Dataset, leaked: usize, unseen: usize) -> Vec<String> {
    let (train, valid) = (&dataset.train, &dataset.valid);
    let mut warnings = Vec::new();
    if train.stream().is_some() && train.len() < MIN_WINDOWS {
        warnings.push(format!(
            "too little data: training has {} of `data.length` = {}, which a model memorises; lower \
             `data.length`, or use more data",
            counted(train.len(), "window"),
            config.length
        ));
    }
    let min = if valid.stream().is_some() { MIN_TARGETS.max(config.length) } else { MIN_TARGETS };
    if valid.targets() < min {
        let targets = counted(valid.targets(), "target");
        warnings.push(format!(
            "validation has {targets}, and a mean loss over fewer than {} is uncertain; use more validation \
             data",
            thousands(min as f64)
        ));
    }
    if 10 * leaked > valid.len() {
        let verb = if leaked == 1 { "occurs" } else { "occur" };
        warnings.push(format!(
            "{} also {verb} in training, so the validation loss says little about new sequences",
            part_of(leaked, valid.len(), "validation sequence")
        ));
    }
    if unseen > 0 {
        let tokens = counted(unseen, "token");
        warnings.push(format!(
            "training lacks {tokens} of validation, which the model cannot learn; use more training data"
        ));
    }
    let vocabulary = &dataset.vocabulary;
    if config.source() == Source::Text
        && vocabulary.notation() == Notation::Text
        && vocabulary.end().is_none()
        && config.path.are_several()
    {
        warnings.push(
            "the tokenizer does not declare an end-of-text token, so the files run together; declare it as \
             `eos_token` in a tokenizer_config.json next to the tokenizer"
                .into(),
        );
    }
    warnings.extend(vocabulary.warn_of_unknown(train.ids().chain(valid.ids())));
    warnings.extend(dataset.guesses().cloned());
    warnings.extend(of_split(config, dataset));
    warnings.extend(padding::warning(dataset));
    let as_text = numbers_as_text(config, dataset).or_else(|| table_as_text(config, dataset));
    warnings.extend(as_text.or_else(|| table_files_as_text(config, dataset)));
    warnings
}

/// Returns warnings about a vocabulary that was built from the data: fewer byte pairs than requested, sparse integers.
/// They do not apply to the vocabulary of another run.
pub fn vocabulary_warnings(config: &DataConfig, dataset: &Dataset) -> Vec<String> {
    let Dataset { train, valid, vocabulary, table, .. } = dataset;
    let (mut warnings, size) = (Vec::new(), vocabulary.size());
    if config.source() == Source::Text
        && config.tokens == Tokens::Bpe
        && let Count::Of(requested) = config.vocab
        && size < requested
    {
        let tokens = counted(size, "token");
        warnings.push(format!(
            "byte pair encoding found only {tokens} in the text, fewer than `data.vocab` = {requested}; use \
             more text, or lower `data.vocab`"
        ));
    }
    let is_sparse_table = table.is_some() && vocabulary.is_integers();
    if is_sparse_table && config.vocab == Count::Auto && size > MAX_UNCHECKED_VOCABULARY {
        let mut occurs = vec![false; size];
        train.ids().chain(valid.ids()).for_each(|id| occurs[id as usize] = true);
        let different = occurs.into_iter().filter(|&occurs| occurs).count();
        if SPARSITY * different < size {
            warnings.push(format!(
                "of {} only {} occur, but the model has weights for all of them; set `data.values` = \
                 \"symbols\" to number only those that occur",
                counted(size, "integer"),
                thousands(different as f64)
            ));
        }
    }
    warnings
}

/// Returns a warning about a file whose validation part differs from the rest, such as a table with sorted rows.
fn of_split(config: &DataConfig, dataset: &Dataset) -> Option<String> {
    let Dataset { train, valid, table, text, array, .. } = dataset;
    let min_distance = match (table, text, array) {
        (Some(_), ..) => sorted::MIN_DISTANCE,
        (None, Some(_), _) | (None, _, Some(_)) => sorted::MIN_DISTANCE_OF_TEXTS,
        (None, None, None) => return None,
    };
    let is_stream = train.stream().is_some();
    let has_own_file = !config.valid_path.is_empty();
    let is_tail = config.split == RowSplit::Tail || is_stream && config.split == RowSplit::Auto;
    if !has_own_file && !is_tail {
        return None;
    }
    let sorted::SplitDifference { statistic, distance, random } =
        sorted::difference(train, valid, min_distance)?;
    if table.is_none() {
        let (part, remedy) = match has_own_file {
            true => ("the text of `data.valid_path`", "check that both files have the same origin"),
            false => (
                "the end of the data, which is for validation,",
                "set `data.valid_path` to other data, or reorder it",
            ),
        };
        return Some(format!(
            "{part} differs from the rest by {distance:.2} in {statistic}, but random parts by at most {random:.2}; {remedy}"
        ));
    }
    let (rows, remedy) = match (has_own_file, is_stream) {
        (true, _) => ("the rows of `data.valid_path`", "check that both files have the same origin"),
        (false, false) => (
            "the last rows, which are for validation,",
            "set `data.split` = \"shuffle\" to draw them at random",
        ),
        (false, true) => (
            "the last rows, which are for validation,",
            "shuffle the rows of the file unless their order has a meaning",
        ),
    };
    Some(format!(
        "{rows} differ from the others by {distance:.2} in {statistic}, but random rows by at most {random:.2}, as in a \
         sorted table; {remedy}"
    ))
}

/// Statistics of a text that contains only numbers.
#[derive(Default)]
struct NumericText {
    lines: usize,
    numbers: usize,
    /// The length of the longest line in characters.
    longest: usize,
    /// True if each number is an id that a vocabulary can have.
    are_ids: bool,
    /// The separators of the numbers. In numbers separated by spaces, a comma is a decimal comma.
    separators: BTreeSet<String>,
}

impl NumericText {
    /// Counts the numbers of a text; `None` if the text contains anything else.
    fn read(dataset: &Dataset) -> Option<Self> {
        /// The characters of numbers, separators and line breaks.
        const NUMBER_CHARACTERS: &str = "0123456789+-.eE \t,;|\r\n";
        let Dataset { train, vocabulary, .. } = dataset;
        let (ids, part) = train.stream()?;
        let size = vocabulary.size() as u32;
        if size as usize > NUMBER_CHARACTERS.len()
            || !vocabulary.decode(&Vec::from_iter(0..size)).chars().all(|it| NUMBER_CHARACTERS.contains(it))
        {
            return None;
        }
        let characters = Vec::from_iter((0..size).map(|id| vocabulary.decode(&[id])));
        let mut found = Self { are_ids: true, ..Self::default() };
        let (mut number, mut line) = (String::new(), 0);
        for id in ids.iter(part) {
            let character = characters[id as usize].as_str();
            line += 1;
            if !" \t,;|\r\n".contains(character) {
                number.push_str(character);
                continue;
            }
            if !number.is_empty() {
                number.parse::<f64>().ok()?;
                found.are_ids &= number.parse().is_ok_and(|id: usize| id < MAX_SIZE);
                found.numbers += 1;
                number.clear();
                found.separators.extend((!"\r\n".contains(character)).then(|| character.to_string()));
            }
            if character == "\n" {
                found.lines += 1;
                found.longest = found.longest.max(std::mem::take(&mut line));
            }
        }
        Some(found)
    }
}

/// Returns a warning if a text contains only numbers, because it may be a table.
fn numbers_as_text(config: &DataConfig, dataset: &Dataset) -> Option<String> {
    /// The maximum length of a line that is one value. Longer lines are digits of one number, such as pi.
    const MAX_NUMBER_LENGTH: usize = 24;
    /// The minimum count of numbers in a text of one line for a warning.
    const MIN_NUMBERS: usize = 20;

    if config.source() != Source::Text || !matches!(config.tokens, Tokens::Auto | Tokens::Characters) {
        return None;
    }
    let NumericText { lines, numbers, longest, are_ids, separators } = NumericText::read(dataset)?;
    let is_separated = !separators.is_empty();
    let unit = if are_ids { "digit" } else { "character" };
    if lines < 2 && numbers >= MIN_NUMBERS && is_separated {
        let separators: String = separators.into_iter().collect();
        return Some(format!(
            "the text is one line of numbers, and each {unit} is a token; write each number on its own line \
             with `tr -s '{separators}' '\\n' < FILE > NEW.csv`, and set `data.column` = 1 to make each \
             number a token"
        ));
    }
    if lines < 2 || numbers < lines || !is_separated && longest > MAX_NUMBER_LENGTH {
        return None;
    }
    let delimiter = match separators.len() {
        0 | 1 => "",
        _ => " and `data.delimiter` to the separator of the numbers",
    };
    let symbols = if are_ids && delimiter.is_empty() { "" } else { " and `data.values` = \"symbols\"" };
    let column = if is_separated { "" } else { " and `data.column` = 1" };
    Some(format!(
        "the text contains only numbers, and each {unit} is a token; {}{delimiter}{symbols}{column} to make \
         each number a token",
        read_as_table(config, false)
    ))
}

/// Returns a warning if files of a text are tables by their extensions.
fn table_files_as_text(config: &DataConfig, dataset: &Dataset) -> Option<String> {
    let (count, first) = &dataset.text.as_ref()?.tables;
    let more = and_more(count.checked_sub(1)?, "file");
    let remedy = match config.path.are_several() {
        true => {
            "set `data.path` to the tables alone and `data.source` = \"table\" to make each value a token"
        }
        false => "set `data.source` = \"table\" to make each value a token",
    };
    Some(format!("`{}`{more} has the extension of a table but is read as a text; {remedy}", first.display()))
}

/// Returns a warning if a text is JSON, or if all its lines have the same number of values, because it may be a table.
fn table_as_text(config: &DataConfig, dataset: &Dataset) -> Option<String> {
    /// The maximum number of tokens that are inspected.
    const MAX_TOKENS: usize = 1 << 16;

    if config.source() != Source::Text || matches!(config.tokens, Tokens::File(_)) {
        return None;
    }
    let (ids, part) = dataset.train.stream()?;
    let form = Form::of(&dataset.vocabulary.decode(&ids.iter(part).take(MAX_TOKENS).collect::<Vec<_>>()))?;
    let problem = match form {
        Form::Json(_) => "is JSON, whose brackets, quotes and names are learned as text".to_string(),
        Form::JsonLines(_) => {
            "has a JSON array or object in each line but is read as a text, not as a table".to_string()
        }
        Form::Delimited(fields, delimiter) => format!(
            "has {fields} values in each line, with delimiter {delimiter}, but is read as a text, not as a \
             table"
        ),
    };
    let remedy = match form {
        Form::Json(Elements::Other) | Form::JsonLines(Elements::Other) => "extract the texts".to_string(),
        Form::Json(elements) | Form::JsonLines(elements) => {
            let column = if elements == Elements::Records { " and `data.column` to a field" } else { "" };
            let set = read_as_table(config, true);
            format!("{set}{column} to make each value a token, or extract the texts")
        }
        Form::Delimited(..) => format!("{} to make each value a token", read_as_table(config, false)),
    };
    Some(format!("the text {problem}; {remedy}"))
}

/// Returns the advice to read a text as a table. It includes renaming a file whose extension selects the other format.
fn read_as_table(config: &DataConfig, is_json: bool) -> String {
    let rename = match (is_json, DataConfig::extension_of(config.path.first()).as_str()) {
        (true, "csv" | "tsv") => "rename the file to .json and ",
        (false, "json" | "jsonl" | "ndjson") => "rename the file to .csv and ",
        _ => "",
    };
    format!("{rename}set `data.source` = \"table\"")
}
