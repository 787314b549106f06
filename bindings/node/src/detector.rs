//! The detector, and what it finds. A body is borrowed for a call that waits, and copied for one that does not: JavaScript could write to
//! it meanwhile.

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

type Result<T> = std::result::Result<T, napi::Error<Code>>;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// How a detector reads.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct DetectorOptions {
    /// A TOML file of one's own rules, beside the shipped ones.
    pub rules: Option<String>,
    /// So many bytes of a body are looked at; 1 MiB unless set.
    pub max_bytes: Option<f64>,
    /// How sure evidence of a wall has to be, from 0 to 1; 0.5 unless set.
    pub block_threshold: Option<f64>,
    /// Whether visible text is counted to its end.
    pub count_all: Option<bool>,
}

/// What else is known of a response.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct PageOptions<'a> {
    /// What was asked for.
    pub url: Option<String>,
    /// Where redirects led.
    pub final_url: Option<String>,
    /// The HTTP status; 200 unless said.
    pub status: Option<f64>,
    /// The response's headers.
    #[napi(ts_type = "HeadersLike")]
    pub headers: Option<Object<'a>>,
}

/// What is known of a page, taken out of JavaScript.
struct Known {
    url: Option<String>,
    final_url: Option<String>,
    status: u16,
    headers: Vec<Header>,
}

impl Known {
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

    fn read(self, reader: &Reader, body: &[u8]) -> Verdict {
        let read = SCRATCH.with_borrow_mut(|scratch| reader.inspect(&self.page(body), scratch));
        Verdict { read, status: self.status, headers: self.headers }
    }
}

/// Tells content from a block or captcha, a client-rendered shell, an empty page, a waiting room.
///
/// It never throws because of what a page says.
#[napi]
pub struct Detector {
    reader: Arc<Reader>,
    rules: Option<String>,
}

#[napi]
impl Detector {
    /// The shipped rules, and those of a file of one's own. `ERR_FETCHWISE_CONFIG` names line and field of what is wrong in it.
    #[napi(catch_unwind, constructor)]
    pub fn new(options: Option<DetectorOptions>) -> Result<Self> {
        let given = options.unwrap_or_default();
        let reader = match &given.rules {
            Some(path) => Reader::from_file(Path::new(path)).map_err(Failure::config)?,
            None => Reader::new(),
        };
        let mut options = Options::default();
        if let Some(bytes) = given.max_bytes {
            options = options.with_max_bytes(convert::count("maxBytes", bytes, u64::from(u32::MAX))? as usize);
        }
        if let Some(threshold) = convert::share("blockThreshold", given.block_threshold)? {
            options = options.with_block_threshold(threshold as f32);
        }
        if given.count_all == Some(true) {
            options = options.counting_all();
        }
        Ok(Self { reader: Arc::new(reader.with_options(options)), rules: given.rules })
    }

