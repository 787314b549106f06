//! The verdict on a response, and the heuristics that follow from it.
//!
//! Presence of a vendor and evidence of a block are separate. A page may be proxied by Cloudflare,
//! carry a captcha widget, and still be the requested page.
//!
//! Must not know: how an attempt that got the response is counted.

use std::fmt;
use std::sync::Arc;

use crate::html::visibility::PagePart;
use crate::rules::strength::Grade;
use fetchwise_types::fetch_result::BlockKind;
use fetchwise_types::heuristic::{Heuristic, is_of_response};
use fetchwise_types::response::{Page, header, media_type};

/// Minimum visible characters of a page that counts as content.
pub const CONTENT_CHARS: u32 = 200;

/// A set of vendors.
#[derive(Clone, Default)]
pub struct Vendors {
    pub(super) names: Option<Arc<[Arc<str>]>>,
    pub(super) bits: u128,
}

impl Vendors {
    /// Returns their names, in the order of the rule table.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let bits = self.bits;
        self.names
            .iter()
            .flat_map(|n| n.iter())
            .enumerate()
            .filter(move |(i, _)| bits & (1 << i) != 0)
            .map(|(_, n)| &**n)
    }

    /// Returns whether `vendor` is in the set.
    pub fn contains(&self, vendor: &str) -> bool {
        self.iter().any(|v| v == vendor)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }
}

impl fmt::Debug for Vendors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl PartialEq for Vendors {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// One piece of evidence, with its position.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RuleMatch {
    /// The rule's id.
    pub rule: Arc<str>,
    /// The rule's vendor.
    pub vendor: Option<Arc<str>>,
    /// What the rule proves.
    pub grade: Grade,
    /// Where it matched.
    pub place: PagePart,
    /// Offset of the match in bytes, in the body or, if that is in UTF-16, in the decoded body.
    /// `None` for headers, titles and sentences.
    pub offset: Option<u32>,
    /// The matched text, at most 80 characters.
    pub text: String,
    /// Whether all conditions of the rule held, so that the match counted.
    pub counted: bool,
    /// The rule's note: its source.
    pub note: Arc<str>,
}

/// The detector's verdict on a response.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// The response is a challenge or a refusal instead of the content.
    pub is_blocked: bool,
    /// The kind of block: a challenge if there is one; a refusal if only the words or the status
    /// refuse.
    pub block_type: Option<BlockKind>,
    /// The response is a waiting room, neither blocked nor content.
    pub is_queued: bool,
    /// The network of the crawler refuses or asks for a log-in, not the site: a provider, an
    /// administrator's filter, a court's order, a captive portal. Set for blocks only.
    pub network_block: bool,
    /// The vendor of the block or waiting room, if known.
    pub vendor: Option<Arc<str>>,
    /// The id of the rule that decided, if a rule did.
    pub rule: Option<Arc<str>>,
    /// The strongest cues of a block, the strongest first, if cues decided.
    pub cues: Vec<Arc<str>>,
    /// What that rule proves.
    pub grade: Option<Grade>,
    /// Confidence of the verdict, from 0 to 1; 0 if nothing was found.
    pub confidence: f32,
    /// The page is an application shell: scripts load the content.
    pub has_spa: bool,
    /// The framework, if it has a name. Also set for other pages, if they were searched that far.
    pub framework: Option<Arc<str>>,
    /// HTML with next to nothing to read that is no shell, block or waiting room.
    pub is_empty: bool,
    /// The server says that it failed or is being maintained, whatever the status is: it refused
    /// nobody.
    pub is_server_error: bool,
    /// The body is still compressed, although its header promises text: what fetched it has not
    /// decoded it.
    pub is_undecoded: bool,
    /// The text continues for subscribers only.
    pub has_paywall: bool,
    /// The page asks for a log-in in place of the content: with a password form and nothing else,
    /// in its first words, at a log-in address, or with status 401.
    pub has_login_wall: bool,
    /// Redirects led to a log-in address.
    pub is_login_redirect: bool,
    /// A 2xx page whose title says that nothing was found.
    pub soft_404: bool,
    /// More than half of the page's bytes are script.
    pub high_script_ratio: bool,
    /// Visible characters, white space collapsed. A lower bound if `text_complete` is false:
    /// counting stops when more characters make no difference, unless
    /// [`super::DetectorOptions::count_all`] is set.
    pub text_chars: u32,
    /// Whether `text_chars` covers the whole body that was read.
    pub text_complete: bool,
    /// Characters inside `<noscript>`, as far as text was counted.
    pub noscript_chars: u32,
    /// Whether the body is HTML.
    pub is_html: bool,
    /// Bytes of the body that were read.
    pub bytes: u32,
    /// Vendors that are present. No evidence of a block.
    pub waf: Vendors,
    /// Target of a redirect in a 2xx page with next to nothing to read: a refresh
    /// (`<meta http-equiv=refresh>`, or the header) with a delay of at most 10 seconds, or a script
    /// that only sets the location to a literal URL. Resolve it against the page's URL: it is as
    /// written, escapes and entities decoded, or a whole URL where the page has a `<base>` (a
    /// relative one counts if the page's URL is known). Such a page counts as empty, not as a
    /// shell. A refresh of a challenge does not count.
    pub redirect: Option<Box<str>>,
    /// Hash of the visible text, white space collapsed, of HTML with little text. 0 where there is
    /// much text or none. Two short pages of a host with the same hash have the same text, as block
    /// pages do for every URL. Different versions of this crate may hash differently.
    pub text_hash: u64,
    /// Short, non-empty HTML with hints at a block but no proof: words of a refusal or about
    /// robots, a captcha, a challenge marker that did not count, a request number, or a demand for
    /// cookies or scripts. No rule may know this block page, so do not take it for a genuine short
    /// page.
    pub block_cues: bool,
}

