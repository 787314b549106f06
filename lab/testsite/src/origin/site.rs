//! The kinds of sites: the behaviour of a host, as data.
//!
//! Must not know: how each kind responds, which is in `respond`.

use std::path::PathBuf;
use std::time::Duration;

use super::bots::VerifiedBots;
use crate::pages::charset::Charset;
use crate::pages::html::Challenge;

/// The behaviour of a host.
///
/// Sites that change over time count *page requests*: all requests to the host except those for
/// `/assets/...`, `/api/...`, `/cdn-cgi/...`, `/favicon.ico` and `/robots.txt`, which a browser
/// makes for a page.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Site {
    /// Server-rendered articles, a different one at every path. Paths that end in `.pdf`, `.json`
    /// or `.txt` have that type.
    Static,
    /// A React app: every path responds with the same shell, and the articles arrive as JSON once
    /// scripts run.
    ReactShell,
    /// A challenge page. Clients whose `User-Agent` contains `admits` get `behind` instead.
    Captcha {
        /// Vendor that the challenge imitates.
        challenge: Challenge,
        /// Status: 403, 503, or 200 for a disguised challenge.
        status: u16,
        /// Marker of the user agents that pass; `None` lets nobody pass.
        admits: Option<String>,
        /// Site behind the challenge.
        behind: Box<Site>,
    },
    /// One site for requests that a known bot has signed, another one for all others.
    Verified {
        /// The known bots.
        bots: VerifiedBots,
        /// Site for their requests.
        admitted: Box<Site>,
        /// Site for the others.
        others: Box<Site>,
    },
    /// Articles, then 429 with `Retry-After` from page request number `free` + 1 on.
    RateLimited {
        /// Value of `Retry-After`: seconds or an HTTP date.
        retry_after: String,
        /// Page requests that get an article before.
        free: u64,
    },
    /// A number of pages per window; the first window begins with the first page request. Further
    /// requests get 429, with the seconds until the next window as `Retry-After`.
    Quota {
        /// Page requests per window, including refused ones.
        pages: u64,
        /// Length of a window.
        window: Duration,
        /// Site that responds within the quota.
        behind: Box<Site>,
    },
    /// This HTML at every path, with status 200.
    Html(String),
    /// A PDF at every path.
    Pdf,
    /// A wait before the first byte of the response.
    Slow {
        /// Length of the wait.
        wait: Duration,
        /// Site that responds then.
        behind: Box<Site>,
    },
    /// An article that arrives slowly: headers at once, then `bytes` bytes per `every`.
    Drip {
        /// Pause before each piece.
        every: Duration,
        /// Size of a piece.
        bytes: usize,
    },
    /// A gzip body of about 1 MiB that expands to more than 1 GiB of HTML.
    GzipBomb,
    /// An article in a content coding, whatever the client accepts.
    Compressed(Coding),
    /// Redirects out of the loopback network: `/metadata` to 169.254.169.254, `/mapped` to the same
    /// address as IPv4-mapped IPv6, every other path to 10.255.255.1.
    RedirectOut,
    /// Redirects every path to one URL.
    Redirect {
        /// Status: 301, 302, 303, 307 or 308.
        status: u16,
        /// Value of `Location`, as it is sent.
        to: String,
    },
    /// Redirects without an end, to another path each time.
    RedirectLoop,
    /// Articles in another language and encoding.
    NonUtf8(Charset),
    /// 200 with an HTML type and an empty body.
    Empty,
    /// `failing` for each page request whose number is a multiple of `every`, `otherwise` for the
    /// rest.
    Flaky {
        /// Period; 0 never fails.
        every: u64,
        /// Site for the failing requests, e.g. [`Site::SERVER_ERROR`] or [`Site::Reset`].
        failing: Box<Site>,
        /// Site for the other requests.
        otherwise: Box<Site>,
    },
    /// One site for the first page requests, another one after them. For a change on command, see
    /// [`Origin::set_site`](super::Origin::set_site).
    Drifting {
        /// Page requests that `first` responds to.
        after: u64,
        /// Site at first.
        first: Box<Site>,
        /// Site afterwards.
        then: Box<Site>,
    },
    /// A short error page with this status; 401 carries a challenge for credentials.
    Status(u16),
    /// Announces a longer body than it sends, then closes the connection.
    Truncated,
    /// Reads the request and resets the connection.
    Reset,
    /// Reads the request and sends nothing, while the connection stays open.
    Silent,
    /// HTML without an end.
    EndlessBody,
    /// An article with a response header of this many bytes.
    HugeHeader {
        /// Length of the header's value.
        bytes: usize,
    },
    /// A waiting room.
    QueueRoom,
    /// Redirects every path to `/login?next=...`, which has a password form.
    LoginWall,
    /// The files below a directory, `index.html` for directories.
    Files(PathBuf),
    /// A page with a heading and one sentence at every path: short but complete.
    Short,
    /// A stub at every path that redirects in HTML to the same path below `/now`; articles there.
    HtmlRedirect,
    /// Articles that lead ever deeper: every page links to new pages below itself. `/robots.txt`
    /// forbids the paths below `/deeper`.
    Trap,
    /// 402 with `crawler-price` for every request.
    Toll {
        /// Value of `crawler-price`, such as `USD 0.01`.
        price: String,
    },
    /// 403 with `crawler-error: CrawlerForbidden` for every request: this crawler is declined by
    /// name.
    Declined,
    /// Articles with `ETag` and `Last-Modified`, and 304 for a request whose `If-None-Match` or
    /// `If-Modified-Since` still matches.
    Validators {
        /// Seconds of `Cache-Control: max-age`, if it is sent.
        max_age: Option<u32>,
        /// Changes the pages and their validators.
        version: u32,
    },
    /// Another site's responses with these headers added. A content type replaces the site's.
    WithHeaders {
        /// Name and value.
        headers: Vec<(String, String)>,
        /// Site that responds.
        behind: Box<Site>,
    },
    /// A site whose pages load a script that reports that scripts run, so the ledger counts
    /// renders. See [`Tally`](super::Tally).
    CountRenders(Box<Site>),
    /// Several sites on one host: the longest matching prefix of the path selects the site; without
    /// a match, 404.
    Mixed(Vec<(String, Site)>),
}

