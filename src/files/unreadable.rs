//! What bytes that are not text look like, and the command that makes text of them.

use std::path::{Path, PathBuf};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};

/// The share of the bytes of a text above which NUL bytes are no accident: one in this many.
const STRAY_NUL: usize = 100;

/// Says what a file is that cannot be read as text at `byte`, and how to convert it: its first bytes are `head`, those
/// around the problem `near`.
pub(super) fn problem(path: &Path, byte: usize, head: &[u8], near: &[u8]) -> String {
    let names = Names::of(path);
    let by_name = || named(head).map(|(what, remedy)| (what.to_string(), remedy(&names)));
    let wide = || widest_text(head, &names).or_else(|| wide_text(head, &names));
    let looks = by_name().or_else(wide).or_else(|| ids(head, &names));
    match (looks, near.contains(&0)) {
        (Some((what, remedy)), _) => format!("is not UTF-8 text; it looks like {what}: {remedy}"),
        (None, true) => with_nul(byte, near, &names),
        (None, false) => other_encoding(byte, near, &names),
    }
}

/// The name of a file for a shell, and that of the file that a conversion writes.
struct Names {
    file: String,
    path: PathBuf,
}

impl Names {
    fn of(path: &Path) -> Self {
        // What a stream held cannot be read again.
        let path = if path.is_file() { path } else { Path::new("FILE") };
        Self { file: quoted(path), path: path.to_path_buf() }
    }

    /// The name with another extension.
    fn with(&self, extension: &str) -> String {
        let with = |extension: &str| self.path.with_extension(extension);
        // A shell empties the file that it writes to before the command reads it.
        let other = Some(with(extension)).filter(|other| *other != self.path);
        quoted(&other.unwrap_or_else(|| with(&format!("converted.{extension}"))))
    }

    /// The name with `.utf8` before its extension, which says what is in it.
    fn utf8(&self) -> String {
        match self.path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) => self.with(&format!("utf8.{extension}")),
            None => self.with("utf8.txt"),
        }
    }

    /// The name without its extension, or with that of a text where it had one alone.
    fn unpacked(&self) -> String {
        let inner = self.path.with_extension("");
        match self.path.extension().and_then(|extension| extension.to_str()) {
            _ if inner.extension().is_some() => quoted(&inner),
            // Its extension says how the contents are read.
            Some(extension @ ("csv" | "tsv" | "json" | "jsonl")) => {
                self.with(&format!("unpacked.{extension}"))
            }
            _ => self.with("txt"),
        }
    }
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |character: char| character.is_alphanumeric() || "/._+=,@%:-".contains(character);
    let path = if path.starts_with('-') { format!("./{path}") } else { path };
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The bytes beyond ASCII that a guess of an encoding needs.
const LEAST_EVIDENCE: usize = 8;

/// In text of two bytes a character one in this many is a space, a line break or a Latin letter.
const RAREST: usize = 20;

type Remedy = fn(&Names) -> String;

/// The formats that the first bytes of a file name.
const FORMATS: [(&[u8], &str, Remedy); 16] = [
    (b"\x1f\x8b", "gzip", |names| unpack("gunzip -c", names)),
    (b"BZh", "bzip2", |names| unpack("bzip2 -dc", names)),
    (b"\xfd7zXZ\0", "xz", |names| unpack("xz -dc", names)),
    (b"\x28\xb5\x2f\xfd", "Zstandard", |names| unpack("zstd -dc", names)),
    (b"PK\x03\x04", "a zip archive (also .docx, .xlsx, .npz and .pt)", |names| {
        format!("unpack it with `unzip {} -d {}`", names.file, names.with("unzipped"))
    }),
    (b"%PDF-", "PDF", |names| format!("convert it with `pdftotext {} {}`", names.file, names.with("txt"))),
    (b"PAR1", "Parquet", |names| {
        let [file, csv] = [&names.file, &names.with("csv")];
        let read = "import sys, pandas; pandas.read_parquet(sys.argv[1]).to_csv(sys.argv[2], index=False)";
        format!("convert it with `python3 -c '{read}' {file} {csv}`")
    }),
    (b"\x93NUMPY", "a NumPy array", |names| {
        let [file, csv] = [&names.file, &names.with("csv")];
        let read = "import sys, numpy; numpy.savetxt(sys.argv[2], numpy.load(sys.argv[1]), \"%d\", \",\")";
        format!("convert it with `python3 -c '{read}' {file} {csv}`")
    }),
    (b"\xff\xfe\0\0", "UTF-32 (little endian)", |names| iconv("UTF-32LE", names)),
    (b"\0\0\xfe\xff", "UTF-32 (big endian)", |names| iconv("UTF-32BE", names)),
    (b"\xff\xfe", "UTF-16 (little endian)", |names| iconv("UTF-16LE", names)),
    (b"\xfe\xff", "UTF-16 (big endian)", |names| iconv("UTF-16BE", names)),
    (b"GGUF", "GGUF, weights of llama.cpp", |_| "give the text to read".into()),
    (b"SQLite format 3\0", "an SQLite database", |_| "export its text to a file".into()),
    (b"\x89PNG", "a PNG image", |_| "give a text".into()),
    (b"\x7fELF", "a program", |_| "give a text".into()),
];

