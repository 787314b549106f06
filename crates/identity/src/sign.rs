//! Signing of requests.
//!
//! Invariants: each signature has a new nonce and the current time. Only https is signed, and plain
//! http to a loopback address where a test asks for it. Nothing is signed while this machine's
//! clock is wrong by more than [`MAX_CLOCK_OFFSET`].
//!
//! Must not know: how a request is sent.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lru::LruCache;
use ring::rand::{SecureRandom as _, SystemRandom};
use url::{Host, Url};

use crate::accept_signature::SignatureRequest;
use crate::agent::{Agent, authority_of};
use crate::clock_check::{ClockCheck, ClockReading, ServerDate};
use crate::forms::{Form, FormSetting, form_of_vendor, vendor_of_header};
use crate::key::SigningKey;
use crate::key_dir::{KeyDirError, KeySource};
use crate::key_set::KeySet;
use crate::lifetime::{UnixSeconds, lifetime};
use crate::message::{Component, Message, base};
use crate::signed_headers::SignedHeaders;

/// Clock offset in seconds above which nothing is signed.
pub const MAX_CLOCK_OFFSET: i64 = 30;
/// Clock offset in seconds above which there is a warning.
const CLOCK_WARNING: i64 = 5;
/// Interval in seconds at which keys are read again.
const RELOAD_AFTER: i64 = 3600;
/// The same after keys could not be read, or while none is valid.
const RETRY_AFTER: i64 = 60;
/// Largest number of hosts whose vendor is kept. Beyond it, the least recently used ones are
/// dropped: each host shows its vendor again.
const MAX_HOSTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// The label of our signatures.
const LABEL: &str = "sig1";

/// The parts of a request that a signature covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coverage {
    /// Authority, method and path.
    #[default]
    Request,
    /// The authority.
    Authority,
}

/// A request to sign.
#[derive(Clone, Copy, Debug)]
pub struct ToSign<'a> {
    /// The method.
    pub method: &'a str,
    /// The URL.
    pub url: &'a Url,
    /// A header that the signature covers too: a `crawler-*` header, its name in lower case.
    pub header: Option<(&'a str, &'a str)>,
    /// The signature that the server asked for.
    pub wanted: Option<&'a SignatureRequest>,
}

impl<'a> ToSign<'a> {
    /// Returns a GET of `url`.
    pub fn get(url: &'a Url) -> Self {
        Self { method: "GET", url, header: None, wanted: None }
    }
}

/// The reason why a request is not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSigned {
    /// The URL is not https.
    #[error("only https requests are signed")]
    NotHttps,
    /// No key is valid now.
    #[error("no key is valid now")]
    NoValidKey,
    /// The clock is wrong.
    #[error("this machine's clock is {0} s off")]
    WrongClock(i64),
    /// A covered header has characters that a signature base cannot have.
    #[error("a covered header is not printable ASCII")]
    BadHeader,
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
}

type KnownVendor = Box<dyn Fn(&Url) -> Option<Box<str>> + Send + Sync>;
type Warn = Box<dyn Fn(&str) + Send + Sync>;

struct LoadedKeys {
    keys: Arc<KeySet>,
    /// Time of the last read, failed or not.
    read_at: UnixSeconds,
    has_failed: bool,
}

impl LoadedKeys {
    /// Returns whether the keys are to be read again at `now`.
    fn is_due(&self, now: UnixSeconds) -> bool {
        // The clock may have been set back.
        let age = now.saturating_sub(self.read_at).saturating_abs();
        if age < RETRY_AFTER {
            return false;
        }
        let (created, expires) = lifetime(now);
        age >= RELOAD_AFTER || self.has_failed || self.keys.signing_key(created, expires).is_none()
    }
}

