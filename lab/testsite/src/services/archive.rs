//! A web archive like the Wayback Machine: availability API, CDX API, raw captures, and a Memento
//! time gate.
//!
//! Captures are given as data. The responses follow the public descriptions of those APIs: a JSON
//! object with the closest snapshot; rows of text under a row of names; a capture under its digits
//! with `Memento-Datetime` and `Link`. Digits that match no capture exactly redirect to the nearest
//! one.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Reply, Service, ServiceRequest};

/// One capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Timestamp in digits: `20240229120000`
    pub digits: String,
    /// Address of the page.
    pub url: String,
    /// Captured status.
    pub status: u16,
    /// Captured headers.
    pub headers: Vec<(String, String)>,
    /// Captured body.
    pub body: String,
}

impl Capture {
    /// Returns a capture of an HTML page.
    pub fn page(digits: &str, url: &str, body: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "text/html; charset=utf-8".to_owned())];
        Self {
            digits: digits.to_owned(),
            url: url.to_owned(),
            status: 200,
            headers,
            body: body.to_owned(),
        }
    }

    /// Returns a captured redirect to `to`.
    pub fn redirect(digits: &str, url: &str, to: &str) -> Self {
        let headers = vec![("Location".to_owned(), to.to_owned())];
        Self { status: 302, headers, ..Self::page(digits, url, "") }
    }

    /// Returns the digits as a number, which sorts as the times do.
    fn number(&self) -> i64 {
        self.digits.parse().unwrap_or(0)
    }
}

/// Injected faults.
#[derive(Clone, Debug, Default)]
pub struct ArchiveFaults {
    /// The availability API finds no capture.
    pub availability_is_empty: bool,
    /// Every request gets this response instead.
    pub override_reply: Option<Reply>,
    /// Captured redirects keep their captured `Location`, which leads to the live site.
    pub keeps_captured_locations: bool,
}

/// A running web archive.
#[derive(Debug)]
pub struct WebArchive {
    service: Service,
    faults: Arc<Mutex<ArchiveFaults>>,
}

impl WebArchive {
    /// Starts an archive with these captures, on a free port of `ip`.
    ///
    /// # Errors
    /// See [`Service::start`].
    pub fn start(ip: IpAddr, captures: Vec<Capture>) -> io::Result<Self> {
        let faults: Arc<Mutex<ArchiveFaults>> = Arc::default();
        let own = Arc::clone(&faults);
        let service = Service::start(ip, move |request| {
            let faults = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            answer(request, &captures, &faults)
        })?;
        Ok(Self { service, faults })
    }

    /// Changes the injected faults, from the next request on.
    pub fn set_faults(&self, faults: ArchiveFaults) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Returns the service, which has the received requests.
    pub fn service(&self) -> &Service {
        &self.service
    }
}

fn answer(request: &ServiceRequest, captures: &[Capture], faults: &ArchiveFaults) -> Reply {
    if let Some(reply) = &faults.override_reply {
        return reply.clone();
    }
    let path = request.target.split('?').next().unwrap_or_default();
    let host = request.header("host").unwrap_or_default();
    if path == "/wayback/available" {
        let found = if faults.availability_is_empty {
            None
        } else {
            wanted(request, "timestamp", captures)
        };
        let closest = found.map_or(String::new(), |capture| {
            format!(
                r#""closest":{{"status":"200","available":true,"url":"http://{host}/web/{0}/{1}","timestamp":"{0}"}}"#,
                capture.digits, capture.url
            )
        });
        return Reply::status(200)
            .body("application/json", format!(r#"{{"archived_snapshots":{{{closest}}}}}"#));
    }
    if path == "/cdx/search/cdx" {
        let row = wanted(request, "closest", captures);
        let row = row
            .map_or(String::new(), |capture| format!(",[{:?},{:?}]", capture.digits, capture.url));
        let rows = if row.is_empty() {
            "[]".to_owned()
        } else {
            format!(r#"[["timestamp","original"]{row}]"#)
        };
        return Reply::status(200).body("application/json", rows);
    }
    if let Some(url) = request.target.strip_prefix("/timegate/") {
        return time_gate(request, host, url, captures);
    }
    match request.target.strip_prefix("/web/") {
        Some(rest) => replay(host, rest, captures, faults),
        None => Reply::status(404),
    }
}

/// Returns the capture of a page that is nearest to the wanted digits, or the newest.
fn wanted<'c>(
    request: &ServiceRequest,
    parameter: &str,
    captures: &'c [Capture],
) -> Option<&'c Capture> {
    let url = request.parameter("url")?;
    let pages: Vec<Capture> =
        captures.iter().filter(|capture| capture.status == 200).cloned().collect();
    let found = nearest(&url, request.parameter(parameter).as_deref(), &pages)?.digits.clone();
    captures.iter().find(|capture| capture.digits == found && capture.url == url)
}

fn nearest<'c>(url: &str, digits: Option<&str>, captures: &'c [Capture]) -> Option<&'c Capture> {
    let of_url = captures.iter().filter(|capture| capture.url == url);
    match digits.and_then(|digits| digits.parse::<i64>().ok()) {
        Some(wanted) => of_url.min_by_key(|capture| (capture.number() - wanted).abs()),
        None => of_url.max_by_key(|capture| capture.number()),
    }
}

