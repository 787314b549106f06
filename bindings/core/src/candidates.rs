//! Candidates of a selector, by name.
//!
//! Must not know: how a package reports an unknown name.

use fetchwise::Selector;
use fetchwise::registry::{FetcherId, FetcherSet};

/// Returns the candidate of this name.
///
/// # Errors
/// If there is none; the text names those that there are.
pub fn candidate(selector: &Selector, name: &str) -> Result<FetcherId, String> {
    selector.fetcher_id(name).filter(|id| selector.is_candidate(*id)).ok_or_else(|| {
        let known: Vec<&str> = selector.candidates().map(|(_, spec)| &*spec.name).collect();
        format!("unknown fetcher {name:?}: expected one of {}", known.join(", "))
    })
}

/// Returns the candidates of these names.
///
/// # Errors
/// As [`candidate`].
pub fn candidates(selector: &Selector, names: &[String]) -> Result<FetcherSet, String> {
    let mut set = FetcherSet::EMPTY;
    for name in names {
        set.insert(candidate(selector, name)?);
    }
    Ok(set)
}

/// Returns the candidates besides those of these names.
///
/// # Errors
/// As [`candidate`].
pub fn all_but(selector: &Selector, names: &[String]) -> Result<FetcherSet, String> {
    let (named, mut rest) = (candidates(selector, names)?, FetcherSet::EMPTY);
    selector
        .candidates()
        .filter(|(id, _)| !named.contains(*id))
        .for_each(|(id, _)| rest.insert(id));
    Ok(rest)
}
