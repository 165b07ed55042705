//! Tables in Parquet and Arrow files.

use std::{fs, sync::Arc};

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use causal_attention::files::{Columnar, ColumnarFormat};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{described, refused};

/// Returns rows with the types that programs write: dictionaries, bytes, large integers, times, lists and nulls.
fn batch() -> RecordBatch {
    let states: DictionaryArray<Int32Type> = ["sun", "rain", "sun"].into_iter().collect();
    let columns: [(&str, ArrayRef); 6] = [
        ("id", Arc::new(Int64Array::from(vec![9_007_199_254_740_993, -1, 3]))),
        ("state", Arc::new(states)),
        ("name", Arc::new(StringArray::from(vec![Some("A \"b\""), None, Some("\u{1f642}")]))),
        ("bytes", Arc::new(BinaryArray::from(vec![&b"to be"[..], b"or", b"not"]))),
        ("time", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000, 2]).with_timezone("+01:00"))),
        (
            "ids",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
                Some(vec![Some(1), Some(2)]),
                Some(vec![]),
                Some(vec![Some(3)]),
            ])),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Returns the rows in each format, with its name.
fn files() -> [(ColumnarFormat, Vec<u8>); 3] {
    let (batch, [mut parquet, mut file, mut stream]) = (batch(), [vec![], vec![], vec![]]);
    let mut writer = ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut writer = FileWriter::try_new(&mut file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    [(ColumnarFormat::Parquet, parquet), (ColumnarFormat::Arrow, file), (ColumnarFormat::Arrow, stream)]
}

#[test]
fn rows_keep_their_values() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.bin");
    for (format, bytes) in files() {
        fs::write(&path, bytes).unwrap();
        let read = Columnar::read(&path).unwrap().unwrap();
        assert_eq!(read.format, format);
        let rows: Vec<Value> = read.lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let expected = json!([
            {"id": 9_007_199_254_740_993_i64, "state": "sun", "name": "A \"b\"", "bytes": "to be",
             "time": "1970-01-01T01:00:00+01:00", "ids": [1, 2]},
            {"id": -1, "state": "rain", "name": null, "bytes": "or",
             "time": "1970-01-01T01:00:01.500+01:00", "ids": []},
            {"id": 3, "state": "sun", "name": "\u{1f642}", "bytes": "not",
             "time": "1970-01-01T01:00:00.000002+01:00", "ids": [3]},
        ]);
        assert_eq!(Value::from(rows), expected, "{format:?}");
    }
    fs::write(&path, "1,2\n").unwrap();
    assert!(Columnar::read(&path).unwrap().is_none());
}

#[test]
fn damaged_files_are_errors_without_panics() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.bin");
    for (format, bytes) in files() {
        let mut errors = 0;
        for at in (8..bytes.len()).step_by(5) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x95;
            fs::write(&path, changed).unwrap();
            errors += usize::from(Columnar::read(&path).is_err());
            fs::write(&path, &bytes[..at]).unwrap();
            errors += usize::from(Columnar::read(&path).is_err());
        }
        assert!(errors > 50, "{format:?}: {errors}");
    }
}

#[test]
fn event_logs_in_parquet_equal_event_logs_in_csv() {
    let (cases, times) = (["b", "a", "b", "a", "c", "c"], [5_000, 4_000, 1_000, 2_000, 0, 86_400_000]);
    let columns: [(&str, ArrayRef); 3] = [
        ("case", Arc::new(StringArray::from_iter_values(cases))),
        ("time", Arc::new(TimestampMillisecondArray::from_iter_values(times))),
        ("activity", Arc::new(StringArray::from_iter_values(["pay", "ask", "order", "leave", "ask", "pay"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let csv = "case,time,activity\nb,5,pay\na,4,ask\nb,1,order\na,2,leave\nc,0,ask\nc,86400,pay\n";
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("log.parquet"), bytes).unwrap();
    fs::write(dir.path().join("log.csv"), csv).unwrap();
    let sets =
        ["data.column=activity", "data.group_by=case", "data.order_by=time", "data.valid_fraction=0.4"];
    let [columnar, csv] = ["log.parquet", "log.csv"].map(|file| described(dir.path(), file, &sets));
    assert_eq!([&columnar["table"]["format"], &csv["table"]["format"]], ["parquet", "csv"]);
    for part in ["train", "valid", "vocabulary"] {
        assert!(!columnar[part].is_null() && columnar[part] == csv[part], "{part}: {columnar} {csv}");
    }
    let problem = refused(dir.path(), "log.parquet", &["data.column=action", "data.group_by=case"]);
    assert!(problem.contains("lacks the field `action`, and has activity, case, time; add it"), "{problem}");
}
