//! Interfaces that are set down, go, come back, and change under load.

use crate::ground::{Ground, LONG, Service, payload};
use crate::patient::patient;
use nix::sys::socket::{setsockopt, sockopt};
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, timer};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Time between two packets.
const EVERY: Duration = Duration::from_millis(2);
/// Packets of two seconds: the time in which a service has to be at work again.
const BACK: u32 = 1000;
/// Packets of half a second, in which a TAP interface that was set down is noticed.
const NOTICED: u32 = 250;

/// Packets from the first host to the second at a steady pace. Their numbers are the clock: where
/// the machine is late, so is the sender.
struct Paced<'a> {
    receiver: UdpSocket,
    sent: &'a AtomicU32,
    over: &'a AtomicBool,
    got: Vec<u32>,
}

impl Drop for Paced<'_> {
    /// Ends the sender, whatever became of the test.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Paced<'_> {
    /// Runs `work` beside packets to `to`.
    fn beside(ground: &Ground, to: &str, work: impl FnOnce(&mut Paced<'_>)) {
        let to = format!("{to}:5006");
        let receiver = ground.hosts[1].run(|| UdpSocket::bind(&to)).unwrap();
        setsockopt(&receiver, sockopt::RcvBufForce, &(8 << 20)).unwrap();
        receiver.set_read_timeout(Some(LONG)).unwrap();
        let sender = ground.hosts[0].run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        let (sent, over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = clock::now();
                while !over.load(Ordering::Relaxed) {
                    // Without a way it is lost, and counts as such.
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    let _ = sender.send_to(&payload(number), &to);
                    next += EVERY;
                    timer::wait(&mut Poller::default(), 0, next, Duration::ZERO).unwrap();
                }
            });
            let mut paced = Paced { receiver, sent: &sent, over: &over, got: Vec::new() };
            paced.arrives();
            work(&mut paced);
            paced.arrives();
        });
    }

    /// Number of packets that were sent.
    fn now(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Receives until a packet has come that is sent from now on; returns its number.
    fn arrives(&mut self) -> u32 {
        let from = self.now();
        let mut bytes = [0; 64];
        loop {
            patient(|| self.receiver.recv(&mut bytes)).expect("packets arrive");
            let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            self.got.push(number);
            if number >= from {
                return number;
            }
        }
    }

    /// Receives until `count` packets from now were sent and the last of them has come.
    fn pass(&mut self, count: u32) {
        let until = self.now() + count;
        while self.arrives() < until {}
    }

    /// The longest row of numbers that are missing between those that arrived.
    fn longest_gap(&self) -> u32 {
        let mut got = self.got.clone();
        got.sort_unstable();
        got.windows(2).map(|pair| pair[1] - pair[0] - 1).max().unwrap_or(0)
    }
}

#[test]
fn a_tap_interface_that_is_set_down_swallows_nothing_for_long_and_comes_back() {
    let ground = Ground::new();
    ground.split();
    for (line, prefix) in [
        ("aggregate dev right engine user policy forced peer 10.8.0.2", "sheaf"),
        ("emulate dev right both delay 1ms", "sheafe"),
    ] {
        let mut service = match line.starts_with("aggregate") {
            true => Service::aggregate(&ground, line),
            false => Service::start(&ground, line),
        };
        Paced::beside(&ground, "10.8.0.2", |paced| {
            let names = ground.hosts[0].run(sheaf_netio::ip::names).unwrap();
            let tap = names.into_iter().find(|name| name.starts_with(prefix)).unwrap();
            ground.ip(0, &format!("link set {tap} down"));
            let down = paced.now();
            service.says(&format!("{tap} was set down"));
            let back = paced.arrives();
            assert!(back - down <= BACK, "{line}: {} packets", back - down);
            paced.pass(NOTICED);
            assert!(paced.longest_gap() <= BACK, "{line}: {}", paced.longest_gap());
        });
        // It does its work again.
        let mut stream = ground.stream("10.8.0.2");
        if line.starts_with("aggregate") {
            service.says("10.8.0.2 splits");
            stream.batch();
            let shown = ground.shown("right");
            assert!(shown["engine"].as_str().unwrap().starts_with("user"), "{shown}");
        }
        stream.batch();
        service.stop();
    }
}

