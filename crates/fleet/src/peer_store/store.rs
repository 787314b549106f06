//! `peers/`, open for writing.
//!
//! Owns: the order of updates: the record first, then the evidence, then the peer states.
//!
//! Invariants: evidence and peer states are both folds of the log, so they agree whenever the process dies.
//!
//! Must not know: brokers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::evidence::Share;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::{Durability, Log, LogOptions, OnFull, OpenCheck, Record, Recovery};

use super::fold::{self, FOLDER, fold, mixed};
use crate::error::FleetError;
use crate::failpoints;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{Head, forgot};
use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
use crate::model::peer_state::{Book, Counted};
use crate::peer_store::apply::{Apart, FactsOf, OwnedFact, Teaches};
use crate::peer_store::record::{Event, FINGERPRINT, SCHEMA, TakenShare};
use crate::peer_store::snapshots::{Gate, Keeper, hold};
use crate::transport::Position;

/// The interval between removals of expired link states.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// `peers/`, open.
#[derive(Debug)]
pub(crate) struct Peers {
    dir: PathBuf,
    log: Log,
    /// The state of all peers.
    pub(crate) book: Book,
    own: (Origin, BTreeMap<u32, Intervals>),
    pub(super) selector: Arc<Selector>,
    /// The number of records after the newest snapshot, and their bytes.
    pub(crate) behind: (u64, u64),
    shares: u64,
    /// The egress group of this node. Link states of that group apply to its visits.
    egress: String,
    /// The time of the next removal of expired link states.
    sweep_at: Timestamp,
    /// The maximum size of the evidence in a snapshot, in bytes.
    pub(crate) max_snapshot_bytes: u64,
    gate: Gate,
    /// The snapshot whose mixed evidence was discarded since.
    dissolved: Option<u64>,
    /// For tests: whether mixed evidence is discarded before one of its nodes is removed.
    pub(crate) takes_apart: bool,
    /// For tests: whether late attempts change which outcome counts as the last one.
    pub(crate) late_is_news: bool,
}

impl Peers {
    /// Opens `peers/` in the data directory, creates it if needed, and teaches the selector its content.
    pub(crate) fn open(
        data: &Path,
        own: (Origin, BTreeMap<u32, Intervals>),
        selector: Arc<Selector>,
    ) -> Result<Self, FleetError> {
        let dir = data.join(FOLDER);
        let (log, recovery) = open(&dir)?;
        let (book, last) = fold(&dir, &own, None, u64::MAX, &mut Teaches { selector: &selector })?;
        let covers = fetchwise_log::load_snapshot(&dir)?.snapshot.map_or(0, |found| found.meta().covers_seq);
        let behind = (last.saturating_sub(covers), 0);
        let shares = recovery.next_seq;
        Ok(Self {
            dir,
            log,
            book,
            own,
            selector,
            behind,
            shares,
            egress: String::new(),
            sweep_at: Timestamp::default(),
            max_snapshot_bytes: u64::MAX,
            gate: Gate::default(),
            dissolved: None,
            takes_apart: true,
            late_is_news: false,
        })
    }

    /// Works like [`append`].
    pub(super) fn append(&mut self, event: &Event<'_>, at: Timestamp) -> Result<(), FleetError> {
        let bytes = append(&self.log, event, at)?;
        self.behind = (self.behind.0 + 1, self.behind.1 + bytes);
        Ok(())
    }

    /// Applies a message that was decoded to `batch`. With `is_doubted`, its keys are evicted first.
    pub(crate) fn message(
        &mut self,
        origin: Origin,
        (position, at): (Position, Timestamp),
        body: &Bytes,
        batch: &Batch,
        is_doubted: bool,
    ) -> Result<Counted, FleetError> {
        self.append(&Event::Message { origin, position, at, body }, at)?;
        failpoints::reached(failpoints::APPENDED);
        let changed = self.book.links_of(origin, batch, at);
        self.tell_links(&changed);
        let (selector, late_is_news) = (&self.selector, self.late_is_news);
        let counted = self.book.message(origin, batch, at, |fact| match (late_is_news, is_doubted) {
            (true, _) => selector.learn_fact_as_news(fact),
            (false, true) => selector.learn_fact_doubted(fact),
            (false, false) => selector.learn_fact(fact),
        });
        self.book.cursor = position;
        failpoints::reached(failpoints::LEARNED);
        Ok(counted)
    }

