//! Meshes of nodes that start, change, restart, fall silent and lie, under a virtual clock.

use sheaf_fuzz::{Rng, RngExt};
use sheaf_neighbour::{
    Config, Heard, LinkAddress, MAX_NEIGHBOURS, Neighbourhood, Refusal, SealKey,
};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::{Formats, Hello, Node, Repr, Splits, UNLIMITED};
use std::collections::BTreeSet;

const SPLITS: Splits = Splits { formats: Formats::META, largest: 1500 };
const TICK: Duration = Duration::from_millis(10);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn address(station: usize) -> LinkAddress {
    [2, 0, 0, 0, 0, station as u8]
}

/// Stations on one link, each of which hears all others. `None`: one without the software.
struct Mesh {
    stations: Vec<Option<Neighbourhood>>,
    now: Instant,
    /// Share of HELLOs that each receiver loses.
    loss: f64,
    random: Rng,
    /// Bytes of frames that each sent.
    bytes: Vec<usize>,
    /// The last message of each.
    last: Vec<Vec<u8>>,
}

fn config(key: Option<u8>) -> Config {
    let key = key.map(|byte| SealKey::new([byte; 32]));
    Config { splits: Some(SPLITS), key, ..Config::default() }
}

impl Mesh {
    fn new(stations: usize, loss: f64, seed: u64) -> Mesh {
        use rand::SeedableRng;
        Mesh {
            stations: vec![None; stations],
            now: Instant::ZERO,
            loss,
            random: Rng::seed_from_u64(seed),
            bytes: vec![0; stations],
            last: vec![Vec::new(); stations],
        }
    }

    fn start(&mut self, station: usize, config: Config) {
        let node = Node(self.random.random());
        let started = Neighbourhood::new(config, address(station), node, self.now);
        self.stations[station] = Some(started);
    }

    fn station(&mut self, station: usize) -> &mut Neighbourhood {
        self.stations[station].as_mut().unwrap()
    }

    fn sees(&mut self, station: usize, other: usize) -> bool {
        self.station(station).splits(address(other)).is_some()
    }

    /// Hands a message to all others.
    fn deliver(&mut self, from: usize, message: &[u8]) {
        for to in (0..self.stations.len()).filter(|to| *to != from) {
            if let Some(there) = &mut self.stations[to]
                && self.random.random::<f64>() >= self.loss
            {
                // A refusal is what the tests look at.
                let _ = there.hear(address(from), message, self.now);
            }
        }
    }

    fn run_until(&mut self, end: Instant) {
        let mut message = Vec::new();
        while self.now < end {
            self.now += TICK;
            for from in 0..self.stations.len() {
                let Some(station) = &mut self.stations[from] else { continue };
                station.expire(self.now, |_, _| ());
                if station.dequeue(self.now, &mut message) {
                    assert!(station.next_deadline() > self.now);
                    self.bytes[from] += message.len() + Config::default().overhead;
                    self.last[from].clone_from(&message);
                    self.deliver(from, &message.clone());
                }
            }
        }
    }
}

#[test]
fn nine_nodes_find_each_other_within_five_seconds_although_a_fifth_of_hellos_is_lost() {
    for (seed, key) in (0..100).map(|seed| (seed, (seed % 2 == 1).then_some(7))) {
        let mut mesh = Mesh::new(9, 0.2, seed);
        for station in (0..9).filter(|station| station % 2 == 0) {
            mesh.start(station, config(key));
        }
        mesh.run_until(at(5_000));
        for (one, other) in (0..9).flat_map(|one| (0..9).map(move |other| (one, other))) {
            if one % 2 == 0 && one != other {
                assert_eq!(mesh.sees(one, other), other % 2 == 0, "{seed}: {one} {other}");
            }
        }
        // One that comes later is found as soon, by nodes at rest, too.
        mesh.run_until(at(60_000));
        mesh.start(1, config(key));
        mesh.run_until(at(65_000));
        for one in (0..9).step_by(2) {
            assert!(mesh.sees(one, 1) && mesh.sees(1, one), "{seed}: {one}");
        }
    }
}

