//! Recognition of bytes that are not text, with the command that converts them to text.

use std::path::{Path, PathBuf};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};

/// The minimum number of bytes per stray NUL byte.
const MIN_BYTES_PER_NUL: usize = 100;

/// Describes a file that cannot be read as text at `byte`, with the command that converts it. `head` holds the first
/// bytes of the file, and `near` the bytes around the problem.
pub(super) fn problem(path: &Path, byte: usize, head: &[u8], near: &[u8]) -> String {
    let names = Names::of(path);
    let by_magic = || by_magic_number(head).map(|(what, remedy)| (what.to_string(), remedy(&names)));
    let wide_text = || utf32_text(head, &names).or_else(|| utf16_text(head, &names));
    let by_values = || wide_text().or_else(|| ids(head, &names)).filter(|_| !is_separated(head));
    let recognised = by_contents(head, &names).or_else(by_magic).or_else(by_values);
    match (recognised, near.contains(&0)) {
        (Some((what, remedy)), _) => format!("is not UTF-8 text; it looks like {what}; {remedy}"),
        (None, true) => with_nul(byte, head, near, &names),
        (None, false) => other_encoding(byte, near, &names),
    }
}

/// The names of a file in a shell command, for the input and for the output of a conversion.
struct Names {
    file: String,
    path: PathBuf,
}

impl Names {
    fn of(path: &Path) -> Self {
        // The content of a stream cannot be read again.
        let path = if path.is_file() { path } else { Path::new("FILE") };
        Self { file: quoted(path), path: path.to_path_buf() }
    }

    /// Returns true if the name has one of these extensions.
    fn has_extension(&self, extensions: &[&str]) -> bool {
        let own = self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        extensions.iter().any(|extension| own.eq_ignore_ascii_case(extension))
    }

    /// Returns true for the name of a compressed tar archive.
    fn is_tar(&self) -> bool {
        let name = self.path.to_string_lossy().to_ascii_lowercase();
        name.ends_with(".tar.gz") || name.ends_with(".tgz")
    }

    /// Returns the name with another extension.
    fn with(&self, extension: &str) -> String {
        let with = |extension: &str| self.path.with_extension(extension);
        // A shell truncates the output file before the command reads its input.
        let other = Some(with(extension)).filter(|other| *other != self.path);
        quoted(&other.unwrap_or_else(|| with(&format!("converted.{extension}"))))
    }

    /// Returns the name with `.utf8` inserted before its extension.
    fn utf8(&self) -> String {
        match self.path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) => self.with(&format!("utf8.{extension}")),
            None => self.with("utf8.txt"),
        }
    }

    /// Returns the name without its last extension. A name with only one gets the extension of a text file instead.
    fn unpacked(&self) -> String {
        let inner = self.path.with_extension("");
        match self.path.extension().and_then(|extension| extension.to_str()) {
            _ if inner.extension().is_some() => quoted(&inner),
            // The extension selects how the content is parsed.
            Some(extension @ ("csv" | "tsv" | "json" | "jsonl")) => {
                self.with(&format!("unpacked.{extension}"))
            }
            _ => self.with("txt"),
        }
    }
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |character: char| character.is_alphanumeric() || "/._+=,@%:-".contains(character);
    let path = if path.starts_with('-') { format!("./{path}") } else { path };
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The minimum number of non-ASCII bytes for a guess of the encoding.
const MIN_NON_ASCII_BYTES: usize = 8;

/// The maximum number of characters per common character (white space, an ASCII letter or a digit) in UTF-16 and UTF-32
/// text.
const MAX_CHARACTERS_PER_COMMON_ONE: usize = 20;

type Remedy = fn(&Names) -> String;

