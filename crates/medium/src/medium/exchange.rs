//! The reaction of stations to frames: responses, retries, the end of an exchange (IEEE
//! 802.11-2020, 10.3.2 and 10.3.4).

use super::{Entry, Event, Kind, Medium, OnAir, Response};
use crate::ampdu::DELIMITER;
use crate::config::Link;
use crate::frame::{Receivers, Transmission};
use crate::station::Phase;
use rand::RngExt;
use sheaf_stage::{DropReason, Duration, Instant};
use std::cmp::Reverse;

impl<P: Clone> Medium<P> {
    /// Draws whether `bytes` of a transmission come through the bit errors and losses of the link.
    fn survives(&mut self, air: &OnAir, to: usize, bytes: u32) -> bool {
        let Link { ber, basic_ber, loss, .. } = self.links[air.from][to];
        let is_data = air.kind == Kind::Data && air.to.is_some();
        let ber = if is_data { ber } else { basic_ber.unwrap_or(ber) };
        // A perfect link draws nothing, so that its back-offs do not depend on this feature.
        let whole = || (1.0 - loss) * libm::pow(1.0 - ber, f64::from(bytes) * 8.0);
        (ber == 0.0 && loss == 0.0) || self.rng.random::<f64>() < whole()
    }

    /// Draws what `id` reads of a transmission that no other spoilt, and returns whether that is
    /// anything. Of an A-MPDU one subframe will do; its receiver keeps those that come through.
    pub(super) fn is_read(&mut self, air: &OnAir, id: usize) -> bool {
        let frames = self.exchanges[air.from].len();
        if air.kind != Kind::Data || frames == 1 {
            return self.survives(air, id, air.bytes);
        }
        let overhead = DELIMITER + self.phy.data_overhead();
        let mut is_read = false;
        for frame in 0..frames {
            let place = self.exchanges[air.from][frame] as usize;
            let bytes = overhead + self.queues[air.from][place].frame.bytes;
            if self.survives(air, id, bytes) {
                is_read = true;
                if air.to != Some(id) {
                    break;
                }
                self.queues[air.from][place].receivers.insert(id);
            }
        }
        is_read
    }

    /// `id` has received a frame whole, or subframes of an A-MPDU.
    pub(super) fn received(&mut self, air: &OnAir, id: usize, now: Instant) {
        if air.to.is_some_and(|to| to != id) {
            return self.stations[id].reserve(now, air.reserves);
        }
        match air.kind {
            Kind::Data => {
                let is_block = self.exchanges[air.from].len() > 1;
                if air.to.is_some() {
                    let kind = if is_block { Kind::BlockAck } else { Kind::Ack };
                    self.respond_after_sifs(id, air, kind, Duration::ZERO, now);
                }
                if !is_block {
                    let entry = self.queues[air.from].front_mut().expect("its sender still has it");
                    entry.receivers.insert(id);
                }
            }
            Kind::Rts if self.stations[id].reserved_until <= now => {
                let cts = self.responses(air.rate).ack;
                let reserves = air.reserves.saturating_sub(self.timing.sifs + cts);
                self.respond_after_sifs(id, air, Kind::Cts, reserves, now);
            }
            Kind::Rts => {}
            Kind::Cts if self.stations[id].phase == Phase::Awaiting => {
                self.stations[id].phase = Phase::Sending;
                self.stations[id].token = self.stations[id].token.wrapping_add(1);
                self.respond_after_sifs(id, air, Kind::Data, Duration::ZERO, now);
            }
            Kind::Ack | Kind::BlockAck if self.stations[id].phase == Phase::Awaiting => {
                self.acknowledged(id, now);
            }
            Kind::Cts | Kind::Ack | Kind::BlockAck => {}
        }
    }

    /// Lets `id` respond to the frame `air`, which has just ended.
    fn respond_after_sifs(
        &mut self,
        id: usize,
        air: &OnAir,
        kind: Kind,
        reserves: Duration,
        now: Instant,
    ) {
        // A station reads one frame at a time, and the shortest takes longer than SIFS.
        debug_assert!(self.due[id].is_none(), "one response at a time");
        self.due[id] = Some(Response { to: air.from, kind, rate: air.rate, reserves });
        let event = Event::Respond { station: id as u32 };
        self.events.push(Reverse((now + self.timing.sifs, event)));
    }

    /// `air.from` has sent a frame: waits for the response, or is done.
    pub(super) fn sent(&mut self, air: &OnAir, now: Instant) {
        match (air.kind, air.to) {
            (Kind::Data | Kind::Rts, None) => {
                let entry = self.queues[air.from].front_mut().expect("its sender still has it");
                let heard = entry.receivers != Receivers::default();
                entry.result = Some(if heard { Ok(()) } else { Err(DropReason::Unreachable) });
                self.finish(air.from, now);
            }
            (Kind::Data | Kind::Rts, Some(_)) => {
                let station = &mut self.stations[air.from];
                station.phase = Phase::Awaiting;
                station.not_before = now + self.timing.response_timeout;
                station.token = station.token.wrapping_add(1);
                let event = Event::Timeout { station: air.from as u32, token: station.token };
                self.events.push(Reverse((station.not_before, event)));
            }
            (Kind::Ack | Kind::BlockAck | Kind::Cts, _) => {}
        }
    }

