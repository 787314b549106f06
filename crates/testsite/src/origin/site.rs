//! The kinds of sites: what a host does, as data. How each is answered is in `answer`.

use std::path::PathBuf;
use std::time::Duration;

use crate::pages::charset::Charset;
use crate::pages::html::Wall;

/// What a host does with a request.
///
/// Sites that behave differently over time count *page requests*: all requests to the host but those for `/assets/...`,
/// `/api/...`, `/cdn-cgi/...`, `/favicon.ico` and `/robots.txt`, which a browser makes on the side.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Site {
    /// Server-rendered articles, a different one at every path. Paths that end in `.pdf`, `.json` or `.txt` have that type.
    Static,
    /// A React app: every path answers with the same shell, and the articles come as JSON once scripts run.
    ReactShell,
    /// A challenge page, except for clients whose `User-Agent` contains `admits`: they get `behind`.
    Captcha {
        /// Whose challenge it is.
        wall: Wall,
        /// Its status: 403, 503, or 200 for the sly kind.
        status: u16,
        /// The marker that opens it; none opens it to nobody.
        admits: Option<String>,
        /// What is behind it.
        behind: Box<Site>,
    },
    /// 429 with `Retry-After` from page request number `free` + 1 on; articles before.
    RateLimited {
        /// The value of `Retry-After`: seconds or an HTTP date.
        retry_after: String,
        /// Page requests that are answered before.
        free: u64,
    },
    /// So many pages in each window of time, the first of which begins with the first page request; 429 for who asks for more, with
    /// the seconds until the next window as `Retry-After`.
    Quota {
        /// Page requests that are answered in a window, refused ones counted too.
        pages: u64,
        /// How long a window is.
        window: Duration,
        /// What answers them.
        behind: Box<Site>,
    },
    /// This HTML at every path, with status 200.
    Html(String),
    /// A PDF at every path.
    Pdf,
    /// Waits before the first byte of the answer.
    Slow {
        /// How long.
        wait: Duration,
        /// What then answers.
        behind: Box<Site>,
    },
    /// An article that trickles: headers at once, then `bytes` bytes every `every`.
    Drip {
        /// The pause before each piece.
        every: Duration,
        /// The size of a piece.
        bytes: usize,
    },
    /// A gzip body of about 1 MiB that expands to more than 1 GiB of HTML.
    GzipBomb,
    /// An article sent in a content coding, whatever the client accepts.
    Compressed(Coding),
    /// Redirects out of the loopback network: `/metadata` to 169.254.169.254, `/mapped` to the same address as IPv4-mapped
    /// IPv6, every other path to 10.255.255.1.
    RedirectOut,
    /// Redirects every path to one URL.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The value of `Location`, as it is sent.
        to: String,
    },
    /// Redirects for ever, to another path each time.
    RedirectLoop,
    /// Articles in another language and encoding.
    NonUtf8(Charset),
    /// 200 with an HTML type and no byte of body.
    Empty,
    /// `failing` for each page request whose number is a multiple of `every`, `otherwise` for the rest.
    Flaky {
        /// The period; 0 never fails.
        every: u64,
        /// What answers the failing ones, e.g. [`Site::SERVER_ERROR`] or [`Site::Reset`].
        failing: Box<Site>,
        /// What answers the others.
        otherwise: Box<Site>,
    },
    /// One site for the first page requests, another one from then on. For a change on command, see
    /// [`Origin::set_site`](super::Origin::set_site).
    Drifting {
        /// Page requests that `first` answers.
        after: u64,
        /// What the site is like at first.
        first: Box<Site>,
        /// What it turns into.
        then: Box<Site>,
    },
    /// A short error page with this status; 401 asks for credentials.
    Status(u16),
    /// Announces a longer body than it sends, then closes the connection.
    Truncated,
    /// Takes the request and resets the connection.
    Reset,
    /// Takes the request and answers nothing, while the connection stays open.
    Silent,
    /// HTML without an end.
    EndlessBody,
    /// An article under a response header of this many bytes.
    HugeHeader {
        /// Length of the header's value.
        bytes: usize,
    },
    /// A waiting room.
    QueueRoom,
    /// Redirects every path to `/login?next=...`, which asks for a password.
    LoginWall,
    /// The files below a directory, `index.html` for directories.
    Files(PathBuf),
    /// A page of a heading and one sentence at every path: little, and all there is.
    Short,
    /// A stub at every path that leads on in HTML, to the same path below `/now`; articles there.
    HtmlRedirect,
    /// Articles that lead ever deeper: every page links to pages below itself that nobody has seen. `/robots.txt` forbids what lies
    /// below `/deeper`.
    Trap,
    /// A site whose pages tell when a script of theirs runs: so that the ledger knows of renders. See
    /// [`Tally`](super::Tally).
    Watched(Box<Site>),
    /// Several sites on one host: the longest prefix of the path decides, and what matches none is not found.
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

    /// A challenge in Cloudflare's manner with `status`, in front of articles, open to user agents that contain `stealth`.
    pub fn captcha(status: u16) -> Self {
        Self::Captcha {
            wall: Wall::Cloudflare,
            status,
            admits: Some("stealth".to_owned()),
            behind: Box::new(Self::Static),
        }
    }

    /// 429 for every request, with `Retry-After` in seconds.
    pub fn rate_limited(retry_after_s: u32) -> Self {
        Self::RateLimited { retry_after: retry_after_s.to_string(), free: 0 }
    }

    /// Articles that come after `wait`.
    pub fn slow(wait: Duration) -> Self {
        Self::Slow { wait, behind: Box::new(Self::Static) }
    }

    /// Articles, and 503 for each page request whose number is a multiple of `every`.
    pub fn flaky(every: u64) -> Self {
        Self::Flaky { every, failing: Box::new(Self::SERVER_ERROR), otherwise: Box::new(Self::Static) }
    }

    /// Articles, `pages` of them in each `window`.
    pub fn quota(pages: u64, window: Duration) -> Self {
        Self::Quota { pages, window, behind: Box::new(Self::Static) }
    }

    /// Articles for `after` page requests, then `then`.
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
    /// `deflate`, as the standard has it: with zlib's frame.
    Deflate,
    /// `deflate`, as some servers send it: without any frame.
    RawDeflate,
}

impl Coding {
    /// Its name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Deflate | Self::RawDeflate => "deflate",
        }
    }
}
