//! Signs of a network in a page, in no language: addresses that exist inside a network only, and
//! what only its equipment knows of a visitor.
//!
//! Owns: what an address inside a network is.
//!
//! Invariants: a site that is inside a network itself has no signs, since all its addresses are
//! there. Time is linear in the page.
//!
//! Must not know: what follows from a sign.

use std::net::{Ipv4Addr, Ipv6Addr};

use memchr::{memchr, memmem, memrchr2};

use crate::html::page_facts::{PageFacts, is_hardware_address};
use fetchwise_types::response::Page;

/// Bytes at the beginning of a page that are searched for addresses, and the maximum number of them
/// that are looked at.
const SEARCHED: usize = 64 << 10;
const MAX_ADDRESSES: usize = 16;
/// Maximum visible characters of a page whose scripts do nothing but send their reader elsewhere.
const SENDING_CHARS: u32 = 70;
/// Last labels of names that no public site has.
const INSIDE_LABELS: [&str; 9] =
    ["local", "lan", "internal", "intranet", "home", "corp", "localdomain", "localhost", "arpa"];
/// Parameters in which gateways of hotspots hand their visitor to a portal, besides those with a
/// hardware address.
const HANDED: [&str; 9] = [
    "uamip",
    "uamport",
    "wlanuserip",
    "wlanacname",
    "wlanacip",
    "gw_address",
    "base_grant_url",
    "user_continue_url",
    "switch_url",
];

/// The signs of a network in one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkSigns {
    /// The page, its form or its frame leads to an address inside a network.
    pub(crate) leads_inside: bool,
    /// A field or the page's own address has the visitor's hardware address, or parameters of a
    /// hotspot.
    pub(crate) knows_visitor: bool,
    /// A link or a picture is at an address inside a network.
    pub(crate) links_inside: bool,
    /// The text names an address inside a network.
    pub(crate) names_inside: bool,
    /// The text names the site that was asked for, as a URL or in any way.
    pub(crate) names_url: bool,
    pub(crate) names_asked: bool,
    /// The page is at another site, and the site that was asked for is in its address.
    pub(crate) led_away: bool,
}

impl NetworkSigns {
    /// Reads the signs in a page with little text: `lower` is its body in lower case, `text` its
    /// visible text.
    pub(crate) fn of(page: &Page<'_>, facts: &PageFacts, lower: &[u8], text: &str) -> Self {
        let (asked, got) = (page.url.and_then(host), page.final_url.or(page.url).and_then(host));
        if asked.is_some_and(is_inside) {
            return Self::default();
        }
        let mut signs = Self { knows_visitor: facts.has_hardware_address, ..Self::default() };
        if let (Some(url), Some(asked), Some(got)) = (page.final_url, asked, got) {
            signs.leads_inside = is_inside(got);
            let away = !asked.eq_ignore_ascii_case(got);
            signs.knows_visitor |= away && hands_visitor(url);
            signs.led_away = away && site(asked) != site(got) && named(url, asked).next().is_some();
        }
        signs.read_addresses(
            &lower[..lower.len().min(SEARCHED)],
            facts.visible.chars <= SENDING_CHARS,
        );
        signs.names_inside = names_inside(text);
        for before in asked.into_iter().flat_map(|asked| named(text, asked)) {
            signs.names_asked = true;
            signs.names_url |= before.ends_with(b"://") || before.ends_with(b"://www.");
        }
        signs
    }

    /// Returns whether there is any sign.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }

    /// Returns whether they say without any word that the page is of a network.
    pub(crate) fn are_core(self) -> bool {
        self.leads_inside || self.knows_visitor || self.names_inside && self.names_url
    }

