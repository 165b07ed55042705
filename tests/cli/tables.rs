//! Tables as other programs write them: what is read, what is refused, and where the advice leads.

use std::{fmt::Write, fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{program, text};

/// The output of `data --json` on a file.
fn described(folder: &Path, file: &str, sets: &[&str]) -> Value {
    let output = data(folder, file, sets).arg("--json").output().unwrap();
    assert!(output.status.success(), "{file} {sets:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The one line with which `data` refuses a file.
fn refused(folder: &Path, file: &str, sets: &[&str]) -> String {
    let output = data(folder, file, sets).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{file} {sets:?}: {said}");
    said
}

fn data(folder: &Path, file: &str, sets: &[&str]) -> std::process::Command {
    let mut command = program(folder);
    command.args(["data", "--set", &format!("data.path={file}")]);
    for set in sets {
        command.args(["--set", set]);
    }
    command
}

/// Writes lines that a row's number makes.
fn write(folder: &Path, name: &str, header: &str, rows: usize, row: impl Fn(usize) -> String) {
    let rows = (0..rows).fold(header.to_string(), |mut rows, number| {
        let _ = writeln!(rows, "{}", row(number));
        rows
    });
    fs::write(folder.join(name), rows).unwrap();
}

/// A number below `below`, without pattern.
fn noise(row: usize, below: usize) -> usize {
    (row + 1).wrapping_mul(2_654_435_761).wrapping_mul(row + 7) / 65_536 % below
}

fn warns(described: &Value, part: &str) -> bool {
    described["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains(part))
}

#[test]
fn the_delimiter_follows_many_lines_and_is_shown() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let orders = ["place order", "send invoice", "send reminder", "pay", "cancel order", "make delivery"];
    write(folder, "orders.csv", "", 800, |row| orders[row % 6].into());
    let said = refused(folder, "orders.csv", &[]);
    assert!(said.contains("set `data.column` = 1") && said.contains("`data.delimiter`"), "{said}");
    let column = described(folder, "orders.csv", &["data.column=1"]);
    assert_eq!((&column["vocab"], &column["table"]["rows"][0]), (&json!(6), &json!(["place order"])));
    let split = described(folder, "orders.csv", &["data.delimiter=space"]);
    assert_eq!(split["table"]["rows"][0], json!(["place", "order"]));

    let messages = ["ham\tOk, see you at 5, then", "spam\tWIN a prize! Call now", "ham\tno commas here"];
    write(folder, "messages.tsv", "", 200, |row| messages[row % 3].into());
    let read = described(folder, "messages.tsv", &[]);
    assert_eq!(read["table"]["delimiter"], "tab");
    assert_eq!(read["table"]["rows"][0], json!(["ham", "Ok, see you at 5, then"]));
    assert_eq!((&read["table"]["columns"], &read["vocab"]), (&json!([2, 2]), &json!(5)));
    let page = text(&data(folder, "messages.tsv", &[]).output().unwrap().stdout);
    assert!(page.contains("\nformat      csv with delimiter tab, 2 columns\nheader      none\n"), "{page}");
    assert!(page.contains("\nfirst rows  ham | Ok, see you at 5, then\n"), "{page}");

    let said = refused(folder, "messages.tsv", &["data.delimiter=tabs"]);
    assert!(said.starts_with("error: --set: `data.delimiter` = \"tabs\" cannot be used: expected"), "{said}");
}

#[test]
fn a_header_is_no_row_above_numbers_dates_or_symbols() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    write(folder, "months.csv", "Month,Passengers\n", 144, |row| {
        format!("{}-{:02},{}", 1949 + row / 12, row % 12 + 1, 100 + row % 50)
    });
    let months = described(folder, "months.csv", &[]);
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
    let index = described(folder, "index.csv", &[]);
    assert_eq!((&index["vocab"], &index["samples"][1]["tokens"]), (&json!(7), &json!(["1", "1", "1"])));
    assert!(warns(&index, "column 1 has no name and numbers the rows"), "{index}");
}

#[test]
fn advice_on_odd_numbers_texts_and_short_files_can_be_followed() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let row = |row: usize| match row {
        300 => "1 ".repeat(4999) + "1",
        _ => format!("{} {} {}", row % 7, row % 5, row % 3),
    };
    write(folder, "rows.txt", "", 601, row);
    assert!(warns(&described(folder, "rows.txt", &[]), "set `data.source` = \"table\""));
    let table = described(folder, "rows.txt", &["data.source=table"]);
    assert_eq!((&table["context"], &table["table"]["columns"]), (&json!(5000), &json!([3, 5000])));
    assert!(warns(&table, "line 301 has 5,000 values") && warns(&table, "remove the line"), "{table}");
    write(folder, "rows.txt", "", 300, row);
    let mended = described(folder, "rows.txt", &["data.source=table"]);
    assert_eq!((&mended["context"], &mended["vocab"]), (&json!(2), &json!(7)));

    write(folder, "sparse.csv", "session_id;item_id\n", 400, |row| {
        format!("{};{}", row % 10, [666_146, 31_331, 81_766, 12][row / 10 % 4])
    });
    let sparse = described(folder, "sparse.csv", &[]);
    assert!(warns(&sparse, "of 666,147 integers only 14 occur") && warns(&sparse, "data.values"), "{sparse}");
    assert_eq!(described(folder, "sparse.csv", &["data.values=symbols"])["vocab"], 14);

    let story = |row: usize| format!("A story number {row} about a fox.");
    write(folder, "stories.jsonl", "", 200, |row| json!({ "text": story(row) }).to_string());
    for sets in [&[][..], &["data.column=text"]] {
        let said = refused(folder, "stories.jsonl", sets);
        assert!(said.contains("write them into a .txt file, one per line"), "{said}");
    }
    write(folder, "stories.txt", "", 200, story);
    assert_eq!(described(folder, "stories.txt", &[])["source"], "text");

    fs::create_dir(folder.join("two")).unwrap();
    fs::write(folder.join("two/a.txt"), "Hello world.\n").unwrap();
    fs::write(folder.join("two/b.txt"), "Second text here.\n").unwrap();
    let said = refused(folder, "two", &[]);
    assert!(said.contains("lower `data.length` to 26 or below"), "{said}");
    assert_eq!(described(folder, "two", &["data.length=26"])["train"]["targets"], 26);
}

#[test]
fn a_header_of_years_is_asked_about() {
    let place = TempDir::new().unwrap();
    write(place.path(), "years.csv", "2019,2020,2021\n", 200, |row| {
        format!("{},{},{}", row % 5, row % 7, row % 3)
    });
    let read = described(place.path(), "years.csv", &[]);
    assert!(
        warns(&read, "line 1 (`2019, 2020, 2021`) is read as data") && read["table"].get("header").is_none()
    );
    assert!(warns(&read, "add --set data.header=true if it is a header"), "{read}");
    let named = described(place.path(), "years.csv", &["data.header=true"]);
    assert_eq!(named["table"]["header"], json!(["2019", "2020", "2021"]));
    for header in ["true", "false"] {
        let read = described(place.path(), "years.csv", &[&format!("data.header={header}")]);
        assert!(!warns(&read, "data.header"), "{read}");
    }
}

#[test]
fn a_field_that_weighs_targets_is_refused_unless_all_count() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let record = |row: usize| vec![row % 3, row % 5, row % 7, 1];
    let read = |name: &str, more: &dyn Fn(usize) -> Value| {
        write(folder, name, "", 40, |row| {
            let mut fields = json!({ "input_ids": record(row) });
            fields.as_object_mut().unwrap().extend(more(row).as_object().unwrap().clone());
            fields.to_string()
        });
        data(folder, name, &["data.column=input_ids"]).output().unwrap()
    };
    for (field, value) in [
        ("labels", json!([-100, -100, 3, 1])),
        ("loss_mask", json!([0, 0, 1, 1])),
        ("completion_mask", json!([false, true, true, true])),
        ("attention_mask", json!([1, 1, 1, 0])),
        ("weights", json!([1.0, 0.5, 1.0, 1.0])),
        ("position_ids", json!([0, 1, 0, 1])),
    ] {
        let output = read("a.jsonl", &|_| json!({ field: value }));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{field}: {said}");
        assert!(said.starts_with(&format!("error: a.jsonl:1: has a field `{field}`")), "{said}");
        assert!(said.contains(&format!("remove `{field}` from every record")), "{said}");
    }
    let harmless = |row| {
        let (ones, all_count, whole) = ([1; 4], [true; 4], [1.0; 4]);
        json!({ "labels": record(row), "attention_mask": ones, "loss_mask": all_count, "weights": whole, "id": row })
    };
    assert!(read("a.jsonl", &harmless).status.success() && read("a.jsonl", &|_| json!({})).status.success());

    write(folder, "a.csv", "token,loss_mask\n", 200, |row| format!("{},{}", row % 5, row % 2));
    let said = refused(folder, "a.csv", &["data.column=token"]);
    assert!(said.contains("a.csv:2: has a field `loss_mask`"), "{said}");
}

