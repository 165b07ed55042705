//! Tests of tables that are refused with a line number.

use super::*;

/// Returns the error for an invalid table. `config` modifies the config that reads the table.
fn refused(name: &'static str, text: &str, config: fn(DataConfig) -> DataConfig) -> String {
    let file = File::new(name, text);
    file.problem(config(file.config()))
}

fn as_is(config: DataConfig) -> DataConfig {
    config
}

fn second_column(config: DataConfig) -> DataConfig {
    DataConfig { column: Column::Number(2), ..config }
}

fn column_b(config: DataConfig) -> DataConfig {
    DataConfig { column: Column::Name("b".into()), ..config }
}

fn assert_prefixes<const N: usize>(messages: [(String, &str); N]) {
    for (message, prefix) in messages {
        assert!(message.starts_with(prefix), "{message}\ndoes not start with\n{prefix}");
    }
}

#[test]
fn invalid_values_are_reported_with_their_line() {
    assert_prefixes([
        (
            refused("a.csv", "1,2\n\n3,x\n", as_is),
            "FILE:3: value 2: `x` is not an integer; fix it, or set `data.values`",
        ),
        (refused("a.csv", "1,2\r\n\r\n3,\"4.5\"\r\n", as_is), "FILE:3: value 2: `4.5` is not an integer"),
        (refused("a.csv", "1.5,2\n3,4\n", as_is), "FILE:1: value 1: `1.5` is not an integer"),
        (
            refused("a.csv", "1,2\n3, -4\n", as_is),
            "FILE:2: value 2: `-4` is negative; set `data.values` = \"symbols\"",
        ),
        (
            refused("a.csv", "1,2\n3,1\n", |config| DataConfig { vocab: Count::Of(3), ..config }),
            "FILE:2: value 1: `3` is outside the vocabulary (ids 0 to 2); raise `data.vocab` = 3",
        ),
        (
            refused("a.csv", "1,2\n3,99999999999999999999\n", as_is),
            "FILE:2: value 2: `99999999999999999999` is too large",
        ),
        (refused("a.csv", "1,2\n3,,4\n", as_is), "FILE:2: value 2: is empty; write a value, or remove it"),
        (
            refused("a.csv", "\"a\nb\",c\nd,\"e\nf\"\n", second_column),
            "FILE:3: value 2: `e\\nf` spans several",
        ),
        (
            refused("a.csv", "3，1\n4，1\n", as_is),
            "FILE: has one value per row; use an ASCII delimiter instead of `，`",
        ),
        (
            refused("a.csv", "say,x\n\u{feff}say,x\n", as_is),
            "FILE:2: begins with a byte order mark, as in joined files",
        ),
        (
            refused("a.csv", "\"said \\\"no, ok\\\"\",\"x\"\n", as_is),
            "FILE:1: escapes a quote with a backslash",
        ),
        (
            refused("a.csv", &format!("Sales 2024\nuser,act\n{}", "ann,buy\n".repeat(5)), as_is),
            "FILE:1: has 1 value, but all lines below have 2; remove it if it is a title",
        ),
        (
            refused("a.csv", &vec!["7"; 300].join(","), as_is),
            "FILE: has 1 row, of which `data.valid_fraction` = 0.4 leaves 0 for training and 1 for \
             validation, but each needs at least one; to read the values of this row as one",
        ),
        (refused("a.csv", "1,2\n", as_is), "FILE: has 1 row, of which"),
        (refused("a.csv", "\n\n", as_is), "FILE: is empty"),
        (refused("a.csv", "sep=;\n1;2\n", as_is), "FILE:1: names the delimiter for Excel; remove this line"),
        (
            refused("a.csv", "3\n", |config| DataConfig { delimiter: Delimiter::Of(b';'), ..config }),
            "FILE: has one value per row",
        ),
    ]);
}

