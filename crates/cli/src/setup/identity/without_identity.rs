//! A build without signed requests: a config that asks for them is refused.
//!
//! Invariants: the signatures are those of `from_config`.

use std::sync::Arc;

use fetchwise::config::SigningMode;
use fetchwise::fetch::browser::BrowserSigning;
use fetchwise::fetch::signing::RequestSigner;
use fetchwise::pace::PaceSettings;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_serve::Publisher;

use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;

/// Returns that no request is signed.
pub(crate) fn signing_mode(_: &Settings) -> Result<SigningMode, Failure> {
    Ok(SigningMode::Never)
}

/// Returns that the crawler is registered nowhere.
pub(crate) fn registrations(_: &Settings) -> Result<Vec<(String, Timestamp)>, Failure> {
    Ok(Vec::new())
}

/// No identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity;

impl Identity {
    /// Fails if requests should be signed.
    pub(crate) fn load(settings: &Settings) -> Result<Self, Failure> {
        let config = &settings.config.identity;
        match (config.mode, &config.agent) {
            (Some(SigningMode::Never), _) | (None, None) => Ok(Self),
            _ => Err(Failure::missing_feature("identity.agent", "identity")),
        }
    }

    /// Fails: a server signs for its clients only with the feature.
    pub(crate) fn for_clients(_: &Settings) -> Result<Self, Failure> {
        Err(Failure::missing_feature("the option --sign", "identity"))
    }

    pub(crate) fn signer(&self) -> Option<RequestSigner> {
        None
    }

    pub(crate) fn user_agent(&self) -> Option<&str> {
        None
    }

    pub(crate) fn browser(&self) -> Option<BrowserSigning> {
        None
    }

    pub(crate) fn browser_user_agent(&self) -> Option<&str> {
        None
    }

    pub(crate) fn read_vendors_of(&self, _: &Arc<Selector>) {}

    pub(crate) fn reload(&self, _: &Settings) -> Result<(), Failure> {
        Ok(())
    }
}

/// Fails: a server publishes an agent only with the feature.
pub(crate) fn publisher(_: &Settings, _: &PaceSettings) -> Result<Arc<dyn Publisher>, Failure> {
    Err(Failure::missing_feature("the option --public", "identity"))
}

/// Returns none.
pub(crate) fn request_signer(_: &Identity) -> Option<Arc<dyn fetchwise_serve::RequestSigner>> {
    None
}
