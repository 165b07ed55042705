//! The errors of the library and the program.
//!
//! The message of an error is a single line: the location (config key, or file and line), the problem, and the remedy.
//! [`Error::exit_code`] is the exit code of the program: 2 for errors that the user can fix, and 1 for other failures.

use std::any::Any;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use causal_attention_nn::model::ModelConfig;

/// A result with [`Error`] as its default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the library or the program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A config key with an invalid value.
    #[error("{}`{key}` = {value} {problem}", location(.origin))]
    Key {
        /// The location where the value was written, or `None` for a default.
        origin: Option<Origin>,
        /// The key with its section, such as `model.heads`.
        key: String,
        /// The value as given.
        value: String,
        /// The problem and the valid values, as a clause that follows the value.
        problem: String,
    },

    /// A location in a file that cannot be parsed.
    #[error("{}: {problem}", .location)]
    File {
        /// The file, line and column.
        location: Location,
        /// The problem and the remedy.
        problem: String,
    },

    /// Tensors, masks or lengths that do not match. The message names both shapes.
    #[error("{0}")]
    Shape(String),

    /// Any other invalid input.
    #[error("{0}")]
    Input(String),

    /// The operating system refused a file operation.
    #[error("cannot {action} `{}`: {}", .path.display(), system_message(.source))]
    Io {
        /// The attempted operation, such as `read` or `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// A loss, gradient or weight that is not finite, or losses that have exploded.
    #[error("diverged at step {step}: {what}; `{}` holds {weights}. {advice}", .kept.display())]
    Diverged {
        /// The steps done, including this one.
        step: usize,
        /// The value that is not finite, or the increase of the losses.
        what: String,
        /// The advice, as a sentence.
        advice: String,
        /// The file with the saved weights.
        kept: PathBuf,
        /// A description of the saved weights, such as "the weights of step 500".
        weights: String,
    },

    /// A GPU has less memory than the work needs.
    #[error(
        "{device} is out of memory; use a smaller `training.batch_size` (`training.accumulate` keeps the effective \
         batch size), a shorter input, a smaller model or a CPU backend"
    )]
    DeviceMemory {
        /// The backend and the GPU.
        device: String,
    },

    /// A GPU or its driver failed.
    #[error("{device} has failed: {message}")]
    DeviceFailed {
        /// The backend and the GPU.
        device: String,
        /// The message of the driver.
        message: String,
    },

    /// The system cannot start another thread.
    #[error(
        "cannot start another thread; raise the limits (`ulimit -u`, `ulimit -v`), or set RAYON_NUM_THREADS=N to use \
         fewer threads"
    )]
    Threads,

    /// A failure during a run that was not caused by its input.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Creates an error for a key with an invalid `value`. `problem` is a clause that follows the value, such as "must
    /// divide `model.d_model` = 64".
    pub fn key(key: impl Into<String>, value: impl fmt::Display, problem: impl Into<String>) -> Self {
        let value = excerpt(&value.to_string(), 100);
        Error::Key { origin: None, key: key.into(), value, problem: problem.into() }
    }

    /// Adds the origin of the value to an [`Error::Key`] that does not have one.
    pub fn at(mut self, value_origin: Option<Origin>) -> Self {
        if let Error::Key { origin: origin @ None, .. } = &mut self {
            *origin = value_origin;
        }
        self
    }

    /// Creates an error for a failed file operation. `action` is a verb such as "read".
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Error::Io { action, path: path.as_ref().to_path_buf(), source }
    }

    /// Creates the error for a model whose logits are infinite or NaN.
    pub fn not_finite() -> Self {
        Self::Input("the model's logits are not finite, because its weights are damaged".into())
    }

    /// Creates an error for a file, without a line.
    pub fn file(path: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        Self::in_file(path, None, None, problem)
    }

    /// Creates an error for a line and a column of a file, as far as they are known.
    pub fn in_file(
        path: impl AsRef<Path>,
        line: Option<usize>,
        column: Option<usize>,
        problem: impl Into<String>,
    ) -> Self {
        let location = Location { path: path.as_ref().to_path_buf(), line, column };
        Error::File { location, problem: problem.into() }
    }

    /// Returns an error about the `value` of a key unless it `is_valid`.
    ///
    /// # Errors
    /// [`Error::Key`] if it is not valid.
    pub fn check_key(
        is_valid: bool,
        key: &str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> Result<()> {
        if is_valid { Ok(()) } else { Err(Error::key(key, value, problem)) }
    }

    /// Returns an error about the `value` of a key that is below `min` or above `max`.
    ///
    /// # Errors
    /// [`Error::Key`] if the value is out of range.
    pub fn check_range(key: &str, value: usize, min: usize, max: usize) -> Result<()> {
        let problem = format!("must be in [{min}, {max}]");
        Self::check_key((min..=max).contains(&value), key, value, problem)
    }

    /// Returns a function that converts errors about fields into errors about keys of the config section.
    pub fn in_section(section: &'static str) -> impl Fn(causal_attention_nn::Error) -> Self {
        move |error| match error {
            causal_attention_nn::Error::Argument { name, value, problem } => {
                Self::key(format!("{section}.{name}"), value, keys_of_model(&problem))
            }
            causal_attention_nn::Error::Shape(problem) => Self::Shape(keys_of_model(&problem)),
        }
    }

    /// Returns the exit code of a program that ends with this error: 2 for errors that the user can fix, and 1 for
    /// other failures.
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

/// Returns an error of this `kind` unless a condition `holds`.
///
/// # Errors
/// The error of this kind if the condition does not hold.
pub fn ensure(holds: bool, kind: fn(String) -> Error, problem: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(kind(problem())) }
}