    /// Sets the egress group of this node, and applies the link states of that group to visits.
    pub(crate) fn heed_links(&mut self, egress: &str) {
        egress.clone_into(&mut self.egress);
        self.sweep_links();
        self.tell_links(&self.book.links.all());
    }

    /// Passes the current states of these links to visits.
    fn tell_links(&self, links: &[u64]) {
        links.iter().for_each(|link| self.selector.set_remote_link_state(*link, self.book.links.state(*link, &self.egress)));
    }

    /// Removes expired link states from time to time.
    pub(crate) fn sweep_links(&mut self) {
        let now = self.selector.now();
        if now >= self.sweep_at {
            self.sweep_at = now.saturating_add(SWEEP_EVERY);
            let gone = self.book.links.sweep(now);
            self.tell_links(&gone);
        }
    }

    /// Records that everything up to a position had nothing new. It is written only with `keep`; reading again does no
    /// harm.
    pub(crate) fn passed(&mut self, position: Position, keep: bool, now: Timestamp) -> Result<(), FleetError> {
        if keep {
            self.append(&Event::Cursor(position), now)?;
        }
        self.book.cursor = position;
        Ok(())
    }

    pub(crate) fn set_aside(&mut self, origin: Origin, why: String, now: Timestamp) -> Result<(), FleetError> {
        self.append(&Event::Aside { origin, why: why.clone() }, now)?;
        self.book.set_aside(origin, why);
        Ok(())
    }

    /// Closes a node that has left for good.
    pub(crate) fn close(&mut self, origin: Origin, now: Timestamp) -> Result<(), FleetError> {
        self.append(&Event::Close(origin), now)?;
        self.book.close(origin);
        Ok(())
    }

    /// Folds everything that counts of some nodes separately; `with_general` includes global snapshots. Blocks.
    fn evidence_of(&self, of: &[Origin], with_general: bool) -> Result<Share, FleetError> {
        let _ = self.log.flush().wait();
        let blank = self.selector.blank().map_err(|error| FleetError::Selector(error.to_string()))?;
        let mut apart = Apart { selector: blank, newest: Timestamp::default(), with_general };
        fold(&self.dir, &self.own, Some(of), u64::MAX, &mut apart)?;
        Ok(apart.selector.share(apart.newest, 0.0))
    }

    /// Marks the keys that a node has brought for early eviction, unless its evidence is mixed. Blocks.
    pub(crate) fn doubt(&mut self, origin: Origin) -> Result<(), FleetError> {
        self.evidence_of(&[origin], true).map(|evidence| self.selector.doubt_share(&evidence))
    }

    /// If a node's evidence is mixed with that of others, retracts the evidence of all of them. It is fetched again
    /// from their snapshots and the stream. Returns whether it was mixed. Blocks; the gate must be held.
    fn dissolve(&mut self, origin: Origin, now: Timestamp) -> Result<bool, FleetError> {
        let (covers, group) = mixed(&self.dir)?;
        // Evidence that was dissolved after the snapshot is not mixed any more.
        if !self.takes_apart || !group.contains(&origin) || self.dissolved == Some(covers) {
            return Ok(false);
        }
        let evidence = self.evidence_of(&group, false)?;
        self.append(&Event::Dissolve(group.clone()), now)?;
        self.selector.give_share_back(&evidence);
        self.book.dissolve(&group);
        self.dissolved = Some(covers);
        let begin = Position { seq: 0, ..self.book.cursor };
        self.passed(begin, true, now)?;
        Ok(true)
    }

    /// Retracts a node's evidence. Returns whether evidence of other nodes has gone, too, and has to be fetched again.
    /// Blocks.
    pub(crate) fn exclude(&mut self, origin: Origin, now: Timestamp) -> Result<bool, FleetError> {
        let gate = Arc::clone(&self.gate);
        let _held = hold(&gate);
        let begins_anew = self.dissolve(origin, now)?;
        let evidence = self.evidence_of(&[origin], true)?;
        self.append(&Event::Exclude(origin), now)?;
        self.selector.give_share_back(&evidence);
        let links = self.book.links.drop_origin(origin);
        self.book.exclude(origin);
        self.tell_links(&links);
        Ok(begins_anew)
    }

    /// Includes a node again. Its evidence is read again, from its snapshot and from the beginning of the stream.
    pub(crate) fn include(&mut self, origin: Origin, now: Timestamp) -> Result<(), FleetError> {
        self.append(&Event::Include(origin), now)?;
        self.book.include(origin);
        let begin = Position { seq: 0, ..self.book.cursor };
        self.passed(begin, true, now)
    }

