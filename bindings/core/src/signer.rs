//! A signer of requests, from a config file or from its parts.
//!
//! Invariants: errors are text that names the setting. No text has a private key.
//!
//! Must not know: how a package converts its arguments.

use std::path::{Path, PathBuf};

use fetchwise::config::{Config, SignedHttp, SigningCoverage, SigningForm};
use fetchwise::time::Timestamp;
use fetchwise_identity::{
    Agent, Coverage, Form, FormSetting, KeyDir, KeySource, NotSigned, ToSign,
};
use url::Url;

pub use fetchwise_identity::Signer;

/// Where a signer comes from. What the caller names takes precedence over the file.
#[derive(Clone, Copy, Default)]
pub struct SignerSource<'a> {
    /// A file with the section `[identity]`.
    pub config: Option<&'a Path>,
    /// The https origin that publishes the keys.
    pub agent: Option<&'a str>,
    /// The directory of the keys.
    pub keys: Option<&'a Path>,
    /// The key as PEM, instead of a directory.
    pub key: Option<&'a str>,
}

/// Reads the keys and returns their signer.
///
/// # Errors
/// If the settings or the keys cannot be used.
pub fn open(source: SignerSource<'_>) -> Result<Signer, String> {
    let config = match source.config {
        Some(path) => Config::load(path).map_err(|error| error.to_string())?,
        None => Config::default(),
    };
    let (config, tuning) = (config.identity, config.tuning);
    let agent = source
        .agent
        .or(config.agent.as_deref())
        .ok_or("missing agent: the https origin that publishes the keys")?;
    let agent = Agent::parse(agent).map_err(|error| error.to_string())?;
    let keys = match (
        source.key,
        source.keys,
        config.key_env.as_deref().filter(|name| !name.is_empty()),
        config.keys,
    ) {
        (Some(_), Some(_), ..) => {
            return Err("duplicate key: give a directory or a PEM, not both".to_owned());
        }
        (Some(pem), ..) => KeySource::Text(pem.to_owned()),
        (None, Some(dir), ..) => KeySource::Dir(KeyDir::new(dir)),
        (None, None, Some(name), _) => {
            let pem = std::env::var(name).ok().filter(|pem| !pem.is_empty());
            KeySource::Text(pem.ok_or_else(|| {
                format!("missing key: the variable {name} (identity.key_env) is not set")
            })?)
        }
        (None, None, None, Some(dir)) => KeySource::Dir(KeyDir::new(dir)),
        (None, None, None, None) => KeySource::Dir(KeyDir::new(default_keys()?)),
    };
    let signer =
        Signer::new(agent, keys, now()).map_err(|error| format!("{error}; {}", error.hint()))?;
    let form = match tuning.signature_form.unwrap_or_default() {
        SigningForm::Auto => FormSetting::Auto,
        SigningForm::Dictionary => FormSetting::Always(Form::Dictionary),
        SigningForm::String => FormSetting::Always(Form::String),
    };
    let coverage = match tuning.signature_coverage.unwrap_or_default() {
        SigningCoverage::Request => Coverage::Request,
        SigningCoverage::Authority => Coverage::Authority,
    };
    Ok(signer
        .form(form)
        .coverage(coverage)
        .sign_loopback(tuning.sign_http == Some(SignedHttp::Loopback)))
}

/// Returns the headers of a request's signature, by name. There are none for a URL that is not
/// signed: plain http.
///
/// # Errors
/// If nothing can be signed now, such as without a valid key.
pub fn headers(
    signer: &Signer,
    method: &str,
    url: &Url,
) -> Result<Vec<(&'static str, String)>, String> {
    match signer.sign(&ToSign { method, ..ToSign::get(url) }, now()) {
        Ok(signed) => {
            Ok(signed.iter().into_iter().map(|(name, value)| (name, value.to_owned())).collect())
        }
        Err(NotSigned::NotHttps) => Ok(Vec::new()),
        Err(error) => Err(format!("cannot sign: {error}")),
    }
}

/// Notes the names of a response's headers, which show what form the host's verifier reads.
pub fn observe(signer: &Signer, url: &Url, names: &[String]) {
    let names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    signer.observe(url, names.iter().map(String::as_str), None, now());
}

/// Reads the keys again.
///
/// # Errors
/// If they cannot be used; the signer then keeps those that it has.
pub fn reload(signer: &Signer) -> Result<(), String> {
    signer.reload(now()).map_err(|error| format!("{error}; {}", error.hint()))
}

/// Returns the directory where the program keeps keys.
fn default_keys() -> Result<PathBuf, String> {
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let config =
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    let config = config
        .ok_or("no place for keys: there is no home directory; name the directory of the keys")?;
    Ok(config.join("fetchwise/identity"))
}

fn now() -> i64 {
    Timestamp::date().as_millis().div_euclid(1000)
}
