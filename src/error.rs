//! What can go wrong, where, and what to do about it.
//!
//! Every error reads as one line: the place (config key, or file and line), what is wrong with
//! it, and the remedy. [`Error::exit_code`] says how the program ends: 2 for what a user can
//! mend by changing the input, 1 for a run that failed by itself.

use std::any::Any;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use causal_attention_nn::model::ModelConfig;

/// The result of anything that can fail on a user's input or a disk.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The value of a config key cannot be used.
    #[error("{}`{key}` = {value} {problem}", place(.origin))]
    Key {
        /// Where the value was written, when it was not a default.
        origin: Option<Origin>,
        /// The key with its section, as `model.heads`.
        key: String,
        /// The value as it was given.
        value: String,
        /// What is wrong and what would be right, as a clause that follows the value.
        problem: String,
    },

    /// A place in a file that cannot be understood.
    #[error("{}: {problem}", .place)]
    File {
        /// File, line and column.
        place: Place,
        /// What is wrong there and what to do.
        problem: String,
    },

    /// Tensors, masks or lengths that do not fit each other; the message names both shapes.
    #[error("{0}")]
    Shape(String),

    /// Any other input that cannot be used.
    #[error("{0}")]
    Input(String),

    /// The operating system refused a file operation.
    #[error("cannot {action} `{}`: {}", .path.display(), plain(.source))]
    Io {
        /// What was tried, as `read` or `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// A loss, gradient or weight that is not finite, or losses that have exploded.
    #[error("diverged at step {step}: {what}. `{}` holds {weights}. {advice}", .kept.display())]
    Diverged {
        /// Steps done, this one included.
        step: usize,
        /// What is not finite, or how far the losses have risen.
        what: String,
        /// What to do, as a sentence.
        advice: String,
        /// The file of the weights that are kept.
        kept: PathBuf,
        /// Whose they are, as "the weights of step 500".
        weights: String,
    },

    /// A GPU has less memory than the work takes.
    #[error(
        "{device} has too little memory for this: use a smaller training.batch_size (training.accumulate keeps \
         the effective size), a shorter input, a smaller model or a CPU backend"
    )]
    DeviceMemory {
        /// The backend and the GPU.
        device: String,
    },

    /// A GPU, or its driver, failed at work.
    #[error("{device} has failed: {message}")]
    DeviceFailed {
        /// The backend and the GPU.
        device: String,
        /// What the driver says.
        message: String,
    },

    /// The system starts no more threads.
    #[error(
        "the system starts no more threads: raise the limits (`ulimit -u`, `ulimit -v`), or use fewer by \
         RAYON_NUM_THREADS=N"
    )]
    Threads,

    /// A run that failed by itself, not through its input: the message says what is kept.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// A key whose `value` cannot be used; `problem` is a clause that follows the value, as
    /// "must divide `model.d_model` = 64".
    pub fn key(key: impl Into<String>, value: impl fmt::Display, problem: impl Into<String>) -> Self {
        let value = excerpt(&value.to_string(), 100);
        Error::Key { origin: None, key: key.into(), value, problem: problem.into() }
    }

    /// The error of a key with the place where its value was written, unless it says one.
    pub fn at(mut self, written: Option<Origin>) -> Self {
        if let Error::Key { origin: origin @ None, .. } = &mut self {
            *origin = written;
        }
        self
    }

    /// A failed file operation: `action` is a verb, as "read".
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Error::Io { action, path: path.as_ref().to_path_buf(), source }
    }

    /// A problem with a whole file.
    pub fn file(path: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        Self::in_file(path, None, None, problem)
    }

    /// A problem at a line and a column of a file, as far as they are known.
    pub fn in_file(
        path: impl AsRef<Path>,
        line: Option<usize>,
        column: Option<usize>,
        problem: impl Into<String>,
    ) -> Self {
        let place = Place { path: path.as_ref().to_path_buf(), line, column };
        Error::File { place, problem: problem.into() }
    }

    /// Refuses the `value` of a key unless it `is_right`.
    pub fn check_key(
        is_right: bool,
        key: &str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> Result<()> {
        if is_right { Ok(()) } else { Err(Error::key(key, value, problem)) }
    }

    /// Refuses the `value` of a key that is below `least` or above `most`.
    pub fn check_range(key: &str, value: usize, least: usize, most: usize) -> Result<()> {
        let problem = format!("must be from {least} to {most}");
        Self::check_key((least..=most).contains(&value), key, value, problem)
    }

    /// Returns what makes an error of the section's keys from one of its fields.
    pub fn in_section(section: &'static str) -> impl Fn(causal_attention_nn::Error) -> Self {
        move |error| match error {
            causal_attention_nn::Error::Argument { name, value, problem } => {
                Self::key(format!("{section}.{name}"), value, keys_of_model(&problem))
            }
            causal_attention_nn::Error::Shape(problem) => Self::Shape(keys_of_model(&problem)),
        }
    }

    /// The exit code of a program that ends with this error: 2 for input that cannot be used,
    /// 1 for a run that failed by itself.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Key { .. }
            | Error::File { .. }
            | Error::Shape(_)
            | Error::Input(_)
            | Error::Io { .. }
            | Error::DeviceMemory { .. }
            | Error::Threads => 2,
            Error::Diverged { .. } | Error::DeviceFailed { .. } | Error::Failed(_) => 1,
        }
    }
}

