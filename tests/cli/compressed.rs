//! Compressed texts and tables, which are read as their content, and archives, which are refused.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::Value;
use tempfile::TempDir;

use crate::{SMALL, program, text, train};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Returns the description of a file by `data --json`, without its name.
fn described(folder: &Path, file: &str) -> Value {
    let output =
        program(folder).args(["data", "--json", "--set", &format!("data.path={file}")]).output().unwrap();
    assert!(output.status.success(), "{file}: {}", text(&output.stderr));
    let mut described: Value = serde_json::from_slice(&output.stdout).unwrap();
    described["name"] = Value::Null;
    described["text"]["first"] = Value::Null;
    described
}

/// Returns the one-line error of `data` for a file.
fn refused(folder: &Path, file: &str) -> String {
    let output = program(folder).args(["data", "--set", &format!("data.path={file}")]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{file}: {stderr}");
    stderr
}

fn table() -> String {
    (0..90).map(|row| format!("{}\t{}\t{}\n", row % 7, 40 - row % 5, row % 3)).collect()
}

#[test]
fn compressed_files_are_read_as_their_content() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let words = "to be or not to be, that is the question.\n".repeat(300);
    let json = (0..90).map(|row| format!("[{}, {}]\n", row % 7, row % 5)).collect::<String>();
    for (name, content) in [("rates.tsv", table()), ("rows.jsonl", json), ("words.txt", words)] {
        let (first, second) = content.as_bytes().split_at(content.len() / 2);
        fs::write(folder.join(name), &content).unwrap();
        fs::write(folder.join(format!("{name}.gz")), [gzip(first), gzip(second)].concat()).unwrap();
        fs::write(folder.join(format!("{name}.zst")), [zstandard(first), zstandard(second)].concat())
            .unwrap();
        let plain = described(folder, name);
        for extension in ["gz", "zst"] {
            assert_eq!(described(folder, &format!("{name}.{extension}")), plain, "{name}.{extension}");
        }
    }
    let output = train(folder, &[&SMALL[7..], &["data.path=rates.tsv.gz", "training.steps=3"]].concat(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(folder.join("runs/rates-decoder").is_dir(), "the run is named after the content");
}

#[cfg(unix)]
#[test]
fn a_compressed_pipe_is_read() {
    let dir = TempDir::new().unwrap();
    for packed in [gzip(table().as_bytes()), zstandard(table().as_bytes())] {
        let mut command = program(dir.path());
        command.args(["data", "--json", "--set", "data.path=/dev/stdin", "--set", "data.source=table"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&packed).unwrap();
        let output = child.wait_with_output().unwrap();
        let described: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&described["vocab"], &described["table"]["delimiter"]), (&41.into(), &"tab".into()));
    }
}

#[test]
fn damaged_and_truncated_files_are_named() {
    let dir = TempDir::new().unwrap();
    let words =
        (0..4_000).map(|word: u32| format!("{} ", word.wrapping_mul(2_654_435_761))).collect::<String>();
    for (name, packed) in [("a.txt.gz", gzip(words.as_bytes())), ("a.txt.zst", zstandard(words.as_bytes()))] {
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 0x55;
        for bytes in [&packed[..packed.len() - 9], &packed[..20], &damaged] {
            fs::write(dir.path().join(name), bytes).unwrap();
            let stderr = refused(dir.path(), name);
            assert!(stderr.starts_with(&format!("error: {name}: is compressed with ")), "{stderr}");
            assert!(
                stderr.contains("is incomplete or damaged") && stderr.contains("copy or download it"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn archives_are_refused_with_a_command() {
    let dir = TempDir::new().unwrap();
    let tar = [&b"a.txt"[..], &[0; 252], b"ustar\x0000", &[0; 248]].concat();
    let latin = "Dès Noël, un zéphyr haï me vêt de glaçons würmiens.\n".repeat(9);
    let latin = latin.chars().map(|character| character as u8).collect::<Vec<_>>();
    for (name, bytes, command) in [
        (
            "a.tar.gz",
            gzip(&tar),
            "a tar archive; unpack it with `tar xf a.tar.gz`, and pass one of its files\n",
        ),
        ("a.tar.zst", zstandard(&tar), "unpack it with `tar xf a.tar.zst`"),
        ("a.zip", b"PK\x03\x04\x14\0\0\0\x08\0".to_vec(), "a zip archive"),
        (
            "a.txt.bz2",
            b"BZh91AY&SY\x01\xff\0".to_vec(),
            "bzip2; unpack it with `bzip2 -dc a.txt.bz2 > a.txt`",
        ),
        ("a.txt.xz", b"\xfd7zXZ\0\0\x04".to_vec(), "xz; unpack it with `xz -dc a.txt.xz > a.txt`"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "a 7-Zip archive; unpack it with `7z x a.7z`"),
        ("l.txt.gz", gzip(&latin), "l.txt > l.utf8.txt`"),
        ("l.txt.gz", gzip(&latin), "; unpack it first with `gunzip -c l.txt.gz > l.txt`\n"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
        let stderr = refused(dir.path(), name);
        assert!(stderr.contains(command), "{name}: {stderr}");
    }
}
