//! Signed requests as a server receives them, and a verifier that shares no code with the signer.

use fetchwise::identity::{Agent, FormSetting, KeySet, KeySource, ServerDate, Signer, SigningKey};
use web_bot_auth::WebBotAuthVerifier;
use web_bot_auth::components::{CoveredComponent, DerivedComponent, HTTPField};
use web_bot_auth::keyring::{Algorithm, KeyRing};
use web_bot_auth::message_signatures::SignedMessage;

/// A request as a server received it.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) authority: String,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) version: http::Version,
}

impl ReceivedRequest {
    pub(crate) fn of<B>(request: &http::Request<B>) -> Self {
        let host = request.headers().get("host").map(|value| value.to_str().unwrap().to_owned());
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        Self {
            method: request.method().to_string(),
            authority: host.or_else(|| request.uri().authority().map(ToString::to_string)).unwrap(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().map(str::to_owned),
            headers: request
                .headers()
                .iter()
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
            version: request.version(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn nonce(&self) -> String {
        let input = self.header("signature-input").unwrap();
        input.split_once(";nonce=\"").unwrap().1.split_once('"').unwrap().0.to_owned()
    }

    pub(crate) fn is_valid(&self, keys: &KeyRing) -> bool {
        WebBotAuthVerifier::parse(self).is_ok_and(|parsed| parsed.verify(keys, None).is_ok())
    }
}

impl SignedMessage for ReceivedRequest {
    fn lookup_component(&self, component: &CoveredComponent) -> Vec<String> {
        match component {
            CoveredComponent::Derived(DerivedComponent::Authority { .. }) => {
                vec![self.authority.clone()]
            }
            CoveredComponent::Derived(DerivedComponent::Method { .. }) => vec![self.method.clone()],
            CoveredComponent::Derived(DerivedComponent::Path { .. }) => vec![self.path.clone()],
            CoveredComponent::Derived(DerivedComponent::Query { .. }) => {
                vec![format!("?{}", self.query.as_deref().unwrap_or_default())]
            }
            CoveredComponent::HTTP(HTTPField { name, parameters }) => {
                let value = self.header(name).map(str::to_owned);
                let member = |value: String| match parameters.0.is_empty() {
                    true => value,
                    // A dictionary with one member.
                    false => value.split_once('=').unwrap().1.to_owned(),
                };
                value.map(member).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the public keys, as the verifier has them.
pub(crate) fn keyring(keys: &KeySet) -> KeyRing {
    use base64::Engine as _;
    let mut ring = KeyRing::default();
    for entry in keys.entries() {
        let x = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(entry.key.x()).unwrap();
        ring.import_raw(entry.key.kid().to_owned(), Algorithm::Ed25519, x);
    }
    ring
}

/// Returns a signer with a new key.
pub(crate) fn signer(form: FormSetting) -> Signer {
    let (_, pem) = SigningKey::generate().unwrap();
    let now = fetchwise::time::Timestamp::now().as_millis() / 1000;
    Signer::new(Agent::parse("https://bot.example").unwrap(), KeySource::Text(pem), now)
        .unwrap()
        .form(form)
}

/// Makes this machine's clock look wrong to a signer: five hosts show a time two minutes earlier.
pub(crate) fn see_wrong_clock(signer: &Signer) {
    let now = fetchwise::time::Timestamp::now().as_millis() / 1000;
    for n in 0..5 {
        let url = format!("https://{n}.example/").parse().unwrap();
        let date = ServerDate { date: now - 120, peer: None };
        signer.observe(&url, [].into_iter(), Some(date), now);
    }
}
