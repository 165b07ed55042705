//! The token cache: a text that is larger than memory is tokenised once, into a file from which training reads windows.
//!
//! The name of the file is a hash of the text and its vocabulary. While a text is tokenised, its file has another name,
//! and its header counts the rounds that are complete; a process that was killed continues after the last of them. The
//! complete file is published by one rename.
//!
//! ```text
//! magic  bytes per id  rounds  ids  hash of the ids   (eight bytes each, 64 bytes in total)   ids ...
//! ```

use std::fs::{self, File as SystemFile, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use super::File;
use super::encoding::{self, Sink};
use crate::data::config::{Cache, DataConfig};
use crate::data::ids::{Bytes, Ids, IdsInFile, Integer, mix};
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{self, digits, sync_folder, with_remedy};
use crate::numbers::{Bytes as Size, clock};

/// The size in bytes from which a text is cached by default: its tokens need up to twice as much memory.
const MIN_BYTES: usize = 1 << 28;

/// The folder of the cache by default.
const DEFAULT_FOLDER: &str = "runs/.tokens";

/// The first bytes of a cache file, with the version of its format and of the rounds.
const MAGIC: u64 = u64::from_le_bytes(*b"tokens\0\x01");

/// The size of the header in bytes.
const HEADER: u64 = 64;

/// The time between updates of the header: a process that is killed loses no more work.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// The time between reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// Returns the folder in which a text of `bytes` bytes is cached; `None` if its tokens are kept in memory.
pub(super) fn folder(config: &DataConfig, bytes: usize) -> Option<PathBuf> {
    match &config.cache {
        Cache::Folder(folder) => Some(folder.clone()),
        Cache::Auto if bytes >= MIN_BYTES => Some(DEFAULT_FOLDER.into()),
        Cache::Auto | Cache::None => None,
    }
}

/// Returns the ids of a text of `bytes` bytes from the cache in `folder`. A text that the cache lacks is tokenised.
///
/// # Errors
/// Returns an error if the text cannot be read or encoded, or changes meanwhile, or if the cache cannot be written.
pub(super) fn ids(
    config: &DataConfig,
    folder: &Path,
    files: &[File],
    bytes: usize,
    vocabulary: &Vocabulary,
) -> Result<Ids> {
    if let Err(error) = fs::create_dir_all(folder) {
        let error = Error::io("create", folder, error);
        if config.cache == Cache::Auto {
            log::info!("{error}; the tokens are kept in memory, because `data.cache` cannot be written");
            return encoding::in_memory(files, bytes, vocabulary).map(|(ids, _)| ids);
        }
        return Err(error);
    }
    let before = states(files)?;
    let text = Cached::of(folder, files, vocabulary)?;
    if let Some(ids) = text.read()? {
        return Ok(Ids::File(ids));
    }
    text.tokenise(config.path.first(), files, bytes, vocabulary, &before)?;
    let unreadable =
        || Error::file(&text.complete, "cannot be read back; check the disk, or set `data.cache`");
    Ok(Ids::File(text.read()?.ok_or_else(unreadable)?))
}

/// Returns the size and the time of the last change of each file.
fn states(files: &[File]) -> Result<Vec<(u64, Option<SystemTime>)>> {
    let state = |file: &File| {
        let path = &file.text.path;
        let data = fs::metadata(path).map_err(|error| Error::io("read", path, error))?;
        Ok((data.len(), data.modified().ok()))
    };
    // A stream is in memory, and its pipe may be closed.
    files.iter().filter(|file| file.text.stream.is_none()).map(state).collect()
}

/// The files of a text in the cache.
struct Cached {
    complete: PathBuf,
    /// The file during tokenisation.
    partial: PathBuf,
    vocab: usize,
}

impl Cached {
    /// Names the files by a hash of the texts and the vocabulary.
    fn of(folder: &Path, files: &[File], vocabulary: &Vocabulary) -> Result<Self> {
        let mut hash = Sha256::new_with_prefix(MAGIC.to_le_bytes());
        let json = serde_json::to_vec(vocabulary).expect("a vocabulary holds plain values");
        hash.update((json.len() as u64).to_le_bytes());
        hash.update(&json);
        for file in files {
            hash.update([u8::from(file.is_closed)]);
            hash.update((file.bytes as u64).to_le_bytes());
            file.text.hash(&mut hash)?;
        }
        let name = &digits(&hash)[..32];
        let [complete, partial] = ["ids", "part"].map(|extension| folder.join(format!("{name}.{extension}")));
        Ok(Self { complete, partial, vocab: vocabulary.size() })
    }

    /// Returns the ids of the complete file; `None` if it does not exist, or is damaged.
    fn read(&self) -> Result<Option<IdsInFile>> {
        let path = &self.complete;
        let Ok(mut file) = SystemFile::open(path) else { return Ok(None) };
        let length = file.metadata().map_err(|error| Error::io("read", path, error))?.len();
        let header = CacheHeader::read(&mut file).filter(|header| header.length() == length);
        let ids = header.map(|header| IdsInFile {
            bytes: Arc::new(Bytes::File(file)),
            path: path.clone(),
            integer: Integer::unsigned(header.bytes as usize),
            start: HEADER,
            count: header.ids as usize,
            rows: None,
        });
        if let (Some(header), Some(ids)) = (header, ids) {
            let all = Ids::File(ids.clone());
            let (hash, largest) = all
                .iter(0..ids.count)
                .fold((0, 0), |(hash, largest), id| (mix(hash, id.into()), id.max(largest)));
            if hash == header.hash && (largest as usize) < self.vocab {
                return Ok(Some(ids));
            }
        }
        log::warn!("{}: is damaged, so the text is tokenised again", path.display());
        fs::remove_file(path).map_err(|error| Error::io("remove", path, error))?;
        Ok(None)
    }

    /// Tokenises the text into the partial file, from its last complete round on, and publishes the file.
    fn tokenise(
        &self,
        text: &Path,
        files: &[File],
        bytes: usize,
        vocabulary: &Vocabulary,
        before: &[(u64, Option<SystemTime>)],
    ) -> Result<()> {
        let io = |error| self.failed(error);
        let mut options = SystemFile::options();
        let file =
            options.read(true).write(true).create(true).truncate(false).open(&self.partial).map_err(io)?;
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            log::info!("{}: another process is tokenising this text; waiting for it", text.display());
            file.lock().map_err(io)?;
        }
        // Another process may have published the file meanwhile.
        if self.complete.exists() {
            return Ok(());
        }
        let mut writer = Writer::resume(file, self, text, bytes, vocabulary.size()).map_err(io)?;
        writer.announce();
        encoding::encode(files, vocabulary, &mut writer)?;
        writer.finish().map_err(io)?;
        if states(files)? != before {
            let _ = fs::remove_file(&self.partial);
            let problem = "has changed while it was tokenised; repeat the command when it is complete";
            return Err(Error::file(text, problem));
        }
        fs::rename(&self.partial, &self.complete).map_err(io)?;
        sync_folder(files::parent_of(&self.complete));
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        let remedy =
            "free some space and repeat the command, or set `data.cache` to a folder on another disk";
        with_remedy(Error::io("write", &self.partial, error), remedy)
    }
}

