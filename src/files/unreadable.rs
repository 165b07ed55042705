//! Recognition of bytes that are not text, with the command that converts them to text.

mod formats;
mod names;

use std::path::Path;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};

use self::names::Names;
pub use self::names::quoted;
use super::compression::Compression;

/// The minimum number of bytes per stray NUL byte.
const MIN_BYTES_PER_NUL: usize = 100;

/// Describes a file that cannot be read as text at `byte`, with the command that converts it. `head` holds the first
/// bytes of the content, and `near` the bytes around the problem.
pub(super) fn problem(
    path: &Path,
    compression: Option<Compression>,
    byte: usize,
    head: &[u8],
    near: &[u8],
) -> String {
    let names = Names::of(path, compression);
    let wide_text = || utf32_text(head, &names).or_else(|| utf16_text(head, &names));
    let by_values = || {
        wide_text()
            .or_else(|| ids(head, &names).filter(|_| !is_printable(head)))
            .filter(|_| !is_separated(head))
    };
    let found = formats::recognised(head, &names).or_else(by_values);
    let problem = match (found, near.contains(&0)) {
        (Some((what, remedy)), _) => format!("is not UTF-8 text; it looks like {what}; {remedy}"),
        (None, true) => with_nul(byte, head, near, &names),
        (None, false) => other_encoding(byte, near, &names),
    };
    match problem.contains("`tar x") {
        true => problem,
        false => problem + &names.after_unpacking(),
    }
}

/// Returns the binary format of a file that begins with `head`, if it is known, and the command that converts it. Token
/// ids can begin like a format with a short signature, so further bytes of such formats are checked.
pub fn recognised(path: &Path, head: &[u8]) -> Option<(String, String)> {
    let is_likely = match head {
        [0x80, 2 | 3, opcode, ..] => b"]}(cXKMJq)N".contains(opcode),
        [0x1f, 0x8b, method, ..] => *method == 8,
        _ => true,
    };
    formats::recognised(head, &Names::of(path, None)).filter(|_| is_likely)
}

/// The minimum number of non-ASCII bytes for a guess of the encoding.
const MIN_NON_ASCII_BYTES: usize = 8;

/// The maximum number of characters per common character (white space, an ASCII letter or a digit) in UTF-16 and UTF-32
/// text.
const MAX_CHARACTERS_PER_COMMON_ONE: usize = 20;

/// Returns the command that removes the quotes around each line of a table, and halves doubled quotes within. If the
/// lines are lists, it also removes their brackets, and the spaces before their quoted elements.
pub fn remove_quotes(path: &Path, are_lists: bool) -> String {
    let names = Names::of(path, None);
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

/// Returns true if hardly any byte is a control character, as in lines of text in any encoding with ASCII letters. The
/// upper bytes of small token ids are control characters.
fn is_printable(head: &[u8]) -> bool {
    let is_control = |byte: &&u8| byte.is_ascii_control() && !b"\t\n\x0c\r".contains(byte);
    head.contains(&b'\n') && 100 * head.iter().filter(is_control).count() <= head.len()
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
    // An array is read as little-endian.
    let remedy = match is_big {
        true => {
            let od = format!(
                "od -An -v -t u2 -w2 --endian=big {} | tr -d ' ' > {}",
                names.file,
                names.with("csv")
            );
            format!("convert it with `{od}` and add --set data.column=1, or pass the text itself")
        }
        false => read_as_array(&format!(" --set data.dtype=uint{}", 8 * bytes)),
    };
    Some((format!("token ids ({name})"), remedy))
}

/// Returns the advice to read token ids as an array. `dtype` is the option for their type.
fn read_as_array(dtype: &str) -> String {
    format!("read its ids with --set data.source=array{dtype}, or pass the text itself")
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