/// The formats recognised by the first bytes of a file.
const FORMATS: [(&[u8], &str, Remedy); 22] = [
    (b"\x1f\x8b", "gzip", |names| match names.is_tar() {
        true => format!("unpack it with `tar xzf {}`, and pass one of its files", names.file),
        false => unpack("gunzip -c", names),
    }),
    (b"BZh", "bzip2", |names| unpack("bzip2 -dc", names)),
    (b"\xfd7zXZ\0", "xz", |names| unpack("xz -dc", names)),
    (b"\x28\xb5\x2f\xfd", "Zstandard", |names| unpack("zstd -dc", names)),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel or Word file", |_| OFFICE.into()),
    (b"PK\x03\x04", "a zip archive (also .docx, .xlsx, .npz and .pt)", |names| {
        format!("unpack it with `unzip {} -d {}`", names.file, names.with("unzipped"))
    }),
    (b"%PDF-", "PDF", |names| format!("convert it with `pdftotext {} {}`", names.file, names.with("txt"))),
    (b"PAR1", "Parquet", |names| {
        let [file, csv] = [&names.file, &names.with("csv")];
        let read = "import sys, pandas; pandas.read_parquet(sys.argv[1]).to_csv(sys.argv[2], index=False)";
        format!("convert it with `python3 -c '{read}' {file} {csv}`")
    }),
    (b"ARROW1", "Arrow", |names| {
        let [file, csv] = [&names.file, &names.with("csv")];
        let read = "import sys, pandas; pandas.read_feather(sys.argv[1]).to_csv(sys.argv[2], index=False)";
        format!("convert it with `python3 -c '{read}' {file} {csv}`")
    }),
    (b"\x80\x02", "a Python pickle", |_| PICKLE.into()),
    (b"\x80\x03", "a Python pickle", |_| PICKLE.into()),
    (b"\x80\x04\x95", "a Python pickle", |_| PICKLE.into()),
    (b"\x80\x05\x95", "a Python pickle", |_| PICKLE.into()),
    (b"\x89HDF\r\n", "HDF5", |_| "export its data as CSV, and pass the CSV file".into()),
    (b"\xff\xfe\0\0", "UTF-32 (little endian)", |names| iconv("UTF-32LE", names)),
    (b"\0\0\xfe\xff", "UTF-32 (big endian)", |names| iconv("UTF-32BE", names)),
    (b"\xff\xfe", "UTF-16 (little endian)", |names| iconv("UTF-16LE", names)),
    (b"\xfe\xff", "UTF-16 (big endian)", |names| iconv("UTF-16BE", names)),
    (b"GGUF", "GGUF (weights of llama.cpp)", |_| "pass a text file instead".into()),
    (b"SQLite format 3\0", "an SQLite database", |_| "export its text to a file, and pass that file".into()),
    (b"\x89PNG", "a PNG image", |_| "pass a text file instead".into()),
    (b"\x7fELF", "an ELF executable", |_| "pass a text file instead".into()),
];

/// The remedy for files that only office programs read.
const OFFICE: &str = "save its table as CSV or its text as plain text, and pass the new file";

/// The remedy for pickled Python objects.
const PICKLE: &str = "convert its data to CSV or plain text, for example with \
                      `pandas.read_pickle(FILE).to_csv(NEW, index=False)`";

/// The offset of the magic number of a tar archive.
const TAR_MAGIC: usize = 257;