#[test]
fn a_sorted_table_is_warned_of_and_shuffling_mends_it() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let row = |row: usize| format!("{},{},{}", noise(row, 5), noise(row + 1000, 5), row / 100);
    write(folder, "sorted.csv", "a,b,label\n", 1000, row);
    let sorted = described(folder, "sorted.csv", &[]);
    assert!(
        warns(&sorted, "by 1.00 in token 3") && warns(&sorted, "set `data.split` = \"shuffle\""),
        "{sorted}"
    );
    let shuffled = described(folder, "sorted.csv", &["data.split=shuffle"]);
    assert!(!warns(&shuffled, "data.split") && !warns(&shuffled, "lacks"), "{shuffled}");
    assert_eq!(shuffled["valid"], sorted["valid"]);
    let again = described(folder, "sorted.csv", &["data.split=shuffle", "run.seed=5"]);
    assert_eq!(again["samples"], shuffled["samples"], "a file is the same for every seed");
    write(folder, "mixed.csv", "a,b,label\n", 1000, |number| row(number * 617 % 1000));
    assert!(!warns(&described(folder, "mixed.csv", &[]), "data.split"));
    for (file, is_sorted) in [("sorted.csv", true), ("mixed.csv", false)] {
        let column = described(folder, file, &["data.column=label"]);
        assert_eq!(warns(&column, "in the tokens, and random ones by"), is_sorted, "{column}");
        assert_eq!(warns(&column, "shuffle the rows of the file unless"), is_sorted, "{column}");
    }
    let said = refused(folder, "sorted.csv", &["data.split=shuffle", "data.column=a"]);
    assert!(said.contains("`data.split` = \"shuffle\" is for tables of a sequence per row"), "{said}");
}

