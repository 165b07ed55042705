//! Tests of values that other programs enclose or escape.

use super::*;

fn problem(text: &str, column: Column) -> String {
    let file = File::new("a.csv", text);
    file.problem(DataConfig { column, ..file.config() })
}

/// Returns the first row as parsed.
fn first_row(text: &str) -> Vec<String> {
    let file = File::new("a.csv", text);
    load(&file.config(), 0).unwrap().table.unwrap().rows[0].clone()
}

#[test]
fn rows_in_brackets_are_refused() {
    for (text, line) in [
        ("a,b,c\n[1, 3, 2]\n[2, 0, 1]\n[3, 1, 1]\n", 2),
        ("a,b\n(1, 2)\n(3, 0)\n", 2),
        ("a,b\n{1, 2}\n{3, 0}\n", 2),
        ("a\n[1, 3, 2]\n[2, 0, 1]\n", 2),
        ("a\n[x, y, z]\n[y, y, z]\n[x, y, z]\n[y, y, z]\n[x, z, z]\n", 2),
        ("x,[0, 5, 8, 7]\ny,[1, 2]\n", 1),
        ("[[1, 2], [3, 4]]\n[[5, 6], [7, 8]]\n", 1),
        ("a,b\n1,2\n[3, 4]\n[5, 6]\n", 3),
    ] {
        let message = problem(text, Column::default());
        let expected = format!("FILE:{line}: has a list in brackets, which would become part of its values");
        assert!(
            message.starts_with(&expected) && message.contains("; remove the brackets"),
            "{text}: {message}"
        );
    }
}

#[test]
fn brackets_that_split_no_value_are_read() {
    assert_eq!(
        first_row("x,*,(,1,+,3,)\n(,4,),+,x\n"),
        ["x", "*", "(", "1", "+", "3", ")"].map(String::from)
    );
    assert_eq!(first_row("f(x),[0]\nf(y),[1]\n"), ["f(x)", "[0]"].map(String::from));
    let lists = "name,items\nann,[1, 2]\nbob,[3, 4]\n".to_string() + &"ann,[1, 2]\n".repeat(9);
    let file = File::new("a.csv", &lists);
    let names = DataConfig { column: Column::Name("name".into()), ..file.config() };
    assert_eq!(load(&names, 0).unwrap().vocabulary.size(), 2);
    assert!(problem(&lists, Column::Name("items".into())).contains("has a list in brackets"));
}

#[test]
fn quotes_after_a_space_are_refused() {
    let text = "x, \"b, c\"\ny, \"b, d\"\n";
    let expected = "FILE:2: value 2: \"b,d\" keeps its quotes and is split, because a space precedes them; \
                    remove the space";
    assert_eq!(problem(text, Column::default()), expected);
    assert_eq!(first_row(&text.replace(", \"", ",\"")), ["x", "b, c"].map(String::from));
    let named = "k,v\n".to_string() + &"x, \"b, c\"\n".repeat(9);
    assert!(problem(&named, Column::Number(2)).contains("keeps its quotes and is split"));
    let file = File::new("a.csv", &named);
    assert!(load(&DataConfig { column: Column::Number(1), ..file.config() }, 0).is_ok());
}

#[test]
fn escaped_delimiters_are_refused() {
    for (text, line) in [("a\\,b,c\nd,e\n", 1), ("d\te\na\\\tb\tc\n", 2), ("d,e\n\"x\",a\\,b\n", 2)] {
        let message = problem(text, Column::default());
        let expected = format!("FILE:{line}: escapes the delimiter with a backslash; remove the backslash");
        assert!(message.starts_with(&expected), "{text}: {message}");
    }
    assert_eq!(first_row("\"a,b\",c\nd,e\n"), ["a,b", "c"].map(String::from));
    assert_eq!(first_row("a\\\\,c\nd,e\n"), ["a\\\\", "c"].map(String::from));
    assert_eq!(first_row("\"a\\, b\",\\,c\nd,e,f\n"), ["a\\, b", "\\", "c"].map(String::from));
}

#[test]
fn other_quotes_around_delimiters_are_refused() {
    for (row, name) in [("“b, d”", "curly"), ("‘b, d’", "curly"), ("„b, d“", "curly"), ("'b, d'", "single")]
    {
        for (text, line) in [(format!("x,{row}\ny,z\n"), 1), (format!("y,z\nx, {row}\n"), 2)] {
            let message = problem(&text, Column::default());
            let expected = format!(
                "FILE:{line}: has a value in {name} quotes that the delimiter splits; use double quotes"
            );
            assert_eq!(message, expected, "{text}");
        }
    }
    assert_eq!(first_row("\"'tis\",the,\"dogs'\"\na,b,c\n"), ["'tis", "the", "dogs'"].map(String::from));
    assert_eq!(first_row("“b”,d\na,b\n"), ["“b”", "d"].map(String::from));
}
