//! Detection of workers that die or hang, because the others cannot continue without them.
//!
//! Each worker holds the operating system's lock on its own file in a shared folder. The operating system releases the
//! lock when the process ends, for whatever reason. Worker 0 watches the locks of all others; the others watch the lock
//! of worker 0. The first line of a file is the worker's state. When workers wait for each other, the worker that does
//! not wait is the one that hangs.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Display, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{OnLost, Workers, host};
use crate::error::{Error, Result, ensure};
use crate::files::{HiddenFolder, open_own, open_own_to_write, read_own, remove_abandoned};

/// The prefix of the hidden folder that workers share during a run.
const SHARED_PREFIX: &str = ".workers-";

/// The interval at which locks are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum time to wait until a file is visible to other machines, for example on a network drive.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// The time that the other workers wait before they exit, so that one worker can report the error and `mpirun` can end
/// them.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The states of a worker, written to the first line of its file.
const WORKING: &str = "works\n";
const WAITING: &str = "waits\n";
const LEFT: &str = "left.\n";

/// The file of one worker, and its watch over the others.
#[derive(Debug)]
pub struct Presence {
    view: WorkerView,
    file: File,
    /// The longest time that another worker may take for a step.
    limit: Duration,
    is_waiting: bool,
    has_left: Arc<AtomicBool>,
    /// The shared folder, removed when worker 0 is done.
    _shared: Option<HiddenFolder>,
}

/// A worker's view of the others.
#[derive(Debug, Clone)]
struct WorkerView {
    folder: PathBuf,
    rank: usize,
    count: usize,
    remedy: String,
    on_lost: OnLost,
}

impl Presence {
    /// Announces this worker in a hidden folder next to `run_path`, and starts to watch the others. A step may take up
    /// to `limit`. Worker 0 provides `run_path` and `remedy`, the advice for resuming after a worker has died.
    ///
    /// # Errors
    /// Returns an error on every worker if one of them cannot write into the folder or does not share it.
    pub fn begin(workers: &Workers, run_path: &Path, limit: Duration, remedy: String) -> Result<Self> {
        let created = workers.on_first(|| {
            remove_left_behind(run_path);
            let hidden = HiddenFolder::next_to(run_path, SHARED_PREFIX, "--run DIR")?;
            let canonical = hidden.path().canonicalize();
            Ok((canonical.map_err(|error| Error::io("find", hidden.path(), error))?, hidden))
        })?;
        let (folder, shared) = created.unzip();
        let (folder, first_host, remedy) = workers.broadcast((folder, host(), remedy))?;
        let folder = folder.ok_or_else(|| Error::Failed("worker 0 lacks a shared folder".into()))?;
        let (rank, count, on_lost) = (workers.rank(), workers.count(), workers.on_lost);
        let view = WorkerView { folder, rank, count, remedy, on_lost };
        let file = workers.agree(view.create_file(&first_host))?;
        workers.on_first(|| view.check_all())?;

        let has_left = Arc::new(AtomicBool::new(false));
        let (watching, stop) = (view.clone(), has_left.clone());
        let thread = thread::Builder::new().name("workers".into()).spawn(move || watching.watch(&stop));
        thread.map_err(|_| Error::Threads)?;
        Ok(Self { view, file, limit, is_waiting: false, has_left, _shared: shared })
    }

    /// Records that this worker has waited for another for `passed`.
    pub(super) fn set_waiting(&mut self, passed: Duration) {
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.write(WAITING);
        }
        if passed > self.limit {
            self.view.end_hanging(passed);
        }
    }

    /// Records that the wait of this worker is over.
    pub(super) fn set_working(&mut self) {
        self.is_waiting = false;
        self.write(WORKING);
    }

    /// Records that this worker has ended and printed everything.
    pub(super) fn leave(mut self) {
        self.has_left.store(true, Ordering::Relaxed);
        self.write(LEFT);
    }

    fn write(&mut self, state: &str) {
        // If writing fails, the worker counts as working.
        let _ = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(state.as_bytes()));
    }
}

impl WorkerView {
    fn file(&self, rank: usize) -> PathBuf {
        self.folder.join(rank.to_string())
    }

    /// Creates and locks this worker's file.
    fn create_file(&self, first_host: &str) -> Result<File> {
        let folder = self.parent();
        let is_visible = becomes_visible(|| self.folder.is_dir());
        ensure(is_visible, Error::Input, || {
            format!(
                "cannot see the files that worker 0 on {first_host} writes into `{folder}`; pass a folder \
                shared by all machines with --run DIR"
            )
        })?;
        let path = self.file(self.rank);
        let io = |error| Error::io("write", &path, error);
        let mut file = open_own_to_write(&path, File::options().create(true))?;
        file.try_lock().map_err(|error| {
            Error::Input(format!(
                "the disk of `{folder}` does not support file locks ({error}); pass a folder on another disk \
                with --run DIR"
            ))
        })?;
        file.write_all(format!("{WORKING}{}\n{}\n", host(), std::process::id()).as_bytes()).map_err(io)?;
        Ok(file)
    }

