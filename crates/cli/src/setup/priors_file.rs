//! The file of portable priors: what a crawler has learned that belongs to no host, as JSON.
//!
//! Owns: the format, and the file that a data directory starts with.
//!
//! Invariants: a file cannot drown a crawler's own evidence: the selector bounds each cell, and a
//! cell that belongs to a host is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::part_file::part_file;
use super::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise::heuristic::url::ContentKind;
use fetchwise::selector::PortablePrior;

/// The file in a data directory.
pub(crate) const FILE_NAME: &str = "priors.json";
const FORMAT: &str = "fetchwise-priors";
const VERSION: u32 = 1;
/// The size limit of a file. An export has some kilobytes.
const MAX_BYTES: u64 = 256 << 10;
/// The maximum number of heuristics in a file.
const MAX_HEURISTICS: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorsFile<'a> {
    #[serde(borrow)]
    format: &'a str,
    version: u32,
    priors: Vec<HeuristicPriors>,
}

/// The priors of one heuristic.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeuristicPriors {
    r#type: String,
    value: String,
    content: Content,
    /// The success rate and the number of pseudo-attempts of each fetcher.
    fetchers: BTreeMap<String, (f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Page,
    File,
}

impl Settings {
    /// Returns the priors of `--priors`, or else those of the data directory.
    pub(crate) fn portable_priors(&self) -> Result<Vec<PortablePrior>, Failure> {
        if let Some(path) = self.priors_option() {
            return read(path);
        }
        let path = self.data_dir()?.join(FILE_NAME);
        if path.is_file() { read(&path) } else { Ok(Vec::new()) }
    }
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<PortablePrior>, Failure> {
    let unreadable = |error| Failure::usage(format_args!("cannot read {}: {error}", shown(path)));
    let mut text = String::new();
    File::open(path)
        .map_err(unreadable)?
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    let found = if text.len() as u64 > MAX_BYTES {
        Err("it is too large".to_owned())
    } else {
        parse(&text)
    };
    found.map_err(|why| {
        Failure::usage(format_args!("{} is not a file of priors: {why}", shown(path)))
            .advise("write one with `fetchwise priors export FILE`")
    })
}

/// Parses the text of a file.
fn parse(text: &str) -> Result<Vec<PortablePrior>, String> {
    let file: PriorsFile<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match (file.format, file.version) {
        (FORMAT, VERSION) => {}
        (FORMAT, newer) => {
            return Err(format!("version {newer} is newer than this release reads ({VERSION})"));
        }
        _ => return Err(format!("its format is not {FORMAT}")),
    }
    if file.priors.len() > MAX_HEURISTICS {
        return Err(format!("more than {MAX_HEURISTICS} heuristics"));
    }
    let mut all = Vec::new();
    for of in &file.priors {
        let content =
            if of.content == Content::Page { ContentKind::Page } else { ContentKind::File };
        for (fetcher, (rate, samples)) in &of.fetchers {
            let prior =
                PortablePrior::new((&of.r#type, &of.value), content, fetcher, *rate, *samples);
            all.push(prior.ok_or_else(|| {
                format!(
                    "invalid prior {} {}: expected a type without a host, a rate and a count",
                    of.r#type, of.value
                )
            })?);
        }
    }
    Ok(all)
}

/// Returns the text of a file: a line per heuristic.
pub(crate) fn text(priors: &[PortablePrior]) -> Result<String, Failure> {
    let mut of: Vec<HeuristicPriors> = Vec::new();
    let round = |value: f64, digits: f64| (value * digits).round() / digits;
    for prior in priors {
        let content =
            if prior.content == ContentKind::Page { Content::Page } else { Content::File };
        let numbers = (round(prior.success_rate, 1000.0), round(prior.samples, 10.0));
        let is_same = |known: &&mut HeuristicPriors| {
            known.r#type == prior.kind && known.value == prior.value && known.content == content
        };
        match of.iter_mut().find(is_same) {
            Some(known) => drop(known.fetchers.insert(prior.fetcher.clone(), numbers)),
            None => of.push(HeuristicPriors {
                r#type: prior.kind.clone(),
                value: prior.value.clone(),
                content,
                fetchers: BTreeMap::from([(prior.fetcher.clone(), numbers)]),
            }),
        }
    }
    let lines = of
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<Vec<String>, _>>()
        .map_err(Failure::failed)?;
    let priors =
        if lines.is_empty() { String::new() } else { format!("\n  {}\n", lines.join(",\n  ")) };
    Ok(format!("{{\"format\": \"{FORMAT}\", \"version\": {VERSION}, \"priors\": [{priors}]}}\n"))
}

/// Writes a file completely or not at all.
pub(crate) fn write(path: &Path, text: &str, overwrites: bool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format_args!("cannot write {}: {error}", shown(path)))
    };
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = part_file(folder).map_err(failed)?;
    std::io::Write::write_all(&mut part, text.as_bytes()).map_err(failed)?;
    part.as_file().sync_all().map_err(failed)?;
    let named = if overwrites { part.persist(path) } else { part.persist_noclobber(path) };
    named.map(drop).map_err(|error| match error.error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format_args!("{} already exists", shown(path)))
            .advise("overwrite it with --force, or choose another file"),
        _ => failed(error.error),
    })
}

/// Returns the file of a data directory.
pub(crate) fn path_in(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_as_it_was_written() {
        let prior = |kind, value, fetcher, rate| {
            PortablePrior::new((kind, value), ContentKind::Page, fetcher, rate, 7.5)
        };
        let mut all: Vec<PortablePrior> = [
            prior("hint", "blocked", "direct_access", 0.125),
            prior("hint", "blocked", "playwright", 0.5),
        ]
        .into_iter()
        .flatten()
        .collect();
        all.extend(PortablePrior::new(
            ("suffix", ".pdf"),
            ContentKind::File,
            "direct_access",
            1.0,
            10.0,
        ));
        let text = text(&all).unwrap();
        assert_eq!((parse(&text).unwrap(), text.lines().count()), (all, 4));
        assert_eq!(parse(&super::text(&[]).unwrap()).unwrap(), []);
    }

    #[test]
    fn what_belongs_to_a_host_or_is_out_of_range_is_refused() {
        let file = |version: u32, kind: &str, rate: &str| {
            format!(
                r#"{{"format": "fetchwise-priors", "version": {version}, "priors": [{{"type": "{kind}", "value": "v",
                   "content": "page", "fetchers": {{"f": [{rate}, 5]}}}}]}}"#
            )
        };
        assert_eq!(parse(&file(1, "suffix", "0.5")).map(|all| all.len()), Ok(1));
        for (text, why) in [
            (file(1, "domain", "0.5"), "invalid prior domain"),
            (file(1, "domain_path", "0.5"), "invalid prior domain_path"),
            (file(1, "suffix", "1.5"), "invalid prior suffix"),
            (file(2, "suffix", "0.5"), "version 2 is newer"),
            ("{}".to_owned(), "missing field"),
            (r#"{"format": "x", "version": 1, "priors": []}"#.to_owned(), "format is not"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
