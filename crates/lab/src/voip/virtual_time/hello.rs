//! Loss of routes as under AODV: a route over a neighbour lasts while its HELLO messages are heard
//! (RFC 3561, section 6.9).
//!
//! Left out, because it is over in less than one interval: error messages and the discovery of a
//! lost route. A route is back with the next HELLO.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Duration, Instant};

/// Time between two HELLO messages (RFC 3561: `HELLO_INTERVAL`).
const INTERVAL: Duration = Duration::from_secs(1);
/// HELLO messages in a row that take a route away when they are lost: AODV-UU's, as the thesis
/// says.
const LOST: u32 = 5;
/// Slack beyond the intervals, so that a message that waited in a queue still counts.
const SLACK: Duration = Duration::from_millis(500);
/// The port of AODV (RFC 3561, section 11).
const PORT: u16 = 654;
/// Bytes of a route reply, the form of a HELLO (RFC 3561, section 5.2).
const REPLY: usize = 20;

/// The HELLO messages of one host and its neighbours.
pub(super) struct Hellos {
    next: Instant,
    /// For each host, the time of its last HELLO; `None` for those that are not neighbours.
    heard: Vec<Option<Instant>>,
    /// Share of the messages of others that is lost besides collisions, 0..1.
    loss: f64,
    rng: Xoshiro256PlusPlus,
}

impl Hellos {
    /// The messages of host `index`, which does not hear a share of `loss` of others'; which ones
    /// follows from `seed`. All its neighbours have just been heard.
    pub fn new(
        index: usize,
        is_neighbour: impl Iterator<Item = bool>,
        loss: f64,
        seed: u64,
    ) -> Hellos {
        let heard: Vec<_> = is_neighbour.map(|is| is.then_some(Instant::ZERO)).collect();
        // Hosts were not started at the same time.
        let first = INTERVAL * index as u32 / heard.len() as u32;
        // Each host hears on its own.
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (index as u64) << 32);
        Hellos { next: Instant::ZERO + first, heard, loss, rng }
    }

    /// The time of its next HELLO.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Whether a HELLO is due; it counts as sent.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next <= now;
        if due {
            self.next += INTERVAL;
        }
        due
    }

    /// A HELLO of host `from` has arrived. Those of strangers are ignored.
    pub fn arrived(&mut self, from: usize, now: Instant) {
        let is_lost = self.rng.random::<f64>() < self.loss;
        if let Some(Some(heard)) = self.heard.get_mut(from).filter(|_| !is_lost) {
            *heard = now;
        }
    }

    /// Whether there is a route over host `neighbour`.
    pub fn has_route(&self, neighbour: usize, now: Instant) -> bool {
        self.heard[neighbour].is_some_and(|heard| now < heard + INTERVAL * LOST + SLACK)
    }
}

/// The HELLO of the host with address `from`.
pub(super) fn message(from: [u8; 4]) -> Vec<u8> {
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4(from, [255; 4], 1)
        .udp(PORT, PORT)
        .write(&mut packet, &[0; REPLY])
        .expect("a HELLO fits");
    packet
}

/// The address of the host whose HELLO `packet` is; `None` for other packets.
pub(super) fn sender(packet: &[u8]) -> Option<[u8; 4]> {
    let addresses = packet.get(12..20)?;
    (addresses[4..] == [255; 4]).then(|| addresses[..4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_lost_after_five_silent_intervals_and_back_with_the_next_message() {
        let mut hellos = Hellos::new(0, [false, true, false].into_iter(), 0.0, 1);
        let at = Instant::from_millis;
        hellos.arrived(1, at(1_000));
        hellos.arrived(2, at(1_000));
        assert!(hellos.has_route(1, at(6_499)), "the fifth is late at most");
        assert!(!hellos.has_route(1, at(6_500)));
        assert!(!hellos.has_route(2, at(1_001)), "a stranger is not a neighbour");
        hellos.arrived(1, at(9_000));
        assert!(hellos.has_route(1, at(9_001)));
    }

    #[test]
    fn without_a_route_is_the_time_after_five_lost_messages_in_a_row() {
        let mut hellos = Hellos::new(0, [false, true].into_iter(), 0.5, 1);
        let seconds = 100_000u64;
        let without = (1..seconds).filter(|second| {
            let at = |millis: u64| Instant::from_millis(second * 1000 + millis);
            hellos.arrived(1, at(0));
            !hellos.has_route(1, at(600))
        });
        // The slack is over after 600 ms of a second; each message is lost on its own.
        let share = without.count() as f64 / seconds as f64;
        assert!((share - libm::pow(0.5, 5.0)).abs() < 0.003, "{share}");
    }

    #[test]
    fn a_message_is_due_every_second() {
        let mut hellos = Hellos::new(1, [true, false].into_iter(), 0.0, 1);
        assert_eq!(hellos.next(), Instant::from_millis(500));
        let due = (0..40).filter(|tenth| hellos.is_due(Instant::from_millis(tenth * 100))).count();
        assert_eq!(due, 4);
    }
}