/// A section of `sheaf run`, what it logs when it is at work again, and whether it stays at work
/// where only the address or the MTU changes.
const SECTIONS: [(&str, &str, bool); 4] = [
    (
        "[[aggregate]]\ndev = \"right\"\nengine = \"kernel\"\npolicy = \"forced\"\n\
         peer = \"10.8.0.2\"\n",
        "aggregating on right",
        false,
    ),
    (
        "[[aggregate]]\ndev = \"right\"\nengine = \"user\"\npolicy = \"forced\"\n\
         peer = \"10.8.0.2\"\n",
        "aggregating on right",
        false,
    ),
    ("[[window]]\ndev = \"right\"\ncapacity = \"20mbit\"\n", "window right: at work", true),
    (
        "[[emulate]]\ndev = \"right\"\nboth = true\ndelay = \"1ms\"\n",
        "emulate right: at work",
        true,
    ),
];

/// Waits until the section is at work again, which has to be soon.
fn is_back(run: &mut Service, paced: &mut Paced<'_>, at_work: &str, what: &str) {
    let since = paced.now();
    run.says(at_work);
    let (worked, arrived) = (paced.now(), paced.arrives());
    assert!(worked - since <= BACK, "{what}: at work after {} packets", worked - since);
    assert!(arrived - since <= BACK, "{what}: carries after {} packets", arrived - since);
}

#[test]
fn services_follow_an_interface_that_is_deleted_renamed_and_set_down() {
    for (section, at_work, _) in SECTIONS {
        let ground = Ground::new();
        let file = ground.write("sheaf.toml", section);
        let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
        run.says(at_work);
        Paced::beside(&ground, "10.8.0.2", |paced| {
            ground.ip(0, "link del right");
            ground.lay_right();
            is_back(&mut run, paced, at_work, "made again");

            ground.ip(0, "link set right down");
            ground.ip(0, "link set right name other");
            ground.ip(0, "link set other name right");
            ground.set_up(0, "right", 8);
            // Whoever did not notice has nothing to say.
            paced.pass(NOTICED);

            // Somebody else's for a while.
            ground.ip(0, "link set right down");
            ground.ip(0, "link set right name other");
            run.says("waits ");
            ground.set_up(0, "other", 8);
            paced.arrives();
            ground.ip(0, "link set other down");
            ground.ip(0, "link set other name right");
            ground.set_up(0, "right", 8);
            is_back(&mut run, paced, at_work, "renamed back");
            paced.pass(NOTICED);
        });
        let show = ground.works("show dev right");
        assert!(show.contains("right"), "{show}");
        run.stop();
    }
}

#[test]
fn another_address_or_mtu_under_load_costs_no_packet() {
    for (section, at_work, stays) in SECTIONS {
        let ground = Ground::new();
        ground.split();
        let file = ground.write("sheaf.toml", section);
        let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
        match section.contains("aggregate") {
            true => run.says_all(&[at_work, "10.8.0.2 splits"]),
            false => drop(run.says(at_work)),
        }
        let mut stream = ground.stream("10.8.0.2");
        stream.during(|| {
            ground.ip(0, "addr add 10.8.0.7/24 dev right");
            for mtu in [1400, 1500] {
                ground.ip(0, &format!("link set right mtu {mtu}"));
                if stays {
                    ground.works("show dev right");
                } else {
                    run.says("right has another MTU");
                    run.says(at_work);
                }
            }
            ground.ip(0, "addr del 10.8.0.7/24 dev right");
        });
        run.stop();
    }
}

#[test]
fn a_trunk_follows_interfaces_that_are_deleted_renamed_and_readdressed() {
    let ground = Ground::new();
    let _there = Service::start_on(&ground, 1, &ground.trunk(1));
    let text = "[[trunk]]\nname = \"t0\"\naddress = \"10.99.0.1/24\"\n\
                path = [\"10.8.0.1 10.8.0.2\", \"10.9.0.1 10.9.0.2\"]\nplain = true\n";
    let file = ground.write("sheaf.toml", text);
    let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
    let (right, near) = ("10.8.0.2:7431 is", "10.9.0.2:7431 is");
    run.says_all(&[&format!("{right} up"), &format!("{near} up")]);
    Paced::beside(&ground, "10.99.0.2", |paced| {
        ground.ip(0, "link del right");
        run.says(&format!("{right} down"));
        paced.pass(NOTICED);
        ground.lay_right();
        is_back(&mut run, paced, &format!("{right} up"), "made again");

        ground.ip(0, "link set near down");
        run.says(&format!("{near} down"));
        ground.ip(0, "link set near name other");
        ground.set_up(0, "other", 9);
        is_back(&mut run, paced, &format!("{near} up"), "under another name");

        ground.ip(0, "addr del 10.8.0.1/24 dev right");
        run.says(&format!("{right} down"));
        paced.pass(NOTICED);
        ground.set_up(0, "right", 8);
        is_back(&mut run, paced, &format!("{right} up"), "with its address again");
        assert!(paced.longest_gap() <= BACK, "{}", paced.longest_gap());
    });
    run.stop();
}
