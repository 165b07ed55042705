//! Creating a run folder. The folder is prepared under a hidden name next to its final path and appears by one rename.
//! A kill at any moment leaves either nothing or a run that can be resumed.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::run_folder::{LOCK, Lock, RunFolder};
use super::stopping::Ended;
use super::summary::Summary;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::{
    HiddenFolder, parent_of, read_own, remove_abandoned, remove_abandoned_outputs, show_at, with_remedy,
};

/// The parent folder of runs without an explicit folder.
pub const RUNS: &str = "runs";

/// The target path of a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPath {
    /// `runs/<name>` below the current folder. If the name is taken, a number is appended.
    Named(String),
    /// Exactly this folder, which must not exist.
    Folder(PathBuf),
}

impl RunPath {
    /// Returns the given folder as the target, or a folder of this name below [`RUNS`] if there is none.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn new(folder: Option<PathBuf>, name: String) -> Result<Self> {
        let target = folder.map_or(Self::Named(name), Self::Folder);
        target.check().map(|()| target)
    }

    /// Returns an error if no run can be created at the target. Called before any work is done.
    ///
    /// # Errors
    /// If the target exists or cannot be created.
    pub fn check(&self) -> Result<()> {
        match self {
            RunPath::Named(_) => match Path::new(RUNS).metadata() {
                Ok(data) if !data.is_dir() => Err(Error::Input(format!(
                    "`{RUNS}` is a file; move it, or pass another folder with --run DIR"
                ))),
                _ => Ok(()),
            },
            RunPath::Folder(path) if path.symlink_metadata().is_ok() => Err(already_exists(path)),
            RunPath::Folder(path) if path.as_os_str().as_encoded_bytes().starts_with(b"-") => {
                Err(Error::Input(format!(
                    "other commands would read the name `{0}` as an option; pass --run ./{0}, or another name",
                    path.display()
                )))
            }
            RunPath::Folder(path) if is_prepared(path) => Err(Error::Input(format!(
                "the name `{}` is reserved for unfinished folders; pass another folder with --run DIR",
                path.display()
            ))),
            RunPath::Folder(_) => Ok(()),
        }
    }

    /// Returns a completed run next to the target with the same config, apart from the name.
    pub fn completed_duplicate(&self, config: &Config) -> Option<RunFolder> {
        let nameless = |config: &str| -> String {
            config.lines().filter(|line| !line.starts_with("name = ")).collect::<Vec<_>>().join("\n")
        };
        let own = nameless(&config.to_toml());
        let entries = fs::read_dir(parent_of(&self.first())).ok()?.flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(|path| !is_prepared(path)).collect();
        paths.sort();
        // There may be thousands of runs. For most of them, only the config is read.
        let is_duplicate = |folder: &RunFolder| {
            let config = read_own(&folder.config()).unwrap_or_default();
            let is_same = String::from_utf8(config).is_ok_and(|config| nameless(&config) == own);
            let has_ended =
                |summary: Summary| matches!(summary.ended, Ended::Completed | Ended::EarlyStopped);
            is_same && Summary::read(folder).is_ok_and(has_ended)
        };
        paths.into_par_iter().map(RunFolder::at).find_first(is_duplicate)
    }

    /// Returns the first candidate path.
    pub fn first(&self) -> PathBuf {
        self.candidate(1).expect("a target has a first candidate")
    }

    /// Returns the candidate path of this number, counted from 1.
    fn candidate(&self, number: usize) -> Option<PathBuf> {
        match self {
            RunPath::Folder(path) => (number == 1).then(|| path.clone()),
            RunPath::Named(name) if number == 1 => Some(Path::new(RUNS).join(name)),
            RunPath::Named(name) => Some(Path::new(RUNS).join(format!("{name}-{number}"))),
        }
    }
}

fn already_exists(path: &Path) -> Error {
    let shown = path.display();
    let or_resume = match RunFolder::at(path).checkpoints().is_dir() {
        true => format!(", or resume that run with train --resume {shown}"),
        false => String::new(),
    };
    Error::Input(format!("`{shown}` already exists; pass another folder with --run DIR{or_resume}"))
}

