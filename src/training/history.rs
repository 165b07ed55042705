//! The open `metrics.csv` of a run, which grows row by row.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::metrics::{HEADER, OBJECTIVE, Row, Split, parse};
use crate::error::{Error, Result};
use crate::files::{HASH_MISMATCH, digits, open_own_to_write, read_own};

/// The open `metrics.csv` of a run.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    /// `None` on a worker that only reads the file.
    file: Option<File>,
    /// The bytes of all rows.
    pub bytes: u64,
    /// The hash of these bytes, updated with each row.
    pub hash: Sha256,
    /// All rows since the start of the run.
    pub rows: Vec<Row>,
    /// True if the file has a column for the smoothed objective.
    has_objective: bool,
    /// The number of steps with clipped gradients, and the number of all steps.
    clipped: (u64, u64),
    /// The same numbers since the last training row.
    clipped_since_row: (u64, u64),
}

/// The part of a checkpoint that belongs to `metrics.csv`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsPart {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The SHA-256 of these bytes.
    #[serde(default)]
    pub sha256: Option<String>,
    /// The number of steps with clipped gradients, and the number of all steps.
    #[serde(default)]
    pub clipped: (u64, u64),
    /// The same numbers since the last training row.
    #[serde(default)]
    pub clipped_since_row: (u64, u64),
}

impl MetricsPart {
    /// The name of the part in a checkpoint.
    pub const NAME: &str = "metrics";
}

impl History {
    /// Creates a file with its header, and returns its part of a checkpoint.
    pub fn create(path: &Path, has_objective: bool) -> Result<Value> {
        let header = if has_objective { format!("{HEADER},{OBJECTIVE}\n") } else { format!("{HEADER}\n") };
        fs::write(path, &header).map_err(|error| Error::io("write", path, error))?;
        let part = MetricsPart { bytes: header.len() as u64, ..MetricsPart::default() };
        Ok(serde_json::to_value(part).expect("plain values"))
    }

    /// Opens the file of a run that resumes, up to the length in a checkpoint's `part`. Changes nothing yet: call
    /// [`cut`](Self::cut) before the first row. If the file `is_shared`, worker 0 writes it, and this worker keeps rows
    /// in memory only.
    ///
    /// # Errors
    /// If rows are missing, differ from the rows that the run wrote, or cannot be parsed.
    pub fn open(path: &Path, part: MetricsPart, is_shared: bool) -> Result<Self> {
        let MetricsPart { bytes, sha256: written, clipped, clipped_since_row } = part;
        let text = read_own(path)?;
        let Some(kept) = text.get(..bytes as usize) else {
            let problem = format!(
                "has {} bytes but the checkpoint expects {bytes}: rows are missing, so the run cannot \
                resume; restore the file, or start another run from its weights with train --from RUN",
                text.len()
            );
            return Err(Error::file(path, problem));
        };
        let hash = Sha256::new_with_prefix(kept);
        if written.is_some_and(|written| written != digits(&hash)) {
            return Err(Error::file(path, HASH_MISMATCH));
        }
        let file = (!is_shared).then(|| open_own_to_write(path, &mut File::options())).transpose()?;
        let has_objective = !kept.starts_with(format!("{HEADER}\n").as_bytes());
        let rows = parse(kept, path)?;
        let path = path.to_path_buf();
        Ok(Self { path, file, bytes, hash, rows, has_objective, clipped, clipped_since_row })
    }

    /// Removes the rows after the checkpoint from the file; the run repeats their steps.
    pub fn cut(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let cut = file.set_len(self.bytes).and_then(|()| file.seek(SeekFrom::End(0)));
        cut.map(drop).map_err(|error| Error::io("truncate", &self.path, error))
    }

    /// Appends a row.
    pub fn push(&mut self, row: Row) -> Result<()> {
        // A run that started without label smoothing has no column for the objective.
        let row = Row { objective: row.objective.filter(|_| self.has_objective), ..row };
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        writer.serialize(&row).expect("a row holds plain values");
        let mut line = writer.into_inner().expect("a row fits into memory");
        if !self.has_objective {
            line.truncate(line.len() - ",\n".len());
            line.push(b'\n');
        }
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(&line));
        written.map_err(|error| Error::io("write", &self.path, error))?;
        self.bytes += line.len() as u64;
        self.hash.update(&line);
        self.rows.push(row);
        Ok(())
    }

    /// Counts a step, with or without clipped gradients.
    pub fn count_clipped(&mut self, is_clipped: bool) {
        for (clipped, all) in [&mut self.clipped, &mut self.clipped_since_row] {
            *clipped += u64::from(is_clipped);
            *all += 1;
        }
    }

    /// Returns the share of steps with clipped gradients since the last training row, and restarts the count.
    pub fn take_clip_rate(&mut self) -> f64 {
        share(std::mem::take(&mut self.clipped_since_row))
    }

    /// Returns the share of all steps with clipped gradients.
    pub fn clip_rate(&self) -> f64 {
        share(self.clipped)
    }

    /// Returns the part of `metrics.csv` in a checkpoint.
    pub fn part(&self) -> Value {
        let Self { bytes, clipped, clipped_since_row, .. } = *self;
        let part = MetricsPart { bytes, sha256: Some(digits(&self.hash)), clipped, clipped_since_row };
        serde_json::to_value(part).expect("plain values")
    }

    /// Returns the last row of a split.
    pub fn last(&self, split: Split) -> Option<&Row> {
        self.rows.iter().rfind(|row| row.split == split)
    }

    /// Returns a function that syncs the rows written until now to the disk, on any thread.
    pub fn sync(&self) -> Result<impl FnOnce() -> Result<()> + Send + 'static> {
        let path = self.path.clone();
        let file = self.file.as_ref().map(File::try_clone).transpose();
        let file = file.map_err(|error| Error::io("write", &path, error))?;
        let sync = move || file.map_or(Ok(()), |file| file.sync_data());
        Ok(move || sync().map_err(|error| Error::io("write", &path, error)))
    }
}

fn share((part, all): (u64, u64)) -> f64 {
    part as f64 / all.max(1) as f64
}
