//! The key directory: the JWK Set that verifiers read, and its signatures.
//!
//! Must not know: how it is served.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::key::thumbprint;
use crate::key_set::{KeyEntry, KeySet};
use crate::lifetime::{CREATED_BEFORE, OVERLAP, UnixSeconds};

pub use crate::agent::WELL_KNOWN;

/// Media type of the directory.
pub const MEDIA_TYPE: &str = "application/http-message-signatures-directory+json";
/// Seconds for which verifiers may cache the directory.
pub const MAX_AGE: i64 = OVERLAP;
/// Largest number of keys that are read from a directory.
pub const MAX_KEYS: usize = 10;

#[derive(Serialize)]
struct Jwks<'a> {
    keys: Vec<Jwk<'a>>,
}

#[derive(Serialize)]
struct Jwk<'a> {
    kty: &'static str,
    crv: &'static str,
    kid: &'a str,
    x: &'a str,
    #[serde(rename = "use")]
    purpose: &'static str,
    alg: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<UnixSeconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<UnixSeconds>,
}

/// Returns the directory at `now`, as JSON.
pub fn body(keys: &KeySet, now: UnixSeconds) -> String {
    let jwk = |entry| {
        let KeyEntry { key, nbf, exp }: &KeyEntry = entry;
        let (kid, x) = (key.kid(), key.x());
        Jwk {
            kty: "OKP",
            crv: "Ed25519",
            kid,
            x,
            purpose: "sig",
            alg: "EdDSA",
            nbf: *nbf,
            exp: *exp,
        }
    };
    let jwks = Jwks { keys: keys.published(now).map(jwk).collect() };
    // Text and numbers always serialize.
    serde_json::to_string(&jwks).unwrap_or_default()
}

/// The headers of a signed directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryHeaders {
    /// `Content-Digest`.
    pub content_digest: String,
    /// `Signature-Input`, with one member for each key.
    pub input: String,
    /// `Signature`, with one member for each key.
    pub signature: String,
}

/// Signs the directory `body` for `authority` with each published key.
pub fn sign(keys: &KeySet, authority: &str, body: &str, now: UnixSeconds) -> DirectoryHeaders {
    let entries: Vec<&KeyEntry> = keys.published(now).collect();
    signed(
        &entries,
        authority,
        body,
        now.saturating_sub(CREATED_BEFORE),
        now.saturating_add(OVERLAP),
    )
}

fn signed(
    entries: &[&KeyEntry],
    authority: &str,
    body: &str,
    created: UnixSeconds,
    expires: UnixSeconds,
) -> DirectoryHeaders {
    let content_digest =
        format!("sha-256=:{}:", STANDARD.encode(digest(&SHA256, body.as_bytes()).as_ref()));
    let (mut inputs, mut signatures) = (Vec::new(), Vec::new());
    for (number, entry) in (1..).zip(entries) {
        let params = format!(
            "(\"@authority\";req \"content-digest\");created={created};expires={expires};keyid=\"{}\";\
             tag=\"http-message-signatures-directory\"",
            entry.key.kid()
        );
        let base = format!(
            "\"@authority\";req: {authority}\n\"content-digest\": {content_digest}\n\"@signature-params\": {params}"
        );
        inputs.push(format!("sig{number}={params}"));
        signatures.push(format!("sig{number}=:{}:", entry.key.sign(&base)));
    }
    DirectoryHeaders { content_digest, input: inputs.join(", "), signature: signatures.join(", ") }
}

#[derive(Deserialize)]
struct ReadJwks {
    keys: Vec<ReadJwk>,
}

#[derive(Deserialize)]
struct ReadJwk {
    kty: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    kid: Option<String>,
    nbf: Option<f64>,
    exp: Option<f64>,
}

