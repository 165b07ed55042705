//! Files and folders: inputs are read up to a limit, outputs are written completely or not at all, and user files are
//! never overwritten.

#[cfg(feature = "parquet")]
mod columnar;
mod compression;
mod folder;
mod input;
#[cfg(test)]
mod mutations;
mod output;
mod own;
mod unreadable;

#[cfg(feature = "parquet")]
pub use columnar::{Columnar, ColumnarFormat};
pub use compression::without_compression;
pub use folder::{HiddenFolder, create, parent_of, remove_abandoned, show_at, with_remedy};
pub use input::{BYTE_ORDER_MARK, Input, Pieces, Text, is_pipe, open};
#[cfg(test)]
pub(crate) use mutations::mutations;
pub use output::{check_output, remove_abandoned_outputs, write_output};
pub use own::{has_entry, open_own, open_own_to_write, read_own};
pub use unreadable::{quoted, recognised, remove_quotes};

use std::{fs::File, io::Write, path::Path};

use serde::{Serializer, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tempfile::{NamedTempFile, PersistError};

use crate::error::{Error, Result, expected};

/// Serialises a path to JSON: bytes that are not UTF-8 become `\u{fffd}`, as on the terminal.
///
/// # Errors
/// Returns only errors of the serializer.
pub fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Returns true if `path` exists.
///
/// # Errors
/// Returns an error if the system cannot answer, for example without permission for a parent folder.
pub fn exists(path: &Path) -> Result<bool> {
    match path.try_exists() {
        // A parent of the path is a file.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(false),
        found => found.map_err(|error| Error::io("open", path, error)),
    }
}

/// Reads a JSON file of this program. `what` describes its content and may add a remedy, as in "the scores of a run's
/// heads; without the file they are regenerated".
///
/// # Errors
/// Returns an error with the position if the file is missing, cannot be read or cannot be parsed.
pub fn read_json<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    if !has_entry(path) {
        return Err(Error::file(path, format!("is missing; it must contain {what}")));
    }
    parse_json(&read_own(path)?, path, what)
}

/// Reads a JSON file that another program wrote. The file may be a link, as in the cache of Hugging Face; otherwise
/// like [`read_json`].
///
/// # Errors
/// Returns the same errors as [`read_json`].
pub fn read_given_json<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    parse_json(Text::open(path)?.read_to_string()?.as_bytes(), path, what)
}

/// Parses the content of the JSON file at `path`, as [`read_json`] does.
///
/// # Errors
/// Returns an error with the position if the content cannot be parsed.
pub fn parse_json<T: DeserializeOwned>(json: &[u8], path: &Path, what: &str) -> Result<T> {
    serde_json::from_slice(json).map_err(|error| {
        if is_lfs_pointer(json) {
            return Error::file(path, LFS_POINTER);
        }
        let problem = format!("{}; the file must contain {what}", expected(&error.to_string()));
        Error::in_file(path, Some(error.line()), Some(error.column()), problem)
    })
}

/// The message for a Git LFS pointer.
pub const LFS_POINTER: &str =
    "is a Git LFS pointer without the content of the file; fetch the content with `git lfs pull`";

/// Returns true for the text that Git LFS checks out instead of a large file.
pub fn is_lfs_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(LFS_VERSION)
}

/// The first line of a Git LFS pointer.
const LFS_VERSION: &[u8] = b"version https://git-lfs.github.com/spec/v1";

/// The message for a run's file whose hash differs from the recorded one, with the remedy.
pub const HASH_MISMATCH: &str = "has changed, or belongs to another run; restore this run's file";

/// Returns the SHA-256 of a file of this program in hexadecimal digits.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn sha256(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut open_own(path)?, &mut hash).map_err(|error| Error::io("read", path, error))?;
    Ok(digits(&hash))
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    digits(&Sha256::new_with_prefix(bytes))
}

/// Returns the current value of a SHA-256 hash in hexadecimal digits.
pub fn digits(hash: &Sha256) -> String {
    format!("{:x}", hash.clone().finalize())
}

/// Returns a builder for hidden files or folders with the usual `mode` of a new file or folder, subject to the user's
/// umask.
fn hidden(prefix: &str, mode: u32) -> tempfile::Builder<'_, 'static> {
    let mut hidden = tempfile::Builder::new();
    hidden.prefix(prefix);
    #[cfg(unix)]
    hidden.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    hidden
}

/// Writes a file atomically: its name refers either to the old content or to all of `bytes`.
///
/// # Errors
/// If the file cannot be written; the old content then stays.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, |hidden| hidden.persist(path))
}

/// Writes a new file atomically; an existing file stays, even if another process has just created it.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    check_new(path)?;
    write(path, bytes, |hidden| hidden.persist_noclobber(path))
}

/// Fails if `path` exists, before any work is done for the new file.
///
/// # Errors
/// Returns [`Error::Input`] with the path.
pub fn check_new(path: &Path) -> Result<()> {
    let shown = path.display();
    let taken = || Error::Input(format!("`{shown}` already exists; pass another file with --out FILE"));
    if path.symlink_metadata().is_ok() { Err(taken()) } else { Ok(()) }
}

/// Writes a file under a hidden name next to `path`, and moves it there with `persist`.
fn write(
    path: &Path,
    bytes: &[u8],
    persist: impl FnOnce(NamedTempFile) -> std::result::Result<File, PersistError>,
) -> Result<()> {
    let io = |error| Error::io("write", path, error);
    let parent = parent_of(path);
    // Errors of the hidden file would contain its path.
    let hidden = hidden(".writing-", 0o666).tempfile_in(parent);
    let mut file = hidden.map_err(|error| io(error.kind().into()))?;
    fill(file.as_file_mut(), bytes).map_err(io)?;
    persist(file).map_err(|error| io(error.error))?;
    sync_folder(parent);
    Ok(())
}

/// Writes a file in a folder that is not published yet. The write need not be atomic, because nobody reads the folder.
///
/// # Errors
/// If the file cannot be written.
pub fn write_unpublished(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = File::create(path).and_then(|mut file| fill(&mut file, bytes));
    written.map_err(|error| Error::io("write", path, error))
}

/// Writes all bytes to a file and flushes it to disk.
fn fill(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()
}

/// Flushes the entries of a folder to disk, if the system supports it.
pub fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(path) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_errors_state_what_is_expected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, "[1,\n {}]").unwrap();
        let message = |path: &Path| read_json::<Vec<f64>>(path, "the floors").unwrap_err().to_string();
        let shown = path.display();
        assert_eq!(
            message(&path),
            format!("{shown}:2:1: expected a number; the file must contain the floors")
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!(message(&path), format!("{shown}: is missing; it must contain the floors"));
        std::fs::create_dir(&path).unwrap();
        assert!(message(&path).starts_with(&format!("{shown}: is a folder, not a file")));
    }

    #[test]
    fn a_new_file_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        write_new(&path, b"first").unwrap();
        let refused = write_new(&path, b"second").unwrap_err().to_string();
        assert!(refused.contains("page.html` already exists") && refused.contains("--out FILE"), "{refused}");
        // A file that appears between the check and the rename stays as well.
        let late = write(&path, b"third", |hidden| hidden.persist_noclobber(&path)).unwrap_err().to_string();
        assert!(late.starts_with("cannot write `"), "{late}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no hidden file remains");
    }
}
