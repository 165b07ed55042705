//! Tests that functions, structs and files are small enough to be read at once.

use std::fs;
use std::path::Path;

use super::{code, files_without_tests};

/// Returns the items that begin with `keyword`, such as `fn`, in formatted code: the index of the first line, and the
/// number of lines up to the closing brace of the same indentation.
fn items(lines: &[&str], keyword: &str) -> Vec<(usize, usize)> {
    let is_item = |line: &str| {
        let words = line.trim_start().split(' ').skip_while(|word| {
            word.starts_with("pub") || word.ends_with("crate)") || ["const", "unsafe", "in"].contains(word)
        });
        words.into_iter().next() == Some(keyword)
    };
    let item = |(first, line): (usize, &&str)| {
        let indentation = &line[..line.len() - line.trim_start().len()];
        let end = lines[first..].iter().position(|line| **line == format!("{indentation}}}"))?;
        // A declaration without a body ends with a semicolon.
        let has_body = lines[first..].iter().find(|line| line.ends_with(['{', ';']))?.ends_with('{');
        (is_item(line) && has_body && !line.ends_with('}')).then_some((first, end + 1))
    };
    lines.iter().enumerate().filter_map(item).collect()
}

#[test]
fn functions_structs_and_files_are_small() {
    const MAX_FUNCTION_LINES: usize = 60;
    const MAX_FIELDS: usize = 12;
    const MAX_FILE_LINES: usize = 400;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources =
        ["src", "crates/kernels/src", "crates/nn/src", "crates/report/src", "tests", "benches", "examples"];
    let mut found = Vec::new();
    for path in sources.iter().flat_map(|source| files_without_tests(&root.join(source))) {
        let text = fs::read_to_string(&path).unwrap();
        let mut report = |line: usize, what: String| found.push(format!("{}:{line}: {what}", path.display()));
        if text.lines().count() > MAX_FILE_LINES {
            report(1, format!("{} lines", text.lines().count()));
        }
        let code = code(&text);
        let lines: Vec<&str> = code.lines().collect();
        for (first, count) in items(&lines, "fn").into_iter().filter(|(_, count)| *count > MAX_FUNCTION_LINES)
        {
            report(first + 1, format!("a function of {count} lines"));
        }
        // A config section has a field per key, a row of a table a field per column.
        let is_row = |line: &str| ["Config {", "struct Row {"].iter().any(|end| line.ends_with(end));
        let structs = items(&lines, "struct").into_iter();
        for (first, count) in structs.filter(|(first, _)| !is_row(lines[*first])) {
            let indentation = lines[first].len() - lines[first].trim_start().len() + 4;
            let is_field =
                |line: &&&str| line.len() - line.trim_start().len() == indentation && line.contains(": ");
            let fields = lines[first + 1..first + count].iter().filter(is_field).count();
            if fields > MAX_FIELDS {
                report(first + 1, format!("a struct of {fields} fields"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    // Checks the search itself.
    let code = "    pub fn a(\n        b: u8,\n    ) -> u8 {\n        b\n    }\n\nstruct C {\n    d: u8,\n}";
    let lines: Vec<&str> = code.lines().collect();
    assert_eq!((items(&lines, "fn"), items(&lines, "struct")), (vec![(0, 5)], vec![(6, 3)]));
}
