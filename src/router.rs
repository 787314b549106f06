//! The router: chooses the arm that serves a URL, the manual table or the learned evidence.
//!
//! A decision considers, in this order: a pause, the caller's hint, the mode.
//!
//! Owns: modes, their precedence and the legacy table.
//!
//! Must not know: how learning decides, which the selector owns.

use std::collections::HashMap;
use std::sync::Arc;

use strum::VariantNames;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use fetchwise_types::decision::Decision;
use fetchwise_types::heuristic::url::{UrlError, domain_of};
use fetchwise_types::registry::canonical;
use fetchwise_types::time::Timestamp;
use fetchwise_types::unknown_name::UnknownName;

/// The mode of a router: which arm serves.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    VariantNames,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_mode)]
pub enum Mode {
    /// Evidence serves, with probes for hosts without any.
    #[default]
    Learning,
    /// The table only.
    Legacy,
    /// The table serves; the choice of learning is logged.
    Shadow,
    /// Learning serves a share of the domains, the table all others.
    Split,
}

fn no_mode(name: &str) -> UnknownName {
    UnknownName::new("mode", name, Mode::VARIANTS.iter().copied())
}

impl Mode {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the effective mode: the command line's, else `LEARNING_MODE_ENABLED` (`true` or
    /// `false`), else the config's.
    ///
    /// # Errors
    /// [`ModeError`] when the variable is neither.
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

/// The error of an invalid `LEARNING_MODE_ENABLED`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid LEARNING_MODE_ENABLED {0:?}: expected \"true\" or \"false\"")]
pub struct ModeError(String);

/// The error of an invalid router table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// An invalid line.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is invalid.
        reason: String,
    },
    /// Two routes of one domain to different fetchers.
    #[error("{}duplicate route of {domain}: {first} before, {second} here", at(*.line))]
    Conflict {
        /// The line of the second route, counted from 1, if the table comes from a file.
        line: Option<usize>,
        /// The domain.
        domain: String,
        /// Its first fetcher.
        first: String,
        /// Its second one.
        second: String,
    },
    /// A route to an unknown fetcher.
    #[error("{}the route of {domain}: {fetcher}", at(*.line))]
    UnknownFetcher {
        /// The line, counted from 1, if the table comes from a file.
        line: Option<usize>,
        /// The domain.
        domain: String,
        /// The fetcher, and the valid names.
        fetcher: Box<UnknownName>,
    },
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

/// The legacy table: domain to fetcher. Cloning it copies no route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    routes: Arc<HashMap<String, Route>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    fetcher: String,
    line: Option<usize>,
}

impl RouteTable {
    /// Adds a route. The domain is normalized like the `domain` heuristic: lower case, without
    /// `www.`.
    ///
    /// # Errors
    /// [`TableError::Conflict`] when the domain has a route to another fetcher.
    pub fn insert(&mut self, domain: &str, fetcher: &str) -> Result<(), TableError> {
        self.add(None, domain, fetcher)
    }

    /// Adds a route like [`RouteTable::insert`], from this line of a file; its errors name the
    /// line.
    ///
    /// # Errors
    /// [`TableError::Conflict`] when the domain has a route to another fetcher.
    pub fn insert_at(
        &mut self,
        line: usize,
        domain: &str,
        fetcher: &str,
    ) -> Result<(), TableError> {
        self.add(Some(line), domain, fetcher)
    }

    fn add(&mut self, line: Option<usize>, domain: &str, fetcher: &str) -> Result<(), TableError> {
        let text = domain.trim();
        let host = url::Host::parse(text)
            .map_or_else(|_| text.to_ascii_lowercase(), |host| host.to_string());
        let domain = domain_of(&host).to_owned();
        let fetcher = canonical(fetcher.trim()).to_owned();
        match self.routes.get(&domain) {
            Some(first) if first.fetcher != fetcher => Err(TableError::Conflict {
                line,
                domain,
                first: first.fetcher.clone(),
                second: fetcher,
            }),
            Some(_) => Ok(()),
            None => {
                Arc::make_mut(&mut self.routes).insert(domain, Route { fetcher, line });
                Ok(())
            }
        }
    }

    /// Checks that every route leads to one of the fetchers `known`.
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

    /// Returns the fetcher of `domain`.
    pub fn get(&self, domain: &str) -> Option<&str> {
        self.routes.get(domain).map(|route| &*route.fetcher)
    }

    /// Returns the number of domains with a route.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns whether the table has no route.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Returns the routes, domain and fetcher, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.routes.iter().map(|(domain, route)| (&**domain, &*route.fetcher))
    }

    /// Returns the fetchers of all routes, without duplicates.
    pub fn fetchers(&self) -> impl Iterator<Item = &str> {
        let mut seen: Vec<&str> = self.routes.values().map(|route| &*route.fetcher).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter()
    }
}

/// The error of a router that cannot be activated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// The mode needs the table, which is empty.
    #[error("mode {} needs a router table", .mode.name())]
    NoTable {
        /// The mode.
        mode: Mode,
    },
    /// The share is not between 0 and 1.
    #[error("invalid split share {share}: expected 0 to 1")]
    InvalidShare {
        /// The requested share.
        share: f64,
    },
    /// A route leads to a fetcher that is not a candidate.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A fallback: learning was taken out of service, because it did worse than the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    /// Time of the fallback.
    pub at: Timestamp,
    /// The previous mode.
    pub from: Mode,
    /// The share that learning had in [`Mode::Split`].
    pub split_share: f64,
    /// The reason, for people, with its figures.
    pub reason: String,
}

