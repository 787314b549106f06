//! A node's calls to the work queues of the in-process broker.
//!
//! Must not know: the content of links.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::node::InProcessNode;
use crate::transport::in_process::broker::SiteCall;
use crate::transport::in_process::work_queue::WorkQueue;
use crate::transport::{
    MAX_QUEUED_LINK, QueueContent, QueueSites, QueueStatistics, QueuedMessage, TransportError,
    WorkQueues, check_queue_name, shard_of,
};

impl InProcessNode {
    fn with_queue<T>(
        &self,
        queue: &str,
        run: impl FnOnce(&mut WorkQueue) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        check_queue_name(queue)?;
        let mut state = self.reach()?;
        let missing = || TransportError::NoQueue(queue.to_owned());
        let value = run(state.queues.get_mut(queue).ok_or_else(missing)?)?;
        self.respond(state, value)
    }
}

impl WorkQueues for InProcessNode {
    fn ensure<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            check_queue_name(queue)?;
            self.reach()?.queues.entry(queue.to_owned()).or_default();
            Ok(())
        }
        .boxed()
    }

    fn enqueue<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<bool, TransportError>> {
        async move {
            if body.len() > MAX_QUEUED_LINK {
                return Err(TransportError::Invalid(format!("a link of {} bytes", body.len())));
            }
            let now = self.broker_time();
            self.with_queue(queue, |queue| {
                if !queue.ids.insert(id.to_owned()) {
                    return Ok(false);
                }
                queue.last += 1;
                queue.times.insert(queue.last, now);
                queue.links.insert(queue.last, (site.to_owned(), body));
                Ok(true)
            })
        }
        .boxed()
    }

    fn content<'a>(
        &'a self,
        queue: &'a str,
    ) -> BoxFuture<'a, Result<QueueContent, TransportError>> {
        async move {
            self.with_queue(queue, |queue| {
                let sites: HashSet<&str> =
                    queue.links.values().map(|(site, _)| site.as_str()).collect();
                Ok(QueueContent { links: queue.links.len() as u64, sites: sites.len() as u64 })
            })
        }
        .boxed()
    }

    fn sites<'a>(
        &'a self,
        queue: &'a str,
        shard: Option<u8>,
    ) -> BoxFuture<'a, Result<QueueSites, TransportError>> {
        async move {
            self.with_queue(queue, |queue| {
                let wanted = |site: &&String| shard.is_none_or(|shard| shard_of(site) == shard);
                let (mut sites, mut unreadable) = (HashSet::new(), 0);
                for site in queue.links.values().map(|(site, _)| site).filter(wanted) {
                    // At a real broker, a subject without a site.
                    match site.is_empty() {
                        true => unreadable += 1,
                        false => drop(sites.insert(site)),
                    }
                }
                Ok(QueueSites { sites: sites.into_iter().cloned().collect(), unreadable })
            })
        }
        .boxed()
    }

    fn delivered<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<u64, TransportError>> {
        async move { self.with_queue(queue, |queue| Ok(queue.open.get(site).copied().unwrap_or(0))) }.boxed()
    }

    fn open<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            self.reach()?.check(SiteCall::Open)?;
            self.with_queue(queue, |queue| {
                queue.open.insert(site.to_owned(), 0);
                Ok(())
            })
        }
        .boxed()
    }

    fn pull<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<QueuedMessage>, TransportError>> {
        async move {
            self.reach()?.check(SiteCall::Pull)?;
            self.with_queue(queue, |queue| {
                let Some(delivered) = queue.open.get_mut(site) else {
                    return Err(TransportError::NoQueue(site.to_owned()));
                };
                let waiting =
                    queue.links.range(*delivered + 1..).filter(|(_, (of, _))| of == site).take(max);
                let links: Vec<_> = waiting
                    .map(|(seq, (_, body))| QueuedMessage {
                        seq: *seq,
                        body: body.clone(),
                        receipt: seq.to_string(),
                    })
                    .collect();
                *delivered = links.last().map_or(*delivered, |link| link.seq);
                Ok(links)
            })
        }
        .boxed()
    }

    fn acknowledge<'a>(
        &'a self,
        queue: &'a str,
        message: &'a QueuedMessage,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            let is_late = self.reach()?.holds_removals;
            self.reach()?.check(SiteCall::Acknowledge)?;
            self.with_queue(queue, |queue| {
                queue.acknowledged.insert(message.seq);
                if !is_late {
                    queue.remove_acknowledged();
                }
                Ok(())
            })
        }
        .boxed()
    }

    fn is_settled<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<bool, TransportError>> {
        async move { self.with_queue(queue, |queue| Ok(queue.is_settled(site))) }.boxed()
    }

    fn close<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            self.reach()?.check(SiteCall::Close)?;
            self.with_queue(queue, |queue| {
                queue.open.remove(site);
                Ok(())
            })
        }
        .boxed()
    }

    fn statistics<'a>(
        &'a self,
        queue: &'a str,
    ) -> BoxFuture<'a, Result<QueueStatistics, TransportError>> {
        async move { self.with_queue(queue, |queue| Ok(queue.statistics())) }.boxed()
    }

    fn purge<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64, TransportError>> {
        async move { self.with_queue(queue, |queue| Ok(queue.purge())) }.boxed()
    }
}
