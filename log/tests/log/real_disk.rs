//! Fault suite, rows 7 and 8: file systems that are really full and really fail. They need root and
//! loop devices, so they run with `FETCHWISE_FAULTS=full` only, and report when the machine does
//! not allow them.

use crate::common::{full, report};
use crate::losses::wait_for;
use fetchwise_log::{Durability, Health, Log, LogOptions, Reader, Record, Ticket};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount that is removed on drop.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

/// A block device on a file, which is detached on drop.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Returns a device on `image` that writes one page at a time. Linux 6.18 reports a larger write
    /// as done if the file took its first page only: a device that loses what it acknowledges is no
    /// test of the log.
    fn on(image: &Path) -> Option<Self> {
        let shown = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
        let device = Self(String::from_utf8(shown.stdout).ok()?.trim().into());
        let name = device.0.file_name()?.to_str()?;
        fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "4").ok()?;
        Some(device)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("losetup", &["-d", self.path()]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|out| out.status.success())
}

fn mount(at: &Path, args: &[&str]) -> Option<Mount> {
    fs::create_dir_all(at).unwrap();
    let mut all = args.to_vec();
    all.push(at.to_str().unwrap());
    run("mount", &all).then(|| Mount(at.to_owned()))
}

fn options(durability: Durability) -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = durability;
    options.segment_bytes = 256 << 10;
    options.queue_records = 100;
    options
}

fn append(log: &Log, id: u64) -> Option<Ticket> {
    let payload = id.to_le_bytes().repeat(30);
    let record = Record { kind: 1, schema: 1, key_hash: id, time_ms: 0, payload: &payload };
    log.append(record).ok()
}

/// Checks that every acknowledged record exists, and no record that was not appended.
fn check(dir: &Path, acknowledged: &BTreeMap<u64, u64>) -> u64 {
    let mut seen = BTreeMap::new();
    let mut next = 1;
    let summary = Reader::open(dir)
        .unwrap()
        .for_each(|seq, r| {
            assert_eq!(seq, next);
            next += 1;
            let id = u64::from_le_bytes(r.payload[..8].try_into().unwrap());
            assert_eq!(r.payload, id.to_le_bytes().repeat(30));
            seen.insert(seq, id);
        })
        .unwrap();
    assert_eq!(summary.damage, []);
    for (seq, id) in acknowledged {
        assert_eq!(seen.get(seq), Some(id), "record {seq} was acknowledged");
    }
    next - 1
}

#[test]
fn a_file_system_fills_frees_and_the_log_resumes() {
    if !full() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let at = tmp.path().join("small");
    let Some(_mount) = mount(&at, &["-t", "tmpfs", "-o", "size=6m", "tmpfs"]) else {
        println!("SKIPPED row 8: this machine does not let us mount");
        return;
    };
    let dir = at.join("log");
    let (log, _) = Log::open(&dir, options(Durability::Sync)).unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut id = 0;
    let cycles = 50;
    for _ in 0..cycles {
        // Something else takes the space that is left.
        let ballast = at.join("ballast");
        let mut size = 8 << 20;
        while size > 4096 {
            if let Ok(mut file) = fs::OpenOptions::new().append(true).create(true).open(&ballast) {
                while std::io::Write::write_all(&mut file, &vec![1; size]).is_ok() {}
            }
            size /= 2;
        }
        while log.health() == Health::Good {
            if let Some(ticket) = append(&log, id) {
                if log.wait(ticket).is_ok() {
                    acknowledged.insert(ticket.seq().unwrap(), id);
                }
                id += 1;
            }
        }
        assert!(
            matches!(log.health(), Health::Degraded { storage_full: true, .. }),
            "{:?}",
            log.health()
        );
        while append(&log, id).is_some() {
            id += 1;
        }
        fs::remove_file(&ballast).unwrap();
        wait_for("the log resumes", || log.health() == Health::Good);
        log.flush().wait().unwrap();
        assert!(check(&dir, &acknowledged) >= id - 1);
    }
    log.close().unwrap();
    check(&dir, &acknowledged);
    report("8", "a small tmpfs filled and freed", cycles, 0, 0);
}

#[test]
fn a_sync_that_really_fails_loses_no_acknowledged_record() {
    if !full() {
        return;
    }
    let rounds = 100;
    let (mut failures, mut told) = (0, 0);
    for round in 0..rounds {
        let tmp = tempfile::tempdir().unwrap();
        let below = tmp.path().join("below");
        let Some(below_mount) = mount(&below, &["-t", "tmpfs", "-o", "size=24m", "tmpfs"]) else {
            println!("SKIPPED row 7: this machine does not let us mount");
            return;
        };
        // An ext4 of 64 MiB on a file that can only have 24 MiB.
        let image = below.join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let Some(device) = LoopDevice::on(&image) else {
            println!("SKIPPED row 7: no loop device");
            return;
        };
        let options_of_ext4 = ["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0"];
        assert!(run("mkfs.ext4", &[&options_of_ext4[..], &[device.path()]].concat()));
        let at = tmp.path().join("ext4");
        let Some(ext4) = mount(&at, &["-o", "errors=continue", device.path()]) else {
            println!("SKIPPED row 7: this machine does not let us mount ext4");
            return;
        };
        let ballast = below.join("ballast");
        let free = 24 * 1024 - fs_blocks_kib(&image);
        let _ = fs::write(
            &ballast,
            vec![1; (free.saturating_sub(200 + round % 50 * 40) * 1024) as usize],
        );
        let dir = at.join("log");
        let (log, _) = Log::open(&dir, options(Durability::Sync)).unwrap();
        let mut acknowledged = BTreeMap::new();
        // The image is full before that many records.
        for id in 0..1_000_000 {
            match append(&log, id) {
                Some(ticket) if log.wait(ticket).is_ok() => {
                    acknowledged.insert(ticket.seq().unwrap(), id);
                }
                _ => break,
            }
            if log.metrics().failures > 0 {
                break;
            }
        }
        told += acknowledged.len();
        failures += u64::from(log.metrics().failures > 0);
        drop(log);
        // The content of the device counts, not the page cache after a failed sync.
        drop(ext4);
        fs::remove_file(&ballast).unwrap();
        let mut again = None;
        wait_for("the image can be mounted again", || {
            again = mount(&at, &[device.path()]);
            again.is_some()
        });
        check(&dir, &acknowledged);
        drop((again, device, below_mount));
    }
    println!(
        "{failures} of {rounds} rounds had a failing write or sync; {told} acknowledgements checked"
    );
    assert!(failures > rounds / 2, "{failures} of {rounds}");
    report("7", "fsync that really fails: ext4 on a loop device over a full tmpfs", rounds, 0, 0);
}

fn fs_blocks_kib(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path).unwrap()) / 2
}
