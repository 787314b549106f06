//! The file of finished results that wait for an earlier one, so that a killed run, when it is
//! continued, prints them without fetching their links again.
//!
//! It begins with a head of 32 bytes: eight letters, the key of the run, and a checksum of both.
//! Each record has the length of its text, a checksum of the length, a checksum of the rest, the
//! key of its result, and the text. Checksums depend on the run and on the offset. All numbers are
//! little-endian.
//!
//! Invariants: a record is appended in memory and survives the process once it is
//! [saved](HeldResults::save). If the file cannot be written, records stay in memory. An incomplete
//! last record is what a crash leaves: those before it count. A file that is damaged, or that
//! another run wrote, is not used at all. A record is checked each time it is read.
//!
//! Must not know: what a text is, and when a result is printed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::positioned_io;

/// The first bytes of a file. The last letter is the version of the texts.
const MAGIC: [u8; 8] = *b"fwheld-1";
/// The length of a file's head.
const FILE_HEAD: usize = 32;
/// The length of a record's head: two checksums and the length between them.
const RECORD_HEAD: usize = 16;
/// The length of the key of a result.
const KEY: usize = 16;
/// The key of results that a continued run does not use.
const NO_KEY: u128 = 0;
/// The size of a file from which on its space is given back as soon as no record is needed.
const KEPT_BYTES: u64 = 1 << 20;
/// The capacity for unsaved records that is kept.
const TAIL_BYTES: usize = 256 << 10;

/// The finished results of this run that wait.
#[derive(Debug)]
pub(crate) struct HeldResults {
    path: PathBuf,
    run: u128,
    file: Option<File>,
    /// The length of the file as far as it is in use.
    written: u64,
    /// The records that are not saved.
    tail: Vec<u8>,
    /// Whether saving the tail has failed since the last record came.
    has_failed: bool,
    /// Whether records of an earlier run may still be asked for.
    has_earlier: bool,
}

/// The results that an earlier run has left, by the lower half of their keys.
#[derive(Debug, Default)]
pub(crate) struct EarlierResults {
    run: u128,
    file: Option<File>,
    offsets: HashMap<u64, u64>,
}

/// What a file holds.
enum Found {
    /// Nothing that ever counted.
    Nothing,
    /// The offsets of results by key, and the end of the last complete record.
    Results(HashMap<u64, u64>, u64),
    /// Why it is not used.
    Unusable(&'static str),
}

impl HeldResults {
    /// Opens the file at `path` for the run with this key. Returns the results in it, and why they
    /// are not used if the file is damaged or belongs to another run; then it is removed.
    ///
    /// # Errors
    /// The file cannot be read, or not be removed.
    pub(crate) fn open(
        path: PathBuf,
        run: u128,
    ) -> io::Result<(Self, EarlierResults, Option<&'static str>)> {
        let mut held = Self {
            path,
            run,
            file: None,
            written: FILE_HEAD as u64,
            tail: Vec::new(),
            has_failed: false,
            has_earlier: false,
        };
        let mut earlier = EarlierResults { run, ..EarlierResults::default() };
        let file = match OpenOptions::new().read(true).write(true).open(&held.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((held, earlier, None));
            }
            Err(error) => return Err(error),
        };
        let why = match scan(&file, run)? {
            Found::Results(offsets, end) if !offsets.is_empty() => {
                earlier = EarlierResults { run, file: Some(file.try_clone()?), offsets };
                (held.file, held.written, held.has_earlier) = (Some(file), end, true);
                return Ok((held, earlier, None));
            }
            Found::Results(..) | Found::Nothing => None,
            Found::Unusable(why) => Some(why),
        };
        drop(file);
        fs::remove_file(&held.path)?;
        Ok((held, earlier, why))
    }

    /// Returns the results of a run that is not continued, in a file that does not exist yet.
    #[cfg(test)]
    pub(crate) fn new(path: &std::path::Path) -> Self {
        Self::open(path.to_owned(), 1).map(|(held, ..)| held).unwrap()
    }

