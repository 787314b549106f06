//! The detector and its verdicts. A body is borrowed in a synchronous call, and copied in an
//! asynchronous one, because JavaScript could write to it meanwhile.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use fetchwise::detect::{Detector as Reader, DetectorOptions as Options, Scratch, Verdict as Read};
use fetchwise::fetch_result::FetchResult as CoreFetchResult;
use fetchwise::response::{Header, Page};
use napi::Env;
use napi::bindgen_prelude::{AsyncTask, Object};
use napi_derive::napi;
use serde_json::{Value, json};

use crate::convert;
use crate::convert::Body;
use crate::errors::{Code, Failure};
use crate::fetch_result::FetchResult;
use crate::thread_pool::{Work, promise};
use fetchwise_bindings_core::outcome::{error_for, name};
use fetchwise_present::{CueJson, MatchJson};

type Result<T> = std::result::Result<T, napi::Error<Code>>;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Options of a detector.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct DetectorOptions {
    /// A TOML file of custom rules, besides the shipped ones.
    pub rules: Option<String>,
    /// The maximum number of bytes of a body that are read; defaults to 1 MiB.
    pub max_bytes: Option<f64>,
    /// The confidence that evidence of a block needs, from 0 to 1; defaults to 0.5.
    pub block_threshold: Option<f64>,
    /// Whether to count visible text to its end.
    pub count_all: Option<bool>,
}

/// What else is known about a response.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct PageOptions<'a> {
    /// The requested URL.
    pub url: Option<String>,
    /// The URL after redirects: a pause or block counts at its host.
    pub final_url: Option<String>,
    /// The HTTP status; defaults to 200.
    pub status: Option<f64>,
    /// The response's headers.
    #[napi(ts_type = "HeadersLike")]
    pub headers: Option<Object<'a>>,
}

/// What is known about a page, converted from JavaScript.
struct PageInfo {
    url: Option<String>,
    final_url: Option<String>,
    status: u16,
    headers: Vec<Header>,
}

impl PageInfo {
    fn take(env: &Env, given: Option<PageOptions<'_>>) -> std::result::Result<Self, Failure> {
        let given = given.unwrap_or_default();
        Ok(Self {
            status: given.status.map_or(Ok(200), convert::status)?,
            headers: convert::headers(env, given.headers.as_ref())?,
            url: given.url,
            final_url: given.final_url,
        })
    }

    fn page<'a>(&'a self, body: &'a [u8]) -> Page<'a> {
        let (url, final_url) = (self.url.as_deref(), self.final_url.as_deref());
        Page { url, final_url, status: self.status, headers: &self.headers, body }
    }

    fn verdict(self, read: Read) -> Verdict {
        let urls = self.final_url.map(|last| (self.url.unwrap_or_default(), last));
        Verdict { read, status: self.status, headers: self.headers, urls }
    }

    fn read(self, reader: &Reader, body: &[u8]) -> Verdict {
        let read = SCRATCH.with_borrow_mut(|scratch| reader.inspect(&self.page(body), scratch));
        self.verdict(read)
    }
}

/// Distinguishes content from a block or captcha, a client-rendered shell, an empty page, and a
/// waiting room.
///
/// No page makes it throw.
#[napi]
pub struct Detector {
    reader: Arc<Reader>,
    rules: Option<String>,
}

#[napi]
impl Detector {
    /// Loads the shipped rules, and those of a custom file. Throws `ERR_FETCHWISE_CONFIG`, which
    /// names the line and field of an error in the file.
    #[napi(catch_unwind, constructor)]
    pub fn new(options: Option<DetectorOptions>) -> Result<Self> {
        let given = options.unwrap_or_default();
        let reader = match &given.rules {
            Some(path) => Reader::from_file(Path::new(path)).map_err(Failure::config)?,
            None => Reader::new(),
        };
        let mut options = Options::default();
        if let Some(bytes) = given.max_bytes {
            options = options
                .with_max_bytes(convert::count("maxBytes", bytes, u64::from(u32::MAX))? as usize);
        }
        if let Some(threshold) = convert::share("blockThreshold", given.block_threshold)? {
            options = options.with_block_threshold(threshold as f32);
        }
        if given.count_all == Some(true) {
            options = options.counting_all();
        }
        Ok(Self { reader: Arc::new(reader.with_options(options)), rules: given.rules })
    }

