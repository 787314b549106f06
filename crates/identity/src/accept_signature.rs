//! `Accept-Signature`: the signature that a server asks for (RFC 9421, section 5).
//!
//! Invariants: nothing hostile is echoed. A structured field has only printable ASCII, a long nonce
//! is refused, and a request for a component that this crate cannot cover is no request.
//!
//! Must not know: statuses and retries.

use sfv::{Dictionary, ListEntry, Parser};

use crate::message::{Component, DERIVED};
use crate::signed_headers::SignedHeaders;

/// Longest nonce that is echoed, in bytes.
pub const MAX_NONCE: usize = 128;
/// Longest label that is echoed, in bytes.
const MAX_LABEL: usize = 64;
/// The tag of Web Bot Auth.
const TAG: &str = "web-bot-auth";

/// The signature that a server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRequest {
    pub(crate) label: String,
    pub(crate) components: Vec<Component>,
    pub(crate) nonce: Option<String>,
}

impl SignatureRequest {
    /// Reads an `Accept-Signature` header. Returns the first member that asks for a signature of
    /// ours.
    ///
    /// ```
    /// use fetchwise_identity::SignatureRequest;
    ///
    /// let wanted = SignatureRequest::read(r#"sig2=("@authority" "@query");nonce="c2VydmVy";tag="web-bot-auth""#).unwrap();
    /// assert_eq!(wanted.label(), "sig2");
    /// assert!(SignatureRequest::read(r#"sig1=("content-digest");tag="web-bot-auth""#).is_none());
    /// assert!(SignatureRequest::read("sig1=(\"@authority\");tag=\"payment\"").is_none());
    /// ```
    pub fn read(header: &str) -> Option<Self> {
        let members: Dictionary = Parser::new(header).parse().ok()?;
        members.into_iter().find_map(|(label, member)| match member {
            ListEntry::InnerList(list) if label.as_str().len() <= MAX_LABEL => {
                let text = |name: &str| {
                    list.params
                        .iter()
                        .find(|(known, _)| known.as_str() == name)
                        .map(|(_, value)| value.as_string())
                };
                if !matches!(text("tag"), None | Some(Some(_)))
                    || text("tag").flatten().is_some_and(|t| t.as_str() != TAG)
                {
                    return None;
                }
                let nonce = match text("nonce") {
                    None => None,
                    Some(nonce) => Some(
                        nonce
                            .filter(|nonce| nonce.as_str().len() <= MAX_NONCE)?
                            .as_str()
                            .to_owned(),
                    ),
                };
                let components = list.items.iter().map(component).collect::<Option<Vec<_>>>()?;
                Some(Self { label: label.as_str().to_owned(), components, nonce })
            }
            _ => None,
        })
    }

    /// Returns the label for the signature.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns whether a signature already has what is asked for. One with a nonce of the server's
    /// never has.
    pub fn is_met_by(&self, sent: &SignedHeaders) -> bool {
        let listed = sent.input.strip_prefix(&*self.label).and_then(|rest| rest.strip_prefix("=("));
        let listed = listed.and_then(|rest| rest.split_once(')')).map(|(listed, _)| listed);
        self.nonce.is_none()
            && listed.is_some_and(|listed| {
                self.components
                    .iter()
                    .all(|wanted| listed.contains(&format!("\"{}\"", wanted.name)))
            })
    }
}

/// Returns a component that this crate can cover.
fn component(item: &sfv::Item) -> Option<Component> {
    let name = item.bare_item.as_string()?.as_str();
    let is_agent = name == "signature-agent";
    // The form of `Signature-Agent` gives the key.
    let has_known_params =
        item.params.is_empty() || is_agent && item.params.keys().all(|key| key.as_str() == "key");
    (has_known_params && (is_agent || DERIVED.contains(&name))).then(|| Component::named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_label_components_and_nonce() {
        let wanted = SignatureRequest::read(
            r#"x=1, sig9=("@authority" "@query" "signature-agent";key="sig9");nonce="abc""#,
        )
        .unwrap();
        let names: Vec<&str> = wanted.components.iter().map(|component| &*component.name).collect();
        assert_eq!(
            (wanted.label(), names),
            ("sig9", vec!["@authority", "@query", "signature-agent"])
        );
        assert_eq!(wanted.nonce.as_deref(), Some("abc"));
    }

    #[test]
    fn hostile_values_are_not_echoed() {
        let long = format!("sig1=(\"@authority\");nonce=\"{}\"", "a".repeat(MAX_NONCE + 1));
        let long_label = format!("{}=(\"@authority\")", "a".repeat(MAX_LABEL + 1));
        for header in [
            &*long,
            &*long_label,
            "sig1=(\"@authority\");nonce=\"a\r\nEvil: 1\"",
            "sig1=(\"@authority\");nonce=\"\u{e9}\"",
            "s\r\nig1=(\"@authority\")",
            "sig1=(\"@authority\");nonce=5",
            "sig1=(\"cookie\")",
            "sig1=(\"@authority\";req)",
            "sig1=(\"@query-param\";name=\"a\")",
            "",
            "(((",
        ] {
            assert_eq!(SignatureRequest::read(header), None, "{header:?}");
        }
    }
}