    /// Reads one response: its decoded body (bytes are not copied), and what else is known of it. Takes a time that is linear in the
    /// bytes looked at.
    #[napi(catch_unwind)]
    pub fn classify(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<Verdict> {
        Ok(Known::take(env, page)?.read(&self.reader, convert::bytes(&body)))
    }

    /// The same on another thread, for pages that are large: the event loop goes on. The body is copied first.
    #[napi(catch_unwind, ts_return_type = "Promise<Verdict>")]
    pub fn classify_async(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<AsyncTask<Work<Verdict, Verdict>>> {
        let (known, reader, body) = (Known::take(env, page)?, Arc::clone(&self.reader), convert::bytes(&body).to_vec());
        Ok(promise(move || Ok(known.read(&reader, &body)), |verdict| verdict))
    }

    /// Judges a whole response: what it came to, with all that an attempt records of it. `Visit.report` takes it.
    #[napi(catch_unwind)]
    pub fn judge(
        &self,
        env: &Env,
        status: f64,
        #[napi(ts_arg_type = "HeadersLike | undefined | null")] headers: Option<Object<'_>>,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<FetchResult> {
        let known = Known::take(env, Some(PageOptions { status: Some(status), headers, ..page.unwrap_or_default() }))?;
        Ok(FetchResult { kept: self.reader.judge_page(&known.page(convert::bytes(&body))) })
    }

    /// As `classify`, with all that matched.
    #[napi(catch_unwind, ts_return_type = "DetectionExplanation")]
    pub fn explain(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Uint8Array | string")] body: Body<'_>,
        page: Option<PageOptions<'_>>,
    ) -> Result<Value> {
        let known = Known::take(env, page)?;
        let explained =
            SCRATCH.with_borrow_mut(|scratch| self.reader.explain(&known.page(convert::bytes(&body)), scratch));
        let matches = explained.matches.iter().map(|found| {
            json!({
                "rule": &*found.rule, "vendor": found.vendor.as_deref(), "grade": found.grade.name(),
                "place": found.place.name(), "offset": found.offset, "text": &*found.text, "counted": found.counted,
                "note": &*found.note,
            })
        });
        let matches: Vec<Value> = matches.collect();
        let cues = explained.cues.as_ref().map(|sum| {
            let cues =
                sum.cues.iter().map(|cue| json!({"id": cue.id.to_string(), "weight": cue.weight, "text": cue.text}));
            json!({"sum": sum.sum, "threshold": sum.threshold, "cues": cues.collect::<Vec<_>>()})
        });
        let verdict = Verdict { read: explained.verdict, status: known.status, headers: known.headers };
        Ok(json!({"verdict": verdict.to_json(), "matches": matches, "cues": cues}))
    }

    /// Reads the rules again, from the file that it was made with or another one. The old ones stay in force when it throws.
    #[napi(catch_unwind)]
    pub fn reload(&self, rules: Option<String>) -> Result<()> {
        match rules.as_ref().or(self.rules.as_ref()) {
            Some(path) => Ok(self.reader.reload_file(Path::new(path)).map_err(Failure::config)?),
            None => Err(Failure::misuse("this detector has the shipped rules only; name a file: reload(path)").into()),
        }
    }

    /// The number of rules.
    #[napi(catch_unwind, getter)]
    pub fn rule_count(&self) -> u32 {
        self.reader.rule_count() as u32
    }
}

/// What a response turned out to be; `reason` says why in one sentence.
#[napi]
pub struct Verdict {
    read: Read,
    status: u16,
    headers: Vec<Header>,
}

impl Verdict {
    fn page(&self) -> Page<'_> {
        Page { status: self.status, headers: &self.headers, ..Page::default() }
    }

    /// All that an attempt records of it.
    pub fn answer(&self) -> CoreFetchResult {
        self.read.answer(&self.page())
    }
}

#[napi]
impl Verdict {
    /// Whether there is enough to read, and no block or waiting room. The status is not looked at: see `outcome`.
    #[napi(catch_unwind, getter)]
    pub fn is_content(&self) -> bool {
        self.read.is_content()
    }

    /// Whether a challenge or a refusal came.
    #[napi(catch_unwind, getter)]
    pub fn is_blocked(&self) -> bool {
        self.read.is_blocked
    }

    /// `blocked_captcha` or `blocked_403` when it is a block.
    #[napi(catch_unwind, getter)]
    pub fn block_type(&self) -> Option<&'static str> {
        self.read.block_type.map(|kind| kind.name())
    }

    /// Whether it is a waiting room.
    #[napi(catch_unwind, getter)]
    pub fn is_queued(&self) -> bool {
        self.read.is_queued
    }

    /// Whether it is HTML with next to nothing to read.
    #[napi(catch_unwind, getter)]
    pub fn is_empty(&self) -> bool {
        self.read.is_empty
    }

    /// Whether it is an application's shell, whose content comes by script.
    #[napi(catch_unwind, getter)]
    pub fn is_shell(&self) -> bool {
        self.read.has_spa
    }

    /// Whose block or waiting room it is, when known.
    #[napi(catch_unwind, getter)]
    pub fn vendor(&self) -> Option<&str> {
        self.read.vendor.as_deref()
    }

