//! The syntax of `identity`. Every build parses it.
#![cfg_attr(
    not(feature = "identity"),
    allow(dead_code, reason = "read only with the feature identity")
)]

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Sign requests: keys, what the crawler publishes, and checks of both
///
/// The config names the agent, the https origin that publishes the keys. A signature without a
/// registration changes nothing at most vendors.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise identity init --agent https://bot.example --name ExampleBot\n  \
    fetchwise identity directory --out site --config fetchwise.toml\n  \
    fetchwise identity check --config fetchwise.toml\n  \
    fetchwise identity sign https://shop.example/ --config fetchwise.toml"
)]
pub(crate) struct IdentityCommand {
    #[command(subcommand)]
    pub(crate) what: IdentitySubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdentitySubcommand {
    Init(InitArgs),
    Show(ShowArgs),
    Rotate(RotateArgs),
    Directory(DirectoryArgs),
    Sign(SignArgs),
    Verify(VerifyArgs),
    Check(CheckArgs),
    Registered(RegisteredArgs),
}

/// Create the first key, and print the section for the config
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Publish the keys at this https origin [default: identity.agent]
    #[arg(long, value_name = "URL")]
    pub(crate) agent: Option<String>,
    /// Name the crawler with this product token, such as ExampleBot [default: identity.name]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) name: Option<String>,
    /// Name this mail address or URL for questions [default: identity.contact]
    #[arg(long, value_name = "MAIL")]
    pub(crate) contact: Option<String>,
}

/// Show the agent and its keys
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {}

/// Exchange the key
///
/// The directory has the new key at once. It signs after a day, because verifiers may cache the
/// directory for a day. The old key stays in the directory for a day more.
#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// Sign with the new key at once, and delete all old keys
    #[arg(long)]
    pub(crate) compromised: bool,
}

/// Write what the agent publishes as static files: key directory, card and IP ranges
#[derive(Debug, Args)]
pub(crate) struct DirectoryArgs {
    /// Write the files to this folder, which becomes the root of the agent's site
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Print the signature headers of a request
#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Sign a request to this https URL
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Sign a request with this method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
}

/// Verify a signed request with the own keys, without network
///
/// Exits with 1 if the signature is wrong.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Read the raw HTTP/1.1 request from this file; - for stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) request: PathBuf,
    /// Take the request as sent by this scheme
    #[arg(long, value_name = "SCHEME", value_enum, default_value_t = SchemeArg::Https)]
    pub(crate) scheme: SchemeArg,
}

/// A scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemeArg {
    Https,
    Http,
}

/// Fetch the published key directory and card, and compare them with the own keys
///
/// Exits with 1 if a verifier could not use them.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {}

/// Record that a vendor has registered the crawler
///
/// What signed requests met behind this vendor before is then not held against them. The record
/// lies in the data directory.
#[derive(Debug, Args)]
pub(crate) struct RegisteredArgs {
    /// The vendor, such as cloudflare, akamai, aws, datadome or human
    #[arg(value_name = "VENDOR")]
    pub(crate) vendor: String,
}
