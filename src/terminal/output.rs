//! The only module that writes to standard output and standard error.
//!
//! Text for people is escaped here: a quoted name, token or file may contain sequences that move the cursor, recolour
//! the terminal or change the text direction. JSON keeps its content exactly, in its own escape syntax. Generated text
//! is escaped only on a terminal, so a file or a pipe receives it exactly. Quoted text may also have any length, so
//! lines on standard error are bounded.
//!
//! If standard output is closed by its reader, a command ends immediately and silently; if it cannot be written, the
//! command ends with exit code 1. A command that trains calls [`continue_without_output`] first, because its result is
//! a folder. It continues, and [`check_written`] reports at the end if anything could not be written.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::error::{Error, Result};

/// The maximum length of a line on standard error, in bytes.
const MAX_LINE_BYTES: usize = 500;

/// The exit code of a program that writes to a closed pipe, as shells report it: 128 + SIGPIPE.
const CLOSED_PIPE: i32 = 141;

static CONTINUES_WITHOUT_OUTPUT: AtomicBool = AtomicBool::new(false);

static IS_QUIET: AtomicBool = AtomicBool::new(false);

static IS_MUTE: AtomicBool = AtomicBool::new(false);

/// The first failure to write to standard output while work continues.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output, once it is [held](hold_standard_output).
#[cfg(unix)]
static HELD: std::sync::OnceLock<Mutex<std::fs::File>> = std::sync::OnceLock::new();

/// Reserves standard output for this program: output that libraries print there is redirected to standard error.
pub fn hold_standard_output() {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let Ok(own) = io::stdout().as_fd().try_clone_to_owned() else { return };
        // SAFETY: both descriptors are open for as long as the program runs, and the call touches no memory.
        if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } != -1 {
            let _ = HELD.set(Mutex::new(own.into()));
        }
    }
}

