//! The progress of the demo: pages, evidence, costs, and the costs of the other crawlers.
//!
//! Must not know: terminals and fetching. It is plain data that can be drawn at any moment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fetchwise::decision::Source;
use fetchwise::pace::PaceExplanation;
use fetchwise::pipeline::Report;
use fetchwise_testsite::demo_sites::DemoSite;

/// The number of news lines that are kept.
const NEWS: usize = 64;
/// The number of seconds of the mill that are kept.
const SECONDS: usize = 240;

/// The kinds of fetchers that the demo needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetcherKind {
    Direct,
    Browser,
    Stealth,
}

impl FetcherKind {
    pub(super) fn of(fetcher: &str) -> Option<Self> {
        match fetcher {
            "direct_access" => Some(Self::Direct),
            "playwright" => Some(Self::Browser),
            "playwright_stealth" => Some(Self::Stealth),
            _ => None,
        }
    }

    /// Returns the short name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Browser => "browser",
            Self::Stealth => "stealth",
        }
    }
}

/// The result of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageResult {
    /// The page arrived: by which fetcher, and how that was chosen.
    Page { way: Option<FetcherKind>, source: Option<Source>, requests: u32 },
    /// The page did not arrive.
    Failed { requests: u32 },
    /// Nothing was requested, because the host is paused.
    Paused,
}

impl PageResult {
    pub(super) fn of(report: &Report) -> Self {
        match report.error_type {
            Some(Report::PAUSED | Report::PACED) => Self::Paused,
            Some(_) => Self::Failed { requests: report.requests },
            None => Self::Page {
                way: report.fetcher.as_deref().and_then(FetcherKind::of),
                source: report.source,
                requests: report.requests,
            },
        }
    }

    /// Returns the number of requests.
    pub(super) const fn requests(self) -> u32 {
        match self {
            Self::Page { requests, .. } | Self::Failed { requests } => requests,
            Self::Paused => 0,
        }
    }

    fn is_learned(self) -> bool {
        matches!(self, Self::Page { source: Some(Source::Learned), .. })
    }
}

/// A site and what is known about it.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) name: &'static str,
    /// The address, which is its name on the dashboard.
    pub(super) host: &'static str,
    pub(super) about: &'static str,
    /// The result of each round, the oldest first.
    pub(super) results: Vec<PageResult>,
    /// The confidence of the last choice.
    pub(super) confidence: f64,
    /// The end of its pause.
    pub(super) paused_until: Option<Instant>,
}

/// The counts of one crawler's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts {
    /// Delivered pages.
    pub(super) pages: u64,
    /// Pages requested by a plain client.
    pub(super) plain: u64,
    /// Pages requested by a browser.
    pub(super) rendered: u64,
    /// Requests of any kind, including scripts and data.
    pub(super) requests: u64,
    /// Refused requests.
    pub(super) refused: u64,
}

impl RequestCounts {
    /// Returns the cost in plain requests, if a rendered page costs `render` of them.
    pub(super) fn cost(&self, render: f64) -> f64 {
        self.plain as f64 + self.rendered as f64 * render
    }
}

/// A crawler of the demo.
#[derive(Clone, Debug)]
pub(super) struct CrawlerCosts {
    pub(super) name: &'static str,
    pub(super) counted: RequestCounts,
    /// Its cost after each round.
    pub(super) costs: Vec<f64>,
}

/// The mill, the site with a rate limit.
#[derive(Clone, Debug, Default)]
pub(super) struct MillState {
    pub(super) pages: u64,
    pub(super) refused: u64,
    pub(super) pace: Option<PaceExplanation>,
    /// The pace, second by second.
    pub(super) rates: VecDeque<f64>,
}

