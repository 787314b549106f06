//! The identity of a server: what it publishes, and the signatures that it hands out.
//!
//! Invariants: keys that can no longer be read change nothing that is published. The reason is
//! reported once.

use std::sync::{Arc, Mutex, PoisonError};

use fetchwise::identity::card::{CARD_PATH, PAGE_PATH, Profile, RANGES_MEDIA_TYPE, RANGES_PATH};
use fetchwise::identity::{KeySet, KeySource, NotSigned, Signer, ToSign, directory};
use fetchwise::pace::PaceSettings;
use fetchwise::rfc3339;
use fetchwise::time::Clock;
use fetchwise_serve::{PublicDocument, Publisher, RequestSigner, SignatureHeaders, Unsigned};
use url::Url;

use super::from_config::{Identity, failure, key_source, profile_with, seconds};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::note_labelled;

/// Seconds for which others may cache everything but the directory.
const MAX_AGE_S: u32 = 3600;

/// Returns the documents of the agent, which keeps to `pace`.
pub(crate) fn publisher(
    settings: &Settings,
    pace: &PaceSettings,
) -> Result<Arc<dyn Publisher>, Failure> {
    let profile = profile_with(settings, pace)?;
    let source = key_source(settings)?;
    let keys = source.load().map_err(|error| failure(settings, &error))?;
    Ok(Arc::new(PublishedAgent {
        authority: profile.agent.authority(),
        ranges: profile.ranges(&rfc3339::format(settings.clock.date())),
        card: profile.card(),
        page: profile.page(),
        profile,
        source,
        keys: Mutex::new(ReadKeys { keys, has_warned: false }),
        clock: Arc::clone(&settings.clock),
    }))
}

/// Returns the signer of requests that clients of a server make.
pub(crate) fn request_signer(identity: &Identity) -> Option<Arc<dyn RequestSigner>> {
    identity.shared_signer().map(|signer| Arc::new(ServerSigner(signer)) as Arc<dyn RequestSigner>)
}

/// The documents of an agent.
struct PublishedAgent {
    profile: Profile,
    authority: String,
    card: String,
    page: String,
    ranges: String,
    source: KeySource,
    keys: Mutex<ReadKeys>,
    clock: Arc<Clock>,
}

/// The keys as they were last read.
struct ReadKeys {
    keys: KeySet,
    has_warned: bool,
}

impl std::fmt::Debug for PublishedAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishedAgent").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl PublishedAgent {
    /// Returns the keys on disk. A new key has to be published at once.
    fn keys(&self) -> KeySet {
        let loaded = self.source.load();
        let mut read = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(keys) => {
                read.keys = keys;
                read.has_warned = false;
            }
            Err(error) if !read.has_warned => {
                read.has_warned = true;
                let words = format!(
                    "cannot read the keys of the identity again, the published ones stay: {error}"
                );
                note_labelled("warning", words);
            }
            Err(_) => {}
        }
        read.keys.clone()
    }
}

impl Publisher for PublishedAgent {
    fn authority(&self) -> &str {
        &self.authority
    }

    fn documents(&self) -> Vec<PublicDocument> {
        let now = seconds(self.clock.date());
        let keys = self.keys();
        let body = directory::body(&keys, now);
        let signed = directory::sign(&keys, &self.profile.agent.authority(), &body, now);
        let (mut headers, mut refreshed) = (Vec::new(), Vec::new());
        if !signed.signature.is_empty() {
            headers.push(("content-digest", signed.content_digest));
            refreshed.extend([("signature-input", signed.input), ("signature", signed.signature)]);
        }
        let directory = PublicDocument {
            path: directory::WELL_KNOWN,
            content_type: directory::MEDIA_TYPE,
            body,
            max_age_s: u32::try_from(directory::MAX_AGE).unwrap_or(MAX_AGE_S),
            headers,
            refreshed,
        };
        let document = |path, content_type, body: &String| PublicDocument {
            path,
            content_type,
            body: body.clone(),
            max_age_s: MAX_AGE_S,
            headers: Vec::new(),
            refreshed: Vec::new(),
        };
        let mut page = document(PAGE_PATH, "text/html; charset=utf-8", &self.page);
        page.headers.push(("content-security-policy", "default-src 'none'".to_owned()));
        vec![
            directory,
            page,
            document(CARD_PATH, "application/json", &self.card),
            document(RANGES_PATH, RANGES_MEDIA_TYPE, &self.ranges),
        ]
    }
}

/// Signs what clients of a server request.
#[derive(Debug)]
struct ServerSigner(Arc<Signer>);

impl RequestSigner for ServerSigner {
    fn sign(&self, method: &str, url: &Url) -> Result<SignatureHeaders, Unsigned> {
        let request = ToSign { method, ..ToSign::get(url) };
        let now = seconds(fetchwise::time::Timestamp::date());
        match self.0.sign(&request, now) {
            Ok(signed) => Ok(signed
                .iter()
                .into_iter()
                .map(|(name, value)| (name, value.to_owned()))
                .collect()),
            Err(error @ (NotSigned::NotHttps | NotSigned::BadHeader)) => {
                Err(Unsigned::Request(error.to_string()))
            }
            Err(error) => Err(Unsigned::Now(error.to_string())),
        }
    }

    fn observe(&self, url: &Url, headers: &[&str]) {
        let now = seconds(fetchwise::time::Timestamp::date());
        // A client's dates say nothing about this machine's clock.
        self.0.observe(url, headers.iter().copied(), None, now);
    }
}
