//! The validators of delivered pages: `ETag` and `Last-Modified`, with the place of the stored body
//! and the page's terms.
//!
//! Owns: a file of JSON lines, one for each change, and the index of the newest line of each URL
//! (16 bytes for each).
//!
//! Invariants: the file only grows while it is open. A line that is incomplete or damaged says
//! nothing: its page is requested in full. A file that is mostly outdated is rewritten when it is
//! opened.
//!
//! Must not know: when a page is revalidated. The pipeline decides that.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::StoredBody;
use crate::fetch::Validators;
use fetchwise_types::consent::{Term, TermPlace, Vocabulary, bounded};
use fetchwise_types::heuristic::url::identity;
use fetchwise_types::query_hash::QueryHash;
use fetchwise_types::response::{Header, header};
use fetchwise_types::time::Timestamp;

/// The longest line that is read.
const MAX_LINE: u64 = 64 << 10;
/// A file with fewer outdated lines is not rewritten.
const MIN_OUTDATED: u64 = 10_000;
/// After this time since the last full response a page is requested in full.
pub const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A page that was delivered earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachedPage {
    /// Its URL, without fragment.
    pub url: String,
    /// Its validators.
    #[serde(flatten)]
    pub validators: Validators,
    /// Milliseconds at which its body came.
    pub fetched_at: i64,
    /// Milliseconds until which it is fresh, if the site said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_until: Option<i64>,
    /// Length of its body in bytes.
    pub bytes: u64,
    /// Where its body is; `None` if it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<StoredBody>,
    /// The terms in its headers and in the page, as the crawl that fetched it read them. `None` if
    /// they are unknown: an earlier release wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Vec<Term>>,
    /// Whether the entry ends the page's earlier one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
}

impl CachedPage {
    /// Returns the entry of a page that came in full at `now`; `None` if it may not be kept, or has
    /// nothing to revalidate it with.
    pub fn of(
        url: &Url,
        headers: &[Header],
        bytes: u64,
        body: Option<StoredBody>,
        now: Timestamp,
    ) -> Option<Self> {
        let validators = Validators::of(headers);
        let fresh_until = fresh_until(headers, now);
        if has_directive(headers, "no-store") || validators.is_empty() && fresh_until.is_none() {
            return None;
        }
        let (url, fetched_at) = (identity(url).to_owned(), now.as_millis());
        let fresh_until = fresh_until.map(Timestamp::as_millis);
        Some(Self {
            url,
            validators,
            fetched_at,
            fresh_until,
            bytes,
            body,
            terms: Some(Vec::new()),
            gone: false,
        })
    }

    /// Returns the entry of a page with these terms.
    #[must_use]
    pub fn with_terms(self, terms: Vec<Term>) -> Self {
        Self { terms: Some(bounded(terms)), ..self }
    }

    /// Returns the terms after a 304 with `headers`, in which `named` are. A header of the 304
    /// replaces the one of the stored response (RFC 9111, section 3.2); all other terms stay.
    pub fn terms_after(&self, headers: &[Header], named: Vec<Term>) -> Vec<Term> {
        let is_replaced = |term: &&Term| {
            let name = match term.vocabulary {
                Vocabulary::Rsl => "link",
                other => other.name(),
            };
            term.place == TermPlace::Header && header(headers, name).is_some()
        };
        let known = self.terms.iter().flatten();
        bounded(known.filter(|term| !is_replaced(term)).cloned().chain(named))
    }

    /// Returns the entry after a 304 with `headers` at `now`.
    #[must_use]
    pub fn confirmed(self, headers: &[Header], now: Timestamp) -> Self {
        let named = Validators::of(headers);
        let validators = Validators {
            etag: named.etag.or(self.validators.etag),
            last_modified: named.last_modified.or(self.validators.last_modified),
        };
        Self {
            validators,
            fresh_until: fresh_until(headers, now).map(Timestamp::as_millis),
            ..self
        }
    }

    /// Returns the entry that ends it.
    fn end(&self) -> Self {
        Self {
            gone: true,
            body: None,
            terms: None,
            validators: Validators::default(),
            ..self.clone()
        }
    }

    /// Returns whether it is fresh at `now`: the site said that it does not change until later.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.fresh_until
            .is_some_and(|until| now.as_millis() < until && now.as_millis() >= self.fetched_at)
    }

    /// Returns whether it is so old at `now` that it is requested in full.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now.since(Timestamp::from_millis(self.fetched_at)) >= MAX_AGE
    }
}