/// Signs the requests of an agent. Share one: it reads the keys again every hour, and every minute
/// while they cannot be read or none is valid.
pub struct Signer {
    agent: Agent,
    source: KeySource,
    loaded: RwLock<LoadedKeys>,
    form: FormSetting,
    coverage: Coverage,
    signs_loopback: bool,
    random: SystemRandom,
    /// Vendors of hosts, by authority.
    vendors: Mutex<LruCache<String, &'static str>>,
    known_vendor: OnceLock<KnownVendor>,
    clock: ClockCheck,
    started: Instant,
    warn: Option<Warn>,
    warned: Mutex<Vec<&'static str>>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("agent", &self.agent.origin()).finish_non_exhaustive()
    }
}

impl Signer {
    /// Returns a signer with the keys of `source`.
    ///
    /// # Errors
    /// See [`KeySource::load`].
    pub fn new(agent: Agent, source: KeySource, now: UnixSeconds) -> Result<Self, KeyDirError> {
        let loaded = LoadedKeys { keys: Arc::new(source.load()?), read_at: now, has_failed: false };
        Ok(Self {
            agent,
            source,
            loaded: RwLock::new(loaded),
            form: FormSetting::default(),
            coverage: Coverage::default(),
            signs_loopback: false,
            random: SystemRandom::new(),
            vendors: Mutex::new(LruCache::sparse(MAX_HOSTS)),
            known_vendor: OnceLock::new(),
            clock: ClockCheck::default(),
            started: Instant::now(),
            warn: None,
            warned: Mutex::default(),
        })
    }

    /// Sets the form of `Signature-Agent`.
    #[must_use]
    pub fn form(mut self, form: FormSetting) -> Self {
        self.form = form;
        self
    }

    /// Sets the parts of a request that a signature covers.
    #[must_use]
    pub fn coverage(mut self, coverage: Coverage) -> Self {
        self.coverage = coverage;
        self
    }

    /// Sets whether plain http to a loopback address is signed, for tests.
    #[must_use]
    pub fn sign_loopback(mut self, sign: bool) -> Self {
        self.signs_loopback = sign;
        self
    }

    /// Sets the receiver of warnings. Each comes once.
    #[must_use]
    pub fn on_warning(mut self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.warn = Some(Box::new(warn));
        self
    }

    /// Sets where the vendor of a host is known from, such as `cloudflare`, as long as no response
    /// has shown it. Only the first call counts.
    pub fn set_known_vendor(
        &self,
        known: impl Fn(&Url) -> Option<Box<str>> + Send + Sync + 'static,
    ) {
        let _ = self.known_vendor.set(Box::new(known));
    }

    /// Returns whether plain http to a loopback address is signed.
    pub fn signs_loopback(&self) -> bool {
        self.signs_loopback
    }