#[test]
fn a_validation_fraction_leaves_exactly_the_rest() {
    let place = TempDir::new().unwrap();
    write(place.path(), "ten.csv", "", 10, |row| format!("{row},1"));
    for (fraction, train) in [("0.8", 2), ("0.9", 1), ("0.7", 3), ("0.1", 9)] {
        let read = described(place.path(), "ten.csv", &[&format!("data.valid_fraction={fraction}")]);
        assert_eq!(
            (&read["train"]["samples"], &read["valid"]["samples"]),
            (&json!(train), &json!(10 - train))
        );
    }
}

#[test]
fn split_numbers_lost_zeros_and_comments_are_named() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    write(folder, "prices.csv", "price\n", 200, |row| format!("{},{}", row % 30, 10 + row % 7));
    let split = described(folder, "prices.csv", &[]);
    assert!(warns(&split, "the header in line 1 has 1 name, and most lines below have 2 values"), "{split}");

    write(folder, "codes.csv", "", 200, |row| format!("00{},{}", row % 3, row % 5));
    let codes = described(folder, "codes.csv", &[]);
    assert!(warns(&codes, "`000` is read as a number, without its leading zeros"), "{codes}");
    for values in ["symbols", "integers"] {
        let chosen = described(folder, "codes.csv", &[&format!("data.values={values}")]);
        assert!(!warns(&chosen, "leading zeros"), "{chosen}");
    }

    write(folder, "comment.csv", "# from the sensor\na,b\n", 200, |row| format!("{},{}", row % 3, row % 5));
    let said = refused(folder, "comment.csv", &[]);
    assert!(
        said.contains("comment.csv:1: begins with `#`") && said.contains("remove this comment"),
        "{said}"
    );
}

