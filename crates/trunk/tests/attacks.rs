//! Others on the wire: what a stranger, a listener and one who replays can do to a trunk with a key
//! and to a plain one, and that nothing of it outlives the attack.

mod net;

use net::{Address, Datagram, LINKS, MS, Net, SECOND, end, key};
use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_stage::Duration;
use sheaf_trunk::{Endpoint, Key, LinkId, Remote};
use sheaf_wire::ip::example_udp;
use sheaf_wire::trunk::{
    Control, Hello, Marker, Packing, Predecessor, Prompt, Report, Repr, push, tag,
};

const HERE: Address = 1;
const THERE: Address = 2;
const STRANGER: Address = 66;
const SESSIONS: [u64; 2] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888];
/// Damaged frames that each trunk gets.
const DAMAGED: u64 = 1_000_000;
/// Damaged messages that meet handshakes.
const HANDSHAKES: u64 = 20_000;
/// Rate in bit/s that no link of these tests has.
const IMPOSSIBLE: u64 = 1_000_000_000;

/// Two ends, of which host 1 learns where host 0 is, and a stranger without an end.
fn pair(keyed: bool) -> Net {
    let mut net = Net::new(&[HERE, THERE, STRANGER]);
    let remotes = [Remote::roaming(THERE), Remote::Learned(None)];
    for host in 0..2 {
        let key = keyed.then(key);
        net.hosts[host].end = Some(end(SESSIONS[host], key, [remotes[host]; LINKS as usize]));
    }
    net.seen = Some(Vec::new());
    net.run(SECOND);
    assert!(net.flows(SECOND));
    net
}

fn control(session: u64, next_seq: u32) -> Control {
    Control { link: 0, next_seq, link_seq: 1 << 20, session, pause: 0 }
}

fn hello(session: u64, peer: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let control = control(session, 1 << 30);
    Hello { control, peer, challenge: 5, echo: 7, answer: false, restores: false, recovers: false }
        .emit(&mut bytes);
    bytes
}

fn report(session: u64, sent_at: u32, bytes: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    Report {
        control: control(session, 1 << 30),
        sent_at,
        heard: true,
        echo: sent_at,
        held: 0,
        highest: bytes / 1_000,
        frames: bytes / 1_000,
        bytes,
        last_at: sent_at,
        one_way: 0,
        jitter: 9_000,
        late: 0,
        prompt: Some(Prompt { number: bytes / 1_000, at: sent_at }),
    }
    .emit(&mut frame);
    frame
}

fn data(tag: u8, seq: u32) -> Vec<u8> {
    let (packing, predecessor) = (Packing::One, Predecessor::Free);
    let mut frame = vec![0; 8];
    Repr { packing, overtakes: false, link: 0, tag, link_seq: 9, predecessor, seq }
        .emit(&mut frame);
    push(Packing::One, &example_udp(b"injected by somebody else"), &mut frame);
    frame
}

/// Forged frames to both ends, from `from` or from the other end's address.
fn forge(net: &mut Net, from: Option<Address>, bytes: &[u8]) {
    for (host, other) in [(0, 1), (1, 0)] {
        for link in 0..LINKS {
            let from = from.unwrap_or(net.hosts[other].address);
            let to = net.hosts[host].address;
            net.inject(Datagram { from, to, link, bytes: bytes.to_vec() });
        }
    }
}

fn nothing_was_taken(net: &Net) {
    for host in 0..2 {
        let end = net.end(host);
        assert_eq!(end.stats().sessions, 1);
        for link in 0..LINKS {
            assert_eq!(end.remote(LinkId(link)), Some(net.hosts[1 - host].address));
        }
    }
}

/// The share of packets that arrive in the next seconds.
fn share(net: &mut Net) -> f64 {
    let before = net.hosts[1].delivered;
    net.run(4 * SECOND);
    (net.hosts[1].delivered - before) as f64 / 400.0
}

#[test]
fn a_stranger_who_greets_takes_nothing_from_a_trunk_that_lives() {
    for keyed in [false, true] {
        let mut net = pair(keyed);
        // With an end of his own, which does all that a real one does, with and without a key.
        for key in [None, Some(Key::new([9; 32]))] {
            net.hosts[2].end = Some(end(666, key, [Remote::roaming(THERE); LINKS as usize]));
            assert!(net.flows(10 * SECOND), "keyed {keyed}");
            assert_eq!(net.hosts[2].delivered, 0);
            let stranger = net.hosts[2].end.take().unwrap();
            assert!(!stranger.is_established() && stranger.stats().sessions == 0);
            nothing_was_taken(&net);
        }
    }
}

#[test]
fn a_stranger_who_took_a_plain_trunk_that_slept_loses_it_when_he_leaves() {
    let mut net = pair(false);
    net.hosts[0].asleep = true;
    net.hosts[2].end = Some(end(666, None, [Remote::roaming(THERE); LINKS as usize]));
    net.run(5 * SECOND);
    assert_eq!(net.end(1).remote(LinkId(0)), Some(STRANGER), "a plain trunk can be taken");
    net.wake(0);
    net.run(5 * SECOND);
    net.hosts[2].end = None;
    net.run(2 * SECOND);
    assert!(net.flows(4 * SECOND));
    assert_eq!(net.end(1).remote(LinkId(0)), Some(HERE));
}

