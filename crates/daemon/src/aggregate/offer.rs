//! Whether the host at a next hop takes format 2 apart.
//!
//! Principle: an offer is a probe in format 2, which only a host that takes it apart replies to.
//! Offers begin once the host has shown that it splits at all; from the first reply on frames to it
//! are of format 2, and so are its probes ([`super::life`]), so that they notice when it takes that
//! no more. Offers that nobody replies to become rare.
//!
//! This is a state machine without I/O, as `life` is.

use sheaf_stage::{Duration, Instant};

/// Pause after the first offer in vain; each is twice the one before. A lost one costs a call a few
/// seconds in the plainer format.
const FIRST: Duration = Duration::from_secs(2);
/// The longest pause. A host that is upgraded starts again, which begins the offers anew.
const LONGEST: Duration = Duration::from_secs(600);

/// What a reply bears: sequence number and cookie of the probe.
type Mark = (u16, u64);

/// The state of one host.
#[derive(Clone, Debug)]
pub struct Offer {
    accepted: bool,
    next: Instant,
    pause: Duration,
    awaited: Option<Mark>,
}

impl Offer {
    /// A host to which nothing was offered at `now`.
    pub fn new(now: Instant) -> Offer {
        Offer { accepted: false, next: now, pause: FIRST, awaited: None }
    }

    /// Whether it replied to an offer.
    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Time of the next offer; `Instant::MAX` for never.
    pub fn deadline(&self) -> Instant {
        if self.accepted { Instant::MAX } else { self.next }
    }

    /// An offer left at `now`, or could not.
    pub fn offered(&mut self, mark: Option<Mark>, now: Instant) {
        self.awaited = mark.or(self.awaited);
        self.next = now + self.pause;
        self.pause = LONGEST.min(self.pause * 2);
    }

    /// A reply came; returns whether it is to the last offer.
    pub fn replied(&mut self, mark: Mark) -> bool {
        let ours = self.awaited == Some(mark);
        self.accepted |= ours;
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_the_last_offer_accepts_it_and_offers_in_vain_become_rare() {
        let mut offer = Offer::new(Instant::ZERO);
        let mut count = 0;
        while offer.deadline() < Instant::ZERO + Duration::from_secs(3600) {
            count += 1;
            offer.offered(Some((count, 7)), offer.deadline());
        }
        assert!((10..=16).contains(&count), "{count} offers in an hour");
        // Forged, and late.
        assert!(!offer.replied((count, 8)) && !offer.replied((1, 7)) && !offer.is_accepted());
        // One that could not leave takes nothing back.
        offer.offered(None, offer.deadline());
        assert!(offer.replied((count, 7)) && offer.is_accepted());
        assert_eq!(offer.deadline(), Instant::MAX);
    }
}
