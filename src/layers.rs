//! Tests the module layers of this crate and of the library crates. A module may import only from modules that precede
//! it in the list of its crate, the modules of a folder import from each other without circles, and only `terminal` and
//! `cli` write to the terminal. Tests may import from anywhere. The library crates do not depend on crates that only the
//! program needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use crate::config::keys_of;

mod circles;
mod sizes;

/// The modules of the program, from the lowest layer to the highest, among them those of the library crates that it
/// exports again: data knows no model.
const PROGRAM: [&str; 28] = [
    "numbers",
    "kernels",
    "choice",
    "choices",
    "range",
    "error",
    "files",
    "terminal",
    "data",
    "role",
    "hooks",
    "ops",
    "position",
    "attention",
    "model",
    "config",
    "evaluation",
    "weights",
    "backend",
    "workers",
    "generation",
    "analysis",
    "training",
    "scaling",
    "comparison",
    "tuning",
    "reporting",
    "cli",
];

/// The modules of `causal-attention-kernels`.
const KERNELS: [&str; 26] = [
    "allocator",
    "matrix",
    "pool",
    "team",
    "testing",
    "textbook",
    "vector",
    "math",
    "parallel",
    "random",
    "activation",
    "bf16",
    "differential",
    "dropout",
    "gate",
    "loss",
    "optimizer",
    "sums",
    "embedding",
    "few_rows",
    "matmul",
    "norm",
    "attention",
    "linear",
    "muon",
    "feed_forward",
];

/// The modules of `causal-attention-nn`.
const NN: [&str; 11] = [
    "error",
    "choice",
    "display",
    "range",
    "role",
    "hooks",
    "ops",
    "position",
    "attention",
    "model",
    "prelude",
];

/// The modules of `causal-attention-report`.
const REPORT: [&str; 27] = [
    "error",
    "numbers",
    "draw",
    "series",
    "scores",
    "reading",
    "loss",
    "gradients",
    "positions",
    "lengths",
    "scaling",
    "generated",
    "prediction",
    "attention",
    "attention_over_time",
    "heads",
    "head_scores",
    "formation",
    "phases",
    "fourier",
    "circuit",
    "patching",
    "token_matrix",
    "page",
    "comparison",
    "study",
    "golden",
];

/// The library crates, each with the crates that it must not depend on. A name such as `burn` also covers crates such
/// as `burn-core`.
const UNWANTED: [(&str, &[&str]); 3] = [
    ("kernels", &["burn", "clap", "csv", "image", "indicatif", "plotters", "schemars", "tokenizers", "toml"]),
    ("nn", &["clap", "csv", "image", "indicatif", "plotters", "schemars", "tokenizers", "toml"]),
    ("report", &["burn", "clap", "csv", "indicatif", "schemars", "tokenizers", "toml"]),
];

/// The imports from a higher layer: errors of a model name its fields, which become config keys.
const ALLOWED_IMPORTS: [(&str, &str); 1] = [("error", "model")];

/// The functions and macros that write to the terminal.
const PRINTING_CALLS: [&str; 8] =
    ["println!", "eprintln!", "print!", "eprint!", "say(", "warn(", "print_text(", "print_json("];

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the code of a file without its tests, with comments replaced by empty lines.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let without_comment =
        |line: &'_ str| if line.trim_start().starts_with("//") { String::new() } else { line.to_string() };
    text[..tests].lines().map(without_comment).collect::<Vec<_>>().join("\n")
}

/// Returns the source files of a crate without tests.
fn files_without_tests(source: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let files = WalkDir::new(source).sort_by_file_name().into_iter().map(|entry| entry.unwrap().into_path());
    let source = source.to_path_buf();
    files.filter(move |path| {
        path.extension().is_some_and(|extension| extension == "rs")
            && !path.strip_prefix(&source).unwrap().iter().any(|part| part == "tests")
            && !is_for_tests(path)
    })
}

/// Returns the byte offset of each occurrence of `word` as a separate word, with the text after it.
fn occurrences<'t>(text: &'t str, word: &str) -> impl Iterator<Item = (usize, &'t str)> {
    let is_separate = |at: usize| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|before| !is_word_character(before) && !":.!".contains(before))
    };
    text.match_indices(word)
        .filter(move |&(at, _)| is_separate(at))
        .map(|(at, word)| (at, &text[at + word.len()..]))
}