/// Replaces names of model fields in a message by config keys, such as "`heads`" by "`model.heads`".
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

/// The problem and the remedy when memory runs out.
pub const OUT_OF_MEMORY: &str = "out of memory; free some memory, raise the limit (`ulimit -v`), or use a smaller \
                                 model, `training.batch_size` or `data.length`";

/// Returns true if a panic was caused by a failure to start a thread. The standard library and rayon panic in that
/// case.
pub fn is_out_of_threads(panic: &str) -> bool {
    panic.contains("failed to spawn thread") || panic.contains("ThreadPoolBuildError")
}

/// Returns the message of an operating-system error. Common errors get a remedy.
fn system_message(source: &io::Error) -> String {
    let problem = match source.kind() {
        // The error already has its own message.
        _ if source.get_ref().is_some() => return source.to_string(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "no space left on the disk; free some space and try again"
        }
        ErrorKind::FileTooLarge => {
            "the file would exceed the size limit of the system; raise the limit (`ulimit -f`) or write elsewhere"
        }
        ErrorKind::PermissionDenied => {
            "permission denied; change the permissions of the file or its folder, or use another path"
        }
        ErrorKind::OutOfMemory => OUT_OF_MEMORY,
        ErrorKind::NotFound => "no such file or folder; check the path",
        ErrorKind::IsADirectory => "the path is a folder; move it or use another file name",
        _ => return source.to_string(),
    };
    problem.to_string()
}

/// Returns a value as messages display it: on a single line of at most `max_chars` characters.
pub fn excerpt(value: &str, max_chars: usize) -> String {
    let escape = |character: char| match character {
        // Text that is already quoted and escaped is not escaped again.
        '\\' | '"' | '\'' => character.to_string(),
        other => other.escape_debug().to_string(),
    };
    let mut excerpt: String = value.chars().take(max_chars).map(escape).collect();
    if value.chars().nth(max_chars).is_some() {
        excerpt.push('…');
    }
    excerpt
}

/// The description of an integer whose range is unknown.
pub const INTEGER: &str = "a non-negative integer";

/// Returns the type that serde expected, in terms that require no knowledge of Rust.
pub fn expected(message: &str) -> String {
    // The line and the column are reported separately.
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

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// A location in a file, displayed as `file:line:column` as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The column in characters, counted from 1.
    pub column: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// The location where the value of a config key was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a config file.
    File(Location),
    /// On the command line, by `--set`.
    CommandLine,
    /// On the command line, by the key's own option, such as `--steps`.
    KeyOption(String),
}

fn location(origin: &Option<Origin>) -> String {
    match origin {
        Some(Origin::File(location)) => format!("{location}: "),
        Some(Origin::CommandLine) => "--set: ".to_string(),
        Some(Origin::KeyOption(option)) => format!("{option}: "),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_suggest_a_remedy() {
        let message = |kind: ErrorKind| Error::io("write", "a/b", kind.into()).to_string();
        assert!(message(ErrorKind::StorageFull).ends_with("on the disk; free some space and try again"));
        assert!(message(ErrorKind::IsADirectory).contains("move it or use another file name"));
        let missing = Error::io("read", "a/b", std::fs::read("/nothing/here").unwrap_err()).to_string();
        assert_eq!(missing, "cannot read `a/b`: no such file or folder; check the path");
    }

    #[test]
    fn values_are_escaped_once() {
        assert_eq!(excerpt("\"a\\tb\" 'c'\u{1b}\n", 20), "\"a\\tb\" 'c'\\u{1b}\\n");
        assert_eq!(excerpt("abc", 2), "ab…");
    }
}
