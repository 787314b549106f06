//! The feed of a work queue: links that this node's reader takes, and what becomes of them.
//!
//! Invariants: the text of a link is in memory until its result is written or the link is dropped.
//! A link whose site went to another node is not started any more.
//!
//! Must not know: the broker, and the order in which links are fetched.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fetchwise::heuristic::url::site_of;
use fetchwise_fleet::queue::{QueueEvent, QueueLink, QueueReader};

use super::batch::{Batch, Item, Withdrawal};
use super::line::{self, host_of};
use super::link_list::{HeldLink, LinkList};
use super::position::InputPosition;
use crate::error::CrawlError;
use crate::frontier::QueuedLink;

/// A site whose links are here.
#[derive(Debug, Default)]
struct SiteLinks {
    hosts: HashSet<Box<str>>,
    count: usize,
    /// The links with smaller numbers go back to the queue. The site may be here again meanwhile.
    withdrawn_before: u64,
}

/// The feed.
#[derive(Debug)]
pub(crate) struct QueueFeed {
    reader: QueueReader,
    list: Arc<LinkList>,
    /// The number of the next item.
    number: u64,
    sites: HashMap<Arc<str>, SiteLinks>,
    /// The links that are not finished, by number.
    links: HashMap<u64, (Arc<str>, QueueLink)>,
    is_drained: bool,
}

impl QueueFeed {
    /// Returns the feed of a reader, which keeps links in `list`.
    pub(crate) fn new(reader: QueueReader, list: Arc<LinkList>) -> Self {
        Self {
            reader,
            list,
            number: 0,
            sites: HashMap::new(),
            links: HashMap::new(),
            is_drained: false,
        }
    }

    /// Returns the next items if there are some now.
    pub(crate) fn try_next(&mut self) -> Option<Batch> {
        let event = self.reader.try_next()?;
        self.batch(event)
    }

    /// Returns the next items; none once the queue is empty. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Batch> {
        while !self.is_drained {
            let event = self.reader.next().await?;
            let batch = self.batch(event);
            if batch.is_some() {
                return batch;
            }
        }
        None
    }

    /// Returns the number of links of the queue without a result, at all nodes, if it is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.reader.left()
    }

    /// Acknowledges a link whose result is written.
    pub(crate) fn written(&mut self, number: u64) {
        if let Some((site, link)) = self.remove(number) {
            self.reader.written(&site, &link);
        }
    }

    /// Gives a link back without a result.
    pub(crate) fn dropped(&mut self, number: u64) {
        if let Some((site, link)) = self.remove(number) {
            self.reader.dropped(&site, &link);
        }
    }

    /// Returns whether a link goes back to its queue.
    pub(crate) fn is_withdrawn(&self, number: u64) -> bool {
        let site = self.links.get(&number).and_then(|(site, _)| self.sites.get(site));
        site.is_none_or(|site| number < site.withdrawn_before)
    }

    /// Gives back what has no result.
    pub(crate) async fn stop(self) {
        self.reader.stop().await;
    }

    fn remove(&mut self, number: u64) -> Option<(Arc<str>, QueueLink)> {
        self.list.remove_held(number);
        let (site, link) = self.links.remove(&number)?;
        if let Some(links) = self.sites.get_mut(&site) {
            links.count -= 1;
            if links.count == 0 {
                self.sites.remove(&site);
            }
        }
        Some((site, link))
    }

    fn batch(&mut self, event: QueueEvent) -> Option<Batch> {
        match event {
            QueueEvent::Links(site, links) => {
                let items = links.into_iter().map(|link| self.item(&site, link)).collect();
                Some(Batch { items, ..Batch::default() })
            }
            QueueEvent::Withdrawn(site) => self.withdraw(&site, false),
            QueueEvent::Revoked(site) => self.withdraw(&site, true),
            QueueEvent::Drained { unreadable } => {
                self.is_drained = true;
                // The rest is fetched by now, and the error only ends the run.
                let items = (unreadable > 0)
                    .then_some(Item::Broken(CrawlError::ForeignMessages(unreadable)));
                items.map(|item| Batch { items: vec![item], ..Batch::default() })
            }
            QueueEvent::Failed(error) => {
                let items = vec![Item::Broken(CrawlError::Queue(error.to_string()))];
                Some(Batch { items, ..Batch::default() })
            }
        }
    }

    fn withdraw(&mut self, site: &Arc<str>, is_revoked: bool) -> Option<Batch> {
        let links = self.sites.get_mut(site)?;
        links.withdrawn_before = self.number;
        let hosts = links.hosts.iter().cloned().collect();
        Some(Batch { withdrawn: Some(Withdrawal { hosts, is_revoked }), ..Batch::default() })
    }

    fn item(&mut self, site: &Arc<str>, mut link: QueueLink) -> Item {
        let number = self.number;
        self.number += 1;
        let body = std::mem::take(&mut link.body);
        let (seq, is_redelivered) = (link.seq, link.is_redelivered);
        let sites = self.sites.entry(Arc::clone(site)).or_default();
        sites.count += 1;
        self.links.insert(number, (Arc::clone(site), link));
        match check(site, &body, &self.list) {
            Ok((text, host)) => {
                if sites.hosts.insert(host.clone()) {
                    self.reader.host(site, &host);
                }
                let offset = self.list.hold(number, HeldLink { text, seq, is_redelivered });
                Item::Link { host, link: QueuedLink { offset, line: seq, number, refused: 0 } }
            }
            Err(error) => Item::Bad {
                number,
                place: InputPosition::Queue { number, seq, is_redelivered },
                error,
            },
        }
    }
}

