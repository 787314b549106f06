//! The JSON of a verdict: blocked, application shell, empty, or content.
#![allow(
    missing_docs,
    reason = "the fields are those that docs/reference/command-line.md describes"
)]

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use super::HeuristicJson;
use fetchwise::detect;
use fetchwise::detect::{Cue, CueSum, Detector, RuleMatch, Scratch, Verdict};
use fetchwise::fetch_result::BlockKind;
use fetchwise::heuristic::url::without_user;
use fetchwise::registry::{FetcherSpec, PROBE_FETCHER};
use fetchwise::response::{Header, Page};

/// The verdict on a response.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Verdict"))]
pub struct VerdictJson {
    pub url: Option<String>,
    /// The file of the body, in the output of the command; null for a body that is not from a
    /// batch.
    pub body_path: Option<PathBuf>,
    pub status: u16,
    pub is_blocked: bool,
    pub block_type: Option<&'static str>,
    pub vendor: Option<String>,
    pub rule: Option<String>,
    pub has_spa: bool,
    pub framework: Option<String>,
    pub is_empty: bool,
    pub has_paywall: bool,
    pub high_script_ratio: bool,
    pub text_chars: u32,
    pub is_queued: bool,
    pub network_block: bool,
    pub has_login_wall: bool,
    pub soft_404: bool,
    pub is_html: bool,
    pub bytes: u32,
    pub confidence: f32,
    /// The error type of an attempt by a plain request; none for content.
    pub error_type: Option<String>,
    pub reason: String,
    /// The target of a page that only redirects.
    pub redirect: Option<String>,
    pub block_cues: bool,
    pub waf: Vec<String>,
    pub heuristics: Vec<HeuristicJson<'static>>,
    /// All rules that matched; null unless they were asked for (`explain`).
    pub matches: Option<Vec<MatchJson>>,
    /// Null unless it was asked for (`explain`), and for a page without wording of block pages.
    pub cues: Option<CuesJson>,
}

/// The wording of a block page, and the sum of its weights.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Cues"))]
pub struct CuesJson {
    pub sum: i32,
    pub threshold: i32,
    /// Whether it contains a cue that every block page needs.
    pub core: bool,
    pub own_chars: u32,
    pub cues: Vec<CueJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Cue"))]
pub struct CueJson {
    pub id: String,
    pub weight: i32,
    pub text: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RuleMatch"))]
pub struct MatchJson {
    pub rule: String,
    pub vendor: Option<String>,
    pub grade: &'static str,
    pub place: &'static str,
    pub offset: Option<u32>,
    pub text: String,
    pub counted: bool,
    pub note: String,
}

/// Parses headers from an object (a value may be a list) or a list of pairs.
pub fn headers(value: Value) -> Option<Vec<Header>> {
    let mut out = Vec::new();
    let mut add = |name: String, value: Value| {
        let values = if let Value::Array(values) = value { values } else { vec![value] };
        for value in values {
            match value {
                Value::String(text) => out.push(Header::new(name.clone(), text)),
                Value::Number(number) => out.push(Header::new(name.clone(), number.to_string())),
                _ => return None,
            }
        }
        Some(())
    };
    match value {
        Value::Null => {}
        Value::Object(map) => Map::into_iter(map).try_for_each(|(name, value)| add(name, value))?,
        Value::Array(pairs) => {
            for pair in pairs {
                let Value::Array(pair) = pair else { return None };
                let [Value::String(name), value] = <[Value; 2]>::try_from(pair).ok()? else {
                    return None;
                };
                add(name, value)?;
            }
        }
        _ => return None,
    }
    Some(out)
}

impl VerdictJson {
    /// Creates the verdict of `detector` on `page`.
    pub fn read(
        detector: &Detector,
        page: &Page<'_>,
        explain: bool,
        scratch: &mut Scratch,
    ) -> Self {
        let (verdict, matches, cues) = match explain {
            true => {
                let explained = detector.explain(page, scratch);
                (
                    explained.verdict,
                    Some(explained.matches.iter().map(MatchJson::from).collect()),
                    explained.cues.as_ref().map(CuesJson::from),
                )
            }
            false => (detector.inspect(page, scratch), None, None),
        };
        let mut heuristics = Vec::new();
        detect::heuristics(page, &verdict, &mut heuristics);
        let counts = verdict.outcome(page).counts_as(&FetcherSpec::by_name(PROBE_FETCHER));
        let owned = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        let Verdict {
            is_blocked,
            block_type,
            has_spa,
            is_empty,
            has_paywall,
            high_script_ratio,
            text_chars,
            ..
        } = verdict;
        Self {
            url: page.url.map(|url| without_user(url).into_owned()),
            body_path: None,
            status: page.status,
            is_blocked,
            block_type: block_type.map(BlockKind::name),
            vendor: owned(&verdict.vendor),
            rule: owned(&verdict.rule),
            has_spa,
            framework: owned(&verdict.framework),
            is_empty,
            has_paywall,
            high_script_ratio,
            text_chars,
            is_queued: verdict.is_queued,
            network_block: verdict.network_block,
            has_login_wall: verdict.has_login_wall,
            soft_404: verdict.soft_404,
            is_html: verdict.is_html,
            bytes: verdict.bytes,
            confidence: verdict.confidence,
            error_type: counts.err().map(|error| error.name().to_owned()),
            reason: verdict.reason(),
            redirect: verdict.redirect.as_deref().map(str::to_owned),
            block_cues: verdict.block_cues,
            waf: verdict.waf.iter().map(str::to_owned).collect(),
            heuristics: heuristics.into_iter().map(HeuristicJson::from).collect(),
            matches,
            cues,
        }
    }
}

impl From<&CueSum> for CuesJson {
    fn from(sum: &CueSum) -> Self {
        Self {
            sum: sum.sum,
            threshold: sum.threshold,
            core: sum.core,
            own_chars: sum.own_chars,
            cues: sum.cues.iter().map(CueJson::from).collect(),
        }
    }
}

impl From<&Cue> for CueJson {
    fn from(cue: &Cue) -> Self {
        Self { id: cue.id.to_string(), weight: cue.weight, text: cue.text.clone() }
    }
}

impl From<&RuleMatch> for MatchJson {
    fn from(m: &RuleMatch) -> Self {
        Self {
            rule: m.rule.to_string(),
            vendor: m.vendor.as_deref().map(str::to_owned),
            grade: m.grade.name(),
            place: m.place.name(),
            offset: m.offset,
            text: m.text.clone(),
            counted: m.counted,
            note: m.note.to_string(),
        }
    }
}
