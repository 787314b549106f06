//! The generation of a web from a world file: sites, hosts, sections, their changes, and the visits
//! in order of time.
//!
//! Owns: the distributions. Each site, and the traffic, has a separate random stream, so that the
//! numbers of one site do not change another's.
//!
//! Must not know: fetchers and policies; the web is the same for all of them.

use super::vendor::{LEVEL_COUNT, Standing, VendorBlock};
use super::world::{Label, Protection, Render, World};
use crate::rng::Stream;

const DAY_MS: f64 = 86_400_000.0;
/// A site is born before this share of the days is over.
const BORN_BEFORE: f64 = 0.95;
/// The mean gap between the URLs of a burst.
const GAP_MEAN_MS: f64 = 20_000.0;
/// The chance that the next URL of a burst is in another section.
const REDRAW_SECTION: f64 = 0.25;
/// The deepest path.
const MAX_DEPTH: u32 = 7;
/// The stream of the traffic, which belongs to no site.
const TRAFFIC: u64 = u64::MAX;
/// With a site's number: the stream of its hosts' signals. It is separate, so that a world without
/// vendors stays the same.
const SHOWN: u64 = 1 << 40;

/// Values that hold from a time on, in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<T> {
    steps: Vec<(i64, T)>,
    first: T,
}

impl<T: Copy + PartialEq> Timeline<T> {
    fn new(first: T) -> Self {
        Self { steps: Vec::new(), first }
    }

    /// Returns the value at `ms`.
    pub(crate) fn at(&self, ms: i64) -> T {
        let passed = self.steps.partition_point(|step| step.0 <= ms);
        passed.checked_sub(1).map_or(self.first, |last| self.steps[last].1)
    }

    /// Returns the time of the last change before `ms`, if there is one.
    fn last_change(&self, ms: i64) -> Option<i64> {
        let passed = self.steps.partition_point(|step| step.0 <= ms);
        passed.checked_sub(1).map(|last| self.steps[last].0)
    }

    fn last(&self) -> T {
        self.steps.last().map_or(self.first, |step| step.1)
    }

    fn push(&mut self, ms: i64, value: T) {
        if value != self.last() {
            self.steps.push((ms, value));
        }
    }

    /// Applies `change` to each value from `ms` on.
    fn change_from(&mut self, ms: i64, change: impl Fn(T) -> T) {
        let passed = self.steps.partition_point(|step| step.0 <= ms);
        let now = self.at(ms);
        self.steps.truncate(passed);
        self.push(ms, change(now));
    }
}

/// A part of a host: the pages under one first path segment.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) render: Timeline<Render>,
    weight: f64,
    depth: f64,
    suffix: usize,
}

/// A host of a site.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) site: u32,
    pub(crate) protection: Timeline<Protection>,
    pub(crate) sections: Vec<Section>,
    pub(crate) flaky: bool,
    /// Whether captchas and bot protection let its files pass.
    pub(crate) files_exempt: bool,
    /// The requests per hour or so that its rate limit tolerates, before the world's irritability.
    pub(crate) rate_limit: f64,
    weight: f64,
    flag: Option<&'static str>,
    files_only: bool,
    /// Whether its sections have separate classes.
    mixed: bool,
    /// The vendor of its protection, and its difference from the vendor's setting.
    standing: Option<(Timeline<Standing>, u8)>,
    /// Its framework and its server.
    pub(crate) framework: Option<u8>,
    pub(crate) server: Option<u8>,
}

impl Host {
    /// Returns the time of the last change before `ms` of its protection, of the rendering of one
    /// of its sections or of its vendor's settings.
    pub(crate) fn last_change(&self, world: &World, ms: i64) -> Option<i64> {
        let rendering = self.sections.iter().filter_map(|section| section.render.last_change(ms));
        let vendor = self
            .vendor_block(world, ms)
            .map(|vendor_block| &world.vendors[usize::from(vendor_block.vendor)]);
        let shift = vendor.and_then(|vendor| vendor.shift.as_ref()).map(|shift| shift.at_ms());
        rendering.chain(self.protection.last_change(ms)).chain(shift.filter(|at| *at <= ms)).max()
    }

