//! The layers of docs/architecture.md: no two files import each other, and folders and crates
//! import only those above them in the page's lists.
//!
//! Owns: reading the dependencies of manifests, and `use` declarations and paths in the sources. A
//! name that a folder re-exports counts as an import of the file that defines it. The re-export
//! itself does not count as an import. Tests inside the sources are ignored.
//!
//! It also has the test of `.ci/instructions`, which guards the sources in the same way.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Module = Vec<String>;

/// One file: its imports, and its re-exports with their sources.
#[derive(Default)]
struct Source {
    paths: Vec<(bool, Vec<String>)>,
    exports: BTreeMap<String, Vec<String>>,
}

struct Crate {
    files: BTreeMap<Module, Source>,
}

fn names(path: &str) -> Vec<String> {
    path.split("::").map(|name| name.trim().to_owned()).collect()
}

/// Returns the text without comments, and without the code that is compiled for tests only.
fn bare(text: &str) -> String {
    let cut = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..cut]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Adds the paths of a `use` tree to `out`.
fn open(prefix: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        if !path.is_empty() {
            out.push(format!("{prefix}{path}"));
        }
        return;
    };
    let (prefix, group) = (format!("{prefix}{head}"), group.trim_end().trim_end_matches('}'));
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                open(&prefix, &group[begin..at], out);
                begin = at + 1;
            }
            _ => {}
        }
    }
    open(&prefix, &group[begin..], out);
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut texts = BTreeMap::new();
        read_folder(root, &mut Vec::new(), &mut texts);
        let mut files: BTreeMap<Module, Source> =
            texts.keys().map(|module| (module.clone(), Source::default())).collect();
        let known: BTreeSet<Module> = texts.keys().cloned().collect();
        for (module, text) in &texts {
            let source = files.get_mut(module).unwrap();
            for (is_export, path) in paths(text) {
                let Some(path) = absolute(&known, module, &names(&path)) else { continue };
                if is_export && let Some(name) = path.last() {
                    source.exports.insert(name.clone(), path.clone());
                }
                source.paths.push((is_export, path));
            }
        }
        Self { files }
    }

    /// Returns the file that a path within the crate leads to.
    fn file_of(&self, path: &[String], depth: usize) -> Module {
        let mut length = path.len();
        while length > 0 && !self.files.contains_key(&path[..length]) {
            length -= 1;
        }
        let module = path[..length].to_vec();
        let export = path.get(length).and_then(|name| self.files.get(&module)?.exports.get(name));
        match export {
            Some(to) if depth < 8 && to != path => {
                self.file_of(&[to, &path[length + 1..]].concat(), depth + 1)
            }
            _ => module,
        }
    }

    fn imports(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let of = |(module, source): (&Module, &Source)| {
            let targets = source.paths.iter().filter_map(|(is_export, path)| {
                let to = self.file_of(path, 0);
                let is_front = *is_export && to.len() > module.len() && to.starts_with(module);
                (to != *module && !is_front && self.files.contains_key(&to)).then_some(to)
            });
            (module.clone(), targets.collect())
        };
        self.files.iter().map(of).collect()
    }
}

fn read_folder(folder: &Path, module: &mut Module, texts: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if is_test(&stem) {
            continue;
        }
        if path.is_dir() {
            module.push(stem);
            read_folder(&path, module, texts);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let own = !matches!(stem.as_str(), "mod" | "lib" | "main");
            let name = [&module[..], if own { std::slice::from_ref(&stem) } else { &[] }].concat();
            texts.insert(name, bare(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Returns whether a file is compiled for tests only.
fn is_test(stem: &str) -> bool {
    matches!(stem, "tests" | "proptests")
}

/// Returns all paths that a source names, each with whether it is re-exported.
fn paths(text: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find("use ").map(|begin| at + begin) {
        let line_begin = text[..begin].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line_begin..begin].trim();
        let Some(end) = text[begin..].find(';').map(|end| begin + end) else { break };
        rest.push_str(&text[at..begin]);
        if before.is_empty() || before.starts_with("pub") {
            let mut trees = Vec::new();
            open("", &text[begin + 4..end], &mut trees);
            found.extend(trees.into_iter().map(|path| (before.starts_with("pub"), path)));
            at = end;
        } else {
            at = begin + 4;
        }
    }
    rest.push_str(&text[at..]);
    for begin in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(begin) {
            let is_end = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
            let end = rest[at..].find(is_end).map_or(rest.len(), |end| at + end);
            found.push((false, rest[at..end].trim_end_matches(':').to_owned()));
        }
    }
    found
}

fn absolute(known: &BTreeSet<Module>, module: &[String], path: &[String]) -> Option<Vec<String>> {
    match path[0].as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat())
        }
        child if known.contains(&[module, std::slice::from_ref(&child.to_owned())].concat()) => {
            Some([module, path].concat())
        }
        _ => None,
    }
}