#[test]
fn errors_name_columns_that_cannot_be_read() {
    assert_prefixes([
        (
            refused("a.csv", "1,2\n3\n", second_column),
            "FILE:2: has 1 value but none in column 2; add it, because a column needs a value in every row",
        ),
        (
            refused("a.csv", "a,c\n3,4\n", column_b),
            "`data.column` = b is not a column of FILE; the columns are a, c, or, if",
        ),
        (
            refused("a.csv", "1\n2\n3\n", as_is),
            "FILE: has one value per row, so there is nothing to predict; set `data.column` = 1",
        ),
        (
            refused("a.csv", "a,8\n1,2\n3,4\n", |config| DataConfig {
                header: Header::Given(true),
                column: Column::Number(9),
                ..config
            }),
            "FILE:2: has 2 values but none in column 9; add it, because",
        ),
        (
            refused("a.csv", "a,b,b\n1,2,3\n", column_b),
            "`data.column` = b is the name of columns 2 and 3; use the number of one of them",
        ),
        (
            refused("a.csv", "a,b\n1,2\n", |config| DataConfig {
                header: Header::Given(false),
                column: Column::Name("b".into()),
                ..config
            }),
            "`data.header` = false excludes column names, but `data.column` = \"b\" is one",
        ),
    ]);
}

#[test]
fn invalid_json_is_reported_with_its_line() {
    assert_prefixes([
        (
            refused("a.json", "[[1, 2],\n [99999999999999999999, 3]]", as_is),
            "FILE:2: has a number with too many digits; write it in quotes, as a symbol",
        ),
        (refused("a.jsonl", "[1, 2]\n[-1e300]\n", as_is), "FILE:2: has a number with too many digits"),
        (
            refused("a.jsonl", "[\"a\", 1]\n[\"1\", \"b\"]\n", as_is),
            "FILE:2: `1` occurs both with and without quotes",
        ),
        (
            refused("a.jsonl", "[\"a\", \"true\", true]\n", as_is),
            "FILE:1: `true` occurs both with and without quotes",
        ),
        (
            refused("a.jsonl", "[\"a\", 0.5]\n[0.1234567890123456789, \"b\"]\n", as_is),
            "FILE:2: has a number with too many digits; write it in quotes, as a symbol: \
             0.123456789012345678",
        ),
        (refused("a.jsonl", "{\"a\": {\"b\": 1}}\n", as_is), "FILE:1: is an object that holds only objects"),
        (refused("a.jsonl", "[1, 2]\n[3, null]\n", as_is), "FILE:2: ends in null, which is not a value"),
        (
            refused("a.jsonl", "{\"b\": [1, 2], \"pad_mask\": [0, 1]}\n", column_b),
            "FILE:1: has a field `pad_mask`, which changes",
        ),
        (refused("a.jsonl", "[1, 2]\n[3, \"x\"]\n", as_is), "FILE:2: value 2: `x` is not an integer"),
        (refused("a.jsonl", "[1, 2]\n[3, 1.0]\n", as_is), "FILE:2: value 2: `1.0` is not an integer"),
        (refused("a.jsonl", "[1, 2]\n[3, 4\n", as_is), "FILE:2:5: cannot be read: EOF"),
        (
            refused("a.jsonl", "{\"a\": 1}\n", as_is),
            "FILE:1: is an object with the fields a; set `data.column` to the field to read",
        ),
        (refused("a.jsonl", "[[1]]\n", as_is), "FILE:1: has an array or an object in a sequence"),
        (
            refused("a.jsonl", "[1, 2]\n3\n", as_is),
            "FILE:2: is a single value, but the rows above are sequences",
        ),
        (
            refused("a.jsonl", "[1, 2]\n", column_b),
            "FILE:1: is not an object, so `data.column` = b selects nothing",
        ),
        (
            refused("a.jsonl", "{\"b\": 1}\n{\"a\": 1, \"b\": \"x\"}\n", column_b),
            "FILE:2: `x` is not an integer",
        ),
        (refused("a.jsonl", "{\"b\": 1}\n{\"a\": 1}\n", column_b), "FILE:2: lacks the value `b`"),
        (refused("a.json", "", as_is), "FILE: is empty"),
        (refused("a.json", "[]", as_is), "FILE: is empty"),
        (refused("a.json", "[[1, 2],\n [3, \"x\"]]", as_is), "FILE:2: value 2: `x` is not an integer"),
        (refused("a.json", "[[1, 2],\n\n [3, 4],\n]", as_is), "FILE:4:"),
        (refused("a.json", "[[1, 2]\n [3, 4]]", as_is), "FILE:2:2: cannot be read: expected `,` or `]`"),
        (refused("a.json", "[[1, 2]\n]\n]", as_is), "FILE:3:1: cannot be read: trailing characters"),
        (
            refused("a.json", "{\"b\": [1]}", column_b),
            "FILE: is one object, not an array; extract its records with jq",
        ),
        (refused("a.json", "{\"b\": 1}", column_b), "FILE:1:1: cannot be read: expected a list"),
    ]);
}

