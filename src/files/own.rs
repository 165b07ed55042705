//! Files in this program's own folders: regular files, opened without following links.
//!
//! Another kind of file may have taken the name of such a file. Through a link, a resumed run would empty or extend
//! another file. A pipe would block a reader forever, and a device may react to being opened. All readers and writers
//! of these files use [`open_own`] or [`open_own_to_write`].

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// Opens a file in one of this program's folders for reading.
///
/// # Errors
/// Returns an error with the path and the remedy if the file is missing, cannot be read, or is not a regular file.
pub fn open_own(path: &Path) -> Result<File> {
    open(path, File::options().read(true), "read")
}

/// Returns true if a folder has an entry of this name, even if it is a dangling link.
pub fn has_entry(path: &Path) -> bool {
    !path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Reads the complete content of a file in one of this program's folders.
///
/// # Errors
/// Returns the same errors as [`open_own`].
pub fn read_own(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own(path)?.read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
    Ok(bytes)
}

/// Opens a file in one of this program's folders to change it in place. The options must not truncate: the file is
/// checked only once it is open.
///
/// # Errors
/// Returns the same errors as [`open_own`], and an error for a hard link, because the other name's content would change
/// too.
pub fn open_own_to_write(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let file = open(path, options.write(true), "write")?;
    match has_second_name(&file.metadata().map_err(|error| Error::io("write", path, error))?) {
        true => Err(Error::file(
            path,
            "has a second name (a hard link), whose content would change too; copy the folder with `cp -r` \
            and pass the copy",
        )),
        false => Ok(file),
    }
}

fn open(path: &Path, options: &mut OpenOptions, action: &'static str) -> Result<File> {
    // Checked before the file is opened, because a pipe or a device may react to being opened.
    match path.symlink_metadata() {
        Ok(data) => check(path, data.file_type())?,
        // A file about to be created needs no remedy.
        Err(error) if error.kind() == ErrorKind::NotFound && action == "read" => {
            let problem = "is missing; restore it from the original folder";
            return Err(Error::file(path, problem));
        }
        Err(_) => {}
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let failed = |error| Error::io(action, path, error);
    let file = options.open(path).map_err(failed)?;
    // The file may have been replaced since the first check.
    check(path, file.metadata().map_err(failed)?.file_type())?;
    Ok(file)
}

fn check(path: &Path, kind: FileType) -> Result<()> {
    let problem = if kind.is_file() {
        return Ok(());
    } else if kind.is_symlink() {
        "is a link, which is not followed here; replace it with a copy of its target, or remove it"
    } else if kind.is_dir() {
        "is a folder, not a file; move it away and restore the file"
    } else {
        "is a pipe, a device or a socket, which may never end; restore the original file"
    };
    Err(Error::file(path, problem))
}

#[cfg(unix)]
fn has_second_name(data: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(data) > 1
}

#[cfg(not(unix))]
fn has_second_name(_: &Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_of_one_name_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("mine"), "mine").unwrap();
        symlink(at("mine"), at("link")).unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::hard_link(at("mine"), at("twin")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("/dev/zero", at("zero")).unwrap();
        for (name, problem) in [
            ("link", "is a link"),
            ("dangling", "is a link"),
            ("zero", "is a link"),
            ("folder", "is a folder"),
            ("pipe", "is a pipe"),
        ] {
            let options = &mut File::options();
            for refused in [open_own(&at(name)), open_own_to_write(&at(name), options.create(true))] {
                let message = refused.unwrap_err().to_string();
                assert!(message.starts_with(&format!("{}: {problem}", at(name).display())), "{message}");
            }
        }
        let message = open_own_to_write(&at("twin"), &mut File::options()).unwrap_err().to_string();
        assert!(message.contains("has a second name"), "{message}");
        assert_eq!(read_own(&at("twin")).unwrap(), b"mine");
        let missing = open_own(&at("nothing")).unwrap_err();
        assert!(missing.to_string().ends_with("is missing; restore it from the original folder"));
        assert!(!at("nothing").exists(), "no file is created through a link");
    }
}
