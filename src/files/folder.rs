//! New folders, prepared under a hidden name next to their destination and published by one rename. After a kill or on
//! a full disk, the destination is thus never incomplete.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::{hidden, open_own_to_write, read_own, sync_folder};
use crate::error::{Error, Result};

/// A folder under a hidden name next to its destination; removed if it is dropped before it is published.
#[derive(Debug)]
pub struct HiddenFolder {
    folder: TempDir,
    parent: PathBuf,
    created_parents: CreatedFolders,
    /// The lock on the folder itself, which ends with this process; `None` if the disk does not support such locks.
    _lock: Option<File>,
}

impl HiddenFolder {
    /// Creates a hidden folder with a name that begins with `prefix`, and the missing parents of `path`. `option` is
    /// the command-line option for another destination.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written.
    pub fn next_to(path: &Path, prefix: &str, option: &str) -> Result<Self> {
        let refused = |action: &str, path: &Path, error: &io::Error| {
            // Some errors would contain the path of a hidden folder, so only their kind is shown.
            let (path, error) = (path.display(), error.kind());
            Error::Input(format!("cannot {action} `{path}`: {error}; pass another folder with {option}"))
        };
        let parent = parent_of(path).to_path_buf();
        if parent.exists() && !parent.is_dir() {
            let parent = parent.display();
            return Err(Error::Input(format!(
                "`{parent}` is not a folder; pass another folder with {option}"
            )));
        }
        let missing = parent.ancestors().take_while(|folder| !folder.exists());
        let created_parents = CreatedFolders(missing.map(Path::to_path_buf).collect());
        fs::create_dir_all(&parent).map_err(|error| refused("create", &parent, &error))?;
        let folder = hidden(prefix, 0o777).tempdir_in(&parent);
        let folder = folder.map_err(|error| refused("write into", &parent, &error))?;
        let lock = File::open(folder.path()).ok().filter(|folder| folder.lock().is_ok());
        Ok(Self { folder, parent, created_parents, _lock: lock })
    }

    /// Returns the current path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Renames the folder to its destination, which must be free or an empty folder.
    ///
    /// # Errors
    /// Returns an error if the system refuses; the folder still exists under its hidden name.
    pub fn publish_at(&mut self, path: &Path) -> io::Result<()> {
        sync_folder(self.folder.path());
        fs::rename(self.folder.path(), path)?;
        self.folder.disable_cleanup(true);
        self.created_parents.0.clear();
        sync_folder(&self.parent);
        Ok(())
    }
}

/// Returns true if the process that created a hidden folder has ended, judged by its lock on the folder. A new empty
/// folder may not be locked yet.
pub(super) fn is_left_behind(folder: &Path) -> bool {
    let is_empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    let is_free = || File::open(folder).is_ok_and(|folder| folder.try_lock().is_ok());
    (!is_empty || is_old(folder)) && is_free()
}

/// Returns true if a folder has not changed for so long that no process is about to lock it.
fn is_old(folder: &Path) -> bool {
    let changed = folder.symlink_metadata().and_then(|data| data.modified());
    changed.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > MIN_ABANDONED_AGE)
}

/// The age above which an unlocked folder is abandoned: a process locks its folder immediately after creating it.
const MIN_ABANDONED_AGE: Duration = Duration::from_mins(1);

/// Returns the parent folder of a path in a form that can be opened: `.` for a bare name.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Removes the folders next to `path` whose processes were killed: their names begin with `prefix`, and a running
/// process holds the operating system's lock on the file `lock` in its folder.
pub fn remove_abandoned(path: &Path, prefix: &str, lock: &str) {
    for entry in fs::read_dir(parent_of(path)).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !entry.file_name().to_string_lossy().starts_with(prefix) || !is_folder {
            continue;
        }
        let lock = path.join(lock);
        // A holder of the lock writes to the file. An empty file may be about to be locked, so its lock is not tried.
        let is_taken = read_own(&lock).is_ok_and(|holder| !holder.is_empty());
        let is_abandoned = match is_taken {
            true => open_own_to_write(&lock, &mut File::options()).is_ok_and(|lock| lock.try_lock().is_ok()),
            false => is_old(&path),
        };
        if is_abandoned {
            // A folder that cannot be removed does no harm.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// The parent folders created for another folder, innermost first; removed again if that folder is never published.
#[derive(Debug)]
struct CreatedFolders(Vec<PathBuf>);

impl Drop for CreatedFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // A folder that is no longer empty stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Replaces the path of a hidden folder in an error by the path that the user knows.
pub fn show_at(error: Error, hidden: &Path, shown: &Path) -> Error {
    match error {
        Error::Io { action, path, source } => {
            let path = path.strip_prefix(hidden).map_or(path.clone(), |file| shown.join(file));
            Error::Io { action, path, source }
        }
        other => other,
    }
}

/// Adds a remedy to the error of a full disk; returns other errors unchanged.
pub fn with_remedy(error: Error, remedy: &str) -> Error {
    match error {
        Error::Io { action, path, source }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            let problem = format!("no space left on the disk; {remedy}");
            Error::Io { action, path, source: io::Error::new(source.kind(), problem) }
        }
        other => other,
    }
}

/// Creates a folder if it does not exist, for files that are written one by one.
///
/// # Errors
/// Returns an error if the folder cannot be created, or is a link: its target may belong to someone else.
pub fn create(folder: &Path) -> Result<()> {
    if folder.is_symlink() {
        let problem = "is a link, and files are never written through links; remove it";
        return Err(Error::file(folder, problem));
    }
    fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))
}
