//! The formats that are recognised by their first bytes, with the commands that convert them.

use super::names::Names;
use super::{iconv, read_as_array};

/// Returns a description of a binary format by its first bytes, and the remedy.
pub(super) fn recognised(head: &[u8], names: &Names) -> Option<(String, String)> {
    by_contents(head, names).or_else(|| {
        let &(_, what, remedy) = FORMATS.iter().find(|(magic, ..)| head.starts_with(magic))?;
        Some((what.to_string(), remedy(names)))
    })
}

type Remedy = fn(&Names) -> String;

/// The formats recognised by the first bytes of a file.
const FORMATS: [(&[u8], &str, Remedy); 36] = [
    (b"\x1f\x8b", "gzip", |names| match names.is_tar() {
        true => format!("unpack it with `tar xzf {}`, and pass one of its files", names.file),
        false => unpack("gunzip -c", names),
    }),
    (b"BZh", "bzip2", |names| unpack("bzip2 -dc", names)),
    (b"\xfd7zXZ\0", "xz", |names| unpack("xz -dc", names)),
    (b"\x28\xb5\x2f\xfd", "Zstandard", |names| unpack("zstd -dc", names)),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", |names| {
        format!("unpack it with `7z x {}`, and pass one of its files", names.file)
    }),
    (b"Rar!\x1a\x07", "a RAR archive", |names| {
        format!("unpack it with `unrar x {}`, and pass one of its files", names.file)
    }),
    (b"\x04\x22\x4d\x18", "LZ4", |names| unpack("lz4 -dc", names)),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel or Word file", |_| OFFICE.into()),
    (b"PK\x03\x04", "a zip archive (also .docx, .xlsx, .npz and .pt)", |names| {
        format!("unpack it with `unzip {} -d {}`", names.file, names.with("unzipped"))
    }),
    (b"%PDF-", "PDF", |names| format!("convert it with `pdftotext {} {}`", names.file, names.with("txt"))),
    (b"PAR1", "Parquet", |names| columnar("pandas.read_parquet(sys.argv[1])", names)),
    (b"ARROW1", "Arrow", |names| columnar("pandas.read_feather(sys.argv[1])", names)),
    (b"ORC", "ORC", |names| pandas("read_orc", names)),
    (b"Obj\x01", "Avro", |names| {
        let read = "pandas.DataFrame(fastavro.reader(open(sys.argv[1], \"rb\")))";
        python(&format!("import sys, pandas, fastavro; {read}.to_csv(sys.argv[2], index=False)"), names)
    }),
    (b"\x80\x02", "a Python pickle", |names| pandas("read_pickle", names)),
    (b"\x80\x03", "a Python pickle", |names| pandas("read_pickle", names)),
    (b"\x80\x04\x95", "a Python pickle", |names| pandas("read_pickle", names)),
    (b"\x80\x05\x95", "a Python pickle", |names| pandas("read_pickle", names)),
    (b"\x89HDF\r\n", "HDF5", |names| pandas("read_hdf", names)),
    (b"X\n\0\0\0", "an R object", rscript),
    (b"RDX3\n", "an R workspace", |_| {
        "export its data in R with `write.csv(DATA, \"NEW.csv\", row.names = FALSE)`".into()
    }),
    (b"MATLAB 5.0", "a MATLAB file", |_| {
        "export its data in MATLAB with `writematrix(DATA, \"NEW.csv\")`".into()
    }),
    (b"MThd", "a MIDI file", |_| "write its notes as a table, with a row for each note".into()),
    (b"OggS", "an Ogg recording", |_| RECORDING.into()),
    (b"fLaC", "a FLAC recording", |_| RECORDING.into()),
    (b"ID3", "an MP3 recording", |_| RECORDING.into()),
    (b"GIF8", "a GIF image", |_| "pass a text file instead".into()),
    (b"\xff\xd8\xff", "a JPEG image", |_| "pass a text file instead".into()),
    (b"\xff\xfe\0\0", "UTF-32 (little endian)", |names| iconv("UTF-32LE", names)),
    (b"\0\0\xfe\xff", "UTF-32 (big endian)", |names| iconv("UTF-32BE", names)),
    (b"\xff\xfe", "UTF-16 (little endian)", |names| iconv("UTF-16LE", names)),
    (b"\xfe\xff", "UTF-16 (big endian)", |names| iconv("UTF-16BE", names)),
    (b"GGUF", "GGUF (weights of llama.cpp)", |_| "pass a text file instead".into()),
    (b"SQLite format 3\0", "an SQLite database", |names| {
        let [file, csv] = [&names.file, &names.with("csv")];
        format!("export a table with `sqlite3 -header -csv {file} 'SELECT * FROM TABLE' > {csv}`")
    }),
    (b"\x89PNG", "a PNG image", |_| "pass a text file instead".into()),
    (b"\x7fELF", "an ELF executable", |_| "pass a text file instead".into()),
];

