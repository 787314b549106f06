//! Checking of own requests: is the signature one that a verifier with the own keys accepts?
//!
//! Must not know: the network. The keys are the own ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sfv::{Dictionary, InnerList, ListEntry, Parser};
use url::Url;

use crate::agent::{Agent, authority_of};
use crate::key_set::{KeySet, KeyState};
use crate::lifetime::UnixSeconds;
use crate::message::{Component, Message, base, value_text};

/// Largest number of header lines of a request.
const MAX_HEADERS: usize = 256;
/// Longest lifetime of a signature in seconds.
const MAX_LIFETIME: i64 = 86_400;

/// A request, as it was sent.
#[derive(Clone, Debug)]
pub struct RawRequest {
    method: String,
    scheme: String,
    authority: String,
    path: String,
    query: Option<String>,
    headers: Vec<(String, String)>,
}

/// A valid signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Label of the signature.
    pub label: String,
    /// Key that made it.
    pub kid: String,
    /// Start of its lifetime.
    pub created: UnixSeconds,
    /// End of its lifetime.
    pub expires: UnixSeconds,
    /// Covered components.
    pub components: Vec<String>,
}

/// The reason why a request does not verify.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The text is not a request.
    #[error("not an HTTP/1.1 request: {0}")]
    NotRequest(String),
    /// A header is missing or malformed.
    #[error("{0}")]
    Header(String),
    /// The signature does not cover what it has to.
    #[error("the signature does not cover {0}")]
    NotCovered(&'static str),
    /// The request has not what the signature covers.
    #[error("the request has no {0}, which the signature covers")]
    NoComponent(String),
    /// A parameter of the signature is missing or wrong.
    #[error("{0}")]
    Parameter(String),
    /// No own key has this id.
    #[error("key {0} is not one of the own keys")]
    UnknownKey(String),
    /// The signature is wrong.
    #[error("the signature does not match the request: it was changed, or another key signed it")]
    WrongSignature,
}

impl RawRequest {
    /// Reads a raw HTTP/1.1 request that was sent by `scheme`.
    ///
    /// # Errors
    /// [`VerifyError::NotRequest`].
    pub fn parse(raw: &[u8], scheme: &str) -> Result<Self, VerifyError> {
        let bad = |why: &str| VerifyError::NotRequest(why.to_owned());
        // Files are often written with bare line feeds, and without the empty line at the end.
        let mut text = raw.to_vec();
        if !raw.windows(4).any(|end| end == b"\r\n\r\n")
            && !raw.windows(2).any(|end| end == b"\n\n")
        {
            text.extend_from_slice(if raw.ends_with(b"\n") { b"\n" } else { b"\n\n" });
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&text) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(bad("it ends within its headers")),
            Err(error) => return Err(VerifyError::NotRequest(error.to_string())),
        }
        let mut lines = Vec::new();
        for header in request.headers.iter() {
            let value =
                std::str::from_utf8(header.value).map_err(|_| bad("a header is not text"))?;
            lines.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let target = request.path.unwrap_or_default();
        let host = lines.iter().find(|(name, _)| name == "host").map(|(_, value)| value.as_str());
        let address = match target.starts_with('/') {
            true => {
                format!("{scheme}://{}{target}", host.ok_or_else(|| bad("it has no Host header"))?)
            }
            false => target.to_owned(),
        };
        let url = Url::parse(&address)
            .map_err(|error| VerifyError::NotRequest(format!("{error}: {address}")))?;
        // The bytes as sent: a parser could change them.
        let sent = if target.starts_with('/') {
            target
        } else {
            &url[url::Position::BeforePath..url::Position::AfterQuery]
        };
        let (path, query) = match sent.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (sent, None),
        };
        Ok(Self {
            method: request.method.unwrap_or_default().to_owned(),
            scheme: scheme.to_owned(),
            authority: authority_of(&url),
            path: path.to_owned(),
            query,
            headers: lines,
        })
    }
}

