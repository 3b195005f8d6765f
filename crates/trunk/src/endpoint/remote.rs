//! The address of a link's other end: given by the owner, or learned from frames that prove that
//! they are the other end's.
//!
//! An address is learned only from a hello or report that was accepted. These carry the session, a
//! random number of 64 bits that only the two ends know, so the other end may sit behind a NAT that
//! changes its mapping, and nobody else can draw the link's frames to an address. Data frames and
//! markers carry 8 bits of it, which can be guessed: from another address they are refused unread.

use core::fmt;

/// A carrier's name for the place that a frame came from or goes to: a socket address, a MAC
/// address. It is compared and handed back, nothing else.
pub trait Address: Copy + Eq + fmt::Debug {}

impl<A: Copy + Eq + fmt::Debug> Address for A {}

/// The other end of a link, as far as its address is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote<A> {
    /// The carrier reaches one host only. Addresses of frames are not looked at.
    #[default]
    Only,
    /// The owner gives the address, `None` until it has found it.
    Fixed(Option<A>),
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
    /// The address, where one is known.
    pub fn address(&self) -> Option<A> {
        match *self {
            Remote::Only => None,
            Remote::Fixed(address) | Remote::Learned(address) => address,
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
            (Remote::Learned(_), Some(from)) => Origin::Candidate(from),
            _ => Origin::Stranger,
        }
    }
}