#[test]
fn row_names_below_a_shorter_header_are_no_values() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    for (name, quote) in [("r.csv", ""), ("quoted.csv", "\"")] {
        let row = |row: usize| format!("{quote}{}{quote},{},{},{}", row + 1, row % 3, row % 5, noise(row, 7));
        write(folder, name, "a,b,c\n", 200, row);
        let all = described(folder, name, &[]);
        assert_eq!(
            (&all["vocab"], &all["table"]["rows"][1]),
            (&json!(7), &json!(["2", "1", "1", noise(1, 7).to_string()]))
        );
        let column = described(folder, name, &["data.column=b", "data.length=8"]);
        assert_eq!(column["vocab"], 5, "{column}");
    }
    // The index of shuffled rows.
    write(folder, "shuffled.csv", ",a,b\n", 200, |row| format!("{},{},{}", row * 7 % 200, row % 3, row % 5));
    let shuffled = described(folder, "shuffled.csv", &[]);
    assert!(shuffled["vocab"] == 5 && warns(&shuffled, "column 1 has no name"), "{shuffled}");
}

#[test]
fn titles_units_and_brackets_are_no_values() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let row = |row: usize| format!("{},{},{}", row % 3, row % 5, noise(row, 7));
    for (header, line) in [
        ("a,b,c\n# note\n", 2),
        ("a,b,c\nm,s,kg\n", 2),
        ("# by x, v2, today\na,b,c\n", 2),
        ("Sales of 2024\n\na,b,c\n", 1),
    ] {
        write(folder, "titled.csv", header, 200, row);
        let said = refused(folder, "titled.csv", &[]);
        let problem = if line == 1 && header.starts_with("Sales") { "has 1 value" } else { "holds words" };
        assert!(said.contains(&format!("titled.csv:{line}: {problem}")), "{header}: {said}");
        write(folder, "titled.csv", "", 200, row);
        assert_eq!(described(folder, "titled.csv", &[])["vocab"], 7);
    }
    for (open, close) in [("[", "]"), ("(", ")"), ("{", "}")] {
        write(folder, "lists.csv", "", 200, |at| format!("{open}{}{close}", row(at)));
        assert!(refused(folder, "lists.csv", &[]).contains("remove the brackets"));
    }
    write(folder, "lists.jsonl", "", 200, |at| format!("[{}]", row(at)));
    assert_eq!(described(folder, "lists.jsonl", &[])["vocab"], 7);
    write(folder, "spaced.csv", "", 200, |at| format!("\"{}\", \"{}\"", at % 3, at % 5));
    assert!(refused(folder, "spaced.csv", &["data.values=symbols"]).contains("remove the space"));
}

#[test]
fn fields_with_other_names_of_targets_are_refused() {
    let place = TempDir::new().unwrap();
    for field in [
        "\"label\":-100",
        "\"targets\":[1,2]",
        "\"weight\":0.5",
        "\"lossMask\":[0,1]",
        "\"loss-masks\":[0,1]",
    ] {
        write(place.path(), "weighed.jsonl", "", 60, |row| {
            format!("{{\"x\":[{},{}],{field}}}", row % 3, row % 5)
        });
        let said = refused(place.path(), "weighed.jsonl", &["data.column=x"]);
        assert!(said.contains("changes what the targets mean"), "{field}: {said}");
    }
    write(place.path(), "class.jsonl", "", 60, |row| {
        format!("{{\"x\":[{},{}],\"label\":2}}", row % 3, row % 5)
    });
    described(place.path(), "class.jsonl", &["data.column=x"]);
}

