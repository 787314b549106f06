//! A crawler's identity: requests signed by Web Bot Auth (RFC 9421 with Ed25519), the keys behind
//! the signatures, and the documents that publish them.
//!
//! [`Signer`] signs requests, [`KeyDir`] keeps keys on disk, [`directory`] and [`card`] are what an
//! agent publishes, and [`verify`] checks own requests. The drafts are
//! draft-ietf-webbotauth-httpsig-protocol-01 and draft-meunier-webbotauth-registry-04.
//!
//! Invariants: no private key appears in a message, a dump or a result other than the PEM file.
//!
//! Must not know: how requests are sent. The crate makes none, and starts no task.

mod accept_signature;
mod agent;
pub mod card;
mod clock_check;
pub mod directory;
mod forms;
mod key;
mod key_dir;
mod key_set;
mod lifetime;
mod message;
mod registrations;
mod sign;
mod signed_headers;
pub mod verify;

pub use accept_signature::{MAX_NONCE, SignatureRequest};
pub use agent::{Agent, BadAgent};
pub use clock_check::ServerDate;
pub use forms::{Form, FormSetting, form_of_vendor, vendor_of_header};
pub use key::{KeyError, SigningKey};
pub use key_dir::{KeyDir, KeyDirError, KeySource, Rotation};
pub use key_set::{KeyEntry, KeySet, KeyState};
pub use lifetime::{CREATED_BEFORE, UnixSeconds, VALID_FOR};
pub use registrations::{REGISTRATIONS, Registrations, RegistrationsError, vendor_of_blocks};
pub use sign::{Coverage, MAX_CLOCK_OFFSET, NotSigned, Signer, ToSign};
pub use signed_headers::SignedHeaders;

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