#[test]
fn a_node_that_falls_silent_is_gone_within_five_periods_and_a_goodbye_counts_at_once() {
    let mut mesh = Mesh::new(3, 0.0, 1);
    (0..3).for_each(|station| mesh.start(station, config(None)));
    mesh.run_until(at(30_000));
    (0..3).for_each(|station| mesh.stations[station].as_mut().unwrap().used(at(30_000)));
    mesh.run_until(at(34_000));
    let (period, last) = {
        let known = mesh.station(0).get(address(1)).unwrap();
        (known.period, known.last)
    };
    assert_eq!(period, Duration::from_secs(1));
    mesh.stations[1] = None;
    mesh.run_until(last + 5 * period - TICK);
    assert!(mesh.sees(0, 1));
    mesh.run_until(last + 5 * period + TICK);
    assert!(!mesh.sees(0, 1) && mesh.sees(0, 2));
    let (mut goodbye, now) = (Vec::new(), mesh.now);
    mesh.station(2).part_from_all(now, &mut goodbye);
    assert_eq!(mesh.station(0).hear(address(2), &goodbye, now), Ok(Heard::Left));
    assert!(mesh.station(0).is_empty());
    assert_eq!(mesh.station(0).hear(address(2), &goodbye, now), Err(Refusal::Unknown));
}

#[test]
fn a_neighbour_that_starts_again_and_one_that_loses_its_splitter_are_noticed_soon() {
    for key in [None, Some(7)] {
        let mut mesh = Mesh::new(2, 0.0, 2);
        (0..2).for_each(|station| mesh.start(station, config(key)));
        mesh.run_until(at(60_000));
        assert!(mesh.sees(0, 1));
        mesh.start(1, Config { splits: None, ..config(key) });
        mesh.run_until(at(62_000));
        let known = mesh.station(0).get(address(1)).unwrap();
        assert_eq!((known.restarts, known.splits), (1, None));
        let now = mesh.now;
        mesh.station(1).set_own_splits(Some(SPLITS), now);
        mesh.run_until(now + Duration::from_millis(500));
        assert!(mesh.sees(0, 1));
        let now = mesh.now;
        mesh.station(1).set_own_splits(None, now);
        mesh.run_until(now + Duration::from_millis(500));
        assert!(!mesh.sees(0, 1));
    }
}

#[test]
fn hellos_at_rest_take_at_most_twenty_bytes_a_second_of_each_node() {
    // With a tenth of them lost: who takes a neighbour for gone greets it again, at a cost.
    for (seed, key) in (0..20).map(|seed| (seed, (seed % 2 == 1).then_some(7))) {
        let mut mesh = Mesh::new(12, 0.1, seed);
        (0..12).for_each(|station| mesh.start(station, config(key)));
        mesh.run_until(at(60_000));
        mesh.bytes.fill(0);
        mesh.run_until(at(60_000 + 1_800_000));
        for bytes in &mesh.bytes {
            assert!(*bytes <= 20 * 1_800 && *bytes > 14 * 1_800, "{seed}: {bytes}");
        }
    }
}

#[test]
fn a_size_that_a_neighbour_asks_for_is_heard_within_a_second_and_lifted_as_soon() {
    let mut mesh = Mesh::new(3, 0.0, 4);
    (0..3).for_each(|station| mesh.start(station, config(None)));
    mesh.run_until(at(60_000));
    let mut now = mesh.now;
    for (limit, seen) in [(300, 300), (900, 900), (UNLIMITED, 1500)] {
        mesh.station(0).set_limit(address(1), limit, now);
        mesh.run_until(now + Duration::from_secs(1));
        assert_eq!(mesh.station(1).largest(address(0)), Some(seen));
        assert_eq!(mesh.station(2).largest(address(0)), Some(1500));
        now = mesh.now;
    }
}

