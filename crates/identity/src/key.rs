//! An Ed25519 key: PKCS#8 PEM, its JWK thumbprint, signatures.
//!
//! Invariants: a key that a standard publishes is refused, because everyone can sign with it. The
//! private part leaves this file only as the PEM of a new key.
//!
//! Must not know: files, and when a key is used.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;

/// The PKCS#8 form of an Ed25519 key (RFC 8410) up to its 32 secret bytes. Version 1, which OpenSSL
/// reads too.
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Public parts of keys whose private parts are published, each with the place.
const PUBLISHED: [(&str, &str); 7] = [
    ("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs", "RFC 9421, B.1.4"),
    ("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "RFC 8032 and RFC 8037"),
    ("PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw", "RFC 8032"),
    ("_FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU", "RFC 8032"),
    ("J4EX_BRMcjQPZ9DyMW6Dhs7_vyskKMnFH-98WX8dQm4", "RFC 8032"),
    ("7Bcrk61eVjv0kyxw4SRQNMNUZ-8u_U1k6_gZaDRn4r8", "RFC 8032"),
    ("Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE", "RFC 8410"),
];

/// The reason why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text has no PKCS#8 private key.
    #[error("not a private key: expected PKCS#8 in PEM, with the line BEGIN PRIVATE KEY")]
    NotPem,
    /// The private key is damaged or is not an Ed25519 key.
    #[error("not an Ed25519 private key: {0}")]
    NotEd25519(String),
    /// The private key is public.
    #[error("the key is a published test key ({0}), so anyone can sign with it")]
    Published(&'static str),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
}

/// An Ed25519 key that signs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    x: String,
    kid: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Returns a new random key and its PEM.
    ///
    /// # Errors
    /// [`KeyError::NoRandom`].
    pub fn generate() -> Result<(Self, String), KeyError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::NoRandom)?;
        let key = Self::from_seed(&seed)?;
        // 48 bytes are one line of base64.
        let body = STANDARD.encode([PKCS8_HEAD.as_slice(), seed.as_slice()].concat());
        Ok((key, format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")))
    }

    /// Reads a PKCS#8 key in PEM.
    ///
    /// # Errors
    /// [`KeyError`] for a text without such a key, for another kind of key, and for a published
    /// one.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let key = Self::from_any_pem(text)?;
        match PUBLISHED.iter().find(|(x, _)| *x == key.x) {
            Some((_, place)) => Err(KeyError::Published(place)),
            None => Ok(key),
        }
    }

    fn from_any_pem(text: &[u8]) -> Result<Self, KeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| KeyError::NotPem)?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        Ok(Self::of_pair(pair.map_err(|error| KeyError::NotEd25519(error.to_string()))?))
    }

    fn from_seed(seed: &[u8]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Ok(Self::of_pair(pair.map_err(|error| KeyError::NotEd25519(error.to_string()))?))
    }

    fn of_pair(pair: Ed25519KeyPair) -> Self {
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let kid = thumbprint(&x);
        Self { pair, x, kid }
    }

    /// Returns the key of RFC 9421 B.1.4, which all test vectors use and which
    /// [`from_pem`](Self::from_pem) refuses.
    #[cfg(test)]
    pub(crate) fn of_vectors() -> Self {
        let seed = URL_SAFE_NO_PAD.decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU").unwrap();
        Self::from_seed(&seed).unwrap()
    }

    /// Returns the key's id: its JWK SHA-256 thumbprint (RFC 7638).
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Returns the public key as a JWK writes it.
    pub fn x(&self) -> &str {
        &self.x
    }

    /// Returns the signature of `text` in base64.
    pub(crate) fn sign(&self, text: &str) -> String {
        STANDARD.encode(self.pair.sign(text.as_bytes()).as_ref())
    }

    /// Returns whether `signature` is this key's signature of `text`.
    pub(crate) fn has_signed(&self, text: &str, signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.pair.public_key().as_ref())
            .verify(text.as_bytes(), signature)
            .is_ok()
    }
}

/// Returns the thumbprint of the Ed25519 key `x`.
pub(crate) fn thumbprint(x: &str) -> String {
    // RFC 7638: the required members in the order of their names, without spaces.
    let jwk = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(digest(&SHA256, jwk.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_reads_back_and_signs() {
        let (key, pem) = SigningKey::generate().unwrap();
        let read = SigningKey::from_pem(pem.as_bytes()).unwrap();
        assert_eq!((read.kid(), read.x()), (key.kid(), key.x()));
        let signature = STANDARD.decode(key.sign("text")).unwrap();
        assert!(read.has_signed("text", &signature) && !read.has_signed("texts", &signature));
        assert!(!format!("{key:?}").contains(&pem.lines().nth(1).unwrap()[22..]));
    }

    #[test]
    fn the_thumbprint_is_that_of_the_rfc() {
        assert_eq!(SigningKey::of_vectors().kid(), "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U");
        assert_eq!(thumbprint(PUBLISHED[1].0), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn published_test_keys_are_refused() {
        // The private keys of RFC 9421 B.1.4, RFC 8032 7.1 (five) and RFC 8410 10.3.
        for seed in [
            "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU",
            "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
            "TM0Imyj_ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U-4pvs",
            "xaqN9D-fg3vtt0QvMdy3sWbThTUHbwlLhc46LgtEWPc",
            "9eV2fPFTMZUXYw8iaHa4bIFgzFg7wBN0TGvyVfXMDuU",
            "gz_mJAkje51i7HdYdSCRHpp1nOwdGXVbfakBuW3KPUI",
            "1O5y2_kTWErVttjx92n4rTr-fCjL8dT74Jeoj0R1WEI",
        ] {
            let bytes = URL_SAFE_NO_PAD.decode(seed).unwrap();
            let body = STANDARD.encode([PKCS8_HEAD.as_slice(), &bytes].concat());
            let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
            let refused = SigningKey::from_pem(pem.as_bytes());
            let x = SigningKey::from_seed(&bytes).unwrap().x;
            assert!(matches!(refused, Err(KeyError::Published(_))), "{seed} {x}");
        }
    }

    #[test]
    fn malformed_keys_are_refused_with_the_cause() {
        let error = |text: &str| SigningKey::from_pem(text.as_bytes()).unwrap_err().to_string();
        for text in ["", "hello", "-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n"]
        {
            assert!(error(text).contains("BEGIN PRIVATE KEY"), "{text:?}: {}", error(text));
        }
        let short = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----\n";
        assert!(error(short).contains("not an Ed25519 private key"), "{}", error(short));
        let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n";
        assert!(error(public).contains("BEGIN PRIVATE KEY"));
    }
}
