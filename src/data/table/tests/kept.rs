//! Tests that values are kept as they are written, and that columns and rows that are none are left out.

use super::silent::{column, guesses, sequences};
use super::*;
use crate::data::config::Tokens;

#[test]
fn texts_keep_the_spaces_around_them() {
    let texts =
        |config: DataConfig| DataConfig { tokens: Tokens::Characters, column: column("text"), ..config };
    let lines = " text ,n\n\"  a b \", 1\n\ta, 2\nb,3\n   ,4\n";
    for (file, text) in
        [("a.csv", lines.to_string()), ("a.tsv", lines.replace(',', "\t").replace("\ta", "\"\ta\""))]
    {
        let dataset = load(&texts(File::new(file, &text).config()), 0).unwrap();
        assert_eq!(sequences(&dataset), ["<end>  a b <end>", "<end>\ta<end>", "<end>b<end>"], "{file}");
        assert!(!guesses(&dataset).contains("surrounding spaces"), "{}", guesses(&dataset));
    }
    // The first line of a table without a header is a text too.
    let file = File::new("a.csv", " x,1\ny ,2\nx y,3\n");
    let config =
        DataConfig { column: Column::Number(1), header: Header::Given(false), ..texts(file.config()) };
    assert_eq!(sequences(&load(&config, 0).unwrap()), ["<end> x<end>", "<end>y <end>", "<end>x y<end>"]);
    let file = File::new("a.csv", "q,a\nx, 1\ny,2 \n");
    let pairs = DataConfig { source_column: column("q"), target_column: column("a"), ..file.config() };
    assert!(sequences(&load(&pairs, 0).unwrap()).concat().contains("x<sep> 1<end>"));
    // Values of sequences have no spaces around them.
    let file = File::new("a.csv", "a, b\n1, 2\n 2,1\n");
    assert_eq!(sequences(&load(&file.config(), 0).unwrap()), ["1 2", "2 1"]);
}

#[test]
fn several_indices_of_a_table_are_left_out() {
    for names in [",Unnamed: 0", "Unnamed: 0.1,Unnamed: 0"] {
        let rows =
            (0..40).map(|row| format!("{row},{},{},{}\n", 40 - row, row % 3, row % 2)).collect::<String>();
        let dataset = load(&File::new("a.csv", format!("{names},a,b\n{rows}")).config(), 0).unwrap();
        assert_eq!(dataset.vocabulary.size(), 3, "{names}");
        assert!(guesses(&dataset).contains("columns 1 to 2 are unnamed indices"), "{}", guesses(&dataset));
    }
}

#[test]
fn an_empty_text_below_the_header_is_only_skipped() {
    let rows = (1..40).map(|row| format!("{row},{}\n", ["ab", "ba"][row % 2])).collect::<String>();
    let file = File::new("a.csv", format!("id,text\n0,\n{rows}"));
    let config = DataConfig { tokens: Tokens::Characters, column: column("text"), ..file.config() };
    let dataset = load(&config, 0).unwrap();
    assert!(!guesses(&dataset).contains("is read as data"), "{}", guesses(&dataset));
    assert_eq!(sequences(&dataset).len(), 39);
}

#[test]
fn a_selected_list_with_an_empty_value_has_a_remedy_that_works() {
    let file = File::new("a.jsonl", "{\"v\":[null,2.5,0.1]}\n".repeat(8));
    let problem = file.problem(DataConfig { column: column("v"), bins: 4, ..file.config() });
    assert!(
        problem.contains("is empty; write a value, or remove it") && !problem.contains("ignore"),
        "{problem}"
    );
}