/// Verifies a request's signature with own keys, as a verifier does at `now`.
///
/// # Errors
/// [`VerifyError`] with the first fault.
pub fn verify(
    request: &RawRequest,
    keys: &KeySet,
    agent: Option<&Agent>,
    now: UnixSeconds,
) -> Result<Verified, VerifyError> {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let message = Message {
        method: &request.method,
        scheme: &request.scheme,
        authority: &request.authority,
        path: &request.path,
        query: request.query.as_deref(),
        headers: &headers,
    };
    let (label, list) = bot_signature(dictionary(&message, "signature-input")?)?;
    let SignatureParams { created, expires, kid } = SignatureParams::read(&list, now)?;
    let components = list.items.iter().map(component).collect::<Result<Vec<_>, _>>()?;
    check_covered(&components)?;
    if let Some(agent) = agent {
        check_agent(&message, &components, &label, agent)?;
    }
    let entry = keys.by_id(&kid).ok_or_else(|| VerifyError::UnknownKey(kid.clone()))?;
    if keys.state(&kid, now) == KeyState::Expired {
        return Err(VerifyError::Parameter(format!("key {kid} has expired")));
    }
    let params = value_text(ListEntry::InnerList(list)).ok_or_else(|| missing("keyid"))?;
    let base = base(&message, &components, &params)
        .map_err(|missing| VerifyError::NoComponent(missing.to_string()))?;
    let signatures = dictionary(&message, "signature")?;
    let signature = signatures.into_iter().find(|(name, _)| name.as_str() == label);
    let signature = match &signature {
        Some((_, ListEntry::Item(item))) => item.bare_item.as_byte_sequence(),
        _ => None,
    };
    let signature = signature
        .ok_or_else(|| VerifyError::Header(format!("the Signature header has no {label}")))?;
    if !entry.key.has_signed(&base, signature) {
        return Err(VerifyError::WrongSignature);
    }
    let components = components.iter().map(Component::to_string).collect();
    Ok(Verified { label, kid, created, expires, components })
}

/// Returns the members of a header.
fn dictionary(message: &Message<'_>, name: &str) -> Result<Dictionary, VerifyError> {
    let text = message
        .header(name)
        .ok_or_else(|| VerifyError::Header(format!("the request has no {name} header")))?;
    Parser::new(&text)
        .parse()
        .map_err(|error| VerifyError::Header(format!("invalid {name} header: {error}")))
}

/// The parameters of a signature that is valid at some time.
struct SignatureParams {
    created: UnixSeconds,
    expires: UnixSeconds,
    kid: String,
}

impl SignatureParams {
    fn read(list: &InnerList, now: UnixSeconds) -> Result<Self, VerifyError> {
        let parameter = |name: &str| {
            list.params.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value)
        };
        let text = |name: &str| {
            parameter(name).and_then(|value| value.as_string()).map(|text| text.as_str().to_owned())
        };
        let number = |name: &str| {
            parameter(name)
                .and_then(|value| value.as_integer())
                .map(i64::from)
                .ok_or_else(|| missing(name))
        };
        let (created, expires) = (number("created")?, number("expires")?);
        let kid = text("keyid").ok_or_else(|| missing("keyid"))?;
        if text("alg").is_some_and(|alg| alg != "ed25519") {
            return Err(VerifyError::Parameter("the parameter alg is not ed25519".to_owned()));
        }
        if created > now || expires <= now || expires.saturating_sub(created) > MAX_LIFETIME {
            let why = format!(
                "the signature is valid from {created} to {expires}, not at {now}, or longer than \
                 a day"
            );
            return Err(VerifyError::Parameter(why));
        }
        Ok(Self { created, expires, kid })
    }
}

fn missing(name: &str) -> VerifyError {
    VerifyError::Parameter(format!("the signature has no valid parameter {name}"))
}

/// Checks that a signature is bound to the host and to who sends it.
fn check_covered(components: &[Component]) -> Result<(), VerifyError> {
    let covers = |name: &str| components.iter().any(|component| component.name == name);
    if !covers("@authority") && !covers("@target-uri") {
        return Err(VerifyError::NotCovered("@authority"));
    }
    match covers("signature-agent") {
        true => Ok(()),
        false => Err(VerifyError::NotCovered("signature-agent")),
    }
}

/// Returns the first signature of Web Bot Auth.
fn bot_signature(members: Dictionary) -> Result<(String, InnerList), VerifyError> {
    let of_bot = members.into_iter().find_map(|(label, member)| match member {
        ListEntry::InnerList(list) => {
            let tag = list.params.iter().find(|(name, _)| name.as_str() == "tag");
            let is_ours = tag
                .and_then(|(_, tag)| tag.as_string())
                .is_some_and(|tag| tag.as_str() == "web-bot-auth");
            is_ours.then(|| (label.as_str().to_owned(), list))
        }
        ListEntry::Item(_) => None,
    });
    of_bot.ok_or_else(|| VerifyError::Parameter("no signature has the tag web-bot-auth".to_owned()))
}

fn component(item: &sfv::Item) -> Result<Component, VerifyError> {
    let bad = || {
        VerifyError::Parameter("the signature covers a component that is not supported".to_owned())
    };
    let name = item.bare_item.as_string().ok_or_else(bad)?.as_str().to_owned();
    let mut key = None;
    for (parameter, value) in &item.params {
        match (parameter.as_str(), value.as_string()) {
            ("key", Some(value)) => key = Some(value.as_str().to_owned()),
            _ => return Err(bad()),
        }
    }
    Ok(Component { name, key })
}