/// Returns the modules that follow a `crate::`: the first name, or the first name of each item of a list in braces.
fn imported_modules(rest: &str) -> Vec<&str> {
    let first = |text: &'_ str| text.find(|it| !is_word_character(it)).unwrap_or(text.len());
    match rest.strip_prefix('{') {
        Some(list) => {
            let items = list[..list.find(';').unwrap_or(list.len())].split(',').map(str::trim_start);
            items.map(|item| &item[..first(item)]).collect()
        }
        None => vec![&rest[..first(rest)]],
    }
}

/// Returns the name of the module of a file, and the texts of the files that may declare it.
fn declaration(path: &Path) -> (String, impl Iterator<Item = String>) {
    let module = if path.ends_with("mod.rs") { path.parent().unwrap() } else { path };
    let (folder, name) = (module.parent().unwrap(), module.file_stem().unwrap().to_string_lossy());
    let parents = ["mod.rs", "lib.rs", "main.rs"].map(|parent| folder.join(parent)).into_iter();
    let parents = parents.chain([folder.with_extension("rs")]);
    (name.into_owned(), parents.filter_map(|parent| fs::read_to_string(parent).ok()))
}

/// Returns true if the file that declares the module of `path` declares it for tests only.
fn is_for_tests(path: &Path) -> bool {
    let (name, mut parents) = declaration(path);
    parents.any(|parent| {
        let mut declarations = parent.split("#[cfg(test)]\n").skip(1);
        declarations
            .any(|rest| rest.lines().next().is_some_and(|line| line.ends_with(&format!("mod {name};"))))
    })
}

/// Returns the violations in a crate. `order` lists the modules from the lowest layer to the highest, and only the
/// `printing` modules may print.
fn check(source: &Path, order: &[&str], printing: &[&str]) -> Vec<String> {
    let mut violations = Vec::new();
    for path in files_without_tests(source) {
        let relative = path.strip_prefix(source).unwrap();
        let first = relative.components().next().map(|it| it.as_os_str().to_string_lossy().into_owned());
        let module = first.unwrap_or_default().replace(".rs", "");
        if ["lib", "main", "layers"].contains(&module.as_str()) {
            continue;
        }
        let layer = order.iter().position(|&it| it == module);
        let layer = layer.unwrap_or_else(|| panic!("`{module}` lacks a layer; add it to the list"));
        let text = code(&fs::read_to_string(&path).unwrap());
        let mut report = |at: usize, problem: String| {
            violations.push(format!("{}:{}: {problem}", path.display(), text[..at].lines().count()));
        };
        for start in ["crate::", "causal_attention_nn::"] {
            let uppers = |name: &&str| {
                order[layer + 1..].contains(name) && !ALLOWED_IMPORTS.contains(&(&module, name))
            };
            for (at, rest) in occurrences(&text, start) {
                for upper in imported_modules(rest).into_iter().filter(uppers) {
                    report(at, format!("imports from `{upper}`, a higher layer"));
                }
            }
        }
        for word in PRINTING_CALLS.into_iter().filter(|_| !printing.contains(&module.as_str())) {
            occurrences(&text, word)
                .for_each(|(at, _)| report(at, format!("calls `{word}`; log a message instead")));
        }
    }
    violations
}

#[test]
fn modules_import_downwards_and_only_the_program_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut violations = check(&root.join("src"), &PROGRAM, &["terminal", "cli"]);
    violations.extend(check(&root.join("crates/kernels/src"), &KERNELS, &[]));
    violations.extend(check(&root.join("crates/nn/src"), &NN, &[]));
    violations.extend(check(&root.join("crates/report/src"), &REPORT, &[]));
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    // Checks the search itself.
    let modules = |text: &'static str| {
        occurrences(text, "crate::").flat_map(|(_, rest)| imported_modules(rest)).collect::<Vec<_>>()
    };
    assert_eq!(
        modules("use crate::{\n    error::Error,\n    ops, Result,\n};"),
        ["error", "ops", "Result", ""]
    );
    assert_eq!(modules("let x = crate::files::read(mycrate::y)"), ["files"]);
    assert_eq!(
        ["    warn(&text)", "log::warn(x)", "swarn()"].map(|it| occurrences(it, "warn(").count()),
        [1, 0, 0]
    );
}