impl Site {
    /// 403 with a page that names no protection.
    pub const FORBIDDEN: Self = Self::Status(403);
    /// 404.
    pub const NOT_FOUND: Self = Self::Status(404);
    /// 410.
    pub const GONE: Self = Self::Status(410);
    /// 503.
    pub const SERVER_ERROR: Self = Self::Status(503);

    /// Returns a Cloudflare-like challenge with `status` in front of articles; user agents that
    /// contain `stealth` pass.
    pub fn captcha(status: u16) -> Self {
        Self::Captcha {
            challenge: Challenge::Cloudflare,
            status,
            admits: Some("stealth".to_owned()),
            behind: Box::new(Self::Static),
        }
    }

    /// Returns articles for bots that sign and for user agents that contain `stealth`, and a
    /// Cloudflare-like challenge for everybody else.
    pub fn verified(bots: VerifiedBots) -> Self {
        Self::Verified {
            bots,
            admitted: Box::new(Self::Static),
            others: Box::new(Self::captcha(403)),
        }
    }

    /// Returns a site with 429 for every request, and `Retry-After` in seconds.
    pub fn rate_limited(retry_after_s: u32) -> Self {
        Self::RateLimited { retry_after: retry_after_s.to_string(), free: 0 }
    }

    /// Returns articles that arrive after `wait`.
    pub fn slow(wait: Duration) -> Self {
        Self::Slow { wait, behind: Box::new(Self::Static) }
    }

    /// Returns articles, and 503 for each page request whose number is a multiple of `every`.
    pub fn flaky(every: u64) -> Self {
        Self::Flaky {
            every,
            failing: Box::new(Self::SERVER_ERROR),
            otherwise: Box::new(Self::Static),
        }
    }

    /// Returns articles that nobody may use for `purpose` (a label of `Content-Usage`): robots.txt
    /// and each page say so.
    pub fn reserved(purpose: &str) -> Self {
        let terms = format!("{purpose}=n");
        let robots = format!("User-agent: *\nAllow: /\nContent-Usage: {terms}\n");
        let pages = Self::with_header("Content-Usage", &terms, Self::Static);
        Self::Mixed(vec![("/".to_owned(), pages), ("/robots.txt".to_owned(), Self::Html(robots))])
    }

    /// Returns another site whose responses have one more header.
    pub fn with_header(name: &str, value: &str, behind: Self) -> Self {
        Self::WithHeaders {
            headers: vec![(name.to_owned(), value.to_owned())],
            behind: Box::new(behind),
        }
    }

    /// Returns articles, `pages` of them per `window`.
    pub fn quota(pages: u64, window: Duration) -> Self {
        Self::Quota { pages, window, behind: Box::new(Self::Static) }
    }

    /// Returns articles for `after` page requests, then `then`.
    pub fn drifting(after: u64, then: Self) -> Self {
        Self::Drifting { after, first: Box::new(Self::Static), then: Box::new(then) }
    }
}

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coding {
    /// `gzip`
    Gzip,
    /// `br`
    Brotli,
    /// `zstd`
    Zstd,
    /// `deflate` as the standard defines it, with zlib's frame.
    Deflate,
    /// `deflate` as some servers send it, without a frame.
    RawDeflate,
}

impl Coding {
    /// Returns the name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Deflate | Self::RawDeflate => "deflate",
        }
    }
}