    /// Appends the text of a result, of less than 4 GiB, and returns its offset. A continued run
    /// finds it by its key.
    pub(crate) fn append(&mut self, key: Option<u128>, text: &[u8]) -> u64 {
        let offset = self.written + self.tail.len() as u64;
        let body = [&key.unwrap_or(NO_KEY).to_le_bytes(), text].concat();
        self.tail.extend_from_slice(&record_head(self.run, offset, text.len() as u32, &body));
        self.tail.extend_from_slice(&body);
        self.has_failed = false;
        offset
    }

    /// Returns whether saving has something to do. After a failure it has when the next record
    /// comes.
    pub(crate) fn has_unsaved(&self) -> bool {
        !self.tail.is_empty() && !self.has_failed
    }

    /// Writes the records that are only in memory. They stay there if this fails.
    pub(crate) fn save(&mut self) {
        if !self.has_unsaved() {
            return;
        }
        self.has_failed = self.write().is_err();
        if !self.has_failed {
            self.written += self.tail.len() as u64;
            self.tail.clear();
            // A tail that grew while writing failed gives its memory back.
            self.tail.shrink_to(TAIL_BYTES);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(&self.path)?;
                positioned_io::write_all(&file, &file_head(self.run), 0)?;
                file
            }
        };
        let written = positioned_io::write_all(&file, &self.tail, self.written);
        self.file = Some(file);
        written
    }

    /// Reads the text of the record at `offset`.
    ///
    /// # Errors
    /// The file cannot be read, or the record is damaged.
    pub(crate) fn read(&self, offset: u64) -> io::Result<Vec<u8>> {
        match (offset.checked_sub(self.written), &self.file) {
            (Some(at), _) => {
                let rest =
                    usize::try_from(at).ok().and_then(|at| self.tail.get(at..)).unwrap_or_default();
                read_record(self.run, offset, &mut &*rest)
            }
            (None, Some(file)) => read_record(self.run, offset, &mut FileFrom { file, at: offset }),
            (None, None) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
        .map(|(_, text)| text)
    }

    /// Says that no record of an earlier run will be asked for any more, except those that were.
    pub(crate) fn forget_earlier(&mut self) {
        self.has_earlier = false;
    }

    /// Gives back the space of all records: none is needed any more. Those of a small file stay,
    /// because their results are recorded as done.
    pub(crate) fn clear(&mut self) {
        if self.has_earlier {
            return;
        }
        self.tail.clear();
        if self.written > KEPT_BYTES
            && self.file.as_ref().is_some_and(|file| file.set_len(FILE_HEAD as u64).is_ok())
        {
            self.written = FILE_HEAD as u64;
        }
    }
}

impl EarlierResults {
    /// Returns the offset of the result with this key, once, if `is_usable` accepts its text.
    pub(crate) fn take(&mut self, key: u128, is_usable: impl FnOnce(&[u8]) -> bool) -> Option<u64> {
        let offset = self.offsets.remove(&low(key))?;
        let mut from = FileFrom { file: self.file.as_ref()?, at: offset };
        let (found, text) = read_record(self.run, offset, &mut from).ok()?;
        (found == key && is_usable(&text)).then_some(offset)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }
}

/// A file from an offset on.
struct FileFrom<'f> {
    file: &'f File,
    at: u64,
}

