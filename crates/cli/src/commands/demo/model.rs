//! What happened in the town so far: who brought each page, what is learned, what it cost, and what others paid for the same.
//!
//! Only data and how it changes, so that it can be drawn at any moment. Must not know terminals, nor fetch anything.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fetchwise::decision::Source;
use fetchwise::pace::Explained;
use fetchwise::pipeline::Report;
use fetchwise_testsite::demo_sites::DemoSite;

/// Lines of news that are kept.
const NEWS: usize = 64;
/// Seconds of the mill that are kept.
const SECONDS: usize = 240;

/// The ways to get a page that the town needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Browser,
    Stealth,
}

impl Way {
    pub(super) fn of(fetcher: &str) -> Option<Self> {
        match fetcher {
            "direct_access" => Some(Self::Direct),
            "playwright" => Some(Self::Browser),
            "playwright_stealth" => Some(Self::Stealth),
            _ => None,
        }
    }

    /// What it is called where there is little room.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Browser => "browser",
            Self::Stealth => "stealth",
        }
    }
}

/// What became of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// It came, by this way, and this is how the way was chosen.
    Page { way: Option<Way>, source: Option<Source>, requests: u32 },
    /// It did not come.
    Failed { requests: u32 },
    /// Nobody was asked: the host is left alone.
    Paused,
}

impl Beat {
    pub(super) fn of(report: &Report) -> Self {
        match report.error_type {
            Some(Report::PAUSED | Report::PACED) => Self::Paused,
            Some(_) => Self::Failed { requests: report.requests },
            None => Self::Page {
                way: report.fetcher.as_deref().and_then(Way::of),
                source: report.source,
                requests: report.requests,
            },
        }
    }

    /// Requests that it took.
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

/// A site and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// A page each round, the oldest first.
    pub(super) beats: Vec<Beat>,
    /// How sure the last choice was.
    pub(super) confidence: f64,
    /// Until when it is left alone.
    pub(super) paused_until: Option<Instant>,
}

/// What a town has counted of one crawler's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Pages that were delivered.
    pub(super) pages: u64,
    /// Pages asked for by a plain client.
    pub(super) plain: u64,
    /// Pages asked for by a browser.
    pub(super) rendered: u64,
    /// Requests of any kind, also for scripts and data.
    pub(super) requests: u64,
    /// Requests that were refused.
    pub(super) refused: u64,
}

impl Counted {
    /// What it cost in plain requests, where a browser's page costs `render` of them.
    pub(super) fn cost(&self, render: f64) -> f64 {
        self.plain as f64 + self.rendered as f64 * render
    }
}

/// A crawler of the town.
#[derive(Clone, Debug)]
pub(super) struct Crawled {
    pub(super) name: &'static str,
    pub(super) counted: Counted,
    /// Its cost after each round.
    pub(super) costs: Vec<f64>,
}

/// The mill, whose pace is found.
#[derive(Clone, Debug, Default)]
pub(super) struct Mill {
    pub(super) pages: u64,
    pub(super) refused: u64,
    pub(super) pace: Option<Explained>,
    /// The pace, second by second.
    pub(super) rates: VecDeque<f64>,
}

/// Everything that there is to draw.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) began: Instant,
    pub(super) round: usize,
    pub(super) rounds: usize,
    pub(super) sites: Vec<Site>,
    /// fetchwise first.
    pub(super) crawlers: Vec<Crawled>,
    pub(super) mill: Mill,
    /// The latest first.
    pub(super) news: VecDeque<(Duration, String)>,
    /// What a browser's page costs, in plain requests.
    pub(super) render_cost: f64,
    pub(super) is_stopped: bool,
    /// Where the dashboard is, if there is one.
    pub(super) dashboard: Option<String>,
}