    /// The id of the rule that decided, if one did.
    #[napi(catch_unwind, getter)]
    pub fn rule(&self) -> Option<&str> {
        self.read.rule.as_deref()
    }

    /// The framework that the page is made with, when it has a name.
    #[napi(catch_unwind, getter)]
    pub fn framework(&self) -> Option<&str> {
        self.read.framework.as_deref()
    }

    /// How sure it is, from 0 to 1; 0 when nothing was found.
    #[napi(catch_unwind, getter)]
    pub fn confidence(&self) -> f64 {
        f64::from(self.read.confidence)
    }

    /// Visible characters; at least so many unless `textComplete`.
    #[napi(catch_unwind, getter)]
    pub fn text_chars(&self) -> u32 {
        self.read.text_chars
    }

    /// Whether `textChars` is all.
    #[napi(catch_unwind, getter)]
    pub fn text_complete(&self) -> bool {
        self.read.text_complete
    }

    /// Whether the body is HTML.
    #[napi(catch_unwind, getter)]
    pub fn is_html(&self) -> bool {
        self.read.is_html
    }

    /// Whether the text goes on for subscribers.
    #[napi(catch_unwind, getter)]
    pub fn has_paywall(&self) -> bool {
        self.read.has_paywall
    }

    /// Whether a form for a password came where something else was asked for.
    #[napi(catch_unwind, getter)]
    pub fn has_login_wall(&self) -> bool {
        self.read.has_login_wall
    }

    /// Whether it is a page of success that says that there is nothing.
    #[napi(catch_unwind, getter, js_name = "isSoft404")]
    pub fn is_soft_404(&self) -> bool {
        self.read.soft_404
    }

    /// Vendors that are there, which is evidence of nothing.
    #[napi(catch_unwind, getter)]
    pub fn vendors_present(&self) -> Vec<String> {
        self.read.waf.iter().map(|vendor| vendor.to_string()).collect()
    }

    /// Where a page that does nothing else sends its reader, as it is written there.
    #[napi(catch_unwind, getter)]
    pub fn redirect(&self) -> Option<&str> {
        self.read.redirect.as_deref()
    }

    /// The status that it was read with.
    #[napi(catch_unwind, getter)]
    pub fn status(&self) -> u32 {
        u32::from(self.status)
    }

    /// What the request came to, for which the status counts, too: `content`, `blocked`, `shell`, `empty`, `redirect`, `queued` or
    /// `http`.
    #[napi(catch_unwind, getter)]
    pub fn outcome(&self) -> String {
        name(&self.read.outcome(&self.page())).to_owned()
    }

    /// Why, in one sentence for a person.
    #[napi(catch_unwind, getter)]
    pub fn reason(&self) -> String {
        self.read.reason()
    }

    /// What it counts as when this fetcher made the request: an `ErrorKind`, or null for content. `renders` says whether the fetcher
    /// runs scripts where its name does not.
    #[napi(catch_unwind, ts_return_type = "ErrorKind | null")]
    pub fn error_for(&self, fetcher: String, renders: Option<bool>) -> Option<String> {
        error_for(&self.read.outcome(&self.page()), &fetcher, renders)
    }

    /// The same as a plain object.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, unknown>")]
    pub fn to_json(&self) -> Value {
        json!({
            "outcome": self.outcome(), "reason": self.reason(), "status": self.status, "isContent": self.is_content(),
            "isBlocked": self.is_blocked(), "blockType": self.block_type(), "isQueued": self.is_queued(),
            "isEmpty": self.is_empty(), "isShell": self.is_shell(), "vendor": self.vendor(), "rule": self.rule(),
            "framework": self.framework(), "confidence": self.confidence(), "textChars": self.text_chars(),
            "textComplete": self.text_complete(), "isHtml": self.is_html(), "hasPaywall": self.has_paywall(),
            "hasLoginWall": self.has_login_wall(), "isSoft404": self.is_soft_404(),
            "vendorsPresent": self.vendors_present(), "redirect": self.redirect(),
        })
    }
}