/// Everything that is drawn.
#[derive(Clone, Debug)]
pub(super) struct DemoModel {
    pub(super) began: Instant,
    pub(super) round: usize,
    pub(super) rounds: usize,
    pub(super) sites: Vec<Site>,
    /// fetchwise first.
    pub(super) crawlers: Vec<CrawlerCosts>,
    pub(super) mill: MillState,
    /// The latest first.
    pub(super) news: VecDeque<(Duration, String)>,
    /// The cost of a rendered page, in plain requests.
    pub(super) render_cost: f64,
    pub(super) is_stopped: bool,
    /// The address of the dashboard, if there is one.
    pub(super) dashboard: Option<String>,
}

impl DemoModel {
    pub(super) fn new(
        places: &[DemoSite],
        crawlers: &[&'static str],
        rounds: usize,
        render_cost: f64,
    ) -> Self {
        let site = |place: &DemoSite| Site {
            name: place.name,
            host: place.host,
            about: place.about,
            results: Vec::new(),
            confidence: 0.0,
            paused_until: None,
        };
        let crawled = |name: &&'static str| CrawlerCosts {
            name,
            counted: RequestCounts::default(),
            costs: Vec::new(),
        };
        Self {
            began: Instant::now(),
            round: 0,
            rounds,
            sites: places.iter().map(site).collect(),
            crawlers: crawlers.iter().map(crawled).collect(),
            mill: MillState::default(),
            news: VecDeque::new(),
            render_cost,
            is_stopped: false,
            dashboard: None,
        }
    }

    /// Records the result of a page of site number `index`.
    pub(super) fn page(&mut self, index: usize, report: &Report, paused_for: Option<Duration>) {
        let Some(site) = self.sites.get_mut(index) else { return };
        let (before, result) = (site.results.last().copied(), PageResult::of(report));
        site.results.push(result);
        site.paused_until = paused_for.and_then(|span| Instant::now().checked_add(span));
        if matches!(result, PageResult::Page { .. }) {
            site.confidence = report.confidence;
        }
        let name = site.name;
        if let Some(news) = news(name, &site.results, before, result) {
            self.tell(news);
        }
    }

    /// Adds a line of news.
    pub(super) fn tell(&mut self, what: String) {
        self.news.push_front((self.began.elapsed(), what));
        self.news.truncate(NEWS);
    }

    /// Records the pace of the mill, once per second.
    pub(super) fn second(&mut self, pace: Option<PaceExplanation>) {
        let rate = match &pace {
            Some(pace) if pace.hold_until.is_some_and(|until| until > pace.now) => 0.0,
            Some(pace) => pace.rate,
            None => return,
        };
        let before = self.mill.pace.as_ref().and_then(|pace| pace.last_limit_hit);
        let event = pace.as_ref().and_then(|pace| pace.last_limit_hit);
        if event.is_some() && event != before {
            let ceiling = pace.as_ref().and_then(|pace| pace.ceiling);
            self.tell(match ceiling {
                Some((ceiling, window)) => {
                    format!("mill: rate limit hit; from now on at most {ceiling:.1}/s, over a window of {window}")
                }
                None => "mill: rate limit hit; held for a moment".to_owned(),
            });
        }
        self.mill.pace = pace;
        self.mill.rates.push_back(rate);
        while self.mill.rates.len() > SECONDS {
            self.mill.rates.pop_front();
        }
    }

    /// Returns how many decisions of round number `index` were probes, inferred and learned; none
    /// if nothing was requested.
    pub(super) fn mix(&self, index: usize) -> Option<DecisionCounts> {
        let mut mix = DecisionCounts::default();
        for result in self.sites.iter().filter_map(|site| site.results.get(index)) {
            match result {
                PageResult::Paused => {}
                PageResult::Page { source: Some(Source::Probe), .. } => mix.probed += 1,
                PageResult::Page { source: Some(Source::Learned), .. } => mix.learned += 1,
                PageResult::Page { .. } => mix.guessed += 1,
                PageResult::Failed { .. } => mix.failed += 1,
            }
        }
        (mix != DecisionCounts::default()).then_some(mix)
    }
}

