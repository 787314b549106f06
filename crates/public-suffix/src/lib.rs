//! What one party can get: the registrable domain of a name, by Mozilla's Public Suffix List, and
//! the network of an address.
//!
//! Owns: the list as data. The crate `psl` has it as thousands of functions, which take longer to
//! compile than most of fetchwise.
//!
//! Must not know: URLs, and which names are addresses.
#![cfg_attr(not(test), doc = include_str!("../README.md"))]

mod rules;

use std::net::IpAddr;

use rules::{Section, suffix};

/// Returns the registrable domain of a name: a public suffix and one label more. `None` if the name
/// is a public suffix or empty. A trailing dot is dropped. Case matters: the list is in lower case.
///
/// ```
/// use fetchwise_public_suffix::registrable_domain;
/// assert_eq!(registrable_domain("www.example.org"), Some("example.org"));
/// assert_eq!(registrable_domain("www.example.org."), Some("example.org"));
/// assert_eq!(registrable_domain("localhost"), None);
/// ```
pub fn registrable_domain(name: &str) -> Option<&str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    with_one_label_more(name, suffix(name).begin)
}

/// Returns the suffix that starts at `begin`, with the label before it. `None` if no label stands
/// there.
fn with_one_label_more(name: &str, begin: usize) -> Option<&str> {
    let own = name.get(..begin)?.strip_suffix('.')?;
    let label = own.rfind('.').map_or(0, |dot| dot + 1);
    name.get(label..).filter(|domain| !domain.starts_with('.'))
}

/// Returns the part of a name that somebody has registered with a registry: a suffix of the list's
/// ICANN section and one label more. Names that a service gives out below its own domain, such as
/// those below `github.io`, share it. `None` and the rest as with [`registrable_domain`].
///
/// ```
/// use fetchwise_public_suffix::{registered_domain, registrable_domain};
/// assert_eq!(registrable_domain("www.someone.github.io"), Some("someone.github.io"));
/// assert_eq!(registered_domain("www.someone.github.io"), Some("github.io"));
/// assert_eq!(registered_domain("www.example.co.uk."), Some("example.co.uk"));
/// assert_eq!(registered_domain("github.io"), Some("github.io"));
/// assert_eq!(registered_domain("co.uk"), None);
/// ```
pub fn registered_domain(name: &str) -> Option<&str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = suffix(name);
    while found.section == Some(Section::Private) {
        // The suffix of a private suffix is itself, so the search goes on one label above.
        let above = found.begin + name.get(found.begin..)?.find('.')? + 1;
        let next = suffix(name.get(above..)?);
        found = rules::Suffix { begin: above + next.begin, ..next };
    }
    with_one_label_more(name, found.begin)
}

/// Returns the network of an address, which one party usually has as a whole: its first 24 bits
/// (IPv4) or 48 (IPv6).
///
/// ```
/// use fetchwise_public_suffix::network_of;
/// assert_eq!(network_of([192, 0, 2, 7].into()), "192.0.2.0/24");
/// assert_eq!(network_of([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1].into()), "2001:db8:0::/48");
/// ```
pub fn network_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}::/48")
        }
    }
}

/// Returns whether any party can register names under `name`. True for an unknown top-level domain.
///
/// ```
/// use fetchwise_public_suffix::is_public_suffix;
/// assert!(is_public_suffix("github.io") && !is_public_suffix("example.org"));
/// ```
pub fn is_public_suffix(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    !name.is_empty() && suffix(name).begin == 0
}
