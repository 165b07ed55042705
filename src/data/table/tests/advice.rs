//! Tests of advice that must succeed on the same file, and of warnings about lines below a header.

use super::*;

#[test]
fn advice_names_the_column_after_an_index() {
    let weather = ["sun", "rain", "fog"];
    let rows = |value: &dyn Fn(usize) -> String| {
        (0..30).map(|row| format!("{row},{}\n", value(row))).collect::<String>()
    };
    for text in [
        ",x\n".to_string() + &rows(&|row| (row % 3).to_string()),
        "Unnamed: 0,state\n".to_string() + &rows(&|row| weather[row % 3].to_string()),
    ] {
        let file = File::new("a.csv", &text);
        let message = file.problem(file.config());
        assert!(message.contains("set `data.column` = 2 to read all values as one sequence"), "{message}");
        let read = load(&DataConfig { column: Column::Number(2), ..file.config() }, 0).unwrap();
        assert_eq!((read.vocabulary.size(), read.train.stream().is_some()), (3, true));
    }
}

#[test]
fn content_determines_json_without_a_table_extension() {
    let read = |name, text: &str| {
        let file = File::new(name, text);
        let dataset = load(&file.config(), 0).map(|dataset| dataset.table.unwrap());
        dataset
            .map(|table| (table.format.to_string(), table.rows[0].clone()))
            .map_err(|error| error.to_string())
    };
    let row = ["3", "1", "4"].map(String::from).to_vec();
    for text in ["[3, 1, 4]\n[1, 5, 9]\n\n[2, 6, 5]\n", "[[3, 1, 4], [1, 5, 9],\n [2, 6, 5]]"] {
        for name in ["a.txt", "a.dat", "a"] {
            assert_eq!(read(name, text), Ok(("json".to_string(), row.clone())), "{name}: {text}");
        }
        assert!(read("a.csv", text).is_err_and(|error| error.contains("brackets")));
    }
    assert_eq!(read("a.txt", "3,1,4\n1,5,9\n"), Ok(("csv".to_string(), row)));
    assert!(read("a.txt", "[3, 1]\n[1, 5]\n[1, 5\n").is_err_and(|error| error.contains("to .jsonl")));
}

#[test]
fn names_that_recur_in_their_line_are_reported() {
    let is_reported = |text: &str| {
        let file = File::new("t.csv", text);
        let config = DataConfig { header: Header::Given(true), ..file.config() };
        load(&config, 0).unwrap().guesses().any(|guess| guess.contains("below the header"))
    };
    let words = "p,q,p,q\nq,p,q,q\n".repeat(20);
    for header in ["a,b,c,d\nunit,unit,unit,unit\n", "a,a,b,b\nx,y,x,y\n", "a,b,c,d\nu1,u2,u3,u4\n"] {
        assert!(is_reported(&format!("{header}{words}")), "{header}");
    }
    assert!(is_reported(&format!("a,b\nunit,unit\n{}", "x,1\ny,2\n".repeat(20))));
    assert!(!is_reported(&format!("a,b,c,d\n{words}")));
    assert!(!is_reported(&format!("a,b\n{}", "x,1\ny,2\n".repeat(20))));
    let guessed = guesses("t.csv", &format!("a,b,c,d\nunit,unit,unit,unit\n{words}"), Column::default());
    assert!(guessed.contains("line 2 (`unit, unit, unit, unit`), below the header"), "{guessed}");
}

#[test]
fn errors_name_the_columns_that_are_selected() {
    let file = File::new("rows.csv", "a,b,c,d\n1,2,3,4\n1,,3,\n5,6,x,8\n");
    let ignoring = |columns: &[&str]| DataConfig {
        ignore_columns: columns.iter().map(|name| Column::Name((*name).into())).collect(),
        ..file.config()
    };
    assert!(file.problem(file.config()).contains("FILE:3: value 2 (`b`): is empty; write a value"));
    let problem = file.problem(ignoring(&["b"]));
    assert!(problem.contains("FILE:4: the column `c`: `x` is not an integer"), "{problem}");
    let few = DataConfig { columns: ignoring(&["b", "c"]).ignore_columns, ..file.config() };
    let problem = file.problem(few);
    assert!(
        problem.contains("the column `b`: is empty")
            && problem.contains("remove its column from `data.columns`")
    );
    let warnings = warnings(&ignoring(&["b", "c"]));
    assert!(warnings.contains("1 row lacks values in the last columns, up to the column `d`"), "{warnings}");
}

#[test]
fn rows_empty_in_the_selected_columns_are_counted() {
    let text = String::from("a,b,c\n") + &"1,2,3\n4,,6\n,,9\n".repeat(4);
    let file = File::new("rows.csv", text);
    let columns = ["a", "b"].map(|name| Column::Name(name.into())).to_vec();
    let warnings = warnings(&DataConfig { columns, ..file.config() });
    assert!(warnings.contains("4 rows lack values in the last columns, up to the column `b`"), "{warnings}");
    assert!(warnings.contains("4 rows are empty in the selected columns and are skipped"), "{warnings}");
}

#[test]
fn values_that_are_no_numbers_are_located() {
    let bins = |file: &File| DataConfig { bins: 4, ..file.config() };
    let file = File::new("rows.csv", "x\n1.5\n2.5\nNaN\n4.5\n");
    let problem = file.problem(DataConfig { column: Column::Name("x".into()), ..bins(&file) });
    assert!(problem.starts_with("FILE:4: `NaN` is not a number like the others"), "{problem}");
    let file = File::new("rows.csv", "1.5,2.5\n3.5,4.5\n5.5,NA\n");
    let problem = file.problem(bins(&file));
    assert!(problem.starts_with("FILE:3: value 2: `NA` is not a number"), "{problem}");
    let file = File::new("rows.csv", "firm,x\nUS,1.5\nGM,2.5\n");
    let problem = file.problem(bins(&file));
    assert!(problem.starts_with("FILE:2: value 1 (`firm`): `US` is not a number"), "{problem}");
    let file = File::new("object.json", "{\"attention_mask\": [1, 1], \"input_ids\": [4, 5]}");
    assert!(file.problem(file.config()).contains("'.[\"input_ids\"][]'"), "{}", file.problem(file.config()));
}
