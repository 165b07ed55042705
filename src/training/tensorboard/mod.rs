//! The event file of a run for TensorBoard: the curves during training, and the config and pictures at the end.
//!
//! Each row of `metrics.csv` has one event, in the same order, with the same values and the time of writing. A run that
//! resumes keeps the events of its remaining rows, removes later events, and writes missing ones. Every step therefore
//! appears exactly once, no matter when the run was killed. The file is never replaced by another one, because a
//! running TensorBoard would miss the new file.

mod event;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use self::event::{Value, begins_with, event, events, record, version_event, without_time};
use super::metrics::{Row, Split, read as read_metrics};
use super::run_folder::RunFolder;
use crate::error::{Error, Result, ensure};
use crate::files::{Text, has_entry, open_own_to_write, read_own};

/// The tag of the first value of the event with config and pictures.
const CONFIG: &str = "config";

/// The open event file of a run.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
    /// The end of the last row's event, in bytes.
    rows_end: u64,
}

impl EventFile {
    /// Opens the file and updates it to the events of `rows`, the last of which was written at the time `now`. Events
    /// of these rows that the file already holds are kept unchanged.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(path: PathBuf, rows: &[Row], now: SystemTime) -> Result<Self> {
        let held = if has_entry(&path) { read_own(&path)? } else { Vec::new() };
        let (mut end, mut rows_end, mut known) = (0, 0, 0);
        for (index, (found, after)) in events(&held).enumerate() {
            let is_row =
                known < rows.len() && without_time(found) == without_time(&scalars(rows, known, 0.0));
            let has_pictures = known > 0 && begins_with(found, rows[known - 1].step as u64, CONFIG);
            let is_version = index == 0 && without_time(found) == without_time(&version_event(0.0));
            known += usize::from(is_row);
            match is_row || is_version {
                true => rows_end = after,
                false if has_pictures => {}
                false => break,
            }
            end = after;
        }
        let io = |error| Error::io("write", &path, error);
        let mut file = open_own_to_write(&path, File::options().create(true))?;
        file.set_len(end as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io)?;
        let mut opened = Self { path, file, rows_end: rows_end as u64 };
        let now = seconds(now);
        if end == 0 {
            opened.write_row(&version_event(now))?;
        }
        let last = rows.last().map_or(0.0, |row| row.seconds);
        (known..rows.len()).try_for_each(|index| {
            opened.write_row(&scalars(rows, index, now - (last - rows[index].seconds)))
        })?;
        Ok(opened)
    }

    /// Appends the last of `rows`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push(&mut self, rows: &[Row]) -> Result<()> {
        self.write_row(&scalars(rows, rows.len() - 1, seconds(SystemTime::now())))
    }

    /// Writes config and pictures (names and bytes of PNGs) at a step, in place of earlier ones.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write_pictures(&mut self, step: usize, config: &str, pictures: &[(String, Vec<u8>)]) -> Result<()> {
        let io = |error| Error::io("write", &self.path, error);
        self.file.set_len(self.rows_end).and_then(|()| self.file.seek(SeekFrom::End(0))).map_err(io)?;
        // In Markdown, four spaces mark a line of code.
        let config: String = config.lines().map(|line| format!("    {line}\n")).collect();
        let pictures = pictures.iter().map(|(tag, png)| (tag.as_str(), Value::Png(png)));
        let values: Vec<_> = [(CONFIG, Value::Text(&config))].into_iter().chain(pictures).collect();
        self.write(&event(seconds(SystemTime::now()), step as u64, &values))
    }

    fn write_row(&mut self, event: &[u8]) -> Result<()> {
        self.write(event)?;
        self.rows_end = self.file.stream_position().map_err(|error| Error::io("write", &self.path, error))?;
        Ok(())
    }

    fn write(&mut self, event: &[u8]) -> Result<()> {
        self.file.write_all(&record(event)).map_err(|error| Error::io("write", &self.path, error))
    }
}

/// Writes the curves, config and pictures of the run in `folder` into the event file at `path`. If the file exists,
/// adds the missing events.
///
/// # Errors
/// If the run has no curves, or a file cannot be read or written.
pub fn write_events(folder: &RunFolder, path: PathBuf) -> Result<()> {
    ensure(!folder.is_imported(), Error::Input, || {
        format!("the run `{}` was imported, so it lacks curves; pass a trained run", folder.path().display())
    })?;
    let rows = read_metrics(&folder.metrics())?;
    let metrics = folder.metrics();
    let written = fs::metadata(&metrics).and_then(|data| data.modified());
    let written = written.map_err(|error| Error::io("read", &metrics, error))?;
    let config = Text::open_own(&folder.config())?.read_to_string()?;
    let mut pictures = Vec::new();
    for entry in fs::read_dir(folder.plots()).into_iter().flatten().flatten() {
        let picture = entry.path();
        if picture.extension().is_some_and(|extension| extension == "png") {
            let name = picture.file_stem().unwrap_or_default().to_string_lossy();
            pictures.push((format!("plots/{name}"), read_own(&picture)?));
        }
    }
    pictures.sort();
    let last = rows.last().map_or(0, |row| row.step);
    EventFile::open(path, &rows, written)?.write_pictures(last, &config, &pictures)
}

