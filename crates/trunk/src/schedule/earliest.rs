//! Earliest delivery: the link on which this packet would arrive first.
//!
//! Arrival is (bytes that wait for the link + this packet) / rate + the queue in the link + one-way
//! delay, all measured. One-way delays are compared through the receiver's clock, whose offset is
//! the same for all links and so cancels. Links fill in the order of their delay, and once all
//! have a backlog packets arrive in the order they were sent: the receiver has little to sort.
//!
//! A link that would deliver much later than the first one is no alternative when that is full: the
//! packet is dropped, as a single link would. The receiver does not wait for what is so late, and
//! TCP takes each of these packets for lost, long after the queue overflowed.
//!
//! In the manner of ECF ("ECF: An MPTCP Path Scheduler", CoNEXT 2017): a slow link stays idle as
//! long as waiting for the fast one is quicker.

use super::Candidates;
use sheaf_stage::Duration;

/// Time behind the first link beyond which another one is too late: as long as packets may wait for
/// a quick link because others are slower (`MOST_SPREAD`), and as long as its queue is.
pub(crate) const TOO_LATE: Duration = Duration::from_millis(100);

pub(super) fn pick(links: &Candidates) -> Option<usize> {
    let usable = || links.iter().enumerate().filter(|(_, link)| link.usable);
    let first = usable().map(|(_, link)| link.arrival).min()?;
    let in_time = usable().filter(|(_, link)| link.arrival <= first.saturating_add(TOO_LATE));
    let with_room = in_time.filter(|(_, link)| link.room);
    with_room.min_by_key(|(_, link)| link.arrival).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Candidate;
    use sheaf_stage::Duration;

    #[test]
    fn a_slow_link_stays_idle_while_waiting_for_the_fast_one_is_quicker() {
        let mut links = Candidates::default();
        let arrival = Duration::from_millis(30);
        links[0] = Candidate { usable: true, room: true, busy: true, arrival };
        let arrival = Duration::from_millis(50);
        links[1] = Candidate { usable: true, room: true, busy: false, arrival };
        assert_eq!(pick(&links), Some(0));
        links[0].arrival = Duration::from_millis(51);
        assert_eq!(pick(&links), Some(1));
        links[1].room = false;
        assert_eq!(pick(&links), Some(0), "a link with room is better than none");
        links[1].room = true;
        (links[0].room, links[1].arrival) = (false, Duration::from_millis(151));
        assert_eq!(pick(&links), Some(1));
        links[1].arrival = Duration::from_millis(152);
        assert_eq!(pick(&links), None, "too late");
        links[0].usable = false;
        assert_eq!(pick(&links), Some(1));
    }
}
