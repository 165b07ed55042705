//! Output folders: what a command writes at once, in the place of nothing but its own earlier output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::folder::{HiddenFolder, is_left_behind, parent_of, show_at, with_remedy};
use super::{is_there, read_own, sha256, sync_folder, write_atomically};
use crate::error::{Error, Result};

/// How a user names another place.
const OPTION: &str = "--out DIR";

/// The file in an output folder that names the command which made it, and below it each file that it wrote, behind
/// the SHA-256 of what it holds, as `sha256sum` writes and checks it.
const MADE_BY: &str = ".made-by";

/// What the hidden names begin with of output folders that are being written, and of those whose place they take.
const WRITING: &str = ".writing-output-";
const REPLACED: &str = ".replaced-output-";

/// Fails where `command` may not write an output folder, before any work is done for it: only an empty one is filled,
/// and only one that the command made itself, and in which nothing was added or changed, is replaced.
///
/// # Errors
/// [`Error::Input`] naming what is there.
pub fn check_output(place: &Path, command: &str) -> Result<()> {
    remove_abandoned_outputs(place);
    let shown = place.display();
    if !is_there(place) || is_empty(place) {
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
    check_output(place, command)?;
    let mut hidden = HiddenFolder::beside(place, WRITING, OPTION)?;
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
    // Whatever was put there while the files were written stays.
    check_output(place, command)?;
    put(&mut hidden, place).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => {
            let shown = place.display();
            Error::Input(format!(
                "`{shown}` is a mount point, which keeps its place: name a folder in it with {OPTION}"
            ))
        }
        _ => Error::io("write", place, error),
    })?;
    Ok(names.iter().map(|name| place.join(name)).collect())
}

/// Gives a folder its place, in which there is nothing, an empty folder, or an earlier output.
fn put(hidden: &mut HiddenFolder, place: &Path) -> io::Result<()> {
    if !is_there(place) || is_empty(place) {
        #[cfg(not(unix))]
        let _ = fs::remove_dir(place);
        return hidden.appear_at(place);
    }
    sync_folder(hidden.path());
    // The earlier one then has the hidden name, under which it is removed.
    if exchange(hidden.path(), place).is_err() {
        return replace(hidden, place);
    }
    sync_folder(parent_of(place));
    Ok(())
}

/// Exchanges two folders at once, where the system and the disk can.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (one, other, here) = (path(one)?, path(other)?, libc::AT_FDCWD);
    // SAFETY: the call reads the two paths, which end with a zero and live until it returns.
    let done = unsafe {
        libc::syscall(libc::SYS_renameat2, here, one.as_ptr(), here, other.as_ptr(), libc::RENAME_EXCHANGE)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The same in two steps. After a kill between them the next command [gives the earlier folder back](give_back), by
/// the name that it keeps.
fn replace(hidden: &mut HiddenFolder, place: &Path) -> io::Result<()> {
    let old = HiddenFolder::beside(place, REPLACED, OPTION).map_err(io::Error::other)?;
    let aside = old.path().join(place.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    fs::rename(place, &aside)?;
    hidden.appear_at(place).inspect_err(|_| {
        let _ = fs::rename(&aside, place);
    })
}

/// Removes the hidden folders beside `place` whose commands were killed, once what they had put aside is back in its
/// place.
pub fn remove_abandoned_outputs(place: &Path) {
    let parent = parent_of(place);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        // What tempfile adds to the name.
        let is_named = |prefix| {
            let rest = name.to_str().and_then(|name| name.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.len() == 6 && rest.chars().all(|c| c.is_ascii_alphanumeric()))
        };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || !(is_named(WRITING) || is_named(REPLACED)) || !is_left_behind(&path) {
            continue;
        }
        if !is_named(REPLACED) || give_back(&path, parent).is_ok() {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Moves what was put aside back to where nothing has taken its place.
fn give_back(aside: &Path, parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(aside)? {
        let entry = entry?;
        let place = parent.join(entry.file_name());
        if !is_there(&place) {
            fs::rename(entry.path(), place)?;
        }
    }
    Ok(())
}

/// Whether a place is an empty folder that another can replace: not a link to one, nor `.`.
fn is_empty(place: &Path) -> bool {
    place.file_name().is_some()
        && !place.is_symlink()
        && fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_none())
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
mod tests;