/// Returns the event of a row, with the speed since the previous row of training.
fn scalars(rows: &[Row], index: usize, time: f64) -> Vec<u8> {
    let row = &rows[index];
    let value = |tag, value: f64| (tag, Value::Scalar(value as f32));
    let values = match row.split {
        Split::Valid => vec![value("loss/valid", row.loss), value("accuracy/valid", row.accuracy)],
        Split::Train => {
            let before = rows[..index].iter().rev().find(|before| before.split == Split::Train);
            let (tokens, since) = before.map_or((0, 0.0), |before| (before.tokens, before.seconds));
            let speed = row.tokens.saturating_sub(tokens) as f64 / (row.seconds - since).max(1e-9);
            let values = [
                Some(value("loss/train", row.loss)),
                row.objective.map(|objective| value("loss/objective", objective)),
                Some(value("accuracy/train", row.accuracy)),
                Some(value("learning_rate", row.learning_rate)),
                row.gradient_norm.map(|norm| value("gradient_norm", norm)),
                row.clip_rate.map(|rate| value("clip_rate", rate)),
                Some(value("tokens_per_second", speed)),
            ];
            values.into_iter().flatten().collect()
        }
    };
    event(time, row.step as u64, &values)
}

/// Returns a time in seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::training::EVENTS;

    /// Returns the steps of the events in a file, in order. The flag is true if the event has config and pictures.
    fn steps(path: &Path) -> Vec<(u64, bool)> {
        let held = fs::read(path).unwrap();
        let known = |found: &[u8]| {
            let step = (0..1_000).find(|&step| {
                [CONFIG, "loss/train", "loss/valid"].iter().any(|tag| begins_with(found, step, tag))
            });
            step.map(|step| (step, begins_with(found, step, CONFIG)))
        };
        events(&held).filter_map(|(found, _)| known(found)).collect()
    }

    fn row(step: usize, split: Split) -> Row {
        let tokens = 7 * step as u64;
        let (gradient_norm, clip_rate) = (Some(0.5), None);
        let (loss, accuracy, learning_rate, seconds) = (1.0 / step as f64, 0.25, 0.001, 0.1 * step as f64);
        Row {
            step,
            epoch: 1,
            split,
            loss,
            accuracy,
            learning_rate,
            gradient_norm,
            tokens,
            seconds,
            clip_rate,
            objective: None,
        }
    }

    #[test]
    fn rows_appear_once_after_kill_and_resume() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EVENTS);
        let rows: Vec<Row> =
            (1..=5).flat_map(|step| [row(step, Split::Train), row(step, Split::Valid)]).collect();
        let now = SystemTime::now();
        let mut file = EventFile::open(path.clone(), &[], now).unwrap();
        for known in 1..=rows.len() {
            file.push(&rows[..known]).unwrap();
        }
        drop(file);
        let complete = fs::read(&path).unwrap();
        let expected: Vec<_> = rows.iter().map(|row| (row.step as u64, false)).collect();
        assert_eq!(steps(&path), expected);
        // The run is killed after any number of bytes, and resumes from the checkpoint of step 3, with six rows.
        for bytes in (0..complete.len()).step_by(7) {
            fs::write(&path, &complete[..bytes]).unwrap();
            let mut file = EventFile::open(path.clone(), &rows[..6], now).unwrap();
            assert_eq!(steps(&path), expected[..6], "{bytes}");
            let kept = fs::read(&path).unwrap();
            let same = kept.iter().zip(&complete).take_while(|(kept, written)| kept == written).count();
            assert!(
                same >= bytes.min(kept.len()).saturating_sub(300),
                "{bytes}: intact records keep their bytes"
            );
            for known in 7..=rows.len() {
                file.push(&rows[..known]).unwrap();
            }
            assert_eq!(steps(&path), expected);
        }
        // A row that has changed is not kept, nor are the events after it.
        let mut other = rows.clone();
        other[3].loss = 9.0;
        EventFile::open(path.clone(), &other[..5], now).unwrap();
        assert_eq!(steps(&path), expected[..5]);
        // The content of a file in another format is not kept either.
        fs::write(&path, "no events").unwrap();
        EventFile::open(path.clone(), &rows, now).unwrap();
        assert_eq!(steps(&path), expected);
    }

    #[test]
    fn pictures_appear_once_and_remain_after_a_resume() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EVENTS);
        let rows: Vec<Row> = (1..=4).map(|step| row(step, Split::Train)).collect();
        let open = |known: usize| EventFile::open(path.clone(), &rows[..known], SystemTime::now()).unwrap();
        let pictures = [("plots/loss".to_string(), vec![0; 100])];
        // Written twice, as after a kill.
        for _ in 0..2 {
            open(2).write_pictures(2, "[run]\nname = \"a\"", &pictures).unwrap();
        }
        assert_eq!(steps(&path), [(1, false), (2, false), (2, true)]);
        open(2).push(&rows[..3]).unwrap();
        open(4).write_pictures(4, "[run]", &pictures).unwrap();
        let all = [(1, false), (2, false), (2, true), (3, false), (4, false), (4, true)];
        assert_eq!(steps(&path), all);
        open(3);
        assert_eq!(steps(&path), all[..4], "a resume removes the pictures of later steps");
    }
}