/// Returns until when a response is fresh by its `Cache-Control: max-age` and its `Age`.
fn fresh_until(headers: &[Header], now: Timestamp) -> Option<Timestamp> {
    if has_directive(headers, "no-cache") || has_directive(headers, "no-store") {
        return None;
    }
    let max_age: u64 = directives(headers)
        .find_map(|directive| directive.strip_prefix("max-age=").map(str::to_owned))
        .and_then(|seconds| seconds.trim_matches('"').parse().ok())?;
    let age = header(headers, "age").and_then(|age| age.trim().parse().ok()).unwrap_or(0);
    let left = Duration::from_secs(max_age.saturating_sub(age)).min(MAX_AGE);
    (!left.is_zero()).then(|| now.saturating_add(left))
}

fn has_directive(headers: &[Header], name: &str) -> bool {
    directives(headers).any(|directive| directive.split('=').next() == Some(name))
}

fn directives(headers: &[Header]) -> impl Iterator<Item = String> {
    let values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("cache-control"));
    values
        .flat_map(|header| header.value.split(','))
        .map(|directive| directive.trim().to_ascii_lowercase())
}

/// The validators of every page that a data directory knows.
#[derive(Debug)]
pub struct ValidatorLog {
    state: Mutex<LogState>,
    /// Hashes the query values of URLs, if the data directory does that.
    query_hash: Option<QueryHash>,
}

#[derive(Debug)]
struct LogState {
    file: File,
    /// Offset of the newest line of each URL, by its hash.
    newest: HashMap<u64, u64>,
    len: u64,
}