/// Writes to standard output, held or not.
fn write_all(text: &str) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(held) = HELD.get() {
        return held.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Writes one line for people to standard output; control characters are escaped.
pub fn say(line: &str) {
    write_out(&format!("{}\n", escape(line, &[])));
}

/// Suppresses progress and notices; results, warnings and errors are still printed.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Returns true if progress and notices are suppressed.
pub(super) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Returns true if notices are suppressed. Safe to call from a signal handler.
pub fn is_silent() -> bool {
    is_mute() || is_quiet()
}

/// Suppresses all output, on the workers that leave printing to the first one.
pub fn mute() {
    IS_MUTE.store(true, Ordering::Relaxed);
}

/// Reverts [`mute`].
pub fn unmute() {
    IS_MUTE.store(false, Ordering::Relaxed);
}

pub(super) fn is_mute() -> bool {
    IS_MUTE.load(Ordering::Relaxed)
}

/// Shows the log of this library: errors, warnings, and info messages as notices. The logs of other libraries are meant
/// for their developers.
pub fn show_log() {
    struct Lines;

    impl log::Log for Lines {
        fn enabled(&self, metadata: &log::Metadata) -> bool {
            metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
        }

        fn log(&self, record: &log::Record) {
            if !self.enabled(record.metadata()) {
                return;
            }
            let message = record.args();
            match record.level() {
                log::Level::Error => warn_error(&message.to_string()),
                log::Level::Warn => warn(&format!("warning: {message}")),
                log::Level::Info => warn(&format!("notice: {message}")),
                log::Level::Debug | log::Level::Trace => {}
            }
        }

        fn flush(&self) {}
    }

    // If another logger is installed already, the log goes there.
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Writes an error to standard error, as JSON if the program was called with `--json`.
pub fn warn_error(message: &str) {
    if !is_mute() {
        let _ = writeln!(io::stderr(), "{}", error_line(message));
    }
}

/// Returns the line of an error on standard error, as JSON if the program was called with `--json`.
pub fn error_line(message: &str) -> String {
    match std::env::args_os().any(|argument| argument == "--json") {
        true => json_line(message),
        false => bounded(&format!("error: {message}"), MAX_LINE_BYTES, |character| {
            escape_character(character, &[])
        }),
    }
}

/// Writes one line of at most 500 bytes for people to standard error; control characters are escaped. A line that
/// begins with `notice: ` is informational, and is suppressed after [`be_quiet`].
pub fn warn(line: &str) {
    if is_mute() || is_quiet() && line.starts_with("notice: ") {
        return;
    }
    let _ = writeln!(
        io::stderr(),
        "{}",
        bounded(line, MAX_LINE_BYTES, |character| escape_character(character, &[]))
    );
}

/// Returns an error for programs as one line of JSON, at most 500 bytes long.
fn json_line(error: &str) -> String {
    let escaped = |character: char| {
        let json = serde_json::to_string(&character).expect("a character is a plain value");
        escape_json(json[1..json.len() - 1].to_string())
    };
    let [before, after] = ["{\"error\":\"", "\"}"];
    format!("{before}{}{after}", bounded(error, MAX_LINE_BYTES - before.len() - after.len(), escaped))
}

/// Converts a text character by character with `escaped`, and limits it to `max_bytes` bytes. A longer text loses its
/// middle, because a message begins with the location and ends with the remedy.
fn bounded(text: &str, max_bytes: usize, escaped: impl Fn(char) -> String) -> String {
    let pieces = text.chars().map(escaped).collect::<Vec<_>>();
    if pieces.iter().map(String::len).sum::<usize>() <= max_bytes {
        return pieces.concat();
    }
    let fitting = |limit: usize, pieces: &mut dyn Iterator<Item = &String>| {
        let mut bytes = 0;
        let fits = |piece: &&String| {
            bytes += piece.len();
            bytes <= limit
        };
        pieces.take_while(fits).count()
    };
    let rest = max_bytes - "…".len();
    let begin = fitting(rest - rest / 3, &mut pieces.iter());
    let end = pieces.len() - fitting(rest / 3, &mut pieces.iter().rev());
    format!("{}…{}", pieces[..begin].concat(), pieces[end..].concat())
}

/// Writes generated text as it arrives, without a final line break. On a terminal, control characters other than line
/// breaks and tabs are escaped.
pub fn print_text(text: &str) {
    write_out(&as_printed(text, is_terminal()));
}

/// Returns generated text as it is written to a terminal, or else to a file or a pipe.
fn as_printed(text: &str, is_terminal: bool) -> Cow<'_, str> {
    match is_terminal {
        true => escape(text, &['\n', '\t']).into(),
        false => text.into(),
    }
}

/// Returns true if standard output, held or not, is a terminal.
fn is_terminal() -> bool {
    #[cfg(unix)]
    if let Some(held) = HELD.get() {
        return held.lock().unwrap_or_else(PoisonError::into_inner).is_terminal();
    }
    io::stdout().is_terminal()
}

/// Writes a value as indented JSON for programs.
pub fn print_json(value: &impl Serialize) {
    write_json(serde_json::to_string_pretty(value));
}

/// Writes a value as JSON for programs, on one line.
pub fn print_json_line(value: &impl Serialize) {
    write_json(serde_json::to_string(value));
}

fn write_json(json: serde_json::Result<String>) {
    let json = json.expect("printed values are plain");
    write_out(&format!("{}\n", escape_json(json)));
}

/// Escapes control characters in JSON numerically, which keeps their meaning. Serde escapes only the characters below
/// U+0020.
pub fn escape_json(json: String) -> String {
    let is_raw = |character: char| character != '\n' && is_terminal_control(character);
    // Avoids a copy of large data, which is mostly numbers.
    if !json.contains(is_raw) {
        return json;
    }
    let written = json.chars().map(|character| match is_raw(character) {
        true => format!("\\u{:04x}", character as u32),
        false => character.to_string(),
    });
    written.collect()
}

/// Lets the program continue when standard output cannot be written.
pub fn continue_without_output() {
    CONTINUES_WITHOUT_OUTPUT.store(true, Ordering::Relaxed);
}

/// Checks that everything was written to standard output, or that its reader has closed it.
///
/// # Errors
/// Returns an error if standard output could not be written, for example on a full disk.
pub fn check_written() -> Result<()> {
    match FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(write_error(&error)),
        _ => Ok(()),
    }
}

fn write_error(error: &io::Error) -> Error {
    Error::Failed(format!("cannot write to standard output: {error}"))
}

