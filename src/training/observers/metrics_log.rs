//! `metrics.csv`, which grows row by row.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Moment, Observer};
use crate::error::{Error, Result};
use crate::files::{HASH_MISMATCH, digits, open_own_to_write, read_own};
use crate::training::metrics::{HEADER, OBJECTIVE, Row, parse};
use crate::training::setup::Setup;
use crate::training::state::RunState;

/// The name of the part in a checkpoint.
pub const NAME: &str = "metrics";

/// The open `metrics.csv` of a run.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    /// `None` until the start, and on a worker that only reads the file.
    file: Option<File>,
    /// The bytes of all rows.
    bytes: u64,
    /// The hash of these bytes, updated with each row.
    hash: Sha256,
    /// True if the file has a column for the smoothed objective.
    has_objective: bool,
}

/// The part of a checkpoint that belongs to `metrics.csv`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct MetricsPart {
    /// The length of the file in bytes.
    bytes: u64,
    /// The SHA-256 of these bytes.
    sha256: String,
}

impl MetricsLog {
    /// Opens the file of a run at a checkpoint, and returns its rows up to the checkpoint. Changes nothing. The checkpoint
    /// of step 0 precedes the file, which the start creates.
    ///
    /// # Errors
    /// If rows are missing, differ from the rows that the run wrote, or cannot be parsed.
    pub fn open(setup: &Setup, state: &RunState) -> Result<(Self, Vec<Row>)> {
        let path = setup.folder.metrics();
        if !state.parts.contains_key(NAME) {
            let has_objective = setup.config.training.label_smoothing > 0.0;
            let log = Self { path, file: None, bytes: 0, hash: Sha256::new(), has_objective };
            return Ok((log, Vec::new()));
        }
        let MetricsPart { bytes, sha256: written } = state.part(NAME)?;
        let text = read_own(&path)?;
        let Some(kept) = text.get(..bytes as usize) else {
            let problem = format!(
                "has {} bytes but the checkpoint expects {bytes}: rows are missing, so the run cannot \
                resume; restore the file, or start another run from its weights with train --from RUN",
                text.len()
            );
            return Err(Error::file(&path, problem));
        };
        let hash = Sha256::new_with_prefix(kept);
        if written != digits(&hash) {
            return Err(Error::file(&path, HASH_MISMATCH));
        }
        let has_objective = !kept.starts_with(format!("{HEADER}\n").as_bytes());
        let rows = parse(kept, &path)?;
        Ok((Self { path, file: None, bytes, hash, has_objective }, rows))
    }
}

impl MetricsLog {
    fn write(&mut self, line: &[u8]) -> Result<()> {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(line));
        written.map_err(|error| Error::io("write", &self.path, error))?;
        self.bytes += line.len() as u64;
        self.hash.update(line);
        Ok(())
    }
}

impl Observer for MetricsLog {
    fn file(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    /// Removes the rows after the checkpoint; the run repeats their steps. Writes the header of a new file.
    fn start(&mut self, _moment: &Moment<'_>) -> Result<()> {
        let mut file = open_own_to_write(&self.path, File::options().create(true))?;
        let cut = file.set_len(self.bytes).and_then(|()| file.seek(SeekFrom::End(0)));
        cut.map_err(|error| Error::io("truncate", &self.path, error))?;
        self.file = Some(file);
        match (self.bytes, self.has_objective) {
            (0, true) => self.write(format!("{HEADER},{OBJECTIVE}\n").as_bytes()),
            (0, false) => self.write(format!("{HEADER}\n").as_bytes()),
            _ => Ok(()),
        }
    }

    fn row(&mut self, rows: &[Row]) -> Result<()> {
        let Some(row) = rows.last() else { return Ok(()) };
        // A run that started without label smoothing has no column for the objective.
        self.write(&row.line(self.has_objective))
    }

    fn part(&self) -> Option<(&'static str, Value)> {
        let part = MetricsPart { bytes: self.bytes, sha256: digits(&self.hash) };
        Some((NAME, serde_json::to_value(part).expect("plain values")))
    }
}