    /// Sets the epochs of the node's own log.
    pub(crate) fn set_own(&mut self, own: (Origin, BTreeMap<u32, Intervals>)) {
        self.own = own.clone();
        self.book.own = Some(own);
    }

    /// Returns whether `peers/` still has messages for the positions that a snapshot lacks.
    pub(crate) fn has_messages_for(
        &self,
        origin: Origin,
        covers: &BTreeMap<u32, Intervals>,
    ) -> Result<bool, FleetError> {
        let mut all = covers.clone();
        for (_, body) in self.messages_behind(origin, covers)? {
            if let Ok(header) = crate::model::codec::peek(&body) {
                all.entry(header.epoch).or_default().insert(header.first, header.last);
            }
        }
        Ok(self.lacks(origin, &all).1 == 0)
    }

    /// Returns whether a snapshot would fill a gap, and how many known positions it lacks. Those are requested again.
    pub(crate) fn lacks(&self, origin: Origin, covers: &BTreeMap<u32, Intervals>) -> (bool, u64) {
        let Some(peer) = self.book.peers.get(&origin) else { return (true, 0) };
        let nothing = Intervals::default();
        let seen = |epoch: &u32| peer.seen.get(epoch).unwrap_or(&nothing);
        let fills = covers.iter().any(|(epoch, covered)| !seen(epoch).includes(covered));
        let lacked = peer.seen.iter().map(|(epoch, seen)| {
            let covered = covers.get(epoch).unwrap_or(&nothing);
            seen.runs().iter().fold(0, |sum: u64, (first, last)| sum.saturating_add(covered.missing(*first, *last)))
        });
        (fills, lacked.fold(0, u64::saturating_add))
    }

    /// Replaces everything known of a node by an evidence snapshot. Messages after it that `peers/` still has are
    /// applied again. Blocks.
    pub(crate) fn share(
        &mut self,
        origin: Origin,
        bytes: &Bytes,
        head: &Head,
        share: &Share,
        now: Timestamp,
    ) -> Result<bool, FleetError> {
        self.put_share(origin, bytes, head, share, now, false)
    }

    /// Works like [`apply_snapshot`](Self::apply_snapshot); `is_part` if it holds some sites only.
    pub(super) fn put_share(
        &mut self,
        origin: Origin,
        bytes: &Bytes,
        head: &Head,
        share: &Share,
        now: Timestamp,
        is_part: bool,
    ) -> Result<bool, FleetError> {
        let gate = Arc::clone(&self.gate);
        let _held = hold(&gate);
        let begins_anew = self.dissolve(origin, now)?;
        let known = self.book.peers.get(&origin).is_some_and(|peer| !peer.seen.is_empty());
        let evidence = if known { Some(self.evidence_of(&[origin], false)?) } else { None };
        let again = if known && !is_part { self.messages_behind(origin, &head.covers)? } else { Vec::new() };
        self.shares += 1;
        let file = format!("share-{origin}-{:016x}.fwp", self.shares);
        write_synced(&self.dir, &file, bytes)?;
        failpoints::reached(failpoints::SHARE_FILE);
        let (covers, epoch, base) = (head.covers.clone(), head.epoch, head.base);
        let taken = TakenShare { origin, covers: covers.clone(), epoch, base, file, at: now, is_part };
        self.append(&Event::Share(taken), now)?;
        failpoints::reached(failpoints::SHARE_RECORD);
        if let Some(evidence) = evidence {
            self.selector.give_share_back(&evidence);
        }
        let mut share = share.clone();
        let is_stale = fold::without_forgotten(&self.book, head, &mut share);
        self.selector.take_share(&share);
        self.book.share(origin, &covers, (epoch, base), is_stale, now);
        self.book.is_part(origin, is_part);
        let links = self.book.links.take_kept((origin, now), &head.links, &self.book.forgotten);
        self.tell_links(&links);
        let cursor = self.book.cursor;
        for (at, body) in again {
            if let Ok(batch) = Batch::decode(&body) {
                self.message(origin, (cursor, at), &body, &batch, false)?;
            }
        }
        Ok(begins_anew)
    }

    /// Returns whether a snapshot lacks everything that was forgotten, while the known evidence of its node does not.
    pub(crate) fn refreshes(&self, origin: Origin, head: &Head) -> bool {
        let book = &self.book;
        book.peers.get(&origin).is_some_and(|peer| peer.is_stale)
            && book.forgotten.iter().all(|(domain, until)| head.forgot.contains(&forgot(domain, *until)))
    }

