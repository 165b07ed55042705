//! Warnings about tables that may be misread, and the effects of following their advice.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::{described, noise, refused, warns, write};

#[test]
fn advice_on_unusual_data_can_be_followed() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
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
    let fixed = described(folder, "rows.txt", &["data.source=table"]);
    assert_eq!((&fixed["context"], &fixed["vocab"]), (&json!(2), &json!(7)));

    write(folder, "sparse.csv", "session_id;item_id\n", 400, |row| {
        format!("{};{}", row % 10, [666_146, 31_331, 81_766, 12][row / 10 % 4])
    });
    assert_eq!(described(folder, "sparse.csv", &[])["vocab"], 14, "integers with large gaps become symbols");
    let sparse = described(folder, "sparse.csv", &["data.values=integers"]);
    assert!(warns(&sparse, "of 666,147 integers only 14 occur") && warns(&sparse, "data.values"), "{sparse}");
    assert_eq!(described(folder, "sparse.csv", &["data.values=symbols"])["vocab"], 14);

    let story = |row: usize| format!("A story number {row} about a fox.");
    write(folder, "stories.jsonl", "", 200, |row| json!({ "text": story(row) }).to_string());
    for sets in [&[][..], &["data.column=text"]] {
        let stderr = refused(folder, "stories.jsonl", sets);
        assert!(stderr.contains("set `data.tokens` = \"characters\""), "{stderr}");
    }
    write(folder, "stories.txt", "", 200, story);
    assert_eq!(described(folder, "stories.txt", &[])["source"], "text");

    fs::create_dir(folder.join("two")).unwrap();
    fs::write(folder.join("two/a.txt"), "Hello world.\n").unwrap();
    fs::write(folder.join("two/b.txt"), "Second text here.\n").unwrap();
    let stderr = refused(folder, "two", &[]);
    assert!(stderr.contains("lower `data.length` to 26 or below"), "{stderr}");
    assert_eq!(described(folder, "two", &["data.length=26"])["train"]["targets"], 26);
}

#[test]
fn sorted_tables_warn_until_shuffled() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let row = |row: usize| format!("{},{},{}", noise(row, 5), noise(row + 1000, 5), row / 100);
    write(folder, "sorted.csv", "a,b,label\n", 1000, row);
    let sorted = described(folder, "sorted.csv", &["data.split=tail"]);
    assert!(
        warns(&sorted, "by 1.00 in token 3") && warns(&sorted, "set `data.split` = \"shuffle\""),
        "{sorted}"
    );
    let shuffled = described(folder, "sorted.csv", &["data.split=shuffle"]);
    assert!(!warns(&shuffled, "data.split") && !warns(&shuffled, "lacks"), "{shuffled}");
    assert_eq!(shuffled["valid"], sorted["valid"]);
    let reseeded = described(folder, "sorted.csv", &["data.split=shuffle", "run.seed=5"]);
    assert_eq!(reseeded["samples"], shuffled["samples"], "the split does not depend on the seed");
    write(folder, "mixed.csv", "a,b,label\n", 1000, |number| row(number * 617 % 1000));
    assert!(!warns(&described(folder, "mixed.csv", &[]), "data.split"));
    for (file, is_sorted) in [("sorted.csv", true), ("mixed.csv", false)] {
        let column = described(folder, file, &["data.column=label"]);
        assert_eq!(warns(&column, "in the tokens, but random rows by"), is_sorted, "{column}");
        assert_eq!(warns(&column, "shuffle the rows of the file unless"), is_sorted, "{column}");
    }
    let stderr = refused(folder, "sorted.csv", &["data.split=shuffle", "data.column=a"]);
    assert!(
        stderr.contains("`data.split` = \"shuffle\" applies to tables with a sequence per row"),
        "{stderr}"
    );
}

