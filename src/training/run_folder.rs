//! The folder that a run leaves behind, and that explains it.
//!
//! It is prepared beside its place under a hidden name and appears by one rename, so that a kill
//! at any moment leaves nothing, or a run that resumes. While a process works in it, `lock` holds
//! the process id under the operating system's file lock, which ends with the process.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{Error, Result};

/// Where runs are put when no folder is named.
pub const RUNS: &str = "runs";

/// The file that the process which works in a folder has locked.
const LOCK: &str = "lock";

/// Where a new run goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `runs/<name>` below the current folder; a name taken gets a number.
    Named(String),
    /// This very folder, which must not exist.
    Folder(PathBuf),
}

impl Target {
    /// Fails where a run could not be put at the target, before any work is done for it.
    pub fn check(&self) -> Result<()> {
        match self {
            Target::Named(_) => match Path::new(RUNS).metadata() {
                Ok(data) if !data.is_dir() => Err(Error::Input(format!(
                    "`{RUNS}` is a file: move it, or name another place with --run DIR"
                ))),
                _ => Ok(()),
            },
            Target::Folder(path) if path.symlink_metadata().is_ok() => Err(taken(path)),
            Target::Folder(_) => Ok(()),
        }
    }

    fn candidates(&self) -> Box<dyn Iterator<Item = PathBuf> + '_> {
        match self {
            Target::Folder(path) => Box::new(std::iter::once(path.clone())),
            Target::Named(name) => {
                let numbered = (2..).map(move |number| Path::new(RUNS).join(format!("{name}-{number}")));
                Box::new(std::iter::once(Path::new(RUNS).join(name)).chain(numbered))
            }
        }
    }
}

fn taken(path: &Path) -> Error {
    Error::Input(format!(
        "the run folder `{}` exists already: name another with --run DIR, or go on with it by --resume",
        path.display()
    ))
}

/// The folders that are made for a run folder to stand in: removed again if it comes to nothing.
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Those on the way to `path` that do not exist yet, the innermost first.
    fn missing(path: &Path) -> Self {
        Self(path.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect())
    }

    fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // Whatever somebody else has put there meanwhile stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn unwritable(action: &str, path: &Path, error: &std::io::Error) -> Error {
    // Without the path that some errors carry: it is that of a hidden folder.
    let error = error.kind();
    Error::Input(format!("cannot {action} `{}`: {error}: name another place with --run DIR", path.display()))
}

/// The error with the path that a user knows, in place of the hidden folder's.
pub(super) fn show_at(error: Error, hidden: &Path, shown: &Path) -> Error {
    match error {
        Error::Io { action, path, source } => {
            let path = path.strip_prefix(hidden).map_or(path.clone(), |file| shown.join(file));
            Error::Io { action, path, source }
        }
        other => other,
    }
}

/// The error of a disk that is full, with what to do about it; any other as it is.
pub(super) fn with_remedy(error: Error, remedy: &str) -> Error {
    match error {
        Error::Io { path, source, .. }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            let path = path.display();
            Error::Input(format!("cannot write `{path}`: no space is left on the disk: {remedy}"))
        }
        other => other,
    }
}

/// What the hidden name begins with under which a run folder is prepared.
const PREPARED: &str = ".run-";