impl Story {
    pub(super) fn new(places: &[DemoSite], crawlers: &[&'static str], rounds: usize, render_cost: f64) -> Self {
        let site = |place: &DemoSite| Site {
            name: place.name,
            about: place.about,
            beats: Vec::new(),
            confidence: 0.0,
            paused_until: None,
        };
        let crawled = |name: &&'static str| Crawled { name, counted: Counted::default(), costs: Vec::new() };
        Self {
            began: Instant::now(),
            round: 0,
            rounds,
            sites: places.iter().map(site).collect(),
            crawlers: crawlers.iter().map(crawled).collect(),
            mill: Mill::default(),
            news: VecDeque::new(),
            render_cost,
            is_stopped: false,
            dashboard: None,
        }
    }

    /// A page of site number `index` ended.
    pub(super) fn page(&mut self, index: usize, report: &Report, paused_for: Option<Duration>) {
        let Some(site) = self.sites.get_mut(index) else { return };
        let (before, beat) = (site.beats.last().copied(), Beat::of(report));
        site.beats.push(beat);
        site.paused_until = paused_for.and_then(|span| Instant::now().checked_add(span));
        if matches!(beat, Beat::Page { .. }) {
            site.confidence = report.confidence;
        }
        let name = site.name;
        if let Some(news) = news(name, &site.beats, before, beat) {
            self.tell(news);
        }
    }

    /// Something worth a line happened.
    pub(super) fn tell(&mut self, what: String) {
        self.news.push_front((self.began.elapsed(), what));
        self.news.truncate(NEWS);
    }

    /// A second of the mill passed.
    pub(super) fn second(&mut self, pace: Option<Explained>) {
        let rate = match &pace {
            Some(pace) if pace.hold_until.is_some_and(|until| until > pace.now) => 0.0,
            Some(pace) => pace.rate,
            None => return,
        };
        let before = self.mill.pace.as_ref().and_then(|pace| pace.event);
        let event = pace.as_ref().and_then(|pace| pace.event);
        if event.is_some() && event != before {
            let ceiling = pace.as_ref().and_then(|pace| pace.ceiling);
            self.tell(match ceiling {
                Some((ceiling, window)) => {
                    format!("mill: asked too fast; from now on at most {ceiling:.1}/s, counted over {window}")
                }
                None => "mill: asked too fast; held for a moment".to_owned(),
            });
        }
        self.mill.pace = pace;
        self.mill.rates.push_back(rate);
        while self.mill.rates.len() > SECONDS {
            self.mill.rates.pop_front();
        }
    }

    /// Shares of the decisions of round number `index` that were probes, guesses from other evidence, and learned: none where
    /// nobody was asked.
    pub(super) fn mix(&self, index: usize) -> Option<Mix> {
        let mut mix = Mix::default();
        for beat in self.sites.iter().filter_map(|site| site.beats.get(index)) {
            match beat {
                Beat::Paused => {}
                Beat::Page { source: Some(Source::Probe), .. } => mix.probed += 1,
                Beat::Page { source: Some(Source::Learned), .. } => mix.learned += 1,
                Beat::Page { .. } => mix.guessed += 1,
                Beat::Failed { .. } => mix.failed += 1,
            }
        }
        (mix != Mix::default()).then_some(mix)
    }
}

/// How the pages of a round were decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) probed: u32,
    pub(super) guessed: u32,
    pub(super) learned: u32,
    pub(super) failed: u32,
}

impl Mix {
    pub(super) const fn all(&self) -> u32 {
        self.probed + self.guessed + self.learned + self.failed
    }
}

/// What is worth a line about the newest page of a site.
fn news(name: &str, beats: &[Beat], before: Option<Beat>, now: Beat) -> Option<String> {
    let way = |beat: Beat| match beat {
        Beat::Page { way, .. } => way,
        _ => None,
    };
    let last_way = beats[..beats.len().saturating_sub(1)].iter().rev().find_map(|beat| way(*beat));
    match (before, now) {
        (Some(Beat::Paused), Beat::Failed { .. }) => Some(format!("{name}: one trial, and it is still closed")),
        (Some(Beat::Paused), Beat::Page { .. }) => Some(format!("{name}: open again after its pause")),
        (Some(Beat::Paused), Beat::Paused) => None,
        (_, Beat::Paused) => Some(format!("{name}: left alone for a while")),
        (_, beat) if beat.is_learned() && !beats[..beats.len() - 1].iter().any(|beat| beat.is_learned()) => {
            Some(format!("{name}: learned, {} from now on", way(beat)?.name()))
        }
        (_, beat) => match (last_way, way(beat)) {
            (Some(old), Some(new)) if old != new => {
                Some(format!("{name}: {} no longer does, {} it is", old.name(), new.name()))
            }
            (None, Some(Way::Browser | Way::Stealth)) => {
                Some(format!("{name}: a plain request brings no page, {} does", way(beat)?.name()))
            }
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(by: &str, source: Source) -> Report {
        Report { fetcher: Some(by.to_owned()), source: Some(source), success: true, requests: 1, ..Report::default() }
    }

    fn ended(error: &'static str, requests: u32) -> Report {
        Report { error_type: Some(error), requests, ..Report::default() }
    }

    fn story() -> Story {
        let places = fetchwise_testsite::demo_sites::demo_sites();
        Story::new(&places[..1], &["fetchwise"], 10, 20.0)
    }

    #[test]
    fn what_changes_at_a_site_is_told_once() {
        let mut story = story();
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
            story.page(0, &report, None);
        }
        let news: Vec<&str> = story.news.iter().rev().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            news,
            [
                "library: learned, direct from now on",
                "library: direct no longer does, browser it is",
                "library: left alone for a while",
                "library: one trial, and it is still closed",
                "library: left alone for a while",
                "library: open again after its pause",
            ]
        );
    }

    #[test]
    fn a_round_in_which_nobody_was_asked_has_no_mix() {
        let mut story = story();
        story.page(0, &ended(Report::PAUSED, 0), None);
        story.page(0, &came("direct_access", Source::Probe), None);
        assert_eq!(story.mix(0), None);
        assert_eq!(story.mix(1).map(|mix| (mix.probed, mix.all())), Some((1, 1)));
        assert_eq!(story.mix(2), None);
    }

    #[test]
    fn a_browsers_page_costs_what_it_costs() {
        let counted = Counted { plain: 3, rendered: 2, ..Counted::default() };
        assert_eq!(counted.cost(20.0), 43.0);
    }
}