#[test]
fn split_numbers_lost_zeros_and_comments_are_reported() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    write(folder, "prices.csv", "price\n", 200, |row| format!("{},{}", row % 30, 10 + row % 7));
    let split = described(folder, "prices.csv", &[]);
    assert!(warns(&split, "the header in line 1 has 1 name, but most lines below have 2 values"), "{split}");

    write(folder, "codes.csv", "", 200, |row| format!("00{},{}", row % 3, row % 5));
    let codes = described(folder, "codes.csv", &[]);
    assert!(warns(&codes, "`000` is read as a number, without its leading zeros"), "{codes}");
    for values in ["symbols", "integers"] {
        let chosen = described(folder, "codes.csv", &[&format!("data.values={values}")]);
        assert!(!warns(&chosen, "leading zeros"), "{chosen}");
    }

    write(folder, "comment.csv", "# from the sensor\na,b\n", 200, |row| format!("{},{}", row % 3, row % 5));
    let comment = described(folder, "comment.csv", &[]);
    let is_skipped = "line 1 (`# from the sensor`) begins with `#` and is skipped as a comment; set `data.comment` = \"none\"";
    assert!(warns(&comment, is_skipped), "{comment}");
    for (header, line) in [("a,b\n# note\n", 2), ("# by x, today\na,b\n", 1)] {
        write(folder, "note.csv", header, 200, |row| format!("{},{}", row % 3, row % 5));
        let note = described(folder, "note.csv", &[]);
        assert!(warns(&note, &format!("line {line} (`# ")) && note["vocab"] == 5, "{note}");
    }
    let stderr = refused(folder, "comment.csv", &["data.comment=none"]);
    assert!(stderr.contains("comment.csv:1: starts with `#`"), "{stderr}");
}

#[test]
fn lengths_without_effect_on_rows_are_reported() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    write(folder, "rows.csv", "", 200, |at| format!("{},{}", at % 3, at % 5));
    let part =
        "`data.length` = 9 has no effect: it applies only to texts, tasks and a `data.column` of a table";
    assert!(warns(&described(folder, "rows.csv", &["data.length=9"]), part));
    assert!(!warns(&described(folder, "rows.csv", &[]), "data.length"));
    assert!(!warns(&described(folder, "rows.csv", &["data.length=9", "data.column=1"]), "has no effect"));
}

#[test]
fn advice_on_numeric_text_names_working_keys() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
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
            warnings.iter().find_map(|it| it.as_str().filter(|it| it.contains("contains only numbers")));
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
        assert!(!warns(&described(folder, name, &[]), "contains only numbers"), "{name}");
    }
}

#[test]
fn skipped_values_of_a_table_are_reported() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let assert_warns = |text: &str, sets: &[&str], part: &str| {
        fs::write(folder.join("a.csv"), text).unwrap();
        let read = described(folder, "a.csv", sets);
        assert!(warns(&read, part), "{part}: {read}");
        read
    };
    let numbers = (0..100).map(|row| format!("{},{}\n", row % 5, row % 3)).collect::<String>();
    assert_warns(&format!("{numbers},\n,\n"), &[], "2 rows are empty and are skipped");
    assert_warns(
        &format!("{numbers}4"),
        &[],
        "the last line has 1 value and no line break, but all others have 2 values",
    );
    assert!(!warns(&assert_warns(&format!("{numbers},\n{numbers}4\n"), &[], "1 row is"), "no line break"));
    assert_warns(
        &numbers.replace("4,0\n", "4,0\n\n"),
        &["data.column=1"],
        "blank lines are skipped, and windows run across them",
    );
    assert_warns(
        "the, the,a\n\" the\",the,b\n".repeat(30).as_str(),
        &[],
        "read as one, such as `the` and ` the`",
    );
    let read = assert_warns(
        &format!(
            ",0,1\n{}",
            (0..60).map(|row| format!("{row},{},{}\n", row % 5, row % 3)).collect::<String>()
        ),
        &[],
        "column 1 is an unnamed index of the rows",
    );
    assert_eq!(read["tokens"].as_array().unwrap().len(), 5, "{read}");
    let joined = (0..120).map(|row| format!("{},{},{}\n", row % 60, row % 5, row % 3)).collect::<String>();
    assert_warns(&format!(",a,b\n{joined}"), &[], "column 1 is an unnamed index of the rows");
    let words = (0..60).map(|row| format!("{},{}\n", ["x", "y"][row % 2], ["x", "y", "z"][row % 3]));
    assert_warns(&format!("0,1\n{}", words.collect::<String>()), &[], "is read as a header");
}