    /// Reads the addresses inside a network in tags and, if scripts do nothing else, in scripts.
    fn read_addresses(&mut self, lower: &[u8], scripts_send: bool) {
        // All of these addresses begin with the same digit.
        for at in memmem::find_iter(lower, b"//1").take(MAX_ADDRESSES) {
            let rest = &lower[at + 2..];
            let len =
                rest.iter().position(|b| !(b.is_ascii_digit() || *b == b'.')).unwrap_or(rest.len());
            let ends = !rest.get(len).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'-');
            if !ends || !std::str::from_utf8(&rest[..len]).is_ok_and(is_inside_v4) {
                continue;
            }
            let before = &lower[..at];
            let Some(bracket) = memrchr2(b'<', b'>', before) else { continue };
            if before[bracket] == b'<' {
                let name = before[bracket + 1..]
                    .split(|b| !b.is_ascii_alphanumeric())
                    .next()
                    .unwrap_or_default();
                match name {
                    b"form" | b"iframe" | b"frame" | b"meta" | b"button" => {
                        self.leads_inside = true
                    }
                    b"a" | b"img" | b"area" | b"input" | b"link" | b"script" => {
                        self.links_inside = true
                    }
                    _ => {}
                }
            } else if scripts_send {
                self.leads_inside |=
                    memmem::rfind(before, b"<script") > memmem::rfind(before, b"</script");
            }
        }
    }
}

/// Returns the host of a URL, without user info and port.
pub(crate) fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(
        host.rsplit_once(':')
            .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
            .map_or(host, |(host, _)| host),
    )
}

/// Returns the last two labels of a host, which tell most sites apart.
fn site(host: &str) -> &str {
    let from = host
        .bytes()
        .rev()
        .enumerate()
        .filter(|(_, b)| *b == b'.')
        .nth(1)
        .map_or(0, |(n, _)| host.len() - n);
    &host[from..]
}

/// Returns whether no public site has this host: an address inside a network or of this machine, a
/// name of one label, or a reserved name.
fn is_inside(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return address.parse().is_ok_and(|address: Ipv6Addr| {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        });
    }
    let Some((_, last)) = host.rsplit_once('.') else { return true };
    INSIDE_LABELS.iter().any(|label| last.eq_ignore_ascii_case(label))
        || is_inside_v4(host)
        || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

/// Returns whether this is an IPv4 address inside a network, of a provider's customers (RFC 6598)
/// or of one link.
fn is_inside_v4(address: &str) -> bool {
    address.parse::<Ipv4Addr>().is_ok_and(|address| {
        let [first, second, ..] = address.octets();
        address.is_private()
            || address.is_link_local()
            || first == 100 && (64..128).contains(&second)
    })
}

/// Returns whether a text names an address inside a network: no block of addresses, and not that of
/// a server with its port.
fn names_inside(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_part = |b: &u8| b.is_ascii_digit() || *b == b'.';
    let mut at = 0;
    while let Some(dot) = bytes.get(at..).and_then(|rest| memchr(b'.', rest)) {
        let from = bytes[at..at + dot]
            .iter()
            .rposition(|b| !b.is_ascii_digit())
            .map_or(at, |n| at + n + 1);
        let to = bytes[from..].iter().position(|b| !is_part(b)).map_or(bytes.len(), |n| from + n);
        let after = text.get(to..).unwrap_or_default();
        let is_other = after.starts_with(" port ")
            || after.starts_with('/') && after[1..].starts_with(|c: char| c.is_ascii_digit());
        if !is_other
            && text.get(from..to).is_some_and(|address| is_inside_v4(address.trim_end_matches('.')))
        {
            return true;
        }
        at = to.max(at + dot + 1);
    }
    false
}

/// Returns what stands before each place where a text has the name of a host as a whole.
fn named<'t>(text: &'t str, host: &'t str) -> impl Iterator<Item = &'t [u8]> {
    let (text, host) = (text.as_bytes(), host.strip_prefix("www.").unwrap_or(host).as_bytes());
    let is_end = |b: Option<&u8>| !b.is_some_and(u8::is_ascii_alphanumeric);
    let whole = move |at: &usize| {
        let before = &text[..*at];
        (is_end(before.last()) || matches!(before, [.., b'%', b'2', b'f' | b'F']))
            && is_end(text.get(at + host.len()))
    };
    memmem::find_iter(text, host).filter(whole).map(|at| &text[..at])
}

