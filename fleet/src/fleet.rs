//! A node's part in a fleet, from joining to leaving.
//!
//! Owns: the tasks, and what they tell each other. Invariant: whatever the broker does, the crawl goes on; nothing waits for a task but
//! who asks for it. Must not know what messages say.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fetchwise::heuristic::url::UrlError;
use fetchwise::journal::Journal;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use url::Url;

use crate::consumer::Consumer;
use crate::error::FleetError;
use crate::lease::Lease;
use crate::options::Options;
use crate::origin::Origin;
use crate::owner::owner;
use crate::peers::Peers;
use crate::publisher::{Publisher, Turn, blocking};
use crate::state::State;
use crate::status::{Counts, Status};
use crate::transport::{Position, Table, Transport, TransportError};

/// After a failure a task waits for so long before it tries again.
const AGAIN: Duration = Duration::from_millis(500);
/// Commands that wait.
const WAITING: usize = 16;

/// What somebody asks of a task.
enum Ask {
    /// Publish everything, and a share.
    Leave(oneshot::Sender<Result<(), FleetError>>),
    /// Listen to an origin that was set aside.
    Hear(Origin, oneshot::Sender<Result<(), FleetError>>),
}

/// What the tasks know of each other and tell who asks.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    status: Mutex<Status>,
    nodes: Mutex<Vec<Origin>>,
    published: Mutex<Counts>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node's part in a fleet. Dropping it stops it; nothing is lost by that.
#[derive(Debug)]
pub struct Fleet {
    origin: Origin,
    selector: Arc<Selector>,
    shared: Arc<Shared>,
    publisher: mpsc::Sender<Ask>,
    consumer: mpsc::Sender<Ask>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Joins: teaches `selector` what others have told this node before, and begins to share what `journal` has. A broker that is away
    /// is waited for while the crawl goes on. Call it once the journal has been [loaded](fetchwise::journal::load()).
    ///
    /// # Errors
    /// When the node may not join: [`FleetError::Held`], [`FleetError::Differs`]; or its files cannot be read.
    pub async fn join(
        journal: Arc<Journal>,
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        options: Options,
    ) -> Result<Self, FleetError> {
        let dir = journal.dir().to_owned();
        let state = match State::load(&dir)? {
            Some(state) => state,
            None => {
                let state = State::new(Origin::random());
                state.save(&dir)?;
                state
            }
        };
        let origin = state.origin;
        let clones = (Arc::clone(&journal), Arc::clone(&selector), Arc::clone(&transport), options.clone());
        let mut publisher = Publisher::new(clones.0, clones.1, clones.2, clones.3, state);
        let mut lease = Lease::new(&dir, &options);
        let greeted = match greet(&mut publisher, &mut lease, &*transport).await {
            Ok(_) => true,
            Err(FleetError::Transport(TransportError::Away(_))) => false,
            Err(error) => return Err(error),
        };
        let (own, learner) = ((origin, publisher.state.own()), Arc::clone(&selector));
        let peers = blocking(move || Peers::open(&dir, own, learner)).await??;
        let own_log = (Arc::clone(&journal), Arc::clone(&selector));
        let consumer = Consumer::new(origin, peers, own_log, Arc::clone(&transport), options.clone());
        publisher.forgot = consumer.forgot();
        let (forgets, forgot) = watch::channel(publisher.forgot.clone());
        let shared = Arc::new(Shared::default());
        {
            let mut status = lock(&shared.status);
            (status.origin, status.pool) = (origin.to_string(), options.pool.clone());
            (status.broker, status.starting) = (greeted, true);
        }
        *lock(&shared.nodes) = vec![origin];
        let (stop, stopped) = watch::channel(false);
        let ((publish, asked), (consume, told)) = (mpsc::channel(WAITING), mpsc::channel(WAITING));
        let (own, owns) = watch::channel(publisher.state.own());
        let (excluded, is_excluded) = watch::channel(false);
        let writes = Writes {
            publisher,
            lease,
            transport: Arc::clone(&transport),
            journal: Arc::clone(&journal),
            options: options.clone(),
            shared: Arc::clone(&shared),
            asked,
            stopped: stopped.clone(),
            own,
            is_excluded,
            forgot,
            is_greeted: greeted,
        };
        let reads = Reads {
            consumer,
            transport,
            journal,
            options,
            shared: Arc::clone(&shared),
            told,
            stopped,
            owns,
            excluded,
            forgets,
            tried: None,
        };
        let tasks = vec![tokio::spawn(writes.run()), tokio::spawn(reads.run())];
        Ok(Self { origin, selector, shared, publisher: publish, consumer: consume, stop, tasks })
    }

