//! Tests the recognised formats of bytes that are not text, and the commands that convert them.

use super::*;

fn message(name: &str, bytes: &[u8]) -> String {
    let byte = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    problem(Path::new(name), None, byte, bytes, bytes)
}

fn utf32(text: &str, order: fn(u32) -> [u8; 4]) -> Vec<u8> {
    text.chars().flat_map(|character| order(character.into())).collect()
}

fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(order).collect()
}

#[test]
fn binary_formats_are_recognised() {
    for (bytes, expected) in texts_and_ids().into_iter().chain(other_formats()) {
        let message = message("a.bin", &bytes);
        assert!(message.contains(&format!("it looks like {expected}")), "{expected}: {message}");
    }
    for (name, other) in [("a.txt", "a.converted.txt"), ("a.csv.gz", "a.csv"), ("a.gz", "a.txt")] {
        assert_eq!(Names { file: name.into(), path: name.into(), packed: None }.unpacked(), other);
    }
}

fn texts_and_ids() -> Vec<(Vec<u8>, &'static str)> {
    let ids = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
    let text = "To be, or not to be: naïve 日本 🙂.\n";
    vec![
        (utf16(text, u16::to_le_bytes), "UTF-16 (little endian, without"),
        (utf16(text, u16::to_be_bytes), "UTF-16 (big endian, without"),
        (utf16(&format!("\u{feff}{text}"), u16::to_le_bytes), "UTF-16 (little endian);"),
        (utf16("天地玄黄\n宇宙洪荒\n", u16::to_le_bytes), "UTF-16 (little endian, without"),
        (utf32(text, u32::to_le_bytes), "UTF-32 (little endian, without a byte order mark); convert"),
        (utf32(text, u32::to_be_bytes), "UTF-32 (big endian, without a byte order mark); convert"),
        (utf32("天地玄黄\n宇宙洪荒\n", u32::to_le_bytes), "UTF-32 (little endian, without"),
        (utf32("Hi\n", u32::to_be_bytes), "UTF-32 (big endian, without"),
        (ids(&[18, 47, 56, 57, 58, 1, 15, 47, 0, 64]), "token ids (uint16, as nanoGPT writes them)"),
        (ids(&[5962, 22307, 25, 198, 8421, 356, 5120, 597, 2252, 11, 3285]), "token ids (uint16"),
        ([128_000u32, 9906, 1917, 13].iter().flat_map(|id| id.to_le_bytes()).collect(), "token ids (uint32)"),
        (
            [5u64, 40_000, 7, 130_000].iter().flat_map(|id| id.to_le_bytes()).collect(),
            "token ids (int64); read its ids with --set data.source=array --set data.dtype=uint64, or",
        ),
        (
            [5u16, 400, 7, 13, 900].iter().flat_map(|id| id.to_be_bytes()).collect(),
            "token ids (big-endian uint16); convert it with `od -An -v -t u2 -w2 --endian=big",
        ),
        (
            [20_240_520u32, 1, 0, 3].iter().flat_map(|id| id.to_le_bytes()).collect(),
            "token ids (uint16, as llm.c writes them after a header of 1,024 bytes); read its ids with --set \
             data.source=array, or",
        ),
    ]
}

fn other_formats() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (b"\x1f\x8b\x08\x08\x00\x00".to_vec(), "gzip; unpack it with `gunzip -c"),
        (b"PK\x03\x04\x14\x00".to_vec(), "a zip archive"),
        ([vec![b'a'; 257], b"ustar\x0000".to_vec()].concat(), "a tar archive; unpack it with `tar xf"),
        (
            b"PK\x03\x04\x14\x00\x00\x00\x08\x00zzzz[Content_Types].xml\x00".to_vec(),
            "an Excel or Word file; save",
        ),
        (b"\x80\x04\x95\xf0\x00\x00".to_vec(), "a Python pickle; convert"),
        (
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (50, 6), }".to_vec(),
            "a NumPy array; floats are not tokens",
        ),
        (
            b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (50, 6), }".to_vec(),
            "a NumPy array; read its ids with --set data.source=array",
        ),
        (b"SQLite format 3\0".to_vec(), "an SQLite database; export a table with `sqlite3 -header"),
        (
            b"\x89HDF\r\n\x1a\n\0".to_vec(),
            "HDF5; convert it with `python3 -c 'import sys, pandas; pandas.read_hdf",
        ),
        (b"RIFF\x24\x08\0\0WAVEfmt \0".to_vec(), "a WAV recording; write its samples as numbers"),
        (b"ORC\0\0".to_vec(), "ORC; convert it with"),
        (b"MThd\0\0\0\x06".to_vec(), "a MIDI file; write its notes"),
        (b"PAR1\x15\x04\x15\x00".to_vec(), "Parquet; "),
        (b"ARROW1\0\0\xff\xff\xff\xff".to_vec(), "Arrow; "),
        (b"\xff\xff\xff\xff\x18\x01\0\0".to_vec(), "Arrow; "),
    ]
}

