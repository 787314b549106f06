//! Hostile input from a malicious node or a bad disk: nothing panics, and nothing takes more memory
//! than allowed. A fuzzer goes further (`fuzz/fuzz_targets/fleet_decode.rs`); these tests run
//! everywhere.

use std::time::Duration;

use crate::common::{NOW, TestRng, attempt};
use fetchwise::backoff::LinkState;
use fetchwise::evidence::RemoteAttempt;
use fetchwise::journal::replication::RemoteLinkState;
use fetchwise::selector::Selector;
use fetchwise_fleet::NodeId;
use fetchwise_fleet::model::codec::{Batch, Builder};
use fetchwise_fleet::model::evidence_snapshot::{SnapshotHead, pack, unpack};
use fetchwise_fleet::model::global_evidence;
use fetchwise_fleet::model::peer_state::PeerStates;
use fetchwise_fleet::model::position_set::Intervals;
use fetchwise_fleet::peer_store::own_state_file::NodeState;

fn message() -> Vec<u8> {
    let (mut rng, mut builder) = (TestRng(3), Builder::new(2, 5, 9).behind("eu"));
    for n in 0..12 {
        let attempt = attempt(&mut rng, 6, n * 900);
        let heuristics: Vec<(&str, &str)> = attempt
            .heuristics
            .iter()
            .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
            .collect();
        let fact = RemoteAttempt {
            at: attempt.attempted_at,
            fetcher: &attempt.fetcher,
            weight: 1.0,
            success: attempt.success,
            is_banned: attempt.is_banned,
            duration_ms: attempt.duration_ms,
            hint: None,
            is_file: n % 3 == 0,
            heuristics: &heuristics,
        };
        builder.push(&fact, n as u64);
        let state = LinkState { paused_until: Some(NOW), risk_level: 1, ..LinkState::default() };
        builder.link(&RemoteLinkState {
            link: n as u64,
            domain: "site1.example",
            state,
            at: attempt.attempted_at,
        });
    }
    builder.finish(0).unwrap().1.to_vec()
}

