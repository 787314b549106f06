//! Names at the broker: the stream, its subjects, buckets, and the keys of cells.
//!
//! Invariants: any text as a cell's key results in a valid NATS name, which decodes to the same
//! text.
//!
//! Must not know: what is stored under a name.

use crate::model::node_id::NodeId;
use crate::transport::{Table, TransportError, shard_of};

/// The maximum length of a pool's name.
const MAX_POOL: usize = 64;
/// The suffix of the stream of global snapshots.
const GENERAL: &str = "_general";
/// The suffix of the stream of evidence snapshots.
const SHARES: &str = "_shares";

/// The names of one pool.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pool: String,
}

impl Names {
    /// Returns the names of a pool.
    pub(super) fn new(pool: &str) -> Result<Self, TransportError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if pool.is_empty() || pool.len() > MAX_POOL || !pool.bytes().all(plain) {
            let shown: String = pool.chars().take(MAX_POOL).collect();
            return Err(TransportError::Invalid(format!(
                "{shown:?} is not a valid pool name: use at most {MAX_POOL} letters, digits, - and _"
            )));
        }
        if let Some(suffix) = [GENERAL, SHARES].into_iter().find(|suffix| pool.ends_with(suffix)) {
            return Err(TransportError::Invalid(format!(
                "{pool:?} is not a valid pool name: the suffix {suffix} is reserved"
            )));
        }
        Ok(Self { pool: pool.to_owned() })
    }

    /// Returns the message stream.
    pub(super) fn stream(&self) -> String {
        format!("FW_{}", self.pool)
    }

    /// Returns the subjects of the message stream.
    pub(super) fn message_subjects(&self) -> String {
        format!("fw.{}.f.*", self.pool)
    }

    /// Returns the subject on which a node publishes.
    pub(super) fn message_subject(&self, node_id: NodeId) -> String {
        format!("fw.{}.f.{node_id}", self.pool)
    }

    /// Returns the node that publishes on a subject.
    pub(super) fn node_of_message(&self, subject: &str) -> Option<NodeId> {
        self.node_in(subject, ".f.")
    }

    fn node_in(&self, subject: &str, kind: &str) -> Option<NodeId> {
        let rest = subject.strip_prefix("fw.")?.strip_prefix(&self.pool)?;
        let name = rest.strip_prefix(kind)?;
        // Only the printed form is valid, so that a node has one subject.
        name.parse().ok().filter(|node_id: &NodeId| node_id.to_string() == name)
    }

    /// Returns the stream of global snapshots.
    pub(super) fn global_stream(&self) -> String {
        format!("FW_{}{GENERAL}", self.pool)
    }

    /// Returns the subjects of the stream of global snapshots.
    pub(super) fn global_subjects(&self) -> String {
        format!("fw.{}.g.*", self.pool)
    }

    /// Returns the subject on which a node publishes its global snapshot.
    pub(super) fn global_subject(&self, node_id: NodeId) -> String {
        format!("fw.{}.g.{node_id}", self.pool)
    }

    /// Returns the node that publishes global snapshots on a subject.
    pub(super) fn node_of_global(&self, subject: &str) -> Option<NodeId> {
        self.node_in(subject, ".g.")
    }

    /// Returns the subject on which a node receives retransmit requests.
    pub(super) fn request_subject(&self, node_id: NodeId) -> String {
        format!("fw.{}.w.{node_id}", self.pool)
    }

    /// Returns the subject of all retransmit requests.
    pub(super) fn request_subjects(&self) -> String {
        format!("fw.{}.w.*", self.pool)
    }

    /// Returns the bucket of a table.
    pub(super) fn bucket(&self, table: Table) -> String {
        format!("FW_{}_{}", self.pool, table.name())
    }

    /// Returns the stream of a table's bucket.
    pub(super) fn bucket_stream(&self, table: Table) -> String {
        format!("KV_{}", self.bucket(table))
    }

    /// Returns the subject of all cells of a table.
    pub(super) fn all_cells(&self, table: Table) -> String {
        format!("$KV.{}.>", self.bucket(table))
    }

    /// Returns the subject of a cell.
    pub(super) fn cell(&self, table: Table, key: &str) -> String {
        format!("$KV.{}.{}", self.bucket(table), escaped(key))
    }

    /// Returns the key of the cell with this subject.
    pub(super) fn key(&self, table: Table, subject: &str) -> Option<String> {
        let name =
            subject.strip_prefix("$KV.")?.strip_prefix(&self.bucket(table))?.strip_prefix('.')?;
        // Only the written form is valid, so that a key has one subject.
        unescaped(name).filter(|key| escaped(key) == name)
    }

    /// Returns the subject of all cells that a node writes about hosts.
    pub(super) fn host_cells(&self, node_id: NodeId) -> String {
        format!("$KV.{}.{node_id}.>", self.bucket(Table::Hosts))
    }

    /// Returns the stream of a work queue. A queue's name has no `_`, so no two queues of any pools
    /// have one stream.
    pub(super) fn queue_stream(&self, queue: &str) -> String {
        format!("FWQ_{}_{queue}", self.pool)
    }

    /// Returns the subjects of a work queue.
    pub(super) fn queue_subjects(&self, queue: &str) -> String {
        format!("fw.{}.q.{queue}.>", self.pool)
    }

    /// Returns the subjects of the sites in a shard of a work queue.
    pub(super) fn queue_shard(&self, queue: &str, shard: u8) -> String {
        format!("fw.{}.q.{queue}.{shard:02}.*", self.pool)
    }

    /// Returns the subject of a site's links.
    pub(super) fn queue_site(&self, queue: &str, site: &str) -> String {
        format!("fw.{}.q.{queue}.{:02}.{}", self.pool, shard_of(site), escaped_token(site))
    }

    /// Returns the site whose links have a subject.
    pub(super) fn site_of_subject(&self, queue: &str, subject: &str) -> Option<String> {
        let (_, token) = subject.rsplit_once('.')?;
        // Only the written form is valid, so that a site has one subject.
        unescaped(token).filter(|site| self.queue_site(queue, site) == subject)
    }

    /// Returns the consumer of a site's links.
    pub(super) fn queue_consumer(site: &str) -> String {
        format!("site-{:032x}", xxhash_rust::xxh3::xxh3_128(site.as_bytes()))
    }

    /// Returns the stream of evidence snapshots.
    pub(super) fn snapshot_stream(&self) -> String {
        format!("FW_{}{SHARES}", self.pool)
    }

    /// Returns the subjects of the stream of evidence snapshots.
    pub(super) fn snapshot_subjects(&self) -> String {
        format!("fw.{}.s.>", self.pool)
    }

    /// Returns the subjects of all messages of a blob.
    pub(super) fn blob_parts(&self, name: &str) -> String {
        format!("fw.{}.s.{}.>", self.pool, escaped_token(name))
    }

    /// Returns the subject of a blob's head.
    pub(super) fn blob_head(&self, name: &str) -> String {
        format!("fw.{}.s.{}.head", self.pool, escaped_token(name))
    }

    /// Returns the subjects of all heads.
    pub(super) fn blob_heads(&self) -> String {
        format!("fw.{}.s.*.head", self.pool)
    }

    /// Returns the blob whose head has a subject.
    pub(super) fn blob_of_head(&self, subject: &str) -> Option<String> {
        let rest = subject.strip_prefix("fw.")?.strip_prefix(&self.pool)?.strip_prefix(".s.")?;
        let token = rest.strip_suffix(".head")?;
        // Only the written form is valid, so that a blob has one subject.
        unescaped(token).filter(|name| escaped_token(name) == token)
    }

    /// Returns the subject of a chunk in a slot of a blob.
    pub(super) fn blob_chunk(&self, name: &str, slot: usize, index: u64) -> String {
        format!("fw.{}.s.{}.{slot}.{index}", self.pool, escaped_token(name))
    }

    /// Returns the subjects of all chunks in a slot of a blob.
    pub(super) fn blob_chunks(&self, name: &str, slot: usize) -> String {
        format!("fw.{}.s.{}.{slot}.*", self.pool, escaped_token(name))
    }

    /// Returns the index of the chunk with a subject.
    pub(super) fn chunk_index(&self, subject: &str) -> Option<usize> {
        let (_, index) = subject.rsplit_once('.')?;
        index.parse().ok().filter(|number: &usize| number.to_string() == index)
    }
}

