//! Comments in CSV.

use super::File;
use super::fields::all;
use crate::data::config::{Comment, DataConfig, Header, Tokens};
use crate::data::load;

/// Returns the samples of a CSV file with this text, and the number of lines that were skipped as comments.
fn read(text: &str, set: impl FnOnce(&mut DataConfig)) -> (Vec<String>, usize) {
    let file = File::new("rows.csv", text);
    let mut config = file.config();
    set(&mut config);
    let skipped = load(&config, 0).unwrap().table.unwrap().comments;
    (all(&config), skipped)
}

#[test]
fn lines_that_cannot_be_rows_are_comments() {
    let expected = ["1 [2]", "3 [4]", "5 [6]"];
    for (text, skipped) in [
        ("# written by a program\n1,2\n# more\n3,4\n5,6\n", 2),
        ("# written on 5, May\n#\na,b\n1,2\n3,4\n5,6\n", 2),
        ("# a comment, of two parts\n# a,b\n1,2\n3,4\n5,6\n", 1),
        ("1,2\n#9,9\n3,4\n5,6\n# end", 2),
    ] {
        assert_eq!(read(text, |_| ()), (expected.map(str::to_string).to_vec(), skipped), "{text}");
    }
}

#[test]
fn lines_that_may_be_rows_are_read() {
    let rows = "c,d\nd,c\n#b,c\nc,#b\n".repeat(9);
    assert_eq!(read(&rows, |_| ()).1, 0, "symbols that begin with the sign");
    assert_eq!(read("b,c,#a\n#a,b,c,c\nb,b\n#a\n", |_| ()).1, 0, "sequences of different lengths");
    assert_eq!(read("#b,c\n#c,b\n#b,b\n", |_| ()).1, 0, "all lines");
    let texts = "#first text\nsecond, text\n#third text\n";
    let file = File::new("lines.txt", texts);
    let config =
        DataConfig { tokens: Tokens::Characters, source: Some(crate::data::Source::Table), ..file.config() };
    assert_eq!(load(&config, 0).unwrap().table.unwrap().comments, 0);
    let quoted = "a,\"b\n#c, d\"\n".repeat(9);
    assert_eq!(read(&quoted, |_| ()).1, 0, "a line within quotes");
}

#[test]
fn the_config_overrides_the_inference() {
    let text = "# x,y\n1,2\n3,4\n5,6\n";
    assert_eq!(read(text, |_| ()).1, 0, "a header");
    assert_eq!(read(text, |config| config.header = Header::Given(false)).1, 1);
    assert_eq!(read(text, |config| config.comment = Comment::Of("#".into())).1, 1);
    let file = File::new("rows.csv", "# written\n1,2\n3,4\n");
    let all_lines = DataConfig { comment: Comment::None, ..file.config() };
    assert!(file.problem(all_lines).contains("starts with `#`"));
}

#[test]
fn lines_within_quotes_are_no_comments() {
    let cells = "t,n\n\"intro\n# heading\n\nbody\",1\n\"say \"\"hi\"\"\n#b\",2\n".repeat(3);
    let set = |config: &mut DataConfig| {
        config.header = Header::Given(true);
        config.column = super::Column::Name("t".into());
        config.tokens = Tokens::Characters;
        config.source = Some(crate::data::Source::Table);
        config.comment = Comment::Of("#".into());
        config.length = 99;
    };
    let text = cells.replacen("t,n\n", "", 3);
    let (texts, skipped) = read(&format!("t,n\n# written\n{text}"), set);
    assert_eq!((texts.len(), skipped), (6, 1), "only the line outside quotes is a comment: {texts:?}");
    let file = File::new("rows.csv", format!("t,n\n{text}"));
    let mut config = file.config();
    set(&mut config);
    config.comment = Comment::Auto;
    let warnings = super::warnings(&config);
    assert!(!warnings.contains("begin with `#`") && !warnings.contains("is blank"), "{warnings}");
}