/// The decisions of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DecisionCounts {
    pub(super) probed: u32,
    pub(super) guessed: u32,
    pub(super) learned: u32,
    pub(super) failed: u32,
}

impl DecisionCounts {
    pub(super) const fn all(&self) -> u32 {
        self.probed + self.guessed + self.learned + self.failed
    }
}

/// Returns a line of news about the newest page of a site, if there is any.
fn news(
    name: &str,
    results: &[PageResult],
    before: Option<PageResult>,
    now: PageResult,
) -> Option<String> {
    let way = |result: PageResult| match result {
        PageResult::Page { way, .. } => way,
        _ => None,
    };
    let last_way =
        results[..results.len().saturating_sub(1)].iter().rev().find_map(|result| way(*result));
    match (before, now) {
        (Some(PageResult::Paused), PageResult::Failed { .. }) => {
            Some(format!("{name}: the trial failed, still closed"))
        }
        (Some(PageResult::Paused), PageResult::Page { .. }) => {
            Some(format!("{name}: open again after its pause"))
        }
        (Some(PageResult::Paused), PageResult::Paused) => None,
        (_, PageResult::Paused) => Some(format!("{name}: paused")),
        (_, result)
            if result.is_learned()
                && !results[..results.len() - 1].iter().any(|result| result.is_learned()) =>
        {
            Some(format!("{name}: learned, {} from now on", way(result)?.name()))
        }
        (_, result) => match (last_way, way(result)) {
            (Some(old), Some(new)) if old != new => {
                Some(format!("{name}: {} no longer works, {} does", old.name(), new.name()))
            }
            (None, Some(FetcherKind::Browser | FetcherKind::Stealth)) => {
                Some(format!("{name}: a plain request gets no page, {} does", way(result)?.name()))
            }
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(by: &str, source: Source) -> Report {
        Report {
            fetcher: Some(by.to_owned()),
            source: Some(source),
            success: true,
            requests: 1,
            ..Report::default()
        }
    }

    fn ended(error: &'static str, requests: u32) -> Report {
        Report { error_type: Some(error), requests, ..Report::default() }
    }

    fn model() -> DemoModel {
        let places = fetchwise_testsite::demo_sites::demo_sites();
        DemoModel::new(&places[..1], &["fetchwise"], 10, 20.0)
    }

    #[test]
    fn each_change_of_a_site_is_news_once() {
        let mut model = model();
        for report in [
            came("direct_access", Source::Probe),
            came("direct_access", Source::Learned),
            came("direct_access", Source::Learned),
            came("playwright", Source::Inferred),
            ended("blocked_403", 2),
            ended(Report::PAUSED, 0),
            ended(Report::PAUSED, 0),
            ended("blocked_403", 1),
            ended(Report::PAUSED, 0),
            came("playwright", Source::Learned),
        ] {
            model.page(0, &report, None);
        }
        let news: Vec<&str> = model.news.iter().rev().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            news,
            [
                "library: learned, direct from now on",
                "library: direct no longer works, browser does",
                "library: paused",
                "library: the trial failed, still closed",
                "library: paused",
                "library: open again after its pause",
            ]
        );
    }

    #[test]
    fn a_round_without_requests_has_no_decisions() {
        let mut model = model();
        model.page(0, &ended(Report::PAUSED, 0), None);
        model.page(0, &came("direct_access", Source::Probe), None);
        assert_eq!(model.mix(0), None);
        assert_eq!(model.mix(1).map(|mix| (mix.probed, mix.all())), Some((1, 1)));
        assert_eq!(model.mix(2), None);
    }

    #[test]
    fn a_rendered_page_has_its_cost() {
        let counted = RequestCounts { plain: 3, rendered: 2, ..RequestCounts::default() };
        assert_eq!(counted.cost(20.0), 43.0);
    }
}