const PAGE: &str = include_str!("../docs/architecture.md");

/// Returns the lines of a list in docs/architecture.md, from those that import nothing to those at
/// the top.
fn list(block: &str) -> Vec<Vec<String>> {
    block.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Returns the lists of docs/architecture.md: each source folder with its lines.
fn layers() -> Vec<(String, Vec<Vec<String>>)> {
    let blocks =
        PAGE.split("```layers ").skip(1).map(|block| block.split("```").next().unwrap_or_default());
    blocks
        .map(|block| (block.lines().next().unwrap_or_default().trim().to_owned(), list(block)))
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn crates() -> Vec<(String, Crate, Vec<Vec<String>>)> {
    let all = layers();
    assert!(all.len() >= 5, "docs/architecture.md has no lists");
    all.into_iter()
        .map(|(folder, lines)| (folder.clone(), Crate::read(&root().join(folder)), lines))
        .collect()
}

/// Returns the files of a crate that import each other, with these imports.
fn circles(sources: &Crate) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut left = sources.imports();
    // Remove files without remaining imports or importers; the files that stay are in a cycle, or
    // between two.
    loop {
        let importing: BTreeSet<Module> = left.keys().cloned().collect();
        let imported: BTreeSet<Module> = left.values().flatten().cloned().collect();
        left.retain(|from, to| {
            imported.contains(from) && to.iter().any(|to| importing.contains(to))
        });
        if left.len() == importing.len() {
            break;
        }
    }
    let circle: BTreeSet<Module> = left.keys().cloned().collect();
    left.values_mut().for_each(|to| to.retain(|to| circle.contains(to)));
    left
}

#[test]
fn no_two_files_import_each_other() {
    let mut edges = 0;
    for (folder, sources, _) in crates() {
        edges += sources.imports().values().map(BTreeSet::len).sum::<usize>();
        let left = circles(&sources);
        assert!(left.is_empty(), "{folder}: files that import each other: {left:#?}");
    }
    assert!(edges > 500, "only {edges} imports found: this test reads nothing");
}

/// Returns the entry of the lists that stands for a module: the longest of its beginnings that is
/// listed.
fn entry<'l>(lines: &'l [Vec<String>], module: &[String]) -> Option<(usize, &'l str)> {
    (1..=module.len()).rev().find_map(|length| {
        let path = module[..length].join("::");
        let is_listed = |line: &'l Vec<String>| line.iter().find(|name| **name == path);
        lines.iter().enumerate().find_map(|(level, line)| Some((level, is_listed(line)?.as_str())))
    })
}

/// Returns the imports of a crate of a file that does not stand above the importing one in its
/// list.
fn upward_imports(sources: &Crate, lines: &[Vec<String>]) -> Vec<String> {
    let mut found = Vec::new();
    for (from, targets) in sources.imports() {
        // The crate's root re-exports the front of its documentation.
        let Some((upper, from_entry)) = entry(lines, &from) else { continue };
        for to in targets {
            let lower = entry(lines, &to).filter(|(_, to_entry)| *to_entry != from_entry);
            if lower.is_some_and(|(lower, _)| lower >= upper) {
                found.push(format!("{} imports {}", from.join("::"), to.join("::")));
            }
        }
    }
    found
}

#[test]
fn the_page_lists_every_folder_and_imports_go_one_way() {
    for (folder, sources, lines) in crates() {
        let modules: Vec<&Module> =
            sources.files.keys().filter(|module| !module.is_empty()).collect();
        // The `mod.rs` of a folder whose parts are listed only names them.
        let is_named = |module: &Module| {
            lines.iter().flatten().any(|name| name.starts_with(&format!("{}::", module.join("::"))))
        };
        let missing: Vec<_> =
            modules.iter().filter(|m| entry(&lines, m).is_none() && !is_named(m)).collect();
        assert!(missing.is_empty(), "{folder}: missing in docs/architecture.md: {missing:?}");
        let stands = |name: &str| {
            modules.iter().any(|module| entry(&lines, module).is_some_and(|(_, e)| e == name))
        };
        let gone: Vec<_> = lines.iter().flatten().filter(|name| !stands(name)).collect();
        assert!(
            gone.is_empty(),
            "{folder}: in docs/architecture.md, but not in the sources: {gone:?}"
        );
        let upward = upward_imports(&sources, &lines);
        assert!(
            upward.is_empty(),
            "{folder}: not above the importing file in docs/architecture.md: {upward:#?}"
        );
    }
}