    /// The node's name.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How the node is, and how the others are, as of the last look.
    pub fn status(&self) -> Status {
        let mut status = lock(&self.shared.status).clone();
        let published = lock(&self.shared.published).clone();
        (status.counts.published, status.counts.bytes) = (published.published, published.bytes);
        (status.counts.withheld, status.counts.rewinds) = (published.withheld, published.rewinds);
        status
    }

    /// Whether everything this node knows of has been published, read and learned, as of the last look.
    pub fn quiet(&self) -> bool {
        lock(&self.shared.status).quiet
    }

    /// The nodes among which sites are divided: those seen in the last ten minutes, and this one.
    pub fn nodes(&self) -> Vec<Origin> {
        lock(&self.shared.nodes).clone()
    }

    /// The node that a URL's site belongs to, where a crawl is divided by site. All nodes that see the same others say the same.
    ///
    /// # Errors
    /// When the URL is not one that can be fetched.
    pub fn owner(&self, url: &Url) -> Result<Origin, UrlError> {
        let heuristics = self.selector.heuristics(url)?;
        let of = |kind: &str| heuristics.iter().find(|h| &*h.kind == kind).map(|h| &*h.value);
        let site = of("site").or(of("domain")).unwrap_or_default();
        Ok(owner(site, &self.nodes()).unwrap_or(self.origin))
    }

    /// Listens again to an origin that was set aside because of its clock.
    ///
    /// # Errors
    /// When the node has left.
    pub async fn hear(&self, origin: Origin) -> Result<(), FleetError> {
        let (answer, answered) = oneshot::channel();
        self.consumer.send(Ask::Hear(origin, answer)).await.map_err(|_| FleetError::Ended)?;
        answered.await.map_err(|_| FleetError::Ended)?
    }

    /// Publishes what is left, and a last share, and leaves.
    ///
    /// # Errors
    /// When the broker cannot take it: what is missing is published when the node joins the next time.
    pub async fn leave(mut self) -> Result<(), FleetError> {
        let (answer, answered) = oneshot::channel();
        self.publisher.send(Ask::Leave(answer)).await.map_err(|_| FleetError::Ended)?;
        let left = answered.await.map_err(|_| FleetError::Ended)?;
        self.end().await;
        left
    }

    /// Stops it, and waits until it has let go of its files.
    pub async fn stop(mut self) {
        self.end().await;
    }

    async fn end(&mut self) {
        let _ = self.stop.send(true);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The tasks end at their next step, which takes nothing away that is not on disk.
        let _ = self.stop.send(true);
    }
}

/// What must be clear before anything is published: whether the directory was restored, whose it is, and whether the others agree.
async fn greet(publisher: &mut Publisher, lease: &mut Lease, transport: &dyn Transport) -> Result<bool, FleetError> {
    publisher.look_at_clock().await?;
    let has_forked = publisher.find_fork().await?;
    let ours = publisher.presence(lease.holder(), lease.directory());
    for (key, cell) in transport.cells().list(Table::Nodes).await? {
        let (Ok(by), Some(theirs)) = (key.parse::<Origin>(), crate::presence::Presence::decode(&cell.value)) else {
            continue;
        };
        let days = |ms: u64| format!("{} days", ms as f64 / 86_400_000.0);
        if by != publisher.origin() && theirs.half_life_ms != ours.half_life_ms {
            let (theirs, ours) = (days(theirs.half_life_ms), days(ours.half_life_ms));
            return Err(FleetError::Differs { by, what: "a half-life of", theirs, ours });
        }
        if by != publisher.origin() && theirs.scope != ours.scope {
            return Err(FleetError::Differs { by, what: "the scope", theirs: theirs.scope, ours: ours.scope });
        }
    }
    lease.take(publisher, transport).await?;
    Ok(has_forked)
}

/// The task that publishes.
struct Writes {
    publisher: Publisher,
    lease: Lease,
    transport: Arc<dyn Transport>,
    journal: Arc<Journal>,
    options: Options,
    shared: Arc<Shared>,
    asked: mpsc::Receiver<Ask>,
    stopped: watch::Receiver<bool>,
    own: watch::Sender<std::collections::BTreeMap<u32, crate::intervals::Intervals>>,
    is_excluded: watch::Receiver<bool>,
    forgot: watch::Receiver<BTreeSet<u64>>,
    is_greeted: bool,
}

