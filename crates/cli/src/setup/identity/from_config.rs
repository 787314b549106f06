//! The identity of a crawler, from its settings.
//!
//! Invariants: without an agent in the config no key is read, and nothing is signed. A key that
//! cannot be used ends the command before its first request.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use etcetera::BaseStrategy;
use fetchwise::config::{
    IdentityConfig, SignedHttp, SigningBrowserScope, SigningCoverage, SigningForm, SigningMode,
};
use fetchwise::fetch::browser::{BrowserSigning, SignatureScope};
use fetchwise::fetch::signing::RequestSigner;
use fetchwise::identity::card::{Profile, RobotsPromise};
use fetchwise::identity::{
    Agent, Coverage, Form, FormSetting, KeyDir, KeyDirError, KeySource, Registrations, Signer,
    UnixSeconds,
};
use fetchwise::pace::{CrawlDelay, PaceMode, PaceSettings};
use fetchwise::robots::RobotsUse;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use url::Url;

use super::robots_agent;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, note_labelled};

/// The identity of a crawler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    signer: Option<Arc<Signer>>,
    /// Shared by all fetchers, and so is what they see of hosts.
    requests: Option<RequestSigner>,
    user_agent: Option<String>,
    browser_user_agent: Option<String>,
    browser_scope: SignatureScope,
}

impl Identity {
    /// Reads the keys if requests are to be signed.
    pub(crate) fn load(settings: &Settings) -> Result<Self, Failure> {
        let config = &settings.config.identity;
        if signing_mode(settings)? == SigningMode::Never {
            if config.mode.is_none() && config.agent.is_some() {
                note(
                    "warning: requests are not signed: there is no key; create one with `fetchwise identity init`",
                );
            }
            return Ok(Self::default());
        }
        let signer = signer_with(settings, Timestamp::date())?
            .on_warning(|text| note_labelled("warning", text));
        let profile = config.name.is_some().then(|| profile(settings)).transpose()?;
        let browser_scope = match config.browser_scope.unwrap_or_default() {
            SigningBrowserScope::Document => SignatureScope::Document,
            SigningBrowserScope::Site => SignatureScope::Site,
            SigningBrowserScope::All => SignatureScope::All,
        };
        let signer = Arc::new(signer);
        Ok(Self {
            requests: Some(RequestSigner::from(Arc::clone(&signer))),
            signer: Some(signer),
            user_agent: profile.as_ref().map(Profile::user_agent),
            browser_user_agent: profile.as_ref().map(Profile::browser_user_agent),
            browser_scope,
        })
    }

    /// Reads the keys for a server that hands out signatures.
    pub(crate) fn for_clients(settings: &Settings) -> Result<Self, Failure> {
        if settings.config.identity.mode == Some(SigningMode::Never) {
            return Err(Failure::usage(
                "cannot sign requests of clients: identity.mode is \"never\"",
            )
            .advise("remove identity.mode from the config, or run without --sign"));
        }
        let signer = signer_with(settings, Timestamp::date())?
            .on_warning(|text| note_labelled("warning", text));
        Ok(Self { signer: Some(Arc::new(signer)), ..Self::default() })
    }

    /// Returns the signer, if requests are signed.
    pub(crate) fn shared_signer(&self) -> Option<Arc<Signer>> {
        self.signer.clone()
    }

    /// Returns the signer of plain requests, if they are signed.
    pub(crate) fn signer(&self) -> Option<RequestSigner> {
        self.requests.clone()
    }

    /// Returns the `User-Agent` of plain requests, if they are signed.
    pub(crate) fn user_agent(&self) -> Option<&str> {
        self.user_agent.as_deref()
    }

    /// Returns how browsers sign, if requests are signed.
    pub(crate) fn browser(&self) -> Option<BrowserSigning> {
        self.signer().map(|signer| BrowserSigning { signer, scope: self.browser_scope })
    }

    /// Returns the `User-Agent` of browsers that sign, if requests are signed.
    pub(crate) fn browser_user_agent(&self) -> Option<&str> {
        self.browser_user_agent.as_deref()
    }

    /// Makes requests have the form of signature that the vendors of past blocks read, which
    /// `selector` knows.
    pub(crate) fn read_vendors_of(&self, selector: &Arc<Selector>) {
        if let Some(signer) = &self.signer {
            let selector = Arc::downgrade(selector);
            signer.set_known_vendor(move |url| selector.upgrade()?.block_vendor(url));
        }
    }

    /// Reads the keys again.
    pub(crate) fn reload(&self, settings: &Settings) -> Result<(), Failure> {
        match &self.signer {
            Some(signer) => {
                signer.reload(seconds(Timestamp::date())).map_err(|error| failure(settings, &error))
            }
            None => Ok(()),
        }
    }
}

/// Returns which requests are signed: as the config says, else each one if there is a key.
pub(crate) fn signing_mode(settings: &Settings) -> Result<SigningMode, Failure> {
    let config = &settings.config.identity;
    Ok(match settings.config.signing.or(config.mode) {
        Some(mode) => mode,
        None if config.agent.is_some() && has_key(settings)? => SigningMode::Always,
        None => SigningMode::Never,
    })
}

/// Returns the vendors at which the crawler was registered, as the data directory has them.
pub(crate) fn registrations(settings: &Settings) -> Result<Vec<(String, Timestamp)>, Failure> {
    let known = Registrations::read(&settings.data_dir()?).map_err(Failure::usage)?;
    Ok(known
        .iter()
        .map(|(vendor, at_ms)| (vendor.to_owned(), Timestamp::from_millis(at_ms)))
        .collect())
}

