//! The certificate of an origin over https: a certificate authority that is made for it, and one
//! certificate for all of its hosts.
//!
//! Invariants: both are new in each process, and the private key of the authority is forgotten at
//! once. A client that trusts the authority trusts no other site by it.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Name of HTTP/2 in the negotiation of the protocol.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// A certificate for some hosts, and the authority that signed it.
#[derive(Debug)]
pub struct Certificate {
    authority: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Certificate {
    /// Returns a new certificate for `hosts`, which are names and addresses.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a host that no certificate can name.
    pub fn new(hosts: impl IntoIterator<Item = impl Into<String>>) -> io::Result<Self> {
        let invalid = |error: rcgen::Error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let mut authority = CertificateParams::new(Vec::<String>::new()).map_err(invalid)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "fetchwise testbed");
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(invalid)?);
        let authority = authority.map_err(invalid)?;
        let key = KeyPair::generate().map_err(invalid)?;
        let hosts: Vec<String> = hosts.into_iter().map(Into::into).collect();
        let mut params = CertificateParams::new(hosts).map_err(invalid)?;
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &authority).map_err(invalid)?;
        Ok(Self {
            authority: authority.der().clone(),
            leaf: leaf.der().clone(),
            key: key.serialize_der(),
        })
    }

    /// Returns the certificate of the authority as PEM, for clients that have to trust it.
    pub fn authority_pem(&self) -> String {
        let text = STANDARD.encode(&self.authority);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = more;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    /// Returns the certificate of the authority as DER.
    pub fn authority_der(&self) -> &[u8] {
        &self.authority
    }

    /// Returns the server's side of handshakes.
    pub(super) fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let invalid = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let key = PrivateKeyDer::try_from(self.key.clone());
        let key = key.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config =
            config.with_safe_default_protocol_versions().map_err(invalid)?.with_no_client_auth();
        let mut config = config.with_single_cert(vec![self.leaf.clone()], key).map_err(invalid)?;
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
