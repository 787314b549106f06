//! The candidates of a crawler that signs: those that sign join their unsigned twins, or replace
//! them.
//!
//! Owns: what a mode means for the list of candidates.
//!
//! Invariants: without a mode the list stays as the config has it.
//!
//! Must not know: keys.

use super::build::FetchMethod;
use super::{Config, FetcherConfig, SigningMode, built_in_fetchers};
use crate::selector::SelectorBuilder;
use fetchwise_types::registry::{Class, FetcherSpec, PROBE_FETCHER, SIGNED, canonical};

/// The shipped fetchers that can sign.
const SHIPPED: &[&str] = &["direct_signed", "browser_signed"];

impl Config {
    /// Returns the candidates for `fetchers`, in their order. With `learned`, a fetcher that signs
    /// stands before its twin. With `always` it stands in its place, and no fetcher is left that
    /// hides its automation. With `never` no candidate signs.
    pub fn with_signed_arms(&self, fetchers: Vec<FetcherSpec>) -> Vec<FetcherSpec> {
        let Some(mode) = self.signing else { return fetchers };
        let is_listed = |name: &str| fetchers.iter().any(|spec| *spec.name == *name);
        let mut candidates = Vec::with_capacity(fetchers.len() + SHIPPED.len());
        for spec in &fetchers {
            if mode == SigningMode::Never {
                candidates.extend((!spec.signed).then(|| spec.clone()));
                continue;
            }
            let arm =
                SIGNED.iter().find(|(arm, twin)| SHIPPED.contains(arm) && *twin == &*spec.name);
            let arm = arm.filter(|_| !spec.signed && self.can_be_signed(&spec.name));
            if let Some((arm, _)) = arm.filter(|(arm, _)| !is_listed(arm)) {
                let name = FetcherSpec::by_name(arm).name;
                candidates.push(FetcherSpec { name, ..spec.clone() }.signed_twin_of(&spec.name));
            }
            match mode {
                SigningMode::Always if arm.is_some() || spec.class == Class::Stealth => {}
                // The other fetchers of the config sign under their own names.
                SigningMode::Always if self.is_signable(&spec.name) => {
                    candidates.push(spec.clone().signed())
                }
                _ => {
                    let declared =
                        spec.declared || self.names_itself() && self.is_plain(&spec.name);
                    candidates.push(FetcherSpec { declared, ..spec.clone() });
                }
            }
        }
        candidates
    }

    /// Returns a selector's builder as [`Config::selector`] does. Without `[[fetcher]]` the
    /// candidates are the built-in fetchers, with those that sign.
    pub fn selector_with_built_in(&self) -> SelectorBuilder {
        let builder = self.selector();
        match self.fetchers.is_empty() {
            true => self
                .with_signed_arms(built_in_fetchers())
                .into_iter()
                .fold(builder, SelectorBuilder::fetcher),
            false => builder,
        }
    }

    /// Returns whether unsigned plain requests carry the crawler's product token.
    fn names_itself(&self) -> bool {
        let Some(name) = &self.identity.name else { return false };
        self.http.user_agent.as_ref().is_none_or(|agent| agent.contains(name.as_str()))
    }

    /// Returns whether the shipped fetcher of this name is used as it is.
    fn can_be_signed(&self, name: &str) -> bool {
        self.listed(name).is_none_or(|fetcher| {
            matches!(fetcher.method(), FetchMethod::Direct | FetchMethod::Browser)
        })
    }

    /// Returns whether the fetcher makes plain requests to the site itself.
    fn is_plain(&self, name: &str) -> bool {
        self.listed(name).map_or(name == PROBE_FETCHER, FetcherConfig::is_plain)
    }

    /// Returns whether fetchwise can sign the requests of a fetcher of the config, or a client can
    /// to which a server hands the signatures.
    fn is_signable(&self, name: &str) -> bool {
        let is_plain_client = |fetcher: &FetcherConfig| {
            fetcher.method() == FetchMethod::External && fetcher.spec().class == Class::Plain
        };
        self.listed(name).is_some_and(|fetcher| fetcher.can_sign() || is_plain_client(fetcher))
    }

    fn listed(&self, name: &str) -> Option<&FetcherConfig> {
        self.fetchers.iter().find(|fetcher| canonical(&fetcher.name) == name)
    }
}