impl ValidatorLog {
    /// Opens the log at `path`, created if there is none.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written, or if another process has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut state = LogState::read(open_locked(path)?)?;
        if state.is_mostly_outdated()? {
            state = state.rewritten(path)?;
        }
        Ok(Self { state: Mutex::new(state), query_hash: None })
    }

    /// Returns the log with hashes in place of the query values of URLs. What was written before
    /// stays, and is not found.
    #[must_use]
    pub fn with_query_hash(self, query_hash: Option<QueryHash>) -> Self {
        Self { query_hash, ..self }
    }

    /// Returns the number of pages.
    pub fn len(&self) -> usize {
        self.lock().newest.len()
    }

    /// Returns whether there is no page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry of `url`; `None` if there is none that can be read.
    pub fn get(&self, url: &Url) -> Option<CachedPage> {
        let (url, name) = (identity(url), self.name(identity(url)));
        let mut state = self.lock();
        let at = *state.newest.get(&xxh3_64(name.as_bytes()))?;
        // Two URLs may have the same hash: the newer one is known.
        let page =
            state.line_at(at).ok().flatten().filter(|page| page.url == name && !page.gone)?;
        if self.query_hash.is_some() { named(page, url) } else { Some(page) }
    }

    /// Adds an entry. One that is too long for a line ends the page's earlier one.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn put(&self, page: &CachedPage) -> io::Result<()> {
        let hashed = self.query_hash.map(|_| self.hashed(page));
        let page = hashed.as_ref().unwrap_or(page);
        let mut state = self.lock();
        if !state.append(page)? {
            state.append(&page.end())?;
        }
        Ok(())
    }

    /// Forgets a page, if it is known.
    ///
    /// # Errors
    /// Fails if that cannot be written.
    pub fn forget(&self, url: &Url) -> io::Result<()> {
        let Some(page) = self.get(url) else { return Ok(()) };
        self.put(&page.end())
    }

    /// Returns a URL as the file has it.
    fn name<'u>(&self, url: &'u str) -> Cow<'u, str> {
        self.query_hash.map_or(Cow::Borrowed(url), |hash| hash.url(url))
    }

    /// Returns an entry as the file has it.
    fn hashed(&self, page: &CachedPage) -> CachedPage {
        let mut page = CachedPage { url: self.name(&page.url).into_owned(), ..page.clone() };
        if let Some(record) = page.body.as_mut().and_then(|body| body.record.as_mut()) {
            record.url = self.name(&record.url).into_owned();
        }
        page
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        // An entry is written before it is indexed, so the state is consistent even if a thread
        // panicked with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an entry of the file with the URL that was asked for. `None` if its record in an archive
/// has another URL, which is not known any more.
fn named(mut page: CachedPage, url: &str) -> Option<CachedPage> {
    if let Some(record) = page.body.as_mut().and_then(|body| body.record.as_mut()) {
        if record.url != page.url {
            return None;
        }
        url.clone_into(&mut record.url);
    }
    url.clone_into(&mut page.url);
    Some(page)
}

impl LogState {
    /// Reads all lines. An incomplete last line is cut off.
    fn read(file: File) -> io::Result<Self> {
        let (mut newest, mut len) = (HashMap::new(), 0);
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
            if read == 0 || line.last() != Some(&b'\n') && read < MAX_LINE {
                break;
            }
            if let Ok(page) = serde_json::from_slice::<CachedPage>(&line) {
                match page.gone {
                    true => newest.remove(&xxh3_64(page.url.as_bytes())),
                    false => newest.insert(xxh3_64(page.url.as_bytes()), len),
                };
            }
            len += read;
        }
        let file = reader.into_inner();
        if file.metadata()?.len() > len {
            file.set_len(len)?;
        }
        Ok(Self { file, newest, len })
    }

    fn line_at(&mut self, at: u64) -> io::Result<Option<CachedPage>> {
        self.file.seek(SeekFrom::Start(at))?;
        let mut line = Vec::new();
        BufReader::new((&mut self.file).take(MAX_LINE)).read_until(b'\n', &mut line)?;
        Ok(serde_json::from_slice(&line).ok())
    }

    /// Adds an entry. Returns false for one that is too long for a line: it is not written.
    fn append(&mut self, page: &CachedPage) -> io::Result<bool> {
        let mut line = serde_json::to_vec(page).map_err(io::Error::other)?;
        line.push(b'\n');
        if line.len() as u64 > MAX_LINE {
            return Ok(false);
        }
        self.file.seek(SeekFrom::Start(self.len))?;
        if let Err(error) = self.file.write_all(&line) {
            // The next line must not continue an incomplete one.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        let hash = xxh3_64(page.url.as_bytes());
        match page.gone {
            true => self.newest.remove(&hash),
            false => self.newest.insert(hash, self.len),
        };
        self.len += line.len() as u64;
        Ok(true)
    }

    fn is_mostly_outdated(&mut self) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(0))?;
        let lines = BufReader::new(&mut self.file).split(b'\n').count() as u64;
        let outdated = lines.saturating_sub(self.newest.len() as u64);
        Ok(outdated > MIN_OUTDATED.max(self.newest.len() as u64))
    }

    /// Returns the log with the newest line of each page only.
    fn rewritten(mut self, path: &Path) -> io::Result<Self> {
        let mut offsets: Vec<u64> = self.newest.values().copied().collect();
        offsets.sort_unstable();
        let folder =
            path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let fresh: PathBuf = {
            let mut file = tempfile::Builder::new().prefix(".part-").tempfile_in(folder)?;
            for at in offsets {
                if let Some(page) = self.line_at(at)? {
                    let mut line = serde_json::to_vec(&page).map_err(io::Error::other)?;
                    line.push(b'\n');
                    file.write_all(&line)?;
                }
            }
            file.as_file().sync_all()?;
            file.into_temp_path().keep().map_err(|error| error.error)?
        };
        fs::rename(&fresh, path)?;
        Self::read(open_locked(path)?)
    }
}

