//! Redundant: a copy on every link that has room; the receiver drops the duplicates.
//!
//! A packet is lost only when it is lost everywhere, and arrives as early as on the quickest link:
//! worth its rate for voice. Source: the wish of users of bonding programs; IEEE 802.1CB does the
//! same for frames.

use super::Candidates;

pub(super) fn pick(links: &Candidates) -> u16 {
    let with_room = links.iter().enumerate().filter(|(_, link)| link.usable && link.room);
    with_room.fold(0, |bits, (index, _)| bits | 1 << index)
}
