//! The names of a file in a shell command, for the input and for the output of a conversion.

use std::path::{Path, PathBuf};

use crate::files::compression::{Compression, without_compression};

/// The names of a file in a shell command. If the file is compressed, they are the names of its unpacked content.
pub(super) struct Names {
    /// The name of the input.
    pub file: String,
    pub path: PathBuf,
    /// The name of the compressed file, and the command that unpacks it.
    pub packed: Option<(String, String)>,
}

impl Names {
    pub fn of(path: &Path, compression: Option<Compression>) -> Self {
        // The content of a stream cannot be read again.
        let path = if path.is_file() { path } else { Path::new("FILE") };
        let own = Self { file: quoted(path), path: path.to_path_buf(), packed: None };
        let Some(compression) = compression else { return own };
        let inner = match without_compression(path) {
            inner if inner.extension().is_some() && inner != path => inner,
            _ => path.with_extension("txt"),
        };
        let unpacking = format!("{} {} > {}", compression.command(), own.file, quoted(&inner));
        Self { file: quoted(&inner), path: inner, packed: Some((own.file, unpacking)) }
    }

    /// Returns the command that unpacks a compressed file before another command, as the end of a message.
    pub fn after_unpacking(&self) -> String {
        self.packed
            .as_ref()
            .map_or(String::new(), |(_, unpacking)| format!("; unpack it first with `{unpacking}`"))
    }

    /// Returns true if the name has one of these extensions.
    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        let own = self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        extensions.iter().any(|extension| own.eq_ignore_ascii_case(extension))
    }

    /// Returns true for the name of a compressed tar archive.
    pub fn is_tar(&self) -> bool {
        let name = self.path.to_string_lossy().to_ascii_lowercase();
        name.ends_with(".tar.gz") || name.ends_with(".tgz")
    }

    /// Returns the name with another extension.
    pub fn with(&self, extension: &str) -> String {
        let with = |extension: &str| self.path.with_extension(extension);
        // A shell truncates the output file before the command reads its input.
        let other = Some(with(extension)).filter(|other| *other != self.path);
        quoted(&other.unwrap_or_else(|| with(&format!("converted.{extension}"))))
    }

    /// Returns the name with `.utf8` inserted before its extension.
    pub fn utf8(&self) -> String {
        match self.path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) => self.with(&format!("utf8.{extension}")),
            None => self.with("utf8.txt"),
        }
    }

    /// Returns the name without its last extension. A name with only one gets the extension of a text file instead.
    pub fn unpacked(&self) -> String {
        let inner = self.path.with_extension("");
        match self.path.extension().and_then(|extension| extension.to_str()) {
            _ if inner.extension().is_some() => quoted(&inner),
            // The extension selects how the content is parsed.
            Some(extension @ ("csv" | "tsv" | "json" | "jsonl")) => {
                self.with(&format!("unpacked.{extension}"))
            }
            _ => self.with("txt"),
        }
    }
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |character: char| character.is_alphanumeric() || "/._+=,@%:-".contains(character);
    let path = if path.starts_with('-') { format!("./{path}") } else { path };
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}