#[test]
fn a_column_that_identifies_the_rows_is_reported() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let rows = |id: fn(usize) -> usize| {
        (0..60).map(|row| format!("{},{},{},{}\n", id(row), row % 5, row % 3, row % 7)).collect::<String>()
    };
    let reported = |text: &str| {
        fs::write(folder.join("a.csv"), text).unwrap();
        let read = described(folder, "a.csv", &[]);
        let warnings = read["warnings"].as_array().unwrap().iter();
        let found = warnings
            .filter_map(serde_json::Value::as_str)
            .find(|it| it.contains("is read as the first token"));
        found.map(str::to_string)
    };
    for (text, key) in [
        (format!("user_id,a,b,c\n{}", rows(|row| 1000 + 37 * row % 61)), "data.ignore_columns=[\"user_id\"]"),
        (rows(|row| row + 1), "data.ignore_columns=[1]"),
    ] {
        let warning = reported(&text).unwrap();
        assert!(warning.ends_with(&key.replace('=', "` = ").replace("data.", "`data.")), "{warning}");
        // The advice succeeds.
        let read = described(folder, "a.csv", &[key]);
        assert_eq!((&read["vocab"], warns(&read, "as the first token")), (&json!(7), false), "{read}");
    }
    // A column that recurs identifies groups.
    let sessions = (0..60).map(|row| format!("{},{}\n", row / 3, row % 7)).collect::<String>();
    let warning = reported(&format!("session_id,item\n{sessions}")).unwrap();
    assert!(warning.contains("set `data.group_by` = \"session_id\" and `data.column`"), "{warning}");
    let read = described(folder, "a.csv", &["data.group_by=session_id", "data.column=item"]);
    assert_eq!((&read["table"]["groups"], warns(&read, "as the first token")), (&json!(20), false), "{read}");
    for text in [format!("x,a,b,c\n{}", rows(|row| 2 * row)), rows(|row| row / 2)] {
        assert_eq!(reported(&text), None, "{text}");
    }
}

#[test]
fn rows_of_unusual_length_are_reported() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let numbers = (0..200).map(|row| format!("{},{}\n", row % 5, row % 3)).collect::<String>();
    let words = (0..200).map(|row| format!("{},{}\n", ["a", "b"][row % 2], ["x", "y", "z"][row % 3]));
    let words = words.collect::<String>();
    for (text, part) in [
        (format!("{numbers}200,\n"), "line 201 has 1 value, but 200 rows have 2"),
        (format!("p,q\n{numbers}200,\n"), "line 202 has 1 value, but 200 rows have 2"),
        (format!("{words}Summe: 300,\n"), "line 201 has 1 value, but 200 rows have 2"),
        (format!("{words}Export ended 2024-01-01\na\n"), "line 201 (and 1 more row) has 1 value"),
    ] {
        fs::write(folder.join("a.csv"), text).unwrap();
        let read = described(folder, "a.csv", &[]);
        assert!(warns(&read, part), "{part}: {read}");
    }
    fs::write(folder.join("a.csv"), format!("{numbers}{}", "1,2,3\n".repeat(9))).unwrap();
    assert!(!warns(&described(folder, "a.csv", &[]), "if it is a footer"));
}

#[test]
fn recurring_header_candidate_is_warned_about() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let part = (0..100).map(|row| format!("{}\n", ["a", "b", "c"][row % 3])).collect::<String>();
    fs::write(folder.join("a.csv"), format!("v\n{part}v\n{part}")).unwrap();
    let read = described(folder, "a.csv", &["data.column=1"]);
    assert!(warns(&read, "line 1 (`v`) is read as data, but recurs in line 102"), "{read}");
    assert!(!warns(&described(folder, "a.csv", &["data.column=1", "data.header=false"]), "data.header"));
}
