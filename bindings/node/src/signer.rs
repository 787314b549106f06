//! Signatures of requests. Signing takes some 30 microseconds.

use std::collections::HashMap;
use std::path::Path;

use fetchwise_bindings_core::signer::{self, Signer as CoreSigner, SignerSource};
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;

use crate::convert;
use crate::errors::{Code, Failure};

type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// Options of a signer.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct SignerOptions {
    /// A TOML file with the section `[identity]`. The other options take precedence over it.
    pub config: Option<String>,
    /// The https origin that publishes the keys.
    pub agent: Option<String>,
    /// The directory of the keys.
    pub keys: Option<String>,
    /// The key as PEM, instead of a directory.
    pub key: Option<String>,
}

/// A signer of requests (Web Bot Auth), with the keys of `fetchwise identity`. The keys are read
/// again every hour.
#[napi]
pub struct Signer {
    core: CoreSigner,
}

#[napi]
impl Signer {
    /// Reads the keys.
    #[napi(constructor, catch_unwind)]
    pub fn new(options: SignerOptions) -> Result<Self> {
        let SignerOptions { config, agent, keys, key } = &options;
        let source = SignerSource {
            config: config.as_deref().map(Path::new),
            agent: agent.as_deref(),
            keys: keys.as_deref().map(Path::new),
            key: key.as_deref(),
        };
        Ok(Self { core: signer::open(source).map_err(Failure::config)? })
    }

    /// The origin that publishes the keys.
    #[napi(getter, catch_unwind)]
    pub fn agent(&self) -> String {
        self.core.agent().origin().to_owned()
    }

    /// Returns the headers of one request's signature, which is valid for a minute. Each redirect
    /// and each repetition needs a separate one. A plain http URL is not signed: the result is
    /// empty.
    #[napi(catch_unwind, ts_return_type = "Record<string, string>")]
    pub fn headers(
        &self,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        method: Option<String>,
    ) -> Result<HashMap<&'static str, String>> {
        let url = convert::url(&url)?;
        let signed = signer::headers(&self.core, method.as_deref().unwrap_or("GET"), &url);
        Ok(signed.map_err(Failure::misuse)?.into_iter().collect())
    }

    /// Notes the names of a response's headers: they show what form of signature the host reads.
    #[napi(catch_unwind)]
    pub fn observe(
        &self,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        names: Vec<String>,
    ) -> Result<()> {
        signer::observe(&self.core, &convert::url(&url)?, &names);
        Ok(())
    }

    /// Reads the keys again, after a rotation.
    #[napi(catch_unwind)]
    pub fn reload(&self) -> Result<()> {
        Ok(signer::reload(&self.core).map_err(Failure::config)?)
    }
}
