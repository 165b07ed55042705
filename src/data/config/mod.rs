//! The section `[data]` of a config.

mod choice;
mod fields;
mod paths;
mod table;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::without_compression;
use crate::range::{Number, Range, Ranged, Section};

pub use self::choice::{Cache, Column, Count, Documents, Dtype, Periods, Source, Task, Tokens, Values};
pub use self::paths::Paths;
pub(super) use self::paths::walk;
pub use self::table::{Binning, Comment, Delimiter, Header, LongRows, LossOn, Quotes, RowSplit};

/// The maximum size of a vocabulary and of a sequence: 2^20, about four times the largest vocabulary of published
/// models.
pub(super) const MAX_SIZE: usize = 1 << 20;

/// The maximum number of sequences of a task. The total number of tokens is limited separately.
const MAX_SAMPLES: usize = 1 << 28;
/// The `valid_fraction` of a file that is read as one split. A config cannot set it.
pub(super) const WHOLE_FILE: f64 = 1.0;

/// The initial tokens of byte pair encoding: one per byte.
const BYTE_TOKENS: usize = 256;

/// The section `[data]`: the training and validation data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// The source of the sequences. Omitted: `"sequences"`, unless `data.path` names a file; then `"table"` for csv,
    /// tsv, json, jsonl and ndjson, `"array"` for npy and bin, and `"text"` for all others. A file on the command line
    /// overrides the source of a config with a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The seed of the sequences of a task, or of the rows that are drawn for validation. Omitted: `run.seed` for a task,
    /// and the same rows for every run. A fixed value keeps the data, and with it the validation set, while `run.seed`
    /// changes weights and order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The sequence task. `repeat`: the smallest task that needs attention, with heads that are easy to see in
    /// pictures.
    pub task: Task,
    /// The number of different symbols. `"auto"`: 16 for a task, few enough to learn in a minute and many enough that a
    /// chance match is rare (a task may add a separator); 113 for `modular_addition`, whose modulus it is; the number in the file for characters, tables and arrays.
    /// Overriding the source on the command line resets it to `"auto"`.
    pub vocab: Count,
    /// The number of positions that a model reads at once: the targets of a sample, or the longest source for an
    /// encoder-decoder. 32: fast to learn for a small decoder. `addition`, `modular_addition` and tables with a
    /// sequence per line have their own lengths.
    pub length: usize,
    /// The shortest and the longest length in training, as `[16, 64]`: each batch draws a length between them. Omitted:
    /// all sequences have `data.length`, as in validation. A task has `data.train_samples` sequences of each length,
    /// with the periods and gaps of `data.length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<[usize; 2]>,
    /// Sequences in the training set of a task. 8192: more than a small decoder memorises in the few epochs of a run.
    pub train_samples: usize,
    /// Sequences in the validation set of a task. 512: at the default length 16,384 targets, so the mean loss is
    /// accurate to about 0.01 nats.
    pub valid_samples: usize,
    /// `repeat`: the shortest and the longest period. `"auto"`: a quarter and half of the length, so every motif occurs
    /// at least twice, and there are too many periods to learn a head for each.
    pub period: Periods,
    /// `markov`: the number of tokens that determine the distribution of the next. 2 needs attention.
    pub order: usize,
    /// `copy_gap`: the distance after which a token recurs. `"auto"`: three quarters of the length.
    pub gap: Count,
    /// `addition`: digits of each number. 3: a million sums, of which a training set contains so few that the model
    /// must learn to add.
    pub digits: usize,
    /// The user's own data: a text, a table, an array of token ids, a folder or a pattern such as `logs/*.csv`, or a list
    /// of these. Empty: a task.
    pub path: Paths,
    /// The user's own validation data, in the format of `data.path`. Empty: a part of `data.path`.
    pub valid_path: Paths,
    /// The tokens of a text, or of the texts in a table: `"characters"`; `"words"` (tables only); `"bpe"`, trained on
    /// the training set, `data.vocab` of them (`"auto"`: 1024); or the path of a `tokenizer.json`. `"auto"`:
    /// characters, but in a table without pairs each value is a token. For an array, only a `tokenizer.json` has an
    /// effect: it names the ids.
    #[schemars(with = "String")]
    pub tokens: Tokens,
    /// The documents of a text: `"joined"` to one stream, so that a window's attention reads across their boundaries; or
    /// `"separate"`, so that each document is read as if it were alone. A document is a file of a folder, or ends with
    /// the end-of-text token of the tokenizer.
    pub documents: Documents,
    /// The folder in which the tokens of a text are cached, so that training reads them from a file instead of memory.
    /// `"auto"`: `runs/.tokens` for texts from 256 MiB, and memory for smaller ones. `"none"`: always memory.
    #[schemars(with = "String")]
    pub cache: Cache,
    /// The type of the token ids in a file without a header: `"uint8"`, `"uint16"`, `"uint32"`, `"uint64"`, or the same
    /// with a sign, as `"int32"`. `"auto"`: `"uint16"`, as in nanoGPT, unless the values show another size.
    pub dtype: Dtype,
    /// The fraction of a file that is held out for validation. 0.1: a common choice.
    pub valid_fraction: f64,
    /// The token of a `tokenizer.json` that ends a text, such as `"<|endoftext|>"`. Empty: the token that the tokenizer or the
    /// files next to it declare.
    pub end_of_text: String,
    /// True if double quotes enclose values of CSV, and false if they are part of the values. `"auto"`: inferred from the
    /// lines.
    pub quotes: Quotes,
    /// The sequences of a table, or of an array of two dimensions, that are held out for validation: `"shuffle"`, random
    /// ones, drawn by `data.seed`; `"group"`, random groups of `data.group_by`; or `"tail"`, the last ones. `"auto"`:
    /// random sequences or groups, or the end of a table that is a single sequence.
    pub split: RowSplit,
    /// The character between the values of a CSV table: `"comma"`, `"tab"`, `"semicolon"`, `"space"`, `"pipe"` or
    /// another character. `"auto"` infers it from the first 1000 lines and the file's extension.
    #[schemars(with = "String")]
    pub delimiter: Delimiter,
    /// The meaning of the first line of a CSV table: true for names of the columns, false for the first row. `"auto"`
    /// infers it from the values below.
    pub header: Header,
    /// The beginning of the lines of a CSV table that are comments, such as `"#"`. `"none"`: no line is a comment.
    /// `"auto"`: lines that begin with `#`, if they cannot be rows.
    #[schemars(with = "String")]
    pub comment: Comment,
    /// The values of a table: `"integers"`, which are their own ids; `"symbols"`, names that get an id each; or
    /// `"auto"`: integers if the first value is a number, but symbols if the range of the integers is more than four
    /// times the number of different ones.
    pub values: Values,
    /// The column of a table that is one long sequence, cut into windows: its name, or its number from 1. For JSON
    /// objects, the name of the value to read, which may be an array: one sequence each. With `data.group_by`, the
    /// column whose values form the sequences; with `data.tokens`, the column of texts, one sequence each. Empty: each
    /// line, or each array of a JSON file, is a sequence.
    pub column: Column,
    /// The columns of a table that form the sequence of a row, or of a group, in this order: names, or numbers from 1.
    pub columns: Vec<Column>,
    /// The columns of a table that are not read; all others are.
    pub ignore_columns: Vec<Column>,
    /// The column of a table whose rows with the same value form one sequence, such as a case or a session.
    pub group_by: Column,
    /// The column that orders the rows of a group, the values of `data.column` or its texts: numbers, or timestamps. Empty:
    /// their order in the file.
    pub order_by: Column,
    /// The column of a table with the sources of pairs; see `data.target_column`.
    pub source_column: Column,
    /// The column with the targets of pairs. An encoder-decoder reads the source and writes the target; a decoder reads
    /// the source, a separator, the target and an end token.
    pub target_column: Column,
    /// The targets of pairs and conversations that count in the loss: `"target"`, the targets of answers, or `"all"`.
    pub loss_on: LossOn,
    /// The sequences of a table with more than `data.length` targets: `"keep"` them whole, `"cut"` or `"drop"` them, or
    /// `"error"`.
    pub long_rows: LongRows,
    /// The number of bins of a table of numbers, each of which is a token. 0: no bins.
    pub bins: usize,
    /// The edges between the bins: `"quantile"`, so that each bin holds about as many numbers of the training set, or
    /// `"uniform"`, at equal distances.
    pub binning: Binning,
    /// True to read the difference of each number to the previous one in its sequence.
    pub difference: bool,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            source: None,
            seed: None,
            task: Task::default(),
            vocab: Count::Auto,
            length: 32,
            lengths: None,
            train_samples: 8192,
            valid_samples: 512,
            period: Periods::Auto,
            order: 1,
            gap: Count::Auto,
            digits: 3,
            path: Paths::default(),
            valid_path: Paths::default(),
            tokens: Tokens::Auto,
            documents: Documents::Joined,
            cache: Cache::Auto,
            dtype: Dtype::Auto,
            valid_fraction: 0.1,
            end_of_text: String::new(),
            quotes: Quotes::Auto,
            split: RowSplit::Auto,
            delimiter: Delimiter::Auto,
            header: Header::Auto,
            comment: Comment::Auto,
            values: Values::Auto,
            column: Column::default(),
            columns: Vec::new(),
            ignore_columns: Vec::new(),
            group_by: Column::default(),
            order_by: Column::default(),
            source_column: Column::default(),
            target_column: Column::default(),
            loss_on: LossOn::Target,
            long_rows: LongRows::Keep,
            bins: 0,
            binning: Binning::Quantile,
            difference: false,
        }
    }
}