impl From<causal_attention_nn::Error> for Error {
    fn from(error: causal_attention_nn::Error) -> Self {
        Self::in_section("model")(error)
    }
}

impl From<causal_attention_report::Error> for Error {
    fn from(error: causal_attention_report::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Fails with an error of this `kind` unless a condition `holds`.
pub fn ensure(holds: bool, kind: fn(String) -> Error, problem: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(kind(problem())) }
}

/// Names fields of a model in a message as the keys of a config, as "`model.heads`" for "`heads`".
pub(crate) fn keys_of_model(message: &str) -> String {
    let fields = toml::Table::try_from(ModelConfig::default()).unwrap_or_default();
    let is_field = |word: &str| fields.contains_key(word);
    let words: Vec<_> = message.split('`').collect();
    let named = words.iter().enumerate().map(|(i, word)| match i % 2 == 1 && is_field(word) {
        true => format!("model.{word}"),
        false => word.to_string(),
    });
    named.collect::<Vec<_>>().join("`")
}

/// What is wrong and what to do where the system gives no more memory.
pub const OUT_OF_MEMORY: &str = "there is not enough memory: free some, raise the limit (`ulimit -v`), or use a smaller \
                                 model, training.batch_size or data.length";

/// Whether a panic says that a thread could not be started, which the standard library and rayon return no error for.
pub fn is_out_of_threads(panic: &str) -> bool {
    panic.contains("failed to spawn thread") || panic.contains("ThreadPoolBuildError")
}

/// What the system answered, with what to do where a user can do something about it.
fn plain(source: &io::Error) -> String {
    let problem = match source.kind() {
        // Said already.
        _ if source.get_ref().is_some() => return source.to_string(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "no space is left on the disk: free some and try again"
        }
        ErrorKind::FileTooLarge => {
            "the file would be larger than the system allows: raise the limit (`ulimit -f`) or write elsewhere"
        }
        ErrorKind::PermissionDenied => {
            "permission denied: change the permissions of the file or its folder, or name another path"
        }
        ErrorKind::OutOfMemory => OUT_OF_MEMORY,
        ErrorKind::NotFound => "there is none of this name: check the path",
        ErrorKind::IsADirectory => {
            "a folder stands in the place of the file: move it away, or name another file"
        }
        _ => return source.to_string(),
    };
    problem.to_string()
}

/// A value as a message shows it: in one line, of which no more than `most` characters.
pub fn excerpt(value: &str, most: usize) -> String {
    let escaped = |character: char| match character {
        // What is quoted or escaped already is not so twice.
        '\\' | '"' | '\'' => character.to_string(),
        other => other.escape_debug().to_string(),
    };
    let mut shown: String = value.chars().take(most).map(escaped).collect();
    if value.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

/// An integer of a range that is not known.
pub const INTEGER: &str = "a non-negative integer";

/// What serde expected, in words that do not ask a user to know Rust.
pub fn expected(message: &str) -> String {
    // The place is said apart.
    let message = message.split(" at line ").next().unwrap_or_default().trim().replace('\n', ", ");
    let Some((_, expected)) = message.split_once(", expected ") else { return message };
    let plain = match expected {
        "usize" | "u64" | "u32" => INTEGER,
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" | "path string" => "text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        "variant identifier" => "a name",
        _ if expected.starts_with("struct ") => "a table",
        _ => expected,
    };
    format!("expected {plain}")
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// A place in a file, printed as `file:line:column` as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The column in characters, counted from 1.
    pub column: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// Where the value of a config key was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a config file.
    File(Place),
    /// On the command line, by `--set`.
    CommandLine,
    /// On the command line, by an option for the key, as `--steps`.
    KeyOption(String),
}

fn place(origin: &Option<Origin>) -> String {
    match origin {
        Some(Origin::File(place)) => format!("{place}: "),
        Some(Origin::CommandLine) => "--set: ".to_string(),
        Some(Origin::KeyOption(option)) => format!("{option}: "),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_told_with_what_to_do() {
        let said = |kind: ErrorKind| Error::io("write", "a/b", kind.into()).to_string();
        assert!(
            said(ErrorKind::StorageFull).ends_with("no space is left on the disk: free some and try again")
        );
        assert!(said(ErrorKind::IsADirectory).contains("move it away, or name another file"));
        let missing = Error::io("read", "a/b", std::fs::read("/nothing/here").unwrap_err()).to_string();
        assert_eq!(missing, "cannot read `a/b`: there is none of this name: check the path");
    }

    #[test]
    fn a_value_is_escaped_once() {
        assert_eq!(excerpt("\"a\\tb\" 'c'\u{1b}\n", 20), "\"a\\tb\" 'c'\\u{1b}\\n");
        assert_eq!(excerpt("abc", 2), "ab…");
    }
}
