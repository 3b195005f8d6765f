//! Links that share a carrier, as the socket of a server: each frame says whose it is, and is
//! believed only as far as it proves that it is the other end's.

use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{
    DeliveryMode, Endpoint, EndpointConfig, Key, LinkConfig, LinkId, Received, Refusal, Remote,
    Transmit,
};
use sheaf_wire::ip::example_udp;
use std::ops::Range;

const SERVER: u8 = 100;
const STRANGER: u8 = 66;
const MS: Duration = Duration::from_millis(1);
/// Links of each trunk; at the server the last has a carrier of its own.
const LINKS: u8 = 3;
/// Bytes of a data frame, sealed or not: longer than any report, shorter than a packet train's.
const DATA: Range<usize> = 400..500;
/// Where the client's links are at first: it has a carrier for each.
const AT: [u8; LINKS as usize] = [10, 11, 12];

fn end(session: u64, keyed: bool, remote: Remote<u8>) -> Endpoint<u8> {
    let config = EndpointConfig::default();
    let end = match keyed {
        true => Endpoint::with_key(config, session, Key::new([7; 32])),
        false => Endpoint::new(config, session),
    };
    let mut end = end.unwrap();
    for _ in 0..LINKS {
        let id = end.add_link(LinkConfig::default()).unwrap();
        end.set_remote(id, remote);
    }
    end
}

/// A client and its server, joined without delay.
struct Pair {
    client: Endpoint<u8>,
    server: Endpoint<u8>,
    now: Instant,
    /// Where the client's links are.
    at: [u8; LINKS as usize],
    /// Links of the client whose frames are lost.
    cut: Vec<u8>,
    /// Packets that the server handed up.
    delivered: u64,
    /// The last data frame of the client's on each link.
    last: [Vec<u8>; LINKS as usize],
}

impl Pair {
    fn new(keyed: bool) -> Pair {
        let mut server = end(2, keyed, Remote::Learned(None));
        server.share_carrier(LinkId(1), LinkId(0));
        let mut pair = Pair {
            client: end(1, keyed, Remote::roaming(SERVER)),
            server,
            now: Instant::ZERO,
            at: AT,
            cut: Vec::new(),
            delivered: 0,
            last: Default::default(),
        };
        pair.run(500 * MS);
        pair
    }

    /// The link under whose number the server is handed what comes on `link`.
    fn carrier(link: LinkId) -> LinkId {
        if link == LinkId(1) { LinkId(0) } else { link }
    }

    /// Lets both talk for `time`; the client sends a packet on each link every millisecond.
    fn run(&mut self, time: Duration) {
        let (end, mut frame) = (self.now + time, Vec::new());
        while self.now < end {
            self.now += MS;
            let packet = example_udp(&[5; 400]);
            let _ = self.client.handle_packet(&packet, DeliveryMode::Copies, self.now);
            loop {
                let out = self.client.poll_transmit(self.now, &mut frame);
                if let Some(Transmit { link, to }) = out {
                    assert_eq!(to, Some(SERVER));
                    if DATA.contains(&frame.len()) {
                        self.last[usize::from(link.0)].clone_from(&frame);
                    }
                    if !self.cut.contains(&link.0) {
                        let from = Some(self.at[usize::from(link.0)]);
                        self.server.handle_frame(Pair::carrier(link), from, &frame, self.now);
                    }
                }
                let back = self.server.poll_transmit(self.now, &mut frame);
                if let Some(Transmit { link, to }) = back {
                    // It arrives by whichever of the client's carriers is there.
                    let at = self.at.iter().position(|at| Some(*at) == to);
                    if let Some(at) = at.filter(|at| !self.cut.contains(&(*at as u8))) {
                        assert_eq!(Pair::carrier(link), Pair::carrier(LinkId(at as u8)));
                        let at = LinkId(at as u8);
                        self.client.handle_frame(at, Some(SERVER), &frame, self.now);
                    }
                }
                if out.is_none() && back.is_none() {
                    break;
                }
            }
            while self.server.poll_deliver(self.now).is_some() {
                self.delivered += 1;
            }
        }
    }

    fn remotes(&self) -> [Option<u8>; LINKS as usize] {
        [0, 1, 2].map(|link| self.server.remote(LinkId(link)))
    }

    fn up(&self, end: &Endpoint<u8>) -> [bool; LINKS as usize] {
        [0, 1, 2].map(|link| end.link_stats(LinkId(link), self.now).unwrap().up)
    }
}

