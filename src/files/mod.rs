//! Files and folders that are written whole or not at all, and take the place of nothing of a user's.

mod folder;

pub use folder::{HiddenFolder, check_output, show_at, with_remedy, write_output};

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Reads what a JSON file holds. Where it is something else, the error says so by `wrong`, as "is no analysis".
///
/// # Errors
/// If it cannot be read or understood: names the place.
pub fn read_json<T: DeserializeOwned>(path: &Path, wrong: &str) -> Result<T> {
    let bytes = fs::read(path).map_err(|error| Error::io("read", path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::file(path, Some(error.line()), Some(error.column()), format!("{wrong}: {error}"))
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