/// Returns the text and the host of a link of the queue.
fn check(site: &str, body: &[u8], list: &LinkList) -> Result<(String, Box<str>), String> {
    let text = std::str::from_utf8(body).map_err(|_| "not valid UTF-8")?;
    let link = line::link(text, list.listed()).ok_or("not a link")??;
    let host = host_of(&link.url);
    // Its lease covers this site only.
    if site_of(&host) != site {
        return Err(format!("the link is in the queue of another site, {site}"));
    }
    Ok((text.to_owned(), host))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fetchwise::pipeline::Link;
    use fetchwise_fleet::NodeId;
    use fetchwise_fleet::model::lease_proof::LeaseProof;
    use fetchwise_fleet::queue::QueueOptions;
    use fetchwise_fleet::transport::Transport;
    use fetchwise_fleet::transport::in_process::InProcessBroker;
    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::*;

    /// The bug: once a site that this node had lost was here again, its links from before counted
    /// as taken, too. One whose request ended then was fetched together with its second copy.
    #[tokio::test(start_paused = true)]
    async fn a_link_of_a_lost_site_stays_withdrawn_when_the_site_is_here_again() {
        let selector = fetchwise::Selector::builder().build().unwrap();
        let broker = InProcessBroker::new(Arc::clone(selector.clock()), 1);
        let id = NodeId::random();
        let transport: Arc<dyn Transport> = Arc::new(broker.node(id));
        let queues = transport.work_queues().unwrap();
        queues.ensure("crawl").await.unwrap();
        assert!(queues.enqueue("crawl", "e.org", "1", "http://e.org/1".into()).await.unwrap());
        let (proofs, proven) = watch::channel(None);
        let prove = || {
            let sent = Instant::now() + Duration::from_secs(3600);
            proofs.send_replace(Some(LeaseProof { holder: id.to_string(), sent }));
        };
        prove();
        let (max_links, max_sites, max_site_links) = (9, 9, 9);
        let options =
            QueueOptions { queue: "crawl".to_owned(), max_links, max_sites, max_site_links };
        let lease = (proven, Duration::from_secs(30));
        let reader =
            QueueReader::start(Arc::clone(&transport), Arc::new(selector), id, lease, options);
        let dir = tempfile::tempdir().unwrap();
        let list = Arc::new(LinkList::new(dir.path(), Link::default(), Link::default()));
        let mut feed = QueueFeed::new(reader, list);
        assert_eq!(feed.next().await.unwrap().items.len(), 1);
        assert!(!feed.is_withdrawn(0));
        proofs.send_replace(None);
        assert!(feed.next().await.unwrap().withdrawn.unwrap().is_revoked);
        prove();
        assert_eq!(feed.next().await.unwrap().items.len(), 1);
        assert!(feed.is_withdrawn(0), "its request is still open");
        assert!(!feed.is_withdrawn(1));
    }
}