/// Removes what processes left in `parent` that were killed while they prepared a run folder.
fn remove_unfinished(parent: &Path) {
    /// A process that makes a folder takes it at once; nobody works on one that is not taken for so long.
    const LONG: Duration = Duration::from_secs(60);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREPARED) || !path.is_dir() {
            continue;
        }
        let lock = path.join(LOCK);
        // Who holds the lock writes that it does. Before, the lock is not tried: it is just being taken.
        let is_taken = fs::read(&lock).is_ok_and(|holder| !holder.is_empty());
        let is_stale = match is_taken {
            true => File::options().write(true).open(&lock).is_ok_and(|lock| lock.try_lock().is_ok()),
            false => {
                let age = entry.metadata().and_then(|data| data.modified()).map(|time| time.elapsed());
                age.is_ok_and(|age| age.is_ok_and(|age| age > LONG))
            }
        };
        if is_stale {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// A run's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder at `path`, whatever it holds.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The run at `path`.
    ///
    /// # Errors
    /// If there is no folder, or one that no run made.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let folder = Self::at(path);
        let shown = folder.path.display();
        if !folder.path.is_dir() {
            return Err(Error::Input(format!("there is no run folder `{shown}`: `train` makes one")));
        }
        if !folder.config().is_file() || !folder.checkpoints().is_dir() && !folder.model().is_file() {
            return Err(Error::Input(format!(
                "`{shown}` is not the folder of a run: it lacks config.toml, or checkpoints and weights"
            )));
        }
        Ok(folder)
    }

    /// Makes a run folder at `target`: `fill` prepares it under a hidden name, then it appears by
    /// one rename, locked by this process.
    pub fn create(target: &Target, fill: impl FnOnce(&RunFolder) -> Result<()>) -> Result<(Self, Lock)> {
        target.check()?;
        let first = target.candidates().next().expect("a target has a first candidate");
        let parent = match first.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if parent.exists() && !parent.is_dir() {
            let parent = parent.display();
            return Err(Error::Input(format!("`{parent}` is no folder: name another place with --run DIR")));
        }
        let mut made = MadeFolders::missing(&parent);
        fs::create_dir_all(&parent).map_err(|error| unwritable("create", &parent, &error))?;
        remove_unfinished(&parent);
        let hidden = TempDir::with_prefix_in(PREPARED, &parent)
            .map_err(|error| unwritable("write into", &parent, &error))?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // A temporary folder is its owner's alone; a run is to be shared as any folder is.
            let _ = fs::set_permissions(hidden.path(), fs::Permissions::from_mode(0o755));
        }
        let folder = Self::at(hidden.path());
        let shown = |error| {
            with_remedy(
                show_at(error, folder.path(), &first),
                "free some, or name another place with --run DIR",
            )
        };
        let lock = folder.lock().map_err(shown)?;
        fill(&folder).map_err(shown)?;
        sync_folder(hidden.path());
        for candidate in target.candidates() {
            if candidate.symlink_metadata().is_ok() {
                if matches!(target, Target::Folder(_)) {
                    return Err(taken(&candidate));
                }
                continue;
            }
            match fs::rename(hidden.path(), &candidate) {
                Ok(()) => {
                    let _ = hidden.keep();
                    made.keep();
                    sync_folder(&parent);
                    return Ok((Self::at(candidate), lock));
                }
                // Another process took the name in between.
                Err(error)
                    if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) =>
                {
                    continue;
                }
                Err(error) => return Err(unwritable("create", &candidate, &error)),
            }
        }
        Err(taken(&first))
    }

    /// Takes the folder for this process.
    ///
    /// # Errors
    /// If a living process has it.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.path.join(LOCK);
        let io = |error| Error::io("write", &path, error);
        let mut file =
            File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(io)?;
        if file.try_lock().is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_string(),
                id => format!("process {id}"),
            };
            return Err(Error::Input(format!(
                "the run folder `{}` is in use by {holder}: wait for it to end",
                self.path.display()
            )));
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io)?;
        Ok(Lock { file })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's name, which titles its pictures.
    pub fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        path.file_name().map_or_else(|| "run".to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// `config.toml`: every key as used.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// `metrics.csv`: the course of the run.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.csv")
    }

    /// `head_scores.csv`: what the heads did along the run, where `analysis.every` asks for it.
    pub fn head_scores(&self) -> PathBuf {
        self.path.join("head_scores.csv")
    }

    /// `analysis.json`: what the best weights do.
    pub fn analysis(&self) -> PathBuf {
        self.path.join("analysis.json")
    }

    /// `report.html`: the page to explore.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// `summary.json`: how it ended.
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// `model.safetensors`: the best weights.
    pub fn model(&self) -> PathBuf {
        self.path.join("model.safetensors")
    }

    /// `vocabulary.json`: what the token ids mean.
    pub fn vocabulary(&self) -> PathBuf {
        self.path.join("vocabulary.json")
    }

    /// `samples.json`: a few validation sequences, for the pictures.
    pub fn samples(&self) -> PathBuf {
        self.path.join("samples.json")
    }

    /// Whether its weights came from elsewhere: nothing was trained here.
    pub fn is_imported(&self) -> bool {
        !self.samples().exists() && !self.metrics().exists()
    }

    /// `checkpoints/`: what a run resumes from.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// `plots/`: the pictures.
    pub fn plots(&self) -> PathBuf {
        self.path.join("plots")
    }
}

/// A run folder taken by this process until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Writes a file so that its name holds either what it held before, or all of `bytes`.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |error| Error::io("write", path, error);
    let parent = path.parent().unwrap_or(Path::new("."));
    // Without the path that the error carries: it is that of the hidden file.
    let mut file = tempfile::Builder::new()
        .prefix(".writing-")
        .tempfile_in(parent)
        .map_err(|error| io(error.kind().into()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(io)?;
    }
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
    fn a_folder_appears_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let target = Target::Folder(place.path().join("run"));
        let failed = RunFolder::create(&target, |folder| {
            fs::write(folder.config(), "").unwrap();
            Err(Error::Failed("stopped half way".into()))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left of a failure");

        let (folder, _lock) = RunFolder::create(&target, |folder| {
            assert!(!place.path().join("run").exists(), "the name is free until the folder is whole");
            fs::write(folder.config(), "x").map_err(|error| Error::io("write", folder.config(), error))
        })
        .unwrap();
        assert_eq!(fs::read_to_string(folder.config()).unwrap(), "x");
        assert!(
            matches!(RunFolder::create(&target, |_| Ok(())), Err(Error::Input(_))),
            "a folder that exists is not touched"
        );
    }

    #[test]
    fn what_a_killed_process_prepared_is_removed_by_the_next_run() {
        let place = tempfile::tempdir().unwrap();
        let hidden = |name: &str| RunFolder::at(place.path().join(format!("{PREPARED}{name}")));
        for name in ["living", "dead", "young", "younger"] {
            fs::create_dir(hidden(name).path()).unwrap();
        }
        let living = hidden("living").lock().unwrap();
        fs::write(hidden("dead").path().join(LOCK), "999999\n").unwrap();
        // Another process is about to lock it.
        fs::write(hidden("young").path().join(LOCK), "").unwrap();
        RunFolder::create(&Target::Folder(place.path().join("run")), |_| Ok(())).unwrap();
        let left = ["living", "dead", "young", "younger"].map(|name| hidden(name).path().exists());
        assert_eq!(left, [true, false, true, true], "only what nobody works on");
        drop(living);
    }

    #[test]
    fn a_folder_in_use_names_its_process_and_a_stale_lock_is_taken_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path());
        fs::write(place.path().join("lock"), "999999\n").unwrap();
        let lock = folder.lock().expect("a lock that nobody holds is stale");
        let refused = folder.lock().unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(lock);
        folder.lock().expect("a lock given back is free");
    }
}