impl Writes {
    async fn run(mut self) {
        use futures_util::StreamExt;
        let timing = self.options.timing;
        let transport = Arc::clone(&self.transport);
        let origin = self.publisher.origin();
        let mut wants = transport.signals(origin);
        let mut stopped = self.stopped.clone();
        let mut urgent = tokio::time::interval(timing.urgent);
        urgent.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut blocks, mut next) = (self.journal.blocks(), tokio::time::Instant::now());
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => return,
                ask = self.asked.recv() => {
                    match ask {
                        Some(Ask::Leave(answer)) => {
                            let _ = answer.send(self.leave().await);
                        }
                        Some(Ask::Hear(_, answer)) => drop(answer.send(Ok(()))),
                        None => return,
                    }
                }
                want = wants.next() => match want {
                    Some(Ok(want)) if self.is_greeted && !self.lease.is_lost() => {
                        let answered = self.publisher.answer(want).await;
                        self.note(answered.map(|facts| Turn { facts, ..Turn::default() }));
                    }
                    Some(Ok(_)) => {}
                    _ => {
                        tokio::time::sleep(AGAIN).await;
                        wants = transport.signals(origin);
                    }
                },
                _ = urgent.tick() => {
                    let blocked = self.journal.blocks();
                    let is_due = tokio::time::Instant::now() >= next;
                    if blocked == blocks && !is_due {
                        continue;
                    }
                    if blocked != blocks {
                        blocks = blocked;
                        // What is not synced yet would wait for the log's own interval.
                        let _ = self.journal.flush().await;
                    }
                    if is_due {
                        next = tokio::time::Instant::now() + timing.batch;
                    }
                    let turned = self.turn(is_due).await;
                    if turned.is_err() {
                        next = tokio::time::Instant::now() + AGAIN.max(timing.batch);
                    }
                    self.note(turned);
                }
            }
        }
    }

    async fn turn(&mut self, look: bool) -> Result<Turn, FleetError> {
        self.publisher.is_excluded = *self.is_excluded.borrow();
        self.publisher.forgot.clone_from(&self.forgot.borrow());
        if !self.is_greeted {
            greet(&mut self.publisher, &mut self.lease, &*self.transport).await?;
            self.is_greeted = true;
            let _ = self.own.send(self.publisher.state.own());
        }
        if look {
            self.publisher.look_at_clock().await?;
            self.lease.beat(&self.publisher).await?;
        }
        if self.lease.is_lost() {
            return Err(self.lease.held(self.publisher.origin()));
        }
        self.publisher.turn(look).await
    }

    async fn leave(&mut self) -> Result<(), FleetError> {
        let flushed = self.journal.flush().await;
        flushed.map_err(|error| FleetError::Record(error.to_string()))?;
        let turned = self.turn(true).await;
        self.note(turned.clone());
        turned?;
        if !self.publisher.is_excluded {
            self.publisher.share().await?;
        }
        self.lease.leave(&self.publisher, &*self.transport).await
    }

    /// Notes how it went.
    fn note(&mut self, turned: Result<Turn, FleetError>) {
        let publisher = &self.publisher;
        {
            let mut counts = lock(&self.shared.published);
            if let Ok(turn) = &turned {
                counts.published += turn.facts;
                counts.bytes += turn.bytes;
                counts.withheld += turn.withheld;
                counts.rewinds += turn.rewinds;
            }
        }
        let mut status = lock(&self.shared.status);
        status.epoch = publisher.state.fork().epoch;
        (status.position, status.published) = (publisher.durable(), publisher.state.acknowledged);
        status.share = publisher.state.share;
        status.withheld = publisher.state.withheld.runs().iter().map(|(first, last)| last - first + 1).sum();
        status.clock_ahead_s = publisher.clock_ahead_ms.map(|ms| ms as f64 / 1000.0);
        status.broker = !matches!(turned, Err(FleetError::Transport(TransportError::Away(_))));
        status.stopped = match &turned {
            _ if publisher.is_excluded => Some("an operator has excluded this node".to_owned()),
            _ if publisher.is_clock_wrong() => Some("its clock is more than ten minutes off the broker's".to_owned()),
            Err(error) => Some(error.to_string()),
            Ok(_) => None,
        };
        if turned.is_err() || !publisher.is_done() {
            status.quiet = false;
        }
    }
}

/// The task that reads.
struct Reads {
    consumer: Consumer,
    transport: Arc<dyn Transport>,
    journal: Arc<Journal>,
    options: Options,
    shared: Arc<Shared>,
    told: mpsc::Receiver<Ask>,
    stopped: watch::Receiver<bool>,
    owns: watch::Receiver<std::collections::BTreeMap<u32, crate::intervals::Intervals>>,
    excluded: watch::Sender<bool>,
    forgets: watch::Sender<BTreeSet<u64>>,
    /// Where the stream ended when a reader was silent before that.
    tried: Option<Position>,
}

