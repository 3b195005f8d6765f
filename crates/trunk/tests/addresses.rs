//! The address of a link's other end: learned from frames that prove it, and from nothing else.

use proptest::prelude::*;
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{
    DeliveryMode, Endpoint, EndpointConfig, FrameKind, LinkConfig, LinkId, Received, Refusal,
    Remote, Transmit,
};
use sheaf_wire::ip::example_udp;
use sheaf_wire::trunk::{
    self as wire, Challenge, Control, Frame, Hello, Packing, Predecessor, Report, Repr, push, tag,
};

/// The addresses of the client, of the server, and of the client behind another NAT mapping.
const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const MOVED: u8 = 3;
const STRANGER: u8 = 66;
const LINK: LinkId = LinkId(0);
const NOW: Instant = Instant::ZERO;

/// The sessions of the two ends.
const CLIENT_SESSION: u64 = 0x1111_1111_1111_1111;
const SERVER_SESSION: u64 = 0x2222_2222_2222_2222;

fn end(session: u64, remote: Remote<u8>) -> Endpoint<u8> {
    let mut end = Endpoint::new(EndpointConfig::default(), session).unwrap();
    assert_eq!(end.add_link(LinkConfig::default()), Ok(LINK));
    end.set_remote(LINK, remote);
    end
}

/// The end that has to learn where the other one is.
fn server() -> Endpoint<u8> {
    end(SERVER_SESSION, Remote::Learned(None))
}

/// The end that was given the server's address.
fn client(session: u64) -> Endpoint<u8> {
    end(session, Remote::Fixed(Some(SERVER)))
}

/// Lets the two talk until both are silent; frames to other addresses are returned.
fn talk(client: &mut Endpoint<u8>, at: u8, server: &mut Endpoint<u8>, now: Instant) -> Vec<u8> {
    let (mut frame, mut elsewhere) = (Vec::new(), Vec::new());
    loop {
        let mut silent = true;
        while let Some(Transmit { link, to }) = client.poll_transmit(now, &mut frame) {
            assert_eq!(to, Some(SERVER));
            server.handle_frame(link, Some(at), &frame, now);
            silent = false;
        }
        while let Some(Transmit { link, to }) = server.poll_transmit(now, &mut frame) {
            match to.expect("the server's links have addresses") {
                to if to == at => drop(client.handle_frame(link, Some(SERVER), &frame, now)),
                other => elsewhere.push(other),
            }
            silent = false;
        }
        if silent {
            return elsewhere;
        }
    }
}

/// A client and a server that have found each other.
fn pair() -> (Endpoint<u8>, Endpoint<u8>) {
    let (mut client, mut server) = (client(CLIENT_SESSION), server());
    assert!(talk(&mut client, CLIENT, &mut server, NOW).is_empty());
    assert!(client.is_established() && server.is_established());
    (client, server)
}

fn control(session: u64) -> Control {
    Control { link: 0, next_seq: 0, link_seq: 9, session, pause: 0 }
}

fn hello(session: u64, peer: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    let (control, answer) = (control(session), false);
    Hello { control, peer, challenge: 0, echo: 0, answer, restores: false, recovers: false }
        .emit(&mut frame);
    frame
}

fn report(session: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    Report {
        control: control(session),
        sent_at: 0,
        heard: false,
        echo: 0,
        held: 0,
        highest: 0,
        frames: 0,
        bytes: 0,
        last_at: 0,
        one_way: 0,
        jitter: 0,
        late: 0,
        prompt: None,
    }
    .emit(&mut frame);
    frame
}

fn data(session: u64) -> Vec<u8> {
    let predecessor = Predecessor::Free;
    let repr = Repr {
        packing: Packing::One,
        overtakes: false,
        link: 0,
        tag: tag(session),
        link_seq: 9,
        predecessor,
        seq: 1,
    };
    let mut frame = vec![0; 8];
    repr.emit(&mut frame);
    push(Packing::One, &example_udp(&[0; 20]), &mut frame);
    frame
}

