//! Everything that README and docs/ mention exists: commands, their options, and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};
use std::process::Command;

use crate::{generate::run, text};

/// Returns the commands of the program, each with its long options. A command with `--set` also takes config keys as
/// options.
fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let here = Path::new(".");
    let help = |arguments: &[&str]| text(&run(here, arguments).stdout);
    let all = help(&["--help"]);
    let listed = all.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    let defaults = help(&["config", "--defaults"]);
    let keys = defaults
        .lines()
        .filter_map(|line| line.trim_start_matches("# ").split_once(" ="))
        .map(|(key, _)| key);
    let keys = keys.map(|key| format!("--{}", key.replace('_', "-"))).collect::<BTreeSet<_>>();
    let own = |name: &str| options(&help(&[name, "--help"]));
    let with_keys = |own: BTreeSet<String>| if own.contains("--set") { &own | &keys } else { own };
    names.map(|name| (name.to_string(), with_keys(own(name)))).collect()
}

/// Extracts the long options in a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c == '-' || c.is_ascii_lowercase();
    let words = text.split(|c| !is_part(c)).filter(|word| word.len() > 2 && word.starts_with("--"));
    words.filter(|word| !word.starts_with("---")).map(str::to_string).collect()
}

/// Extracts the code of a Markdown text: lines of code blocks, and inline code.
fn code(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut language = None;
    for line in markdown.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) => found.push(line.split(" #").next().unwrap_or_default().to_string()),
            (None, Some(_)) => {}
            (None, None) => found.extend(line.split('`').skip(1).step_by(2).map(str::to_string)),
        }
    }
    found
}

/// Extracts the targets of links to other files.
fn links(markdown: &str) -> impl Iterator<Item = &str> {
    let links = markdown.split("](").skip(1).filter_map(|link| link.split([')', '#']).next());
    links.filter(|link| !link.is_empty() && !link.contains("://"))
}

/// Extracts the repository paths in a text, from links and from code.
fn paths(markdown: &str) -> Vec<&str> {
    let words = markdown.split(|c: char| c.is_whitespace() || "`()|,;:#".contains(c));
    let folders = ["src/", "docs/", "assets/", "benches/", "examples/", "tests/", ".ci/"];
    let paths = words.filter(move |word| folders.iter().any(|folder| word.starts_with(folder)));
    links(markdown).chain(paths).map(|path| path.trim_end_matches('.')).collect()
}

#[test]
fn documented_paths_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = 0;
    for folder in [root.to_path_buf(), root.join("docs")] {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for page in entries.filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
            for path in paths(&fs::read_to_string(&page).unwrap()) {
                let exists = [&folder, root].iter().any(|folder| folder.join(path).exists());
                assert!(exists, "{}: {path} does not exist", page.display());
                found += 1;
            }
        }
    }
    assert!(found > 30, "{found}");
}

#[test]
fn links_work_in_the_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--package", "causal-attention", "--list", "--allow-dirty", "--offline"]);
    let listed = cargo.current_dir(root).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let listed = text(&listed.stdout);
    let packaged = listed.lines().map(Path::new).collect::<Vec<_>>();
    let mut found = 0;
    for page in packaged.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        for link in links(&fs::read_to_string(root.join(page)).unwrap()) {
            let mut target = page.parent().unwrap().to_path_buf();
            for part in Path::new(link).components() {
                match part {
                    Component::ParentDir => assert!(target.pop(), "{}: {link}", page.display()),
                    part => target.push(part),
                }
            }
            let exists = packaged.iter().any(|path| path.starts_with(&target));
            assert!(exists, "{}: {link} is not in the package", page.display());
            found += 1;
        }
    }
    assert!(found > 30, "{found}");
}

#[test]
fn documented_commands_and_options_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md"), root.join("python/README.md")];
    pages.extend(fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let commands = commands();
    let mut all = commands.values().flatten().cloned().collect::<BTreeSet<_>>();
    all.insert("--version".to_string());
    // Benchmarks have separate options.
    for bench in fs::read_dir(root.join("benches")).unwrap().map(|entry| entry.unwrap().path()) {
        all.extend(options(&fs::read_to_string(bench).unwrap_or_default()));
    }
    let mut documented = BTreeSet::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        for code in code(&fs::read_to_string(page).unwrap()) {
            // Arguments of cargo itself come before the two dashes.
            let typed = match code.trim().strip_prefix("cargo ") {
                Some(cargo) if !cargo.contains("--example") => {
                    cargo.split_once(" -- ").map(|(_, typed)| typed)
                }
                Some(_) => None,
                None => Some(code.trim()),
            };
            let Some(typed) = typed else { continue };
            let typed = typed.strip_prefix("causal-attention ").unwrap_or(typed);
            let first = typed.split(' ').next().unwrap_or_default();
            let known = match commands.get(first) {
                Some(own) => {
                    documented.insert(first.to_string());
                    own
                }
                None if first.starts_with("--") => &all,
                None => {
                    assert!(!code.starts_with("cargo run"), "{}: unknown command `{typed}`", page.display());
                    continue;
                }
            };
            for option in options(typed) {
                assert!(known.contains(&option), "{}: `{typed}`: unknown option {option}", page.display());
            }
        }
    }
    assert_eq!(documented, commands.keys().cloned().collect(), "every command is documented");
}

#[test]
fn page_and_docs_define_terms_alike() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_to_string(root.join("docs/terminology.md")).unwrap();
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let defined = rows
        .flat_map(|(terms, definition)| terms.split(", ").map(move |term| (term, definition)))
        .collect::<BTreeMap<_, _>>();
    let page = fs::read_to_string(root.join("crates/report/page/live/explain.js")).unwrap();
    let terms = page.split_once("const TERMS = {").unwrap().1.split_once("};").unwrap().0;
    let entries = terms.lines().filter_map(|line| line.trim().strip_suffix("\",")?.split_once(": \""));
    let mut found = 0;
    for (term, definition) in entries {
        let (first, rest) = definition.strip_suffix('.').unwrap().split_at(1);
        let definition = first.to_lowercase() + rest;
        assert_eq!(defined.get(term.trim_matches('"')), Some(&definition.as_str()), "{term}");
        found += 1;
    }
    assert!(found > 10, "{found}");
}
