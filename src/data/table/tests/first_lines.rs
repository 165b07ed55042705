//! Lines that may be headers, and first columns that may identify rows.

use std::fmt::Write as _;

use super::File;
use crate::data::config::{Column, DataConfig};
use crate::data::load;

/// Returns the warnings about how a table is read.
fn warnings(text: &str) -> String {
    let file = File::new("rows.csv", text);
    load(&file.config(), 0).unwrap().table.unwrap().guesses.join("\n")
}

/// Returns rows with these values, which depend on the number of the row.
pub(super) fn rows(header: &str, count: usize, row: impl Fn(usize) -> String) -> String {
    (0..count).fold(header.to_string(), |mut text, number| {
        writeln!(text, "{}", row(number)).unwrap();
        text
    })
}

#[test]
fn headers_of_joined_files_are_refused_however_few_their_rows() {
    for (text, line) in [
        ("x,y\n1,2\n3,4\nx,y\n5,6\n2,1\nx,y\n7,8\n", 4),
        ("x,y\n1,a\nx,y\n3,b\n", 3),
        ("x,y\n1,2\ny,x\n3,4\n", 3),
    ] {
        let file = File::new("rows.csv", text);
        let problem = file.problem(file.config());
        let expected = format!("FILE:{line}: ");
        assert!(problem.starts_with(&expected) && problem.contains("as in joined files"), "{problem}");
    }
    // Symbols that recur together may be data.
    let symbols = File::new("rows.csv", "a,b\nb,c\na,b\nc,a\n");
    assert!(load(&symbols.config(), 0).is_ok());
}

#[test]
fn first_rows_of_files_without_a_header_may_recur() {
    let folder = tempfile::tempdir().unwrap();
    let symbols = rows("", 40, |row| format!("{},{}", ["ice", "fog", "sun"][row % 3], ["x", "y"][row % 2]));
    std::fs::write(folder.path().join("1.csv"), format!("a,b\n{symbols}")).unwrap();
    std::fs::write(folder.path().join("2.csv"), &symbols).unwrap();
    let config = DataConfig { path: folder.path().into(), ..DataConfig::default() };
    let dataset = load(&config, 0).unwrap();
    assert_eq!(dataset.train.len() + dataset.valid.len(), 80);
    let guesses = dataset.table.unwrap().guesses.join("\n");
    assert!(guesses.contains("2.csv does not have a header"), "{guesses}");
}

#[test]
fn columns_that_identify_rows_are_reported_by_their_values() {
    let of_rows = |name: &str| rows(name, 60, |row| format!("u{},{},{}", row * 37 % 101, row % 3, row % 5));
    let unique = "has a different value in each row, but is read as the first token";
    assert!(warnings(&of_rows("user,a,b\n")).contains(&format!("column 1 (`user`) {unique}")));
    assert!(warnings(&of_rows("")).contains(&format!("column 1 {unique}")));
    let blocks = rows("case,a,b\n", 60, |row| format!("p{},{},{}", row / 4, row % 3, row % 5));
    assert!(warnings(&blocks).contains("column 1 (`case`) recurs in several rows"));
    // All pairs of a table of sums, in order: the first column holds the same symbols as the others.
    let sums = rows("a,b,c\n", 49, |row| format!("{},{},{}", row / 7, row % 7, (row / 7 + row) % 7));
    assert!(!warnings(&sums).contains("column 1"), "{}", warnings(&sums));
}

#[test]
fn years_above_numbers_of_their_size_are_reported() {
    let years = |count| {
        rows("2019,2020,2021\n", count, |row| ["1000,3000,1000", "3000,1000,1000"][row % 2].to_string())
    };
    for count in [4, 60] {
        let file = File::new("rows.csv", years(count));
        let config = DataConfig { values: crate::data::Values::Symbols, ..file.config() };
        let guesses = load(&config, 0).unwrap().table.unwrap().guesses.join("\n");
        assert!(guesses.contains("its numbers may be column names"), "{count}: {guesses}");
    }
    let counting = rows("5,6,7\n", 30, |row| format!("{},{},{}", row % 9, row % 9 + 1, row % 9 + 2));
    assert!(!warnings(&counting).contains("column names"), "{}", warnings(&counting));
}

#[test]
fn units_above_few_rows_are_refused() {
    let file = File::new("rows.csv", rows("x,y\ncm,kg\n", 5, |row| format!("{},{}", row % 3, row % 2)));
    assert!(
        file.problem(file.config())
            .starts_with("FILE:2: contains words, such as `cm`, above lines of numbers")
    );
}

#[test]
fn numbers_that_name_a_selected_column_are_reported() {
    let answers =
        rows("id,1,2,3\n", 40, |row| format!("s{row},{},{},{}", row % 3 + 1, row % 2 + 1, row % 3 + 1));
    let file = File::new("rows.csv", answers);
    let guesses = |column| {
        let config = DataConfig { column: Column::Number(column), ..file.config() };
        load(&config, 0).unwrap().table.unwrap().guesses.join("\n")
    };
    for column in [2, 3] {
        assert!(guesses(column).contains("its numbers may be column names"), "{}", guesses(column));
    }
}

#[test]
fn columns_of_uneven_lines_without_a_header_are_reported() {
    let text = "Rome,sun,2\nWashington, DC,rain,3\n".repeat(20);
    let file = File::new("rows.csv", text);
    let guesses = |column| {
        let config = DataConfig { column: Column::Number(column), ..file.config() };
        load(&config, 0).unwrap().table.unwrap().guesses.join("\n")
    };
    let expected = "lines have 3 to 4 values, such as line ";
    assert!(guesses(2).contains(expected), "{}", guesses(2));
    assert!(!guesses(1).contains(expected), "the first column is not moved");
    let trailing = File::new("rows.csv", "a,b,c\nb,,\nc,a,\n".repeat(20));
    let config = DataConfig { column: Column::Number(1), ..trailing.config() };
    assert!(!load(&config, 0).unwrap().table.unwrap().guesses.join("\n").contains("lines have"));
}

