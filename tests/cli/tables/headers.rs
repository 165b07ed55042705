//! Detection of headers: the first line is a header, data, or ambiguous.

use serde_json::json;
use tempfile::TempDir;

use super::{described, noise, refused, warns, write};

#[test]
fn headers_above_data_are_not_rows() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    write(folder, "months.csv", "Month,Passengers\n", 144, |row| {
        format!("{}-{:02},{}", 1949 + row / 12, row % 12 + 1, 100 + row % 50)
    });
    let months = described(folder, "months.csv", &["data.split=tail"]);
    assert_eq!(months["table"]["header"], json!(["Month", "Passengers"]));
    assert_eq!(
        (&months["vocab"], &months["samples"][0]["tokens"]),
        (&json!(194), &json!(["1949-01", "100"]))
    );
    assert!(!warns(&months, "data.header"), "{months}");

    write(folder, "negative.csv", "left,mid,right\n", 200, |row| {
        let value = |shift| (row + shift) as i64 % 5 - 2;
        format!("{},{},{}", value(0), value(1), value(2))
    });
    assert!(refused(folder, "negative.csv", &[]).contains("set `data.values` = \"symbols\""));
    let symbols = described(folder, "negative.csv", &["data.values=symbols"]);
    assert_eq!((&symbols["vocab"], &symbols["table"]["rows"][0]), (&json!(5), &json!(["-2", "-1", "0"])));

    let words = ["runs\tV", "fast\tA", "cat\tN"];
    write(folder, "tags.tsv", "word\ttag\n", 400, |row| words[noise(row, 3)].into());
    let guessed = described(folder, "tags.tsv", &[]);
    assert!(guessed["vocab"] == 6 && warns(&guessed, "line 1 (`word, tag`)"), "{guessed}");
    assert!(warns(&guessed, "set `data.header` = false if it is data, or true if it is a header"));
    for (header, vocab) in [("true", 6), ("false", 8)] {
        let chosen = described(folder, "tags.tsv", &[&format!("data.header={header}")]);
        assert!(chosen["vocab"] == vocab && !warns(&chosen, "data.header"), "{chosen}");
    }

    write(folder, "index.csv", ",a,b,c\n", 300, |row| format!("{row},{},{},{}", row % 3, row % 5, row % 7));
    let index = described(folder, "index.csv", &["data.split=tail"]);
    assert_eq!((&index["vocab"], &index["samples"][1]["tokens"]), (&json!(7), &json!(["1", "1", "1"])));
    assert!(warns(&index, "column 1 is an unnamed index of the rows"), "{index}");
}

#[test]
fn headers_of_years_are_warned_about() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "years.csv", "2019,2020,2021\n", 200, |row| {
        format!("{},{},{}", row % 5, row % 7, row % 3)
    });
    let read = described(dir.path(), "years.csv", &[]);
    assert!(
        warns(&read, "line 1 (`2019, 2020, 2021`) is read as data") && read["table"].get("header").is_none()
    );
    assert!(warns(&read, "add --set data.header=true if it is a header"), "{read}");
    let named = described(dir.path(), "years.csv", &["data.header=true"]);
    assert_eq!(named["table"]["header"], json!(["2019", "2020", "2021"]));
    for header in ["true", "false"] {
        let read = described(dir.path(), "years.csv", &[&format!("data.header={header}")]);
        assert!(!warns(&read, "data.header"), "{read}");
    }
}

#[test]
fn ambiguous_headers_are_warned_about() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    for header in ["region,2019", "region,2020,2019", "region,2019-01,2019-02"] {
        let values = header.split(',').count() - 1;
        write(folder, "regions.csv", &format!("{header}\n"), 100, |at| {
            format!("r{}{}", at % 7, format!(",{}", at % 3).repeat(values))
        });
        let read = described(folder, "regions.csv", &[]);
        assert!(warns(&read, "is read as data, but") && warns(&read, "add --set data.header=true"), "{read}");
        let named = described(folder, "regions.csv", &["data.header=true"]);
        assert!(!warns(&named, "data.header") && named["vocab"] == 10, "{named}");
    }
    write(folder, "ids.csv", "id,1,2,3\n", 100, |at| format!("{},{},{},{}", at, at % 2, at % 3, at % 5));
    assert!(warns(
        &described(folder, "ids.csv", &[]),
        "set `data.header` = true if it is a header, or false if it is data"
    ));
}

