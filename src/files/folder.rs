//! New folders: each is prepared beside its place under a hidden name and appears by one rename, so that
//! a kill or a full disk at any moment leaves nothing.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::{hidden, open_own_to_write, read_own, sync_folder};
use crate::error::{Error, Result};

/// A folder under a hidden name beside the place where it is to appear; dropped before, it is gone.
#[derive(Debug)]
pub struct HiddenFolder {
    folder: TempDir,
    parent: PathBuf,
    made: MadeFolders,
    /// The lock on the folder itself, which ends with this process; none where the disk has no such locks.
    _lock: Option<File>,
}

impl HiddenFolder {
    /// Makes one, whose name begins with `prefix`, and the folders that `place` stands in. `option` is that
    /// by which a user names another place.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn beside(place: &Path, prefix: &str, option: &str) -> Result<Self> {
        let refused = |action: &str, path: &Path, error: &io::Error| {
            // Without the path that some errors carry: it is that of a hidden folder.
            let (path, error) = (path.display(), error.kind());
            Error::Input(format!("cannot {action} `{path}`: {error}: name another place with {option}"))
        };
        let parent = parent_of(place).to_path_buf();
        if parent.exists() && !parent.is_dir() {
            let parent = parent.display();
            return Err(Error::Input(format!("`{parent}` is no folder: name another place with {option}")));
        }
        let missing = parent.ancestors().take_while(|folder| !folder.exists());
        let made = MadeFolders(missing.map(Path::to_path_buf).collect());
        fs::create_dir_all(&parent).map_err(|error| refused("create", &parent, &error))?;
        let folder = hidden(prefix, 0o777).tempdir_in(&parent);
        let folder = folder.map_err(|error| refused("write into", &parent, &error))?;
        let lock = File::open(folder.path()).ok().filter(|folder| folder.lock().is_ok());
        Ok(Self { folder, parent, made, _lock: lock })
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives it its name, which nothing may have but an empty folder.
    ///
    /// # Errors
    /// If the system refuses it; the folder is still there under its hidden name.
    pub fn appear_at(&mut self, place: &Path) -> io::Result<()> {
        sync_folder(self.folder.path());
        fs::rename(self.folder.path(), place)?;
        self.folder.disable_cleanup(true);
        self.made.0.clear();
        sync_folder(&self.parent);
        Ok(())
    }
}

/// Whether the process that made a hidden folder is gone, by its lock on the folder. One that was made a moment ago is
/// just being locked, and still empty.
pub(super) fn is_left_behind(folder: &Path) -> bool {
    let is_empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    let is_free = || File::open(folder).is_ok_and(|folder| folder.try_lock().is_ok());
    (!is_empty || is_old(folder)) && is_free()
}

/// Whether a folder has not changed for so long that nobody is about to take it.
fn is_old(folder: &Path) -> bool {
    let changed = folder.symlink_metadata().and_then(|data| data.modified());
    changed.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > LONG)
}

/// A process takes a folder that it makes at once; nobody works on one that is not taken for so long.
const LONG: Duration = Duration::from_secs(60);

/// The folder that a place stands in, as it can be opened: that of a mere name is the current one.
pub fn parent_of(place: &Path) -> &Path {
    place.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Removes the folders beside `place` whose processes were killed: names that begin with `prefix`, each taken by whoever
/// holds the operating system's lock on the file `lock` in it.
pub fn remove_abandoned(place: &Path, prefix: &str, lock: &str) {
    for entry in fs::read_dir(parent_of(place)).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !entry.file_name().to_string_lossy().starts_with(prefix) || !is_folder {
            continue;
        }
        let lock = path.join(lock);
        // Who holds the lock writes that it does. Before, the lock is not tried: it is just being taken.
        let is_taken = read_own(&lock).is_ok_and(|holder| !holder.is_empty());
        let is_abandoned = match is_taken {
            true => open_own_to_write(&lock, &mut File::options()).is_ok_and(|lock| lock.try_lock().is_ok()),
            false => is_old(&path),
        };
        if is_abandoned {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// The folders that are made for another to stand in, the innermost first: removed again if it comes to nothing.
#[derive(Debug)]
struct MadeFolders(Vec<PathBuf>);

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // Whatever somebody else has put there meanwhile stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The error with the path that a user knows, in place of the hidden folder's.
pub fn show_at(error: Error, hidden: &Path, shown: &Path) -> Error {
    match error {
        Error::Io { action, path, source } => {
            let path = path.strip_prefix(hidden).map_or(path.clone(), |file| shown.join(file));
            Error::Io { action, path, source }
        }
        other => other,
    }
}

/// The error of a disk that is full, with what to do about it; any other as it is.
pub fn with_remedy(error: Error, remedy: &str) -> Error {
    match error {
        Error::Io { action, path, source }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            let problem = format!("no space is left on the disk: {remedy}");
            Error::Io { action, path, source: io::Error::new(source.kind(), problem) }
        }
        other => other,
    }
}

/// Makes a folder where there is none, for files that are written into it one by one.
///
/// # Errors
/// If it cannot be made, or is a link: what it leads to may be anybody's.
pub fn create(folder: &Path) -> Result<()> {
    if folder.is_symlink() {
        let problem = "is a link to another place, into which nothing is written: remove it";
        return Err(Error::file(folder, problem));
    }
    fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))
}