#[test]
fn a_stranger_cannot_take_a_trunk_with_a_key_that_sleeps() {
    let mut net = pair(true);
    net.hosts[0].asleep = true;
    net.hosts[2].end = Some(end(666, Some(Key::new([9; 32])), [Remote::roaming(THERE); 2]));
    net.run(30 * SECOND);
    net.wake(0);
    net.run(2 * SECOND);
    assert!(net.flows(4 * SECOND));
    nothing_was_taken(&net);
}

#[test]
fn blind_datagrams_inject_nothing_and_keep_nobody_alive() {
    for keyed in [false, true] {
        let mut net = pair(keyed);
        net.talk = false;
        net.run(SECOND);
        let before = [net.hosts[0].delivered, net.hosts[1].delivered];
        // Every tag, with numbers that follow each other, from the right address.
        for guess in 0..=255 {
            for seq in [7, 8, 1 << 30, (1 << 30) + 1] {
                forge(&mut net, None, &data(guess, seq));
            }
            let mut marker = Vec::new();
            Marker { link: 0, tag: guess, link_seq: 1, round: 9, deficit: 0 }.emit(&mut marker);
            forge(&mut net, None, &marker);
            net.run(MS);
        }
        net.run(SECOND);
        assert_eq!(before, [net.hosts[0].delivered, net.hosts[1].delivered], "keyed {keyed}");
        net.talk = true;
        assert!(share(&mut net) > 0.99);
        nothing_was_taken(&net);
        // An end that is gone is not kept alive by them.
        net.hosts[0].end = Some(end(99, keyed.then(key), [Remote::roaming(THERE); 2]));
        for _ in 0..20 {
            (0..=255).for_each(|guess| forge(&mut net, None, &data(guess, 1 << 30)));
            net.run(100 * MS);
        }
        assert!(net.flows(SECOND), "keyed {keyed}");
    }
}

#[test]
fn everything_replayed_a_hundred_times_delivers_nothing_twice_and_moves_nothing() {
    for keyed in [false, true] {
        let mut net = pair(keyed);
        let recorded = net.seen.take().unwrap();
        // Long enough that what was recorded is far behind.
        net.run(200 * SECOND);
        let delivered = [net.hosts[0].delivered, net.hosts[1].delivered];
        net.talk = false;
        for round in 0..100 {
            for datagram in &recorded {
                let mut replayed = datagram.clone();
                // From its own address, and from that of the one who replays.
                if round % 2 == 0 {
                    replayed.from = STRANGER;
                }
                net.inject(replayed);
            }
            net.run(50 * MS);
        }
        net.run(SECOND);
        let now = [net.hosts[0].delivered, net.hosts[1].delivered];
        assert!(now[0] - delivered[0] < 3 && now[1] - delivered[1] < 3, "keyed {keyed}");
        nothing_was_taken(&net);
        net.talk = true;
        assert!(share(&mut net) > 0.99, "keyed {keyed}");
    }
}

#[test]
fn an_end_that_restarts_is_not_held_off_by_what_was_recorded_of_it() {
    for keyed in [false, true] {
        let mut net = pair(keyed);
        let recorded = net.seen.take().unwrap();
        net.hosts[0].end = Some(end(99, keyed.then(key), [Remote::roaming(THERE); 2]));
        for datagram in recorded.iter().filter(|datagram| datagram.from == HERE).cycle().take(800) {
            net.inject(datagram.clone());
            net.run(5 * MS);
        }
        assert!(net.flows(4 * SECOND), "keyed {keyed}");
    }
}

#[test]
fn forged_hellos_and_reports_with_the_right_sessions_do_nothing_that_outlives_them() {
    for keyed in [false, true] {
        let mut net = pair(keyed);
        for round in 0..100u32 {
            for session in SESSIONS {
                let peer = SESSIONS[0] ^ SESSIONS[1] ^ session;
                forge(&mut net, None, &hello(session, peer));
                forge(&mut net, None, &hello(session, 0));
                forge(&mut net, None, &hello(666, peer));
                for sent_at in [round * 20_000, 1 << 30, u32::MAX - round] {
                    forge(&mut net, None, &report(session, sent_at, round << 24));
                }
                forge(&mut net, None, &data(tag(session), round * 30_000));
            }
            net.run(20 * MS);
        }
        net.run(2 * SECOND);
        assert!(share(&mut net) > 0.99, "keyed {keyed}");
        nothing_was_taken(&net);
        for host in 0..2 {
            for link in 0..LINKS {
                let rate = net.end(host).link_stats(LinkId(link), net.now).unwrap().rate;
                assert!(rate < IMPOSSIBLE, "keyed {keyed}: {rate} bit/s");
            }
        }
    }
}