#[test]
fn row_names_are_not_values() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    for (name, quote) in [("r.csv", ""), ("quoted.csv", "\"")] {
        let row = |row: usize| format!("{quote}{}{quote},{},{},{}", row + 1, row % 3, row % 5, noise(row, 7));
        write(folder, name, "a,b,c\n", 200, row);
        let all = described(folder, name, &[]);
        assert_eq!(
            (&all["vocab"], &all["table"]["header"], &all["table"]["rows"][1]),
            (&json!(7), &json!(["a", "b", "c"]), &json!(["1", "1", noise(1, 7).to_string()]))
        );
        let column = described(folder, name, &["data.column=b", "data.length=8"]);
        assert_eq!(column["vocab"], 5, "{column}");
    }
    // The index column of shuffled rows.
    write(folder, "shuffled.csv", ",a,b\n", 200, |row| format!("{},{},{}", row * 7 % 200, row % 3, row % 5));
    let shuffled = described(folder, "shuffled.csv", &[]);
    assert!(
        shuffled["vocab"] == 5 && warns(&shuffled, "column 1 is an unnamed index of the rows"),
        "{shuffled}"
    );
}

#[test]
fn first_line_words_absent_below_are_warned_about() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    for (header, values) in [("class", 5), ("city", 3), ("name", 2)] {
        let numbers = (1..=values).map(|number| format!(",{number}")).collect::<String>();
        write(folder, "words.csv", &format!("{header}{numbers}\n"), 100, |at| {
            let numbers =
                (0..values).map(|column| format!(",{}", noise(7 * at + column, 8))).collect::<String>();
            format!("{}{numbers}", ["A", "B", "C"][at % 3])
        });
        let read = described(folder, "words.csv", &[]);
        assert!(warns(&read, "is read as data, but its words") && warns(&read, "data.header=true"), "{read}");
        for header in ["true", "false"] {
            let read = described(folder, "words.csv", &[&format!("data.header={header}")]);
            assert!(!warns(&read, "data.header"), "{read}");
        }
    }
    for header in ["word,tag,tag", "word,N,tag"] {
        write(folder, "tags.csv", &format!("{header}\n"), 100, |at| {
            format!("{},{},N", ["runs", "fast"][at % 2], ["V", "N"][at % 2])
        });
        assert!(warns(&described(folder, "tags.csv", &[]), "is read as data, but its words"), "{header}");
    }
}

#[test]
fn header_in_json_arrays_is_reported() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let row = |at: usize| json!([(at % 2).to_string() + "st", (at % 5).to_string(), "06"]);
    let census = [json!(["NAME", "POP", "state"])].into_iter().chain((0..100).map(row)).collect::<Vec<_>>();
    std::fs::write(folder.join("census.json"), json!(census).to_string()).unwrap();
    let lines = (0..100).map(|at| format!("[{},{},{}]\n", at % 3, at % 5, at % 7)).collect::<String>();
    std::fs::write(folder.join("lines.jsonl"), format!("[\"a\",\"b\",\"c\"]\n{lines}")).unwrap();
    for file in ["census.json", "lines.jsonl"] {
        let read = described(folder, file, &[]);
        assert!(warns(&read, "the array in line 1 (`") && warns(&read, "remove this array"), "{read}");
    }
    std::fs::write(folder.join("lines.jsonl"), lines).unwrap();
    assert!(!warns(&described(folder, "lines.jsonl", &[]), "the array in line"));
}