impl Section for DataConfig {
    fn ranges(&self) -> Vec<Ranged> {
        let integer =
            |key, value: usize, min, max: usize| (key, Some(value.into()), Range::Integer(min, max as u64));
        let count = |key, value, min| match value {
            Count::Of(count) => integer(key, count, min, MAX_SIZE),
            Count::Auto => (key, None, Range::Integer(min, MAX_SIZE as u64)),
        };
        let column = match self.column {
            Column::Number(number) => Some(number.into()),
            Column::Name(_) => None,
        };
        vec![
            ("seed", self.seed.map(Number::from), Range::ANY),
            count("vocab", self.vocab, 2),
            integer("length", self.length, 1, MAX_SIZE),
            integer("train_samples", self.train_samples, 1, MAX_SAMPLES),
            integer("valid_samples", self.valid_samples, 1, MAX_SAMPLES),
            integer("order", self.order, 1, MAX_SIZE),
            count("gap", self.gap, 1),
            integer("digits", self.digits, 1, 1_000),
            ("bins", Some(self.bins.into()), Range::Integer(0, MAX_SIZE as u64)),
            ("valid_fraction", Some(self.valid_fraction.into()), Range::BETWEEN_0_AND_1),
            ("column", column, Range::Integer(1, MAX_SIZE as u64)),
        ]
    }
}

