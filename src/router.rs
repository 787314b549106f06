//! The router: which arm serves a URL, the table that people wrote or the evidence that attempts left.
//!
//! Owns modes, their precedence and the legacy table. Order of a decision: paused, a caller's hint, then the mode. Must not
//! know how learning decides: that is the selector's.

use std::collections::HashMap;

use strum::VariantNames;
use url::Url;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::decision::{Decision, Rule, Source, Take};
use crate::heuristic::url::{UrlError, UrlFeatures, domain_of};
use crate::names::UnknownName;
use crate::registry::canonical;
use crate::selector::{Selector, Situation};

/// Which arm serves.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr, VariantNames,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_mode)]
pub enum Mode {
    /// Evidence, with probes where there is none.
    #[default]
    Learning,
    /// The table only.
    Legacy,
    /// The table serves; what learning would have done is logged.
    Shadow,
    /// A share of the domains goes to learning, the others to the table.
    Split,
}

fn no_mode(name: &str) -> UnknownName {
    UnknownName::new("mode", name, Mode::VARIANTS.iter().copied())
}

impl Mode {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The mode that holds: the command line's, else `LEARNING_MODE_ENABLED` (`true` or `false`), else the config's.
    ///
    /// # Errors
    /// When the variable is neither.
    pub fn resolve(
        command_line: Option<Self>,
        variable: Option<&str>,
        config: Option<Self>,
    ) -> Result<Self, ModeError> {
        let of_variable = match variable.map(str::trim) {
            None | Some("") => None,
            Some(text) if text.eq_ignore_ascii_case("true") || text == "1" => Some(Self::Learning),
            Some(text) if text.eq_ignore_ascii_case("false") || text == "0" => Some(Self::Legacy),
            Some(text) => return Err(ModeError(text.to_owned())),
        };
        Ok(command_line.or(of_variable).or(config).unwrap_or_default())
    }
}

/// `LEARNING_MODE_ENABLED` is neither `true` nor `false`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LEARNING_MODE_ENABLED is {0:?}; it can be \"true\" or \"false\"")]
pub struct ModeError(String);

/// A router table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A line that is no route.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The same domain twice, to different fetchers.
    #[error("{}{domain} is routed to {first} already, and here to {second}", at(*.line))]
    Conflict {
        /// The line of the second route, counted from 1, where the table comes from a file.
        line: Option<usize>,
        /// The domain.
        domain: String,
        /// Its first fetcher.
        first: String,
        /// Its second one.
        second: String,
    },
    /// A route to a fetcher that does not exist.
    #[error("{}the route of {domain}: {fetcher}", at(*.line))]
    UnknownFetcher {
        /// The line, counted from 1, where the table comes from a file.
        line: Option<usize>,
        /// The domain.
        domain: String,
        /// The fetcher, and those there are.
        fetcher: Box<UnknownName>,
    },
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

/// The legacy table: domain to fetcher.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    routes: HashMap<String, Route>,
}

#[derive(Clone, Debug)]
struct Route {
    fetcher: String,
    line: Option<usize>,
}

impl RouteTable {
    /// Adds a route. The domain is read as the `domain` heuristic is: lower case, without `www.`.
    ///
    /// # Errors
    /// [`TableError::Conflict`] when the domain goes elsewhere already.
    pub fn insert(&mut self, domain: &str, fetcher: &str) -> Result<(), TableError> {
        self.add(None, domain, fetcher)
    }

    /// As [`RouteTable::insert`], for a route from this line of a file; errors about it name the line.
    ///
    /// # Errors
    /// [`TableError::Conflict`] when the domain goes elsewhere already.
    pub fn insert_at(&mut self, line: usize, domain: &str, fetcher: &str) -> Result<(), TableError> {
        self.add(Some(line), domain, fetcher)
    }

    fn add(&mut self, line: Option<usize>, domain: &str, fetcher: &str) -> Result<(), TableError> {
        let text = domain.trim();
        let host = url::Host::parse(text).map_or_else(|_| text.to_ascii_lowercase(), |host| host.to_string());
        let domain = domain_of(&host).to_owned();
        let fetcher = canonical(fetcher.trim()).to_owned();
        match self.routes.get(&domain) {
            Some(first) if first.fetcher != fetcher => {
                Err(TableError::Conflict { line, domain, first: first.fetcher.clone(), second: fetcher })
            }
            Some(_) => Ok(()),
            None => {
                self.routes.insert(domain, Route { fetcher, line });
                Ok(())
            }
        }
    }