#[test]
fn links_of_one_carrier_come_up_carry_and_fail_each_by_itself() {
    for keyed in [false, true] {
        let mut pair = Pair::new(keyed);
        assert_eq!(pair.remotes(), AT.map(Some), "keyed {keyed}");
        assert_eq!((pair.up(&pair.client), pair.up(&pair.server)), ([true; 3], [true; 3]));
        let before = pair.delivered;
        pair.run(1000 * MS);
        assert!(pair.delivered - before > 990, "{}", pair.delivered - before);
        for link in 0..LINKS {
            let received = pair.server.link_received(LinkId(link)).unwrap();
            assert!(received.frames > 20 && received.strangers == 0, "{link}: {received:?}");
        }
        pair.cut = vec![1];
        pair.run(1000 * MS);
        assert_eq!(pair.up(&pair.server), [true, false, true], "keyed {keyed}");
        let before = pair.delivered;
        pair.run(1000 * MS);
        assert!(pair.delivered - before > 990, "{}", pair.delivered - before);
        pair.cut = vec![];
        pair.run(2000 * MS);
        assert_eq!(pair.up(&pair.server), [true; 3], "keyed {keyed}");
        assert_eq!(pair.server.stats().sessions, 1);
    }
}

#[test]
fn a_link_that_moves_leaves_the_others_of_its_carrier_where_they_are() {
    for keyed in [false, true] {
        let mut pair = Pair::new(keyed);
        pair.at[1] = 55;
        pair.run(1000 * MS);
        assert_eq!(pair.remotes(), [Some(10), Some(55), Some(12)], "keyed {keyed}");
        assert_eq!(pair.up(&pair.server), [true; 3], "keyed {keyed}");
        assert_eq!(pair.server.link_received(LinkId(0)).unwrap().moves, 1);
        assert_eq!(pair.server.link_received(LinkId(1)).unwrap().moves, 2);
    }
}

#[test]
fn a_frame_of_a_link_of_another_carrier_is_refused_counted_and_changes_nothing() {
    for keyed in [false, true] {
        let mut pair = Pair::new(keyed);
        // The next frame of the last link is led to the carrier of the others.
        pair.cut = vec![2];
        pair.run(300 * MS);
        let frame = pair.last[2].clone();
        let before: Vec<_> = (0..LINKS).map(|id| pair.server.link_received(LinkId(id))).collect();
        let received = pair.server.handle_frame(LinkId(0), Some(AT[0]), &frame, pair.now);
        assert_eq!(received, Received::Refused(Refusal::OtherLink), "keyed {keyed}");
        assert_eq!(pair.server.stats().other_link, 1);
        assert_eq!(pair.remotes(), AT.map(Some));
        let after: Vec<_> = (0..LINKS).map(|id| pair.server.link_received(LinkId(id))).collect();
        assert_eq!(after, before);
    }
}

#[test]
fn data_that_a_stranger_sends_again_from_its_own_address_teaches_nothing() {
    for keyed in [false, true] {
        let mut pair = Pair::new(keyed);
        let refusal = if keyed { Refusal::Replayed } else { Refusal::Stranger };
        for link in 0..LINKS {
            let frame = pair.last[usize::from(link)].clone();
            let carrier = Pair::carrier(LinkId(link));
            let received = pair.server.handle_frame(carrier, Some(STRANGER), &frame, pair.now);
            assert_eq!(received, Received::Refused(refusal), "keyed {keyed}");
        }
        assert_eq!(pair.remotes(), AT.map(Some), "keyed {keyed}");
    }
}

#[test]
fn without_a_key_data_counts_only_from_the_address_of_the_link_that_it_names() {
    let mut pair = Pair::new(false);
    pair.cut = vec![1];
    pair.run(100 * MS);
    let data = pair.last[1].clone();
    let before = pair.server.link_received(LinkId(1)).unwrap().frames;
    let received = pair.server.handle_frame(LinkId(0), Some(AT[0]), &data, pair.now);
    assert_eq!(received, Received::Refused(Refusal::Stranger));
    let after = pair.server.link_received(LinkId(1)).unwrap();
    assert_eq!((after.frames, after.strangers), (before, 1));
    let received = pair.server.handle_frame(LinkId(0), Some(AT[1]), &data, pair.now);
    // It may have been sent again on another link meanwhile.
    assert!(!matches!(received, Received::Refused(_)), "{received:?}");
    assert_eq!(pair.server.link_received(LinkId(1)).unwrap().frames, before + 1);
}
