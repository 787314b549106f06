//! The sites that the `demo` command crawls: together they need every kind of decision.
//!
//! Owns: the list of sites and their addresses, as data only. The sites have addresses rather than
//! names because not every resolver knows `*.localhost`.

use std::time::Duration;

use super::origin::Site;

/// A demo site.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DemoSite {
    /// Loopback address.
    pub host: &'static str,
    /// Name.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Behaviour.
    pub site: Site,
    section: &'static str,
    suffix: &'static str,
}

impl DemoSite {
    /// Returns the path of page number `n`; each number is a different page.
    pub fn path(&self, n: usize) -> String {
        format!("/{}/{n}{}", self.section, self.suffix)
    }
}

/// Returns the demo sites, each at its own address from 127.0.0.2 on.
///
/// ```
/// use fetchwise_testsite::{demo_sites::demo_sites, origin::Origin};
///
/// let sites = demo_sites();
/// let origin = Origin::start(sites.iter().map(|site| (site.host, site.site.clone())))?;
/// // Three pages of each site, in rounds: one page of each site, then the next round.
/// let urls: Vec<String> =
///     (0..3).flat_map(|n| sites.iter().map(move |site| (site, n))).map(|(p, n)| origin.url(p.host, &p.path(n))).collect();
/// assert_eq!(urls.len(), 3 * sites.len());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn demo_sites() -> Vec<DemoSite> {
    let site_at = |host, name, about, site, section, suffix| DemoSite {
        host,
        name,
        about,
        site,
        section,
        suffix,
    };
    vec![
        site_at("127.0.0.2", "library", "server-rendered articles", Site::Static, "notes", ""),
        site_at(
            "127.0.0.3",
            "gallery",
            "a React app: nothing to read without scripts",
            Site::ReactShell,
            "works",
            "",
        ),
        site_at(
            "127.0.0.4",
            "bank",
            "a challenge page for all but stealthy browsers",
            Site::captcha(403),
            "rates",
            "",
        ),
        site_at("127.0.0.5", "archive", "PDF files", Site::Pdf, "reports", ".pdf"),
        site_at(
            "127.0.0.6",
            "ferry",
            "articles, and 503 for every fourth request",
            Site::flaky(4),
            "tides",
            "",
        ),
        site_at(
            "127.0.0.7",
            "market",
            "articles until it is rebuilt as a React app after a dozen requests",
            Site::drifting(12, Site::ReactShell),
            "stalls",
            "",
        ),
        site_at("127.0.0.8", "barracks", "403 for everybody", Site::FORBIDDEN, "orders", ""),
        site_at(
            "127.0.0.9",
            "tollhouse",
            "a few articles, then 429 for two minutes",
            tollhouse(),
            "receipts",
            "",
        ),
    ]
}

/// Returns the demo sites for the interactive demo. The tollhouse opens again every 30 seconds, and
/// there is one more site, the mill, which allows two requests per second, counted over a minute.
pub fn interactive_demo_sites() -> Vec<DemoSite> {
    let mut sites = demo_sites();
    if let Some(tollhouse) = sites.iter_mut().find(|site| site.name == "tollhouse") {
        tollhouse.about = "a few articles each half minute, then 429";
        tollhouse.site = Site::quota(5, Duration::from_secs(30));
    }
    sites.push(DemoSite {
        host: "127.0.0.10",
        name: MILL,
        about: "120 pages per minute, 429 above that",
        site: Site::quota(120, Duration::from_secs(60)),
        section: "sacks",
        suffix: "",
    });
    sites
}

/// Name of the site whose rate limit the interactive demo finds.
pub const MILL: &str = "mill";

fn tollhouse() -> Site {
    Site::RateLimited { retry_after: "120".to_owned(), free: 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demo_site_has_its_own_address() {
        let sites = interactive_demo_sites();
        let hosts: std::collections::HashSet<_> = sites.iter().map(|site| site.host).collect();
        assert_eq!(hosts.len(), sites.len());
        for site in &sites {
            let address: std::net::IpAddr = site.host.parse().expect("an address");
            assert!(address.is_loopback());
            assert_ne!(site.path(1), site.path(2));
        }
    }
}
