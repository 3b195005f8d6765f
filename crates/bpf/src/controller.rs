//! Keeps time for the merging program: which queue leaves when no packet in hand can carry it.
//!
//! The program tells which queue waits since when; the device's side tells how many frames are
//! done. From both follows the next tick, by the same rules as in the model
//! ([`sheaf_aggregate::Aggregator`]): under `forced` overdue queues first, the oldest of them, then
//! those that reached `min`; under `busy` the queue that waits longest, as soon as the device can
//! take a frame and the rest after a slow one is over; under both nobody beyond `hold`.

use crate::layout::MergeConfig;
use crate::{Error, Event, Merge, Ticker, ticker::Cause};
use sheaf_aggregate::{Config, Policy, Rest};
use sheaf_stage::{Duration, IndexedHeap, Instant};

/// How soon a queue is tried again into which a packet is being copied.
const AGAIN: Duration = Duration::from_micros(200);
/// How often, at most, empty queues are given back when all are in use.
const RECLAIM: Duration = Duration::from_millis(100);

/// The merging program of one interface, and who keeps time for it.
pub struct Controller {
    config: Config,
    /// The program.
    pub merge: Merge,
    ticker: Ticker,
    /// Queues by their oldest packet.
    waiting: IndexedHeap<Instant>,
    /// Queues that may leave but found no carrier.
    wants: Vec<u32>,
    rest: Rest,
    again: Option<Instant>,
    no_slot: bool,
    /// The program has told something since the last look.
    heard: bool,
    reclaimed: Instant,
}

impl Controller {
    /// Puts the program on `interface` (its number and link address) of this thread's network
    /// namespace. `cookie` is a random number that tells our tick frames from others.
    pub fn attach(
        interface: &str,
        ifindex: u32,
        mac: [u8; 6],
        config: &Config,
        cookie: u64,
    ) -> Result<Controller, Error> {
        Ok(Controller {
            merge: Merge::attach(interface, MergeConfig::new(config, cookie))?,
            ticker: Ticker::new(ifindex, mac, cookie)?,
            config: config.clone(),
            waiting: IndexedHeap::default(),
            wants: Vec::new(),
            rest: Rest::default(),
            again: None,
            no_slot: false,
            heard: false,
            reclaimed: Instant::ZERO,
        })
    }

    /// The device has finished with `done` frames in all since it told first, and can have `limit`.
    pub fn device_done(&mut self, done: u64, limit: u32, now: Instant) {
        let before = self.merge.device().read();
        if done > before.done {
            self.rest.began(Instant::from_nanos(before.handed));
            self.rest.finished(self.config.rest, now);
            self.merge.device().rest_until(self.rest.until().as_nanos());
        }
        self.merge.device().tell(done, limit);
    }

    /// Lets everything leave that may at `now`; answers when to call again at the latest. Call also
    /// when the program's events are readable, and after [`Controller::device_done`].
    pub fn run(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        self.again = None;
        self.listen();
        while let Some((slot, cause)) = self.choose(now)? {
            self.waiting.set(slot, None);
            let mut left = self.ticker.tick(slot, cause)?;
            let mut queue = self.merge.queue(slot)?;
            if !left && !queue.is_empty() {
                // Another CPU took the last frame, and may not be done with it.
                left = self.ticker.tick_on(queue.owner_cpu, slot, cause)?;
                queue = self.merge.queue(slot)?;
            }
            self.listen();
            if !left && !queue.is_empty() {
                self.waiting.set(slot, Some(queue.oldest()));
                self.again = Some(now + AGAIN);
                break;
            }
        }
        if self.no_slot && now.saturating_since(self.reclaimed) >= RECLAIM {
            (self.no_slot, self.reclaimed) = (false, now);
            self.reclaim()?;
        }
        let next = self.next_look(now);
        self.merge.device().look_at(next.unwrap_or(Instant::MAX).as_nanos());
        Ok(next)
    }

    /// When to look again: at the deadline; and, while there is traffic, often enough to hear of new
    /// queues before theirs.
    fn next_look(&mut self, now: Instant) -> Option<Instant> {
        let heard = std::mem::take(&mut self.heard);
        let soon = heard.then(|| now + self.config.longest_wait() / 4);
        [self.deadline(now), soon].into_iter().flatten().min()
    }

    /// Gives empty queues back: there are more next hops and classes than queues.
    fn reclaim(&mut self) -> Result<(), Error> {
        for slot in 0..crate::layout::SLOTS {
            let queue = self.merge.queue(slot)?;
            if queue.is_used() && queue.is_empty() && self.ticker.tick(slot, Cause::Reclaim)? {
                self.waiting.set(slot, None);
                self.wants.retain(|wants| *wants != slot);
                self.merge.retire(slot, queue.key.hop)?;
            }
        }
        Ok(())
    }

    /// Lets everything leave that is held, whatever the device says: for an orderly end.
    pub fn flush(&mut self) -> Result<(), Error> {
        for slot in 0..crate::layout::SLOTS {
            while self.ticker.tick(slot, Cause::Timeout)? {}
        }
        Ok(())
    }

    fn listen(&mut self) {
        while let Some(event) = self.merge.event() {
            self.heard = true;
            match event {
                Event::Waits { slot, oldest } => {
                    self.waiting.set(slot, Some(Instant::from_nanos(oldest)));
                }
                Event::WantsTick { slot } if !self.wants.contains(&slot) => self.wants.push(slot),
                Event::WantsTick { .. } => {}
                Event::NoSlot => self.no_slot = true,
            }
        }
    }

    fn choose(&mut self, now: Instant) -> Result<Option<(u32, Cause)>, Error> {
        let device = self.merge.device().read();
        let told = device.told != 0;
        let fill = if told { device.sent.saturating_sub(device.done) } else { 0 };
        let oldest = self.waiting.first();
        let waited = oldest.map(|(oldest, slot)| (now.saturating_since(oldest), slot));
        if let Some((_, slot)) = waited.filter(|(waited, _)| *waited >= self.config.hold) {
            return Ok(Some((slot, Cause::Timeout)));
        }
        match self.config.policy {
            Policy::Forced if told && fill >= u64::from(device.limit) => Ok(None),
            Policy::Forced => match waited.filter(|(waited, _)| *waited >= self.config.timeout) {
                Some((_, slot)) => Ok(Some((slot, Cause::Timeout))),
                None => Ok(self.wants.pop().map(|slot| (slot, Cause::Size))),
            },
            Policy::Busy if fill >= u64::from(self.config.inflight) => Ok(None),
            Policy::Busy => {
                let Some((_, slot)) = waited else { return Ok(None) };
                if now >= self.rest.until() {
                    return Ok(Some((slot, Cause::Ready)));
                }
                if let Some(slot) = self.wants.pop() {
                    return Ok(Some((slot, Cause::Size)));
                }
                let queue = self.merge.queue(slot)?;
                Ok((queue.tail.wrapping_sub(queue.head) > 1).then_some((slot, Cause::Size)))
            }
        }
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let (oldest, _) = self.waiting.first()?;
        let mut deadline = oldest + self.config.longest_wait();
        if deadline <= now {
            // Overdue, but the device is full: the ceiling counts.
            deadline = oldest + self.config.hold;
        }
        if self.config.policy == Policy::Busy && self.rest.until() > now {
            deadline = deadline.min(self.rest.until());
        }
        Some(self.again.map_or(deadline, |again| deadline.min(again)))
    }
}
