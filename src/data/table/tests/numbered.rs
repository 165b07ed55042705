//! Tests of columns that are selected by their numbers.

use super::fields::column;
use super::*;
use crate::data::config::Tokens;

fn number(number: usize) -> Column {
    Column::Number(number)
}

#[test]
fn numbers_of_pairs_and_texts_match_names() {
    let rows: String = "p,x\nq,y\nr,z\n".repeat(40);
    let swapped: String = "x,0,p\ny,0,q\nz,0,r\n".repeat(40);
    let first = File::new("qa.csv", format!("question,answer\n{rows}"));
    let other = File::new("aq.csv", format!("answer,id,question\n{swapped}"));
    for change in [
        (|config| DataConfig { source_column: number(1), target_column: number(2), ..config })
            as fn(DataConfig) -> DataConfig,
        |config| DataConfig { column: number(1), tokens: Tokens::Characters, ..config },
        |config| DataConfig { column: number(1), tokens: Tokens::Words, ..config },
    ] {
        let config = change(first.config());
        let dataset = load(&config, 0).unwrap();
        let again = load_with(&change(other.config()), 0, &dataset.vocabulary).unwrap();
        assert_eq!(again.fingerprint(), dataset.fingerprint());
        let stored = serde_json::to_string(&dataset.vocabulary).unwrap();
        let stored: Vocabulary = serde_json::from_str(&stored).unwrap();
        let again = load_with(&change(other.config()), 0, &stored).unwrap();
        assert_eq!(again.fingerprint(), dataset.fingerprint());
        let valid_path = other.config().path;
        let both = load(&DataConfig { valid_path, ..config }, 0).unwrap();
        assert_eq!(both.train.sample(0), both.valid.sample(0));
    }
    let lacking = File::new("b.csv", format!("query,answer\n{rows}"));
    let config = DataConfig { source_column: number(1), target_column: number(2), ..first.config() };
    let vocabulary = load(&config, 0).unwrap().vocabulary;
    let error = load_with(&DataConfig { path: lacking.config().path, ..config }, 0, &vocabulary).unwrap_err();
    assert!(error.to_string().contains("lacks 1 column (question) of the training data"), "{error}");
}

#[test]
fn numbers_that_are_also_names_are_reported() {
    let rows: String =
        (0..40).map(|row| format!("s{row},a{},b{},c{}\n", row % 3, row % 2, row % 5)).collect();
    let file = File::new("rows.csv", format!("id,1,2,3\n{rows}"));
    let given = DataConfig { header: Header::Given(true), ..file.config() };
    for (config, key, value) in [
        (DataConfig { column: number(2), ..given.clone() }, "data.column", "\"2\""),
        (DataConfig { columns: vec![number(2), number(4)], ..given.clone() }, "data.columns", "[\"2\"]"),
        (DataConfig { ignore_columns: vec![number(1)], ..given.clone() }, "data.ignore_columns", "[\"1\"]"),
        (DataConfig { group_by: number(2), column: number(4), ..given.clone() }, "data.group_by", "\"2\""),
        (
            DataConfig { source_column: number(1), target_column: number(3), ..given.clone() },
            "data.target_column",
            "\"3\"",
        ),
    ] {
        let (expected, warnings) = (format!("--set '{key}={value}'"), warnings(&config));
        assert!(warnings.contains(&expected), "{expected}: {warnings}");
    }
}

#[test]
fn a_number_above_the_columns_is_a_name() {
    let rows: String = (0..40).map(|row| format!("c{},{},{}\n", row % 4, row % 3, 7 + row % 2)).collect();
    let file = File::new("gdp.csv", format!("country,2019,2020\n{rows}"));
    let symbols = || DataConfig { values: Values::Symbols, ..file.config() };
    for change in [
        (|config, column| DataConfig { column, ..config }) as fn(DataConfig, Column) -> DataConfig,
        |config, column| DataConfig { columns: vec![self::column("country"), column], ..config },
        |config, column| DataConfig { columns: vec![column, Column::Number(1)], ..config },
    ] {
        let [numbered, named] = [number(2020), column("2020")]
            .map(|column| load(&change(symbols(), column), 0).unwrap().fingerprint());
        assert_eq!(numbered, named);
    }
    let records =
        File::new("gdp.jsonl", "{\"2019\": 1, \"2020\": 2}\n{\"2019\": 3, \"2020\": 4}\n".repeat(9));
    assert!(load(&DataConfig { column: number(2020), ..records.config() }, 0).is_ok());
    let data = File::new("rows.csv", "3,1,4\n1,5,9\n2,6,5\n3,5,8\n");
    assert!(data.problem(DataConfig { column: number(4), ..data.config() }).contains("none in column 4"));
}
