//! The location of a copy in the Wayback Machine: from its availability API first, which is fast
//! but often has no result, then from its CDX API, which is slow and knows all captures.

use serde::Deserialize;
use url::Url;

use super::memento::{CopyAddress, digits_of};
use super::{ArchiveError, ArchiveRequest};

/// A response of the availability API.
#[derive(Deserialize)]
struct AvailabilityResponse {
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
pub(super) async fn locate(
    request: &ArchiveRequest<'_>,
    base: &Url,
    availability: Option<&Url>,
) -> Result<Url, ArchiveError> {
    if let Some(interface) = availability {
        match available(request, interface).await {
            Ok(Some((digits, original))) => return capture(base, &digits, &original),
            // An empty result and a fault look alike there; the index knows.
            Ok(None)
            | Err(ArchiveError::NotHeld(_) | ArchiveError::Fault { requested_pause: None, .. }) => {
            }
            Err(other) => return Err(other),
        }
    }
    let (digits, original) = indexed(request, base).await?;
    capture(base, &digits, &original)
}

/// Returns digits and address of the nearest capture that the availability API knows.
async fn available(
    request: &ArchiveRequest<'_>,
    interface: &Url,
) -> Result<Option<(String, String)>, ArchiveError> {
    let mut address = interface.clone();
    address.query_pairs_mut().append_pair("url", request.url.as_str());
    if let Some(wanted) = request.wanted {
        address.query_pairs_mut().append_pair("timestamp", &digits_of(wanted));
    }
    let Ok(response) =
        serde_json::from_str::<AvailabilityResponse>(&request.look_up(&address).await?)
    else {
        return Ok(None);
    };
    let closest = response
        .archived_snapshots
        .closest
        .filter(|closest| closest.available && closest.is_page());
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

/// Returns digits and address of the capture in the index: the nearest to the wanted date, or the
/// newest.
async fn indexed(
    request: &ArchiveRequest<'_>,
    base: &Url,
) -> Result<(String, String), ArchiveError> {
    let broken = |what: &str| ArchiveError::Fault {
        reason: format!("cannot read its index: {what}"),
        requested_pause: None,
    };
    let mut address = base.join("/cdx/search/cdx").map_err(|error| broken(&error.to_string()))?;
    {
        let mut query = address.query_pairs_mut();
        query
            .append_pair("url", request.url.as_str())
            .append_pair("output", "json")
            .append_pair("fl", "timestamp,original")
            .append_pair("filter", "statuscode:200");
        match request.wanted {
            Some(wanted) => query
                .append_pair("sort", "closest")
                .append_pair("closest", &digits_of(wanted))
                .append_pair("limit", "1"),
            None => query.append_pair("limit", "-1"),
        };
    }
    let text = request.look_up(&address).await?;
    if text.trim().is_empty() {
        return Err(ArchiveError::NotHeld("no copy".to_owned()));
    }
    let rows: Vec<Vec<String>> =
        serde_json::from_str(&text).map_err(|error| broken(&error.to_string()))?;
    // The first row names the columns.
    match rows.get(1).map(Vec::as_slice) {
        Some([digits, original]) => Ok((digits.clone(), original.clone())),
        Some(_) => Err(broken("unexpected columns")),
        None => Err(ArchiveError::NotHeld("no copy".to_owned())),
    }
}

/// Returns the address of a raw capture.
fn capture(base: &Url, digits: &str, original: &str) -> Result<Url, ArchiveError> {
    let base = base.as_str().trim_end_matches('/');
    let address = format!("{base}/web/{digits}id_/{original}");
    Url::parse(&address).map_err(|error| ArchiveError::Fault {
        reason: format!("invalid capture address {address}: {error}"),
        requested_pause: None,
    })
}