#[test]
fn a_forged_number_far_ahead_costs_the_receiver_bounded_work() {
    let mut net = pair(false);
    net.talk = false;
    net.run(SECOND);
    let received = |net: &Net| net.end(1).stats().reorder;
    let before = received(&net);
    // Each is as far ahead as is looked at.
    let mut seq = SESSIONS[0] as u32;
    for _ in 0..10_000 {
        seq = seq.wrapping_add(32_000);
        let bytes = data(tag(SESSIONS[0]), seq);
        net.inject(Datagram { from: HERE, to: THERE, link: 0, bytes });
    }
    net.run(MS * 20);
    assert!(received(&net).squeezed > before.squeezed);
    net.talk = true;
    net.run(2 * SECOND);
    assert!(net.flows(4 * SECOND));
}

/// Frames of both ends of this run: the handshake, hellos, reports and data.
fn corpus(keyed: bool) -> Vec<Vec<u8>> {
    let seen = pair(keyed).seen.take().unwrap();
    seen.into_iter().map(|datagram| datagram.bytes).take(400).collect()
}

#[test]
fn a_million_damaged_frames_take_nothing_and_the_trunk_works_afterwards() {
    for keyed in [false, true] {
        let mut fuzzer = Fuzzer::over(corpus(keyed), DAMAGED);
        let mut net = pair(keyed);
        let mut bytes = Vec::new();
        for round in 0..fuzzer.rounds() {
            fuzzer.take(&mut bytes);
            let host = fuzzer.rng.random_range(0..2);
            let from = [HERE, THERE, STRANGER][fuzzer.rng.random_range(0..3)];
            let link = LinkId(fuzzer.rng.random_range(0..LINKS + 1));
            let now = net.now;
            let end: &mut Endpoint<Address> = net.hosts[host].end.as_mut().unwrap();
            end.handle_frame(link, Some(from), &bytes, now);
            if round % 500 == 0 {
                net.run(5 * MS);
            }
        }
        net.run(2 * SECOND);
        assert!(share(&mut net) > 0.99, "keyed {keyed}");
        if keyed {
            nothing_was_taken(&net);
        }
    }
}

/// The kept corpus: messages of handshakes and sealed frames of these two ends, and what was found.
/// What damage makes of them meets two ends that shake hands again and again.
#[test]
fn damaged_handshakes_make_no_session_and_teach_no_address() {
    let mut fuzzer = Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "sealed", HANDSHAKES);
    let mut bytes = Vec::new();
    let mut left = fuzzer.rounds();
    while left > 0 {
        let mut net = Net::new(&[HERE, THERE, STRANGER]);
        for host in 0..2 {
            let remote = [Remote::roaming(THERE), Remote::Learned(None)][host];
            net.hosts[host].end = Some(end(SESSIONS[host], Some(key()), [remote; 2]));
        }
        for _ in 0..left.min(200) {
            left -= 1;
            fuzzer.take(&mut bytes);
            let to = [HERE, THERE][fuzzer.rng.random_range(0..2)];
            let from = [HERE, THERE, STRANGER][fuzzer.rng.random_range(0..3)];
            let link = fuzzer.rng.random_range(0..LINKS);
            net.inject(Datagram { from, to, link, bytes: bytes.clone() });
            net.run(MS);
        }
        net.run(2 * SECOND);
        nothing_was_taken(&net);
        assert!(net.flows(SECOND));
    }
}

#[test]
fn a_link_of_a_trunk_with_a_key_is_not_led_astray_by_frames_sent_on() {
    let mut net = pair(true);
    // Somebody on the way sends every frame to the other link, too, from his own address, and
    // faster than the original.
    net.delays = [20 * MS, 35 * MS];
    for _ in 0..200 {
        net.seen = Some(Vec::new());
        net.run(10 * MS);
        let seen = net.seen.take().unwrap();
        net.delays = [Duration::ZERO; 2];
        for mut datagram in seen {
            datagram.from = STRANGER;
            datagram.link = 1 - datagram.link;
            net.inject(datagram);
        }
        net.delays = [20 * MS, 35 * MS];
    }
    nothing_was_taken(&net);
    assert!(net.flows(4 * SECOND));
}

#[test]
fn a_handshake_that_is_sent_back_makes_no_trunk_with_oneself() {
    let mut net = Net::new(&[HERE, THERE, STRANGER]);
    net.hosts[0].end = Some(end(SESSIONS[0], Some(key()), [Remote::roaming(THERE); 2]));
    net.talk = false;
    net.seen = Some(Vec::new());
    for _ in 0..300 {
        net.run(10 * MS);
        for mut datagram in net.seen.replace(Vec::new()).unwrap() {
            std::mem::swap(&mut datagram.from, &mut datagram.to);
            net.inject(datagram);
        }
    }
    assert_eq!((net.end(0).stats().sessions, net.end(0).stats().handshakes), (0, 0));
}