/// Returns the folders of the crates that a manifest depends on to build, relative to the
/// repository. Those of tests, benchmarks and examples do not count.
fn dependencies(folder: &str, manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            is_inside = line.contains("dependencies") && !line.contains("dev-dependencies");
        }
        let path = line.split_once("path = \"").and_then(|(_, path)| path.split('"').next());
        if let Some(path) = path.filter(|_| is_inside && !line.starts_with('#')) {
            let mut parts: Vec<&str> = folder.split('/').filter(|part| *part != ".").collect();
            for part in path.split('/') {
                if part == ".." {
                    parts.pop();
                } else {
                    parts.push(part);
                }
            }
            found.insert(if parts.is_empty() { ".".to_owned() } else { parts.join("/") });
        }
    }
    found
}

/// Returns the manifests below `root` by folder: those of the crates that are built for users.
fn manifests(root: &Path) -> BTreeMap<String, String> {
    let mut folders = vec![".".to_owned(), "log".to_owned(), "benches".to_owned()];
    for parent in ["crates", "bindings", "lab"] {
        let Ok(entries) = fs::read_dir(root.join(parent)) else { continue };
        folders.extend(
            entries
                .map(|entry| format!("{parent}/{}", entry.unwrap().file_name().to_str().unwrap())),
        );
    }
    let read = |folder: String| {
        Some((folder.clone(), fs::read_to_string(root.join(folder).join("Cargo.toml")).ok()?))
    };
    folders.into_iter().filter_map(read).collect()
}

/// Returns the dependencies between crates that the list does not allow, and the crates that it
/// does not have.
fn upward_dependencies(manifests: &BTreeMap<String, String>, lines: &[Vec<String>]) -> Vec<String> {
    let level = |folder: &str| lines.iter().position(|line| line.iter().any(|name| name == folder));
    let mut found = Vec::new();
    for (from, manifest) in manifests {
        let Some(upper) = level(from) else {
            found.push(format!("{from} is not in the list"));
            continue;
        };
        for to in dependencies(from, manifest) {
            if level(&to).is_none_or(|lower| lower >= upper) {
                found.push(format!("{from} depends on {to}"));
            }
        }
    }
    found
}

#[test]
fn the_page_lists_every_crate_and_dependencies_go_one_way() {
    let lines = list(PAGE.split("```crates").nth(1).unwrap().split("```").next().unwrap());
    let manifests = manifests(root());
    let arrows: usize =
        manifests.iter().map(|(folder, text)| dependencies(folder, text).len()).sum();
    assert!(
        manifests.len() > 12 && arrows > 20,
        "{} crates, {arrows} arrows: this test reads nothing",
        manifests.len()
    );
    let upward = upward_dependencies(&manifests, &lines);
    assert!(upward.is_empty(), "not above the crate in docs/architecture.md: {upward:#?}");
    let gone: Vec<_> =
        lines.iter().flatten().filter(|name| !manifests.contains_key(*name)).collect();
    assert!(gone.is_empty(), "in docs/architecture.md, but not in the repository: {gone:?}");
}

#[test]
fn an_import_or_a_dependency_that_runs_up_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("src/lib.rs", "mod low;\nmod middle;\nmod top;\npub use top::Top;\n");
    file("src/low.rs", "use crate::middle::Middle;\npub struct Low(Middle);\n");
    file("src/middle/mod.rs", "mod part;\npub use part::Middle;\n");
    file("src/middle/part.rs", "pub struct Middle;\nfn f() -> crate::top::Top { todo!() }\n");
    file("src/top.rs", "use crate::{low::Low, middle};\npub struct Top(Low, middle::Middle);\n");
    let lines = list("\nlow\nmiddle\ntop\n");
    let sources = Crate::read(&folder.path().join("src"));
    assert_eq!(
        upward_imports(&sources, &lines),
        ["low imports middle::part", "middle::part imports top"]
    );
    let circle: Vec<String> = circles(&sources).keys().map(|module| module.join("::")).collect();
    assert_eq!(circle, ["low", "middle::part", "top"]);
    file("src/low.rs", "pub struct Low;\n");
    file("src/middle/part.rs", "pub struct Middle(crate::low::Low);\n");
    let sources = Crate::read(&folder.path().join("src"));
    assert!(upward_imports(&sources, &lines).is_empty() && circles(&sources).is_empty());

    let serve = "[dependencies]\nfetchwise = { path = \"../..\" }\nfetchwise-fleet = { path = \"../fleet\" }\n";
    file(
        "Cargo.toml",
        "[package]\nname = \"fetchwise\"\n[dev-dependencies]\nfetchwise-serve = { path = \"crates/serve\" }\n",
    );
    file(
        "crates/fleet/Cargo.toml",
        "[target.'cfg(unix)'.dependencies.fetchwise]\npath = \"../..\"\n",
    );
    file("crates/serve/Cargo.toml", serve);
    let lines = list("\n.\ncrates/fleet crates/serve\n");
    assert_eq!(
        upward_dependencies(&manifests(folder.path()), &lines),
        ["crates/serve depends on crates/fleet"]
    );
    let lines = list("\n.\ncrates/fleet\ncrates/serve\n");
    assert!(upward_dependencies(&manifests(folder.path()), &lines).is_empty());
    let unlisted = list("\n.\ncrates/fleet\n");
    assert_eq!(
        upward_dependencies(&manifests(folder.path()), &unlisted),
        ["crates/serve is not in the list"]
    );
}