impl Read for FileFrom<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = positioned_io::read_up_to(self.file, bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Reads a whole file.
fn scan(file: &File, run: u128) -> io::Result<Found> {
    let len = file.metadata()?.len();
    if len < FILE_HEAD as u64 {
        return Ok(Found::Nothing);
    }
    let mut from = BufReader::with_capacity(TAIL_BYTES, FileFrom { file, at: 0 });
    let mut head = [0; FILE_HEAD];
    from.read_exact(&mut head)?;
    if head != file_head(run) {
        let is_other = head.starts_with(&MAGIC) && head == file_head(key_in(&head[MAGIC.len()..]));
        return Ok(Found::Unusable(if is_other {
            "another run wrote it"
        } else {
            "it is damaged"
        }));
    }
    let (mut offsets, mut at) = (HashMap::new(), FILE_HEAD as u64);
    loop {
        let rest = len - at;
        let mut head = [0; RECORD_HEAD];
        if rest < RECORD_HEAD as u64 {
            break;
        }
        from.read_exact(&mut head)?;
        let Some((text_len, sum)) = parse_record_head(run, at, &head) else {
            return Ok(Found::Unusable("it is damaged"));
        };
        let body_len = KEY as u64 + u64::from(text_len);
        if rest - (RECORD_HEAD as u64) < body_len {
            break;
        }
        let mut body = vec![0; KEY + text_len as usize];
        from.read_exact(&mut body)?;
        if checksum(run, at, &body) != sum {
            return Ok(Found::Unusable("it is damaged"));
        }
        let key = key_in(&body);
        if key != NO_KEY {
            offsets.insert(low(key), at);
        }
        at += RECORD_HEAD as u64 + body_len;
    }
    Ok(Found::Results(offsets, at))
}

/// Reads the record at `offset`, where `from` stands: its key and its text.
fn read_record(run: u128, offset: u64, from: &mut impl Read) -> io::Result<(u128, Vec<u8>)> {
    let mut head = [0; RECORD_HEAD];
    from.read_exact(&mut head)?;
    let (text_len, sum) =
        parse_record_head(run, offset, &head).ok_or(io::ErrorKind::InvalidData)?;
    let mut body = vec![0; KEY + text_len as usize];
    from.read_exact(&mut body)?;
    if checksum(run, offset, &body) != sum {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let key = key_in(&body);
    body.drain(..KEY);
    Ok((key, body))
}

fn file_head(run: u128) -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    let sum_at = MAGIC.len() + KEY;
    head[..MAGIC.len()].copy_from_slice(&MAGIC);
    head[MAGIC.len()..sum_at].copy_from_slice(&run.to_le_bytes());
    let sum = checksum(run, 0, &head[..sum_at]);
    head[sum_at..].copy_from_slice(&sum.to_le_bytes());
    head
}

fn record_head(run: u128, offset: u64, text_len: u32, body: &[u8]) -> [u8; RECORD_HEAD] {
    let mut head = [0; RECORD_HEAD];
    head[..4].copy_from_slice(&text_len.to_le_bytes());
    let of_len = checksum(run, offset, &head[..4]) as u32;
    head[4..8].copy_from_slice(&of_len.to_le_bytes());
    head[8..].copy_from_slice(&checksum(run, offset, body).to_le_bytes());
    head
}

/// Returns the length of a record's text and the checksum of its body; none if the length is
/// damaged.
fn parse_record_head(run: u128, offset: u64, head: &[u8; RECORD_HEAD]) -> Option<(u32, u64)> {
    let (len, rest) = head.split_first_chunk::<4>()?;
    let (of_len, sum) = rest.split_first_chunk::<4>()?;
    let is_whole = u32::from_le_bytes(*of_len) == checksum(run, offset, len) as u32;
    is_whole.then_some((u32::from_le_bytes(*len), u64::from_le_bytes(sum.try_into().ok()?)))
}

/// Returns a checksum that fits at this offset of this run's file only.
fn checksum(run: u128, offset: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, low(run) ^ offset)
}

fn key_in(bytes: &[u8]) -> u128 {
    bytes.first_chunk().copied().map_or(NO_KEY, u128::from_le_bytes)
}