#[test]
fn a_flood_of_made_up_neighbours_fills_no_memory_pushes_nobody_out_and_outlives_nothing() {
    let mut mesh = Mesh::new(3, 0.0, 5);
    (0..2).for_each(|station| mesh.start(station, config(None)));
    mesh.run_until(at(60_000));
    let now = mesh.now;
    mesh.station(0).set_present(&BTreeSet::from([address(1)]), [address(1)], now);
    mesh.bytes.fill(0);
    // 1000 in 10 ms, for 3 s, that claim the longest period.
    for round in 0..300_u64 {
        mesh.run_until(at(60_000 + 10 * (round + 1)));
        for number in 0..1_000_u64 {
            let forged = mesh.random.random::<u64>();
            let mut message = Vec::new();
            let repr = Repr {
                node: Node(forged),
                sequence: forged as u32,
                period: 255,
                goodbye: false,
                asks: true,
                splits: Some(SPLITS),
            };
            repr.emit([], usize::MAX, &mut message);
            let mut from = address(0);
            from[..4].copy_from_slice(&(number << 32 | forged).to_be_bytes()[4..]);
            from[0] = 6;
            let now = mesh.now;
            let _ = mesh.station(0).hear(from, &message, now);
        }
        assert!(mesh.station(0).len() <= MAX_NEIGHBOURS);
    }
    assert!(mesh.sees(0, 1), "the neighbour with which packets are exchanged stays");
    assert!(mesh.bytes[0] <= 63 * 8, "{} bytes in 3 s", mesh.bytes[0]);
    mesh.start(2, config(None));
    mesh.run_until(at(68_000));
    assert!(mesh.sees(0, 2) && mesh.sees(2, 0), "a newcomer after the flood has a place");
    mesh.run_until(at(63_000 + 5 * 25_500 + 1_000));
    assert_eq!(mesh.station(0).len(), 2);
}

#[test]
fn where_all_places_are_taken_by_neighbours_of_the_kernel_a_stranger_is_refused() {
    let mut here = Neighbourhood::new(config(None), address(0), Node(1), Instant::ZERO);
    let station = |number: u16| {
        let [high, low] = number.to_be_bytes();
        [2, 1, 0, 0, high, low]
    };
    let greet = |here: &mut Neighbourhood, number: u16| {
        let mut message = Vec::new();
        let mut there = Neighbourhood::new(
            config(None),
            station(number),
            Node(100 + u64::from(number)),
            Instant::ZERO,
        );
        assert!(there.dequeue(there.next_deadline(), &mut message));
        here.hear(station(number), &message, at(100))
    };
    for number in 0..MAX_NEIGHBOURS as u16 {
        assert_eq!(greet(&mut here, number), Ok(Heard::Appeared));
    }
    let all: BTreeSet<_> = here.iter().map(|(address, _)| address).collect();
    here.set_present(&all, [], at(100));
    assert_eq!(greet(&mut here, 5_000), Err(Refusal::Full));
    assert_eq!(here.len(), MAX_NEIGHBOURS);
}

#[test]
fn with_a_key_only_its_holders_are_believed_and_recordings_are_not() {
    let mut mesh = Mesh::new(3, 0.0, 6);
    mesh.start(0, config(Some(7)));
    mesh.start(1, config(Some(7)));
    mesh.run_until(at(10_000));
    assert!(mesh.sees(0, 1) && mesh.sees(1, 0));
    let (now, recorded) = (mesh.now, mesh.last[1].clone());
    let here = mesh.station(0);
    // Sent again, under another address, without a seal, with a damaged byte.
    assert_eq!(here.hear(address(1), &recorded, now), Err(Refusal::Old));
    assert_eq!(here.hear(address(2), &recorded, now), Err(Refusal::WrongSeal));
    let covered = Hello::parse(&recorded).unwrap().seal().unwrap().0;
    assert_eq!(here.hear(address(1), covered, now), Err(Refusal::Unsealed));
    for byte in 4..recorded.len() {
        let mut damaged = recorded.clone();
        damaged[byte] ^= 1;
        assert!(here.hear(address(1), &damaged, now).is_err(), "byte {byte}");
    }
    // A stranger with another key, and one without.
    for (station, key) in [(2, Some(8)), (2, None)] {
        mesh.start(station, config(key));
        let end = mesh.now + Duration::from_secs(5);
        mesh.run_until(end);
        assert!(!mesh.sees(0, 2) && mesh.station(0).get(address(2)).is_none());
    }
    mesh.stations[2] = None;
    // After a restart of ours, what was recorded before says nothing: neither that the neighbour is
    // there nor that it goes.
    let (mut goodbye, now) = (Vec::new(), mesh.now);
    mesh.station(1).clone().part_from_all(now, &mut goodbye);
    mesh.stations[1] = None;
    mesh.start(0, config(Some(7)));
    mesh.run_until(now + Duration::from_secs(1));
    let now = mesh.now;
    assert_eq!(mesh.station(0).hear(address(1), &recorded, now), Ok(Heard::Appeared));
    assert!(!mesh.sees(0, 1), "it is not proven");
    assert_eq!(mesh.station(0).hear(address(1), &goodbye, now), Err(Refusal::Unproven));
}