#[test]
fn the_parser_reads_imports_correctly() {
    let text =
        "use crate::a::{B, c::{D as E, f}};\npub use g::H;\nlet x = crate::i::J::k(super::l);";
    let mut found = paths(text);
    found.sort();
    let path = |path: &str| (false, path.to_owned());
    let mut want = vec![(true, "g::H".to_owned())];
    want.extend(
        ["crate::a::B", "crate::a::c::D", "crate::a::c::f", "crate::i::J::k", "super::l"].map(path),
    );
    want.sort();
    assert_eq!(found, want);
}

/// Story: each blessing of the instruction counts permitted five percent, and a decision had grown
/// by 23 % within three days while every check passed. The counts of a release now limit the sum.
#[cfg(unix)]
#[test]
fn several_blessings_of_instruction_counts_do_not_add_up_unseen() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, lines: &str| {
        let path = folder.path().join(name);
        fs::write(&path, lines).unwrap();
        path
    };
    let header = "# Instructions\n# one machine\n";
    let judged = |release: u32, blessed: u32, now: &str, machine: &str| {
        let out = std::process::Command::new(
            Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/instructions"),
        )
        .arg("--judge")
        .arg(file("now", now))
        .env("NUMBERS", file("blessed", &format!("{header}select_hit {blessed}\n")))
        .env("RELEASE", file("release", &format!("{header}select_hit {release}\n")))
        .env("MACHINE", machine)
        .env_remove("TOLERANCE")
        .env_remove("DRIFT")
        .output()
        .unwrap();
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    };
    let here = "one machine";
    assert!(judged(1000, 1000, "select_hit 1049\n", here).0);
    assert!(judged(1000, 1060, "select_hit 1099\n", here).0);
    let (passes, error) = judged(1000, 1090, "select_hit 1110\n", here);
    assert!(
        !passes && error.contains("more than 10 %") && !error.contains("more than 5 %"),
        "{error}"
    );
    let (passes, error) = judged(1000, 1000, "select_hit 1060\n", here);
    assert!(
        !passes && error.contains("more than 5 %") && !error.contains("more than 10 %"),
        "{error}"
    );
    assert!(
        !judged(1000, 1000, "select_hit 1000\nselect_new 7\n", here).0,
        "a case without a number"
    );
    assert!(
        judged(1000, 1000, "select_hit 2000\n", "another machine").0,
        "the counts hold for one machine"
    );
}

/// The files that read the system's clock, which anybody may set, and why. Everything that lasts is
/// measured by `Timestamp::now` or `Instant`: a pause that was measured by dates lasted for an hour
/// longer when the clock was set back by an hour.
const READERS_OF_DATES: [(&str, &str); 5] = [
    ("crates/crawl/src resume", "the age of a file is the difference of two dates"),
    ("crates/fetchers/src fetch::cooldown", "a header has a date"),
    ("crates/types/src time", "the clock itself"),
    ("log/src fs::real", "a name for a file that no other process takes"),
    ("log/src write::shared", "the date of the last sync is shown"),
];

#[test]
fn durations_are_not_measured_by_the_systems_clock() {
    let mut folders: Vec<String> = crates().into_iter().map(|(folder, ..)| folder).collect();
    folders.extend(
        ["bindings/core/src", "bindings/node/src", "bindings/python/rust"].map(str::to_owned),
    );
    folders.sort();
    folders.dedup();
    let mut readers = Vec::new();
    for folder in folders {
        let mut texts = BTreeMap::new();
        read_folder(&root().join(&folder), &mut Vec::new(), &mut texts);
        let reads = |text: &str| {
            ["SystemTime::now", "Utc::now", "Local::now"].iter().any(|call| text.contains(call))
        };
        let found = texts.iter().filter(|(_, text)| reads(text));
        readers.extend(found.map(|(module, _)| format!("{folder} {}", module.join("::"))));
    }
    assert_eq!(
        readers,
        READERS_OF_DATES.map(|(file, _)| file.to_owned()),
        "a new reader needs a reason"
    );
}