/// The remedy for files that only office programs read.
const OFFICE: &str = "save its table as CSV or its text as plain text, and pass the new file";

/// The remedy for recordings.
const RECORDING: &str =
    "write its samples as numbers in a CSV file, and set `data.bins` to read them in bins";

/// The offset of the magic number of a tar archive.
const TAR_MAGIC: usize = 257;

/// Recognises tar and office archives, NumPy arrays and files of llm.c, for which the first bytes do not suffice.
fn by_contents(head: &[u8], names: &Names) -> Option<(String, String)> {
    let word = |at: usize| head.get(at..at + 4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    if head.get(TAR_MAGIC..TAR_MAGIC + 5) == Some(b"ustar") {
        let archive = names.packed.as_ref().map_or(&names.file, |(archive, _)| archive);
        let remedy = format!("unpack it with `tar xf {archive}`, and pass one of its files");
        return Some(("a tar archive".into(), remedy));
    }
    let is_office = names.has_extension(&["xlsx", "docx", "pptx", "ods", "odt"])
        || head.windows(19).any(|part| part == b"[Content_Types].xml");
    if names.has_extension(&["xlsx", "xls", "ods"])
        && (head.starts_with(b"PK\x03\x04") || head.starts_with(b"\xd0\xcf"))
    {
        return Some(("a spreadsheet".into(), pandas("read_excel", names)));
    }
    if head.starts_with(b"PK\x03\x04") && is_office {
        return Some(("an Excel or Word file".into(), OFFICE.into()));
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WAVE") {
        return Some(("a WAV recording".into(), RECORDING.into()));
    }
    // The continuation marker of the streaming format of Arrow, and the size of its schema.
    if word(0) == Some(u32::MAX) && word(4).is_some_and(|size| (1..1 << 24).contains(&size)) {
        let read = "pyarrow.ipc.open_stream(sys.argv[1]).read_pandas()";
        return Some(("Arrow".into(), columnar(read, names)));
    }
    // A header of 256 integers, of which the first is the magic number, then the ids.
    let bits = match word(0) {
        Some(20_240_520) => 16,
        Some(20_240_801) => 32,
        _ => return array(head),
    };
    let what = format!("token ids (uint{bits}, as llm.c writes them after a header of 1,024 bytes)");
    Some((what, read_as_array("")))
}

/// Recognises a NumPy array, by its type and shape.
fn array(head: &[u8]) -> Option<(String, String)> {
    let header = head.strip_prefix(b"\x93NUMPY")?;
    let header = String::from_utf8_lossy(&header[..header.len().min(256)]);
    let field = |name: &str| header.split_once(&format!("'{name}': ")).map(|(_, rest)| rest.to_string());
    let kind = field("descr").and_then(|it| it.trim_start_matches(['\'', '<', '>', '|', '=']).chars().next());
    let shape = field("shape").unwrap_or_default();
    let sizes = shape.split(')').next().unwrap_or_default().split(',');
    let axes = sizes.filter(|size| size.contains(char::is_numeric)).count();
    let remedy = match (kind, axes) {
        (Some('i' | 'u' | 'b'), 1 | 2) => read_as_array(""),
        (Some('i' | 'u' | 'b'), _) => "write it as a table, with a sequence in each row".into(),
        (Some('f' | 'c'), _) => {
            "floats are not tokens; quantise them, for example with numpy.digitize, and write a table".into()
        }
        _ => "write its values as a table or a text file".into(),
    };
    Some(("a NumPy array".into(), remedy))
}

/// Returns the remedy for a columnar file, which only builds with the feature `parquet` read, and only as a table.
fn columnar(read: &str, names: &Names) -> String {
    if cfg!(feature = "parquet") {
        return "pass it as a file, with `data.source` = \"table\"".into();
    }
    let convert =
        python(&format!("import sys, pandas, pyarrow; {read}.to_csv(sys.argv[2], index=False)"), names);
    format!("build the program with `cargo build --release --features parquet` to read it, or {convert}")
}

/// Returns the remedy for a table that a function of pandas reads.
fn pandas(function: &str, names: &Names) -> String {
    python(
        &format!("import sys, pandas; pandas.{function}(sys.argv[1]).to_csv(sys.argv[2], index=False)"),
        names,
    )
}

/// Returns the remedy for a file that a program in Python converts to CSV.
fn python(program: &str, names: &Names) -> String {
    format!("convert it with `python3 -c '{program}' {} {}`", names.file, names.with("csv"))
}

fn rscript(names: &Names) -> String {
    let program = "a = commandArgs(TRUE); write.csv(readRDS(a[1]), a[2], row.names = FALSE)";
    format!("convert it with `Rscript -e '{program}' {} {}`", names.file, names.with("csv"))
}

fn unpack(command: &str, names: &Names) -> String {
    format!("unpack it with `{command} {} > {}`", names.file, names.unpacked())
}
