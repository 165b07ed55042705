//! What a command is given to read: text on the command line or in a file, or ids.

use std::io::Read;
use std::path::Path;

use crate::data::Vocabulary;
use crate::error::{Error, Result};

/// The text of a file, or of standard input for `-`, without the line break that ends it.
pub fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    match path == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(path).map(|read| bytes = read),
    }
    .map_err(|error| Error::io("read", path, error))?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let problem =
            format!("is not UTF-8 text from byte {} on: save it as UTF-8", error.utf8_error().valid_up_to());
        Error::file(path, None, None, problem)
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Ids written with spaces or commas between them, as `3 1 4`.
pub fn ids(text: &str, vocabulary: &Vocabulary) -> Result<Vec<u32>> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let ids = words.zip(1..).map(|(word, position)| {
        word.parse().map_err(|_| {
            Error::Input(format!("--tokens: `{word}` (token {position}) is no id: write ids, as \"3 1 4\""))
        })
    });
    let ids = ids.collect::<Result<Vec<u32>>>()?;
    vocabulary.check(&ids)?;
    Ok(ids)
}