/// The header of a cache file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CacheHeader {
    /// The bytes per id: 2 or 4.
    bytes: u64,
    rounds: u64,
    ids: u64,
    hash: u64,
}

impl CacheHeader {
    fn read(file: &mut SystemFile) -> Option<Self> {
        let mut bytes = [0; HEADER as usize];
        file.rewind().and_then(|()| file.read_exact(&mut bytes)).ok()?;
        let word = |index: usize| u64::from_le_bytes(bytes.as_chunks().0[index]);
        let header = Self { bytes: word(1), rounds: word(2), ids: word(3), hash: word(4) };
        (word(0) == MAGIC && matches!(header.bytes, 2 | 4)).then_some(header)
    }

    fn to_bytes(self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        let words = [MAGIC, self.bytes, self.rounds, self.ids, self.hash];
        bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        bytes
    }

    /// Returns the length of the file with these ids, in bytes.
    fn length(&self) -> u64 {
        self.ids.saturating_mul(self.bytes).saturating_add(HEADER)
    }
}

/// Writes ids to a partial file, and reports the progress.
struct Writer<'a> {
    file: SystemFile,
    text: &'a Path,
    cached: &'a Cached,
    /// The written rounds and ids.
    header: CacheHeader,
    /// The number of rounds that were read: fewer than in the header while a resumed process skips them.
    rounds: u64,
    buffer: Vec<u8>,
    /// The time of the last update of the header.
    updated: Instant,
    progress: CacheProgress,
}