    /// Returns the vendor's block at `ms`, if there is one.
    pub(crate) fn vendor_block(&self, world: &World, ms: i64) -> Option<VendorBlock> {
        let (standing, level) = self.standing.as_ref()?;
        let is_block = self.protection.at(ms) >= Protection::Captcha;
        is_block.then(|| VendorBlock::at(&world.vendors, standing.at(ms), *level, ms))
    }
}

/// One URL to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// Milliseconds since the world began.
    pub(crate) at_ms: i64,
    pub(crate) id: u32,
    pub(crate) host: u32,
    pub(crate) section: u8,
    depth: u8,
    suffix: Option<&'static str>,
    flag: Option<&'static str>,
    pub(crate) file: bool,
    pub(crate) dead: bool,
}

/// A generated world.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    pub(crate) hosts: Vec<Host>,
    /// In order of time.
    pub(crate) visits: Vec<Visit>,
}

const PAGE_SUFFIXES: [Option<&str>; 4] = [None, Some(".html"), Some(".php"), Some(".aspx")];
const PAGE_SUFFIX_MIX: [f64; 4] = [0.55, 0.30, 0.10, 0.05];
const FILE_SUFFIXES: [&str; 6] = [".pdf", ".jpg", ".zip", ".json", ".xml", ".mp4"];
const FILE_SUFFIX_MIX: [f64; 6] = [0.35, 0.30, 0.08, 0.12, 0.10, 0.05];
const FLAGS: [&str; 4] = ["cdn", "static", "assets", "api"];
const RENDERS: [Render; 5] =
    [Render::Static, Render::Spa, Render::JsPartial, Render::Video, Render::File];
const PROTECTIONS: [Protection; 5] = [
    Protection::None,
    Protection::Rate,
    Protection::Captcha,
    Protection::Hard,
    Protection::Fortress,
];

/// The kinds of additional hosts of a site.
const KINDS: [&str; 6] = ["app", "blog", "cdn", "static", "assets", "api"];

impl Web {
    /// Generates `world` with `seed`.
    pub(crate) fn generate(world: &World, seed: u64) -> Self {
        let mut hosts = Vec::new();
        let mut sites = Vec::with_capacity(world.sites);
        for number in 0..world.sites {
            let first = hosts.len();
            let mut stream = Stream::new(seed, number as u64);
            let weight = ((number + 1) as f64).powf(-world.zipf) * (0.5 + stream.unit());
            let born = if stream.happens(world.new_site_share) {
                stream.unit() * BORN_BEFORE * world.days
            } else {
                0.0
            };
            let giant = number == 0 && world.giant_share > 0.0;
            if giant {
                hosts.push(giant_host(&mut stream));
            } else {
                let maker = HostMaker { world, site: number as u32, born_ms: born * DAY_MS };
                maker.make_all(&mut stream, &mut hosts);
            }
            show(world, &mut Stream::new(seed, SHOWN | number as u64), &mut hosts[first..]);
            sites.push(Site {
                weight,
                born_ms: if giant { 0.0 } else { born * DAY_MS },
                hosts: first..hosts.len(),
            });
        }
        let visits = Traffic::new(world, &sites, &hosts).generate(&mut Stream::new(seed, TRAFFIC));
        Self { hosts, visits }
    }

    /// Returns the URL of a visit.
    pub(crate) fn url(&self, visit: &Visit) -> String {
        let host = &self.hosts[visit.host as usize];
        let mut url = format!("https://{}/s{}", host.name, visit.section);
        let mut depth = 1;
        if let Some(flag) = visit.flag {
            url.push('/');
            url.push_str(flag);
            depth += 1;
        }
        // A flag is a folder, so the path needs something in it.
        let named = visit.suffix.is_some() || visit.flag.is_some() || visit.depth > depth;
        for level in depth + 1..visit.depth {
            url.push_str("/d");
            url.push(char::from(b'0' + level % 10));
        }
        url.push_str(if named { "/p" } else { "?p=" });
        url.push_str(&visit.id.to_string());
        url.push_str(visit.suffix.unwrap_or_default());
        url
    }
}

