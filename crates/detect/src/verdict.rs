//! What was read in a response, and the heuristics that follow from it. What an attempt that got it counts as is not known here.
//!
//! Presence of a vendor and evidence of a block are kept apart: a page may be proxied by Cloudflare, carry a captcha widget
//! and still be what was asked for.

use std::fmt;
use std::sync::Arc;

use crate::html::visibility::Place;
use crate::rules::strength::Grade;
use fetchwise_types::fetch_result::BlockKind;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::response::{Page, header};

/// Visible characters from which a page counts as content.
pub const CONTENT_CHARS: u32 = 200;

/// A set of vendors.
#[derive(Clone, Default)]
pub struct Vendors {
    pub(super) names: Option<Arc<[Arc<str>]>>,
    pub(super) bits: u128,
}

impl Vendors {
    /// Their names, in the order of the rule table.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let bits = self.bits;
        self.names
            .iter()
            .flat_map(|n| n.iter())
            .enumerate()
            .filter(move |(i, _)| bits & (1 << i) != 0)
            .map(|(_, n)| &**n)
    }

    /// Whether `vendor` is among them.
    pub fn contains(&self, vendor: &str) -> bool {
        self.iter().any(|v| v == vendor)
    }

    /// Whether there is none.
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

/// One piece of evidence: what matched, and where.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Match {
    /// The rule's id.
    pub rule: Arc<str>,
    /// The rule's vendor.
    pub vendor: Option<Arc<str>>,
    /// What the rule proves.
    pub grade: Grade,
    /// Where it matched.
    pub place: Place,
    /// Offset of the match in bytes: in the body, or in the decoded body when it is in UTF-16. None for headers, titles and
    /// sentences.
    pub offset: Option<u32>,
    /// What matched, at most 80 characters.
    pub text: String,
    /// Whether all of the rule's conditions held, so that it counted.
    pub counted: bool,
    /// The rule's note: where it was seen.
    pub note: Arc<str>,
}

/// What a response turned out to be.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// A challenge or a refusal came instead of the content.
    pub is_blocked: bool,
    /// When blocked: a challenge where there is one, a refusal where there are only words of one or its status.
    pub block_type: Option<BlockKind>,
    /// A waiting room: neither blocked nor content.
    pub is_queued: bool,
    /// Whose block or waiting room it is, when known.
    pub vendor: Option<Arc<str>>,
    /// The id of the rule that decided, if one did.
    pub rule: Option<Arc<str>>,
    /// What that rule proves.
    pub grade: Option<Grade>,
    /// How sure the verdict is, from 0 to 1; 0 when nothing was found.
    pub confidence: f32,
    /// An application's shell: the content comes by script.
    pub has_spa: bool,
    /// The framework, when it has a name; for pages that are no shells too, when they were searched that far.
    pub framework: Option<Arc<str>>,
    /// HTML with next to nothing to read, and no shell, block or waiting room.
    pub is_empty: bool,
    /// The text goes on for subscribers.
    pub has_paywall: bool,
    /// A form for a password came where something else was asked for.
    pub has_login_wall: bool,
    /// A 2xx page whose title says that there is nothing.
    pub soft_404: bool,
    /// More than half of the page's bytes are script.
    pub high_script_ratio: bool,
    /// Visible characters, white space collapsed. At least so many: counting stops when more make no difference, unless
    /// [`super::DetectorOptions::count_all`] is set.
    pub text_chars: u32,
    /// Whether `text_chars` is all of the (capped) body.
    pub text_complete: bool,
    /// Characters inside `<noscript>`, as far as text was counted.
    pub noscript_chars: u32,
    /// Whether the body is HTML.
    pub is_html: bool,
    /// Bytes of body that were looked at.
    pub bytes: u32,
    /// Vendors that are there; evidence of nothing.
    pub waf: Vendors,
    /// Where a page with status 2xx and next to nothing to read sends its reader: by a `<meta http-equiv=refresh>` that waits ten
    /// seconds at most, or by a script that does nothing but set the location to a literal URL. The target is as it was written,
    /// escapes and entities decoded; resolve it against the page's URL. Such a page counts as empty, not as a shell. A refresh
    /// that belongs to a challenge is none.
    pub redirect: Option<Box<str>>,
    /// A hash of the visible text, white space collapsed, of HTML with little text; 0 where there is much text or none. Two short
    /// pages of a host with the same hash say the same, as walls do whatever they were asked for. The hash is the same for the
    /// same version of this crate only.
    pub text_hash: u64,
    /// HTML with little to read, though not nothing, that hints at a wall without proving one: words of a refusal or about robots, a captcha,
    /// a marker of a challenge that did not count, a request's number, a demand for cookies or scripts. Such a page may be a
    /// short wall that no rule knows: do not take it for a short page that is all there is.
    pub wall_cues: bool,
}