fn low(key: u128) -> u64 {
    key as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const RUN: u128 = 7 << 64 | 9;

    fn text(key: u128) -> Vec<u8> {
        vec![key as u8; key as usize * 100]
    }

    /// Writes the results 1 to 9 and one without a key.
    fn saved(path: &Path) -> Vec<u64> {
        let (mut held, earlier, why) = HeldResults::open(path.to_owned(), RUN).unwrap();
        assert!(earlier.is_empty() && why.is_none());
        let offsets = (1..10).map(|key| held.append(Some(key), &text(key))).collect();
        held.append(None, b"bad line");
        held.save();
        offsets
    }

    fn found(path: &Path, run: u128) -> (Vec<u128>, Option<&'static str>) {
        let (_held, mut earlier, why) = HeldResults::open(path.to_owned(), run).unwrap();
        let keys = (0..11).filter(|key| earlier.take(*key, |found| *found == text(*key)).is_some());
        (keys.collect(), why)
    }

    #[test]
    fn saved_results_are_found_once_by_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("held");
        let offsets = saved(&path);
        let (mut held, mut earlier, _) = HeldResults::open(path.clone(), RUN).unwrap();
        assert_eq!(earlier.take(3, |_| true), Some(offsets[2]));
        assert_eq!(
            (earlier.take(3, |_| true), earlier.take(4, |_| false), earlier.take(10, |_| true)),
            (None, None, None)
        );
        // The same lower half is another key.
        assert_eq!(earlier.take(1 << 64 | 5, |_| true), None);
        let more = held.append(Some(10), &text(10));
        assert_eq!(held.read(more).unwrap(), text(10));
        held.save();
        assert_eq!((held.read(more).unwrap(), held.read(offsets[8]).unwrap()), (text(10), text(9)));
        drop(held);
        assert_eq!(found(&path, RUN), ((1..11).collect(), None));
    }

    #[test]
    fn an_incomplete_end_costs_its_record_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("held");
        let offsets = saved(&path);
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            if (len as u64) < offsets[7] && len % 97 != 0 {
                continue;
            }
            fs::write(&path, &whole[..len]).unwrap();
            let complete = offsets.iter().zip(1..).filter(|(offset, key)| {
                **offset + (RECORD_HEAD + KEY + text(*key).len()) as u64 <= len as u64
            });
            assert_eq!(found(&path, RUN), (complete.map(|(_, key)| key).collect(), None), "{len}");
        }
    }

    #[test]
    fn a_damaged_file_and_that_of_another_run_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("held");
        saved(&path);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(found(&path, RUN), (vec![], Some("it is damaged")), "{at}");
            assert!(!path.exists(), "it is removed");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(found(&path, RUN + 1), (vec![], Some("another run wrote it")));
        fs::write(&path, [0; 4096]).unwrap();
        assert_eq!(found(&path, RUN), (vec![], Some("it is damaged")));
        // A record that was moved within its file.
        fs::write(&path, [&whole, &whole[FILE_HEAD..]].concat()).unwrap();
        assert_eq!(found(&path, RUN), (vec![], Some("it is damaged")));
    }

    #[test]
    fn space_is_given_back_unless_an_earlier_run_left_results() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("held");
        let fill = |held: &mut HeldResults| {
            (0..20).for_each(|_| _ = held.append(None, &[0; 100 << 10]));
            held.save();
            held.clear();
            fs::metadata(&path).unwrap().len()
        };
        saved(&path);
        let (mut held, _earlier, _) = HeldResults::open(path.clone(), RUN).unwrap();
        assert!(fill(&mut held) > KEPT_BYTES);
        held.forget_earlier();
        assert_eq!(fill(&mut held), FILE_HEAD as u64);
        let offset = held.append(Some(1), b"again");
        assert_eq!(held.read(offset).unwrap(), b"again");
    }

    #[test]
    fn without_a_file_the_records_stay_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut held = HeldResults::new(&dir.path().join("missing/held"));
        let offsets: Vec<_> = (1..10).map(|key| held.append(Some(key), &text(key))).collect();
        assert!(held.has_unsaved());
        held.save();
        assert!(!held.has_unsaved(), "tried again with the next one");
        for (offset, key) in offsets.into_iter().zip(1..) {
            assert_eq!(held.read(offset).unwrap(), text(key));
        }
        assert!(held.read(1 << 40).is_err());
    }
}
