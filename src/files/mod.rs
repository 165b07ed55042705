//! Files and folders: read to an end that they surely have; written whole or not at all, in the place of nothing of
//! a user's.

mod folder;
mod input;

pub use folder::{HiddenFolder, check_entries, check_output, show_at, with_remedy, write_output};
pub use input::{Input, Pieces, Text, open, read};

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result, expected};

/// Reads what a JSON file or stream holds. Where it is something else, the error says so by `wrong`, as "is no analysis".
///
/// # Errors
/// If it cannot be read or understood: names the place.
pub fn read_json<T: DeserializeOwned>(path: &Path, wrong: &str) -> Result<T> {
    serde_json::from_slice(&read(path)?).map_err(|error| {
        let problem = format!("{wrong}: {}", expected(&error.to_string()));
        Error::file(path, Some(error.line()), Some(error.column()), problem)
    })
}

/// Writes a file so that its name holds either what it held before, or all of `bytes`.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |error| Error::io("write", path, error);
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut hidden = tempfile::Builder::new();
    hidden.prefix(".writing-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As of any new file, less what the user's umask takes away.
        hidden.permissions(std::fs::Permissions::from_mode(0o666));
    }
    // Without the path that the error carries: it is that of the hidden file.
    let mut file = hidden.tempfile_in(parent).map_err(|error| io(error.kind().into()))?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_data()).map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    sync_folder(parent);
    Ok(())
}

/// Brings the names in a folder to the disk, where the system offers it.
pub fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(path) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_json_file_holds_instead_is_told_in_plain_words() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        std::fs::write(&path, "[1,\n {}]").unwrap();
        let said = read_json::<Vec<f64>>(&path, "holds no numbers").unwrap_err().to_string();
        assert_eq!(said, format!("{}:2:1: holds no numbers: expected a number", path.display()));
    }
}