#[test]
fn points_that_may_be_between_thousands_are_reported() {
    let numbers = ["650", "2.431", "12.400", "981", "3.000"];
    let text = rows("case,sales,kind\n", 40, |row| {
        format!("{},{},{}", row % 4, numbers[row % 5], ["a", "b"][row % 2])
    });
    let file = File::new("rows.csv", text);
    let name = |name: &str| Column::Name(name.into());
    let bins = DataConfig { column: name("sales"), bins: 4, ..file.config() };
    let order =
        DataConfig { column: name("kind"), group_by: name("case"), order_by: name("sales"), ..file.config() };
    for config in [bins, order] {
        let guesses = load(&config, 0).unwrap().table.unwrap().guesses.join("\n");
        assert!(guesses.contains("may have points between thousands, but `"), "{guesses}");
    }
}

#[test]
fn version_numbers_that_order_rows_are_reported() {
    let guesses = |numbers: [&str; 4]| {
        let text = rows("case,version,kind\n", 40, |row| {
            format!("{},{},{}", row / 4, numbers[row % 4], ["a", "b"][row % 2])
        });
        let name = |name: &str| Column::Name(name.into());
        let file = File::new("rows.csv", text);
        let config = DataConfig {
            column: name("kind"),
            group_by: name("case"),
            order_by: name("version"),
            ..file.config()
        };
        load(&config, 0).unwrap().table.unwrap().guesses.join("\n")
    };
    let found = guesses(["1.8", "1.9", "1.10", "1.11"]);
    assert!(found.contains("may have version numbers, but `1.10` is read as the number 1.1;"), "{found}");
    assert!(!guesses(["1.8", "1.95", "1.1", "2.25"]).contains("version"));
}

#[test]
fn an_object_around_the_records_names_the_command() {
    let file = File::new("rows.json", "{\"total\": 2, \"data\": [[1, 2], [3, 4]]}");
    let problem = file.problem(file.config());
    assert!(problem.contains("extract its records with jq -c '.[\"data\"][]' "), "{problem}");
    for (text, advice) in [
        (r#"{"errors": [], "results": [{"a": 1}, {"a": 2}]}"#, r#"jq -c '.["results"][]'"#),
        (r#"{"names": ["a", "b", "c"], "rows": [[1], [2], [3], [4]]}"#, r#"jq -c '.["rows"][]'"#),
        (r#"{"columns": ["a"], "index": [0], "data": [[1]]}"#, r#"orient="records", lines=True"#),
    ] {
        let file = File::new("rows.json", text);
        assert!(file.problem(file.config()).contains(advice), "{}", file.problem(file.config()));
    }
}

#[test]
fn a_single_selected_column_is_named_as_the_key_that_works() {
    let file = File::new("rows.csv", rows("g,a\n", 20, |row| format!("{},{}", row % 3, row % 5)));
    let column = |number| vec![Column::Number(number)];
    for config in [
        DataConfig { columns: column(2), ..file.config() },
        DataConfig { ignore_columns: column(1), ..file.config() },
    ] {
        let problem = file.problem(config);
        let advice = "set `data.column` = \"a\", without `data.columns` and `data.ignore_columns`, to read";
        assert!(problem.contains(advice), "{problem}");
    }
    let followed = DataConfig { column: Column::Name("a".into()), ..file.config() };
    assert!(load(&followed, 0).is_ok());
}

#[test]
fn the_odd_number_of_a_column_is_named() {
    let text = rows("v,w\n", 30, |row| {
        format!("\"{}\",x", if row == 20 { "3.5".to_string() } else { format!("{},5", row % 4) })
    });
    let file = File::new("rows.csv", text);
    let config = DataConfig { column: Column::Name("v".into()), bins: 4, ..file.config() };
    let problem = file.problem(config);
    assert!(problem.starts_with("FILE:22: `3.5` is not a number like the others"), "{problem}");
}

#[test]
fn data_seed_draws_other_rows_for_validation() {
    let file = File::new("rows.csv", rows("", 50, |row| format!("a{row},b")));
    let config = |seed| DataConfig { seed, split: crate::data::RowSplit::Shuffle, ..file.config() };
    let fingerprint = |seed, run| load(&config(seed), run).unwrap().fingerprint();
    assert_eq!(fingerprint(None, 3), fingerprint(None, 4), "the seed of a run does not change its data");
    assert_eq!(fingerprint(Some(5), 3), fingerprint(Some(5), 4));
    assert_ne!(fingerprint(Some(5), 3), fingerprint(None, 3));
}

#[test]
fn large_integers_and_single_changes_are_described_exactly() {
    let largest = "9007199254740995";
    let file = File::new("rows.csv", rows("", 20, |row| [largest, "9007199254740993"][row % 2].to_string()));
    let config = DataConfig { column: Column::Number(1), ..file.config() };
    let guesses = load(&config, 0).unwrap().table.unwrap().guesses.join("\n");
    assert!(
        guesses.contains(&format!("reach up to {largest}, so each one that occurs is a symbol")),
        "{guesses}"
    );
    assert!(!guesses.contains("`data.values` = \"integers\""), "no vocabulary can hold the gaps");
    let file = File::new("rows.csv", rows("a,b\n", 30, |row| format!("{}.5,{}.5", row % 7, row % 5)));
    let changes = DataConfig { bins: 4, difference: true, ..file.config() };
    assert!(file.problem(changes.clone()).contains("has one change per row"), "{}", file.problem(changes));
}