#[test]
fn a_link_without_an_address_sends_nothing_until_it_has_learned_one() {
    let (mut frame, mut server) = (Vec::new(), server());
    assert_eq!(server.poll_transmit(NOW, &mut frame), None);
    let greet = |server: &mut Endpoint<u8>, echo| {
        let control = control(CLIENT_SESSION);
        let (peer, challenge, answer) = (0, 1, false);
        let mut bytes = Vec::new();
        Hello { control, peer, challenge, echo, answer, restores: false, recovers: false }
            .emit(&mut bytes);
        server.handle_frame(LINK, Some(CLIENT), &bytes, NOW)
    };
    assert_eq!(greet(&mut server, 0), Received::Refused(Refusal::UnprovenSession));
    let transmit = Transmit { link: LINK, to: Some(CLIENT) };
    assert_eq!(server.poll_transmit(NOW, &mut frame), Some(transmit));
    assert_eq!(server.remote(LINK), None, "a challenge needs none");
    let Ok(Frame::Challenge(Challenge { challenge, session, .. })) = Frame::parse(&frame) else {
        panic!("{frame:?}");
    };
    assert_eq!(session, CLIENT_SESSION);
    assert_eq!(server.poll_transmit(NOW, &mut frame), None);
    let accepted =
        Received::Accepted { kind: FrameKind::Hello, link: LINK, new_address: Some(CLIENT) };
    assert_eq!(greet(&mut server, challenge), accepted);
    assert_eq!(server.poll_transmit(NOW, &mut frame), Some(transmit));
}

#[test]
fn an_accepted_report_from_a_new_address_moves_the_link() {
    let (mut client, mut server) = pair();
    let received = server.handle_frame(LINK, Some(MOVED), &report(CLIENT_SESSION), NOW);
    let accepted =
        Received::Accepted { kind: FrameKind::Report, link: LINK, new_address: Some(MOVED) };
    assert_eq!(received, accepted);
    assert_eq!(server.remote(LINK), Some(MOVED));
    assert_eq!(server.link_received(LINK).unwrap().moves, 2, "found, and found again");
    assert!(talk(&mut client, MOVED, &mut server, NOW).is_empty());
}

#[test]
fn a_frame_that_is_refused_changes_no_address() {
    let (_client, mut server) = pair();
    let before = server.link_received(LINK).unwrap();
    let refused = [
        (hello(666, 0), Refusal::UnprovenSession),
        (hello(666, SERVER_SESSION ^ 1), Refusal::UnprovenSession),
        (hello(SERVER_SESSION, SERVER_SESSION), Refusal::UnknownSession),
        (report(666), Refusal::UnknownSession),
        (data(CLIENT_SESSION), Refusal::Stranger),
        (data(666), Refusal::Stranger),
        (vec![], Refusal::Malformed(wire::Refusal::Truncated)),
        (vec![0x45; 100], Refusal::Malformed(wire::Refusal::Version)),
    ];
    for (frame, why) in &refused {
        let received = server.handle_frame(LINK, Some(STRANGER), frame, NOW);
        assert_eq!(received, Received::Refused(*why));
        assert_eq!(server.remote(LINK), Some(CLIENT));
    }
    let received = server.link_received(LINK).unwrap();
    let challenged = refused.iter().filter(|(_, why)| *why == Refusal::UnprovenSession).count();
    assert_eq!(received.strangers - before.strangers, (refused.len() - challenged) as u64);
    assert_eq!(received.moves, 1);
}

#[test]
fn data_from_an_address_that_nothing_has_proved_is_not_delivered() {
    let (mut client, mut server) = pair();
    let received = server.handle_frame(LINK, Some(STRANGER), &data(CLIENT_SESSION), NOW);
    assert_eq!(received, Received::Refused(Refusal::Stranger));
    assert_eq!(server.poll_deliver(NOW), None);
    client.handle_packet(&example_udp(&[0; 20]), DeliveryMode::Order, NOW).unwrap();
    talk(&mut client, CLIENT, &mut server, NOW);
    assert!(server.poll_deliver(NOW).is_some());
}

