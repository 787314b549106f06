//! Labelled pages: from a file of JSON lines, or from folders that are named for their label.
//!
//! Owns: the labels, and where a page has its label from.
//!
//! Invariants: a page without a known label is an error, never content: a misspelt folder would
//! pass.
//!
//! Must not know: rules.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::parse::input::{open_lines, unreadable};
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise::detect::Verdict;
use fetchwise::response::Header;
use fetchwise_present::headers;

/// The maximum length of a line.
const MAX_LINE_BYTES: usize = 4 << 20;
/// The maximum depth of folders that are searched.
const MAX_DEPTH: usize = 16;

/// What a page is, by its label or by its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PageKind {
    Block,
    /// The crawler's network refuses.
    Network,
    Queue,
    Shell,
    /// The server failed or is being maintained.
    Failure,
    /// A log-in in place of the page.
    Login,
    Empty,
    Content,
}

impl PageKind {
    const NAMES: [(&'static str, Self); 21] = [
        ("block", Self::Block),
        ("blocked", Self::Block),
        ("network", Self::Network),
        ("network_block", Self::Network),
        ("queue", Self::Queue),
        ("queued", Self::Queue),
        ("shell", Self::Shell),
        ("spa_shell", Self::Shell),
        ("failure", Self::Failure),
        ("failed", Self::Failure),
        ("server_error", Self::Failure),
        ("login", Self::Login),
        ("login_wall", Self::Login),
        ("gate", Self::Login),
        ("empty", Self::Empty),
        ("content", Self::Content),
        ("normal", Self::Content),
        ("ordinary", Self::Content),
        ("normal_tricky", Self::Content),
        ("ssr", Self::Content),
        ("default_page", Self::Content),
    ];

    /// Returns the kind that a label names.
    pub(super) fn labelled(label: &str) -> Option<Self> {
        let label = label.to_ascii_lowercase().replace('-', "_");
        Self::NAMES.iter().find(|(name, _)| *name == label).map(|(_, kind)| *kind)
    }

    /// Returns the kind that a verdict finds.
    pub(super) fn found(verdict: &Verdict) -> Self {
        match verdict {
            Verdict { is_queued: true, .. } => Self::Queue,
            Verdict { is_blocked: true, network_block: true, .. } => Self::Network,
            Verdict { is_blocked: true, .. } => Self::Block,
            Verdict { is_server_error: true, .. } => Self::Failure,
            Verdict { has_login_wall: true, .. } => Self::Login,
            Verdict { has_spa: true, .. } => Self::Shell,
            Verdict { is_empty: true, .. } | Verdict { is_undecoded: true, .. } => Self::Empty,
            _ => Self::Content,
        }
    }

    /// Returns whether a verdict of the kind `found` is right for a page of this kind. A block's
    /// label does not say who refuses.
    pub(super) fn accepts(self, found: Self) -> bool {
        self == found
            || matches!((self, found), (Self::Block, Self::Network) | (Self::Content, Self::Login))
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Self::NAMES.iter().find(|(_, kind)| kind == self).map_or("content", |(name, _)| *name);
        f.pad(name)
    }
}

/// A labelled page.
#[derive(Debug)]
pub(super) struct LabelledPage {
    /// Its name in the output and in a baseline: the path of its body as it was found.
    pub(super) name: String,
    pub(super) label: PageKind,
    pub(super) status: u16,
    pub(super) headers: Vec<Header>,
    pub(super) url: Option<String>,
    pub(super) body: PathBuf,
}

/// A line of labelled pages. Other fields are ignored.
#[derive(Deserialize)]
struct PageLine {
    label: String,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    headers: Value,
    #[serde(default)]
    url: Option<String>,
    body_path: PathBuf,
}

/// Returns the labelled pages of files and folders, each body once, in the order of their names.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<LabelledPage>, Failure> {
    let (mut pages, mut names) = (Vec::new(), BTreeSet::new());
    for path in paths {
        let kind = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        match kind.is_dir() {
            true => of_folder(path, (label_of(path), 0), &mut pages)?,
            false if is_list(path) => of_list(path, &mut pages)?,
            false => pages.push(of_file(path, path.parent().and_then(label_of))?),
        }
    }
    pages.retain(|page: &LabelledPage| names.insert(page.name.clone()));
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    match pages.is_empty() {
        true => Err(Failure::usage("no labelled page found").advise(
            "name each folder for the label of its pages, such as block or content, or give a file of JSON lines",
        )),
        false => Ok(pages),
    }
}

fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "jsonl")
}

/// Returns the label for which a folder is named.
fn label_of(folder: &Path) -> Option<PageKind> {
    folder.file_name().and_then(|name| name.to_str()).and_then(PageKind::labelled)
}

/// Adds the pages of a folder: those of its lists of labelled pages if it has some, otherwise all
/// of its files, with the label of the nearest folder that is named for one.
fn of_folder(
    folder: &Path,
    (label, depth): (Option<PageKind>, usize),
    pages: &mut Vec<LabelledPage>,
) -> Result<(), Failure> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut paths: Vec<PathBuf> = entries
        .map_err(|error| unreadable(folder, &error))?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let is_hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    paths.retain(|path| !is_hidden(path));
    if paths.iter().any(|path| is_list(path)) {
        return paths.iter().filter(|path| is_list(path)).try_for_each(|list| of_list(list, pages));
    }
    for path in paths {
        match path.is_dir() {
            true if depth < MAX_DEPTH => {
                of_folder(&path, (label_of(&path).or(label), depth + 1), pages)?
            }
            true => {
                return Err(Failure::failed(format_args!(
                    "{}: folders are nested too deeply",
                    shown(&path)
                )));
            }
            false => pages.push(of_file(&path, label)?),
        }
    }
    Ok(())
}

/// Returns the page of a file, as a server without other headers would send it.
fn of_file(path: &Path, label: Option<PageKind>) -> Result<LabelledPage, Failure> {
    let Some(label) = label else {
        let names: Vec<&str> = PageKind::NAMES.iter().map(|(name, _)| *name).collect();
        let no_label = format!("{}: no folder above it is named for a label", shown(path));
        return Err(Failure::usage(no_label).advise(format!("the labels are {}", names.join(", "))));
    };
    let kind = match path.extension().and_then(|end| end.to_str()) {
        Some("txt") => "text/plain",
        Some("json") => "application/json",
        _ => "text/html",
    };
    let headers = vec![Header::new("content-type", kind)];
    let name = path.to_string_lossy().into_owned();
    Ok(LabelledPage { name, label, status: 200, headers, url: None, body: path.to_owned() })
}

/// Adds the pages of a file of JSON lines.
fn of_list(list: &Path, pages: &mut Vec<LabelledPage>) -> Result<(), Failure> {
    let folder = list.parent().unwrap_or(Path::new(""));
    let mut lines = open_lines(list, MAX_LINE_BYTES)?;
    while let Some(line) = lines.next_line().map_err(|error| unreadable(list, &error))? {
        let wrong = |why: &dyn fmt::Display| {
            Failure::failed(format_args!(
                "{}, line {}: invalid labelled page: {why}",
                shown(list),
                line.number
            ))
        };
        let text = line.text.as_ref().map_err(|error| wrong(error))?;
        if text.trim().is_empty() {
            continue;
        }
        let page: PageLine = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        let label = PageKind::labelled(&page.label)
            .ok_or_else(|| wrong(&format!("unknown label {:?}", page.label)))?;
        let headers = headers(page.headers)
            .ok_or_else(|| wrong(&"`headers` must be an object or a list of pairs"))?;
        let body = folder.join(page.body_path);
        let (name, status) = (body.to_string_lossy().into_owned(), page.status.unwrap_or(200));
        pages.push(LabelledPage { name, label, status, headers, url: page.url, body });
    }
    Ok(())
}