fn time_gate(request: &ServiceRequest, host: &str, url: &str, captures: &[Capture]) -> Reply {
    let wanted = request.header("accept-datetime").map(digits_of_http_date);
    let Some(capture) = nearest(url, wanted.as_deref(), captures) else {
        return Reply::status(404);
    };
    Reply::status(302)
        .header("Vary", "accept-datetime")
        .header("Link", format!("<{url}>; rel=\"original\""))
        .header("Location", format!("http://{host}/web/{}/{url}", capture.digits))
}

/// Converts `Thu, 29 Feb 2024 12:34:56 GMT` to digits.
fn digits_of_http_date(date: &str) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = date.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
    let [_, day, month, year, hour, minute, second, ..] = words[..] else { return String::new() };
    let month = MONTHS.iter().position(|name| *name == month).map_or(0, |place| place + 1);
    format!("{year}{month:02}{day}{hour}{minute}{second}")
}

fn replay(host: &str, rest: &str, captures: &[Capture], faults: &ArchiveFaults) -> Reply {
    let Some((stamp, url)) = rest.split_once('/') else { return Reply::status(404) };
    let (digits, form) = stamp.split_at(stamp.len().min(14));
    let Some(capture) = nearest(url, Some(digits), captures) else {
        return Reply::status(404)
            .body("text/html", "<h1>The archive has not captured that page</h1>");
    };
    if capture.digits != digits {
        let to = format!("http://{host}/web/{}{form}/{url}", capture.digits);
        return Reply::status(302).header("Location", to);
    }
    let mut reply = Reply::status(capture.status)
        .header("Memento-Datetime", http_date(digits))
        .header(
            "Link",
            format!("<{url}>; rel=\"original\", <http://{host}/timegate/{url}>; rel=\"timegate\""),
        )
        .header("Server", "stand-in archive");
    for (name, value) in &capture.headers {
        match name.as_str() {
            "Content-Type" => reply = reply.header(name, value),
            "Location" if faults.keeps_captured_locations => reply = reply.header(name, value),
            "Location" => {
                reply = reply.header(name, format!("http://{host}/web/{digits}{form}/{value}"))
            }
            _ => {}
        }
        reply = reply.header(&format!("X-Archive-Orig-{name}"), value);
    }
    let banner = if form == "id_" { "" } else { "<!-- the archive's banner -->" };
    reply.body = format!("{banner}{}", capture.body).into_bytes();
    reply
}

fn http_date(digits: &str) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let part = |from: usize, to: usize| {
        digits.get(from..to).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0)
    };
    let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
    // Sakamoto's algorithm for the weekday.
    let shift =
        [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4].get(month.saturating_sub(1)).copied().unwrap_or(0);
    let y = if month < 3 { year.saturating_sub(1) } else { year };
    let weekday = WEEKDAYS[(y + y / 4 - y / 100 + y / 400 + shift + day) % 7];
    let month = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or("Jan");
    let time = (part(8, 10), part(10, 12), part(12, 14));
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", time.0, time.1, time.2)
}