    /// Returns the messages of a node in `peers/` that go beyond a snapshot.
    fn messages_behind(
        &self,
        origin: Origin,
        covers: &BTreeMap<u32, Intervals>,
    ) -> Result<Vec<(Timestamp, Bytes)>, FleetError> {
        let _ = self.log.flush().wait();
        let reader = fetchwise_log::Reader::open(&self.dir)?;
        let mut found = Vec::new();
        fold::each(&reader, 0, u64::MAX, |_, record| {
            if let Ok(Event::Message { origin: by, at, body, .. }) =
                Event::decode(record.kind, record.schema, record.payload)
                && by == origin
                && let Ok(header) = crate::model::codec::peek(body)
                && !covers.get(&header.epoch).is_some_and(|all| all.covers(header.first, header.last))
            {
                found.push((at, Bytes::copy_from_slice(body)));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Forgets a domain up to a time: everything of peers that is not later. Blocks.
    pub(crate) fn forget(&mut self, domain: &str, until: Timestamp, now: Timestamp) -> Result<bool, FleetError> {
        if self.book.forgotten.get(domain).is_some_and(|known| *known >= until) {
            return Ok(false);
        }
        let (counted, mixed) = self.facts_of(domain, until)?;
        self.append(&Event::Forget { domain: domain.to_owned(), until }, now)?;
        let links = self.book.links.forget(domain, until);
        self.book.forget(domain, until);
        self.tell_links(&links);
        for origin in mixed {
            self.book.peers.entry(origin).or_default().is_stale = true;
        }
        self.selector.forget_domain(domain);
        counted.iter().for_each(|fact| fact.with(|fact| self.selector.take_back_fact(fact, false)));
        Ok(true)
    }

    /// Returns the attempts of a domain that count, as far as `peers/` still has them one by one.
    fn facts_of(&self, domain: &str, until: Timestamp) -> Result<(Vec<OwnedFact>, Vec<Origin>), FleetError> {
        let _ = self.log.flush().wait();
        let mut of = FactsOf { domain: domain.to_owned(), until, found: Vec::new(), mixed: Vec::new() };
        fold(&self.dir, &self.own, None, u64::MAX, &mut of)?;
        Ok((of.found, of.mixed))
    }

    /// Requests a sync.
    pub(crate) fn flush(&self) -> fetchwise_log::Acknowledgement {
        self.log.flush()
    }

    /// Returns everything needed to take a snapshot in the background.
    pub(crate) fn keeper(&self) -> Keeper {
        let (dir, own, selector) = (self.dir.clone(), self.own.clone(), Arc::clone(&self.selector));
        Keeper { dir, own, selector, max_snapshot_bytes: self.max_snapshot_bytes, gate: Arc::clone(&self.gate) }
    }
}

/// Opens the log in `peers/`, and creates it if needed.
pub(super) fn open(dir: &Path) -> Result<(Log, Recovery), FleetError> {
    let mut options = LogOptions::default();
    (options.fingerprint, options.durability) = (FINGERPRINT, Durability::default());
    (options.on_full, options.check) = (OnFull::Error, OpenCheck::Tail);
    Ok(Log::open(dir, options)?)
}

/// Appends an event. On an error nothing has changed. Returns its length in bytes.
pub(super) fn append(log: &Log, event: &Event<'_>, at: Timestamp) -> Result<u64, FleetError> {
    let (kind, payload) = event.encode();
    let key_hash = match event {
        Event::Message { origin, .. } | Event::General { origin, .. } => {
            u64::from_le_bytes(*origin.as_bytes().first_chunk().unwrap_or(&[0; 8]))
        }
        _ => 0,
    };
    let record = Record { kind, schema: SCHEMA, key_hash, time_ms: at.as_millis(), payload: &payload };
    let failed = |error: fetchwise_log::AppendError| FleetError::Record(error.to_string());
    match log.append(record) {
        Ok(_) => {}
        Err(fetchwise_log::AppendError::Full) => {
            // Records arrive faster than the disk writes: wait for room.
            let _ = log.flush().wait();
            log.append(record).map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    Ok(payload.len() as u64)
}

/// Writes a whole file and syncs it and its name.
fn write_synced(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FleetError> {
    use std::io::Write;
    let (tmp, path) = (dir.join(format!("tmp-{name}")), dir.join(name));
    let written = (|| {
        let mut file = fs::File::create(&tmp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&tmp, &path)?;
        fs::File::open(dir)?.sync_all()
    })();
    written.map_err(|error| FleetError::io(&path, error))
}