fn named(head: &[u8]) -> Option<(&'static str, Remedy)> {
    let format = FORMATS.iter().find(|(magic, ..)| head.starts_with(magic));
    format.map(|&(_, what, remedy)| (what, remedy))
}

fn unpack(command: &str, names: &Names) -> String {
    format!("unpack it with `{command} {} > {}`", names.file, names.unpacked())
}

/// The command that removes the quotes around each line of a table, and one of two within.
pub fn remove_quotes(path: &Path) -> String {
    let names = Names::of(path);
    let new =
        names.with(&format!("unquoted.{}", path.extension().and_then(|it| it.to_str()).unwrap_or("csv")));
    let edit = r#"s/^ *"//; s/" *$//; s/""/"/g"#;
    format!("remove the quotes with `tr -d '\\r' < {} | sed '{edit}' > {new}`", names.file)
}

fn iconv(encoding: &str, names: &Names) -> String {
    format!("convert it with `iconv -f {encoding} -t UTF-8 {} > {}`", names.file, names.utf8())
}

/// Text in four bytes a character, without a byte order mark: letters and spaces by far. Of token ids many are controls or
/// rare signs.
fn widest_text(head: &[u8], names: &Names) -> Option<(String, String)> {
    let is_text = |unit: fn([u8; 4]) -> u32| {
        let units =
            head.chunks_exact(4).map(|unit_of| unit([unit_of[0], unit_of[1], unit_of[2], unit_of[3]]));
        let Some(text) = units.map(char::from_u32).collect::<Option<String>>() else { return false };
        let count = |is: fn(&char) -> bool| text.chars().filter(is).count();
        let all = text.chars().count();
        let common = count(|it| it.is_ascii_alphanumeric() || it.is_ascii_whitespace());
        let letters = count(|it| it.is_alphanumeric() || it.is_whitespace() || it.is_ascii_punctuation());
        let controls = count(|it| it.is_control() && !it.is_ascii_whitespace());
        common > 0 && common * RAREST >= all && 10 * letters >= 8 * all && controls == 0
    };
    let (order, encoding) = if is_text(u32::from_le_bytes) {
        ("little", "UTF-32LE")
    } else if is_text(u32::from_be_bytes) {
        ("big", "UTF-32BE")
    } else {
        return None;
    };
    Some((format!("UTF-32 ({order} endian, without a byte order mark)"), iconv(encoding, names)))
}

/// Text in two bytes a character, without a byte order mark: valid characters without controls, among them spaces,
/// line breaks or Latin letters. In the wrong order of bytes these are others.
fn wide_text(head: &[u8], names: &Names) -> Option<(String, String)> {
    let common = |unit: fn([u8; 2]) -> u16| {
        let units = head.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect::<Vec<_>>();
        // A pair of surrogates may be cut.
        let units = &units[..units.len() - usize::from(matches!(units.last(), Some(0xd800..0xdc00)))];
        let text = String::from_utf16(units).ok()?;
        let is_control = |character: char| {
            character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\u{c}')
                || matches!(character, '\u{fff0}'..='\u{ffff}' | '\u{e000}'..='\u{f8ff}')
        };
        let is_common =
            |character: &char| character.is_ascii_alphanumeric() || character.is_ascii_whitespace();
        let common = text.chars().filter(is_common).count();
        (common * RAREST >= units.len() && !text.contains(is_control)).then_some(common)
    };
    let [little, big] = [common(u16::from_le_bytes), common(u16::from_be_bytes)];
    let (order, encoding) = if little > big && little > Some(0) {
        ("little", "UTF-16LE")
    } else if big > little && big > Some(0) {
        ("big", "UTF-16BE")
    } else {
        return None;
    };
    Some((format!("UTF-16 ({order} endian, without a byte order mark)"), iconv(encoding, names)))
}

