//! Any bytes as parts of a cold store: nothing panics, and no value is returned that was not put.
//!
//! The first byte selects one of four modes: the manifest or a run on bare bytes; a run with the
//! fuzzer's content and right checksums; and a real store with damage.
#![no_main]

mod mem_fs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use fetchwise_cold::fuzzing::{decode_forged_run, decode_manifest, decode_run};
use fetchwise_cold::{ColdOptions, ColdStore, Error};
use libfuzzer_sys::fuzz_target;
use mem_fs::MemFs;

const DIR: &str = "/cold";

type Entries = BTreeMap<u64, Vec<u8>>;

/// The files of a healthy store of several runs, and its entries.
static HEALTHY: LazyLock<(BTreeMap<PathBuf, Vec<u8>>, Entries)> = LazyLock::new(|| {
    let fs = Arc::new(MemFs::default());
    let store = ColdStore::open_with(fs.clone(), Path::new(DIR), options())
        .expect("a store in an empty directory");
    for round in 0..3 {
        for n in 0..100 {
            store.put(key(n * (round + 1)), &[n as u8; 60]).expect("a put");
        }
        store.put(key(round), &[7; 9000]).expect("a put");
        store.remove(key(50)).expect("a removal");
        store.checkpoint(&[round as u8]).expect("a checkpoint in memory");
    }
    let entries = read(&store).expect("a healthy store can be read");
    assert!(store.stats().runs >= 3, "too few runs to damage");
    drop(store);
    let mut files = fs.contents();
    files.retain(|path, _| !path.ends_with("LOCK"));
    (files, entries)
});

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn options() -> ColdOptions {
    let mut options = ColdOptions::default();
    options.buffer_bytes = 4096;
    options
}

fn read(store: &ColdStore) -> Result<Entries, Error> {
    let mut entries = Entries::new();
    store.for_each_sorted(0..=u64::MAX, |key, value| {
        entries.insert(key, value.to_vec());
        Ok::<_, Error>(())
    })?;
    Ok(entries)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((way, rest)) = bytes.split_first() else { return };
    match way % 4 {
        0 => decode_manifest(rest),
        1 => decode_run(rest),
        2 => {
            decode_forged_run(rest);
        }
        _ => damaged(rest),
    }
});

/// Reads a real store with a few bytes changed, cut, moved or missing.
fn damaged(bytes: &[u8]) {
    let (files, entries) = &*HEALTHY;
    let mut files = files.clone();
    // Changes stay small: a fuzzer that could write four bytes of its choice would in time forge a
    // checksum.
    for change in bytes.chunks_exact(6).take(4) {
        let at = usize::from(change[0]) % files.len();
        let Some((_, file)) = files.iter_mut().nth(at).filter(|(_, file)| !file.is_empty()) else {
            continue;
        };
        let place = |low: u8, high: u8| (usize::from(low) | usize::from(high) << 8) % file.len();
        let (from, to) = (place(change[1], change[2]), place(change[3], change[4]));
        match change[5] % 4 {
            0 => file[from] ^= 1 << (change[3] % 8),
            1 => file.truncate(from),
            2 => file[from.min(to)..from.max(to)].fill(0),
            _ => file.copy_within(from.min(to)..from.max(to), 0),
        }
    }
    let is_whole = HEALTHY.0 == files;
    let store = ColdStore::open_with(Arc::new(MemFs::with(files)), Path::new(DIR), options());
    let Ok(store) = store else { return assert!(!is_whole, "a healthy store is refused") };
    match read(&store) {
        Ok(found) => assert!(is_whole && found == *entries, "damage is not noticed"),
        Err(_) => assert!(!is_whole, "a healthy store cannot be read"),
    }
    for n in 0..350 {
        if let Ok(found) = store.get(key(n), <[u8]>::to_vec) {
            assert_eq!(found.as_ref(), entries.get(&key(n)), "key {n} has another value");
        }
    }
}
