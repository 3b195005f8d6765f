//! Trouble under load: how long nothing arrives, what is lost, how soon all is as before.

use crate::load::{Load, Target, wait};
use crate::pair::{Pair, Trunk, number};
use crate::{FAR, WARM, Wanted, start};
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Period in which arrivals are counted.
const LOOK: Duration = Duration::from_millis(2);
/// Time for which an event is watched.
const WATCHED: Duration = Duration::from_millis(2500);
/// Rates are means over this time.
const SPAN: Duration = Duration::from_millis(100);
/// The cable that trouble befalls, its rate, and that of all.
const CABLE: usize = 1;
const RATE: u32 = 20;
const CABLES: usize = 3;
/// Packets of the steady stream in a second.
const BEAT: u64 = 1000;

/// Prints each event.
pub fn all(wanted: &Wanted) {
    for (carrier, paths) in [("Ethernet", false), ("UDP", true)] {
        for (event, silent) in [("pulled", false), ("silent", true)] {
            let name = format!("events: {carrier} {event}");
            if wanted.case(&name) {
                println!("{name:28} {}", trouble(paths, silent));
            }
        }
        for (end, who) in [(0, "sender"), (1, "receiver")] {
            let name = format!("events: {carrier} {who} anew");
            if wanted.case(&name) {
                println!("{name:28} {}", anew(paths, end));
            }
        }
    }
}

/// Bytes that had come by a time: (time, bytes).
type Timeline = Vec<(Instant, u64)>;

fn watch(count: impl Fn() -> u64) -> Timeline {
    let until = clock::now() + WATCHED;
    let mut timeline = vec![(clock::now(), count())];
    while clock::now() < until {
        wait(LOOK);
        timeline.push((clock::now(), count()));
    }
    timeline
}

/// The longest time in which nothing came.
fn longest_silence(timeline: &Timeline) -> Duration {
    let mut last = timeline[0];
    let mut longest = Duration::ZERO;
    for now in timeline {
        if now.1 != last.1 {
            longest = longest.max(now.0 - last.0);
            last = *now;
        }
    }
    longest.max(timeline.last().map_or(Duration::ZERO, |end| end.0 - last.0))
}

/// Time at which the rate over [`SPAN`] first reached `least` Mbit/s, from the start.
fn reaches(timeline: &Timeline, least: f64) -> Option<Duration> {
    let start = timeline[0].0;
    timeline.iter().find_map(|(at, bytes)| {
        let past = timeline.iter().rev().find(|(then, _)| *then + SPAN <= *at)?;
        let rate = (bytes - past.1) as f64 * 8.0 / 1e6 / (*at - past.0).as_secs_f64();
        (rate >= least).then(|| *at - start)
    })
}

/// A cable of three is pulled, or falls silent without a word, under four flows; later it is back.
fn trouble(paths: bool, silent: bool) -> String {
    let pair = Pair::new(CABLES).shaped(&[RATE; CABLES]);
    let (here, there) = start(&pair, paths);
    let load = Load::start(&pair, &Target::Tcp(FAR), (4, "cubic"));
    load.measure(WARM);
    let before = load.measure(Duration::from_secs(1));
    let queue = backlog(&pair);
    if silent {
        for host in &pair.hosts {
            pair.tc(host, &format!("qdisc replace dev if{CABLE} root pfifo limit 0"));
        }
    } else {
        let pull = || ip::run(&format!("link del if{CABLE}"));
        pair.hosts[0].run(pull).expect("it is there");
    }
    // Packets, as TCP holds back what came behind a loss.
    let after = watch(|| device(&pair, 1, "t0", RX_BYTES));
    let lost = lost(&here, &there);
    let rest = before * (CABLES - 1) as f64 / CABLES as f64;
    let again = reaches(&after, 0.9 * rest);
    if !silent {
        pair.plug(CABLE);
    }
    pair.shape(CABLE, RATE);
    let dev = format!("if{CABLE}");
    let returned = watch(|| device(&pair, 0, &dev, TX_BYTES));
    let carries = |share: f64| millis(reaches(&returned, share * f64::from(RATE)));
    format!(
        "no packet for {} at most, {lost} frames lost ({queue} were in the cable's queue), 90 % of \
         the rest's rate after {}; back: a tenth of its share after {}, 90 % after {}",
        millis(Some(longest_silence(&after))),
        millis(again),
        carries(0.1),
        carries(0.9)
    )
}

