//! Tests that the rows of Parquet files are read like the same rows in other tables.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray};
use parquet::arrow::ArrowWriter;

use super::*;

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
    let [columnar, csv] = [File::new("log.parquet", bytes), File::new("log.csv", csv)].map(|file| {
        let column = |name: &str| Column::Name(name.to_string());
        let config = DataConfig {
            column: column("activity"),
            group_by: column("case"),
            order_by: column("time"),
            ..file.config()
        };
        let dataset = load(&config, 0).unwrap();
        let problem = file.problem(DataConfig { column: column("action"), ..config });
        (dataset.fingerprint(), dataset.table.unwrap().format.to_string(), problem)
    });
    assert_eq!((columnar.1.as_str(), csv.1.as_str()), ("parquet", "csv"));
    assert_eq!(columnar.0, csv.0);
    assert_eq!(columnar.2, "FILE:1: lacks the field `action`, and has activity, case, time; add it");
}
