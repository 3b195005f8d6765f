//! The reaction of stations to frames: responses, retries, the end of an exchange (IEEE
//! 802.11-2020, 10.3.2 and 10.3.4).

use super::{Event, Kind, Medium, OnAir};
use crate::config::Link;
use crate::frame::{Receivers, Transmission};
use crate::phy::ACK_BYTES;
use crate::station::Phase;
use rand::RngExt;
use sheaf_stage::{DropReason, Duration, Instant};
use std::cmp::Reverse;

impl<P: Clone> Medium<P> {
    /// Draws whether a frame of `bytes` comes through the bit errors and losses of the link.
    pub(super) fn survives(&mut self, from: usize, to: usize, bytes: u32) -> bool {
        let Link { ber, loss, .. } = self.links[from][to];
        // A perfect link draws nothing, so that its back-offs do not depend on this feature.
        let whole = || (1.0 - loss) * libm::pow(1.0 - ber, f64::from(bytes) * 8.0);
        (ber == 0.0 && loss == 0.0) || self.rng.random::<f64>() < whole()
    }

    /// `id` has received a frame whole.
    pub(super) fn received(&mut self, air: &OnAir, id: usize, now: Instant) {
        if air.to.is_some_and(|to| to != id) {
            return self.stations[id].reserve(now, air.reserves);
        }
        let phy = self.phy;
        let response_rate = self.config.response_rate(air.rate);
        let mut after_sifs = |kind: u8, rate, reserves| {
            let (station, to) = (id as u32, air.from as u32);
            let event = Event::Respond { station, to, kind, rate, reserves };
            self.events.push(Reverse((now + phy.sifs(), event)));
        };
        match air.kind {
            Kind::Data => {
                if air.to.is_some() {
                    after_sifs(0, air.rate, Duration::ZERO);
                }
                let entry = self.queues[air.from].front_mut().expect("its sender still has it");
                entry.receivers.insert(id);
            }
            Kind::Rts if self.stations[id].reserved_until <= now => {
                let cts = phy.frame_time(response_rate, ACK_BYTES);
                after_sifs(1, air.rate, air.reserves.saturating_sub(phy.sifs() + cts));
            }
            Kind::Rts => {}
            Kind::Cts if self.stations[id].phase == Phase::Awaiting => {
                self.stations[id].phase = Phase::Sending;
                self.stations[id].token = self.stations[id].token.wrapping_add(1);
                after_sifs(2, air.rate, Duration::ZERO);
            }
            Kind::Ack if self.stations[id].phase == Phase::Awaiting => self.finish(id, Ok(()), now),
            Kind::Cts | Kind::Ack => {}
        }
    }

    /// `air.from` has sent a frame: waits for the response, or is done.
    pub(super) fn sent(&mut self, air: &OnAir, now: Instant) {
        match (air.kind, air.to) {
            (Kind::Data | Kind::Rts, None) => {
                let entry = self.queues[air.from].front().expect("its sender still has it");
                let heard = entry.receivers != Receivers::default();
                let result = if heard { Ok(()) } else { Err(DropReason::Unreachable) };
                self.finish(air.from, result, now);
            }
            (Kind::Data | Kind::Rts, Some(_)) => {
                let station = &mut self.stations[air.from];
                station.phase = Phase::Awaiting;
                station.token = station.token.wrapping_add(1);
                station.not_before = now + self.phy.response_timeout();
                let event = Event::Timeout { station: air.from as u32, token: station.token };
                self.events.push(Reverse((station.not_before, event)));
            }
            (Kind::Ack | Kind::Cts, _) => {}
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

    /// The response did not arrive: makes another attempt, or gives the frame up.
    pub(super) fn missed(&mut self, id: usize, now: Instant) {
        if self.stations[id].attempts >= self.config.retry_limit {
            let entry = self.queues[id].front().expect("an attempt has a frame");
            let heard = entry.receivers != Receivers::default();
            // It may have arrived, and only its acknowledgements have not.
            let result = if heard { Ok(()) } else { Err(DropReason::RetryLimit) };
            self.finish(id, result, now);
        } else {
            let cw_max = self.config.cw_max;
            self.stations[id].phase = Phase::Contending;
            self.stations[id].failed(cw_max, &mut self.rng);
        }
    }

    /// The first frame of `id` leaves its queue.
    pub(super) fn finish(&mut self, id: usize, result: Result<(), DropReason>, now: Instant) {
        let retries = self.stations[id].attempts.saturating_sub(1);
        let entry = self.queues[id].pop_front().expect("a frame is finished once");
        match result {
            Ok(()) => self.counters.packets_out += 1,
            Err(reason) => {
                self.stats[id].lost += 1;
                self.counters.drop(reason);
            }
        }
        self.done.push_back(Transmission {
            frame: entry.frame,
            receivers: entry.receivers,
            result,
            started: entry.started.unwrap_or(now),
            ended: now,
            retries,
        });
        self.stations[id].phase = Phase::Contending;
        self.stations[id].renew(self.phy, &mut self.rng);
        self.stations[id].token = self.stations[id].token.wrapping_add(1);
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
        let at = station.expiry(self.phy, now);
        self.events.push(Reverse((at, event)));
    }
}