#[test]
fn types_of_the_program_have_different_names() {
    let mut homes = BTreeMap::<String, Vec<String>>::new();
    for path in files_without_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = code(&fs::read_to_string(&path).unwrap());
        for line in text.lines() {
            // Without `pub` or `pub(super)`.
            let line = match line.strip_prefix("pub") {
                Some(rest) => rest.split_once(' ').map_or("", |(_, declared)| declared),
                None => line,
            };
            let mut words = line.split([' ', '<', '(', '{', ';']);
            if ["struct", "enum", "trait", "type"].contains(&words.next().unwrap_or_default()) {
                let name = words.next().unwrap_or_default().to_string();
                homes.entry(name).or_default().push(path.display().to_string());
            }
        }
    }
    // Each command has its own `Args`.
    homes.retain(|name, files| name != "Args" && (1..files.len()).any(|at| files[at] != files[0]));
    assert!(homes.is_empty(), "{homes:#?}");
}

#[test]
fn every_config_key_is_read_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["src", "crates/nn/src"].map(|source| files_without_tests(&root.join(source)));
    let without_ranges = |text: String| match text.split_once("fn ranges(&self)") {
        Some((before, rest)) => {
            before.to_string() + rest.split_once("\n    }\n").map_or("", |(_, after)| after)
        }
        None => text,
    };
    let readers =
        files.into_iter().flatten().map(|path| without_ranges(code(&fs::read_to_string(path).unwrap())));
    let readers: String = readers.collect();
    let is_read = |section: &str, key: &str| {
        let is_field = |rest: &str| !rest.starts_with(|next| is_word_character(next) || next == '(');
        let accessed = [section, "config", "self"].into_iter().any(|owner| {
            let field = format!("{owner}.{key}");
            readers.match_indices(&field).any(|(at, _)| is_field(&readers[at + field.len()..]))
        });
        let fields = readers.split("let Self {").skip(1).filter_map(|rest| rest.split('}').next());
        accessed || fields.flat_map(|fields| fields.split([',', ' '])).any(|field| field == key)
    };
    for section in keys_of("") {
        for key in keys_of(section) {
            assert!(is_read(section, key), "no code reads `{section}.{key}`");
        }
    }
    assert!(!is_read("training", "unknown"));
}

#[test]
fn every_source_file_is_a_declared_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        ["src", "crates/kernels/src", "crates/nn/src", "crates/report/src", "tests/cli", "tests/reference"];
    let is_module = |path: &Path| {
        path.extension().is_some_and(|extension| extension == "rs")
            && !["lib.rs", "main.rs"].iter().any(|root| path.ends_with(root))
    };
    for folder in folders {
        let files = WalkDir::new(root.join(folder)).into_iter().map(|entry| entry.unwrap().into_path());
        for path in files.filter(|path| is_module(path)) {
            let (name, mut parents) = declaration(&path);
            let is_declared =
                parents.any(|parent| parent.lines().any(|line| line.ends_with(&format!("mod {name};"))));
            assert!(is_declared, "{}: no file declares `mod {name};`", path.display());
        }
    }
}

#[test]
fn library_crates_avoid_dependencies_of_the_program() {
    for (name, unwanted) in UNWANTED {
        let package = format!("causal-attention-{name}");
        let tree = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args("tree --offline --prefix none --format {p} -e no-dev -p".split(' '))
            .arg(&package)
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let tree = String::from_utf8(tree.stdout).unwrap();
        assert!(tree.starts_with(&package), "{tree}");
        for line in tree.lines() {
            let crate_name = line.split(' ').next().unwrap();
            let is = |word: &&str| {
                crate_name.strip_prefix(*word).is_some_and(|it| it.is_empty() || it.starts_with('-'))
            };
            assert!(!unwanted.iter().any(is), "`{package}` depends on `{crate_name}`");
        }
    }
}