/// The error of a decision by the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The URL cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The table has no route for the domain.
    #[error(
        "no route for domain {domain}: add it to the router table (--router FILE), or use --mode learning"
    )]
    NoRoute {
        /// The domain.
        domain: String,
    },
    /// The table names a fetcher that is not configured.
    #[error("invalid route of {domain}: {fetcher} is not a configured fetcher")]
    UnknownFetcher {
        /// The domain.
        domain: String,
        /// The fetcher.
        fetcher: String,
    },
}

/// A decision of the router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routed {
    /// The decision.
    pub decision: Decision,
    /// The arm that made it: [`Mode::Learning`] or [`Mode::Legacy`].
    pub arm: Mode,
    /// The choice of the other arm, if it was computed.
    pub shadow: Option<fetchwise_types::registry::FetcherId>,
}

/// Chooses the arm for each URL.
///
/// A selector's router can be replaced while it runs:
/// [`Selector::set_router`](crate::Selector::set_router).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Router {
    /// The mode, unless a link chooses its arm.
    pub mode: Mode,
    /// The legacy table.
    pub table: RouteTable,
    /// The share of domains that [`Mode::Split`] gives to learning, 0 to 1.
    pub split_share: f64,
}

impl Router {
    /// Returns the arm that serves `domain`: learning, or the table.
    pub fn arm(&self, domain: &str, learning: Option<bool>) -> Mode {
        if self.arms(domain, learning, false).0 { Mode::Legacy } else { Mode::Learning }
    }

    /// Checks that the router can serve with a selector whose candidates are `known`.
    ///
    /// # Errors
    /// [`RouterError`] says what is missing.
    pub fn check<'n>(&self, known: impl IntoIterator<Item = &'n str>) -> Result<(), RouterError> {
        if !(0.0..=1.0).contains(&self.split_share) {
            return Err(RouterError::InvalidShare { share: self.split_share });
        }
        if self.mode != Mode::Learning && self.table.is_empty() {
            return Err(RouterError::NoTable { mode: self.mode });
        }
        Ok(self.table.check(known)?)
    }

    /// Returns whether only learning decides, except for links that choose their arm.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode == Mode::Learning
    }

    /// Returns whether the table serves `domain`, and whether the other arm decides as well. After
    /// a fallback the table serves every domain that it knows: a domain without a route could not
    /// be fetched at all.
    pub(crate) fn arms(
        &self,
        domain: &str,
        learning: Option<bool>,
        has_fallen: bool,
    ) -> (bool, bool) {
        if let Some(learning) = learning {
            return (!learning, false);
        }
        match self.mode {
            Mode::Learning | Mode::Split if has_fallen => (self.table.get(domain).is_some(), true),
            Mode::Learning => (false, false),
            Mode::Legacy => (true, false),
            Mode::Shadow => (true, true),
            Mode::Split => {
                let draw = xxh3_64_with_seed(domain.as_bytes(), 0x5711) as f64 / 2f64.powi(64);
                (draw >= self.split_share, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(mode: Mode) -> Router {
        let mut table = RouteTable::default();
        table.insert("WWW.Example.com", "simple_http").unwrap();
        table.insert("video.example", "youtube_downloader").unwrap();
        Router { mode, table, split_share: 0.5 }
    }

    #[test]
    fn split_is_stable_and_shares_by_domain() {
        let router = Router { split_share: 0.3, ..router(Mode::Split) };
        let learning = (0..1000)
            .filter(|n| router.arm(&format!("site{n}.org"), None) == Mode::Learning)
            .count();
        assert!((200..400).contains(&learning), "{learning}");
        assert_eq!(router.arm("site1.org", None), router.arm("site1.org", None));
    }

    #[test]
    fn the_more_specific_setting_wins() {
        let resolve = |line, variable, config| Mode::resolve(line, variable, config).unwrap();
        assert_eq!(resolve(Some(Mode::Split), Some("false"), Some(Mode::Learning)), Mode::Split);
        assert_eq!(resolve(None, Some("false"), Some(Mode::Learning)), Mode::Legacy);
        assert_eq!(resolve(None, Some("TRUE"), Some(Mode::Legacy)), Mode::Learning);
        assert_eq!(resolve(None, None, Some(Mode::Shadow)), Mode::Shadow);
        assert_eq!(resolve(None, None, None), Mode::Learning);
        assert!(Mode::resolve(None, Some("maybe"), None).is_err());
    }

    #[test]
    fn a_mode_parses_from_its_displayed_name() {
        for name in Mode::VARIANTS {
            let mode: Mode = name.parse().unwrap();
            assert_eq!((mode.to_string().as_str(), mode.name()), (*name, *name));
        }
        let error = "shadwo".parse::<Mode>().unwrap_err().to_string();
        assert!(error.contains("did you mean \"shadow\"?"), "{error}");
    }

    #[test]
    fn one_domain_cannot_have_two_routes() {
        let mut table = RouteTable::default();
        table.insert("a.org", "playwright").unwrap();
        table.insert("www.a.org", "playwright").unwrap();
        table.insert("b\u{fc}cher.de", "playwright").unwrap();
        assert_eq!(table.get("xn--bcher-kva.de"), Some("playwright"));
        assert!(matches!(table.insert("a.org", "direct_access"), Err(TableError::Conflict { .. })));
    }
}