/// The data of a site that traffic needs.
struct Site {
    weight: f64,
    born_ms: f64,
    hosts: std::ops::Range<usize>,
}

/// Assigns the vendor, the difference from its setting, and the page signals to the hosts of one
/// site.
fn show(world: &World, stream: &mut Stream, hosts: &mut [Host]) {
    let shares: Vec<f64> = world.vendors.iter().map(|vendor| vendor.share).collect();
    let draw =
        |stream: &mut Stream| Standing { vendor: stream.pick(&shares) as u8, luck: stream.unit() };
    let label = |stream: &mut Stream, labels: &[Label], render: Render| {
        let weights: Vec<f64> =
            labels.iter().map(|label| label.weight.array()[render as usize]).collect();
        let picked = stream.pick(&weights);
        labels.get(picked).filter(|label| !label.name.is_empty()).map(|_| picked as u8)
    };
    let of_site = draw(stream);
    for host in hosts {
        let level = stream.below(LEVEL_COUNT) as u8;
        let first = host.sections[0].render.at(0);
        host.framework = label(stream, &world.frameworks, first);
        host.server = label(stream, &world.servers, first);
        let Some(tags) = world.tags.filter(|_| !world.vendors.is_empty()) else { continue };
        let mut standing = Timeline::new(of_site);
        for (at, _) in &host.protection.steps {
            if stream.happens(tags.moves) {
                standing.push(*at, draw(stream));
            }
        }
        host.standing = Some((standing, level));
    }
}

/// Returns one static, unprotected host that never changes.
fn giant_host(stream: &mut Stream) -> Host {
    let sections = (0..3).map(|_| Section {
        render: Timeline::new(Render::Static),
        weight: 0.2 + stream.exp(1.0),
        depth: 1.0 + 4.0 * stream.unit(),
        suffix: GIANT_SUFFIX,
    });
    Host {
        name: "www.giant.com".to_owned(),
        site: 0,
        protection: Timeline::new(Protection::None),
        sections: sections.collect(),
        flaky: false,
        files_exempt: false,
        rate_limit: f64::INFINITY,
        weight: 1.0,
        flag: None,
        files_only: false,
        mixed: false,
        standing: None,
        framework: None,
        server: None,
    }
}

/// `.html`, the suffix of nearly all pages of the giant.
const GIANT_SUFFIX: usize = 1;

/// Makes the hosts of one site.
struct HostMaker<'w> {
    world: &'w World,
    site: u32,
    born_ms: f64,
}

