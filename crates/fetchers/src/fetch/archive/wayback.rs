//! The location of a copy in the Wayback Machine: from its availability API first, which is fast but often has no
//! result, then from its CDX API, which is slow and knows all captures.

use serde::Deserialize;
use url::Url;

use super::memento::{CopyAddress, digits_of};
use super::{Errand, Trouble};

/// A response of the availability API.
#[derive(Deserialize)]
struct Available {
    #[serde(default)]
    archived_snapshots: Snapshots,
}

#[derive(Default, Deserialize)]
struct Snapshots {
    closest: Option<Snapshot>,
}

#[derive(Deserialize)]
struct Snapshot {
    #[serde(default)]
    available: bool,
    url: String,
    /// Text, as a rule.
    #[serde(default)]
    status: serde_json::Value,
}

/// Returns the address of the wanted raw capture.
pub(super) async fn locate(errand: &Errand<'_>, base: &Url, availability: Option<&Url>) -> Result<Url, Trouble> {
    if let Some(interface) = availability {
        match available(errand, interface).await {
            Ok(Some((digits, original))) => return capture(base, &digits, &original),
            // An empty result and a fault look alike there; the index knows.
            Ok(None) | Err(Trouble::NotHeld(_) | Trouble::Fault { asked: None, .. }) => {}
            Err(other) => return Err(other),
        }
    }
    let (digits, original) = indexed(errand, base).await?;
    capture(base, &digits, &original)
}

/// Returns digits and address of the nearest capture that the availability API knows.
async fn available(errand: &Errand<'_>, interface: &Url) -> Result<Option<(String, String)>, Trouble> {
    let mut address = interface.clone();
    address.query_pairs_mut().append_pair("url", errand.url.as_str());
    if let Some(wanted) = errand.wanted {
        address.query_pairs_mut().append_pair("timestamp", &digits_of(wanted));
    }
    let Ok(said) = serde_json::from_str::<Available>(&errand.look_up(&address).await?) else { return Ok(None) };
    let closest = said.archived_snapshots.closest.filter(|closest| closest.available && closest.is_page());
    Ok(closest.and_then(|closest| {
        let copy = CopyAddress::read(&closest.url)?;
        Some((copy.digits.to_owned(), copy.original.to_owned()))
    }))
}

impl Snapshot {
    /// Returns whether it is a capture of a page, rather than of an error or a redirect.
    fn is_page(&self) -> bool {
        match &self.status {
            serde_json::Value::String(status) => status == "200",
            serde_json::Value::Number(status) => status.as_u64() == Some(200),
            // An older API omits the status.
            _ => true,
        }
    }
}

/// Returns digits and address of the capture in the index: the nearest to the wanted date, or the newest.
async fn indexed(errand: &Errand<'_>, base: &Url) -> Result<(String, String), Trouble> {
    let broken = |what: &str| Trouble::Fault { why: format!("cannot read its index: {what}"), asked: None };
    let mut address = base.join("/cdx/search/cdx").map_err(|error| broken(&error.to_string()))?;
    {
        let mut query = address.query_pairs_mut();
        query
            .append_pair("url", errand.url.as_str())
            .append_pair("output", "json")
            .append_pair("fl", "timestamp,original")
            .append_pair("filter", "statuscode:200");
        match errand.wanted {
            Some(wanted) => query
                .append_pair("sort", "closest")
                .append_pair("closest", &digits_of(wanted))
                .append_pair("limit", "1"),
            None => query.append_pair("limit", "-1"),
        };
    }
    let text = errand.look_up(&address).await?;
    if text.trim().is_empty() {
        return Err(Trouble::NotHeld("no copy".to_owned()));
    }
    let rows: Vec<Vec<String>> = serde_json::from_str(&text).map_err(|error| broken(&error.to_string()))?;
    // The first row names the columns.
    match rows.get(1).map(Vec::as_slice) {
        Some([digits, original]) => Ok((digits.clone(), original.clone())),
        Some(_) => Err(broken("unexpected columns")),
        None => Err(Trouble::NotHeld("no copy".to_owned())),
    }
}

/// Returns the address of a raw capture.
fn capture(base: &Url, digits: &str, original: &str) -> Result<Url, Trouble> {
    let base = base.as_str().trim_end_matches('/');
    let address = format!("{base}/web/{digits}id_/{original}");
    Url::parse(&address)
        .map_err(|error| Trouble::Fault { why: format!("invalid capture address {address}: {error}"), asked: None })
}
