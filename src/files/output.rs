//! Output folders: written completely or not at all, and replaced only by the command that wrote them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::folder::{HiddenFolder, is_left_behind, parent_of, show_at, with_remedy};
use super::{has_entry, read_own, sha256, sync_folder, write_atomically};
use crate::error::{Error, Result};

/// The command-line option for another folder.
const OPTION: &str = "--out DIR";

/// The file that records the command that wrote an output folder, followed by the names and hashes of its files in the
/// format of `sha256sum`.
const MADE_BY: &str = ".made-by";

/// The prefixes of hidden output folders: one being written, and one being replaced.
const WRITING: &str = ".writing-output-";
const REPLACED: &str = ".replaced-output-";

/// Fails early if `command` may not write an output folder, before any work is done for it. The folder must be empty,
/// or written by the same command and unchanged since.
///
/// # Errors
/// Returns [`Error::Input`] with the obstacle.
pub fn check_output(out: &Path, command: &str) -> Result<()> {
    remove_abandoned_outputs(out);
    let shown = out.display();
    if !has_entry(out) || is_empty(out) {
        return Ok(());
    }
    let made_by = read_own(&out.join(MADE_BY)).unwrap_or_default();
    let made_by = String::from_utf8_lossy(&made_by);
    let mut lines = made_by.lines();
    if out.is_symlink() || lines.next() != Some(command) {
        return Err(Error::Input(format!(
            "`{shown}` already exists and was not made by `{command}`; pass another folder with --out DIR"
        )));
    }
    let written = lines.filter_map(|line| line.split_once("  ")).map(|(hash, name)| (name, hash));
    let written: BTreeMap<&str, &str> = written.collect();
    for name in names(out)?.iter().filter(|name| *name != MADE_BY) {
        let path = out.join(name);
        let holds = |hash: &str| !path.is_symlink() && sha256(&path).is_ok_and(|found| found == hash);
        let problem = match written.get(name.as_str()) {
            None => format!("also contains `{name}`, which `{command}` did not write"),
            Some(hash) if !holds(hash) => {
                format!("contains `{name}`, which has changed since `{command}` wrote it")
            }
            Some(_) => continue,
        };
        return Err(Error::Input(format!("`{shown}` {problem}; pass another folder with --out DIR")));
    }
    Ok(())
}

/// Writes the output folder of `command`: `fill` writes plain files into a hidden folder, which is then published by
/// one rename and may replace an earlier output of the same command. Returns the paths of its files.
///
/// # Errors
/// Returns the same errors as [`check_output`], and an error if the files cannot be written. After an error, `out` is
/// unchanged.
pub fn write_output<T>(
    out: &Path,
    command: &str,
    fill: impl FnOnce(&Path) -> Result<T>,
) -> Result<Vec<PathBuf>> {
    check_output(out, command)?;
    let mut hidden = HiddenFolder::next_to(out, WRITING, OPTION)?;
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
        let error = show_at(error, hidden.path(), out);
        with_remedy(error, &format!("free some space, or pass another folder with {OPTION}"))
    })?;
    // Files that appeared meanwhile stay.
    check_output(out, command)?;
    publish(&mut hidden, out).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => {
            let shown = out.display();
            Error::Input(format!(
                "`{shown}` is a mount point, which cannot be replaced; pass a folder in it with {OPTION}"
            ))
        }
        _ => Error::io("write", out, error),
    })?;
    Ok(names.iter().map(|name| out.join(name)).collect())
}

/// Moves a folder to its destination, which is free, an empty folder, or an earlier output.
fn publish(hidden: &mut HiddenFolder, out: &Path) -> io::Result<()> {
    if !has_entry(out) || is_empty(out) {
        #[cfg(not(unix))]
        let _ = fs::remove_dir(out);
        return hidden.publish_at(out);
    }
    sync_folder(hidden.path());
    // The exchange leaves the earlier folder under the hidden name, where it is removed.
    if exchange(hidden.path(), out).is_err() {
        return replace(hidden, out);
    }
    sync_folder(parent_of(out));
    Ok(())
}

/// Exchanges two folders atomically, if the system and the disk support it.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (one, other, cwd) = (path(one)?, path(other)?, libc::AT_FDCWD);
    // SAFETY: the call reads only the two paths, which end with a NUL byte and are valid until it returns.
    let done = unsafe {
        libc::syscall(libc::SYS_renameat2, cwd, one.as_ptr(), cwd, other.as_ptr(), libc::RENAME_EXCHANGE)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Replaces a folder with two renames. After a kill between these, the next command [restores](restore) the earlier
/// folder.
fn replace(hidden: &mut HiddenFolder, out: &Path) -> io::Result<()> {
    let old = HiddenFolder::next_to(out, REPLACED, OPTION).map_err(io::Error::other)?;
    let aside = old.path().join(out.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    fs::rename(out, &aside)?;
    hidden.publish_at(out).inspect_err(|_| {
        let _ = fs::rename(&aside, out);
    })
}

/// Removes the hidden folders next to `out` whose commands were killed, after restoring the folders that they had
/// moved aside.
pub fn remove_abandoned_outputs(out: &Path) {
    let parent = parent_of(out);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        // The random suffix added by tempfile.
        let is_named = |prefix| {
            let rest = name.to_str().and_then(|name| name.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.len() == 6 && rest.chars().all(|c| c.is_ascii_alphanumeric()))
        };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || !(is_named(WRITING) || is_named(REPLACED)) || !is_left_behind(&path) {
            continue;
        }
        if !is_named(REPLACED) || restore(&path, parent).is_ok() {
            // A folder that cannot be removed does no harm.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Moves folders back to their original names, unless these are taken.
fn restore(aside: &Path, parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(aside)? {
        let entry = entry?;
        let out = parent.join(entry.file_name());
        if !has_entry(&out) {
            fs::rename(entry.path(), out)?;
        }
    }
    Ok(())
}

/// Returns true if a path is an empty folder that can be replaced, which a link or `.` cannot.
fn is_empty(out: &Path) -> bool {
    out.file_name().is_some()
        && !out.is_symlink()
        && fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none())
}

/// Returns the names in a folder, sorted.
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
