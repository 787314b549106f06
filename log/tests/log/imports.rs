//! The import rules of the crate: no cycles between files, and one direction between folders.
//!
//! Owns: reading `use` declarations and paths in the sources. A file imports what it names by a
//! path that begins with `crate`, `super` or `self`; a name that a folder's `mod.rs` re-exports
//! counts as an import of the file that it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each folder may import, from the bottom up. `error` may be imported by all, and imports
/// none.
const LAYERS: [&[&str]; 6] =
    [&["error"], &["format"], &["fs"], &["directory"], &["read"], &["write", "upkeep"]];

/// Module path to source, without comments and tests.
type Modules = BTreeMap<Vec<String>, String>;

#[test]
fn no_file_imports_one_that_imports_it() {
    let edges = imports(&modules());
    assert!(
        edges.values().map(BTreeSet::len).sum::<usize>() > 60,
        "too few imports were found: {edges:?}"
    );
    // Files that import no remaining file are removed; the rest is in a cycle or imports one.
    let mut left = edges;
    loop {
        let names: BTreeSet<_> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, to| to.iter().any(|to| names.contains(to)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "files that import each other: {left:#?}");
}

#[test]
fn folders_import_only_lower_folders() {
    let level = |path: &[String]| {
        LAYERS.iter().position(|layer| layer.contains(&path.first().unwrap().as_str()))
    };
    for (from, targets) in imports(&modules()) {
        for to in targets {
            // The crate's root and the fuzzer's entry points are above all folders.
            let (Some(upper), Some(lower)) = (level(&from), level(&to)) else { continue };
            let fine = lower < upper || from[0] == to[0];
            assert!(fine, "{} imports {}", from.join("::"), to.join("::"));
        }
    }
}

/// The imports of each file.
fn imports(modules: &Modules) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut edges: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (module, text) in modules {
        let targets = edges.entry(module.clone()).or_default();
        if is_folder(modules, module) {
            continue;
        }
        for path in paths(text) {
            if let Some(target) = resolve(modules, module, &path, 0)
                && target != *module
            {
                targets.insert(target);
            }
        }
    }
    edges.retain(|module, _| !is_folder(modules, module));
    edges
}

/// A file that only declares and re-exports.
fn is_folder(modules: &Modules, module: &[String]) -> bool {
    modules.keys().any(|other| other.len() == module.len() + 1 && other.starts_with(module))
}

/// The file that a path leads to.
fn resolve(
    modules: &Modules,
    from: &[String],
    path: &[String],
    depth: usize,
) -> Option<Vec<String>> {
    assert!(depth < 8, "a circle of re-exports at {path:?}");
    let mut at = match path[0].as_str() {
        "crate" => Vec::new(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        _ => from.to_vec(),
    };
    let mut rest = &path[1..];
    while let Some((first, others)) = rest.split_first() {
        if first == "super" {
            at.pop()?;
        } else if modules.contains_key(&[&at[..], std::slice::from_ref(first)].concat()) {
            at.push(first.clone());
        } else {
            break;
        }
        rest = others;
    }
    if !is_folder(modules, &at) {
        return modules.contains_key(&at).then_some(at);
    }
    // The re-exports of a folder.
    let name = rest.first()?;
    let mut exported = uses(&modules[&at]).into_iter().filter(|path| path.last() == Some(name));
    let path = exported.next()?;
    let mut absolute = vec!["self".to_owned()];
    match path[0].as_str() {
        "crate" | "super" | "self" => absolute = path,
        _ => absolute.extend(path),
    }
    resolve(modules, &at, &absolute, depth + 1)
}

/// Every path in `use` declarations and elsewhere that begins in this crate.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = uses(text)
        .into_iter()
        .filter(|path| ["crate", "super", "self"].contains(&path[0].as_str()))
        .collect();
    for begin in ["crate::", "super::"] {
        for (at, _) in text.match_indices(begin) {
            let end = text[at..]
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
                .unwrap_or(text.len() - at);
            let path = text[at..at + end].trim_end_matches(':');
            found.push(path.split("::").map(str::to_owned).collect());
        }
    }
    found
}

/// The paths of all `use` declarations, groups opened.
fn uses(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("use ") {
        let is_start = at == 0 || text[..at].ends_with(['\n', ' ', ')']);
        let Some(end) = text[at..].find(';').filter(|_| is_start) else { continue };
        open_group(&text[at + 4..at + end], &[], &mut found);
    }
    found
}

fn open_group(tree: &str, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        let tree = tree.split(" as ").next().unwrap().trim();
        let path: Vec<String> =
            prefix.iter().cloned().chain(tree.split("::").map(str::to_owned)).collect();
        if !tree.is_empty() {
            found.push(path);
        }
        return;
    };
    let head = head.trim().trim_end_matches("::");
    let inside: Vec<String> = prefix
        .iter()
        .cloned()
        .chain(head.split("::").filter(|part| !part.is_empty()).map(str::to_owned))
        .collect();
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                open_group(&group[start..at], &inside, found);
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn modules() -> Modules {
    let mut modules = Modules::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut modules);
    assert!(modules.len() > 25, "too few files were found");
    modules
}

fn read(dir: &Path, above: &[String], modules: &mut Modules) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut module = above.to_vec();
        if path.is_dir() {
            module.push(name);
            read(&path, &module, modules);
            continue;
        }
        if !["mod", "lib"].contains(&name.as_str()) {
            module.push(name);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text
            .lines()
            .take_while(|line| {
                !line.starts_with("#[cfg(all(test") && !line.starts_with("#[cfg(test)]")
            })
            .collect();
        let code = code.iter().filter(|line| !line.trim_start().starts_with("//"));
        modules.insert(module, code.map(|line| format!("{line}\n")).collect());
    }
}