/// Returns the signer of the config, whatever its mode is.
pub(crate) fn signer_with(settings: &Settings, now: Timestamp) -> Result<Signer, Failure> {
    let tuning = &settings.config.tuning;
    let (agent, source) = (agent(settings)?, key_source(settings)?);
    let signer =
        Signer::new(agent, source, seconds(now)).map_err(|error| failure(settings, &error))?;
    let form = match tuning.signature_form.unwrap_or_default() {
        SigningForm::Auto => FormSetting::Auto,
        SigningForm::Dictionary => FormSetting::Always(Form::Dictionary),
        SigningForm::String => FormSetting::Always(Form::String),
    };
    let coverage = match tuning.signature_coverage.unwrap_or_default() {
        SigningCoverage::Request => Coverage::Request,
        SigningCoverage::Authority => Coverage::Authority,
    };
    let loopback = tuning.sign_http == Some(SignedHttp::Loopback);
    Ok(signer.form(form).coverage(coverage).sign_loopback(loopback))
}

/// Returns the agent of the config.
pub(crate) fn agent(settings: &Settings) -> Result<Agent, Failure> {
    let given = settings.config.identity.agent.as_deref();
    let given = given.ok_or_else(|| {
        Failure::usage("missing identity.agent: the https origin that publishes the keys")
            .advise("add the section that `fetchwise identity init` prints to the config, and name it with --config")
    })?;
    Agent::parse(given).map_err(Failure::usage)
}

/// Returns the profile that the agent publishes.
pub(crate) fn profile(settings: &Settings) -> Result<Profile, Failure> {
    profile_with(settings, &settings.config.pace())
}

/// Returns the profile that the agent publishes while it keeps to `pace`.
pub(crate) fn profile_with(settings: &Settings, pace: &PaceSettings) -> Result<Profile, Failure> {
    let config = &settings.config;
    let IdentityConfig { about, contact, ips, .. } = config.identity.clone();
    let ips = ips.iter().map(|text| {
        let network =
            text.parse().or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()));
        network.map_err(|_| {
            Failure::usage(format_args!(
                "invalid identity.ips {text:?}: expected a network such as \"192.0.2.0/24\""
            ))
        })
    });
    // As a URL has it: the text may have line ends, which a header cannot have.
    let about = about.map(|about| Url::parse(&about)).transpose();
    let about =
        about.map_err(|error| Failure::usage(format_args!("invalid identity.about: {error}")))?;
    let robots = config.robots.mode;
    Ok(Profile {
        agent: agent(settings)?,
        name: config.identity.name.clone().unwrap_or_else(|| robots_agent(settings).to_owned()),
        about,
        contact,
        ips: ips.collect::<Result<_, _>>()?,
        robots: RobotsPromise {
            obeys: robots == Some(RobotsUse::Obey),
            keeps_delay: matches!(robots, Some(RobotsUse::Obey | RobotsUse::Delay))
                && pace.crawl_delay == CrawlDelay::Minimum
                && pace.mode != PaceMode::Off,
        },
        pace: (pace.mode != PaceMode::Off).then_some((pace.max_rate, pace.max_parallel)),
    })
}

/// Returns the place of the keys.
pub(crate) fn key_source(settings: &Settings) -> Result<KeySource, Failure> {
    match key_variable(settings) {
        None => key_dir(settings).map(KeySource::Dir),
        Some(name) => match env::var(name) {
            Ok(text) if !text.is_empty() => Ok(KeySource::Text(text)),
            _ => Err(Failure::usage(format_args!(
                "missing key: the variable {name} (identity.key_env) is not set"
            ))
            .advise(
                "set it to the PEM of an Ed25519 key, or remove identity.key_env to use files",
            )),
        },
    }
}

/// Returns the directory of the keys.
pub(crate) fn key_dir(settings: &Settings) -> Result<KeyDir, Failure> {
    if let Some(name) = key_variable(settings) {
        return Err(Failure::usage(KeyDirError::Variable(name.to_owned()))
            .advise(KeyDirError::Variable(name.to_owned()).hint()));
    }
    let path: PathBuf = match &settings.config.identity.keys {
        Some(path) => path.clone(),
        None => {
            let base = etcetera::choose_base_strategy().map_err(|_| {
                Failure::usage("no place for keys: there is no home directory")
                    .advise("set identity.keys in the config")
            })?;
            base.config_dir().join("fetchwise/identity")
        }
    };
    Ok(KeyDir::new(path))
}

fn key_variable(settings: &Settings) -> Option<&str> {
    settings.config.identity.key_env.as_deref().filter(|name| !name.is_empty())
}

fn has_key(settings: &Settings) -> Result<bool, Failure> {
    match key_variable(settings) {
        Some(name) => Ok(env::var_os(name).is_some_and(|text| !text.is_empty())),
        None => Ok(key_dir(settings)?.has_keys()),
    }
}

/// Returns the failure for an error of keys, with the way out.
pub(crate) fn failure(settings: &Settings, error: &KeyDirError) -> Failure {
    let text = match (error, key_variable(settings)) {
        (KeyDirError::Key { error, .. }, Some(name)) => {
            format!("invalid key in the variable {name}: {error}")
        }
        _ => error.to_string(),
    };
    let failure = Failure::usage(text);
    let hint = match key_variable(settings) {
        Some(_) => "set the variable to the PEM of an Ed25519 key of your own".to_owned(),
        None => error.hint(),
    };
    failure.advise(hint)
}

/// Returns a time as the identity counts it.
pub(crate) fn seconds(time: Timestamp) -> UnixSeconds {
    time.as_millis().div_euclid(1000)
}
