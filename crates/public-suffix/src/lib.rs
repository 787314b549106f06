//! The registrable domain of a name, by Mozilla's Public Suffix List.
//!
//! Owns: the compiled list. The crate `psl` has it as a large amount of generic code, which every crate that calls it
//! compiles again; the functions of this crate are neither generic nor inlined.
//!
//! Must not know: URLs, and which names are addresses.
#![cfg_attr(not(test), doc = include_str!("../README.md"))]

/// Returns the registrable domain of a name: a public suffix and one label more. `None` if the name is a public suffix
/// or empty. A trailing dot is dropped. Case matters: the list is in lower case.
///
/// ```
/// use fetchwise_public_suffix::registrable_domain;
/// assert_eq!(registrable_domain("www.example.org"), Some("example.org"));
/// assert_eq!(registrable_domain("www.example.org."), Some("example.org"));
/// assert_eq!(registrable_domain("localhost"), None);
/// ```
#[inline(never)]
pub fn registrable_domain(name: &str) -> Option<&str> {
    let domain = psl::domain(name.as_bytes())?;
    let begin = name.len().checked_sub(domain.as_bytes().len())?;
    // By length, which avoids another UTF-8 check.
    name.get(begin..begin + domain.trim().as_bytes().len())
}

/// Returns whether any party can register names under `name`. True for an unknown top-level domain.
///
/// ```
/// use fetchwise_public_suffix::is_public_suffix;
/// assert!(is_public_suffix("github.io") && !is_public_suffix("example.org"));
/// ```
#[inline(never)]
pub fn is_public_suffix(name: &str) -> bool {
    psl::suffix(name.as_bytes()).is_some_and(|suffix| suffix.as_bytes() == name.as_bytes())
}