/// Changes, drops and duplicates some bytes.
fn changed(bytes: &[u8], rng: &mut TestRng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(6) {
            0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes.truncate(at.max(1)),
            3 => bytes.insert(at, rng.below(256) as u8),
            4 => {
                bytes.remove(at);
            }
            _ => {
                let run = bytes[at..bytes.len().min(at + 8)].to_vec();
                bytes.extend(run);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

#[test]
fn changed_messages_are_refused_or_learned_from_without_a_panic() {
    let whole = message();
    let raw_len = u32::from_le_bytes(whole[40..44].try_into().unwrap()) as usize;
    let columns = zstd::bulk::decompress(&whole[48..], raw_len).unwrap();
    let selector = Selector::builder().around(NOW).max_keys(2000).build().unwrap();
    let (mut rng, mut read, mut states) = (TestRng(1), 0, PeerStates::default());
    for round in 0..20_000 {
        // With a matching checksum, as an attacker would write it.
        let mut body = whole[..44].to_vec();
        let raw = changed(&columns, &mut rng);
        if round % 3 == 0 {
            let at = 8 + rng.below(32) as usize;
            body[at] = rng.below(256) as u8;
        }
        body[40..44].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        let frame = zstd::bulk::compress(&raw, 1).unwrap();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&body), &frame);
        body.extend_from_slice(&crc.to_le_bytes());
        body.extend_from_slice(&frame);
        if let Ok(batch) = Batch::decode(&body) {
            read += 1;
            batch.each(|_, fact, _| selector.learned().receive_attempt(fact));
            for link in states.apply_links(NodeId::from_bytes([(round % 7) as u8; 16]), &batch, NOW)
            {
                let told = states.links.state(link, batch.egress());
                let longest = NOW.saturating_add(Duration::from_secs(86_400));
                assert!(
                    told.is_none_or(|state| state
                        .paused_until
                        .is_none_or(|until| until <= longest))
                );
                selector.set_remote_link_state(link, told);
            }
        }
    }
    assert!(read > 100, "none decoded, so nothing was tested: {read}");
    assert!(states.links.len() > 20, "no link state decoded: {}", states.links.len());
}

#[test]
fn changed_snapshots_are_refused_or_applied_without_a_panic() {
    let own = Selector::builder().around(NOW).build().unwrap();
    let mut rng = TestRng(2);
    for n in 0..60 {
        own.observe(&attempt(&mut rng, 5, n * 1000));
    }
    let rows = r#"[[7,"site0.example","eu",1800000000000,1800000600000,2,1,4,9],[8,"site1.example","",1800000000000,null,0,0,1,10]]"#;
    let head =
        SnapshotHead { links: serde_json::from_str(rows).unwrap(), ..SnapshotHead::default() };
    let packed = pack(&head, &own.learned().evidence_snapshot(NOW, 0.0)).unwrap();
    assert_eq!(unpack(&packed).unwrap().0, head);
    let head_len = u32::from_le_bytes(packed[8..12].try_into().unwrap()) as usize;
    let raw_len = u64::from_le_bytes(packed[12..20].try_into().unwrap()) as usize;
    let raw = zstd::bulk::decompress(&packed[20 + head_len..packed.len() - 4], raw_len).unwrap();
    let selector = Selector::builder().around(NOW).max_keys(2000).build().unwrap();
    let mut read = 0;
    for _ in 0..6_000 {
        let raw = changed(&raw, &mut rng);
        let mut bytes = packed[..12].to_vec();
        bytes.extend_from_slice(&(raw.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&packed[20..20 + head_len]);
        bytes.extend_from_slice(&zstd::bulk::compress(&raw, 1).unwrap());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        if let Ok((_, mut share)) = unpack(&bytes) {
            read += 1;
            share.forget_domain("site0.example");
            selector.learned().add_snapshot(&share);
            selector.learned().retract_snapshot(&share);
            let _ = share.weight();
        }
    }
    assert!(read > 50, "none decoded, so nothing was tested: {read}");
    for _ in 0..3_000 {
        let _ = unpack(&changed(&packed, &mut rng));
    }
}

#[test]
fn changed_global_snapshots_are_refused_or_applied_without_a_panic() {
    let own = Selector::builder().around(NOW).build().unwrap();
    let mut rng = TestRng(5);
    for n in 0..60 {
        own.observe(&attempt(&mut rng, 5, n * 1000));
    }
    let half_life_ms = own.learned().half_life_ms();
    let covers = [(1, Intervals::of(1, 60))].into();
    let head = SnapshotHead { epoch: 1, covers, half_life_ms, ..SnapshotHead::default() };
    let packed = global_evidence::pack(&head, &own.learned().evidence_snapshot(NOW, 0.0)).unwrap();
    let head_len = u32::from_le_bytes(packed[8..12].try_into().unwrap()) as usize;
    let raw_len = u64::from_le_bytes(packed[12..20].try_into().unwrap()) as usize;
    let raw = zstd::bulk::decompress(&packed[20 + head_len..packed.len() - 4], raw_len).unwrap();
    let json = packed[20..20 + head_len].to_vec();
    let selector = Selector::builder().around(NOW).max_keys(2000).build().unwrap();
    let at = fetchwise::time::Timestamp::from_millis(NOW.as_millis() + 60_000);
    let mut read = 0;
    for round in 0..6_000 {
        let raw = if round % 4 == 0 { raw.clone() } else { changed(&raw, &mut rng) };
        let json = if round % 4 == 0 { changed(&json, &mut rng) } else { json.clone() };
        let mut bytes = packed[..8].to_vec();
        bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(raw.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(&zstd::bulk::compress(&raw, 1).unwrap());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        if let Ok((_, share)) = global_evidence::unpack(&bytes, half_life_ms, at) {
            read += 1;
            assert!(share.is_global());
            selector.learned().add_snapshot(&share);
            // Whatever durations and blocks it claims, it cannot claim more attempts than its
            // positions.
            assert!(
                selector
                    .learned()
                    .evidence_snapshot(at, 0.0)
                    .fetcher_totals()
                    .iter()
                    .all(|totals| totals.total <= 61.0)
            );
            selector.learned().retract_snapshot(&share);
        }
    }
    assert!(read > 50, "none decoded, so nothing was tested: {read}");
    // A decompression bomb.
    let mut bomb = packed[..20 + head_len].to_vec();
    bomb[12..20].copy_from_slice(&(64u64 << 20).to_le_bytes());
    bomb.extend_from_slice(&zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap());
    bomb.extend_from_slice(&crc32c::crc32c(&bomb).to_le_bytes());
    assert!(global_evidence::unpack(&bomb, half_life_ms, at).is_err());
}

#[test]
fn changed_state_files_are_refused() {
    let mut state = NodeState::new(fetchwise_fleet::NodeId::from_bytes([3; 16]));
    state.begin_epoch(1, 40);
    let (whole, mut rng) = (state.encode(), TestRng(4));
    for _ in 0..20_000 {
        let bytes = changed(&whole, &mut rng);
        assert!(
            bytes == whole
                || NodeState::decode(&bytes).is_err()
                || NodeState::decode(&bytes) == Ok(state.clone())
        );
        // And with a matching checksum.
        let json = changed(&whole[..whole.len() - 10], &mut rng);
        let line = [&json[..], format!("\n{:08x}\n", crc32c::crc32c(&json)).as_bytes()].concat();
        if let Ok(read) = NodeState::decode(&line) {
            let _ = (read.own(), read.log_epoch());
        }
    }
}
