//! Tests that the modules of a folder do not import from each other in a circle. A module and its parent count as one:
//! a child may use what its parent defines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{code, files_without_tests, is_word_character};

/// A path of modules or items, without `crate`.
type ItemPath = Vec<String>;

/// The modules of a crate, with the paths that each imports and those that it exports again by name.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<ItemPath, Imports>,
}

#[derive(Default)]
struct Imports {
    used: Vec<ItemPath>,
    exported: BTreeMap<String, ItemPath>,
}

/// Splits a `use` tree such as `a::{b, c::d as e}` into its paths, each with the name that it introduces.
fn paths_of(prefix: &str, tree: &str, paths: &mut Vec<(String, String)>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, name) =
            tree.split_once(" as ").unwrap_or((tree, tree.rsplit("::").next().unwrap_or(tree)));
        return paths.push((format!("{prefix}{path}"), name.to_string()));
    };
    let (mut depth, mut start) = (0, 0);
    let list = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    for (at, character) in list.char_indices().chain([(list.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !list[start..at].trim().is_empty() {
                    paths_of(&format!("{prefix}{head}"), &list[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

impl Crate {
    fn read(source: &Path) -> Self {
        let mut texts = BTreeMap::new();
        for path in files_without_tests(source) {
            let relative = path.strip_prefix(source).unwrap().with_extension("");
            let mut names: ItemPath =
                relative.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            names.pop_if(|name| name == "mod" || name == "lib");
            texts.insert(names, code(&fs::read_to_string(&path).unwrap()));
        }
        Self::of(&texts)
    }

    fn of(texts: &BTreeMap<ItemPath, String>) -> Self {
        let mut modules = BTreeMap::new();
        for (module, text) in texts {
            let mut imports = Imports::default();
            for statement in text
                .split(';')
                .filter_map(|it| it.rsplit_once("use ").filter(|(_, tree)| !tree.contains('(')))
            {
                let mut paths = Vec::new();
                paths_of("", statement.1, &mut paths);
                let is_exported =
                    statement.0.lines().last().is_some_and(|line| line.trim_start().starts_with("pub"));
                for (path, name) in paths {
                    let Some(path) = absolute(module, &path, texts) else { continue };
                    match is_exported {
                        true => drop(imports.exported.insert(name, path)),
                        false => imports.used.push(path),
                    }
                }
            }
            // Paths outside of `use` statements.
            for start in ["crate::", "super::"] {
                for (at, _) in text.match_indices(start) {
                    let is_start =
                        !text[..at].ends_with(|before| is_word_character(before) || ":$".contains(before));
                    let end =
                        text[at..].find(|it| !is_word_character(it) && it != ':').unwrap_or(text.len() - at);
                    let path = text[at..at + end].trim_end_matches(':');
                    imports.used.extend(absolute(module, path, texts).filter(|_| is_start));
                }
            }
            modules.insert(module.clone(), imports);
        }
        Self { modules }
    }

    /// Returns the module that defines the item at `path`.
    fn home(&self, path: &[String]) -> ItemPath {
        let longest = (0..=path.len()).rev().find(|&length| self.modules.contains_key(&path[..length]));
        let (module, rest) = path.split_at(longest.unwrap_or(0));
        let exported = rest.first().and_then(|name| self.modules.get(module)?.exported.get(name));
        match exported {
            Some(target) if target.as_slice() != path => self.home(&[target.as_slice(), &rest[1..]].concat()),
            _ => module.to_vec(),
        }
    }

    /// Returns the circles: for each folder, the imports between its modules that no order satisfies.
    fn circles(&self) -> Vec<String> {
        let folders: BTreeSet<&[String]> = self
            .modules
            .keys()
            .flat_map(|module| (0..module.len()).map(|length| &module[..length]))
            .collect();
        let mut circles = Vec::new();
        for folder in folders {
            let mut edges = BTreeMap::<String, BTreeSet<String>>::new();
            let child =
                |module: &ItemPath| module.strip_prefix(folder).and_then(|rest| rest.first()).cloned();
            for (module, imports) in &self.modules {
                let Some(from) = child(module) else { continue };
                let targets = imports.used.iter().filter_map(|path| child(&self.home(path)));
                edges.entry(from.clone()).or_default().extend(targets.filter(|to| *to != from));
            }
            // Removes modules that import from no other module until only circles are left.
            while let Some(free) = edges.iter().find(|(_, to)| to.is_empty()).map(|(from, _)| from.clone()) {
                edges.remove(&free);
                for to in edges.values_mut() {
                    to.remove(&free);
                }
            }
            let lines =
                edges.iter().map(|(from, to)| format!("{}: {from} imports from {to:?}", folder.join("::")));
            circles.extend(lines);
        }
        circles
    }
}

/// Returns a path without `crate`, `self` and `super`; `None` for a path into another crate.
fn absolute(module: &[String], path: &str, texts: &BTreeMap<ItemPath, String>) -> Option<ItemPath> {
    let names: ItemPath =
        path.split("::").map(|name| name.trim().to_string()).filter(|name| name != "*").collect();
    let supers = names.iter().take_while(|name| *name == "super").count();
    let base = &module[..module.len().checked_sub(supers)?];
    let mut found = match names[0].as_str() {
        "crate" => names[1..].to_vec(),
        "self" => [module, &names[1..]].concat(),
        "super" => [base, &names[supers..]].concat(),
        first => {
            texts.contains_key(&[module, &[first.to_string()]].concat()).then(|| [module, &names].concat())?
        }
    };
    found.pop_if(|name| name == "self");
    Some(found)
}

#[test]
fn modules_of_a_folder_import_without_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut circles = Vec::new();
    for source in ["src", "crates/kernels/src", "crates/nn/src", "crates/report/src"] {
        circles.extend(Crate::read(&root.join(source)).circles());
    }
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}

#[test]
fn circles_are_found_through_exports_and_nested_modules() {
    let of = |files: &[(&str, &str)]| {
        let names =
            |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_string).collect();
        let texts = files.iter().map(|(path, text)| (names(path), (*text).to_string())).collect();
        Crate::of(&texts).circles()
    };
    let parent = ("a", "mod b;\nmod c;\npub use b::{B, b as again};\npub use self::c::C;");
    let one_way = [parent, ("a/b", "use super::C;"), ("a/c", "use std::fmt;\nfn f() {}")];
    assert_eq!(of(&one_way), <[String; 0]>::default());
    let circle = [parent, ("a/b", "use super::C;"), ("a/c", "fn f() { crate::a::again() }")];
    assert_eq!(of(&circle), ["a: b imports from {\"c\"}", "a: c imports from {\"b\"}"]);
    let nested =
        [("x", ""), ("x/y", "use crate::{\n    z::Z,\n    Other,\n};"), ("z", "use crate::x::{y::{Y, W}};")];
    assert_eq!(of(&nested).len(), 2);
    let child = [("p", "mod q;\nuse q::Q;\nstruct P;"), ("p/q", "use super::P;")];
    assert!(of(&child).is_empty(), "a module and its parent count as one");
}