    /// Classifies one response: its decoded body (bytes are not copied), and whatever else is known
    /// about it. The time is linear in the bytes read.
    #[napi(catch_unwind)]
    pub fn classify(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<Verdict> {
        Ok(PageInfo::take(env, page)?.read(&self.reader, convert::bytes(&body)))
    }

    /// Classifies on another thread, for large pages, without blocking the event loop. Copies the
    /// body first.
    #[napi(catch_unwind, ts_return_type = "Promise<Verdict>")]
    pub fn classify_async(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<AsyncTask<Work<Verdict, Verdict>>> {
        let (known, reader, body) =
            (PageInfo::take(env, page)?, Arc::clone(&self.reader), convert::bytes(&body).to_vec());
        Ok(promise(move || Ok(known.read(&reader, &body)), |verdict| verdict))
    }

    /// Judges a whole response and returns the fetch result, with everything that an attempt
    /// records of it. `Visit.report` accepts it.
    #[napi(catch_unwind)]
    pub fn judge(
        &self,
        env: &Env,
        status: f64,
        #[napi(ts_arg_type = "HeadersLike | undefined | null")] headers: Option<Object<'_>>,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<FetchResult> {
        let known = PageInfo::take(
            env,
            Some(PageOptions { status: Some(status), headers, ..page.unwrap_or_default() }),
        )?;
        Ok(FetchResult { kept: self.reader.judge_page(&known.page(convert::bytes(&body))) })
    }

    /// Classifies like `classify`, and returns everything that matched.
    #[napi(catch_unwind, ts_return_type = "DetectionExplanation")]
    pub fn explain(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<Value> {
        let known = PageInfo::take(env, page)?;
        let explained = SCRATCH.with_borrow_mut(|scratch| {
            self.reader.explain(&known.page(convert::bytes(&body)), scratch)
        });
        let matches: Vec<MatchJson> = explained.matches.iter().map(MatchJson::from).collect();
        let cues = explained.cues.as_ref().map(|sum| {
            let cues: Vec<CueJson> = sum.cues.iter().map(CueJson::from).collect();
            json!({"sum": sum.sum, "threshold": sum.threshold, "cues": cues})
        });
        let verdict = known.verdict(explained.verdict);
        Ok(json!({"verdict": verdict.to_json(), "matches": matches, "cues": cues}))
    }

    /// Reloads the rules, from the file of the constructor or another one. When it throws, the old
    /// rules stay in force.
    #[napi(catch_unwind)]
    pub fn reload(&self, rules: Option<String>) -> Result<()> {
        match rules.as_ref().or(self.rules.as_ref()) {
            Some(path) => Ok(self.reader.reload_file(Path::new(path)).map_err(Failure::config)?),
            None => Err(Failure::misuse(
                "this detector has only the shipped rules: name a file with reload(path)",
            )
            .into()),
        }
    }

    /// The number of rules.
    #[napi(catch_unwind, getter)]
    pub fn rule_count(&self) -> u32 {
        self.reader.rule_count() as u32
    }
}

/// The classification of a response; `reason` explains it in one sentence.
#[napi]
pub struct Verdict {
    read: Read,
    status: u16,
    headers: Vec<Header>,
    /// The requested URL, and the one after redirects.
    urls: Option<(String, String)>,
}

impl Verdict {
    fn page(&self) -> Page<'_> {
        Page { status: self.status, headers: &self.headers, ..Page::default() }
    }

    /// Returns everything that an attempt records of the response.
    pub fn answer(&self) -> CoreFetchResult {
        let (url, final_url) =
            self.urls.as_ref().map(|(url, last)| (url.as_str(), last.as_str())).unzip();
        self.read.fetch_result(&Page { url, final_url, ..self.page() })
    }
}

#[napi]
impl Verdict {
    /// Whether there is enough to read, and no block or waiting room. Ignores the status: see
    /// `outcome`.
    #[napi(catch_unwind, getter)]
    pub fn is_content(&self) -> bool {
        self.read.is_content()
    }

    /// Whether the response is a challenge or a refusal.
    #[napi(catch_unwind, getter)]
    pub fn is_blocked(&self) -> bool {
        self.read.is_blocked
    }

    /// `blocked_captcha` or `blocked_403` for a block, else null.
    #[napi(catch_unwind, getter)]
    pub fn block_type(&self) -> Option<&'static str> {
        self.read.block_type.map(|kind| kind.name())
    }

    /// Whether the response is a waiting room.
    #[napi(catch_unwind, getter)]
    pub fn is_queued(&self) -> bool {
        self.read.is_queued
    }

    /// Whether the network of the crawler refuses, not the site: a provider, a filter, a captive
    /// portal.
    #[napi(catch_unwind, getter)]
    pub fn is_network_block(&self) -> bool {
        self.read.network_block
    }

    /// Whether the response is HTML with almost nothing to read.
    #[napi(catch_unwind, getter)]
    pub fn is_empty(&self) -> bool {
        self.read.is_empty
    }

    /// Whether the response is the shell of an application, whose content comes by script.
    #[napi(catch_unwind, getter)]
    pub fn is_shell(&self) -> bool {
        self.read.has_spa
    }

    /// The vendor of the block or waiting room, when known.
    #[napi(catch_unwind, getter)]
    pub fn vendor(&self) -> Option<&str> {
        self.read.vendor.as_deref()
    }

    /// The id of the deciding rule, if there is one.
    #[napi(catch_unwind, getter)]
    pub fn rule(&self) -> Option<&str> {
        self.read.rule.as_deref()
    }

    /// The framework of the page, when it is known.
    #[napi(catch_unwind, getter)]
    pub fn framework(&self) -> Option<&str> {
        self.read.framework.as_deref()
    }

    /// The confidence, from 0 to 1; 0 when nothing was found.
    #[napi(catch_unwind, getter)]
    pub fn confidence(&self) -> f64 {
        f64::from(self.read.confidence)
    }

    /// The number of visible characters; a lower bound unless `textComplete`.
    #[napi(catch_unwind, getter)]
    pub fn text_chars(&self) -> u32 {
        self.read.text_chars
    }

    /// Whether `textChars` counts all of the text.
    #[napi(catch_unwind, getter)]
    pub fn text_complete(&self) -> bool {
        self.read.text_complete
    }

    /// Whether the body is HTML.
    #[napi(catch_unwind, getter)]
    pub fn is_html(&self) -> bool {
        self.read.is_html
    }

    /// Whether the text continues for subscribers only.
    #[napi(catch_unwind, getter)]
    pub fn has_paywall(&self) -> bool {
        self.read.has_paywall
    }

    /// Whether the response is a password form although something else was requested.
    #[napi(catch_unwind, getter)]
    pub fn has_login_wall(&self) -> bool {
        self.read.has_login_wall
    }

    /// Whether the page has a success status but says that the content does not exist.
    #[napi(catch_unwind, getter, js_name = "isSoft404")]
    pub fn is_soft_404(&self) -> bool {
        self.read.soft_404
    }

    /// Vendors that are present, which is not evidence of a block.
    #[napi(catch_unwind, getter)]
    pub fn vendors_present(&self) -> Vec<String> {
        self.read.waf.iter().map(|vendor| vendor.to_string()).collect()
    }

    /// The target of a page that only redirects its reader, as it is written there.
    #[napi(catch_unwind, getter)]
    pub fn redirect(&self) -> Option<&str> {
        self.read.redirect.as_deref()
    }

    /// The status that was passed to the detector.
    #[napi(catch_unwind, getter)]
    pub fn status(&self) -> u32 {
        u32::from(self.status)
    }

    /// The outcome of the request, which takes the status into account: `content`, `blocked`,
    /// `shell`, `empty`, `redirect`, `queued`, `server_error`, `login_wall`, `undecoded`,
    /// `network_block` or `http`.
    #[napi(catch_unwind, getter)]
    pub fn outcome(&self) -> String {
        name(&self.read.outcome(&self.page())).to_owned()
    }

    /// The reason, in one sentence for people.
    #[napi(catch_unwind, getter)]
    pub fn reason(&self) -> String {
        self.read.reason()
    }

    /// Returns the failure that this counts as when `fetcher` made the request: an `ErrorKind`, or
    /// null for content. `renders` says whether the fetcher runs scripts if its name does not imply
    /// it.
    #[napi(catch_unwind, ts_return_type = "ErrorKind | null")]
    pub fn error_for(&self, fetcher: String, renders: Option<bool>) -> Option<String> {
        error_for(&self.read.outcome(&self.page()), &fetcher, renders)
    }

    /// Returns the same as a plain object.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, unknown>")]
    pub fn to_json(&self) -> Value {
        json!({
            "outcome": self.outcome(), "reason": self.reason(), "status": self.status, "isContent": self.is_content(),
            "isBlocked": self.is_blocked(), "blockType": self.block_type(), "isQueued": self.is_queued(),
            "isNetworkBlock": self.is_network_block(),
            "isEmpty": self.is_empty(), "isShell": self.is_shell(), "vendor": self.vendor(), "rule": self.rule(),
            "framework": self.framework(), "confidence": self.confidence(), "textChars": self.text_chars(),
            "textComplete": self.text_complete(), "isHtml": self.is_html(), "hasPaywall": self.has_paywall(),
            "hasLoginWall": self.has_login_wall(), "isSoft404": self.is_soft_404(),
            "vendorsPresent": self.vendors_present(), "redirect": self.redirect(),
        })
    }
}