    /// Returns the agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the keys.
    pub fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner).keys)
    }

    /// Reads the keys again.
    ///
    /// # Errors
    /// See [`KeySource::load`]; the keys then stay as they are.
    pub fn reload(&self, now: UnixSeconds) -> Result<(), KeyDirError> {
        let read = self.source.load();
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        (loaded.read_at, loaded.has_failed) = (now, read.is_err());
        loaded.keys = Arc::new(read?);
        Ok(())
    }

    /// Signs a request at `now`.
    ///
    /// # Errors
    /// [`NotSigned`] if there is no signature for it.
    pub fn sign(&self, request: &ToSign<'_>, now: UnixSeconds) -> Result<SignedHeaders, NotSigned> {
        if !self.may_sign(request.url) {
            return Err(NotSigned::NotHttps);
        }
        let offset = self.clock.offset(self.clock_reading(now));
        if let Some(offset) = offset.filter(|offset| offset.abs() > MAX_CLOCK_OFFSET) {
            self.warn_once("clock", || {
                format!("this machine's clock is {offset} s off: nothing is signed")
            });
            return Err(NotSigned::WrongClock(offset));
        }
        let (created, expires) = lifetime(now);
        let keys = self.current_keys(now);
        let Some(entry) = keys.signing_key(created, expires) else {
            self.warn_once("key", || {
                "no key of the identity is valid now: nothing is signed".to_owned()
            });
            return Err(NotSigned::NoValidKey);
        };
        let nonce = match request.wanted.and_then(|wanted| wanted.nonce.clone()) {
            Some(nonce) => nonce,
            None => {
                let mut bytes = [0; 64];
                self.random.fill(&mut bytes).map_err(|_| NotSigned::NoRandom)?;
                STANDARD.encode(bytes)
            }
        };
        let form = self.form_for(request.url);
        let params =
            SignatureParams { coverage: self.coverage, form, created, expires, nonce: &nonce };
        signed(&entry.key, &self.agent, request, params)
    }

    /// Returns whether requests to `url` are signed.
    pub fn may_sign(&self, url: &Url) -> bool {
        match url.scheme() {
            "https" => url.has_host(),
            "http" => self.signs_loopback && is_loopback(url),
            _ => false,
        }
    }

    /// Returns the form of `Signature-Agent` for the host of `url`, as far as its vendor is known.
    pub fn form_for(&self, url: &Url) -> Form {
        match self.form {
            FormSetting::Always(form) => form,
            FormSetting::Auto => {
                let mut vendors = self.vendors.lock().unwrap_or_else(PoisonError::into_inner);
                let shown = vendors.get(&authority_of(url)).copied();
                drop(vendors);
                match (shown, self.known_vendor.get()) {
                    (None, Some(known)) => form_of_vendor(known(url).as_deref()),
                    _ => form_of_vendor(shown),
                }
            }
        }
    }

    /// Notes a response: headers that show the host's vendor, and the host's clock. Names are in
    /// lower case.
    pub fn observe<'h>(
        &self,
        url: &Url,
        headers: impl Iterator<Item = &'h str>,
        date: Option<ServerDate>,
        now: UnixSeconds,
    ) {
        let mut headers = headers;
        if let Some(vendor) = headers.find_map(vendor_of_header) {
            let mut vendors = self.vendors.lock().unwrap_or_else(PoisonError::into_inner);
            vendors.put(authority_of(url), vendor);
        }
        if let Some(date) = date {
            let moment = self.clock_reading(now);
            self.clock.note(url.host_str().unwrap_or_default(), date, moment);
            if let Some(offset) =
                self.clock.offset(moment).filter(|offset| offset.abs() > CLOCK_WARNING)
            {
                self.warn_once("offset", || {
                    format!(
                        "this machine's clock is {offset} s off by the servers' dates: verifiers may refuse signatures"
                    )
                });
            }
        }
    }

    /// Returns the keys, read again if that is due.
    fn current_keys(&self, now: UnixSeconds) -> Arc<KeySet> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        if !loaded.is_due(now) {
            return Arc::clone(&loaded.keys);
        }
        drop(loaded);
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        if !loaded.is_due(now) {
            return Arc::clone(&loaded.keys);
        }
        // Others go on with the keys as they are.
        loaded.read_at = now;
        drop(loaded);
        match self.reload(now) {
            Ok(()) => self
                .warned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|what| *what != "reload"),
            Err(error) => {
                self.warn_once("reload", || {
                    format!("cannot read the keys of the identity again: {error}")
                });
            }
        }
        self.keys()
    }

    fn clock_reading(&self, now: UnixSeconds) -> ClockReading {
        ClockReading { now, elapsed: self.started.elapsed() }
    }

    fn warn_once(&self, what: &'static str, text: impl FnOnce() -> String) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.contains(&what) {
            return;
        }
        warned.push(what);
        drop(warned);
        if let Some(warn) = &self.warn {
            warn(&text());
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// How a request is signed, and when the signature is valid.
#[derive(Clone, Copy)]
struct SignatureParams<'a> {
    coverage: Coverage,
    form: Form,
    created: UnixSeconds,
    expires: UnixSeconds,
    nonce: &'a str,
}