#[test]
fn with_a_key_a_recording_of_a_former_run_does_not_displace_the_one_that_is_proven() {
    let mut mesh = Mesh::new(2, 0.0, 7);
    (0..2).for_each(|station| mesh.start(station, config(Some(7))));
    mesh.run_until(at(10_000));
    let mut recordings = vec![mesh.last[1].clone()];
    for restart in 1..=3 {
        let now = mesh.now;
        mesh.start(1, config(Some(7)));
        mesh.run_until(now + Duration::from_secs(2));
        let now = mesh.now;
        assert!(mesh.sees(0, 1) && mesh.sees(1, 0), "restart {restart}");
        let node = mesh.station(1).node();
        // Of all its runs, those of the last seconds among them.
        for recorded in &recordings {
            assert_eq!(mesh.station(0).hear(address(1), recorded, now), Err(Refusal::Unproven));
            let known = mesh.station(0).get(address(1)).unwrap();
            assert_eq!((known.node, known.restarts), (node, restart));
            assert!(mesh.sees(0, 1));
        }
        recordings.push(mesh.last[1].clone());
    }
}

#[test]
fn without_a_key_a_forged_number_keeps_a_neighbour_out_for_no_longer_than_its_next_hello() {
    let mut mesh = Mesh::new(2, 0.0, 8);
    (0..2).for_each(|station| mesh.start(station, config(None)));
    mesh.run_until(at(10_000));
    let mut forged = mesh.last[1].clone();
    forged[4..8].copy_from_slice(&0x7000_0000_u32.to_be_bytes());
    // The forger says that it takes nothing apart.
    forged.truncate(16);
    let now = mesh.now;
    assert_eq!(mesh.station(0).hear(address(1), &forged, now), Ok(Heard::Changed));
    assert!(!mesh.sees(0, 1));
    mesh.run_until(now + Duration::from_secs(5));
    assert!(mesh.sees(0, 1));
}

#[test]
fn silence_counts_for_nothing_while_hellos_are_dropped_before_they_are_heard() {
    let mut mesh = Mesh::new(2, 0.0, 9);
    (0..2).for_each(|station| mesh.start(station, config(None)));
    mesh.run_until(at(3_000));
    mesh.stations[1] = None;
    for second in 3..100 {
        mesh.run_until(at(1_000 * second));
        let now = mesh.now;
        mesh.station(0).missed(now);
        assert!(mesh.sees(0, 1), "{second} s");
    }
    mesh.run_until(at(99_000 + 5 * 4_000 + 1_000));
    assert!(!mesh.sees(0, 1));
}

#[test]
fn lost_hellos_show_in_the_share_that_is_heard() {
    for (loss, band) in [(0.0, 0.99..=1.0), (0.3, 0.5..=0.9)] {
        let mut mesh = Mesh::new(2, loss, 10);
        (0..2).for_each(|station| mesh.start(station, config(None)));
        let mut sum = 0.0;
        for step in 1..=400 {
            let now = mesh.now;
            (0..2).for_each(|station| mesh.stations[station].as_mut().unwrap().used(now));
            mesh.run_until(at(1_000 * step));
            sum += mesh.station(0).get(address(1)).map_or(0.0, |known| known.heard);
        }
        let mean = sum / 400.0;
        assert!(band.contains(&mean), "{loss}: {mean}");
    }
}