/// Token ids, of which most are small, so that their upper bytes are 0.
fn ids(head: &[u8], names: &Names) -> Option<(String, String)> {
    let share = |width: usize, limit: u64| {
        let id = |bytes: &[u8]| bytes.iter().rev().fold(0, |id, &byte| id << 8 | u64::from(byte));
        let mut all = head.chunks_exact(width).map(id).collect::<Vec<_>>();
        let small = all.iter().filter(|&&id| id < limit).count();
        all.sort_unstable();
        all.dedup();
        // One id over and over is empty space.
        if all.len() > 1 { small * 100 / (head.len() / width) } else { 0 }
    };
    let [bits, bytes] = if share(4, 1 << 20) == 100 {
        [32, 4]
    } else if share(2, 1 << 12) >= 50 {
        [16, 2]
    } else {
        return None;
    };
    let writer = if bits == 16 { ", as nanoGPT writes them" } else { "" };
    let what = format!("token ids (uint{bits}{writer})");
    let csv = names.with("csv");
    let od = format!("od -An -v -t u{bytes} -w{bytes} {} | tr -d ' ' > {csv}", names.file);
    Some((what, format!("convert it with `{od}` and add --set data.column=1, or give the text itself")))
}

/// Text with NUL bytes in it, or bytes that mean something else.
fn with_nul(byte: usize, near: &[u8], names: &Names) -> String {
    let count = near.iter().filter(|&&byte| byte == 0).count();
    match std::str::from_utf8(near).is_ok() && count * STRAY_NUL <= near.len().max(STRAY_NUL) {
        true => format!(
            "holds a NUL byte at byte {byte}, which no text has: remove it with `tr -d '\\000' < {} > {}`",
            names.file,
            names.utf8()
        ),
        false => format!("is not text: it holds NUL bytes, the first at byte {byte}; give a text in UTF-8"),
    }
}