#[test]
fn a_path_with_spaces_and_a_tab_are_read_as_written() {
    let place = TempDir::new().unwrap();
    write(place.path(), "b.csv", "", 60, |row| format!("{},{}", row % 3, row % 5));
    write(place.path(), " b.csv", "", 60, |row| format!("{},{}", row % 3, row % 11));
    assert_eq!(described(place.path(), " b.csv", &[])["vocab"], 11);
    write(place.path(), "tabs.csv", "", 60, |row| format!("{}\t{}", row % 3, row % 5));
    assert_eq!(described(place.path(), "tabs.csv", &["data.delimiter=\t"])["vocab"], 5);
}

#[test]
fn a_key_that_occurs_twice_is_refused() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let twice = |at: usize| match at {
        40 => "{\"tokens\":[1,2],\"tokens\":[3,4]}".to_string(),
        _ => "{\"tokens\":[1,2]}".to_string(),
    };
    write(folder, "twice.jsonl", "", 60, twice);
    let array = (0..60).map(twice).collect::<Vec<_>>().join(",\n");
    fs::write(folder.join("twice.json"), format!("[{array}]")).unwrap();
    for (file, place) in [("twice.jsonl", "twice.jsonl:41:"), ("twice.json", "twice.json:41:")] {
        let said = refused(folder, file, &["data.column=tokens"]);
        assert!(
            said.contains(place) && said.contains("the key `tokens` occurs twice in one object"),
            "{said}"
        );
    }
    write(folder, "within.jsonl", "", 60, |_| "{\"x\":[1,2],\"meta\":{\"a\":1,\"a\":1}}".into());
    assert!(refused(folder, "within.jsonl", &["data.column=x"]).contains("the key `a` occurs twice"));
}

#[cfg(unix)]
#[test]
fn lines_in_quotes_are_refused_with_a_command() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let numbers = |at: usize| format!("\"{},{},{}\"\r", at % 3, at % 5, at % 7);
    let words = |at: usize| format!("\"w{},\"\"x y\"\",z\"", at % 3);
    let as_symbols = ["data.column=1", "data.values=symbols"];
    for (header, row, first, whole) in [
        ("", &numbers as &dyn Fn(usize) -> String, json!(["0", "0", "0"]), &as_symbols[..]),
        ("\"a,b,c\"\n", &numbers, json!(["0", "0", "0"]), &as_symbols),
        ("a,b,c\n", &numbers, json!(["0", "0", "0"]), &as_symbols),
        ("", &words, json!(["w0", "x y", "z"]), &["data.column=1"]),
    ] {
        write(folder, "it's.csv", header, 200, row);
        for sets in [&[][..], &["data.delimiter=comma"]] {
            let said = refused(folder, "it's.csv", sets);
            assert!(said.contains("it's.csv:2: is in quotes as a whole"), "{said}");
            let command = said.split('`').nth(1).unwrap();
            let run = std::process::Command::new("sh").args(["-c", command]).current_dir(folder).status();
            assert!(run.unwrap().success(), "{command}");
            let keys: Vec<_> = said.split('`').skip(3).step_by(2).collect();
            assert_eq!(
                keys,
                whole.iter().map(|set| set.split_once('=').unwrap().0).collect::<Vec<_>>(),
                "{said}"
            );
            assert_eq!(described(folder, "it's.csv", whole)["table"]["columns"], json!([1, 1]), "{said}");
        }
        let read = described(folder, "it's.unquoted.csv", &[]);
        assert_eq!(read["table"]["rows"][0], first, "{header}");
    }
    write(folder, "one.csv", "\"order\"\n", 200, |at| format!("\"order, no. {}\"", at % 3));
    assert_eq!(described(folder, "one.csv", &["data.column=order"])["vocab"], 3);
}