/// Escapes a text as one token of a subject.
fn escaped_token(text: &str) -> String {
    escaped(text).replace('.', "=2E")
}

/// Escapes a text as a NATS key: `=` and two digits for bytes outside its alphabet, and dots
/// between names only.
fn escaped(text: &str) -> String {
    if text.is_empty() {
        return "=".to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(bytes.len());
    let mut after_dot = true;
    for (at, byte) in bytes.iter().copied().enumerate() {
        let is_dot = byte == b'.' && !after_dot && at + 1 < bytes.len();
        match byte {
            _ if is_dot => out.push('.'),
            b'-' | b'_' | b'/' => out.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                out.push('=');
                out.push(DIGITS[usize::from(byte >> 4)].into());
                out.push(DIGITS[usize::from(byte & 15)].into());
            }
        }
        after_dot = is_dot;
    }
    out
}

/// Reverses [`escaped`].
fn unescaped(key: &str) -> Option<String> {
    if key == "=" { Some(String::new()) } else { unescaped_by(b'=', key) }
}

/// Decodes a text in which a mark is followed by the two digits of a byte.
pub(super) fn unescaped_by(mark: u8, key: &str) -> Option<String> {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        if byte != mark {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_key(key: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_=.".contains(&byte);
        !key.is_empty() && key.bytes().all(plain) && !key.split('.').any(str::is_empty)
    }

    #[test]
    fn a_domain_stays_readable() {
        assert_eq!(escaped("www.example.org"), "www.example.org");
        assert_eq!(escaped("münchen.de"), "m=C3=BCnchen.de");
        assert_eq!(escaped("."), "=2E");
        assert_eq!(escaped("a..b."), "a.=2Eb=2E");
        assert_eq!(escaped("*>"), "=2A=3E");
    }

    #[test]
    fn a_node_has_one_subject() {
        let (names, node_id) = (Names::new("p").unwrap(), NodeId::random());
        assert_eq!(names.node_of_message(&names.message_subject(node_id)), Some(node_id));
        assert_eq!(names.node_of_message(&names.message_subject(node_id).to_uppercase()), None);
        let dashed = format!("fw.p.f.{}", uuid::Uuid::from_bytes(*node_id.as_bytes()));
        assert_eq!(names.node_of_message(&dashed), None);
        assert_eq!(names.node_of_message(&names.request_subject(node_id)), None);
        assert_eq!(names.node_of_message(&names.global_subject(node_id)), None);
        assert_eq!(names.node_of_global(&names.global_subject(node_id)), Some(node_id));
        assert_eq!(names.node_of_global(&names.message_subject(node_id)), None);
    }

    #[test]
    fn a_key_has_one_subject() {
        let (names, node_id) = (Names::new("p").unwrap(), NodeId::random());
        let key = format!("{node_id}.e.org");
        let subject = names.cell(Table::Hosts, &key);
        assert!(subject.starts_with(names.host_cells(node_id).trim_end_matches('>')));
        assert_eq!(names.key(Table::Hosts, &subject), Some(key));
        assert_eq!(names.key(Table::Hosts, &subject.replace(".e.org", ".e=2Eorg")), None);
    }

    #[test]
    fn a_blob_has_its_own_subjects() {
        let names = Names::new("p").unwrap();
        for name in ["a", "", "a.b", "ä *>", "a.head"] {
            let head = names.blob_head(name);
            assert_eq!(names.blob_of_head(&head).as_deref(), Some(name));
            let parts = names.blob_parts(name);
            assert!(head.starts_with(parts.trim_end_matches('>')) && is_key(&head));
            assert!(
                names
                    .blob_chunk(name, 1, 7)
                    .starts_with(names.blob_chunks(name, 1).trim_end_matches('*'))
            );
            assert_eq!(names.chunk_index(&names.blob_chunk(name, 1, 7)), Some(7));
        }
        assert_eq!(names.blob_of_head("fw.p.s.a.b.head"), None);
        assert_eq!(names.chunk_index("fw.p.s.a.0.07"), None);
    }

    #[test]
    fn a_site_has_one_subject() {
        let names = Names::new("p").unwrap();
        for site in ["e.org", "127.0.0.1", "[::1]", "münchen.de", "localhost", "*.>"] {
            let subject = names.queue_site("q", site);
            assert_eq!(subject.matches('.').count(), 5, "{subject}");
            assert_eq!(names.site_of_subject("q", &subject).as_deref(), Some(site));
            assert!(
                subject.starts_with(names.queue_shard("q", shard_of(site)).trim_end_matches('*'))
            );
            assert_eq!(names.site_of_subject("r", &subject), None);
        }
        assert_eq!(names.site_of_subject("q", "fw.p.q.q.64.e=2Eorg"), None);
    }

    #[test]
    fn a_pool_name_has_plain_characters() {
        assert!(Names::new("eu-west_2").is_ok());
        for bad in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(65), "eu_general", "eu_shares"] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_text_is_a_key_and_is_restored(text in "\\PC{0,40}|[.=/a>*\u{0}\u{e9} ]{0,12}") {
            let key = escaped(&text);
            prop_assert!(is_key(&key), "{key}");
            prop_assert_eq!(unescaped(&key), Some(text));
        }

        #[test]
        fn foreign_names_do_not_panic(key in "[=.A-Fa-z0-9]{0,20}") {
            unescaped(&key);
        }
    }
}
