//! The offers of a 402 besides its price: x402 payments and RSL licences. They are recorded, and
//! none is accepted.
//!
//! Invariants: at most [`MAX_OFFERS`] offers of printable ASCII are read. An offer that cannot be
//! read is left out.
//!
//! Must not know: how anything is paid.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::fetch::Response;
use fetchwise_types::consent::header_terms;
use fetchwise_types::response::header;

/// The most offers that are recorded of one response.
pub const MAX_OFFERS: usize = 8;
/// The longest field of an offer.
const MAX_FIELD: usize = 128;
/// The longest body or header that is read.
const MAX_READ: usize = 64 << 10;

/// What a 402 says by x402, version 1 (body) or 2 (header `PAYMENT-REQUIRED`).
#[derive(Deserialize)]
struct PaymentRequired {
    #[serde(rename = "x402Version")]
    _version: u32,
    #[serde(default)]
    accepts: Vec<serde_json::Value>,
}

/// One way to pay by x402.
#[derive(Deserialize)]
struct PaymentRequirement {
    scheme: String,
    network: String,
    /// In the smallest unit of the asset.
    #[serde(alias = "maxAmountRequired")]
    amount: String,
    asset: String,
}

/// Returns the offers of a 402 as text: `x402 SCHEME NETWORK AMOUNT ASSET` or `rsl ADDRESS`. Any
/// other response has none.
///
/// ```
/// use fetchwise_fetchers::fetch::{Body, Response};
/// use fetchwise_fetchers::payment_offers::payment_offers;
///
/// let body = r#"{"x402Version":1,"accepts":[{"scheme":"exact","network":"base","maxAmountRequired":"10000","asset":"0x1"}]}"#;
/// let url = "https://shop.example/".parse().unwrap();
/// let response = Response::new(402, Vec::new(), Body::in_memory(body), url);
/// assert_eq!(payment_offers(&response), ["x402 exact base 10000 0x1".into()]);
/// ```
pub fn payment_offers(response: &Response) -> Vec<Box<str>> {
    if response.status != 402 {
        return Vec::new();
    }
    let in_header =
        header(&response.headers, "payment-required").filter(|value| value.len() <= MAX_READ);
    let in_header = in_header.and_then(|value| STANDARD.decode(value.trim()).ok());
    let body: &[u8] = response.body.head();
    let in_body = (response.body.len() <= MAX_READ as u64).then_some(body);
    let x402 = in_header.as_deref().into_iter().chain(in_body).flat_map(x402_offers);
    let licences = header_terms(&response.headers, "").into_iter().filter_map(|term| term.license);
    let mut offers: Vec<Box<str>> = Vec::new();
    for offer in x402.chain(licences.map(|address| format!("rsl {address}").into())) {
        if offers.len() < MAX_OFFERS && !offers.contains(&offer) {
            offers.push(offer);
        }
    }
    offers
}

fn x402_offers(json: &[u8]) -> Vec<Box<str>> {
    let Ok(required) = serde_json::from_slice::<PaymentRequired>(json) else { return Vec::new() };
    let read = |one: serde_json::Value| {
        let PaymentRequirement { scheme, network, amount, asset } =
            serde_json::from_value(one).ok()?;
        let is_plain = |field: &String| {
            !field.is_empty()
                && field.len() <= MAX_FIELD
                && field.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let fields = [scheme, network, amount, asset];
        fields.iter().all(is_plain).then(|| format!("x402 {}", fields.join(" ")).into())
    };
    required.accepts.into_iter().take(MAX_OFFERS).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Body;
    use fetchwise_types::response::Header;

    fn offers(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<String> {
        let headers = headers.iter().map(|(name, value)| Header::new(*name, *value)).collect();
        let url = "https://shop.example/".parse().unwrap();
        let response =
            Response::new(status, headers, Body::in_memory(body.as_bytes().to_vec()), url);
        payment_offers(&response).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn offers_are_read_from_the_body_the_header_and_links() {
        let one = r#"{"scheme":"exact","network":"base","maxAmountRequired":"10000","asset":"0xA","payTo":"0xB"}"#;
        let body = format!(
            "{{\"x402Version\":1,\"accepts\":[{one},{{\"scheme\":5}},{one}],\"error\":\"pay\"}}"
        );
        assert_eq!(
            offers(402, &[], &body),
            ["x402 exact base 10000 0xA"],
            "each once, and what can be read"
        );
        let second = r#"{"x402Version":2,"accepts":[{"scheme":"upto","network":"eip155:8453","amount":"3","asset":"0xC"}]}"#;
        let headers = [
            ("Payment-Required", &*STANDARD.encode(second)),
            ("Link", "<https://shop.example/l.xml>; rel=\"license\"; type=\"application/rsl+xml\""),
        ];
        assert_eq!(
            offers(402, &headers, "<h1>Payment required</h1>"),
            ["x402 upto eip155:8453 3 0xC", "rsl https://shop.example/l.xml"]
        );
        assert!(offers(200, &headers, &body).is_empty(), "only a 402 offers");
    }

    #[test]
    fn hostile_offers_are_left_out() {
        let with = |field: &str| {
            let one = format!(
                "{{\"scheme\":\"exact\",\"network\":{field},\"amount\":\"1\",\"asset\":\"0x\"}}"
            );
            offers(402, &[], &format!("{{\"x402Version\":1,\"accepts\":[{one}]}}"))
        };
        assert_eq!(with("\"base\"").len(), 1);
        let long = format!("\"{}\"", "n".repeat(MAX_FIELD + 1));
        for field in ["\"\"", "\"a b\"", "\"a\\nb\"", "\"\u{e9}\"", "7", "null", "[]", &long] {
            assert!(with(field).is_empty(), "{field}");
        }
        let many: Vec<String> = (0..100)
            .map(|n| {
                format!("{{\"scheme\":\"s\",\"network\":\"n\",\"amount\":\"{n}\",\"asset\":\"a\"}}")
            })
            .collect();
        let body = format!("{{\"x402Version\":1,\"accepts\":[{}]}}", many.join(","));
        assert_eq!(offers(402, &[], &body).len(), MAX_OFFERS);
        for headers in [[("payment-required", "%%%")], [("payment-required", "e30=")]] {
            assert!(offers(402, &headers, "{").is_empty());
        }
    }
}