impl Verdict {
    /// Whether the page has enough to read: not HTML at all, or HTML with text for a reader, and neither blocked nor queued.
    /// What the status says is not looked at: see [`Verdict::outcome`].
    pub fn is_content(&self) -> bool {
        !self.is_blocked && !self.is_queued && !self.is_thin()
    }

    /// Whether this is an empty page or a shell, which a browser might fill.
    pub fn is_thin(&self) -> bool {
        self.is_empty || self.has_spa
    }

    /// Why, in one sentence for a person.
    pub fn reason(&self) -> String {
        let vendor = self.vendor.as_deref().map(|v| format!(" by {v}")).unwrap_or_default();
        let rule = self.rule.as_deref().map(|r| format!(" (rule {r})")).unwrap_or_default();
        if self.is_queued {
            format!("waiting room{vendor}{rule}")
        } else if self.is_blocked {
            match self.block_type {
                Some(BlockKind::Refusal) => format!("refused{vendor}{rule}"),
                _ => format!("challenge or block page{vendor}{rule}"),
            }
        } else if self.has_spa {
            let framework = self.framework.as_deref().unwrap_or("script");
            format!("{framework} shell with {} visible characters{rule}", self.text_chars)
        } else if let Some(target) = &self.redirect {
            format!("{} visible characters and a redirect to {target}", self.text_chars)
        } else if self.is_empty {
            format!("{} visible characters", self.text_chars)
        } else if !self.is_html {
            "no HTML: taken as it is".to_owned()
        } else {
            let least = if self.text_complete { "" } else { "at least " };
            format!("{least}{} visible characters", self.text_chars)
        }
    }
}

/// The heuristics that are known after the fetch. Only what is true is added.
pub fn heuristics(page: &Page<'_>, verdict: &Verdict, out: &mut Vec<Heuristic>) {
    out.push(Heuristic::flag(format!("status_{}", page.status)));
    if let Some(server) = header(page.headers, "server") {
        let server = server.to_ascii_lowercase();
        let known = SERVERS.iter().filter(|(part, _)| server.contains(part));
        out.extend(known.map(|(_, kind)| Heuristic::flag(*kind)));
    }
    if let Some(content_type) = header(page.headers, "content-type") {
        let essence = crate::html::sniff::essence(content_type);
        if !essence.is_empty() && essence.len() <= 100 {
            out.push(Heuristic::new("content_type", essence.to_ascii_lowercase()));
        }
    }
    let flags = [
        (verdict.block_type == Some(BlockKind::Challenge), "has_captcha"),
        (verdict.has_spa, "has_spa"),
        (verdict.has_paywall, "has_paywall"),
        (verdict.has_login_wall, "has_login_wall"),
        (verdict.soft_404, "soft_404"),
        (verdict.is_queued, "is_queued"),
        (verdict.is_html && verdict.text_complete && verdict.text_chars < CONTENT_CHARS, "empty_body"),
        (verdict.high_script_ratio, "high_script_ratio"),
    ];
    out.extend(flags.iter().filter(|(is, _)| *is).map(|(_, kind)| Heuristic::flag(*kind)));
    // Of pages that are no shells, too: what a host's pages are made with says who else has to be asked there.
    if let Some(framework) = &verdict.framework {
        out.push(Heuristic::new("spa_framework", framework.to_string()));
    }
    out.extend(verdict.waf.iter().map(|vendor| Heuristic::flag(format!("waf_{vendor}"))));
    if verdict.is_blocked
        && let Some(vendor) = &verdict.vendor
    {
        out.push(Heuristic::flag(format!("block_{vendor}")));
    }
}

/// What a `Server` header may contain, and the heuristic for it.
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

/// What a user's own code sees in a response, beside what is shipped: a new kind of heuristic is learned from and queried from
/// its first attempt on.
///
/// ```
/// use fetchwise_detect::{ResponseExtractor, Verdict};
/// use fetchwise_types::heuristic::Heuristic;
/// use fetchwise_types::response::{Page, header};
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
    /// Adds to `out` what is true of `page`.
    fn extract(&self, page: &Page<'_>, verdict: &Verdict, out: &mut Vec<Heuristic>);
}