#[test]
fn a_header_of_names_and_numbers_is_asked_about() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    for header in ["region,2019", "region,2020,2019", "region,2019-01,2019-02"] {
        let values = header.split(',').count() - 1;
        write(folder, "regions.csv", &format!("{header}\n"), 100, |at| {
            format!("r{}{}", at % 7, format!(",{}", at % 3).repeat(values))
        });
        let read = described(folder, "regions.csv", &[]);
        assert!(
            warns(&read, "is read as data, though") && warns(&read, "add --set data.header=true"),
            "{read}"
        );
        let named = described(folder, "regions.csv", &["data.header=true"]);
        assert!(!warns(&named, "data.header") && named["vocab"] == 10, "{named}");
    }
    write(folder, "ids.csv", "id,1,2,3\n", 100, |at| format!("{},{},{},{}", at, at % 2, at % 3, at % 5));
    assert!(warns(&described(folder, "ids.csv", &[]), "set `data.header` = true if it is a header"));
}

#[test]
fn a_number_is_quoted_as_the_file_writes_it() {
    let place = TempDir::new().unwrap();
    write(place.path(), "a.jsonl", "", 60, |_| "{\"w\": 0.50, \"x\": [7, 1e0]}".into());
    assert!(refused(place.path(), "a.jsonl", &["data.column=x"]).contains("value 2: `1e0` is no integer"));
    assert!(refused(place.path(), "a.jsonl", &["data.column=w"]).contains(":1: `0.50` is no integer"));
}

#[test]
fn symbols_and_paths_with_line_breaks_keep_the_lines_of_a_page() {
    let place = TempDir::new().unwrap();
    write(place.path(), "a\nb.jsonl", "", 60, |_| "[\"x\\ny\", \"z\\tz\"]".into());
    fs::write(place.path().join("config.toml"), "[data]\npath = \"a\\nb.jsonl\"\n").unwrap();
    let output = program(place.path()).arg("data").output().unwrap();
    let page = text(&output.stdout);
    assert!(page.starts_with("source      table a\\nb.jsonl\n"), "{page}");
    assert!(
        page.contains("symbols: x\\ny z\\tz\n") && page.contains("first rows  x\\ny | z\\tz\n"),
        "{page}"
    );
    fs::write(place.path().join("config.toml"), "[data]\npath = \"c\\nd.csv\"\n").unwrap();
    let said = text(&program(place.path()).arg("data").output().unwrap().stderr);
    assert!(said.lines().count() == 1 && said.contains("c\\nd.csv"), "{said}");
}

#[test]
fn a_length_without_effect_on_rows_is_reported() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    write(folder, "rows.csv", "", 200, |at| format!("{},{}", at % 3, at % 5));
    let part = "`data.length` = 9 has no effect: it is for texts, tasks and a `data.column` of a table alone";
    assert!(warns(&described(folder, "rows.csv", &["data.length=9"]), part));
    assert!(!warns(&described(folder, "rows.csv", &[]), "data.length"));
    assert!(!warns(&described(folder, "rows.csv", &["data.length=9", "data.column=1"]), "has no effect"));
}

#[test]
fn a_text_of_numbers_is_warned_of_with_keys_that_work() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    type File<'a> = (&'a str, &'a dyn Fn(usize) -> String, &'a [&'a str]);
    let files: [File<'_>; 7] = [
        ("ids", &|at| format!("{}|{}", at % 13, at % 3), &["data.source=table"]),
        (
            "floats",
            &|at| format!("{}.5|{}.25", at % 3, at % 4),
            &["data.source=table", "data.values=symbols"],
        ),
        ("signs", &|at| format!("-{},+{}", at % 3, at % 4), &["data.source=table", "data.values=symbols"]),
        (
            "powers",
            &|at| format!("1e-{}  2.5E+{}", at % 3, at % 4),
            &["data.source=table", "data.values=symbols"],
        ),
        ("large", &|at| format!("{};7", 2_000_000 + at % 9), &["data.source=table", "data.values=symbols"]),
        ("series", &|at| format!("{}", 17 * at % 150), &["data.source=table", "data.column=1"]),
        (
            "decimals",
            &|at| format!("0,{} 1,{}", at % 3, at % 4),
            &["data.source=table", "data.delimiter=space", "data.values=symbols"],
        ),
    ];
    for (name, row, sets) in files {
        let file = format!("{name}.txt");
        write(folder, &file, "", 400, row);
        let read = described(folder, &file, &[]);
        let warnings = read["warnings"].as_array().unwrap();
        let warned =
            warnings.iter().find_map(|it| it.as_str().filter(|it| it.contains("nothing but numbers")));
        let warned = warned.unwrap_or_else(|| panic!("{name}: {read}"));
        let keys: Vec<_> = warned.split('`').skip(1).step_by(2).collect();
        assert_eq!(
            keys,
            sets.iter().map(|set| set.split_once('=').unwrap().0).collect::<Vec<_>>(),
            "{warned}"
        );
        assert_eq!(described(folder, &file, sets)["source"], "table");
    }
    for (name, row) in
        [("dates", "2019-01-02 5\n"), ("pi", "314159265358979323846264338327950288\n"), ("word", "1 a\n")]
    {
        fs::write(folder.join(name), row.repeat(100)).unwrap();
        assert!(!warns(&described(folder, name, &[]), "nothing but numbers"), "{name}");
    }
}

