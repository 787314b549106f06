//! A web archive as the Wayback Machine is one: availability interface, CDX interface, raw captures, and a Memento time gate.
//!
//! Captures are given as data. What it answers follows the public descriptions of those interfaces: a JSON object with the closest
//! snapshot, rows of text under a row of names, a capture under its digits with `Memento-Datetime` and `Link`, digits that are not
//! exactly a capture's led to the nearest one by a redirect.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Asked, Reply, Service};

/// One capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// `20240229120000`
    pub digits: String,
    /// The page's address.
    pub url: String,
    /// The status of then.
    pub status: u16,
    /// The headers of then.
    pub headers: Vec<(String, String)>,
    /// The body of then.
    pub body: String,
}

impl Capture {
    /// A capture of an HTML page.
    pub fn page(digits: &str, url: &str, body: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "text/html; charset=utf-8".to_owned())];
        Self { digits: digits.to_owned(), url: url.to_owned(), status: 200, headers, body: body.to_owned() }
    }

    /// A captured redirect to `to`.
    pub fn redirect(digits: &str, url: &str, to: &str) -> Self {
        let headers = vec![("Location".to_owned(), to.to_owned())];
        Self { status: 302, headers, ..Self::page(digits, url, "") }
    }

    /// The digits as a number, which sorts as the times do.
    fn number(&self) -> i64 {
        self.digits.parse().unwrap_or(0)
    }
}

/// What is out of order.
#[derive(Clone, Debug, Default)]
pub struct Moods {
    /// The availability interface knows of nothing.
    pub availability_knows_nothing: bool,
    /// Everything answers with this instead.
    pub instead: Option<Reply>,
    /// Captured redirects keep the `Location` of then, which leads to the live site.
    pub locations_as_captured: bool,
}

/// The archive, as long as it runs.
#[derive(Debug)]
pub struct WebArchive {
    service: Service,
    moods: Arc<Mutex<Moods>>,
}

impl WebArchive {
    /// An archive with these captures, on a free port of `ip`.
    ///
    /// # Errors
    /// See [`Service::start`].
    pub fn start(ip: IpAddr, captures: Vec<Capture>) -> io::Result<Self> {
        let moods: Arc<Mutex<Moods>> = Arc::default();
        let own = Arc::clone(&moods);
        let service = Service::start(ip, move |asked| {
            let moods = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            answer(asked, &captures, &moods)
        })?;
        Ok(Self { service, moods })
    }

    /// Changes what is out of order, from the next request on.
    pub fn set(&self, moods: Moods) {
        *self.moods.lock().unwrap_or_else(PoisonError::into_inner) = moods;
    }

    /// What it was asked.
    pub fn service(&self) -> &Service {
        &self.service
    }
}

fn answer(asked: &Asked, captures: &[Capture], moods: &Moods) -> Reply {
    if let Some(instead) = &moods.instead {
        return instead.clone();
    }
    let path = asked.target.split('?').next().unwrap_or_default();
    let host = asked.header("host").unwrap_or_default();
    if path == "/wayback/available" {
        let found = if moods.availability_knows_nothing { None } else { wanted(asked, "timestamp", captures) };
        let closest = found.map_or(String::new(), |capture| {
            format!(
                r#""closest":{{"status":"200","available":true,"url":"http://{host}/web/{0}/{1}","timestamp":"{0}"}}"#,
                capture.digits, capture.url
            )
        });
        return Reply::status(200).body("application/json", format!(r#"{{"archived_snapshots":{{{closest}}}}}"#));
    }
    if path == "/cdx/search/cdx" {
        let row = wanted(asked, "closest", captures);
        let row = row.map_or(String::new(), |capture| format!(",[{:?},{:?}]", capture.digits, capture.url));
        let rows = if row.is_empty() { "[]".to_owned() } else { format!(r#"[["timestamp","original"]{row}]"#) };
        return Reply::status(200).body("application/json", rows);
    }
    if let Some(url) = asked.target.strip_prefix("/timegate/") {
        return time_gate(asked, host, url, captures);
    }
    match asked.target.strip_prefix("/web/") {
        Some(rest) => replay(host, rest, captures, moods),
        None => Reply::status(404),
    }
}

/// The capture of a page that is nearest to the wanted digits, or the newest.
fn wanted<'c>(asked: &Asked, parameter: &str, captures: &'c [Capture]) -> Option<&'c Capture> {
    let url = asked.parameter("url")?;
    let pages: Vec<Capture> = captures.iter().filter(|capture| capture.status == 200).cloned().collect();
    let found = nearest(&url, asked.parameter(parameter).as_deref(), &pages)?.digits.clone();
    captures.iter().find(|capture| capture.digits == found && capture.url == url)
}

fn nearest<'c>(url: &str, digits: Option<&str>, captures: &'c [Capture]) -> Option<&'c Capture> {
    let of_url = captures.iter().filter(|capture| capture.url == url);
    match digits.and_then(|digits| digits.parse::<i64>().ok()) {
        Some(wanted) => of_url.min_by_key(|capture| (capture.number() - wanted).abs()),
        None => of_url.max_by_key(|capture| capture.number()),
    }
}

