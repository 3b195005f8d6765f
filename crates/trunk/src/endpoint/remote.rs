//! The address of a link's other end: given by the owner, or learned from frames that prove that
//! they are the other end's.
//!
//! An address is learned only from a hello or report that was accepted. These carry the session, a
//! random number of 64 bits that only the two ends know, so the other end may sit behind a NAT that
//! changes its mapping, and nobody else can draw the link's frames to an address. A recorded one
//! does not, either: a hello has to echo a challenge that was sent to the new address, a report has
//! to be newer than those before. Data frames and markers carry 8 bits of the session, which can be
//! guessed: from another address they are refused unread.

use core::fmt;
use std::hash::Hash;

/// A carrier's name for the place that a frame came from or goes to: a socket address, a MAC
/// address. It is compared and handed back, nothing else.
pub trait Address: Copy + Eq + Hash + fmt::Debug {}

impl<A: Copy + Eq + Hash + fmt::Debug> Address for A {}

/// The other end of a link, as far as its address is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote<A> {
    /// The carrier reaches one host only. Addresses of frames are not looked at.
    #[default]
    Only,
    /// The owner gives the address, `None` until it has found it. Frames from elsewhere are not
    /// looked at.
    Fixed(Option<A>),
    /// The owner gives the address where the other end starts. It may move, as the learned one
    /// does; when the link is down it is looked for where it started.
    Roaming {
        /// Where it starts. A new session is accepted from there only.
        home: A,
        /// Where it is.
        at: A,
    },
    /// The address of the last hello or report that was accepted, `None` before the first one.
    Learned(Option<A>),
}

/// The possible sender of a frame, judged by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin<A> {
    /// The other end, at the address that is known.
    Peer,
    /// The other end at a new address, or somebody else: the frame has to prove it.
    Candidate(A),
    /// Somebody else.
    Stranger,
}

impl<A: Address> Remote<A> {
    /// The other end starts at `home`, and may move.
    pub fn roaming(home: A) -> Remote<A> {
        Remote::Roaming { home, at: home }
    }

    /// Whether the owner's part of both is the same.
    pub(super) fn is_same_setting(&self, other: &Remote<A>) -> bool {
        match (self, other) {
            (Remote::Roaming { home, .. }, Remote::Roaming { home: other, .. }) => home == other,
            _ => self == other,
        }
    }

    /// Notes that the other end is at `address`.
    pub(super) fn move_to(&mut self, address: A) {
        match self {
            Remote::Only | Remote::Fixed(_) => {}
            Remote::Roaming { at, .. } => *at = address,
            Remote::Learned(at) => *at = Some(address),
        }
    }

    /// Looks for the other end where it started. A learned address stays: there is no other.
    pub(super) fn go_home(&mut self) {
        if let Remote::Roaming { home, at } = self {
            *at = *home;
        }
    }

    /// Whether a new session may come from `candidate`.
    pub(super) fn takes_sessions_from(&self, candidate: A) -> bool {
        !matches!(self, Remote::Roaming { home, .. } if *home != candidate)
    }

    /// The name of the place that a frame came from, for challenges.
    pub(super) fn place(&self, from: Option<A>) -> Option<A> {
        from.filter(|_| !matches!(self, Remote::Only))
    }

    /// The address, where one is known.
    pub fn address(&self) -> Option<A> {
        match *self {
            Remote::Only => None,
            Remote::Fixed(address) | Remote::Learned(address) => address,
            Remote::Roaming { at, .. } => Some(at),
        }
    }

    /// Whether frames can be sent.
    pub(super) fn is_reachable(&self) -> bool {
        matches!(self, Remote::Only) || self.address().is_some()
    }

    /// Judges a frame that came from `from`; `None` when the carrier has no usable address of it,
    /// as for a broadcast.
    pub(super) fn origin(&self, from: Option<A>) -> Origin<A> {
        match (*self, from) {
            (Remote::Only, _) => Origin::Peer,
            (Remote::Fixed(known) | Remote::Learned(known), Some(_)) if known == from => {
                Origin::Peer
            }
            (Remote::Roaming { at, .. }, Some(from)) if at == from => Origin::Peer,
            (Remote::Learned(_) | Remote::Roaming { .. }, Some(from)) => Origin::Candidate(from),
            _ => Origin::Stranger,
        }
    }
}