/// Returns whether the query of a URL hands a hotspot's visitor to its portal.
fn hands_visitor(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split(['&', ';', '?']).filter_map(|pair| pair.split_once('=')).any(|(name, value)| {
        let hands = HANDED.iter().any(|known| name.eq_ignore_ascii_case(known));
        hands || is_hardware_address(value.replace("%3A", ":").replace("%3a", ":").as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str, final_url: &str, body: &str, text: &str) -> NetworkSigns {
        let page = Page { url: Some(url), final_url: Some(final_url), ..Page::default() };
        NetworkSigns::of(&page, &PageFacts::default(), body.as_bytes(), text)
    }

    fn at_wren(body: &str, text: &str) -> NetworkSigns {
        of("http://wren.example/a", "http://wren.example/a", body, text)
    }

    #[test]
    fn an_address_inside_a_network_counts_by_the_element_that_has_it() {
        for body in [
            "<form method=post action=\"http://10.5.50.1/login\">",
            "<iframe src=\"http://10.10.34.34?type=x\">",
            "<meta http-equiv=refresh content=\"0;url=https://192.168.8.1:8443/hello\">",
            "<body><script>top.location='http://172.16.0.9:2050/'</script>",
            "<form action='//100.64.3.2/'>",
        ] {
            assert!(at_wren(body, "").leads_inside, "{body}");
        }
        for body in [
            "<form action=\"http://11.5.50.1/login\">",
            "<form action=\"http://10.example/login\">",
            "<form action=\"http://172.32.0.9/\">",
            "<form action=\"/login?to=10.5.50.1\">",
            "<body><p>open http://192.168.1.1 in a browser",
            "<body><script>var a = 1</script><p>http://192.168.1.1",
        ] {
            assert!(!at_wren(body, "").leads_inside, "{body}");
        }
        let linked = at_wren("<p><a href=\"http://192.168.1.1/\">", "");
        assert!(linked.links_inside && !linked.are_core(), "{linked:?}");
    }

    #[test]
    fn a_site_inside_a_network_has_no_signs() {
        let names = ["http://router/", "http://wiki.corp.lan/a", "http://nas.local:8080/"];
        let addresses = [
            "http://192.168.1.1/",
            "http://127.0.0.1:8000/",
            "http://[::1]/",
            "http://[fd00::1]:80/",
        ];
        for url in names.into_iter().chain(addresses) {
            let signs = of(
                url,
                url,
                "<form action=\"http://192.168.1.1/apply\">",
                "192.168.1.1 http://router/",
            );
            assert!(!signs.any(), "{url}: {signs:?}");
        }
        assert!(of("http://wren.example/", "http://10.0.0.2/blocked", "", "").leads_inside);
    }

    #[test]
    fn the_text_names_addresses_and_the_site_as_a_whole() {
        for text in ["client 10.20.4.17", "ip: 192.168.0.7.", "(172.31.255.1)", "100.64.0.1"] {
            assert!(names_inside(text), "{text}");
        }
        for text in [
            "10.0.0.0/8",
            "apache server at 10.0.0.5 port 80",
            "172.32.0.1",
            "version 10.2",
            "8.8.8.8",
            "a.b",
            "1.2.3.4.5",
        ] {
            assert!(!names_inside(text), "{text}");
        }
        let named = |text| at_wren("", text).names_asked;
        assert!(
            named("http://wren.example/a")
                && named("you want wren.example.")
                && named("u=http%3a%2f%2fwren.example")
        );
        assert!(
            !named("wren.examples") && !named("jenny-wren1.example") && !named("awren.example")
        );
        assert!(
            of(
                "http://www.wren.example/",
                "http://www.wren.example/",
                "",
                "wren.example is closed"
            )
            .names_asked
        );
        assert!(at_wren("", "10.20.4.17 wants http://wren.example/a").are_core());
        assert!(!at_wren("", "10.20.4.17 wants wren.example").are_core());
    }

    #[test]
    fn a_redirect_to_another_site_is_a_sign_if_it_is_told_who_was_asked_for() {
        let led = |to: &str| of("http://wren.example/a", to, "", "");
        assert!(
            led("http://stop.provider.example.net/?url=http%3A%2F%2Fwren.example%2Fa").led_away
        );
        assert!(!led("http://stop.provider.example.net/").led_away);
        assert!(!led("https://www.wren.example/?from=wren.example").led_away);
        assert!(led("http://portal.example.net/?uamip=1.2.3.4&res=notyet").knows_visitor);
        assert!(led("http://portal.example.net/?cmd=login&mac=8c:85:90:1a:2b:3c").knows_visitor);
        assert!(!led("http://portal.example.net/?machine=7&name=8c-85").knows_visitor);
    }
}