    /// The wait for a response is over. A sender that is receiving a frame looks again when that
    /// ends: it may be the response.
    pub(super) fn timeout(&mut self, id: usize, token: u32, now: Instant) {
        let station = &self.stations[id];
        let waits = station.token == token && station.phase == Phase::Awaiting;
        if waits && station.reading.is_none() {
            self.missed(id, now);
            if !self.stations[id].is_busy() {
                self.schedule(id, now);
            }
        }
    }

    /// The response arrived: frames that are not in it are sent again, or given up.
    fn acknowledged(&mut self, id: usize, now: Instant) {
        let limit = self.config.retry_limit;
        for place in &self.exchanges[id] {
            let entry = &mut self.queues[id][*place as usize];
            if entry.receivers != Receivers::default() {
                entry.result = Some(Ok(()));
            } else if entry.attempts >= limit {
                entry.result = Some(Err(DropReason::RetryLimit));
            }
        }
        self.finish(id, now);
    }

    /// The response did not arrive: makes another attempt, or gives frames up.
    pub(super) fn missed(&mut self, id: usize, now: Instant) {
        let limit = self.config.retry_limit;
        for place in &self.exchanges[id] {
            let entry = &mut self.queues[id][*place as usize];
            if entry.attempts >= limit {
                // It may have arrived, and only its acknowledgements have not.
                let heard = entry.receivers != Receivers::default();
                entry.result = Some(if heard { Ok(()) } else { Err(DropReason::RetryLimit) });
            }
        }
        // The first frame has the most attempts of all.
        if self.queues[id].front().is_some_and(|entry| entry.result.is_some()) {
            self.finish(id, now);
        } else {
            let cw_max = self.config.cw_max;
            self.stations[id].phase = Phase::Contending;
            self.stations[id].failed(cw_max, &mut self.rng);
        }
    }

    /// The exchange of `id` is over: frames that have ended leave its queue.
    fn finish(&mut self, id: usize, now: Instant) {
        let frames = self.exchanges[id].iter();
        let ended = frames.filter(|place| self.queues[id][**place as usize].result.is_some());
        self.ended[id] += ended.count() as u32;
        self.release(id, now);
        self.stations[id].phase = Phase::Contending;
        self.stations[id].renew(&self.timing, &mut self.rng);
        self.stations[id].token = self.stations[id].token.wrapping_add(1);
    }

    /// Lets the frames of `id` leave that have ended, up to the first that has not, of those to the
    /// radio of this exchange. Frames to others stand between and keep their places.
    fn release(&mut self, id: usize, now: Instant) {
        let Some(to) = self.queues[id].front().map(|entry| entry.frame.to) else { return };
        let mut others = std::mem::take(&mut self.passed_over);
        while self.ended[id] > 0
            && let Some(entry) = self.queues[id].pop_front()
        {
            let is_held = entry.frame.to == to && entry.result.is_none();
            if entry.frame.to == to && !is_held {
                self.leave(id, entry, now);
                continue;
            }
            others.push(entry);
            if is_held {
                break;
            }
        }
        while let Some(entry) = others.pop() {
            self.queues[id].push_front(entry);
        }
        self.passed_over = others;
    }

    /// A frame that has ended leaves the queue of `id`.
    fn leave(&mut self, id: usize, entry: Entry<P>, now: Instant) {
        let Entry { frame, started, attempts, receivers, result } = entry;
        let result = result.expect("it has ended");
        self.ended[id] -= 1;
        match result {
            Ok(()) => self.counters.packets_out += 1,
            Err(reason) => {
                self.stats[id].lost += 1;
                self.counters.drop(reason);
            }
        }
        self.done.push_back(Transmission {
            frame,
            receivers,
            result,
            started: started.unwrap_or(now),
            ended: now,
            retries: attempts.saturating_sub(1),
        });
    }

    /// A transmission that `id` sensed, or its own, has ended: counts down where nothing else is
    /// on the air.
    pub(super) fn fell_silent(&mut self, id: usize, now: Instant) {
        if self.stations[id].is_busy() {
            return;
        }
        self.stations[id].idle_since = now;
        if self.stations[id].phase == Phase::Awaiting && self.stations[id].not_before <= now {
            self.missed(id, now);
        }
        if self.stations[id].phase == Phase::Contending {
            self.schedule(id, now);
        }
    }

    /// Sets the expiry of the back-off, where there is one or a frame waits.
    pub(super) fn schedule(&mut self, id: usize, now: Instant) {
        let station = &mut self.stations[id];
        station.token = station.token.wrapping_add(1);
        if station.slots.is_none() && self.queues[id].is_empty() {
            return;
        }
        let event = Event::Expiry { station: id as u32, token: station.token };
        let at = station.expiry(&self.timing, now);
        self.events.push(Reverse((at, event)));
    }
}
