//! Whether packets to groups may share frames on one interface.
//!
//! Principle: a frame to a group reaches all who hear it, and whoever cannot take it apart loses
//! what is in it. A probe asks one host, not all of them. So the last word of every neighbour
//! counts that was heard within the last minute: each says that it takes such frames apart, and
//! there is at least one. A neighbour that says otherwise or says goodbye, or whose HELLO cannot be
//! read, ends the sharing immediately, and so do HELLOs that were dropped unread.
//!
//! This is a state machine without I/O, as `life` is. What it remembers is bounded, whoever makes
//! neighbours up.

use sheaf_neighbour::LinkAddress;
use sheaf_netio::ip;
use sheaf_stage::{Duration, Instant};
use std::collections::BTreeMap;
use std::fmt;

/// Time for which a neighbour's last word counts. At rest HELLOs come every few seconds, so many
/// are lost before somebody who is there is forgotten.
pub const MEMORY: Duration = Duration::from_secs(60);

/// Neighbours that take no frames to groups and are remembered. One is enough to say why; more are
/// there so that each can take its word back.
const MOST: usize = 64;

/// Reason for which packets to groups leave as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No neighbour that takes such frames was heard.
    Nobody,
    /// This one was heard, and takes none.
    Cannot(LinkAddress),
    /// HELLOs were dropped before anybody heard them, or more neighbours take none than are
    /// remembered.
    Unheard,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Nobody => f.write_str("no neighbour says that it takes their frames"),
            Reason::Cannot(one) => write!(f, "{} takes no frames of groups", ip::mac_text(*one)),
            Reason::Unheard => f.write_str("HELLOs come faster than they are heard"),
        }
    }
}

/// The words of the neighbours.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Time of the last HELLO of a neighbour that takes frames to groups.
    able: Option<Instant>,
    /// The neighbours whose last word was that they take none, and when they said so.
    unable: BTreeMap<LinkAddress, Instant>,
    /// Time at which last a word was missed.
    missed: Option<Instant>,
}

impl Group {
    /// A neighbour was heard at `now`, which takes frames to groups if it is `able`.
    pub fn heard(&mut self, from: LinkAddress, able: bool, now: Instant) {
        if able {
            self.able = Some(now);
            self.unable.remove(&from);
            return;
        }
        if self.unable.len() >= MOST {
            self.forget(now);
        }
        if self.unable.len() < MOST || self.unable.contains_key(&from) {
            self.unable.insert(from, now);
        } else {
            self.missed = Some(now);
        }
    }

    /// HELLOs were dropped before they were heard, up to `now`.
    pub fn missed(&mut self, now: Instant) {
        self.missed = Some(now);
    }

    /// Whether packets to groups may share frames at `now`; else why not.
    pub fn may_share(&mut self, now: Instant) -> Result<(), Reason> {
        self.forget(now);
        if let Some((one, _)) = self.unable.first_key_value() {
            return Err(Reason::Cannot(*one));
        }
        let counts = |time: Option<Instant>| time.is_some_and(|time| is_fresh(time, now));
        if counts(self.missed) {
            return Err(Reason::Unheard);
        }
        if counts(self.able) { Ok(()) } else { Err(Reason::Nobody) }
    }

    fn forget(&mut self, now: Instant) {
        self.unable.retain(|_, time| is_fresh(*time, now));
    }
}

/// Whether what was said at `time` counts at `now`.
fn is_fresh(time: Instant, now: Instant) -> bool {
    now.saturating_since(time) < MEMORY
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LinkAddress = [2, 0, 0, 0, 0, 1];
    const B: LinkAddress = [2, 0, 0, 0, 0, 2];

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    fn address(number: u32) -> LinkAddress {
        let [a, b, c, d] = number.to_be_bytes();
        [6, 0, a, b, c, d]
    }

    #[test]
    fn frames_are_shared_from_the_first_word_of_one_who_takes_them_until_a_minute_after_the_last() {
        let mut group = Group::default();
        assert_eq!(group.may_share(at(0)), Err(Reason::Nobody));
        group.heard(A, true, at(1));
        assert_eq!(group.may_share(at(1)), Ok(()));
        group.heard(A, true, at(5_000));
        assert_eq!(group.may_share(at(64_999)), Ok(()));
        assert_eq!(group.may_share(at(65_000)), Err(Reason::Nobody));
    }

    #[test]
    fn one_who_cannot_ends_it_at_once_and_until_it_says_otherwise_or_is_silent_for_a_minute() {
        let mut group = Group::default();
        group.heard(A, true, at(0));
        group.heard(B, false, at(10));
        assert_eq!(group.may_share(at(10)), Err(Reason::Cannot(B)));
        // Nobody speaks for another.
        group.heard(A, true, at(50_000));
        assert_eq!(group.may_share(at(60_009)), Err(Reason::Cannot(B)));
        assert_eq!(group.may_share(at(60_010)), Ok(()));
        group.heard(B, false, at(61_000));
        group.heard(B, true, at(61_500));
        assert_eq!(group.may_share(at(61_500)), Ok(()));
    }

    #[test]
    fn the_only_one_who_could_and_cannot_any_more_leaves_nobody() {
        let mut group = Group::default();
        group.heard(A, true, at(0));
        group.heard(A, false, at(1));
        assert_eq!(group.may_share(at(1)), Err(Reason::Cannot(A)));
        assert_eq!(group.may_share(at(60_001)), Err(Reason::Nobody));
    }

    #[test]
    fn what_nobody_could_hear_may_have_been_the_word_of_one_who_cannot() {
        let mut group = Group::default();
        group.heard(A, true, at(0));
        group.missed(at(5));
        assert_eq!(group.may_share(at(5)), Err(Reason::Unheard));
        group.heard(A, true, at(59_000));
        assert_eq!(group.may_share(at(60_004)), Err(Reason::Unheard));
        assert_eq!(group.may_share(at(60_005)), Ok(()));
    }

    #[test]
    fn of_made_up_neighbours_a_bounded_number_is_remembered_and_none_beyond_is_taken_for_able() {
        let mut group = Group::default();
        for number in 0..100_000 {
            group.heard(address(number), false, at(u64::from(number) / 100));
            assert!(group.may_share(at(u64::from(number) / 100)).is_err());
        }
        assert!(group.unable.len() <= MOST);
        // All that is remembered say that they can; the others have not.
        (0..MOST as u32).for_each(|one| group.heard(address(one), true, at(1_000)));
        assert!(group.unable.is_empty());
        assert_eq!(group.may_share(at(1_000)), Err(Reason::Unheard));
        group.heard(A, true, at(61_000));
        assert_eq!(group.may_share(at(61_000)), Ok(()));
    }
}