/// Recognises tar and office archives, NumPy arrays and files of llm.c, for which the first bytes do not suffice.
fn by_contents(head: &[u8], names: &Names) -> Option<(String, String)> {
    let word = |at: usize| head.get(at..at + 4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    if head.get(TAR_MAGIC..TAR_MAGIC + 5) == Some(b"ustar") {
        let remedy = format!("unpack it with `tar xf {}`, and pass one of its files", names.file);
        return Some(("a tar archive".into(), remedy));
    }
    let is_office = names.has_extension(&["xlsx", "docx", "pptx", "ods", "odt"])
        || head.windows(19).any(|part| part == b"[Content_Types].xml");
    if head.starts_with(b"PK\x03\x04") && is_office {
        return Some(("an Excel or Word file".into(), OFFICE.into()));
    }
    // A header of 256 integers, of which the first is the magic number, then the ids.
    let [bits, bytes] = match word(0) {
        Some(20_240_520) => [16, 2],
        Some(20_240_801) => [32, 4],
        _ => return array(head, names),
    };
    let what = format!("token ids (uint{bits}, as llm.c writes them after a header of 1,024 bytes)");
    Some((what, convert_ids(&format!("-j 1024 -t u{bytes} -w{bytes}"), names)))
}

/// Recognises a NumPy array, by its type and shape.
fn array(head: &[u8], names: &Names) -> Option<(String, String)> {
    let header = head.strip_prefix(b"\x93NUMPY")?;
    let header = String::from_utf8_lossy(&header[..header.len().min(256)]);
    let field = |name: &str| header.split_once(&format!("'{name}': ")).map(|(_, rest)| rest.to_string());
    let kind = field("descr").and_then(|it| it.trim_start_matches(['\'', '<', '>', '|', '=']).chars().next());
    let shape = field("shape").unwrap_or_default();
    let sizes = shape.split(')').next().unwrap_or_default().split(',');
    let axes = sizes.filter(|size| size.contains(char::is_numeric)).count();
    let [file, csv] = [&names.file, &names.with("csv")];
    let read = "import sys, numpy; numpy.savetxt(sys.argv[2], numpy.load(sys.argv[1]), \"%d\", \",\")";
    let remedy = match (kind, axes) {
        (Some('i' | 'u' | 'b'), 1) => {
            format!("convert it with `python3 -c '{read}' {file} {csv}` and add --set data.column=1")
        }
        (Some('i' | 'u' | 'b'), 2) => format!("convert it with `python3 -c '{read}' {file} {csv}`"),
        (Some('i' | 'u' | 'b'), _) => "write it as a table, with a sequence in each row".into(),
        (Some('f' | 'c'), _) => {
            "floats are not tokens; quantise them, for example with numpy.digitize, and write a table".into()
        }
        _ => "write its values as a table or a text file".into(),
    };
    Some(("a NumPy array".into(), remedy))
}

fn by_magic_number(head: &[u8]) -> Option<(&'static str, Remedy)> {
    let format = FORMATS.iter().find(|(magic, ..)| head.starts_with(magic));
    format.map(|&(_, what, remedy)| (what, remedy))
}

fn unpack(command: &str, names: &Names) -> String {
    format!("unpack it with `{command} {} > {}`", names.file, names.unpacked())
}

/// Returns the command that removes the quotes around each line of a table, and halves doubled quotes within. If the
/// lines are lists, it also removes their brackets, and the spaces before their quoted elements.
pub fn remove_quotes(path: &Path, are_lists: bool) -> String {
    let names = Names::of(path);
    let new =
        names.with(&format!("unquoted.{}", path.extension().and_then(|it| it.to_str()).unwrap_or("csv")));
    let (marks, lists) = match are_lists {
        true => ("quotes and brackets", r#"; s/^ *[[({] *\(.*\)[])}] *$/\1/; s/, *"/,"/g"#),
        false => ("quotes", ""),
    };
    let edit = r#"s/^ *"//; s/" *$//; s/""/"/g"#;
    format!("remove the {marks} with `tr -d '\\r' < {} | sed '{edit}{lists}' > {new}`", names.file)
}

fn iconv(encoding: &str, names: &Names) -> String {
    format!("convert it with `iconv -f {encoding} -t UTF-8 {} > {}`", names.file, names.utf8())
}

/// Recognises text with four bytes per character and no byte order mark: most characters are letters and spaces. Token
/// ids read this way yield many control characters and rare symbols.
fn utf32_text(head: &[u8], names: &Names) -> Option<(String, String)> {
    let is_text = |unit: fn([u8; 4]) -> u32| {
        let units = head.chunks_exact(4).map(|bytes| unit([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let Some(text) = units.map(char::from_u32).collect::<Option<String>>() else { return false };
        let count = |is: fn(&char) -> bool| text.chars().filter(is).count();
        let all = text.chars().count();
        let common = count(|it| it.is_ascii_alphanumeric() || it.is_ascii_whitespace());
        let letters = count(|it| it.is_alphanumeric() || it.is_whitespace() || it.is_ascii_punctuation());
        let controls = count(|it| it.is_control() && !it.is_ascii_whitespace());
        common > 0
            && common * MAX_CHARACTERS_PER_COMMON_ONE >= all
            && 10 * letters >= 8 * all
            && controls == 0
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

/// Returns true if the bytes are UTF-8 text whose only control characters are line breaks, tabs and some NUL bytes,
/// which separate its parts. Text with two bytes per character has a NUL in every other byte, or bytes that are control
/// characters.
fn is_separated(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character may be cut at the end.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let count = valid.bytes().filter(|byte| *byte == 0).count();
    let is_plain =
        |character: char| !character.is_control() || matches!(character, '\0' | '\t' | '\n' | '\r');
    4 * count < valid.len() && valid.chars().all(is_plain)
}

/// Recognises text with two bytes per character and no byte order mark: valid characters without controls, some of them
/// spaces, line breaks or Latin letters. The wrong byte order yields fewer of these.
fn utf16_text(head: &[u8], names: &Names) -> Option<(String, String)> {
    let common = |unit: fn([u8; 2]) -> u16| {
        let units = head.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect::<Vec<_>>();
        // The last surrogate pair may be cut.
        let units = &units[..units.len() - usize::from(matches!(units.last(), Some(0xd800..0xdc00)))];
        let text = String::from_utf16(units).ok()?;
        let is_control = |character: char| {
            character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\u{c}')
                || matches!(character, '\u{fff0}'..='\u{ffff}' | '\u{e000}'..='\u{f8ff}')
        };
        let is_common =
            |character: &char| character.is_ascii_alphanumeric() || character.is_ascii_whitespace();
        let common = text.chars().filter(is_common).count();
        (common * MAX_CHARACTERS_PER_COMMON_ONE >= units.len() && !text.contains(is_control))
            .then_some(common)
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

/// Recognises token ids: most are small, so their upper bytes are 0.
fn ids(head: &[u8], names: &Names) -> Option<(String, String)> {
    let share = |width: usize, limit: u64, is_big: bool| {
        let id = |bytes: &[u8]| {
            let fold = |id: u64, &byte: &u8| id << 8 | u64::from(byte);
            if is_big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
        };
        let mut all = head.chunks_exact(width).map(id).collect::<Vec<_>>();
        let small = all.iter().filter(|&&id| id < limit).count();
        all.sort_unstable();
        all.dedup();
        // A single repeated id is padding.
        if all.len() > 1 { small * 100 / (head.len() / width) } else { 0 }
    };
    let (name, bytes, is_big) = if share(8, 1 << 20, false) == 100 {
        ("int64", 8, false)
    } else if share(4, 1 << 20, false) == 100 {
        ("uint32", 4, false)
    } else {
        let [little, big] = [false, true].map(|is_big| share(2, 1 << 12, is_big));
        match little.max(big) {
            0..50 => return None,
            _ if little >= big => ("uint16, as nanoGPT writes them", 2, false),
            _ => ("big-endian uint16", 2, true),
        }
    };
    let order = if is_big { " --endian=big" } else { "" };
    Some((format!("token ids ({name})"), convert_ids(&format!("-t u{bytes} -w{bytes}{order}"), names)))
}

/// Returns the command that converts binary token ids to a table.
fn convert_ids(form: &str, names: &Names) -> String {
    let od = format!("od -An -v {form} {} | tr -d ' ' > {}", names.file, names.with("csv"));
    format!("convert it with `{od}` and add --set data.column=1, or pass the text itself")
}

/// Describes text with stray NUL bytes, or a file of another format.
fn with_nul(byte: usize, head: &[u8], near: &[u8], names: &Names) -> String {
    let count = near.iter().filter(|&&byte| byte == 0).count();
    match std::str::from_utf8(near).is_ok() && count * MIN_BYTES_PER_NUL <= near.len().max(MIN_BYTES_PER_NUL)
    {
        false if is_separated(head) => format!(
            "contains NUL bytes, the first at byte {byte}, which are not text; convert them to line breaks \
             with `tr '\\000' '\\n' < {} > {}`",
            names.file,
            names.utf8()
        ),
        true => format!(
            "contains a NUL byte at byte {byte}, which is not text; remove it with `tr -d '\\000' < {} > {}`",
            names.file,
            names.utf8()
        ),
        false => {
            format!("is not text: it contains NUL bytes, the first at byte {byte}; pass a UTF-8 text file")
        }
    }
}

/// Describes text in an encoding with about one byte per character, or damaged UTF-8.
fn other_encoding(byte: usize, near: &[u8], names: &Names) -> String {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in near.utf8_chunks() {
        valid += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    // In another encoding, hardly any two bytes form a valid UTF-8 character.
    if valid >= invalid {
        let [file, new] = [&names.file, &names.utf8()];
        return format!(
            "is not UTF-8 at byte {byte}; it looks like damaged UTF-8; drop the damaged bytes with `iconv -c \
             -f UTF-8 -t UTF-8 {file} > {new}`"
        );
    }
    if near.iter().filter(|byte| !byte.is_ascii()).count() < MIN_NON_ASCII_BYTES {
        return format!(
            "is not UTF-8 at byte {byte}; its encoding is unknown; {}, where ENCODING is its name, such as \
             ISO-8859-1",
            iconv("ENCODING", names)
        );
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(near, true);
    let guessed = detector.guess(None, Utf8Detection::Deny).name();
    // The browsers' encoding standard assigns characters to these bytes, but iconv does not.
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
        "is not UTF-8 at byte {byte}; its encoding may be {encoding}{also}; {}; if letters come out wrong, \
         replace {encoding} with another encoding, such as CP437 or MACINTOSH",
        iconv(encoding, names)
    )
}

#[cfg(test)]
mod tests;
