//! Wrong bytes: every file of a store cut, flipped, exchanged or missing. What is read is right, or
//! an error names the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fetchwise_cold::{ColdStore, Error};
use fetchwise_log::fs::sim::{Rng, SimFs};

use crate::basics::{content, key, options};
use crate::model::{DIR, Entries, report, scaled};

/// A store of several runs, one of them with a long value, on a disk that nothing else changes.
fn victim() -> (SimFs, Entries) {
    let fs = SimFs::new(1);
    let store = open(&fs).unwrap();
    for n in 0..150 {
        store.put(key(n), &[n as u8; 90]).unwrap();
    }
    while store.maintain().unwrap() {}
    store.put(key(500), &[5; 9000]).unwrap();
    store.checkpoint(b"").unwrap();
    for n in 100..120 {
        store.remove(key(n)).unwrap();
        store.put(key(n + 100), b"new").unwrap();
    }
    store.checkpoint(b"victim").unwrap();
    let entries = content(&store).unwrap();
    assert!(store.stats().runs >= 3 && entries.len() == 151);
    (fs, entries)
}

fn open(fs: &SimFs) -> Result<ColdStore, Error> {
    ColdStore::open_with(Arc::new(fs.clone()), Path::new(DIR), options())
}

fn files(fs: &SimFs) -> Vec<PathBuf> {
    let mut files = fs.files();
    files.retain(|path| !path.ends_with("LOCK"));
    files
}

/// Reads everything in both ways; the first error, if there is one.
fn read(fs: &SimFs, entries: &Entries) -> Result<(), Error> {
    let store = open(fs)?;
    let iterated = content(&store);
    let mut first = iterated.as_ref().err().map(ToString::to_string);
    if let Ok(iterated) = &iterated {
        assert!(iterated == entries, "an iteration found other entries");
    }
    for n in 0..700 {
        match store.get(key(n), <[u8]>::to_vec) {
            Ok(found) => {
                assert!(found.as_ref() == entries.get(&key(n)), "key {n} has another value")
            }
            Err(error) => first = first.or_else(|| Some(error.to_string())),
        }
    }
    assert!(iterated.is_err() || first.is_none(), "only some reads notice: {first:?}");
    iterated.map(|_| ())
}

/// Asserts that a changed file is noticed, and named.
fn is_noticed(fs: &SimFs, entries: &Entries, file: &Path, what: &str) {
    let error = match read(fs, entries) {
        Ok(()) => panic!("{what} of {} is not noticed", file.display()),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(file.to_str().unwrap()), "{what} of {}: {error}", file.display());
}

#[test]
fn flipped_bits_are_noticed_wherever_they_are() {
    let (fs, entries) = victim();
    let (mut tried, stride) = (0, scaled(61, 7, 1));
    for file in files(&fs) {
        let good = fs.read(&file).unwrap();
        for at in (0..good.len()).step_by(stride as usize) {
            tried += 1;
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs.put(&file, bytes);
            is_noticed(&fs, &entries, &file, "a flipped bit");
        }
        fs.put(&file, good);
    }
    read(&fs, &entries).unwrap();
    report("single bit flips", tried);
}

#[test]
fn cut_longer_and_missing_files_are_noticed() {
    let (fs, entries) = victim();
    let (mut tried, stride) = (0, scaled(61, 7, 1));
    for file in files(&fs) {
        let good = fs.read(&file).unwrap();
        for len in
            (0..good.len()).step_by(stride as usize).chain([good.len() + 1, good.len() + 4096])
        {
            tried += 1;
            let mut bytes = good.clone();
            bytes.resize(len, 0);
            fs.put(&file, bytes);
            is_noticed(&fs, &entries, &file, "another length");
        }
        // Without a manifest there was no checkpoint.
        if !file.ends_with("MANIFEST") {
            fs.lose(&file);
            is_noticed(&fs, &entries, &file, "the loss");
        }
        fs.put(&file, good);
    }
    report("truncations and extensions", tried);
}

#[test]
fn zeroed_doubled_and_exchanged_parts_are_noticed() {
    let (fs, entries) = victim();
    let mut rng = Rng::new(2);
    let rounds = scaled(300, 5000, 50_000);
    for _ in 0..rounds {
        let all = files(&fs);
        let file = &all[rng.below(all.len() as u64) as usize];
        let good = fs.read(file).unwrap();
        let mut bytes = good.clone();
        let part = [512, 4096][rng.below(2) as usize].min(bytes.len());
        let parts = bytes.len() / part;
        let [one, other] = [0; 2].map(|_| rng.below(parts as u64) as usize * part);
        match rng.below(4) {
            0 => bytes[one..one + part].fill(0),
            1 => bytes.copy_within(one..one + part, other),
            2 => {
                let held = bytes[one..one + part].to_vec();
                bytes.copy_within(other..other + part, one);
                bytes[other..other + part].copy_from_slice(&held);
            }
            // The same place of another file, or all of it.
            _ => {
                let from = fs.read(&all[rng.below(all.len() as u64) as usize]).unwrap();
                match from.get(one..one + part) {
                    Some(from) => bytes[one..one + part].copy_from_slice(from),
                    None => bytes = from,
                }
            }
        }
        if bytes != good {
            fs.put(file, bytes);
            is_noticed(&fs, &entries, file, "a changed part");
            fs.put(file, good);
        }
    }
    report("parts zeroed, doubled or exchanged", rounds);
}

#[test]
fn damage_while_a_store_is_open_is_noticed_by_reads_and_ends_no_merge_with_wrong_entries() {
    let (fs, entries) = victim();
    let store = open(&fs).unwrap();
    let oldest =
        files(&fs).into_iter().find(|file| file.to_str().unwrap().contains("run-")).unwrap();
    let mut bytes = fs.read(&oldest).unwrap();
    bytes[5000] ^= 4;
    fs.put(&oldest, bytes);
    let mut failed = 0;
    for n in 0..150 {
        match store.get(key(n), <[u8]>::to_vec) {
            Ok(found) => assert_eq!(found.as_ref(), entries.get(&key(n))),
            Err(error) => {
                assert!(error.to_string().contains(oldest.to_str().unwrap()));
                failed += 1;
            }
        }
    }
    assert!(failed > 0 && failed < 150, "{failed} keys are in the damaged block");
    // Merges of the damaged run fail; the others, and new values, go on. The checkpoint has it, so
    // it is merged with what later ones have.
    let mut errors = 0;
    while errors < 3 {
        for n in 0..1000 {
            store.put(key(n), b"newer").unwrap();
        }
        store.checkpoint(b"later").unwrap();
        errors += u32::from((0..20).any(|_| store.maintain().is_err()));
    }
    assert!(
        (0..1000).all(|n| store.get(key(n), <[u8]>::to_vec).unwrap() == Some(b"newer".to_vec()))
    );
    store.clear();
    assert!(!store.maintain().unwrap());
    assert_eq!(content(&store).unwrap().len(), 0);
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (fs, _) = victim();
    let manifest = files(&fs).into_iter().find(|file| file.ends_with("MANIFEST")).unwrap();
    let mut bytes = fs.read(&manifest).unwrap();
    bytes[8] = 2;
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[0; 16]), &bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    fs.put(&manifest, bytes);
    let before = files(&fs);
    let error = open(&fs).unwrap_err();
    assert_eq!(error.to_string(), "/cold/MANIFEST has a newer format (version 2)");
    assert_eq!(files(&fs), before, "nothing is removed");
}
