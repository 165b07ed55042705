//! Lines that may be headers, and first columns that may identify rows.

use std::fmt::Write as _;

use super::File;
use crate::data::config::DataConfig;
use crate::data::load;

/// Returns the warnings about how a table is read.
fn warnings(text: &str) -> String {
    let file = File::new("rows.csv", text);
    load(&file.config(), 0).unwrap().table.unwrap().guesses.join("\n")
}

/// Returns rows with these values, which depend on the number of the row.
fn rows(header: &str, count: usize, row: impl Fn(usize) -> String) -> String {
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
    assert!(file.problem(file.config()).starts_with("FILE:2: contains words above lines of numbers"));
}