/// Frames that left on the cable and did not arrive.
fn lost(here: &Trunk<'_>, there: &Trunk<'_>) -> u64 {
    let link = CABLE.to_string();
    let sent = number(&here.shown(), &["links", &link, "frames_sent"]);
    sent.saturating_sub(number(&there.shown(), &["links", &link, "frames_received"]))
}

/// Packets in the queue of the cable at host 1.
fn backlog(pair: &Pair) -> String {
    let said = pair.tc(&pair.hosts[0], &format!("-s qdisc show dev if{CABLE}"));
    let word = said.split_whitespace().skip_while(|word| *word != "backlog").nth(2);
    word.unwrap_or("?").trim_end_matches('p').to_owned()
}

/// Columns of `/proc/net/dev`.
const RX_BYTES: usize = 0;
const TX_BYTES: usize = 8;

/// A counter of an interface of one host; 0 while it is not there.
fn device(pair: &Pair, host: usize, dev: &str, column: usize) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let table = pair.hosts[host].run(read).expect("the kernel has it");
    let prefix = format!("{dev}:");
    let line = table.lines().find_map(|line| line.trim().strip_prefix(prefix.as_str()));
    line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok()).unwrap_or(0)
}

/// One end is killed and started at once. A steady stream shows the trunk alone; a TCP flow waits
/// for its own retransmission as well.
fn anew(paths: bool, end: usize) -> String {
    let pair = Pair::new(CABLES).shaped(&[RATE; CABLES]);
    let members = if paths { pair.paths() } else { pair.frames() };
    let (here, there) = start(&pair, paths);
    let load = Load::start(&pair, &Target::Tcp(FAR), (1, "cubic"));
    let stream = Stream::start(&pair);
    load.measure(WARM);
    let (killed, _kept) = if end == 0 { (here, there) } else { (there, here) };
    killed.kill();
    let from = clock::now();
    let at_death = (stream.received(), load.received());
    let _anew = Trunk::start(&pair.hosts[end], &pair.line(end, &members));
    let ready = clock::now() - from;
    let (mut steady, mut tcp) = (None, None);
    let until = from + WATCHED * 2;
    while (steady.is_none() || tcp.is_none()) && clock::now() < until {
        let passed = clock::now() - from;
        steady = steady.or_else(|| (stream.received() > at_death.0).then_some(passed));
        tcp = tcp.or_else(|| (load.received() > at_death.1).then_some(passed));
        wait(LOOK);
    }
    let text = format!(
        "back after {}, of which {} were its start; TCP after {}",
        millis(steady),
        millis(Some(ready)),
        millis(tcp)
    );
    stream.stop();
    text
}

fn millis(time: Option<Duration>) -> String {
    time.map_or("never".to_owned(), |time| format!("{:.0} ms", time.as_secs_f64() * 1e3))
}

/// Small packets on a beat, whether there is an interface or not.
struct Stream {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    own: (UdpSocket, std::net::SocketAddr),
}

impl Stream {
    fn start(pair: &Pair) -> Stream {
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let to = pair.hosts[1].run(|| UdpSocket::bind("0.0.0.0:6000")).expect("it is free");
        let from = pair.hosts[0].run(|| UdpSocket::bind("0.0.0.0:0")).expect("it is free");
        let own = (to.try_clone().expect("a descriptor"), ([127, 0, 0, 1], 6000).into());
        let (ended, count) = (stop.clone(), received.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 256];
            while to.recv(&mut bytes).is_ok() && !ended.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let ended = stop.clone();
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                // Without the interface there is no way; the beat goes on.
                let _ = from.send_to(&[0; 200], (FAR, 6000));
                wait(Duration::from_secs(1) / BEAT as u32);
            }
        });
        Stream { stop, received, own }
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.own.0.send_to(&[], self.own.1);
    }
}