impl HostMaker<'_> {
    fn make_all(&self, stream: &mut Stream, hosts: &mut Vec<Host>) {
        let world = self.world;
        let render = RENDERS[stream.pick(&world.render_mix.array())];
        let protection = PROTECTIONS[stream.pick(&world.protection_mix.array())];
        let files_exempt = stream.happens(world.file_exempt);
        let flips = world.flip.day > 0.0 && stream.happens(world.flip.share);
        let mut kinds = vec!["www"];
        if stream.happens(world.multi_host) {
            let mut left = KINDS.to_vec();
            for _ in 0..1 + stream.below(3) {
                kinds.push(left.swap_remove(stream.below(left.len())));
            }
        }
        for kind in kinds {
            let mut host = self.make(stream, kind, render, protection);
            host.files_exempt = files_exempt;
            self.drift(stream, &mut host, flips);
            hosts.push(host);
        }
    }

    fn make(
        &self,
        stream: &mut Stream,
        kind: &'static str,
        render: Render,
        protection: Protection,
    ) -> Host {
        let files_only =
            matches!(kind, "cdn" | "static" | "assets") || kind == "www" && render == Render::File;
        let render = match kind {
            "app" if stream.happens(0.75) => Render::Spa,
            "blog" if stream.happens(0.8) => Render::Static,
            "api" => Render::Static,
            _ if files_only => Render::File,
            _ => render,
        };
        let keeps = match kind {
            "www" => 1.0,
            "app" => 0.9,
            "blog" => 0.6,
            _ => 0.3,
        };
        let protection = match () {
            () if stream.happens(keeps) => protection,
            () if stream.happens(0.15) => Protection::Rate,
            () => Protection::None,
        };
        let flag = match kind {
            "www" => stream.happens(0.02).then(|| FLAGS[stream.below(FLAGS.len())]),
            _ => FLAGS.into_iter().find(|flag| *flag == kind),
        };
        let mixed = render != Render::File && stream.happens(self.world.mixed_sections);
        let sections = (0..1 + stream.below(4)).map(|_| {
            let own = [Render::Static, Render::Spa, Render::JsPartial];
            Section {
                render: Timeline::new(if mixed {
                    own[stream.pick(&[0.5, 0.3, 0.2])]
                } else {
                    render
                }),
                weight: 0.2 + stream.exp(1.0),
                depth: 1.0 + 4.0 * stream.unit(),
                suffix: stream.pick(&PAGE_SUFFIX_MIX),
            }
        });
        Host {
            name: format!("{kind}.site{}.com", self.site),
            site: self.site,
            protection: Timeline::new(protection),
            sections: sections.collect(),
            flaky: stream.happens(self.world.flaky),
            files_exempt: false,
            rate_limit: 20.0 + 60.0 * stream.unit(),
            weight: if kind == "www" { 1.0 } else { 0.1 + 0.7 * stream.unit() },
            flag,
            files_only,
            mixed,
            standing: None,
            framework: None,
            server: None,
        }
    }

    /// Generates the changes of the host from its birth to the end of the world.
    fn drift(&self, stream: &mut Stream, host: &mut Host, flips: bool) {
        let drift = &self.world.drift;
        let end = self.world.days * DAY_MS;
        if drift.days > 0.0 {
            let mut at = self.born_ms + stream.exp(drift.days * DAY_MS);
            while at < end {
                let next = self.next_protection(stream, host.protection.last());
                host.protection.push(at as i64, next);
                at += stream.exp(drift.days * DAY_MS);
            }
            // A host of one class is rebuilt as a whole; sections with separate classes change one
            // by one.
            let together = if host.mixed { 1 } else { host.sections.len() };
            for sections in host.sections.chunks_mut(together) {
                let mut at = self.born_ms + stream.exp(1.5 * drift.days * DAY_MS);
                while at < end {
                    let next = next_render(stream, sections[0].render.last());
                    sections.iter_mut().for_each(|section| section.render.push(at as i64, next));
                    at += stream.exp(1.5 * drift.days * DAY_MS);
                }
            }
        }
        if flips {
            host.protection.change_from((self.world.flip.day * DAY_MS) as i64, |protection| {
                match protection {
                    Protection::None => Protection::Captcha,
                    Protection::Captcha => Protection::None,
                    other => other,
                }
            });
        }
    }

    fn next_protection(&self, stream: &mut Stream, now: Protection) -> Protection {
        use Protection::{Captcha, Fortress, Hard, None, Rate};
        let drift = &self.world.drift;
        match now {
            None | Rate if stream.happens(drift.worse) => {
                [Captcha, Hard, Fortress][stream.pick(&[0.6, 0.33, 0.07])]
            }
            None => Rate,
            Rate => None,
            Captcha if stream.happens(drift.better) => [None, Rate][stream.pick(&[0.6, 0.4])],
            Captcha => Hard,
            Hard if stream.happens(drift.better) => [None, Captcha][stream.below(2)],
            Hard => [Hard, Fortress][stream.pick(&[0.8, 0.2])],
            Fortress if stream.happens(drift.better) => Hard,
            Fortress => Fortress,
        }
    }
}