/// The prefix of the hidden name under which a run folder is prepared; no other run folder has a name with it.
pub const PREPARED_PREFIX: &str = ".preparing-run-";

fn is_prepared(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREPARED_PREFIX))
}

impl RunFolder {
    /// Creates a run folder at `target`: `fill` prepares it under a hidden name, then it appears by one rename, locked
    /// by this process.
    ///
    /// # Errors
    /// Those of `fill`, and if the folder cannot be created.
    pub fn create(target: &RunPath, fill: impl FnOnce(&RunFolder) -> Result<()>) -> Result<(Self, Lock)> {
        target.check()?;
        let first = target.first();
        remove_abandoned(&first, PREPARED_PREFIX, LOCK);
        remove_abandoned_outputs(&first);
        let mut hidden = HiddenFolder::next_to(&first, PREPARED_PREFIX, "--run DIR")?;
        let folder = Self::at(hidden.path());
        let remedy = "free some space, or pass another folder with --run DIR";
        let shown = |error| with_remedy(show_at(error, folder.path(), &first), remedy);
        let lock = folder.lock().map_err(shown)?;
        fill(&folder).map_err(shown)?;
        for candidate in (1..).map_while(|number| target.candidate(number)) {
            let is_free = || candidate.symlink_metadata().is_err();
            match is_free().then(|| hidden.publish_at(&candidate)) {
                Some(Ok(())) => return Ok((Self::at(candidate), lock)),
                Some(Err(error)) if is_free() => return Err(Error::io("create", &candidate, error)),
                // The path is taken, perhaps only since the check.
                _ => {}
            }
        }
        Err(already_exists(&first))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::files::write_atomically;

    #[test]
    fn a_folder_appears_complete_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = RunPath::Folder(dir.path().join("run"));
        let failed = RunFolder::create(&target, |folder| {
            fs::write(folder.config(), "").unwrap();
            Err(Error::Failed("stopped half way".into()))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a failed creation leaves no files");

        let (folder, _lock) = RunFolder::create(&target, |folder| {
            assert!(!dir.path().join("run").exists(), "the folder appears when it is complete");
            fs::write(folder.config(), "x").map_err(|error| Error::io("write", folder.config(), error))
        })
        .unwrap();
        assert_eq!(fs::read_to_string(folder.config()).unwrap(), "x");
        assert!(
            matches!(RunFolder::create(&target, |_| Ok(())), Err(Error::Input(_))),
            "an existing folder is not changed"
        );
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = |name: &str| RunFolder::at(dir.path().join(format!("{PREPARED_PREFIX}{name}")));
        for name in ["living", "dead", "young", "younger", "old"] {
            fs::create_dir(hidden(name).path()).unwrap();
        }
        let living = hidden("living").lock().unwrap();
        fs::write(hidden("dead").path().join(LOCK), "999999\n").unwrap();
        let an_hour_ago = SystemTime::now() - Duration::from_hours(1);
        File::open(hidden("old").path()).unwrap().set_modified(an_hour_ago).unwrap();
        // Another process is about to lock this folder.
        fs::write(hidden("young").path().join(LOCK), "").unwrap();
        RunFolder::create(&RunPath::Folder(dir.path().join("run")), |_| Ok(())).unwrap();
        let left = ["living", "dead", "young", "younger", "old"].map(|name| hidden(name).path().exists());
        assert_eq!(left, [true, false, true, true, false], "only abandoned folders are removed");
        drop(living);
    }

    #[test]
    fn concurrent_run_creation_does_not_interfere() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let dir = dir.path();
                scope.spawn(move || {
                    for number in 0..25 {
                        let target = RunPath::Folder(dir.join(format!("{thread}-{number}")));
                        let created = RunFolder::create(&target, |folder| {
                            write_atomically(&folder.config(), b"x")?;
                            write_atomically(&folder.samples(), b"x")
                        });
                        let (folder, _lock) = created.unwrap();
                        assert!(folder.config().is_file() && folder.samples().is_file());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 8 * 25, "no hidden folder remains");
    }
}
