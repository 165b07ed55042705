//! The only place that writes to standard output and standard error.
//!
//! What is said for people is escaped here: a name, a token or a file that is quoted can hold sequences
//! that move the cursor, recolour the terminal or turn the direction of the text. JSON stays exact, in its own notation.
//!
//! Standard output that nobody reads any more ends a command at once and without a word, and one that cannot be written
//! ends it with exit code 1. A command that trains calls [`keep_working_unread`] first: its result is
//! a folder, so it goes on, and [`check_written`] tells at its end what could not be written.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::error::{Error, Result};

/// What a program ends with that writes to a closed pipe, as a shell tells it: 128 + SIGPIPE.
const CLOSED_PIPE: i32 = 141;

static KEEPS_WORKING: AtomicBool = AtomicBool::new(false);

/// The first failure to write to standard output, while work goes on.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes one line for people to standard output; what controls a terminal is escaped.
pub fn say(line: &str) {
    write_out(format!("{}\n", escape(line)).as_bytes());
}

/// Writes a text of several lines for people, each as [`say`] does.
pub fn say_lines(text: &str) {
    text.lines().for_each(say);
}

/// Writes one line for people to standard error; what controls a terminal is escaped.
pub fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "{}", escape(line));
}

/// A value as JSON for programs, on one line.
pub fn json_line(value: &impl Serialize) -> String {
    escape_json(serde_json::to_string(value).expect("what is printed holds plain values"))
}

/// Writes generated text as it comes, without a line break after it; its line breaks and tabs stay.
pub fn print_text(text: &str) {
    write_out(escape_but(text, &['\n', '\t']).as_bytes());
}

/// Writes a value as JSON for programs, spread over lines.
pub fn print_json(value: &impl Serialize) {
    write_json(serde_json::to_string_pretty(value));
}

/// Writes a value as JSON for programs, on one line.
pub fn print_json_line(value: &impl Serialize) {
    write_json(serde_json::to_string(value));
}

fn write_json(json: serde_json::Result<String>) {
    let json = json.expect("what is printed holds plain values");
    write_out(format!("{}\n", escape_json(json)).as_bytes());
}

/// JSON in which what controls a terminal is written as its number, which means the same: serde leaves all but the
/// first thirty-two characters as they are.
fn escape_json(json: String) -> String {
    let is_raw = |character: char| character != '\n' && controls(character);
    if !json.contains(is_raw) {
        return json;
    }
    let written = json.chars().map(|character| match is_raw(character) {
        true => format!("\\u{:04x}", character as u32),
        false => character.to_string(),
    });
    written.collect()
}

/// From here on work goes on although standard output cannot be written.
pub fn keep_working_unread() {
    KEEPS_WORKING.store(true, Ordering::Relaxed);
}

/// Whether everything was written to standard output, or nobody read it any more.
///
/// # Errors
/// If it could not be written, as on a full disk.
pub fn check_written() -> Result<()> {
    match FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

fn unwritten(error: &io::Error) -> Error {
    Error::Failed(format!("cannot write to standard output: {error}"))
}

fn write_out(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    drop(out);
    let Err(error) = written else { return };
    if KEEPS_WORKING.load(Ordering::Relaxed) {
        FAILURE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        return;
    }
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(CLOSED_PIPE);
    }
    let error = unwritten(&error);
    warn(&format!("error: {error}"));
    std::process::exit(error.exit_code().into());
}

/// The text with all that could control a terminal as `\n`, `\u{1b}` and so on.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_but(text, &[])
}

fn escape_but<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let harmless = |&character: &char| !controls(character) || kept.contains(&character);
    if text.chars().all(|character| harmless(&character)) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|character| match harmless(&character) {
        true => character.to_string(),
        false => character.escape_default().to_string(),
    });
    Cow::Owned(escaped.collect())
}

/// Whether a character controls a terminal (C0, DEL, C1), breaks a line, or turns the direction of a text.
fn controls(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_quoted_controls_the_terminal() {
        for control in ['\u{1b}', '\r', '\u{7}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}'] {
            let escaped = escape_but(&format!("a{control}b"), &['\n', '\t']).into_owned();
            assert_eq!(escaped, format!("a\\u{{{:x}}}b", control as u32).replace("\\u{d}", "\\r"));
        }
        assert_eq!(escape("one\nline\t"), "one\\nline\\t");
    }

    #[test]
    fn json_says_the_same_without_a_character_that_controls_the_terminal() {
        let text = "a\u{9b}b\u{202e}c\u{7f}\n\u{1b}é";
        let json = escape_json(serde_json::to_string_pretty(&[text]).unwrap());
        assert_eq!(json, "[\n  \"a\\u009bb\\u202ec\\u007f\\n\\u001bé\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap()[0], text);
    }

    #[test]
    fn words_of_any_script_stay_and_generated_text_keeps_its_lines() {
        let text = "É 日本 שלום \u{200d}🙂";
        assert_eq!(escape(text), text);
        assert_eq!(escape_but("a\n\tb", &['\n', '\t']), "a\n\tb");
    }
}