fn write_out(text: &str) {
    if is_mute() {
        return;
    }
    let Err(error) = write_all(text) else { return };
    if CONTINUES_WITHOUT_OUTPUT.load(Ordering::Relaxed) {
        FAILURE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        return;
    }
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(CLOSED_PIPE);
    }
    let error = write_error(&error);
    warn(&format!("error: {error}"));
    std::process::exit(error.exit_code().into());
}

/// Ends this process while its other threads run: MPI would wait for a worker that never answers.
pub fn exit_at_once(code: i32) {
    signal_hook::low_level::exit(code);
}

/// Escapes control characters in a text as `\n`, `\u{1b}` and so on, except those in `kept`.
fn escape(text: &str, kept: &[char]) -> String {
    text.chars().map(|character| escape_character(character, kept)).collect()
}

fn escape_character(character: char, kept: &[char]) -> String {
    match is_terminal_control(character) && !kept.contains(&character) {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    }
}

/// Returns true if a character controls a terminal (C0, DEL, C1), breaks a line, or changes the text direction.
pub fn is_terminal_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a table. `sides` has an `l` or `r` per column for its alignment.
pub fn table(sides: &str, names: &[&str], rows: &[impl AsRef<[String]>]) {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let rows = || std::iter::once(&names[..]).chain(rows.iter().map(AsRef::as_ref));
    let width = |column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..names.len()).map(width).collect();
    for row in rows() {
        // A format string pads to at most 65,535 characters.
        let cells = row.iter().zip(&widths).zip(sides.chars()).map(|((cell, &width), side)| {
            let filler = " ".repeat(width - cell.chars().count());
            if side == 'l' { format!("{cell}{filler}") } else { format!("{filler}{cell}") }
        });
        say(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_does_not_control_the_terminal() {
        for control in ['\u{1b}', '\r', '\u{7}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}'] {
            let escaped = escape(&format!("a{control}b"), &['\n', '\t']);
            assert_eq!(escaped, format!("a\\u{{{:x}}}b", control as u32).replace("\\u{d}", "\\r"));
        }
        assert_eq!(escape("one\nline\t", &[]), "one\\nline\\t");
    }

    #[test]
    fn generated_text_is_exact_outside_a_terminal() {
        let text = "a\u{200e}b\u{1b}[2J\r\n\tc";
        assert_eq!(as_printed(text, false), text);
        assert_eq!(as_printed(text, true), "a\\u{200e}b\\u{1b}[2J\\r\n\tc");
    }

    #[test]
    fn json_escapes_control_characters_losslessly() {
        let text = "a\u{9b}b\u{202e}c\u{7f}\n\u{1b}é";
        let json = escape_json(serde_json::to_string_pretty(&[text]).unwrap());
        assert_eq!(json, "[\n  \"a\\u009bb\\u202ec\\u007f\\n\\u001bé\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap()[0], text);
    }

    #[test]
    fn escaping_keeps_all_scripts_and_allowed_whitespace() {
        let text = "É 日本 שלום \u{200d}🙂";
        assert_eq!(escape(text, &[]), text);
        assert_eq!(escape("a\n\tb", &['\n', '\t']), "a\n\tb");
    }

    #[test]
    fn long_lines_are_elided_in_the_middle() {
        let line = |quoted: &str, count| format!("key: `{}` is wrong: remedy", quoted.repeat(count));
        for (quoted, escaped) in [("x", "x"), ("é", "é"), ("\u{1b}", "\\u{1b}"), ("🙂\n", "🙂\\n")] {
            assert_eq!(
                bounded(&line(quoted, 9), MAX_LINE_BYTES, |c| escape_character(c, &[])),
                line(escaped, 9)
            );
            let cut = bounded(&line(quoted, 1_000), MAX_LINE_BYTES, |c| escape_character(c, &[]));
            assert!((MAX_LINE_BYTES - 16..=MAX_LINE_BYTES).contains(&cut.len()), "{}", cut.len());
            let [begin, end] = cut.split('…').collect::<Vec<_>>()[..] else { panic!("{cut}") };
            assert!(begin.starts_with("key: `") && end.ends_with("` is wrong: remedy"), "{cut}");
            assert!(begin.len() > end.len() && !begin.ends_with('\\') && !end.starts_with("u{"), "{cut}");
        }
    }
}