/// Signs a request with a key.
fn signed(
    key: &SigningKey,
    agent: &Agent,
    request: &ToSign<'_>,
    params: SignatureParams<'_>,
) -> Result<SignedHeaders, NotSigned> {
    let SignatureParams { coverage, form, created, expires, nonce } = params;
    let label = request.wanted.map_or(LABEL, |wanted| &wanted.label);
    let agent_value = match form {
        Form::Dictionary => format!("{label}=\"{}\"", agent.directory_url()),
        Form::String => format!("\"{}\"", agent.origin()),
    };
    let authority = authority_of(request.url);
    let mut headers = vec![("signature-agent", agent_value.as_str())];
    if let Some((name, value)) = request.header {
        let is_printable =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if !is_printable(name) || !is_printable(value) || value.trim() != value {
            return Err(NotSigned::BadHeader);
        }
        headers.push((name, value));
    }
    let message = Message {
        method: request.method,
        scheme: request.url.scheme(),
        authority: &authority,
        path: request.url.path(),
        query: request.url.query(),
        headers: &headers,
    };
    let components = components(request, coverage, form, label);
    let listed: Vec<String> = components.iter().map(Component::to_string).collect();
    let params = format!(
        "({});created={created};expires={expires};keyid=\"{}\";alg=\"ed25519\";nonce=\"{nonce}\";tag=\"web-bot-auth\"",
        listed.join(" "),
        key.kid(),
        nonce = escaped(nonce),
    );
    let base = base(&message, &components, &params).map_err(|_| NotSigned::BadHeader)?;
    Ok(SignedHeaders {
        input: format!("{label}={params}"),
        signature: format!("{label}=:{}:", key.sign(&base)),
        agent: agent_value,
        form,
    })
}

/// Returns the covered components: ours, then those that the server asked for, then the `crawler-*`
/// header.
fn components(request: &ToSign<'_>, coverage: Coverage, form: Form, label: &str) -> Vec<Component> {
    let names: &[&str] = match coverage {
        Coverage::Request => &["@authority", "@method", "@path"],
        Coverage::Authority => &["@authority"],
    };
    let mut components: Vec<Component> = names.iter().map(|name| Component::named(name)).collect();
    let key = (form == Form::Dictionary).then(|| label.to_owned());
    components.push(Component { name: "signature-agent".to_owned(), key });
    for wanted in request.wanted.iter().flat_map(|wanted| &wanted.components) {
        if components.iter().all(|known| known.name != wanted.name) {
            components.push(wanted.clone());
        }
    }
    components.extend(request.header.map(|(name, _)| Component::named(name)));
    components
}

