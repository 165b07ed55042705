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
        dataset.map(|table| (table.format, table.rows[0].clone())).map_err(|error| error.to_string())
    };
    let row = ["3", "1", "4"].map(String::from).to_vec();
    for text in ["[3, 1, 4]\n[1, 5, 9]\n\n[2, 6, 5]\n", "[[3, 1, 4], [1, 5, 9],\n [2, 6, 5]]"] {
        for name in ["a.txt", "a.dat", "a"] {
            assert_eq!(read(name, text), Ok(("json", row.clone())), "{name}: {text}");
        }
        assert!(read("a.csv", text).is_err_and(|error| error.contains("brackets")));
    }
    assert_eq!(read("a.txt", "3,1,4\n1,5,9\n"), Ok(("csv", row)));
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
