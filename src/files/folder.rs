//! New folders: each is prepared beside its place under a hidden name and appears by one rename, so that
//! a kill or a full disk at any moment leaves nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::{hidden, read_own, sha256, sync_folder, write_atomically};
use crate::error::{Error, Result};

/// A folder under a hidden name beside the place where it is to appear; dropped before, it is gone.
#[derive(Debug)]
pub struct HiddenFolder {
    folder: TempDir,
    parent: PathBuf,
    made: MadeFolders,
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
        Ok(Self { folder, parent, made })
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives it its name, which nothing may have.
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

/// The folder that a place stands in, as it can be opened: that of a mere name is the current one.
pub fn parent_of(place: &Path) -> &Path {
    place.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Removes the folders beside `place` whose processes were killed: names that begin with `prefix`, each taken by whoever
/// holds the operating system's lock on the file `lock` in it.
pub fn remove_abandoned(place: &Path, prefix: &str, lock: &str) {
    /// A process takes a folder that it makes at once; nobody works on one that is not taken for so long.
    const LONG: Duration = Duration::from_secs(60);
    for entry in fs::read_dir(parent_of(place)).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(prefix) || !path.is_dir() {
            continue;
        }
        let lock = path.join(lock);
        // Who holds the lock writes that it does. Before, the lock is not tried: it is just being taken.
        let is_taken = read_own(&lock).is_ok_and(|holder| !holder.is_empty());
        let changed = || entry.metadata().and_then(|data| data.modified()).ok();
        let is_abandoned = match is_taken {
            true => File::options().write(true).open(&lock).is_ok_and(|lock| lock.try_lock().is_ok()),
            false => changed().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > LONG),
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

/// The file in an output folder that names the command which made it, and below it each file that it wrote, behind
/// the SHA-256 of what it holds, as `sha256sum` writes and checks it.
const MADE_BY: &str = ".made-by";

/// Fails where `command` may not write an output folder, before any work is done for it: only one that it made itself,
/// and in which nothing was added or changed, is replaced.
///
/// # Errors
/// [`Error::Input`] naming what is there.
pub fn check_output(place: &Path, command: &str) -> Result<()> {
    let shown = place.display();
    if place.symlink_metadata().is_err() {
        return Ok(());
    }
    let made_by = read_own(&place.join(MADE_BY)).unwrap_or_default();
    let made_by = String::from_utf8_lossy(&made_by);
    let mut lines = made_by.lines();
    if place.is_symlink() || lines.next() != Some(command) {
        return Err(Error::Input(format!(
            "`{shown}` exists already and was not made by `{command}`: name another folder with --out DIR"
        )));
    }
    // In a folder of an earlier version a name stands alone.
    let hash_and_name = |line| match str::split_once(line, "  ") {
        Some((hash, name)) if hash.len() == 64 => (name, Some(hash)),
        _ => (line, None),
    };
    let written = lines.map(hash_and_name).collect::<BTreeMap<_, _>>();
    for name in names(place)?.iter().filter(|name| *name != MADE_BY) {
        let path = place.join(name);
        let holds = |hash: &str| !path.is_symlink() && sha256(&path).is_ok_and(|found| found == hash);
        let problem = match written.get(name.as_str()) {
            None => format!("also holds `{name}`, which `{command}` did not write"),
            Some(Some(hash)) if !holds(hash) => format!("holds another `{name}` than `{command}` wrote"),
            Some(_) => continue,
        };
        return Err(Error::Input(format!("`{shown}` {problem}: name another folder with --out DIR")));
    }
    Ok(())
}

/// Writes the output folder of `command`: `fill` writes plain files into a hidden one, which then
/// appears whole, in the place of an earlier one of the same command. Returns the paths of its files.
///
/// # Errors
/// As [`check_output`], and where the files cannot be written: then nothing has changed.
pub fn write_output<T>(
    place: &Path,
    command: &str,
    fill: impl FnOnce(&Path) -> Result<T>,
) -> Result<Vec<PathBuf>> {
    const OPTION: &str = "--out DIR";
    check_output(place, command)?;
    let mut hidden = HiddenFolder::beside(place, ".writing-", OPTION)?;
    let written = fill(hidden.path()).and_then(|_| {
        let names = names(hidden.path())?;
        let mut lines = format!("{command}\n");
        for name in &names {
            lines += &format!("{}  {name}\n", sha256(&hidden.path().join(name))?);
        }
        write_atomically(&hidden.path().join(MADE_BY), lines.as_bytes())?;
        Ok(names)
    });
    let names = written.map_err(|error| {
        let error = show_at(error, hidden.path(), place);
        with_remedy(error, &format!("free some, or name another place with {OPTION}"))
    })?;
    let io = |error| Error::io("write", place, error);
    if place.exists() {
        // Gone with its hidden name, once the new one has taken its place.
        let old = HiddenFolder::beside(place, ".replaced-", OPTION)?;
        let aside = old.path().join("folder");
        fs::rename(place, &aside).map_err(io)?;
        if let Err(error) = hidden.appear_at(place) {
            let _ = fs::rename(&aside, place);
            return Err(io(error));
        }
    } else {
        hidden.appear_at(place).map_err(io)?;
    }
    Ok(names.iter().map(|name| place.join(name)).collect())
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let io = |error| Error::io("read", folder, error);
    let entries = fs::read_dir(folder).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    let mut names: Vec<_> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(place: &Path, command: &str, text: &str) -> Result<Vec<PathBuf>> {
        write_output(place, command, |folder| write_atomically(&folder.join("a.txt"), text.as_bytes()))
    }

    #[test]
    fn only_what_the_same_command_made_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("new/out");
        assert_eq!(write(&out, "export", "one").unwrap(), [out.join("a.txt")]);
        write(&out, "export", "two").unwrap();
        assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "two");
        assert!(write(&out, "inspect", "three").unwrap_err().to_string().contains("not made by `inspect`"));
        fs::write(out.join("notes.txt"), "mine").unwrap();
        let refused = write(&out, "export", "four").unwrap_err();
        assert!(refused.to_string().contains("also holds `notes.txt`"), "{refused}");
        assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "two");
        fs::remove_file(out.join("notes.txt")).unwrap();
        fs::write(out.join("a.txt"), "mine").unwrap();
        let refused = write(&out, "export", "four").unwrap_err();
        assert!(refused.to_string().contains("holds another `a.txt` than `export` wrote"), "{refused}");
        assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "mine");
        // As an earlier version left it, without hashes.
        fs::write(out.join(MADE_BY), "export\na.txt").unwrap();
        write(&out, "export", "two").unwrap();
        let foreign = place.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        assert!(write(&foreign, "export", "five").is_err(), "an empty folder is somebody's too");
        assert_eq!(fs::read_dir(&foreign).unwrap().count(), 0);
        let hidden = fs::read_dir(out.parent().unwrap()).unwrap().count();
        assert_eq!(hidden, 1, "nothing hidden is left");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_a_folder_is_named_and_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("plots")).unwrap();
        let pipe = place.path().join("samples.json");
        let make = |path: &Path| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        };
        make(&pipe);
        for said in [read_own(&pipe).unwrap_err(), sha256(&pipe).unwrap_err()].map(|error| error.to_string())
        {
            assert!(said.starts_with(&format!("{}: is a pipe", pipe.display())), "{said}");
        }
        make(&place.path().join("plots").join(MADE_BY));
        let said = check_output(&place.path().join("plots"), "plot").unwrap_err().to_string();
        assert!(said.contains("was not made by `plot`"), "{said}");
    }

    #[test]
    fn what_fails_half_way_leaves_nothing_and_names_the_path_that_was_given() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("new/out");
        let failed = write_output(&out, "export", |folder| {
            write_atomically(&folder.join("a.txt"), b"half")?;
            let full = io::Error::from(ErrorKind::StorageFull);
            Err::<(), _>(Error::io("write", folder.join("b.txt"), full))
        });
        let said = failed.unwrap_err().to_string();
        assert!(said.contains(&format!("`{}`", out.join("b.txt").display())), "{said}");
        assert!(said.contains("no space is left"), "{said}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