fn open_locked(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    // On systems without locks, the file is not locked.
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let message = format!("{} is open in another process", path.display());
            Err(io::Error::new(io::ErrorKind::WouldBlock, message))
        }
        _ => Ok(file),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn url(n: u32) -> Url {
        format!("https://e.org/{n}").parse().unwrap()
    }

    fn page(n: u32, etag: &str) -> CachedPage {
        CachedPage::of(&url(n), &[Header::new("ETag", etag)], 7, None, NOW).unwrap()
    }

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn the_newest_entry_is_read_back_and_survives_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("validators");
        let log = ValidatorLog::open(&path).unwrap();
        for n in 0..10 {
            log.put(&page(n, "\"old\"")).unwrap();
            log.put(&page(n, "\"new\"")).unwrap();
        }
        log.forget(&url(3)).unwrap();
        assert_eq!(log.get(&url(2)), Some(page(2, "\"new\"")));
        assert!(ValidatorLog::open(&path).is_err(), "one process at a time");
        drop(log);
        // A crash cuts the last line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"not json\n{\"url\":\"https://e.org/5\",\"fetch").unwrap();
        drop(file);
        let log = ValidatorLog::open(&path).unwrap();
        assert_eq!((log.len(), log.get(&url(3))), (9, None));
        log.put(&page(5, "\"newest\"")).unwrap();
        drop(log);
        assert_eq!(ValidatorLog::open(&path).unwrap().get(&url(5)), Some(page(5, "\"newest\"")));
    }

    #[test]
    fn the_terms_of_a_page_are_kept_and_those_of_an_earlier_release_are_unknown() {
        use fetchwise_types::consent::{Purpose, header_terms};

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("validators");
        // As an earlier release wrote it, without terms.
        let old = "{\"url\":\"https://e.org/1\",\"etag\":\"\\\"a\\\"\",\"fetched_at\":1790000000000,\"bytes\":7}\n";
        fs::write(&path, old).unwrap();
        let log = ValidatorLog::open(&path).unwrap();
        assert_eq!(log.get(&url(1)), Some(CachedPage { terms: None, ..page(1, "\"a\"") }));
        let term = |place, purpose| Term::new(Vocabulary::ContentUsage, place, purpose, false);
        let own =
            vec![term(TermPlace::Header, Purpose::TrainAi), term(TermPlace::Meta, Purpose::Search)];
        log.put(&page(2, "\"a\"").with_terms([own.clone(), own.clone()].concat())).unwrap();
        drop(log);
        let read = ValidatorLog::open(&path).unwrap().get(&url(2)).unwrap();
        assert_eq!(read.terms.as_ref(), Some(&own));
        let after = |headers: &[Header]| read.terms_after(headers, header_terms(headers, "x"));
        assert_eq!(
            after(&[Header::new("ETag", "\"a\"")]),
            own,
            "a 304 that says nothing changes nothing"
        );
        let permits = after(&[Header::new("Content-Usage", "train-ai=y")]);
        assert_eq!(permits, [own[1].clone(), Term { allowed: Some(true), ..own[0].clone() }]);
        assert_eq!(after(&[Header::new("Content-Signal", "search=no")]).len(), 3);
    }

    #[test]
    fn an_entry_that_is_too_long_ends_the_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("validators");
        let log = ValidatorLog::open(&path).unwrap();
        log.put(&page(1, "\"a\"")).unwrap();
        let file = PathBuf::from("x".repeat(MAX_LINE as usize));
        log.put(&CachedPage {
            body: Some(StoredBody { file, content: None, record: None }),
            ..page(1, "\"b\"")
        })
        .unwrap();
        assert_eq!(log.get(&url(1)), None);
        drop(log);
        assert_eq!(ValidatorLog::open(&path).unwrap().get(&url(1)), None);
    }

    #[test]
    fn a_mostly_outdated_file_is_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("validators");
        let log = ValidatorLog::open(&path).unwrap();
        for n in 0..MIN_OUTDATED + 100 {
            log.put(&page(n as u32 % 5, &format!("\"{n}\""))).unwrap();
        }
        drop(log);
        let before = fs::metadata(&path).unwrap().len();
        let log = ValidatorLog::open(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < before / 100);
        assert_eq!(log.len(), 5);
        assert_eq!(log.get(&url(4)).unwrap().validators.etag.as_deref(), Some("\"10099\""));
    }

    #[test]
    fn freshness_follows_cache_control_and_age() {
        let of = |headers: &[(&str, &str)]| {
            let headers: Vec<Header> =
                headers.iter().map(|(name, value)| Header::new(*name, *value)).collect();
            CachedPage::of(&url(1), &headers, 0, None, NOW)
        };
        let fresh = of(&[("Cache-Control", "public, Max-Age=60"), ("age", "20")]).unwrap();
        assert_eq!((fresh.is_fresh(after(39)), fresh.is_fresh(after(40))), (true, false));
        assert!(
            !of(&[("cache-control", "max-age=60, no-cache"), ("etag", "\"a\"")])
                .unwrap()
                .is_fresh(NOW)
        );
        for none in [
            vec![],
            vec![("etag", "\"a\""), ("cache-control", "no-store")],
            vec![("cache-control", "max-age=x")],
        ] {
            assert_eq!(of(&none), None);
        }
        let long = "e".repeat(300);
        assert_eq!(of(&[("etag", &long)]), None);
        let tagged = of(&[("etag", "W/\"a\"")]).unwrap();
        assert!(
            (!tagged.is_expired(after(86_400)), tagged.is_expired(after(30 * 86_400)))
                == (true, true)
        );
        assert!(tagged.validators.are_confirmed_by(&[Header::new("ETag", "\"a\"")]));
        assert!(!tagged.validators.are_confirmed_by(&[Header::new("ETag", "\"b\"")]));
        assert!(tagged.validators.are_confirmed_by(&[]));
    }
}
