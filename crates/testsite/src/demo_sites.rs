//! The town that the `demo` command crawls: a handful of sites that between them need every kind of decision.
//!
//! Only data: who lives at which address. Addresses rather than names, since not every resolver knows `*.localhost`.

use std::time::Duration;

use super::origin::Site;

/// A site of the town.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Place {
    /// Its loopback address.
    pub host: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// What it is like, in a few words.
    pub about: &'static str,
    /// How it behaves.
    pub site: Site,
    section: &'static str,
    suffix: &'static str,
}

impl Place {
    /// The path of its page number `n`; each number has a page of its own.
    pub fn path(&self, n: usize) -> String {
        format!("/{}/{n}{}", self.section, self.suffix)
    }
}

/// The places, each at another address from 127.0.0.2 on.
///
/// ```
/// use fetchwise_testsite::{origin::Origin, town::town};
///
/// let places = town();
/// let origin = Origin::start(places.iter().map(|place| (place.host, place.site.clone())))?;
/// // Three pages of each, as a crawler meets them: one of each site, then the next round.
/// let urls: Vec<String> =
///     (0..3).flat_map(|n| places.iter().map(move |place| (place, n))).map(|(p, n)| origin.url(p.host, &p.path(n))).collect();
/// assert_eq!(urls.len(), 3 * places.len());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn town() -> Vec<Place> {
    let place = |host, name, about, site, section, suffix| Place { host, name, about, site, section, suffix };
    vec![
        place("127.0.0.2", "library", "server-rendered articles", Site::Static, "notes", ""),
        place("127.0.0.3", "gallery", "a React app: nothing to read without scripts", Site::ReactShell, "works", ""),
        place("127.0.0.4", "bank", "a challenge page for all but stealthy browsers", Site::captcha(403), "rates", ""),
        place("127.0.0.5", "archive", "PDF files", Site::Pdf, "reports", ".pdf"),
        place("127.0.0.6", "ferry", "articles, and 503 for every fourth request", Site::flaky(4), "tides", ""),
        place(
            "127.0.0.7",
            "market",
            "articles until it is rebuilt as a React app after a dozen requests",
            Site::drifting(12, Site::ReactShell),
            "stalls",
            "",
        ),
        place("127.0.0.8", "barracks", "403 for everybody", Site::FORBIDDEN, "orders", ""),
        place("127.0.0.9", "tollhouse", "a few articles, then 429 for two minutes", tollhouse(), "receipts", ""),
    ]
}

/// The same town for somebody who watches: the tollhouse opens again every half minute, and there is a mill that lets itself be asked
/// two times a second, counted over a minute.
pub fn town_to_watch() -> Vec<Place> {
    let mut places = town();
    if let Some(tollhouse) = places.iter_mut().find(|place| place.name == "tollhouse") {
        tollhouse.about = "a few articles each half minute, then 429";
        tollhouse.site = Site::quota(5, Duration::from_secs(30));
    }
    places.push(Place {
        host: "127.0.0.10",
        name: MILL,
        about: "120 pages a minute, 429 for who wants more",
        site: Site::quota(120, Duration::from_secs(60)),
        section: "sacks",
        suffix: "",
    });
    places
}

/// The place of [`town_to_watch`] whose pace is to be found.
pub const MILL: &str = "mill";

fn tollhouse() -> Site {
    Site::RateLimited { retry_after: "120".to_owned(), free: 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_an_address_of_its_own() {
        let places = town_to_watch();
        let hosts: std::collections::HashSet<_> = places.iter().map(|place| place.host).collect();
        assert_eq!(hosts.len(), places.len());
        for place in &places {
            let address: std::net::IpAddr = place.host.parse().expect("an address");
            assert!(address.is_loopback());
            assert_ne!(place.path(1), place.path(2));
        }
    }
}