impl Verdict {
    /// Returns whether the page has enough to read: it is not HTML, or it has text for a reader and
    /// is neither blocked nor queued. The status does not count here: see [`Verdict::outcome`].
    pub fn is_content(&self) -> bool {
        !self.is_blocked
            && !self.is_queued
            && !self.is_server_error
            && !self.is_undecoded
            && !self.is_thin()
    }

    /// Returns whether the page is empty or a shell, which a browser might fill.
    pub fn is_thin(&self) -> bool {
        self.is_empty || self.has_spa
    }

    /// Returns the reason in one sentence for a person.
    pub fn reason(&self) -> String {
        let vendor = self.vendor.as_deref().map(|v| format!(" by {v}")).unwrap_or_default();
        let rule = self.rule.as_deref().map(|r| format!(" (rule {r})")).unwrap_or_default();
        if self.is_queued {
            format!("waiting room{vendor}{rule}")
        } else if self.network_block {
            format!("a page of the network, not of the site{rule}")
        } else if self.is_blocked {
            match self.block_type {
                Some(BlockKind::Refusal) => format!("refused{vendor}{rule}"),
                _ => format!("challenge or block page{vendor}{rule}"),
            }
        } else if self.is_server_error {
            format!("the server failed or is being maintained{vendor}{rule}")
        } else if self.is_login_redirect {
            "redirected to a log-in".to_owned()
        } else if self.is_undecoded {
            "still compressed: the fetcher has not decoded the body".to_owned()
        } else if self.has_spa {
            let framework = self.framework.as_deref().unwrap_or("script");
            format!("{framework} shell with {} visible characters{rule}", self.text_chars)
        } else if let Some(target) = &self.redirect {
            format!("{} visible characters and a redirect to {target}", self.text_chars)
        } else if self.is_empty {
            format!("{} visible characters", self.text_chars)
        } else if !self.is_html {
            "not HTML: taken as is".to_owned()
        } else {
            let least = if self.text_complete { "" } else { "at least " };
            format!("{least}{} visible characters", self.text_chars)
        }
    }
}

