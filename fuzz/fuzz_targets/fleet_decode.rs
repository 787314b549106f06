//! Any bytes as a message, an evidence snapshot, a global snapshot, or a node state: nothing
//! panics, memory stays in bounds, and what is read is written to the same bytes.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use fetchwise::journal::replication::RemoteLinkState;
use fetchwise::time::Timestamp;
use fetchwise_fleet::NodeId;
use fetchwise_fleet::model::codec::{Batch, Builder, MAX_BODY, peek};
use fetchwise_fleet::model::evidence_snapshot;
use fetchwise_fleet::model::global_evidence;
use fetchwise_fleet::model::peer_state::PeerStates;
use fetchwise_fleet::peer_store::own_state_file;
use libfuzzer_sys::fuzz_target;

/// A message of these columns with a matching checksum, so that the fuzzer gets past it.
fn message(data: &[u8]) -> Option<Vec<u8>> {
    let (head, raw) = data.split_at_checked(26)?;
    let mut body = b"FWf\x1a\x01\0\0\0\x01\0\0\0".to_vec();
    body.extend_from_slice(&u64::from(head[0]).max(1).to_le_bytes());
    body.extend_from_slice(&(u64::from(head[0]).max(1) + u64::from(head[1])).to_le_bytes());
    body.extend_from_slice(&head[2..10]);
    body.extend_from_slice(&u32::from(head[10]).to_le_bytes());
    let frame = zstd::bulk::compress(raw, 1).ok()?;
    body.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&body), &frame);
    body.extend_from_slice(&crc.to_le_bytes());
    body.extend_from_slice(&frame);
    (body.len() <= MAX_BODY).then_some(body)
}

fn read(body: &[u8]) {
    let Ok(batch) = Batch::decode(body) else { return };
    let header = *batch.header();
    assert_eq!(peek(body).unwrap().first, header.first);
    let mut states = PeerStates::default();
    for link in states.apply_links(
        NodeId::from_bytes([1; 16]),
        &batch,
        Timestamp::from_millis(1_800_000_000_000),
    ) {
        let _ = states.links.state(link, batch.egress());
    }
    assert!(states.links.len() <= batch.links());
    // A position has an attempt or a link state.
    let mut attempts = BTreeSet::new();
    batch.each(|position, _, _| {
        attempts.insert(position);
    });
    let mut links = BTreeMap::new();
    batch.each_link(|position, link| {
        if !attempts.contains(&position) {
            links.insert(
                position,
                (link.domain.to_owned(), RemoteLinkState { domain: "", ..*link }),
            );
        }
    });
    let mut builder = Builder::new(header.epoch, header.base, header.first).behind(batch.egress());
    let count = links.len();
    let go_to = |builder: &mut Builder,
                 links: &mut BTreeMap<u64, (String, RemoteLinkState<'_>)>,
                 position: u64| {
        while builder.next() < position {
            match links.remove(&builder.next()) {
                Some((domain, link)) => builder.link(&RemoteLinkState { domain: &domain, ..link }),
                None => builder.skip(),
            }
        }
    };
    if header.last - header.first >= 1 << 16 {
        return;
    }
    batch.each(|position, fact, link| {
        go_to(&mut builder, &mut links, position);
        builder.push(fact, link);
    });
    go_to(&mut builder, &mut links, header.last + 1);
    let (again, bytes) = builder.finish(header.top).unwrap();
    assert_eq!(again, header);
    let whole = Batch::decode(&bytes).unwrap();
    assert_eq!((*whole.header(), whole.links()), (header, count));
}

fuzz_target!(|data: &[u8]| {
    let Some((way, rest)) = data.split_first() else { return };
    match way % 4 {
        0 => read(rest),
        1 => message(rest).iter().for_each(|body| read(body)),
        2 => {
            let mut bytes = rest.to_vec();
            let crc = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            let _ = (evidence_snapshot::unpack(rest), evidence_snapshot::unpack(&bytes));
            let half_life_ms = 30 * 86_400_000;
            let at = Timestamp::from_millis(1_800_000_000_000);
            if let Ok((_, share)) = global_evidence::unpack(&bytes, half_life_ms, at) {
                assert!(share.is_global());
            }
        }
        _ => {
            if let Ok(state) = own_state_file::NodeState::decode(rest) {
                assert_eq!(own_state_file::NodeState::decode(&state.encode()), Ok(state));
            }
        }
    }
});
