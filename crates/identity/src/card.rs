//! What an agent publishes besides its keys: the card, the page about it, its IP ranges, and its
//! `User-Agent`.
//!
//! Invariants: the card states what the configuration does, nothing else.
//!
//! Must not know: how it is served.

use ipnet::IpNet;
use serde::Serialize;
use url::Url;

use crate::agent::{Agent, WELL_KNOWN};

/// Path of the card.
pub const CARD_PATH: &str = "/bot.json";
/// Path of the page about the agent.
pub const PAGE_PATH: &str = "/bot";
/// Path of the IP ranges.
pub const RANGES_PATH: &str = "/bot-ips.json";
/// Media type of the IP ranges.
pub const RANGES_MEDIA_TYPE: &str = "application/jafar+json";

/// An agent as its operator describes it.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The agent.
    pub agent: Agent,
    /// The product token.
    pub name: String,
    /// URL of a page about the agent; the agent's own page if unset.
    pub about: Option<Url>,
    /// Mail address or URL for questions.
    pub contact: Option<String>,
    /// Networks that requests come from.
    pub ips: Vec<IpNet>,
    /// Whether robots.txt is obeyed, and its `Crawl-delay` too.
    pub robots: RobotsPromise,
    /// Highest rate for a host, in requests per second, and parallel requests; none without a
    /// limit.
    pub pace: Option<(f64, u8)>,
}

/// What an agent promises about robots.txt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RobotsPromise {
    /// Forbidden pages are not requested.
    pub obeys: bool,
    /// A `Crawl-delay` is kept.
    pub keeps_delay: bool,
}

#[derive(Serialize)]
struct Card<'a> {
    client_id: String,
    client_name: &'a str,
    client_uri: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contacts: Vec<String>,
    jwks_uri: &'a str,
    web_bot_auth: Details<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Details<'a> {
    expected_user_agent: String,
    rfc9309_product_token: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rfc9309_compliance: Vec<&'static str>,
    trigger: &'static str,
    rate_control: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_expectation: Option<String>,
    #[serde(rename = "ips_uri", skip_serializing_if = "Option::is_none")]
    ips_uri: Option<String>,
}

impl Profile {
    /// Returns the URL of the page about the agent.
    pub fn about_url(&self) -> String {
        self.about
            .as_ref()
            .map_or_else(|| self.agent.url_of(PAGE_PATH), |about| about.as_str().to_owned())
    }

    /// Returns the `User-Agent` of plain requests (draft-illyes-webbotauth-cbcp).
    pub fn user_agent(&self) -> String {
        format!("Mozilla/5.0 (compatible; {}/1.0; +{})", self.name, self.about_url())
    }