impl DataConfig {
    /// Checks each key separately. The task [checks](super::check) how its sizes fit together.
    ///
    /// # Errors
    /// Returns an error that names the key with the unusable value.
    pub fn check(&self) -> Result<()> {
        self.check_ranges().map_err(Error::in_section("data"))?;
        if let Some([shortest, longest]) = self.lengths {
            let problem = if shortest == 0 {
                "must start at 1 or above"
            } else if shortest > longest {
                "must list the shortest length, then the longest"
            } else if longest > MAX_SIZE {
                "must end at or below 1048576"
            } else {
                ""
            };
            if !problem.is_empty() {
                return Err(self.wrong_lengths([shortest, longest], problem));
            }
        }
        if let (Some(Source::Sequences), false) = (self.source, self.path.is_empty()) {
            let problem = format!(
                "does not read a file, but `data.path` = \"{}\" names one; remove `data.source` to read the \
                 file, or `data.path` to draw a task",
                self.path
            );
            return Err(Error::key("data.source", "\"sequences\"", problem));
        }
        if self.source() == Source::Table {
            self.check_table()?;
        }
        if self.cache == Cache::Folder(PathBuf::new()) {
            let problem = "does not name a folder; use \"auto\", \"none\" or the path of a folder";
            return Err(Error::key("data.cache", "\"\"", problem));
        }
        match (self.source(), &self.tokens, self.vocab) {
            (_, Tokens::File(path), _) if path.as_os_str().is_empty() => {
                let problem =
                    "is not a tokenizer; use \"characters\", \"bpe\" or the path of a tokenizer.json";
                Err(Error::key("data.tokens", "\"\"", problem))
            }
            (Source::Text | Source::Table, Tokens::Bpe, Count::Of(vocab)) if vocab <= BYTE_TOKENS => {
                let problem = "must be above 256 with `data.tokens` = \"bpe\", whose first tokens are the \
                               256 bytes; use 1024 or \"auto\"";
                Err(Error::key("data.vocab", vocab, problem))
            }
            _ => Ok(()),
        }
    }

