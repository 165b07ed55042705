//! Decompression of gzip and Zstandard, which are recognised by the first bytes of a file.

use std::io::{self, BufRead, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The number of bytes at the start of a file that identify its compression.
pub(super) const SIGNATURE_BYTES: usize = 4;

/// The extensions of compressed files.
const EXTENSIONS: [&str; 4] = ["gz", "gzip", "zst", "zstd"];

/// A compression of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstandard,
}

impl Compression {
    /// Returns the compression of a file by its first bytes. No UTF-8 text begins with bytes of these formats.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstandard),
            // A frame to skip, with which pzstd begins its files.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstandard),
            _ => None,
        }
    }

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstandard => "Zstandard",
        }
    }

    /// Returns the command that writes the content of a file to standard output.
    pub fn command(self) -> &'static str {
        match self {
            Self::Gzip => "gunzip -c",
            Self::Zstandard => "zstd -dc",
        }
    }

    /// Returns a reader of the content: all members of gzip, or all frames of Zstandard.
    pub fn reader<'a>(self, input: impl BufRead + Send + 'a) -> Box<dyn Read + Send + 'a> {
        match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(input)),
            Self::Zstandard => Box::new(Frames { input, decoder: FrameDecoder::new(), is_open: false }),
        }
    }
}

/// Returns true if the error of a reader is caused by the compressed data, not by the system.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof)
}

/// Returns a path without the extension of a compressed file: `a.csv` for `a.csv.gz`.
pub fn without_compression(path: &Path) -> PathBuf {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match EXTENSIONS.iter().any(|compressed| extension.eq_ignore_ascii_case(compressed)) {
        true => path.with_extension(""),
        false => path.to_path_buf(),
    }
}

/// A reader of all frames of a Zstandard file.
struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    /// True between the header and the last byte of a frame.
    is_open: bool,
}

impl<R: BufRead> Frames<R> {
    /// Opens the next frame, and skips frames without content. Returns false at the end of the file.
    fn open(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_open {
                self.is_open = self.open()?;
                if !self.is_open {
                    return Ok(0);
                }
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.input, one).map_err(damaged)?;
                continue;
            }
            let written = self.decoder.get_checksum_from_data();
            if written.is_some() && written != self.decoder.get_calculated_checksum() {
                return Err(damaged("the checksum does not match"));
            }
            self.is_open = false;
        }
    }
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    /// Returns bytes compressed with gzip.
    pub fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns bytes compressed with Zstandard.
    pub fn zstandard(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        Compression::of(bytes).unwrap().reader(bytes).read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn members_and_frames_are_read_whole() {
        let (first, second) = ("to be, ".repeat(30_000), "or not to be");
        let whole = [first.as_bytes(), second.as_bytes()].concat();
        let skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc";
        let frames = [skipped, &zstandard(first.as_bytes())[..], skipped, &zstandard(second.as_bytes())];
        assert_eq!(read(&frames.concat()).unwrap(), whole);
        let members = [gzip(first.as_bytes()), gzip(b""), gzip(second.as_bytes())];
        assert_eq!(read(&members.concat()).unwrap(), whole);
    }

    #[test]
    fn truncation_and_damage_are_errors() {
        let text = (0..3_000_u32).map(|i| format!("{} ", i.wrapping_mul(2_654_435_761))).collect::<String>();
        for packed in [gzip(text.as_bytes()), zstandard(text.as_bytes())] {
            for end in [5, 11, packed.len() / 2, packed.len() - 1] {
                assert!(is_damage(&read(&packed[..end]).unwrap_err()), "{end} of {}", packed.len());
            }
            for at in [packed.len() / 3, packed.len() / 2, packed.len() - 6] {
                let mut damaged = packed.clone();
                damaged[at] ^= 0x55;
                assert!(read(&damaged).is_err(), "{at} of {}", packed.len());
            }
            assert!(read(&[&packed[..], b"more"].concat()).is_err());
        }
    }

    #[test]
    fn the_inner_extension_remains() {
        let inner = |path: &str| without_compression(Path::new(path)).display().to_string();
        let paths = ["a.csv.gz", "b/a.txt.ZST", "a.jsonl.zstd", "a.gz", "a.csv", "gz"].map(inner);
        assert_eq!(paths, ["a.csv", "b/a.txt", "a.jsonl", "a", "a.csv", "gz"]);
    }
}