impl<'a> Writer<'a> {
    /// Continues a partial file after its last complete round.
    fn resume(
        mut file: SystemFile,
        cached: &'a Cached,
        text: &'a Path,
        bytes: usize,
        vocab: usize,
    ) -> io::Result<Self> {
        let width = if vocab <= 1 << 16 { 2 } else { 4 };
        let length = file.metadata()?.len();
        let is_usable = |header: &CacheHeader| header.bytes == width && header.length() <= length;
        let header = CacheHeader::read(&mut file).filter(is_usable);
        let header = header.unwrap_or(CacheHeader { bytes: width, ..CacheHeader::default() });
        file.set_len(header.length())?;
        file.seek(SeekFrom::Start(header.length()))?;
        let (buffer, updated, progress) = (Vec::new(), Instant::now(), CacheProgress::new(bytes));
        Ok(Self { file, text, cached, header, rounds: 0, buffer, updated, progress })
    }

    /// Logs the beginning of the work.
    fn announce(&self) {
        let begun = match self.header.rounds {
            0 => "is tokenised",
            _ => "continues to be tokenised",
        };
        log::info!(
            "{}: its {} of text {begun} into `{}`, from which training reads the tokens; `data.cache` sets the folder",
            self.text.display(),
            Size(self.progress.all as f64),
            self.cached.complete.display()
        );
    }

    /// Makes all ids permanent. If the process is killed before it publishes the file, the next one only publishes it.
    fn finish(&mut self) -> io::Result<()> {
        self.rounds += 1;
        self.checkpoint()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the rounds up to here permanent.
    fn checkpoint(&mut self) -> io::Result<()> {
        self.flush()?;
        self.header.rounds = self.rounds.max(self.header.rounds);
        // The header must not count ids that are not on the disk yet.
        self.file.sync_data()?;
        self.file.rewind()?;
        self.file.write_all(&self.header.to_bytes())?;
        self.file.seek(SeekFrom::Start(self.header.length()))?;
        self.updated = Instant::now();
        Ok(())
    }
}

impl Sink for Writer<'_> {
    fn has_round(&self) -> bool {
        self.rounds < self.header.rounds
    }

    fn push(&mut self, ids: &[u32]) -> Result<()> {
        if self.has_round() {
            return Ok(());
        }
        for &id in ids {
            self.buffer.extend_from_slice(&id.to_le_bytes()[..self.header.bytes as usize]);
            self.header.hash = mix(self.header.hash, id.into());
        }
        self.header.ids += ids.len() as u64;
        if self.buffer.len() >= WRITE_BYTES {
            self.flush().map_err(|error| self.cached.failed(error))
        } else {
            Ok(())
        }
    }

    fn end_round(&mut self, bytes: usize) -> Result<()> {
        let is_new = !self.has_round();
        self.rounds += 1;
        if is_new && self.updated.elapsed() >= CHECKPOINT_INTERVAL {
            self.checkpoint().map_err(|error| self.cached.failed(error))?;
        }
        if let Some(progress) = self.progress.add(bytes, is_new) {
            log::info!("{}: tokenised {progress}", self.text.display());
        }
        Ok(())
    }
}

/// The number of bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The progress through a text.
struct CacheProgress {
    all: usize,
    read: usize,
    /// The bytes that this process tokenised, and the time of its first of them.
    own: usize,
    begun: Instant,
    reported: Instant,
}

impl CacheProgress {
    fn new(all: usize) -> Self {
        let now = Instant::now();
        Self { all, read: 0, own: 0, begun: now, reported: now }
    }

    /// Counts the bytes of a round, and returns a report if one is due.
    fn add(&mut self, bytes: usize, is_new: bool) -> Option<String> {
        self.read += bytes;
        match is_new {
            true => self.own += bytes,
            false => self.begun = Instant::now(),
        }
        if self.reported.elapsed() < REPORT_INTERVAL || self.own == 0 {
            return None;
        }
        self.reported = Instant::now();
        let rate = self.own as f64 / self.begun.elapsed().as_secs_f64();
        let remaining = self.all.saturating_sub(self.read) as f64 / rate;
        let [read, all] = [self.read, self.all].map(|bytes| Size(bytes as f64));
        let percent = 100 * self.read / self.all.max(1);
        Some(format!("{read} of {all} ({percent} %), {} per second, {} left", Size(rate), clock(remaining)))
    }
}

#[cfg(test)]
mod tests;