#[test]
fn nul_bytes_in_text_are_located() {
    let one = format!("{}\0end", "word ".repeat(30));
    assert!(
        message("a", one.as_bytes())
            .contains("a NUL byte at byte 150, which is not text; remove it with `tr")
    );
    for separated in [b"hello\0world ".repeat(30), b"PATH=/usr/bin\0HOME=/root\0LANG=C.UTF-8\0".repeat(9)] {
        let message = message("a.txt", &separated);
        assert!(
            message.contains("which are not text; convert them to line breaks with `tr '\\000' '\\n' <"),
            "{message}"
        );
    }
    assert!(message("a", &[0; 64]).starts_with("is not text: it contains NUL bytes, the first at byte 0"));
}

#[test]
fn single_byte_encodings_are_guessed_by_language() {
    // "Съешь же ещё этих мягких французских булок" in KOI8-R and in windows-1251.
    let koi8 = b"\xf3\xdf\xc5\xdb\xd8 \xd6\xc5 \xc5\xdd\xa3 \xdc\xd4\xc9\xc8 \xcd\xd1\xc7\xcb\xc9\xc8 \
        \xc6\xd2\xc1\xce\xc3\xd5\xda\xd3\xcb\xc9\xc8 \xc2\xd5\xcc\xcf\xcb";
    let ansi = b"\xd1\xfa\xe5\xf8\xfc \xe6\xe5 \xe5\xf9\xb8 \xfd\xf2\xe8\xf5 \xec\xff\xe3\xea\xe8\xf5 \
        \xf4\xf0\xe0\xed\xf6\xf3\xe7\xf1\xea\xe8\xf5 \xe1\xf3\xeb\xee\xea";
    let french = b"D\xe9claration universelle des droits de l'homme, \xe9gaux en dignit\xe9. \xc0 \
        l'\xe9t\xe9, f\xeate tr\xe8s gaie.";
    for (bytes, encoding) in
        [(&koi8[..], "KOI8-"), (&ansi[..], "windows-1251"), (&french[..], "windows-1252")]
    {
        let message = message("a b.txt", bytes);
        assert!(message.contains(&format!("its encoding may be {encoding}")), "{message}");
        let is_command =
            message.contains("`iconv -f ") && message.contains("-t UTF-8 FILE > FILE.utf8.txt`;");
        assert!(is_command, "{message}");
    }
    for short in [&b"r\xe9sum\xe9"[..], b"\xfd\xfe\xe4"] {
        let message = message("a", short);
        assert!(
            message.contains("`iconv -f ENCODING -t UTF-8 FILE") && !message.contains("looks like"),
            "{message}"
        );
    }
    let damaged = "ä b\n".repeat(20).into_bytes().into_iter().chain([0xff]).collect::<Vec<_>>();
    assert!(message("a", &damaged).contains("damaged UTF-8; drop the damaged bytes with `iconv -c -f UTF-8"));
}

#[test]
fn a_path_is_quoted_for_a_shell() {
    let words = ["a.txt", "-a", "it's here", "$(x)"].map(|path| quoted(Path::new(path)));
    assert_eq!(words, ["a.txt", "./-a", r"'it'\''s here'", "'$(x)'"]);
}

#[test]
fn columnar_files_name_the_build_that_reads_them() {
    let message = message("a.parquet", b"PAR1\x15\x04\x15\x00");
    let expected = match cfg!(feature = "parquet") {
        true => "Parquet; pass it as a file, with `data.source` = \"table\"",
        false => {
            "Parquet; build the program with `cargo build --release --features parquet` to read it, or convert it \
             with `python3 -c 'import sys, pandas, pyarrow; pandas.read_parquet(sys.argv[1])"
        }
    };
    assert!(message.contains(expected), "{message}");
}

#[test]
fn lines_of_single_letters_are_text() {
    let text = [b"note\n".to_vec(), b"\xe4\n\xf6\n\xfc\na\no\nu\n".repeat(20)].concat();
    let problem = problem(Path::new("notes.csv"), None, 5, &text, &text);
    assert!(problem.contains("iconv -f") && !problem.contains("token ids"), "{problem}");
}
