//! Runs in processes of their own: several side by side, and none that takes the others along.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::errand::Errand;
use super::study::DueRun;
use crate::backend::Device;
use crate::error::{Error, Result};
use crate::training::{Ended, Summary};

/// What `trial` ends with where the fault is the trial's own, and others may do better.
pub const CANNOT_BE_TRAINED: i32 = 3;
/// How often the study looks whether a run has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Starts runs in processes of their own.
#[derive(Debug)]
pub struct Workers {
    /// The program, which has the command `trial`.
    program: PathBuf,
    device: Device,
    /// How many run at once.
    jobs: usize,
}

/// What became of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// All of them ended or paused.
    Done,
    /// The signal asked for the end, and those under way have saved and stopped.
    Interrupted,
}

struct Worker<'a> {
    run: &'a DueRun,
    /// Whether it has failed once, and works with nothing beside it.
    is_again: bool,
    child: Child,
    /// Closing it asks for the end.
    line: Option<ChildStdin>,
}

impl Workers {
    /// `jobs` processes of this very program.
    ///
    /// # Errors
    /// If the system does not say where the program is.
    pub fn new(device: Device, jobs: usize) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| {
            Error::Failed(format!("cannot find this program to run trials with: {error}"))
        })?;
        Ok(Self { program, device, jobs: jobs.max(1) })
    }

    /// Trains every run as far as it is due, and tells `done` of each as it ends: of one that cannot be
    /// trained, why. One that fails, or whose process is killed, is tried once more when the others are done,
    /// with nothing beside it: they may have had the memory that it needs, whatever it met may have passed,
    /// and whoever killed it may have meant the whole study.
    ///
    /// # Errors
    /// If the disk or the system fails, which no other trial would survive either, or `done` does. Those
    /// under way have then saved and stopped.
    pub fn train(
        &self,
        runs: &[DueRun],
        signal: &AtomicUsize,
        mut done: impl FnMut(&DueRun, Option<String>) -> Result<()>,
    ) -> Result<Happened> {
        let mut waiting = runs.iter().collect::<VecDeque<_>>();
        let mut again: VecDeque<&DueRun> = VecDeque::new();
        let mut working: Vec<Worker> = Vec::new();
        let mut failed: Option<Error> = None;
        loop {
            let stop = failed.is_some() || signal.load(Ordering::Relaxed) != 0;
            if stop {
                working.iter_mut().for_each(|worker| worker.line = None);
            }
            while !stop && working.len() < self.jobs {
                let is_again = waiting.is_empty();
                let next = match is_again {
                    false => waiting.pop_front(),
                    true if working.is_empty() => again.pop_front(),
                    true => None,
                };
                let Some(run) = next else { break };
                match self.start(run) {
                    Ok((child, line)) => working.push(Worker { run, is_again, child, line }),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            if working.is_empty() && (stop || failed.is_some() || waiting.is_empty() && again.is_empty()) {
                return match failed {
                    Some(error) => Err(error),
                    None if stop => Ok(Happened::Interrupted),
                    None => Ok(Happened::Done),
                };
            }
            let mut index = 0;
            while index < working.len() {
                match working[index].child.try_wait() {
                    Ok(None) => index += 1,
                    Ok(Some(status)) => {
                        let mut worker = working.remove(index);
                        let outcome = match worker.outcome(status) {
                            Ok(Outcome::Trained) => done(worker.run, None),
                            // What fails because it was asked to end is no news.
                            Ok(Outcome::Failed(_)) if stop => Ok(()),
                            Ok(Outcome::Failed(_)) if !worker.is_again => {
                                again.push_back(worker.run);
                                Ok(())
                            }
                            Ok(Outcome::Failed(why)) => done(worker.run, Some(why)),
                            Err(error) => Err(error),
                        };
                        if let Err(error) = outcome
                            && failed.is_none()
                        {
                            failed = Some(error);
                        }
                    }
                    Err(error) => {
                        let mut worker = working.remove(index);
                        let _ = worker.child.kill();
                        failed.get_or_insert(Error::Failed(format!("cannot wait for a trial: {error}")));
                    }
                }
            }
            thread::sleep(LOOK);
        }
    }

    fn start(&self, run: &DueRun) -> Result<(Child, Option<ChildStdin>)> {
        let mut command = Command::new(&self.program);
        command.args(["trial", "--backend", self.device.backend.name()]);
        command.arg("--device").arg(self.device.index.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        if run.config.training.threads.is_none() && std::env::var_os("RAYON_NUM_THREADS").is_none() {
            // The cores are shared; results do not depend on the number of threads.
            let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
            command.env("RAYON_NUM_THREADS", (cores / self.jobs).max(1).to_string());
        }
        let failed = |error: std::io::Error| Error::Failed(format!("cannot start a trial: {error}"));
        // Ctrl-C in a terminal reaches a whole group of processes: runs have one of their own, and end by
        // their line, which they know from the beginning.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(failed)?;
        let errand = Errand {
            folder: run.folder.path().to_path_buf(),
            config: run.config.to_toml(),
            pause_at: run.pause_at,
            data: run.data,
        };
        let mut line = child.stdin.take();
        if let Some(line) = &mut line {
            let text = serde_json::to_string(&errand).expect("an errand holds plain values");
            // A run that ended before it read this says why on standard error.
            let _ = writeln!(line, "{text}");
        }
        Ok((child, line))
    }
}

/// How the process of a run ended.
enum Outcome {
    /// As runs do: a divergence is a result like any other.
    Trained,
    /// It could not be trained, or was killed, and this is why.
    Failed(String),
}

impl Worker<'_> {
    fn outcome(&mut self, status: ExitStatus) -> Result<Outcome> {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let summary = Summary::read(&self.run.folder).ok();
        let diverged = summary.is_some_and(|summary| summary.ended == Ended::Diverged);
        // Ctrl-C may reach a run before it has a group of its own: it is gone on with like any other.
        let interrupted = matches!(status.code(), Some(130 | 143)) || is_asked_to_end(status);
        if status.success() || diverged || interrupted {
            return Ok(Outcome::Trained);
        }
        let name = self.run.folder.name();
        let line =
            said.lines().rfind(|line| line.starts_with("error: ")).map(|line| &line["error: ".len()..]);
        let problem = line.map_or_else(|| format!("its process ended with {status}"), str::to_string);
        let message = format!("trial {name}: {problem}");
        match status.code() {
            // A panic says what it has to say on a line of its own.
            Some(CANNOT_BE_TRAINED | 101) => Ok(Outcome::Failed(problem)),
            // As the system does where memory runs out.
            None => Ok(Outcome::Failed(format!("{problem}: the memory may not suffice for it"))),
            Some(2) => Err(Error::Input(message)),
            Some(_) => Err(Error::Failed(message)),
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // Only after a panic of the study is a run still there: it ends with its line.
        self.line = None;
        let _ = self.child.wait();
    }
}

/// Whether a process ended by a signal that asks politely: of Ctrl-C, a closed terminal, a shutdown.
fn is_asked_to_end(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return matches!(std::os::unix::process::ExitStatusExt::signal(&status), Some(1 | 2 | 15));
    #[cfg(not(unix))]
    return false;
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{BackendName, Config};
    use crate::training::RunFolder;

    /// A program that takes the place of this one, whose runs do what `script` says in the folder `place`.
    fn program(place: &Path, script: &str) -> PathBuf {
        let program = place.join("program");
        let text = format!("#!/bin/sh\ncd '{}'\nread errand\n{script}\n", place.display());
        // Written by a process of its own: what this one still had open for writing could not be started.
        let writes = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"", "sh"])
            .args([text.as_str(), program.to_str().unwrap()])
            .status();
        assert!(writes.unwrap().success());
        program
    }

    /// Why each of some runs failed, by their order; none of those that did not.
    fn train(script: &str, runs: usize, jobs: usize) -> Vec<(usize, Option<String>)> {
        let place = tempfile::tempdir().unwrap();
        let device = Device::processor(BackendName::Ndarray);
        let workers = Workers { program: program(place.path(), script), device, jobs };
        let run = |trial: usize| DueRun {
            trial,
            seed: 0,
            folder: RunFolder::at(place.path().join(trial.to_string())),
            config: Config::default(),
            pause_at: None,
            data: None,
        };
        let runs = (0..runs).map(run).collect::<Vec<_>>();
        let mut ended = Vec::new();
        let happened = workers.train(&runs, &AtomicUsize::new(0), |run, why| {
            ended.push((run.trial, why));
            Ok(())
        });
        assert_eq!(happened.unwrap(), Happened::Done);
        ended.sort();
        ended
    }

    #[test]
    fn a_run_that_fails_beside_others_alone_is_trained_when_they_are_done() {
        let has_no_room_beside_others =
            "mkdir busy 2>/dev/null || { echo 'error: no room' >&2; exit 3; }; sleep 0.3; rmdir busy";
        let ended = train(has_no_room_beside_others, 3, 3);
        assert_eq!(ended, [(0, None), (1, None), (2, None)]);
    }

    #[test]
    fn a_run_that_fails_twice_is_told_of_once_and_tried_no_more() {
        let ended = train("echo tried >> tries; echo \"error: $(wc -l < tries)\" >&2; exit 3", 1, 2);
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].1.as_deref().map(str::trim), Some("2"));
    }
}