impl Reads {
    async fn run(mut self) {
        let mut keeping: Option<JoinHandle<()>> = None;
        while !*self.stopped.borrow() {
            match self.read(&mut keeping).await {
                Ok(()) => {}
                Err(error) => {
                    self.failed(&error);
                    let mut stopped = self.stopped.clone();
                    tokio::select! { _ = tokio::time::sleep(AGAIN) => {}, _ = stopped.changed() => {} }
                }
            }
        }
        if let Some(task) = keeping {
            let _ = task.await;
        }
        if let Some(flushed) = self.consumer.flush() {
            let _ = flushed.await;
        }
    }

    fn failed(&self, error: &FleetError) {
        let mut status = lock(&self.shared.status);
        status.quiet = false;
        if !matches!(error, FleetError::Transport(_)) {
            status.stopped = Some(error.to_string());
        }
    }

    /// Reads until it has to begin anew.
    async fn read(&mut self, keeping: &mut Option<JoinHandle<()>>) -> Result<(), FleetError> {
        use futures_util::StreamExt;
        let timing = self.options.timing;
        let transport = Arc::clone(&self.transport);
        let mut stream = transport.read(self.consumer.cursor());
        let mut stopped = self.stopped.clone();
        let mut look = tokio::time::interval(timing.look);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = tokio::time::Instant::now();
        self.consumer.must_reopen = false;
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => return Ok(()),
                ask = self.told.recv() => match ask {
                    Some(Ask::Hear(origin, answer)) => {
                        let _ = answer.send(self.consumer.include(origin).await);
                    }
                    Some(Ask::Leave(answer)) => drop(answer.send(Ok(()))),
                    None => return Ok(()),
                },
                _ = look.tick() => {
                    if self.owns.has_changed().unwrap_or(false) {
                        let own = self.owns.borrow_and_update().clone();
                        self.consumer.set_own(own)?;
                    }
                    self.look().await?;
                    self.keep(keeping);
                    // A reader that hangs is told by what the stream has.
                    if last.elapsed() >= timing.silence {
                        let bounds = transport.bounds().await?;
                        let cursor = self.consumer.cursor();
                        let end = Position { incarnation: bounds.incarnation, seq: bounds.last };
                        if end.incarnation != cursor.incarnation || end.seq >= cursor.seq.max(1) {
                            if self.tried != Some(end) {
                                self.tried = Some(end);
                                return Ok(());
                            }
                            // A second reader got nothing either: what was there has aged out, or is lost. What is missing will be
                            // asked for.
                            self.consumer.pass(end)?;
                        }
                        last = tokio::time::Instant::now();
                    }
                }
                delivery = stream.next() => {
                    last = tokio::time::Instant::now();
                    match delivery {
                        Some(delivery) => self.consumer.deliver(delivery?).await?,
                        None => return Ok(()),
                    }
                }
            }
            if self.consumer.must_reopen {
                return Ok(());
            }
        }
    }

    async fn look(&mut self) -> Result<(), FleetError> {
        self.consumer.look().await?;
        self.consumer.mend().await?;
        let _ = self.excluded.send_replace(self.consumer.is_excluded);
        let _ = self.forgets.send_replace(self.consumer.forgot());
        *lock(&self.shared.nodes) = self.consumer.owners();
        let bounds = self.transport.bounds().await?;
        let cursor = self.consumer.cursor();
        let is_read = bounds.last == 0 || bounds.incarnation == cursor.incarnation && bounds.last < cursor.seq;
        let mut status = lock(&self.shared.status);
        status.peers = self.consumer.status();
        (status.excluded, status.starting) = (self.consumer.is_excluded, self.consumer.is_starting);
        let is_published = status.published + 1 >= self.journal.next_seq() || self.consumer.is_excluded;
        status.quiet = status.broker && is_read && is_published && self.consumer.is_quiet();
        status.counts = self.consumer.counts.clone();
        Ok(())
    }

    /// Takes a snapshot of `peers/` beside everything else, where one is due.
    fn keep(&mut self, keeping: &mut Option<JoinHandle<()>>) {
        if keeping.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Some(keeper) = self.consumer.keeper() {
            let (now, flushed) = (Timestamp::now(), self.consumer.flush());
            self.consumer.was_kept();
            *keeping = Some(tokio::spawn(async move {
                if let Some(flushed) = flushed {
                    let _ = flushed.await;
                }
                // What failed is tried again when as much has come again.
                let _ = blocking(move || keeper.keep(now)).await;
            }));
        }
    }
}