    /// Returns the source of the sequences: `data.source` if it is set, or else the source that reads `path`.
    pub fn source(&self) -> Source {
        self.source.unwrap_or_else(|| self.path.source())
    }

    /// Returns the treatment of a text's documents. Sequences and rows of other data are always separate.
    pub(crate) fn text_documents(&self) -> Documents {
        if self.source() == Source::Text { self.documents } else { Documents::Joined }
    }

    /// Returns an error about `data.lengths`.
    pub(super) fn wrong_lengths(&self, [shortest, longest]: [usize; 2], problem: &str) -> Error {
        Error::key("data.lengths", format!("[{shortest}, {longest}]"), problem)
    }

    /// Returns true if the entire file is one split.
    pub(super) fn is_one_split(&self) -> bool {
        self.valid_fraction == WHOLE_FILE
    }

    /// Returns the number of training tokens or rows out of `all`: all of them in one split, or else the integer part of
    /// the share that `data.valid_fraction` leaves.
    pub(super) fn train_part(&self, all: usize) -> usize {
        if self.is_one_split() {
            return all;
        }
        let train = all as f64 * (1.0 - self.valid_fraction);
        // 10 × (1 - 0.8) is 1.9999999999999996 in floating point.
        let whole = train.round();
        let is_whole = (train - whole).abs() <= 4.0 * f64::EPSILON * all as f64;
        if is_whole { whole as usize } else { train as usize }
    }

    /// Returns the extension of a path in lower case, or an empty string. For a compressed file, it is the extension
    /// before `.gz` or `.zst`.
    pub(super) fn extension_of(path: &Path) -> String {
        let path = without_compression(path);
        path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase()
    }

    /// Returns true if the texts of a table are split into tokens.
    pub(crate) fn reads_texts(&self) -> bool {
        self.source() == Source::Table && (self.tokens != Tokens::Auto || self.has_pairs())
    }

    /// Returns true if a table holds pairs of sources and targets.
    pub fn has_pairs(&self) -> bool {
        self.source_column.is_set()
    }

    /// Returns true if a table at `data.path` is JSON by its extension.
    pub(crate) fn is_json(&self) -> bool {
        ["json", "jsonl", "ndjson"].contains(&Self::extension_of(self.path.first()).as_str())
    }

    /// Returns the shortest and the longest period of `repeat`.
    pub(super) fn periods(&self) -> [usize; 2] {
        match self.period {
            Periods::Auto => [self.length.div_ceil(4), self.length.div_ceil(2)],
            Periods::Of(periods) => periods,
        }
    }

    /// Returns the gap of `copy_gap`.
    pub(super) fn copied_gap(&self) -> usize {
        self.gap.or((3 * self.length / 4).max(1))
    }

    /// Returns the config of the same data in sequences of up to `length` targets. Periods and gaps keep the values
    /// that they have at `data.length`, even if `"auto"` chose them, so that only the length differs. `addition` gets
    /// as many digits as fit.
    pub fn at_length(&self, length: usize) -> Self {
        DataConfig {
            period: Periods::Of(self.periods()),
            gap: Count::Of(self.copied_gap()),
            // An addition holds two numbers, two signs, and a sum with one more digit.
            digits: match self.task {
                Task::Addition => length.saturating_sub(2) / 3,
                _ => self.digits,
            },
            length,
            lengths: None,
            ..self.clone()
        }
    }

    /// Returns the number of symbols of a task, without separators.
    pub(crate) fn symbols(&self) -> usize {
        // The modulus of most papers on grokking, whose n² pairs are enough for the default sizes of the sets.
        self.vocab.or(if self.task == Task::ModularAddition { 113 } else { 16 })
    }
}

#[cfg(test)]
mod tests;