fn next_render(stream: &mut Stream, now: Render) -> Render {
    use Render::{JsPartial, Spa, Static};
    match now {
        Static => [Spa, JsPartial, Static][stream.pick(&[0.35, 0.25, 0.4])],
        Spa => [Static, JsPartial][stream.pick(&[0.6, 0.4])],
        JsPartial => [Static, Spa][stream.pick(&[0.6, 0.4])],
        other => other,
    }
}

/// Makes the visits.
struct Traffic<'w> {
    world: &'w World,
    sites: &'w [Site],
    hosts: &'w [Host],
    /// Running sums of the sites' weights, to pick a site by bisection.
    sums: Vec<f64>,
}

impl<'w> Traffic<'w> {
    fn new(world: &'w World, sites: &'w [Site], hosts: &'w [Host]) -> Self {
        let giant = world.giant_share > 0.0;
        let mut sum = 0.0;
        let sums = sites.iter().enumerate().map(|(number, site)| {
            // The giant's visits follow its share, not its rank.
            sum += if giant && number == 0 { 0.0 } else { site.weight };
            sum
        });
        Self { world, sites, hosts, sums: sums.collect() }
    }

    fn generate(&self, stream: &mut Stream) -> Vec<Visit> {
        let world = self.world;
        let mut visits: Vec<Visit> = Vec::with_capacity(world.urls);
        while visits.len() < world.urls {
            let site = self.draw_site(stream);
            let size = match stream.happens(world.big_burst.p) {
                true => {
                    (world.big_burst.size * (0.3 + 1.4 * stream.unit())).round().max(1.0) as usize
                }
                false => stream.geometric(world.burst),
            };
            let weights: Vec<f64> =
                self.hosts[site.hosts.clone()].iter().map(|host| host.weight).collect();
            let host = site.hosts.start + stream.pick(&weights);
            self.burst(stream, site, host, size.min(world.urls - visits.len()), &mut visits);
        }
        visits.sort_by_key(|visit| visit.at_ms);
        for (id, visit) in visits.iter_mut().enumerate() {
            visit.id = id as u32;
        }
        visits
    }

    fn draw_site(&self, stream: &mut Stream) -> &'w Site {
        let total = self.sums.last().copied().unwrap_or(0.0);
        if self.world.giant_share > 0.0 && (total <= 0.0 || stream.happens(self.world.giant_share))
        {
            return &self.sites[0];
        }
        let at = stream.unit() * total;
        let number = self.sums.partition_point(|sum| *sum <= at);
        &self.sites[number.min(self.sites.len() - 1)]
    }

    fn burst(
        &self,
        stream: &mut Stream,
        site: &Site,
        host: usize,
        size: usize,
        visits: &mut Vec<Visit>,
    ) {
        let of = &self.hosts[host];
        let weights: Vec<f64> = of.sections.iter().map(|section| section.weight).collect();
        let mut at_ms = site.born_ms + stream.unit() * (self.world.days * DAY_MS - site.born_ms);
        let mut section = stream.pick(&weights);
        for place in 0..size {
            if place > 0 {
                at_ms += stream.exp(GAP_MEAN_MS);
                if stream.happens(REDRAW_SECTION) {
                    section = stream.pick(&weights);
                }
            }
            visits.push(self.visit(stream, of, host as u32, section, at_ms as i64));
        }
    }

    fn visit(
        &self,
        stream: &mut Stream,
        host: &Host,
        number: u32,
        section: usize,
        at_ms: i64,
    ) -> Visit {
        let of = &host.sections[section];
        let giant = self.world.giant_share > 0.0 && host.site == 0;
        let file = !giant && (host.files_only || stream.happens(self.world.file_share));
        let suffix = match file {
            true => Some(FILE_SUFFIXES[stream.pick(&FILE_SUFFIX_MIX)]),
            false => PAGE_SUFFIXES[page_suffix(stream, of.suffix, giant)],
        };
        let sets_flag = file && host.flag.is_none() && stream.happens(0.15);
        let flag = if sets_flag { Some(["static", "assets"][stream.below(2)]) } else { host.flag };
        let depth = (of.depth + stream.exp(0.8)) as u32;
        let dead = stream.happens(self.world.dead);
        Visit {
            at_ms,
            id: 0,
            host: number,
            section: section as u8,
            depth: depth.min(MAX_DEPTH) as u8,
            suffix,
            flag,
            file,
            dead,
        }
    }
}