/// Adds the heuristics that are known after the fetch to `out`. Only true ones are added.
pub fn heuristics(page: &Page<'_>, verdict: &Verdict, out: &mut Vec<Heuristic>) {
    let known_before = out.len();
    out.push(Heuristic::flag(format!("status_{}", page.status)));
    if let Some(server) = header(page.headers, "server") {
        let server = server.to_ascii_lowercase();
        let known = SERVERS.iter().filter(|(part, _)| server.contains(part));
        out.extend(known.map(|(_, kind)| Heuristic::flag(*kind)));
    }
    if let Some(essence) = media_type(page.headers).filter(|essence| essence.len() <= 100) {
        out.push(Heuristic::new("content_type", essence.to_ascii_lowercase()));
    }
    let flags = [
        (verdict.block_type == Some(BlockKind::Challenge), "has_captcha"),
        (verdict.has_spa, "has_spa"),
        (verdict.has_paywall, "has_paywall"),
        (verdict.has_login_wall, "has_login_wall"),
        (verdict.soft_404, "soft_404"),
        (verdict.is_queued, "is_queued"),
        (verdict.network_block, "network_block"),
        (
            verdict.is_html && verdict.text_complete && verdict.text_chars < CONTENT_CHARS,
            "empty_body",
        ),
        (verdict.high_script_ratio, "high_script_ratio"),
    ];
    out.extend(flags.iter().filter(|(is, _)| *is).map(|(_, kind)| Heuristic::flag(*kind)));
    // Also for pages that are no shells: the framework of a host's pages says which other fetchers
    // may be needed.
    if let Some(framework) = &verdict.framework {
        out.push(Heuristic::new("spa_framework", framework.to_string()));
    }
    out.extend(verdict.waf.iter().map(|vendor| Heuristic::flag(format!("waf_{vendor}"))));
    if verdict.is_blocked
        && let Some(vendor) = &verdict.vendor
    {
        out.push(Heuristic::flag(format!("block_{vendor}")));
    }
    debug_assert!(out.iter().skip(known_before).all(|of| is_of_response(&of.kind)), "{out:?}");
}

/// Parts of `Server` headers, with their heuristics.
const SERVERS: &[(&str, &str)] = &[
    ("cloudflare", "server_cloudflare"),
    ("nginx", "server_nginx"),
    ("openresty", "server_openresty"),
    ("apache", "server_apache"),
    ("litespeed", "server_litespeed"),
    ("microsoft-iis", "server_iis"),
    ("akamai", "server_akamai"),
    ("cloudfront", "server_cloudfront"),
    ("amazons3", "server_amazons3"),
    ("awselb", "server_awselb"),
    ("gws", "server_gws"),
    ("gse", "server_gse"),
    ("caddy", "server_caddy"),
    ("envoy", "server_envoy"),
    ("varnish", "server_varnish"),
    ("vercel", "server_vercel"),
    ("netlify", "server_netlify"),
    ("github.com", "server_github"),
    ("ddos-guard", "server_ddos_guard"),
    ("sucuri", "server_sucuri"),
    ("datadome", "server_datadome"),
    ("tengine", "server_tengine"),
    ("squarespace", "server_squarespace"),
    ("pepyaka", "server_wix"),
    ("qrator", "server_qrator"),
];

/// Custom heuristics of a response, besides the built-in ones. fetchwise learns from a new kind of
/// heuristic, and answers queries about it, from the first attempt on.
///
/// ```
/// use fetchwise_detect::{ResponseExtractor, Verdict};
/// use fetchwise_detect::heuristic::Heuristic;
/// use fetchwise_detect::response::{Page, header};
///
/// struct Language;
///
/// impl ResponseExtractor for Language {
///     fn extract(&self, page: &Page<'_>, _verdict: &Verdict, out: &mut Vec<Heuristic>) {
///         if let Some(language) = header(page.headers, "content-language") {
///             out.push(Heuristic::new("language", language.to_owned()));
///         }
///     }
/// }
/// ```
pub trait ResponseExtractor: Send + Sync {
    /// Adds the heuristics that hold for `page` to `out`.
    fn extract(&self, page: &Page<'_>, verdict: &Verdict, out: &mut Vec<Heuristic>);
}
