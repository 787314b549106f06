//! A node of the next minor release: its messages have columns that this release does not know.

use bytes::Bytes;
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::transport::nats::Nats;
use fetchwise_fleet::transport::{
    Blobs, Cells, Delivery, Position, RetransmitRequest, StreamBounds, Transport, TransportError,
};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

/// Offsets in a message: its version, the length of the compressed part, its checksum, and the
/// compressed part.
const MAJOR: usize = 4;
const MINOR: usize = 5;
const RAW_LEN: std::ops::Range<usize> = 40..44;
const CRC: usize = 44;
const FRAME: usize = 48;
/// An unknown kind of columns.
const UNKNOWN: u8 = 200;

/// A transport that publishes everything in the format of the next release.
pub struct NextRelease(pub Nats);

/// Returns a message with another version, and an additional column.
pub fn with_version(body: &[u8], major: u8, minor: u8) -> Bytes {
    let len = u32::from_le_bytes(body[RAW_LEN].try_into().unwrap());
    let mut raw = zstd::bulk::decompress(&body[FRAME..], len as usize).unwrap();
    raw.extend_from_slice(&[UNKNOWN, 5]);
    raw.extend_from_slice(b"later");
    let frame = zstd::bulk::compress(&raw, 3).unwrap();
    let mut message = body[..CRC].to_vec();
    (message[MAJOR], message[MINOR]) = (major, minor);
    message[RAW_LEN].copy_from_slice(&u32::try_from(raw.len()).unwrap().to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&message), &frame);
    message.extend_from_slice(&crc.to_le_bytes());
    message.extend_from_slice(&frame);
    message.into()
}

impl Transport for NextRelease {
    fn publish<'a>(
        &'a self,
        node_id: NodeId,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        let (major, minor) = fetchwise_fleet::model::codec::VERSION;
        self.0.publish(node_id, id, with_version(&body, major, minor + 1))
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        self.0.read(from)
    }

    fn bounds(&self) -> BoxFuture<'_, Result<StreamBounds, TransportError>> {
        self.0.bounds()
    }

    fn newest(&self, node_id: NodeId) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        self.0.newest(node_id)
    }

    fn now(&self) -> BoxFuture<'_, Result<Option<Timestamp>, TransportError>> {
        self.0.now()
    }

    fn cells(&self) -> &dyn Cells {
        self.0.cells()
    }

    fn blobs(&self) -> &dyn Blobs {
        self.0.blobs()
    }

    fn signal(
        &self,
        to: NodeId,
        want: RetransmitRequest,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        self.0.signal(to, want)
    }

    fn signals(&self, own: NodeId) -> BoxStream<'_, Result<RetransmitRequest, TransportError>> {
        self.0.signals(own)
    }

    fn is_up(&self) -> bool {
        self.0.is_up()
    }
}