/// Returns a section's main suffix nearly always, else one of the other three.
fn page_suffix(stream: &mut Stream, main: usize, giant: bool) -> usize {
    let main_share = if giant { 0.93 } else { 0.91 };
    if stream.happens(main_share) {
        return main;
    }
    let other = stream.below(PAGE_SUFFIXES.len() - 1);
    if other >= main { other + 1 } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SHIPPED;
    use fetchwise::heuristic::url::{ContentKind, UrlFeatures};

    fn world(place: usize, urls: usize) -> World {
        World { urls, ..World::parse(SHIPPED[place].1, "test").unwrap() }
    }

    #[test]
    fn urls_describe_their_visit_and_are_unique() {
        let world = world(4, 5000);
        let web = Web::generate(&world, 1);
        let mut seen = std::collections::HashSet::new();
        for visit in &web.visits {
            let text = web.url(visit);
            let url = url::Url::parse(&text).unwrap();
            let features = UrlFeatures::extract(&url).unwrap();
            let host = &web.hosts[visit.host as usize];
            assert_eq!(features.kind() == ContentKind::File, visit.file, "{text}");
            assert_eq!(features.section, Some(format!("s{}", visit.section).as_str()), "{text}");
            assert_eq!(features.site, format!("site{}.com", host.site), "{text}");
            assert_eq!(features.flags.iter().any(|set| *set), visit.flag.is_some(), "{text}");
            assert!(features.path_depth <= MAX_DEPTH, "{text}");
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn visits_are_ordered_within_the_days_and_repeat_with_their_seed() {
        let world = world(0, 5000);
        let (one, again, other) =
            (Web::generate(&world, 1), Web::generate(&world, 1), Web::generate(&world, 2));
        let times = |web: &Web| {
            web.visits.iter().map(|visit| (visit.at_ms, visit.host)).collect::<Vec<_>>()
        };
        assert_eq!(times(&one), times(&again));
        assert_ne!(times(&one), times(&other));
        assert!(one.visits.is_sorted_by_key(|visit| visit.at_ms) && one.visits[0].at_ms >= 0);
        let files = one.visits.iter().filter(|visit| visit.file).count() as f64 / 5000.0;
        assert!((0.1..0.45).contains(&files), "{files}");
    }

    #[test]
    fn the_giant_has_its_share_of_visits_and_never_changes() {
        let world = world(6, 20_000);
        let web = Web::generate(&world, 3);
        let of_giant = web.visits.iter().filter(|visit| visit.host == 0).count() as f64 / 20_000.0;
        assert!((0.55..0.65).contains(&of_giant), "{of_giant}");
        assert_eq!(web.hosts[0].last_change(&world, i64::MAX), None);
    }

    #[test]
    fn a_timeline_changes_from_a_time_on_and_a_flip_replaces_later_changes() {
        let mut line = Timeline::new(Protection::None);
        line.push(10, Protection::Captcha);
        line.push(20, Protection::Captcha);
        line.push(30, Protection::Hard);
        assert_eq!(
            [9, 10, 25, 30].map(|ms| line.at(ms)),
            [Protection::None, Protection::Captcha, Protection::Captcha, Protection::Hard]
        );
        assert_eq!((line.last_change(29), line.last_change(5)), (Some(10), None));
        line.change_from(15, |_| Protection::None);
        assert_eq!(
            [14, 15, 99].map(|ms| line.at(ms)),
            [Protection::Captcha, Protection::None, Protection::None]
        );
    }
}