    /// Returns the `User-Agent` of browsers, with `W.X.Y.Z` in place of Chromium's version.
    pub fn browser_user_agent(&self) -> String {
        let (name, about) = (&self.name, self.about_url());
        format!(
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; {name}/1.0; +{about}) Chrome/W.X.Y.Z \
             Safari/537.36"
        )
    }

    /// Returns the card, as JSON.
    pub fn card(&self) -> String {
        let mut compliance = Vec::new();
        if self.robots.obeys {
            compliance.extend(["User-Agent", "Allow", "Disallow"]);
        }
        if self.robots.keeps_delay {
            compliance.push("Crawl-delay");
        }
        let contact = |contact: &String| match contact.contains(':') {
            true => contact.clone(),
            false => format!("mailto:{contact}"),
        };
        let card = Card {
            client_id: self.agent.url_of(CARD_PATH),
            client_name: &self.name,
            client_uri: self.about_url(),
            contacts: self.contact.iter().map(contact).collect(),
            jwks_uri: self.agent.directory_url(),
            web_bot_auth: Details {
                expected_user_agent: self.user_agent(),
                rfc9309_product_token: &self.name,
                rfc9309_compliance: compliance,
                trigger: "crawler",
                rate_control: "429, Retry-After, RateLimit",
                rate_expectation: self
                    .pace
                    .map(|(rate, parallel)| format!("max={rate}rps;parallel={parallel}")),
                ips_uri: (!self.ips.is_empty()).then(|| self.agent.url_of(RANGES_PATH)),
            },
        };
        serde_json::to_string_pretty(&card).unwrap_or_default()
    }

    /// Returns the IP ranges as JSON, created at the time `created` in RFC 3339
    /// (draft-illyes-webbotauth-jafar).
    pub fn ranges(&self, created: &str) -> String {
        let prefix = |net: &IpNet| match net {
            IpNet::V4(net) => serde_json::json!({ "ipv4Prefix": net.trunc().to_string() }),
            IpNet::V6(net) => serde_json::json!({ "ipv6Prefix": net.trunc().to_string() }),
        };
        let prefixes: Vec<_> = self.ips.iter().map(prefix).collect();
        let ranges = serde_json::json!({ "creationTime": created, "prefixes": prefixes });
        serde_json::to_string_pretty(&ranges).unwrap_or_default()
    }

    /// Returns the page about the agent, as HTML.
    pub fn page(&self) -> String {
        let name = html(&self.name);
        let robots = match self.robots.obeys {
            true => format!("It obeys robots.txt. Its product token is <code>{name}</code>."),
            false => format!("Its product token for robots.txt is <code>{name}</code>."),
        };
        let contact = self
            .contact
            .as_ref()
            .map_or_else(String::new, |contact| format!("<p>Contact: {}</p>\n", html(contact)));
        let ranges = match self.ips.is_empty() {
            true => "",
            false => "<p><a rel=\"client-ranges\" href=\"/bot-ips.json\">IP ranges</a></p>\n",
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{name}</title>\n<h1>{name}</h1>\n\
             <p>{name} is a crawler. It signs its requests by Web Bot Auth with the keys of \
             <a href=\"{WELL_KNOWN}\">its directory</a>.</p>\n<p>{robots}</p>\n{contact}{ranges}\
             <p><a href=\"{CARD_PATH}\">Card</a></p>\n</html>\n",
        )
    }
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns whether `name` is a product token: what a `User-Agent` and a group of robots.txt can
/// name.
pub fn is_product_token(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            agent: Agent::parse("https://bot.example").unwrap(),
            name: "ExampleBot".to_owned(),
            about: None,
            contact: Some("bot@example.org".to_owned()),
            ips: vec!["192.0.2.7/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            robots: RobotsPromise { obeys: true, keeps_delay: true },
            pace: Some((20.0, 16)),
        }
    }

    #[test]
    fn a_browser_declares_itself() {
        let declared = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ExampleBot/1.0; \
            +https://bot.example/bot) Chrome/W.X.Y.Z Safari/537.36";
        assert_eq!(profile().browser_user_agent(), declared);
    }

    #[test]
    fn the_card_names_its_own_url_and_what_the_configuration_does() {
        let card: serde_json::Value = serde_json::from_str(&profile().card()).unwrap();
        assert_eq!(card["client_id"], "https://bot.example/bot.json");
        assert_eq!(card["contacts"][0], "mailto:bot@example.org");
        assert_eq!(
            card["jwks_uri"],
            "https://bot.example/.well-known/http-message-signatures-directory"
        );
        let details = &card["web_bot_auth"];
        assert_eq!(
            details["expected-user-agent"],
            "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/bot)"
        );
        assert_eq!(
            details["rfc9309-compliance"],
            serde_json::json!(["User-Agent", "Allow", "Disallow", "Crawl-delay"])
        );
        assert_eq!(details["rate-expectation"], "max=20rps;parallel=16");
        let silent =
            Profile { robots: RobotsPromise::default(), pace: None, ips: Vec::new(), ..profile() };
        let card: serde_json::Value = serde_json::from_str(&silent.card()).unwrap();
        let details = card["web_bot_auth"].as_object().unwrap();
        assert!(
            ["rfc9309-compliance", "rate-expectation", "ips_uri"]
                .iter()
                .all(|key| !details.contains_key(*key))
        );
    }

    #[test]
    fn ranges_are_networks_and_the_page_is_escaped() {
        let ranges: serde_json::Value =
            serde_json::from_str(&profile().ranges("2026-11-23T00:00:00Z")).unwrap();
        assert_eq!(ranges["prefixes"][0]["ipv4Prefix"], "192.0.2.0/24");
        assert_eq!(ranges["prefixes"][1]["ipv6Prefix"], "2001:db8::/32");
        let hostile = Profile { contact: Some("<script>".to_owned()), ..profile() };
        assert!(!hostile.page().contains("<script>"));
        assert!(
            is_product_token("ExampleBot")
                && !is_product_token("Example Bot")
                && !is_product_token("a/1")
        );
    }
}