#[test]
fn files_of_other_formats_are_named() {
    assert_prefixes([
        (
            refused("a.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", as_is),
            "FILE: is a Git LFS pointer",
        ),
        (refused("a.csv", "<!DOCTYPE html>\n<p>1,2\n", as_is), "FILE: is HTML, not a table"),
        (
            refused("a.csv", "| a | b |\n|---|---|\n| 1 | 2 |\n", as_is),
            "FILE:2: is the separator line of a Markdown table; convert the file with grep -v '^[-:| ]*$' \
             FILE | sed",
        ),
    ]);
}

#[test]
fn lines_with_nothing_to_predict_are_rejected() {
    let file = File::new("a.csv", "a,b,<end>\n\n<end>\na,<end>\n");
    let message = file.problem(file.config());
    assert_eq!(message, "FILE:3: has one value, so there is nothing to predict; remove this row");
    let vocabulary = Vocabulary::integers(9, &[]);
    let file = File::new("a.csv", "1,2\n3\n4,5\n");
    let message = load_with(&file.config(), 0, &vocabulary).unwrap_err().to_string();
    assert!(message.contains("a.csv:2: has one value"), "{message}");
}

#[test]
fn invalid_utf8_is_reported_by_line_and_byte() {
    for (name, text) in [("a.csv", &b"1,2\n\"\xc3\xa4\" ,\xff\n"[..]), ("a.jsonl", b"[1]\n[\"a\xff\"]")] {
        let file = File::new(name, text);
        let message = file.problem(file.config());
        let byte = text.iter().position(|&byte| byte == 0xff).unwrap();
        assert!(message.starts_with(&format!("FILE:2: is not UTF-8 at byte {byte}; ")), "{message}");
    }
}

#[test]
fn a_folder_or_a_missing_file_is_refused() {
    let file = File::new("a.csv", "1,2");
    let folder = DataConfig { path: file.0.path().into(), ..file.config() };
    std::fs::write(file.0.path().join("notes.txt"), "a note").unwrap();
    assert!(file.problem(folder).contains("notes.txt: is not a table by its extension"));
    let missing = DataConfig { path: file.0.path().join("b.csv").into(), ..file.config() };
    assert!(file.problem(missing).starts_with("cannot read `"));
    let zero = DataConfig { column: Column::Number(0), ..file.config() };
    assert!(file.problem(zero).starts_with("`data.column` = 0 must be in [1, "));
}

#[test]
fn values_outside_the_vocabulary_are_reported() {
    let file = File::new("a.csv", "1,2\n3,0\n");
    let error = load_with(&file.config(), 0, &Vocabulary::integers(3, &[])).unwrap_err().to_string();
    assert!(error.contains(":2: value 1: `3` is not in the vocabulary of 3 integers"), "{error}");
}

#[test]
fn different_lists_in_cells_are_refused() {
    for separator in [",", ";"] {
        let list = |row: usize| [row % 7, row % 11, row].map(|value| value.to_string()).join(separator);
        let rows = (0..40).map(|row| format!("{row},\"{}\"\n", list(row))).collect::<String>();
        let file = File::new("a.csv", format!("id,list\n{rows}"));
        let config = DataConfig { column: Column::Name("list".into()), ..file.config() };
        let problem = file.problem(config);
        assert!(
            problem.contains("40 different texts") && problem.contains("each would be one token"),
            "{problem}"
        );
    }
}