    /// Whether every route leads to one of the fetchers `known`.
    ///
    /// # Errors
    /// [`TableError::UnknownFetcher`] for the first route that does not.
    pub fn check<'n>(&self, known: impl IntoIterator<Item = &'n str>) -> Result<(), TableError> {
        let known: Vec<&str> = known.into_iter().collect();
        let unknown = self.routes.iter().filter(|(_, route)| !known.contains(&&*route.fetcher));
        match unknown.min_by_key(|(domain, route)| (route.line, *domain)) {
            None => Ok(()),
            Some((domain, route)) => Err(TableError::UnknownFetcher {
                line: route.line,
                domain: domain.clone(),
                fetcher: Box::new(UnknownName::new("fetcher", &route.fetcher, known)),
            }),
        }
    }

    /// The fetcher of `domain`.
    pub fn get(&self, domain: &str) -> Option<&str> {
        self.routes.get(domain).map(|route| &*route.fetcher)
    }

    /// How many domains have a route.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether no domain has one.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The fetchers that are routed to, each once.
    pub fn fetchers(&self) -> impl Iterator<Item = &str> {
        let mut seen: Vec<&str> = self.routes.values().map(|route| &*route.fetcher).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter()
    }
}

/// Why the table arm has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The URL cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The table has no route for the domain.
    #[error("no route for domain {domain}: add it to the router table (--router FILE), or use --mode learning")]
    NoRoute {
        /// The domain.
        domain: String,
    },
    /// The table names a fetcher that is not configured.
    #[error("the route of {domain} names {fetcher}, which is not a configured fetcher")]
    UnknownFetcher {
        /// The domain.
        domain: String,
        /// The fetcher.
        fetcher: String,
    },
}

/// An answer of the router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routed {
    /// What to do.
    pub decision: Decision,
    /// The arm that answered: [`Mode::Learning`] or [`Mode::Legacy`].
    pub arm: Mode,
    /// What the other arm would have taken, where it was asked.
    pub shadow: Option<crate::registry::FetcherId>,
}

/// Chooses the arm for each URL.
#[derive(Clone, Debug, Default)]
pub struct Router {
    /// The mode, unless a link says otherwise.
    pub mode: Mode,
    /// The legacy table.
    pub table: RouteTable,
    /// The share of domains that [`Mode::Split`] gives to learning, 0 to 1.
    pub split_share: f64,
}

impl Router {
    /// Decides about a first attempt. `learning` is the link's own wish, which goes before the mode.
    ///
    /// # Errors
    /// [`RouteError`] when the URL cannot be fetched, or when the table should serve it and cannot.
    pub fn decide(
        &self,
        selector: &Selector,
        url: &Url,
        situation: &Situation,
        learning: Option<bool>,
    ) -> Result<Routed, RouteError> {
        let learned = selector.select(url, situation)?;
        let domain = UrlFeatures::extract(url)?.domain;
        let (serve_table, ask_both) = self.arms(domain, learning);
        let settled = match learned {
            Decision::Paused { .. } => true,
            Decision::Take(take) => take.source == Source::Requested,
            Decision::GiveUp => false,
        };
        if settled || !serve_table {
            let shadow = if ask_both && !settled { self.route(selector, domain).ok() } else { None };
            let arm = if serve_table { Mode::Legacy } else { Mode::Learning };
            return Ok(Routed { decision: learned, arm, shadow });
        }
        let fetcher = self.route(selector, domain)?;
        // Confidence and sample are the evidence's about the routed fetcher, whoever decided.
        let Some(asked) = selector.select(url, &Situation { wanted: Some(fetcher), ..*situation })?.taken() else {
            return Ok(Routed { decision: learned, arm: Mode::Legacy, shadow: None });
        };
        let take = Take { source: Source::HardCoded, rule: Rule::RouterTable, ..asked };
        let shadow = if ask_both { learned.taken().map(|take| take.fetcher) } else { None };
        Ok(Routed { decision: Decision::Take(take), arm: Mode::Legacy, shadow })
    }

    /// The arm that serves `domain`: learning, or the table.
    pub fn arm(&self, domain: &str, learning: Option<bool>) -> Mode {
        if self.arms(domain, learning).0 { Mode::Legacy } else { Mode::Learning }
    }

    /// Whether the table serves `domain`, and whether the other arm is asked too.
    fn arms(&self, domain: &str, learning: Option<bool>) -> (bool, bool) {
        if let Some(learning) = learning {
            return (!learning, false);
        }
        match self.mode {
            Mode::Learning => (false, false),
            Mode::Legacy => (true, false),
            Mode::Shadow => (true, true),
            Mode::Split => {
                let draw = xxh3_64_with_seed(domain.as_bytes(), 0x5711) as f64 / 2f64.powi(64);
                (draw >= self.split_share, true)
            }
        }
    }