fn time_gate(asked: &Asked, host: &str, url: &str, captures: &[Capture]) -> Reply {
    let wanted = asked.header("accept-datetime").map(digits_of_http_date);
    let Some(capture) = nearest(url, wanted.as_deref(), captures) else { return Reply::status(404) };
    Reply::status(302)
        .header("Vary", "accept-datetime")
        .header("Link", format!("<{url}>; rel=\"original\""))
        .header("Location", format!("http://{host}/web/{}/{url}", capture.digits))
}

/// `Thu, 29 Feb 2024 12:34:56 GMT` in digits.
fn digits_of_http_date(date: &str) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = date.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
    let [_, day, month, year, hour, minute, second, ..] = words[..] else { return String::new() };
    let month = MONTHS.iter().position(|name| *name == month).map_or(0, |place| place + 1);
    format!("{year}{month:02}{day}{hour}{minute}{second}")
}

fn replay(host: &str, rest: &str, captures: &[Capture], moods: &Moods) -> Reply {
    let Some((stamp, url)) = rest.split_once('/') else { return Reply::status(404) };
    let (digits, form) = stamp.split_at(stamp.len().min(14));
    let Some(capture) = nearest(url, Some(digits), captures) else {
        return Reply::status(404).body("text/html", "<h1>The archive has not captured that page</h1>");
    };
    if capture.digits != digits {
        let to = format!("http://{host}/web/{}{form}/{url}", capture.digits);
        return Reply::status(302).header("Location", to);
    }
    let mut reply = Reply::status(capture.status)
        .header("Memento-Datetime", http_date(digits))
        .header("Link", format!("<{url}>; rel=\"original\", <http://{host}/timegate/{url}>; rel=\"timegate\""))
        .header("Server", "stand-in archive");
    for (name, value) in &capture.headers {
        match name.as_str() {
            "Content-Type" => reply = reply.header(name, value),
            "Location" if moods.locations_as_captured => reply = reply.header(name, value),
            "Location" => reply = reply.header(name, format!("http://{host}/web/{digits}{form}/{value}")),
            _ => {}
        }
        reply = reply.header(&format!("X-Archive-Orig-{name}"), value);
    }
    let banner = if form == "id_" { "" } else { "<!-- the archive's banner -->" };
    reply.body = format!("{banner}{}", capture.body).into_bytes();
    reply
}

fn http_date(digits: &str) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let part = |from: usize, to: usize| digits.get(from..to).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
    // Sakamoto's way to the weekday.
    let shift = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4].get(month.saturating_sub(1)).copied().unwrap_or(0);
    let y = if month < 3 { year.saturating_sub(1) } else { year };
    let weekday = WEEKDAYS[(y + y / 4 - y / 100 + y / 400 + shift + day) % 7];
    let month = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or("Jan");
    let time = (part(8, 10), part(10, 12), part(12, 14));
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", time.0, time.1, time.2)
}