impl FetcherConfig {
    /// Returns whether fetchwise can sign its requests: those that it makes to the site itself,
    /// without hiding.
    pub fn can_sign(&self) -> bool {
        let is_browser = match self.method() {
            FetchMethod::Browser => canonical(&self.name) != "playwright_stealth",
            method => method == FetchMethod::Like("playwright"),
        };
        self.is_plain() || is_browser && self.proxy.is_none()
    }

    fn is_plain(&self) -> bool {
        self.proxy.is_none()
            && matches!(self.method(), FetchMethod::Direct | FetchMethod::Like(PROBE_FETCHER))
    }

    /// Returns the spec of a fetcher that the config says to sign.
    pub(super) fn signed_spec(&self, spec: FetcherSpec) -> FetcherSpec {
        match (self.signed, self.method()) {
            (Some(true), FetchMethod::Like(twin)) if twin != &*spec.name => {
                spec.signed_twin_of(twin)
            }
            (Some(true), _) => spec.signed(),
            _ => spec,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn candidates(text: &str, mode: SigningMode) -> Vec<String> {
        let mut config = Config::from_toml(text, Path::new("c.toml")).unwrap();
        config.signing = Some(mode);
        let selector = config.selector_with_built_in().build().unwrap();
        let shown = |spec: &FetcherSpec| {
            let marks = [(spec.signed, "+"), (!spec.declared, "?")]
                .map(|(is, mark)| if is { mark } else { "" });
            format!("{}{}", spec.name, marks.concat())
        };
        selector.candidates().map(|(_, spec)| shown(spec)).take(5).collect()
    }

    #[test]
    fn the_mode_decides_who_is_a_candidate() {
        let named = "[identity]\nagent = 'https://bot.example'\nname = 'Bot'\n";
        let never = candidates(named, SigningMode::Never);
        assert_eq!(never[..3], ["direct_access?", "playwright?", "playwright_stealth?"]);
        let learned = candidates(named, SigningMode::Learned);
        let arms = [
            "direct_signed+",
            "direct_access",
            "browser_signed+",
            "playwright?",
            "playwright_stealth?",
        ];
        assert_eq!(learned, arms);
        let always = candidates(named, SigningMode::Always);
        assert_eq!(always[..3], ["direct_signed+", "browser_signed+", "archive_proxy"]);
        let other_agent = format!("{named}[http]\nuser_agent = 'Mozilla'\n");
        assert_eq!(candidates(&other_agent, SigningMode::Learned)[1], "direct_access?");
    }

    #[test]
    fn listed_fetchers_keep_their_settings_and_sign_where_they_can() {
        let listed = "[[fetcher]]\nname = 'direct_access'\ncost = 2.0\n[[fetcher]]\nname = 'far'\nlike = 'direct_access'\n\
                      proxy = 'http://127.0.0.1:1'\n[[fetcher]]\nname = 'mine'\nlike = 'direct_access'\nsigned = true\n";
        assert_eq!(
            candidates(listed, SigningMode::Learned),
            ["direct_signed+", "direct_access?", "far?", "mine+"]
        );
        assert_eq!(candidates(listed, SigningMode::Always), ["direct_signed+", "far?", "mine+"]);
        assert_eq!(candidates(listed, SigningMode::Never), ["direct_access?", "far?"]);
        // A client of a server has them.
        let clients = "[[fetcher]]\nname = 'theirs'\nclass = 'plain'\n[[fetcher]]\nname = 'tab'\nclass = 'rendering'\n";
        assert_eq!(candidates(clients, SigningMode::Learned), ["theirs?", "tab?"]);
        assert_eq!(candidates(clients, SigningMode::Always), ["theirs+", "tab?"]);
        let mut config = Config::from_toml(listed, Path::new("c.toml")).unwrap();
        let names = |config: &Config| {
            let selector = config.selector().build().unwrap();
            selector
                .candidates()
                .map(|(_, spec)| (spec.name.to_string(), spec.cost))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&config).len(), 3);
        config.signing = Some(SigningMode::Always);
        assert_eq!(names(&config)[0], ("direct_signed".to_owned(), 2.0));
        let own = "[[fetcher]]\nname = 'a'\narchive = {}\nsigned = true\n";
        assert!(
            Config::from_toml(own, Path::new("c.toml"))
                .unwrap_err()
                .to_string()
                .contains("fetcher.0.signed")
        );
    }
}