/// Checks that `Signature-Agent` names the own agent.
fn check_agent(
    message: &Message<'_>,
    components: &[Component],
    label: &str,
    agent: &Agent,
) -> Result<(), VerifyError> {
    let covered = components.iter().find(|component| component.name == "signature-agent");
    let value = covered.and_then(|component| message.value(component));
    let value = value.ok_or_else(|| {
        VerifyError::Header(
            "the request has no signature-agent header for the signature".to_owned(),
        )
    })?;
    let named = Parser::new(&value).parse::<sfv::Item>().ok();
    let named =
        named.as_ref().and_then(|item| item.bare_item.as_string()).map(|text| text.as_str());
    let has_key = covered.is_some_and(|component| component.key.as_deref() == Some(label));
    let is_own = match has_key {
        true => named == Some(agent.directory_url()),
        false => named == Some(agent.origin()),
    };
    match is_own {
        true => Ok(()),
        false => Err(VerifyError::Header(format!(
            "Signature-Agent is {value}, which is not the agent {}",
            agent.origin()
        ))),
    }
}

/// Returns whether a signed directory, with its headers, proves that `keys` belong to `authority`:
/// every published key has signed it.
pub fn is_directory_signed(
    keys: &KeySet,
    authority: &str,
    body: &[u8],
    headers: &[(String, String)],
    now: UnixSeconds,
) -> Result<(), VerifyError> {
    let header = |name: &str| {
        headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    let missing = |name: &str| VerifyError::Header(format!("the directory has no {name} header"));
    let digest = header("content-digest").ok_or_else(|| missing("content-digest"))?;
    let actual = STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, body).as_ref());
    if digest != format!("sha-256=:{actual}:") {
        return Err(VerifyError::Header(
            "the Content-Digest is not that of the directory".to_owned(),
        ));
    }
    let parse = |name: &'static str| -> Result<Dictionary, VerifyError> {
        let text = header(name).ok_or_else(|| missing(name))?;
        Parser::new(text)
            .parse()
            .map_err(|error| VerifyError::Header(format!("invalid {name} header: {error}")))
    };
    let (inputs, signatures) = (parse("signature-input")?, parse("signature")?);
    for entry in keys.published(now) {
        let proves = inputs.iter().any(|(label, member)| {
            let ListEntry::InnerList(list) = member else { return false };
            let text =
                |name: &str| list.params.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value);
            let is_ours =
                text("keyid").and_then(|kid| kid.as_string()).is_some_and(|kid| kid.as_str() == entry.key.kid());
            let is_valid = text("expires").and_then(|time| time.as_integer()).is_some_and(|time| i64::from(time) > now);
            let Some(params) = value_text(member.clone()).filter(|_| is_ours && is_valid) else { return false };
            let base = format!(
                "\"@authority\";req: {authority}\n\"content-digest\": {digest}\n\"@signature-params\": {params}"
            );
            signatures.iter().any(|(name, value)| match value {
                ListEntry::Item(item) if name == label => {
                    item.bare_item.as_byte_sequence().is_some_and(|bytes| entry.key.has_signed(&base, bytes))
                }
                _ => false,
            })
        });
        if !proves {
            return Err(VerifyError::Header(format!(
                "the directory has no valid signature of key {}",
                entry.key.kid()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use web_bot_auth::components::{CoveredComponent, DerivedComponent, HTTPField};
    use web_bot_auth::keyring::{Algorithm, KeyRing};
    use web_bot_auth::message_signatures::{MessageVerifier, SignedMessage};

    use super::*;
    use crate::directory;
    use crate::forms::{Form, FormSetting};
    use crate::key::SigningKey;
    use crate::key_dir::KeySource;
    use crate::sign::{Signer, ToSign};

    const NOW: i64 = 1_800_000_000;

    fn signer(form: Form) -> Signer {
        let (_, pem) = SigningKey::generate().unwrap();
        let agent = Agent::parse("https://bot.example").unwrap();
        Signer::new(agent, KeySource::Text(pem), NOW).unwrap().form(FormSetting::Always(form))
    }

    fn raw(signer: &Signer, target: &str) -> String {
        let url: Url = format!("https://shop.example:8443{target}").parse().unwrap();
        let request =
            ToSign { header: Some(("crawler-max-price", "USD 0.01")), ..ToSign::get(&url) };
        let signed = signer.sign(&request, NOW).unwrap();
        let lines: String =
            signed.iter().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "GET {target} HTTP/1.1\r\nHost: Shop.example:8443\r\nCrawler-Max-Price: USD 0.01\r\n{lines}\r\n"
        )
    }

    #[test]
    fn own_requests_verify_and_changed_ones_do_not() {
        for form in [Form::Dictionary, Form::String] {
            let signer = signer(form);
            let request = raw(&signer, "/a/b%20c?q=1");
            let check = |text: &str, scheme: &str, now| {
                let request = RawRequest::parse(text.as_bytes(), scheme)?;
                verify(&request, &signer.keys(), Some(signer.agent()), now)
            };
            let verified = check(&request, "https", NOW).unwrap();
            assert_eq!((verified.created, verified.expires), (NOW - 5, NOW + 60));
            // Line feeds alone, and a missing empty line.
            check(request.replace("\r\n", "\n").trim_end(), "https", NOW).unwrap();
            // The query is not covered.
            check(&request.replace("?q=1", "?q=2"), "https", NOW).unwrap();
            for (from, to) in [
                ("GET ", "HEAD "),
                ("/a/b%20c", "/a/b%20d"),
                ("Shop.example", "other.example"),
                (":8443", ":8444"),
                ("USD 0.01", "USD 0.02"),
                ("Crawler-Max-Price", "X"),
                ("Signature-Agent", "X"),
                ("Signature-Input", "X"),
                ("Signature:", "X:"),
                ("bot.example", "bad.example"),
                ("created=1799999995", "created=1799999996"),
                ("web-bot-auth", "web-bot"),
                ("\"@authority\" ", ""),
            ] {
                let changed = request.replace(from, to);
                assert_ne!(changed, request);
                assert!(check(&changed, "https", NOW).is_err(), "{from} -> {to}");
            }
            assert!(
                check(&request, "https", NOW + 60).is_err()
                    && check(&request, "https", NOW - 6).is_err()
            );
            let stranger = super::tests::signer(form);
            let parsed = RawRequest::parse(request.as_bytes(), "https").unwrap();
            assert!(matches!(
                verify(&parsed, &stranger.keys(), None, NOW),
                Err(VerifyError::UnknownKey(_))
            ));
        }
        for nonsense in ["", "hello", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"]
        {
            let parsed = RawRequest::parse(nonsense.as_bytes(), "https");
            assert!(
                parsed.and_then(|request| verify(&request, &KeySet::default(), None, NOW)).is_err(),
                "{nonsense:?}"
            );
        }
    }

    struct Directory {
        authority: String,
        headers: directory::DirectoryHeaders,
        label: usize,
    }

    impl SignedMessage for Directory {
        fn lookup_component(&self, component: &CoveredComponent) -> Vec<String> {
            match component {
                CoveredComponent::Derived(DerivedComponent::Authority { .. }) => {
                    vec![self.authority.clone()]
                }
                CoveredComponent::HTTP(HTTPField { name, .. }) => match &**name {
                    "content-digest" => vec![self.headers.content_digest.clone()],
                    "signature-input" => vec![self.headers.input.clone()],
                    "signature" => vec![self.headers.signature.clone()],
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn an_independent_verifier_accepts_the_directory_of_each_key() {
        let base = tempfile::tempdir().unwrap();
        let dir = crate::key_dir::KeyDir::new(base.path().join("keys"));
        dir.init(NOW).unwrap();
        dir.rotate(NOW, false).unwrap();
        let keys = dir.load().unwrap();
        let body = directory::body(&keys, NOW);
        let headers = directory::sign(&keys, "bot.example", &body, NOW);
        let mut ring = KeyRing::default();
        for entry in keys.entries() {
            let x = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(entry.key.x()).unwrap();
            ring.import_raw(entry.key.kid().to_owned(), Algorithm::Ed25519, x);
        }
        let is_valid = |authority: &str, headers: &directory::DirectoryHeaders, label: usize| {
            let message =
                Directory { authority: authority.to_owned(), headers: headers.clone(), label };
            let wanted = format!("sig{}", message.label);
            MessageVerifier::parse(&message, |(label, _)| label.as_str() == wanted)
                .is_ok_and(|parsed| parsed.verify(&ring, None).is_ok())
        };
        for label in [1, 2] {
            assert!(is_valid("bot.example", &headers, label));
            assert!(!is_valid("other.example", &headers, label));
            let changed = directory::DirectoryHeaders {
                content_digest: "sha-256=:AAAA:".to_owned(),
                ..headers.clone()
            };
            assert!(!is_valid("bot.example", &changed, label));
        }
        let lines = |headers: &directory::DirectoryHeaders| {
            [
                ("content-digest", &headers.content_digest),
                ("signature-input", &headers.input),
                ("signature", &headers.signature),
            ]
            .map(|(name, value)| (name.to_owned(), value.clone()))
        };
        let check = |authority: &str, body: &str| {
            is_directory_signed(&keys, authority, body.as_bytes(), &lines(&headers), NOW)
        };
        check("bot.example", &body).unwrap();
        assert!(
            check("other.example", &body).is_err()
                && check("bot.example", &format!("{body} ")).is_err()
        );
    }
}
