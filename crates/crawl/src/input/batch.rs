//! What a feed passes on to the scheduler: links, invalid lines, and hosts whose links went to
//! another node.

use crate::error::CrawlError;
use crate::frontier::QueuedLink;
use crate::input::position::InputPosition;

/// An item of the input.
#[derive(Debug)]
pub(crate) enum Item {
    /// A link to fetch.
    Link {
        /// Its host; empty for an invalid URL.
        host: Box<str>,
        link: QueuedLink,
    },
    /// A link that an earlier run finished without printing its result.
    Earlier {
        /// Its number in the order of reading.
        number: u64,
        /// The offset of its result.
        offset: u64,
    },
    /// An invalid line.
    Bad {
        /// Its number in the order of reading.
        number: u64,
        place: InputPosition,
        /// Why it is invalid.
        error: String,
    },
    /// An error that ends the input early.
    Broken(CrawlError),
}

/// Items that were read, and the numbers of links that were left out since the last batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub items: Vec<Item>,
    /// Links that the input has named before.
    pub duplicates: u64,
    /// Links that a selection leaves out.
    pub left_out: u64,
    /// Links that an earlier run finished.
    pub skipped: u64,
    /// Links, also among those left out, that were added to the running crawl: the input's number
    /// of items is without them.
    pub added: u64,
    /// Hosts whose links other nodes fetch from now on, before the items.
    pub withdrawn: Option<Withdrawal>,
}

/// Hosts whose links go back to their work queue.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    pub hosts: Vec<Box<str>>,
    /// Whether open requests are to be abandoned, too.
    pub is_revoked: bool,
}
