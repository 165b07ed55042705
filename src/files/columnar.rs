//! Reads Parquet and Arrow files as JSON Lines, with one object per row.
//!
//! Arrow files are recognised in both of their formats: the file format, also called Feather, and the streaming format,
//! which Hugging Face's `save_to_disk` writes.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::input::MAX_STREAM_BYTES;
use crate::error::{Error, Result, panic_message};

/// The timestamps of rows, in ISO 8601.
const TIMESTAMP: &str = "%Y-%m-%dT%H:%M:%S%.f";
const TIMESTAMP_WITH_ZONE: &str = "%Y-%m-%dT%H:%M:%S%.f%:z";

/// A table of columns.
#[derive(Debug)]
pub struct Columnar {
    /// The format.
    pub format: ColumnarFormat,
    /// The rows, in JSON Lines. Null values are written as `null`.
    pub lines: String,
}

/// The format of a file of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnarFormat {
    /// Parquet.
    Parquet,
    /// Arrow's file format or its streaming format.
    Arrow,
}

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

impl Columnar {
    /// Reads the regular file at `path` if its first bytes are those of Parquet or Arrow.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged, or holds more than 1 GiB as JSON Lines.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.is_file() {
            return Ok(None);
        }
        let failed = |error| Error::io("read", path, error);
        let mut file = File::open(path).map_err(failed)?;
        let mut head = Vec::new();
        file.by_ref().take(8).read_to_end(&mut head).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let (format, name) = match head.as_slice() {
            [b'P', b'A', b'R', b'1', ..] => (ColumnarFormat::Parquet, "Parquet"),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => (ColumnarFormat::Arrow, "Arrow"),
            // A message without a continuation marker would begin like a text, and no current program writes it.
            [0xff, 0xff, 0xff, 0xff, size @ ..] if size != [0xff; 4] => (ColumnarFormat::Arrow, "Arrow"),
            _ => return Ok(None),
        };
        let is_stream = head.starts_with(&[0xff]);
        let read = || batches(file, format, is_stream).and_then(|batches| json_lines(batches, path));
        // Arrow's reader panics over some damaged files.
        let problem = match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(lines)) => return Ok(Some(Self { format, lines: lines? })),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_message(panic.as_ref()).to_string(),
        };
        let problem = format!("is not a complete {name} file: {problem}; write or download it again");
        Err(Error::file(path, problem))
    }
}

/// Opens the batches of a file.
fn batches(file: File, format: ColumnarFormat, is_stream: bool) -> Result<Batches, ArrowError> {
    Ok(match format {
        ColumnarFormat::Parquet => Box::new(ParquetRecordBatchReaderBuilder::try_new(file)?.build()?),
        ColumnarFormat::Arrow if is_stream => Box::new(StreamReader::try_new(BufReader::new(file), None)?),
        ColumnarFormat::Arrow => Box::new(FileReader::try_new(BufReader::new(file), None)?),
    })
}

/// Returns the rows as JSON Lines. The inner error reports rows that exceed the limit.
fn json_lines(batches: Batches, path: &Path) -> Result<Result<String>, ArrowError> {
    let mut lines = Vec::new();
    let builder = WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_timestamp_format(TIMESTAMP.into())
        .with_timestamp_tz_format(TIMESTAMP_WITH_ZONE.into());
    for batch in batches {
        let mut writer = builder.clone().build::<_, LineDelimited>(&mut lines);
        writer.write(&with_texts(batch?)?)?;
        writer.finish()?;
        if lines.len() as u64 > MAX_STREAM_BYTES {
            let problem = "holds more than 1 GiB as JSON, the limit for tables; write the columns that you need \
                           to a smaller file";
            return Ok(Err(Error::file(path, problem)));
        }
    }
    String::from_utf8(lines).map(Ok).map_err(|error| ArrowError::ExternalError(Box::new(error)))
}

/// Reads columns of bytes as texts, as older programs write them, if they are UTF-8. Other bytes are written in
/// hexadecimal digits.
fn with_texts(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let text = |column: &ArrayRef| {
        let is_bytes = matches!(column.data_type(), DataType::Binary | DataType::LargeBinary);
        let cast = is_bytes.then(|| arrow_cast::cast(column, &DataType::LargeUtf8).ok()).flatten();
        // A cast turns invalid values into null.
        cast.filter(|texts| texts.null_count() == column.null_count()).unwrap_or_else(|| Arc::clone(column))
    };
    let schema = batch.schema();
    let columns = batch.columns().iter().map(text);
    RecordBatch::try_from_iter(schema.fields().iter().map(|field| field.name()).zip(columns))
}