#[test]
fn lines_of_csv_that_are_no_data_are_refused_by_line() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let words = ["up", "down", "left"];
    let rows = |count: usize| {
        (0..count).map(|row| format!("{},{}\n", words[row % 3], words[row * 7 % 3])).collect::<String>()
    };
    let numbers = (0..100).map(|row| format!("{},{}\n", row % 5, row % 3)).collect::<String>();
    for (text, expected) in [
        (format!("a,b\n-,-\n{numbers}"), ":2: is a rule of dashes"),
        (format!("a,b\n---,---\n{}", rows(90)), ":2: is a rule of dashes"),
        (format!("a,b\n{numbers}\n(100 rows affected)\n"), ":103: counts the rows of the table"),
        (format!("x,y\n{}x,y\n{}", rows(90), rows(90)), ":92: repeats the names of line 1"),
        (
            format!("x,y\n{numbers}{numbers}{}x,y\n{numbers}", numbers.repeat(10)),
            ":1202: repeats the names of line 1",
        ),
        (format!("{}'a,b',c\n", rows(90)), ":91: has a value in single quotes that the delimiter splits"),
    ] {
        fs::write(folder.join("a.csv"), &text).unwrap();
        let said = refused(folder, "a.csv", &[]);
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn what_a_table_loses_is_told() {
    let place = TempDir::new().unwrap();
    let folder = place.path();
    let told = |text: &str, sets: &[&str], part: &str| {
        fs::write(folder.join("a.csv"), text).unwrap();
        let read = described(folder, "a.csv", sets);
        assert!(warns(&read, part), "{part}: {read}");
        read
    };
    let numbers = (0..100).map(|row| format!("{},{}\n", row % 5, row % 3)).collect::<String>();
    told(&format!("{numbers},\n,\n"), &[], "2 rows are without a value, and left out");
    told(
        &format!("{numbers}4"),
        &[],
        "the last line has 1 value and no line break, and all others have 2 values",
    );
    assert!(!warns(&told(&format!("{numbers},\n{numbers}4\n"), &[], "1 row is"), "no line break"));
    told(&numbers.replace("4,0\n", "4,0\n\n"), &["data.column=1"], "blank lines are passed over");
    told("the, the,a\n\" the\",the,b\n".repeat(30).as_str(), &[], "read as one, as `the` and ` the`");
    let read = told(
        &format!(
            ",0,1\n{}",
            (0..60).map(|row| format!("{row},{},{}\n", row % 5, row % 3)).collect::<String>()
        ),
        &[],
        "column 1 has no name and numbers the rows",
    );
    assert_eq!(read["tokens"].as_array().unwrap().len(), 5, "{read}");
    let joined = (0..120).map(|row| format!("{},{},{}\n", row % 60, row % 5, row % 3)).collect::<String>();
    told(&format!(",a,b\n{joined}"), &[], "column 1 has no name and numbers the rows");
    let words = (0..60).map(|row| format!("{},{}\n", ["x", "y"][row % 2], ["x", "y", "z"][row % 3]));
    told(&format!("0,1\n{}", words.collect::<String>()), &[], "is taken as a header");
}