#[test]
fn a_stranger_that_greets_gets_one_reply_and_the_other_end_loses_nothing_by_it() {
    let (mut client, mut server) = pair();
    let mut frame = Vec::new();
    for _ in 0..100 {
        server.handle_frame(LINK, Some(STRANGER), &hello(666, 0), NOW);
        let transmit = server.poll_transmit(NOW, &mut frame);
        assert_eq!(transmit, Some(Transmit { link: LINK, to: Some(STRANGER) }));
        assert_eq!(server.poll_transmit(NOW, &mut frame), None);
    }
    // The client counts none of the replies as its own, so it misses no frame.
    let later = NOW + Duration::from_secs(2);
    let mut now = NOW;
    while now < later {
        assert!(talk(&mut client, CLIENT, &mut server, now).is_empty());
        now += Duration::from_millis(50);
    }
    assert_eq!(server.link_stats(LINK, now).unwrap().loss, 0.0);
    assert!(client.is_established() && server.is_established());
}

#[test]
fn a_hello_from_a_stranger_does_not_delay_the_start_of_a_session() {
    let (mut client, mut server) = (client(CLIENT_SESSION), server());
    let mut frame = Vec::new();
    client.poll_transmit(NOW, &mut frame).unwrap();
    server.handle_frame(LINK, Some(CLIENT), &frame, NOW);
    server.handle_frame(LINK, Some(STRANGER), &hello(666, 0), NOW);
    assert_eq!(talk(&mut client, CLIENT, &mut server, NOW), [STRANGER]);
    assert!(client.is_established() && server.is_established());
}

#[test]
fn an_end_that_started_anew_elsewhere_is_found_by_the_reply_to_its_first_hello() {
    let (_gone, mut server) = pair();
    let mut fresh = client(0x3333_3333_3333_3333);
    talk(&mut fresh, MOVED, &mut server, NOW);
    assert!(!fresh.is_established(), "the one before it may live");
    let later = NOW + Duration::from_secs(1);
    talk(&mut fresh, MOVED, &mut server, later);
    assert!(fresh.is_established() && server.is_established());
    assert_eq!(server.remote(LINK), Some(MOVED));
    assert_eq!(server.stats().sessions, 2);
    // The end that it replaced does not come back.
    let received = server.handle_frame(LINK, Some(CLIENT), &report(CLIENT_SESSION), later);
    assert_eq!(received, Received::Refused(Refusal::UnknownSession));
    assert_eq!(server.remote(LINK), Some(MOVED));
}

#[test]
fn an_address_that_was_given_is_never_learned_anew() {
    let (mut client, _server) = pair();
    let proof = [hello(SERVER_SESSION, CLIENT_SESSION), report(SERVER_SESSION)];
    for frame in &proof {
        for from in [Some(STRANGER), None] {
            let received = client.handle_frame(LINK, from, frame, NOW);
            assert_eq!(received, Received::Refused(Refusal::Stranger));
        }
    }
    assert_eq!(client.remote(LINK), Some(SERVER));
    let (mut frame, mut unknown) = (Vec::new(), end(4, Remote::Fixed(None)));
    let received = unknown.handle_frame(LINK, Some(SERVER), &hello(7, 0), NOW);
    assert_eq!(received, Received::Refused(Refusal::Stranger), "not before it was given");
    assert_eq!(unknown.poll_transmit(NOW, &mut frame), None);
}

proptest! {
    /// Frames of all kinds and sessions from all places: the address changes when the result says
    /// so, and then only to where a hello or report came from.
    #[test]
    fn the_address_changes_as_the_result_says_and_never_otherwise(
        frames in proptest::collection::vec((0u8..5, 0u64..5, 0u64..5, 0u8..4), 1..60)
    ) {
        let (_client, mut server) = pair();
        let sessions = [0x6666, CLIENT_SESSION, SERVER_SESSION, 0x7777, 0x8888];
        for (kind, session, peer, from) in frames {
            let (session, peer) = (sessions[session as usize], sessions[peer as usize]);
            let frame = match kind {
                0 => hello(session, peer),
                1 => report(session),
                2 => data(session),
                3 => vec![0xb0; 28],
                _ => vec![],
            };
            let from = Some(from).filter(|from| *from > 0);
            let before = server.remote(LINK);
            match server.handle_frame(LINK, from, &frame, NOW) {
                Received::Accepted { new_address: Some(address), .. } => {
                    prop_assert!(kind < 2);
                    prop_assert_eq!((from, server.remote(LINK)), (Some(address), Some(address)));
                }
                _ => prop_assert_eq!(server.remote(LINK), before),
            }
        }
    }
}