/// Compares a published directory with own keys. Returns every difference that matters, as text; an
/// empty list means that verifiers find what they need.
pub fn compare(published: &[u8], keys: &KeySet, now: UnixSeconds) -> Vec<String> {
    let read: ReadJwks = match serde_json::from_slice(published) {
        Ok(read) => read,
        Err(error) => return vec![format!("the directory is not a JWK Set: {error}")],
    };
    if read.keys.len() > MAX_KEYS {
        return vec![format!(
            "the directory has {} keys; verifiers may read only {MAX_KEYS}",
            read.keys.len()
        )];
    }
    let mut problems = Vec::new();
    for jwk in &read.keys {
        let is_ours = jwk.kty.as_deref() == Some("OKP") && jwk.crv.as_deref() == Some("Ed25519");
        let Some(x) = jwk.x.as_deref().filter(|_| is_ours) else { continue };
        let kid = thumbprint(x);
        if jwk.kid.as_ref().is_some_and(|named| *named != kid) {
            problems.push(format!("a key's kid is not its thumbprint {kid}"));
        }
        if !keys.published(now).any(|entry| entry.key.kid() == kid) {
            problems.push(format!("the directory has key {kid}, which is not one of the own keys"));
        }
    }
    for entry in keys.published(now) {
        let kid = entry.key.kid();
        let Some(jwk) = read.keys.iter().find(|jwk| jwk.x.as_deref() == Some(entry.key.x())) else {
            problems.push(format!("the directory lacks key {kid}"));
            continue;
        };
        let is_late = |published: Option<f64>, own: Option<UnixSeconds>| {
            published.is_some_and(|time| own.is_none_or(|own| time > own as f64))
        };
        let is_early = |published: Option<f64>, own: Option<UnixSeconds>| {
            published.is_some_and(|time| own.is_none_or(|own| time < own as f64))
        };
        if is_late(jwk.nbf, entry.nbf) || is_early(jwk.exp, entry.exp) {
            problems.push(format!(
                "the directory publishes key {kid} for a shorter time than it is used"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::key::SigningKey;

    fn vectors() -> KeySet {
        let key = Arc::new(SigningKey::of_vectors());
        KeySet::new(vec![KeyEntry { key, nbf: Some(1_735_689_600), exp: None }])
    }

    #[test]
    fn the_signed_directory_of_the_draft_is_reproduced_byte_for_byte() {
        // E.2.3 of draft-ietf-webbotauth-httpsig-protocol-01.
        let body = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\",\
                    \"x\":\"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs\",\"use\":\"sig\"}]}";
        let keys = vectors();
        let entries: Vec<&KeyEntry> = keys.entries().iter().collect();
        let made = signed(&entries, "signature-agent.test", body, 1_735_689_600, 4_889_289_600);
        assert_eq!(made.content_digest, "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:");
        let input = "sig1=(\"@authority\";req \"content-digest\");created=1735689600;expires=4889289600;\
                     keyid=\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\";tag=\"http-message-signatures-directory\"";
        assert_eq!(made.input, input);
        let signature = "sig1=:l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:";
        assert_eq!(made.signature, signature);
    }

    #[test]
    fn the_own_directory_has_no_difference_and_a_changed_one_has() {
        let (keys, now) = (vectors(), 1_800_000_000);
        let text = body(&keys, now);
        assert_eq!(compare(text.as_bytes(), &keys, now), Vec::<String>::new());
        for (from, to, what) in [
            ("poqk", "pppp", "thumbprint"),
            ("\"x\":\"Jr", "\"x\":\"JJ", "lacks key"),
            ("1735689600", "1935689600", "shorter time"),
            ("{\"keys\":[{", "{\"keys\":{{", "not a JWK Set"),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            let problems = compare(changed.as_bytes(), &keys, now).join("; ");
            assert!(problems.contains(what), "{from}: {problems}");
        }
        let many = format!("{{\"keys\":[{}]}}", ["{}"; 11].join(","));
        assert!(compare(many.as_bytes(), &keys, now)[0].contains("11 keys"));
    }
}