    /// Waits until the files of all workers are visible.
    fn check_all(&self) -> Result<()> {
        (0..self.count).try_for_each(|rank| {
            ensure(becomes_visible(|| self.contents(rank).is_some()), Error::Input, || {
                format!(
                    "worker {rank} writes into a different folder named `{}`; pass a folder shared by all \
                    machines with --run DIR",
                    self.parent()
                )
            })
        })
    }

    /// Returns the parent of the shared folder, the path that the user knows.
    fn parent(&self) -> Display<'_> {
        self.folder.parent().unwrap_or(&self.folder).display()
    }

    /// Reads a worker's file: its state, host and process.
    fn contents(&self, rank: usize) -> Option<[String; 3]> {
        let text = String::from_utf8(read_own(&self.file(rank)).ok()?).ok()?;
        let mut lines = text.lines().map(str::to_string);
        Some([lines.next()?, lines.next()?, lines.next()?])
    }

    /// Returns true if a worker is in this state.
    fn is_in_state(&self, rank: usize, state: &str) -> bool {
        self.contents(rank).is_some_and(|[contents, ..]| contents == state.trim_end())
    }

    /// Returns the name of a worker for messages.
    fn name(&self, rank: usize) -> String {
        match self.contents(rank) {
            Some([_, host, process]) => format!("worker {rank} on {host} (process {process})"),
            None => format!("worker {rank}"),
        }
    }

    /// Checks the locks of the others until this worker leaves.
    fn watch(&self, has_left: &AtomicBool) {
        let others = if self.rank == 0 { 1..self.count } else { 0..1 };
        loop {
            for rank in others.clone() {
                let is_gone = open_own(&self.file(rank)).is_ok_and(|file| file.try_lock_shared().is_ok());
                if has_left.load(Ordering::Relaxed) {
                    return;
                }
                if is_gone {
                    // Worker 0 reports; if worker 0 has died, worker 1 does.
                    if !self.is_in_state(rank, LEFT) && self.rank == usize::from(rank == 0) {
                        return self.report(&format!("{} has died", self.name(rank)));
                    }
                    thread::sleep(GRACE_PERIOD);
                    if !has_left.load(Ordering::Relaxed) {
                        (self.on_lost)(None);
                    }
                    return;
                }
            }
            thread::sleep(CHECK_INTERVAL.max(Duration::from_millis(others.len() as u64)));
        }
    }

    /// Ends this worker after a wait longer than the limit.
    fn end_hanging(&self, passed: Duration) {
        let is_working = |rank: usize| self.is_in_state(rank, WORKING);
        // Only the first waiting worker reports, and only once, because a hanging worker may wake up while all exit.
        let is_reported = (0..self.count).any(|rank| self.is_in_state(rank, LEFT));
        if !is_reported && (0..self.count).find(|&rank| !is_working(rank)) == Some(self.rank) {
            let hanging = (0..self.count).filter(|&rank| is_working(rank)).map(|rank| self.name(rank));
            let hanging = hanging.collect::<Vec<_>>();
            let seconds = passed.as_secs();
            self.report(&match hanging.as_slice() {
                [] => format!(
                    "the workers have waited for each other for {seconds} s (check the network between them)"
                ),
                [one] => format!("{one} has not answered for {seconds} s (`training.worker_timeout`)"),
                many => format!(
                    "{} have not answered for {seconds} s (`training.worker_timeout`)",
                    many.join(", ")
                ),
            });
        }
        thread::sleep(GRACE_PERIOD);
        (self.on_lost)(None);
    }

    /// Reports the reason for which this worker must end.
    fn report(&self, problem: &str) {
        // The others need not report that this worker has died.
        if let Ok(mut file) = open_own_to_write(&self.file(self.rank), &mut File::options()) {
            let _ = file.write_all(LEFT.as_bytes());
        }
        (self.on_lost)(Some(&format!("{problem}, so all workers exit; {}", self.remedy)));
    }
}

/// Waits until a file of another machine is visible; returns false after a timeout.
fn becomes_visible(is_visible: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_visible() {
        if begun.elapsed() > MAX_DELAY {
            return false;
        }
        thread::sleep(CHECK_INTERVAL);
    }
    true
}

/// Removes the shared folders that killed workers left next to `run_path`, recognised by the lock on worker 0's file.
pub fn remove_left_behind(run_path: &Path) {
    remove_abandoned(run_path, SHARED_PREFIX, "0");
}