/// Text in an encoding of one byte a character or so, or UTF-8 with damage.
fn other_encoding(byte: usize, near: &[u8], names: &Names) -> String {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in near.utf8_chunks() {
        valid += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    // Of another encoding hardly any two bytes happen to be a character of UTF-8.
    if valid >= invalid {
        let [file, new] = [&names.file, &names.utf8()];
        return format!(
            "is not UTF-8 at byte {byte}; it looks like UTF-8 with damage: drop that with `iconv -c -f UTF-8 -t UTF-8 {file} > {new}`"
        );
    }
    if near.iter().filter(|byte| !byte.is_ascii()).count() < LEAST_EVIDENCE {
        return format!(
            "is not UTF-8 at byte {byte}; its encoding is unknown: {}, where ENCODING is its name, as ISO-8859-1",
            iconv("ENCODING", names)
        );
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(near, true);
    let guessed = detector.guess(None, Utf8Detection::Deny).name();
    // The standard of browsers gives these bytes a meaning that iconv does not.
    let is_latin1 = near.iter().any(|byte| matches!(byte, 0x81 | 0x8d | 0x8f | 0x90 | 0x9d));
    let encoding = match guessed {
        "windows-1252" if is_latin1 => "ISO-8859-1",
        "GBK" => "GB18030",
        "Shift_JIS" => "CP932",
        "EUC-KR" => "CP949",
        "Big5" => "BIG5-HKSCS",
        "ISO-8859-8-I" => "ISO-8859-8",
        "windows-874" => "CP874",
        other => other,
    };
    let also = if encoding == "windows-1252" { " (an extension of Latin-1)" } else { "" };
    format!(
        "is not UTF-8 at byte {byte}; its encoding is a guess, for example {encoding}{also}: {}; if letters come out \
         wrong, replace {encoding} there by another one, as CP437 or MACINTOSH",
        iconv(encoding, names)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, bytes: &[u8]) -> String {
        let byte = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        problem(Path::new(name), byte, bytes, bytes)
    }

    fn wider(text: &str, order: fn(u32) -> [u8; 4]) -> Vec<u8> {
        text.chars().flat_map(|character| order(character.into())).collect()
    }

    fn wide(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(order).collect()
    }

    #[test]
    fn bytes_are_named_by_what_they_look_like() {
        let ids = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
        let text = "To be, or not to be: naïve 日本 🙂.\n";
        let cases = [
            (wide(text, u16::to_le_bytes), "UTF-16 (little endian, without"),
            (wide(text, u16::to_be_bytes), "UTF-16 (big endian, without"),
            (wide(&format!("\u{feff}{text}"), u16::to_le_bytes), "UTF-16 (little endian):"),
            (wide("天地玄黄\n宇宙洪荒\n", u16::to_le_bytes), "UTF-16 (little endian, without"),
            (wider(text, u32::to_le_bytes), "UTF-32 (little endian, without a byte order mark): convert"),
            (wider(text, u32::to_be_bytes), "UTF-32 (big endian, without a byte order mark): convert"),
            (wider("天地玄黄\n宇宙洪荒\n", u32::to_le_bytes), "UTF-32 (little endian, without"),
            (wider("Hi\n", u32::to_be_bytes), "UTF-32 (big endian, without"),
            (ids(&[18, 47, 56, 57, 58, 1, 15, 47, 0, 64]), "token ids (uint16, as nanoGPT writes them)"),
            (ids(&[5962, 22307, 25, 198, 8421, 356, 5120, 597, 2252, 11, 3285]), "token ids (uint16"),
            (
                [128_000u32, 9906, 1917, 13].iter().flat_map(|id| id.to_le_bytes()).collect(),
                "token ids (uint32)",
            ),
            (b"\x1f\x8b\x08\x08\x00\x00".to_vec(), "gzip: unpack it with `gunzip -c"),
            (b"PK\x03\x04\x14\x00".to_vec(), "a zip archive"),
            (b"PAR1\x15\x04\x15\x00".to_vec(), "Parquet: convert it with `python3"),
        ];
        for (bytes, expected) in cases {
            let said = said("a.bin", &bytes);
            assert!(said.contains(&format!("it looks like {expected}")), "{expected}: {said}");
        }
        for (name, other) in [("a.txt", "a.converted.txt"), ("a.csv.gz", "a.csv"), ("a.gz", "a.txt")] {
            assert_eq!(Names { file: name.into(), path: name.into() }.unpacked(), other);
        }
        let one = format!("{}\0end", "word ".repeat(30));
        assert!(
            said("a", one.as_bytes())
                .contains("a NUL byte at byte 150, which no text has: remove it with `tr")
        );
        assert!(said("a", &[0; 64]).starts_with("is not text: it holds NUL bytes, the first at byte 0"));
    }

    #[test]
    fn encodings_of_one_byte_are_guessed_by_language() {
        // "Съешь же ещё этих мягких французских булок" in KOI8-R and in windows-1251.
        let koi8 = b"\xf3\xdf\xc5\xdb\xd8 \xd6\xc5 \xc5\xdd\xa3 \xdc\xd4\xc9\xc8 \xcd\xd1\xc7\xcb\xc9\xc8 \xc6\xd2\xc1\xce\xc3\xd5\xda\xd3\xcb\xc9\xc8 \xc2\xd5\xcc\xcf\xcb";
        let ansi = b"\xd1\xfa\xe5\xf8\xfc \xe6\xe5 \xe5\xf9\xb8 \xfd\xf2\xe8\xf5 \xec\xff\xe3\xea\xe8\xf5 \xf4\xf0\xe0\xed\xf6\xf3\xe7\xf1\xea\xe8\xf5 \xe1\xf3\xeb\xee\xea";
        let french = b"D\xe9claration universelle des droits de l'homme, \xe9gaux en dignit\xe9. \xc0 l'\xe9t\xe9, f\xeate tr\xe8s gaie.";
        for (bytes, encoding) in
            [(&koi8[..], "KOI8-"), (&ansi[..], "windows-1251"), (&french[..], "windows-1252")]
        {
            let said = said("a b.txt", bytes);
            assert!(said.contains(&format!("its encoding is a guess, for example {encoding}")), "{said}");
            let is_command = said.contains("`iconv -f ") && said.contains("-t UTF-8 FILE > FILE.utf8.txt`;");
            assert!(is_command, "{said}");
        }
        for little in [&b"r\xe9sum\xe9"[..], b"\xfd\xfe\xe4"] {
            let said = said("a", little);
            assert!(
                said.contains("`iconv -f ENCODING -t UTF-8 FILE") && !said.contains("looks like"),
                "{said}"
            );
        }
        let damaged = "ä b\n".repeat(20).into_bytes().into_iter().chain([0xff]).collect::<Vec<_>>();
        assert!(said("a", &damaged).contains("UTF-8 with damage: drop that with `iconv -c -f UTF-8"));
    }

    #[test]
    fn a_path_is_quoted_for_a_shell() {
        let words = ["a.txt", "-a", "it's here", "$(x)"].map(|path| quoted(Path::new(path)));
        assert_eq!(words, ["a.txt", "./-a", r"'it'\''s here'", "'$(x)'"]);
    }
}