/// Returns a structured field's string between its quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_dir::KeyDir;
    use crate::key_set::KeyEntry;

    const PARAMS: &str = ";created=1767225600;expires=4102444800;keyid=\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\";\
        alg=\"ed25519\";nonce=\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==\";\
        tag=\"web-bot-auth\"";

    fn vector(url: &str, header: Option<(&str, &str)>, form: Form) -> SignedHeaders {
        let nonce = STANDARD.encode(std::array::from_fn::<u8, 64, _>(|n| n as u8));
        let (key, agent) = (SigningKey::of_vectors(), Agent::parse("https://bot.example").unwrap());
        let url: Url = url.parse().unwrap();
        let request = ToSign { header, ..ToSign::get(&url) };
        let (created, expires) = (1_767_225_600, 4_102_444_800);
        let params =
            SignatureParams { coverage: Coverage::Request, form, created, expires, nonce: &nonce };
        signed(&key, &agent, &request, params).unwrap()
    }

    #[test]
    fn vector_a_is_reproduced_byte_for_byte() {
        let signed = vector("https://shop.example/a/b%20c?q=1", None, Form::Dictionary);
        assert_eq!(
            signed.agent,
            "sig1=\"https://bot.example/.well-known/http-message-signatures-directory\""
        );
        let covered =
            "sig1=(\"@authority\" \"@method\" \"@path\" \"signature-agent\";key=\"sig1\")";
        assert_eq!(signed.input, format!("{covered}{PARAMS}"));
        let signature = "sig1=:h3n4OUphFTg66OD7Ey3EUBbeBOMuGDVPdGrodRm4Td8w8LYFi4osLZwJQ6de58kPdfUwsuU/Xj64uac3fgugDg==:";
        assert_eq!(signed.signature, signature);
    }

    #[test]
    fn the_base_of_vector_a_is_that_of_the_design() {
        let url: Url = "https://shop.example/a/b%20c?q=1".parse().unwrap();
        let agent = "sig1=\"https://bot.example/.well-known/http-message-signatures-directory\"";
        let message = Message {
            method: "GET",
            scheme: "https",
            authority: "shop.example",
            path: url.path(),
            query: url.query(),
            headers: &[("signature-agent", agent)],
        };
        let components = components(&ToSign::get(&url), Coverage::Request, Form::Dictionary, LABEL);
        let params = format!(
            "(\"@authority\" \"@method\" \"@path\" \"signature-agent\";key=\"sig1\"){PARAMS}"
        );
        let want = format!(
            "\"@authority\": shop.example\n\"@method\": GET\n\"@path\": /a/b%20c\n\"signature-agent\";key=\"sig1\": \
             \"https://bot.example/.well-known/http-message-signatures-directory\"\n\"@signature-params\": {params}"
        );
        assert_eq!(base(&message, &components, &params).unwrap(), want);
    }

    #[test]
    fn vector_b_covers_a_port_and_a_price() {
        let price = Some(("crawler-max-price", "USD 0.01"));
        let signed = vector("https://shop.example:8443/", price, Form::Dictionary);
        let signature = "sig1=:nmj168eUpKgQR8B/CvALwR+c6Mhe2POzAmyIGTwhR3UYgkqn9HNPnUOAkXFf7Fs0qzgYIKjm3QUzI565HphODg==:";
        assert_eq!(signed.signature, signature);
        assert!(
            signed
                .input
                .contains("\"signature-agent\";key=\"sig1\" \"crawler-max-price\");created")
        );
    }

    #[test]
    fn vector_c_has_the_string_form() {
        let signed = vector("https://shop.example/a/b%20c?q=1", None, Form::String);
        assert_eq!(signed.agent, "\"https://bot.example\"");
        let signature = "sig1=:t1QOPOCHY50nnPRdsClnVPjpXNeyF2c+VzP0cGOhnJGb5Q1dfXc0FgERpjI3LPiZQ/zyOlSYfgHvLEKXDjY3Aw==:";
        assert_eq!(signed.signature, signature);
    }

    fn signer() -> Signer {
        let (_, pem) = SigningKey::generate().unwrap();
        Signer::new(Agent::parse("https://bot.example").unwrap(), KeySource::Text(pem), 1_000_000)
            .unwrap()
    }

    #[test]
    fn only_https_is_signed_and_loopback_where_a_test_asks() {
        let (signer, loopback) = (signer(), signer().sign_loopback(true));
        for (url, plain, test) in [
            ("https://shop.example/", true, true),
            ("http://shop.example/", false, false),
            ("http://127.0.0.1:8080/", false, true),
            ("http://[::1]/", false, true),
            ("http://localhost/", false, true),
            ("http://127.0.0.1.shop.example/", false, false),
            ("http://10.0.0.1/", false, false),
            ("ftp://shop.example/", false, false),
        ] {
            let url: Url = url.parse().unwrap();
            assert_eq!(signer.sign(&ToSign::get(&url), 1_000_000).is_ok(), plain, "{url}");
            assert_eq!(loopback.sign(&ToSign::get(&url), 1_000_000).is_ok(), test, "{url}");
        }
    }

    #[test]
    fn a_server_gets_the_label_the_components_and_the_nonce_that_it_asked_for() {
        let wanted =
            SignatureRequest::read(r#"sig9=("@authority" "@query");nonce="a\"b""#).unwrap();
        let url: Url = "https://shop.example/a?q=1".parse().unwrap();
        let signed = signer()
            .sign(&ToSign { wanted: Some(&wanted), ..ToSign::get(&url) }, 1_000_000)
            .unwrap();
        assert!(signed.agent.starts_with("sig9=\"https://"), "{signed:?}");
        let covered = "sig9=(\"@authority\" \"@method\" \"@path\" \"signature-agent\";key=\"sig9\" \"@query\")";
        assert!(
            signed.input.starts_with(covered) && signed.input.contains(r#";nonce="a\"b";"#),
            "{signed:?}"
        );
        let is_met = |wanted: &str| SignatureRequest::read(wanted).unwrap().is_met_by(&signed);
        assert!(is_met(r#"sig9=("@authority" "signature-agent")"#));
        assert!(!is_met(r#"sig=("@authority")"#) && !is_met(r#"sig9=("@scheme")"#));
        assert!(!wanted.is_met_by(&signed), "the nonce is the server's");
    }

    #[test]
    fn the_form_follows_the_vendor_that_a_response_shows() {
        let signer = signer();
        let url: Url = "https://shop.example/".parse().unwrap();
        assert_eq!(signer.form_for(&url), Form::Dictionary);
        signer.observe(&url, ["date", "cf-ray"].into_iter(), None, 0);
        assert_eq!(signer.form_for(&url), Form::String);
        let other: Url = "https://other.example/".parse().unwrap();
        assert_eq!(signer.form_for(&other), Form::Dictionary);
        signer.set_known_vendor(|url| {
            (url.host_str() == Some("other.example")).then(|| "cloudflare".into())
        });
        assert_eq!(signer.form_for(&other), Form::String);
        assert_eq!(signer.form_for(&"https://third.example/".parse().unwrap()), Form::Dictionary);
    }

    #[test]
    fn a_wrong_clock_signs_nothing() {
        let signer = signer();
        let url: Url = "https://shop.example/".parse().unwrap();
        for n in 0..5 {
            let host: Url = format!("https://{n}.example/").parse().unwrap();
            signer.observe(
                &host,
                [].into_iter(),
                Some(ServerDate { date: 1_000_000, peer: None }),
                1_000_090,
            );
        }
        let signed = signer.sign(&ToSign::get(&url), 1_000_090);
        assert!(matches!(signed, Err(NotSigned::WrongClock(31..))), "{signed:?}");
        // Without a further response, the clock is right once somebody has set it.
        assert!(signer.sign(&ToSign::get(&url), 1_000_000).is_ok());
    }

    #[test]
    fn one_site_with_wrong_clocks_stops_no_signature() {
        let signer = signer();
        for n in 0..6 {
            let host: Url = format!("https://h{n}.wrong.example/").parse().unwrap();
            signer.observe(
                &host,
                [].into_iter(),
                Some(ServerDate { date: 1_000_000, peer: None }),
                1_007_200,
            );
        }
        let url: Url = "https://shop.example/".parse().unwrap();
        assert!(signer.sign(&ToSign::get(&url), 1_007_200).is_ok());
    }

    /// Returns a signer with a directory of keys, and the text of its warnings.
    fn with_dir(dir: &KeyDir, now: UnixSeconds) -> (Signer, Arc<Mutex<Vec<String>>>) {
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&warnings);
        let signer = Signer::new(
            Agent::parse("https://bot.example").unwrap(),
            KeySource::Dir(dir.clone()),
            now,
        );
        (
            signer.unwrap().on_warning(move |text| told.lock().unwrap().push(text.to_owned())),
            warnings,
        )
    }

    fn signs_with(signer: &Signer, now: UnixSeconds) -> Option<String> {
        let url: Url = "https://shop.example/".parse().unwrap();
        let signed = signer.sign(&ToSign::get(&url), now).ok()?;
        let input =
            signed.iter().into_iter().find(|(name, _)| *name == "Signature-Input").unwrap().1;
        Some(input.split_once(";keyid=\"").unwrap().1.split_once('"').unwrap().0.to_owned())
    }

    #[test]
    fn keys_are_read_again_every_hour_and_every_minute_after_a_failed_read() {
        const NOW: UnixSeconds = 1_800_000_000;
        let base = tempfile::tempdir().unwrap();
        let dir = KeyDir::new(base.path().join("keys"));
        let old = dir.init(NOW).unwrap().entries()[0].key.kid().to_owned();
        let (signer, warnings) = with_dir(&dir, NOW);
        let first = dir.rotate(NOW + 10, true).unwrap().kid;
        assert_eq!(signs_with(&signer, NOW + RELOAD_AFTER - 1), Some(old));
        assert_eq!(signs_with(&signer, NOW + RELOAD_AFTER), Some(first.clone()));
        // The bug: a failed read counted as one, so a stolen key signed for another hour.
        let stolen = dir.rotate(NOW + RELOAD_AFTER + 10, true).unwrap().kid;
        let (table, aside) = (dir.path().join("keys.toml"), dir.path().join("aside"));
        std::fs::rename(&table, &aside).unwrap();
        std::fs::write(&table, "key = 3").unwrap();
        let failed_at = NOW + 2 * RELOAD_AFTER;
        assert_eq!(signs_with(&signer, failed_at), Some(first.clone()));
        assert_eq!(warnings.lock().unwrap().len(), 1);
        std::fs::rename(&aside, &table).unwrap();
        assert_eq!(signs_with(&signer, failed_at + RETRY_AFTER - 1), Some(first));
        assert_eq!(signs_with(&signer, failed_at + RETRY_AFTER), Some(stolen.clone()));
        assert_eq!(signs_with(&signer, failed_at + 2 * RETRY_AFTER), Some(stolen));
        // A second failure is reported too.
        std::fs::remove_file(&table).unwrap();
        std::fs::write(&table, "key = 3").unwrap();
        assert!(signs_with(&signer, failed_at + 2 * RELOAD_AFTER).is_some());
        assert_eq!(warnings.lock().unwrap().len(), 2);
    }

    #[test]
    fn while_no_key_is_valid_keys_are_read_every_minute() {
        const NOW: UnixSeconds = 1_800_000_000;
        let base = tempfile::tempdir().unwrap();
        let dir = KeyDir::new(base.path().join("keys"));
        dir.init(NOW).unwrap();
        let (signer, warnings) = with_dir(&dir, NOW);
        let later = NOW + 366 * 86_400;
        assert_eq!(signs_with(&signer, later), None);
        assert!(warnings.lock().unwrap()[0].contains("no key of the identity is valid"));
        let new = dir.rotate(later + 1, false).unwrap().kid;
        assert_eq!(signs_with(&signer, later + RETRY_AFTER), Some(new));
    }

    #[test]
    fn a_signature_of_the_authority_covers_no_method_and_no_path() {
        let signer = signer().coverage(Coverage::Authority);
        let url: Url = "https://shop.example/a".parse().unwrap();
        let signed = signer.sign(&ToSign::get(&url), 1_000_000).unwrap();
        assert!(
            signed
                .input
                .starts_with("sig1=(\"@authority\" \"signature-agent\";key=\"sig1\");created="),
            "{signed:?}"
        );
        let lines: String =
            signed.iter().into_iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let is_valid = |head: &str| {
            let raw = format!("{head}{lines}\r\n");
            let request = crate::verify::RawRequest::parse(raw.as_bytes(), "https").unwrap();
            crate::verify::verify(&request, &signer.keys(), Some(signer.agent()), 1_000_000).is_ok()
        };
        assert!(is_valid("GET /a HTTP/1.1\r\nHost: shop.example\r\n"));
        assert!(is_valid("HEAD /b HTTP/1.1\r\nHost: shop.example\r\n"));
        assert!(!is_valid("GET /a HTTP/1.1\r\nHost: other.example\r\n"));
    }

    #[test]
    fn a_key_signs_only_within_its_time() {
        let (key, _) = SigningKey::generate().unwrap();
        let entry = KeyEntry { key: Arc::new(key), nbf: Some(100), exp: Some(300) };
        let keys = KeySet::new(vec![entry]);
        let is_signing = |now| {
            let (created, expires) = lifetime(now);
            keys.signing_key(created, expires).is_some()
        };
        assert_eq!([104, 105, 240, 241].map(is_signing), [false, true, true, false]);
    }
}
