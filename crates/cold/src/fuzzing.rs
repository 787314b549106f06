//! Entry points for a fuzzer: bytes in, no panic, no endless loop, no descending key out.
//!
//! Owns: the path from arbitrary bytes to a store that is read and merged.
//!
//! Must not know: which fuzzer calls it.

use std::path::Path;
use std::sync::Arc;

use fetchwise_log::fs::Fs;
use fetchwise_log::fs::sim::SimFs;
use fetchwise_log::put_varint;

use crate::block::PAGE;
use crate::fields::{checksum, u64_at};
use crate::manifest::{MANIFEST, Manifest};
use crate::run::RunId;
use crate::run_format::{Trailer, header_page, run_name};
use crate::{ColdOptions, ColdStore, Error};

const DIR: &str = "/fuzz";
const NONCE: u64 = 7;

/// Uses `data` as the manifest.
pub fn decode_manifest(data: &[u8]) {
    open_and_read(&[(MANIFEST.to_owned(), data.to_vec())]);
}

/// Uses `data` as a run that the manifest names.
pub fn decode_run(data: &[u8]) {
    let id = RunId { number: u64_at(data, 16), nonce: u64_at(data, 24), len: data.len() as u64 };
    open_and_read(&[manifest_of(&[id]), (run_name(id.number), data.to_vec())]);
}

/// Uses `data` as the content of a run with right checksums, as a bug in some release might have
/// written it. Returns the number of entries that were read.
pub fn decode_forged_run(data: &[u8]) -> usize {
    let run = forge_run(&mut Input(data));
    let id = RunId { number: 1, nonce: NONCE, len: run.len() as u64 };
    open_and_read(&[manifest_of(&[id]), (run_name(1), run)])
}

fn manifest_of(ids: &[RunId]) -> (String, Vec<u8>) {
    let manifest = Manifest { tag: Vec::new(), runs: ids.to_vec(), young: ids.len() as u16 };
    (MANIFEST.to_owned(), manifest.encode())
}

fn forge_run(input: &mut Input<'_>) -> Vec<u8> {
    let mut file = header_page(1, NONCE);
    let mut index: Vec<u64> = Vec::new();
    for _ in 0..1 + input.byte() % 6 {
        let last = index.last().copied().unwrap_or(0);
        // Gaps of every size, and none where a block goes on.
        let gap = u64::from(input.byte()) << (input.byte() % 57);
        index.push(last.wrapping_add(gap));
    }
    for group in index.chunk_by(|one, next| one == next) {
        let mut block = vec![0; group.len() * PAGE];
        let (count, content) = forge_entries(input);
        block[4] = count;
        block[8..16].copy_from_slice(&group[0].to_le_bytes());
        block[16..16 + content.len()].copy_from_slice(&content);
        let crc = checksum(NONCE, file.len() as u64, &block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        file.extend_from_slice(&block);
    }
    let parts = 1 + input.byte() % 2;
    let trailer = Trailer {
        pages: index.len() as u64,
        entries: u64::from(input.byte()),
        parts: parts.into(),
    };
    let push = |file: &mut Vec<u8>, section: &[u8]| {
        let crc = checksum(NONCE, file.len() as u64, section);
        file.extend_from_slice(section);
        file.extend_from_slice(&crc.to_le_bytes());
    };
    push(&mut file, &index.iter().flat_map(|key| key.to_le_bytes()).collect::<Vec<_>>());
    let (mut table, mut filters) = (Vec::new(), Vec::new());
    for part in 0..parts {
        let first_page = if part == 0 { 0 } else { u32::from(input.byte() % 8) };
        let (segment, segments) = (1_u32 << (input.byte() % 8), u32::from(input.byte() % 4));
        let most = segment * segments;
        let len = if most == 0 { 0 } else { most + 2 * segment } + u32::from(input.byte() == 255);
        let fields = [first_page, len, 1, 2, segment, segment - 1, most, 0];
        fields.iter().for_each(|field| table.extend_from_slice(&field.to_le_bytes()));
        filters.push(vec![input.byte(); len as usize]);
    }
    push(&mut file, &table);
    filters.iter().for_each(|filter| push(&mut file, filter));
    let end = trailer.encode(NONCE, file.len() as u64);
    file.extend_from_slice(&end);
    file
}

/// Returns the entries of a block: well-formed ones or any bytes.
fn forge_entries(input: &mut Input<'_>) -> (u8, Vec<u8>) {
    let count = input.byte();
    if count >= 128 {
        return (count, input.bytes());
    }
    let count = 1 + count % 5;
    let mut content = Vec::new();
    for at in 0..count {
        put_varint(&mut content, if at == 0 { 0 } else { 1 + u64::from(input.byte()) });
        let value = input.bytes();
        put_varint(&mut content, value.len() as u64 + u64::from(input.byte() > 31));
        content.extend_from_slice(&value);
    }
    (count, content)
}

/// Opens a store of these files, reads and merges it.
fn open_and_read(files: &[(String, Vec<u8>)]) -> usize {
    let (fs, dir) = (SimFs::new(1), Path::new(DIR));
    let _ = fs.create_dir_all(dir);
    files.iter().for_each(|(name, content)| fs.put(&dir.join(name), content.clone()));
    let Ok(store) = ColdStore::open_with(Arc::new(fs), dir, ColdOptions::default()) else {
        return 0;
    };
    let mut keys = Vec::new();
    let _ = store.for_each_sorted(0..=u64::MAX, |key, _| {
        assert!(keys.last().is_none_or(|last| *last < key), "keys ascend");
        keys.push(key);
        Ok::<_, Error>(())
    });
    for key in keys.iter().flat_map(|key| [*key, key.wrapping_add(1)]).chain([0, u64::MAX]) {
        let _ = store.get(key, <[u8]>::len);
    }
    // Three small runs more, so that all are merged.
    for key in 1..4 {
        let _ = store.put(key, b"new");
        let _ = store.checkpoint(b"");
    }
    while let Ok(true) = store.maintain() {}
    assert!(
        (1..4).all(
            |key| matches!(store.get(key, <[u8]>::to_vec), Ok(Some(value)) if value == b"new")
        )
    );
    keys.len()
}

/// The fuzzer's bytes, one by one; zeros at the end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.0.first().copied().unwrap_or(0);
        self.0 = self.0.get(1..).unwrap_or_default();
        byte
    }

    /// Up to 255 bytes, as many as the first one says.
    fn bytes(&mut self) -> Vec<u8> {
        (0..self.byte()).map(|_| self.byte()).collect()
    }
}