    fn route(&self, selector: &Selector, domain: &str) -> Result<crate::registry::FetcherId, RouteError> {
        let Some(fetcher) = self.table.get(domain) else {
            return Err(RouteError::NoRoute { domain: domain.to_owned() });
        };
        selector
            .fetcher_id(fetcher)
            .filter(|id| selector.candidates().any(|(candidate, _)| candidate == *id))
            .ok_or_else(|| RouteError::UnknownFetcher { domain: domain.to_owned(), fetcher: fetcher.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn router(mode: Mode) -> Router {
        let mut table = RouteTable::default();
        table.insert("WWW.Example.com", "simple_http").unwrap();
        table.insert("video.example", "youtube_downloader").unwrap();
        Router { mode, table, split_share: 0.5 }
    }

    fn decide(router: &Router, text: &str, learning: Option<bool>) -> Result<Routed, RouteError> {
        let selector = Selector::builder().build().unwrap();
        let url = Url::parse(text).unwrap();
        router.decide(&selector, &url, &Situation::first(Timestamp::now()), learning)
    }

    fn source(routed: &Routed) -> &'static str {
        routed.decision.taken().unwrap().source.name()
    }

    #[test]
    fn the_table_serves_legacy_and_only_legacy() {
        assert_eq!(source(&decide(&router(Mode::Legacy), "http://www.example.com/a", None).unwrap()), "hard_coded");
        assert_eq!(source(&decide(&router(Mode::Learning), "http://example.com/a", None).unwrap()), "probe");
        assert_eq!(source(&decide(&router(Mode::Legacy), "http://example.com/a", Some(true)).unwrap()), "probe");
        assert_eq!(
            source(&decide(&router(Mode::Learning), "http://example.com/a", Some(false)).unwrap()),
            "hard_coded"
        );
    }

    #[test]
    fn a_domain_without_a_route_is_a_clear_error() {
        let error = decide(&router(Mode::Legacy), "http://other.org/", None).unwrap_err();
        assert!(error.to_string().starts_with("no route for domain other.org"), "{error}");
    }

    #[test]
    fn shadow_serves_the_table_and_names_what_learning_would_take() {
        let routed = decide(&router(Mode::Shadow), "http://video.example/watch", None).unwrap();
        assert_eq!((routed.arm, source(&routed)), (Mode::Legacy, "hard_coded"));
        assert!(routed.shadow.is_some() && routed.shadow != routed.decision.taken().map(|take| take.fetcher));
    }

    #[test]
    fn split_is_stable_and_shares_by_domain() {
        let router = Router { split_share: 0.3, ..router(Mode::Split) };
        let learning = (0..1000).filter(|n| router.arm(&format!("site{n}.org"), None) == Mode::Learning).count();
        assert!((200..400).contains(&learning), "{learning}");
        assert_eq!(router.arm("site1.org", None), router.arm("site1.org", None));
    }

    #[test]
    fn the_nearer_setting_wins() {
        let resolve = |line, variable, config| Mode::resolve(line, variable, config).unwrap();
        assert_eq!(resolve(Some(Mode::Split), Some("false"), Some(Mode::Learning)), Mode::Split);
        assert_eq!(resolve(None, Some("false"), Some(Mode::Learning)), Mode::Legacy);
        assert_eq!(resolve(None, Some("TRUE"), Some(Mode::Legacy)), Mode::Learning);
        assert_eq!(resolve(None, None, Some(Mode::Shadow)), Mode::Shadow);
        assert_eq!(resolve(None, None, None), Mode::Learning);
        assert!(Mode::resolve(None, Some("maybe"), None).is_err());
    }

    #[test]
    fn a_mode_is_read_by_the_name_it_is_shown_with() {
        for name in Mode::VARIANTS {
            let mode: Mode = name.parse().unwrap();
            assert_eq!((mode.to_string().as_str(), mode.name()), (*name, *name));
        }
        let error = "shadwo".parse::<Mode>().unwrap_err().to_string();
        assert!(error.contains("did you mean \"shadow\"?"), "{error}");
    }

    #[test]
    fn one_domain_cannot_go_two_ways() {
        let mut table = RouteTable::default();
        table.insert("a.org", "playwright").unwrap();
        table.insert("www.a.org", "playwright").unwrap();
        table.insert("b\u{fc}cher.de", "playwright").unwrap();
        assert_eq!(table.get("xn--bcher-kva.de"), Some("playwright"));
        assert!(matches!(table.insert("a.org", "direct_access"), Err(TableError::Conflict { .. })));
    }
}
