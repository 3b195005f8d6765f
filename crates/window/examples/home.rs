//! Window control in the home of the tests, by scenario: medians of seeds with their range, in
//! virtual time.
//!
//!     cargo run -p sheaf-window --example home [SEEDS [SCENARIO]]

use sheaf_stage::Bitrate;
use sheaf_tcp::Algorithm::{self, Bbr, Cubic};
use sheaf_window::Direction::{In, Out};
use sheaf_window::{Config, Controller, Direction, Policy, Source};

#[path = "../tests/home_rig/mod.rs"]
mod home_rig;
use home_rig::Carrier::{Quic, Tcp, Unseen};
use home_rig::{Carrier, Rig, Trace, cable, lte, satellite};

const DOWN: f64 = 20e6;
const UP: f64 = 4e6;
/// Seconds after which transfers begin, after which the first second is over, after which all are
/// taken to have settled, and of a whole run.
const BEGIN: f64 = 2.0;
const FIRST: f64 = 3.0;
const SETTLED: f64 = 7.0;
const END: f64 = 22.0;
/// The same of links that change.
const LONG: f64 = 60.0;

type Set = fn(&mut Rig);
type Shape = fn(u64, f64) -> Trace;

const SCENARIOS: &[(&str, Set)] = &[
    ("down-1-cubic", |rig| add(rig, In, Cubic, 1)),
    ("down-1-bbr", |rig| add(rig, In, Bbr, 1)),
    ("down-4-cubic", |rig| add(rig, In, Cubic, 4)),
    ("up-1-cubic", |rig| add(rig, Out, Cubic, 1)),
    ("up-1-bbr", |rig| add(rig, Out, Bbr, 1)),
    ("both-1-cubic", |rig| both(rig, Cubic, 1)),
    ("both-4-cubic", |rig| both(rig, Cubic, 4)),
    ("both-1-bbr", |rig| both(rig, Bbr, 1)),
    ("udp-12m", |rig| {
        rig.slow[0].udp = vec![(0.5, 12e6)];
        add(rig, In, Cubic, 1);
    }),
    ("begin-8", |rig| add(rig, In, Cubic, 8)),
    ("begin-32", |rig| add(rig, In, Cubic, 32)),
    ("begin-100", |rig| add(rig, In, Cubic, 100)),
    ("begin-32-up", |rig| add(rig, Out, Cubic, 32)),
];
/// Pages: their direction, how many bulk transfers are beside them, and the bytes of each.
const PAGES: &[(&str, Direction, usize, u64)] = &[
    ("page-30k", In, 0, 30_000),
    ("page-100k", In, 0, 100_000),
    ("page-300k", In, 0, 300_000),
    ("page-1m", In, 0, 1_000_000),
    ("page-30k-beside", In, 1, 30_000),
    ("page-100k-beside", In, 1, 100_000),
    ("page-300k-beside", In, 1, 300_000),
    ("page-30k-up", Out, 0, 30_000),
    ("page-100k-up", Out, 0, 100_000),
];
/// Pages of a run, and the seconds between two.
const PAGE_COUNT: u32 = 20;
const PAGE_EVERY: f64 = 0.73;
/// Half of the traffic is not governed by windows.
const MIXES: &[(&str, Set)] = &[
    ("rest-1-1", |rig| mix(rig, In, Cubic, [(Tcp, 1), (Quic, 1)])),
    ("rest-1-1-bbr", |rig| mix(rig, In, Bbr, [(Tcp, 1), (Quic, 1)])),
    ("rest-1-1-bbr-unseen", |rig| mix(rig, In, Bbr, [(Tcp, 1), (Unseen, 1)])),
    ("rest-4-4-bbr", |rig| mix(rig, In, Bbr, [(Tcp, 4), (Unseen, 4)])),
    ("rest-4-4", |rig| mix(rig, In, Cubic, [(Tcp, 4), (Quic, 4)])),
    ("rest-1-1-unseen", |rig| mix(rig, In, Cubic, [(Tcp, 1), (Unseen, 1)])),
    ("rest-0-1", |rig| mix(rig, In, Cubic, [(Tcp, 0), (Quic, 1)])),
    ("rest-0-1-bbr", |rig| mix(rig, In, Bbr, [(Tcp, 0), (Quic, 1)])),
    ("rest-1-1-up", |rig| mix(rig, Out, Cubic, [(Tcp, 1), (Quic, 1)])),
    ("rest-0-1-up", |rig| mix(rig, Out, Cubic, [(Tcp, 0), (Quic, 1)])),
    ("rest-udp-up", |rig| {
        rig.slow[1].udp = vec![(BEGIN, 6e6)];
        add(rig, Out, Cubic, 1);
    }),
];
const SHAPES: &[(&str, Shape)] = &[("lte", lte), ("satellite", satellite), ("cable", cable)];

fn add(rig: &mut Rig, direction: Direction, control: Algorithm, count: usize) {
    (0..count).for_each(|_| rig.transfer(direction, control, BEGIN, None));
}

fn mix(rig: &mut Rig, direction: Direction, control: Algorithm, all: [(Carrier, usize); 2]) {
    for (carrier, count) in all {
        (0..count).for_each(|_| rig.transfer_by(carrier, direction, control, BEGIN, None));
    }
}

fn both(rig: &mut Rig, control: Algorithm, count: usize) {
    add(rig, In, control, count);
    add(rig, Out, control, count);
}

/// The controllers of `way`: none, one for each direction that knows its rate, or that finds it;
/// with `police` they hold the rest to its share, too.
fn controllers(way: &str) -> Vec<Controller> {
    let make = |(direction, rate): (Direction, f64)| {
        let given = Source::Given(Bitrate::from_bps(rate as u64));
        let capacity = if way.starts_with("given") { given } else { Source::AUTO };
        let rest = if way.ends_with("police") { Policy::Police } else { Policy::Leave };
        Controller::new(Config { capacity, rest, ..Config::default() }, direction)
    };
    let rates = Direction::BOTH.into_iter().zip([DOWN, UP]);
    let all = rates.map(make).collect::<Result<_, _>>().expect("the parameters are in range");
    if way == "nothing" { Vec::new() } else { all }
}

fn print<const COLUMNS: usize>(what: &str, way: &str, rows: &[[f64; COLUMNS]]) {
    let column = |which: usize| {
        let mut all: Vec<f64> = rows.iter().map(|row| row[which]).collect();
        all.sort_unstable_by(f64::total_cmp);
        let [low, mid, high] = [0, all.len() / 2, all.len() - 1].map(|at| all[at]);
        format!("{mid:7.2} ({low:.2} to {high:.2})")
    };
    let columns: Vec<_> = (0..COLUMNS).map(column).collect();
    println!("{what:20} {way:12} {}", columns.join(" "));
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds = arguments.next().and_then(|seeds| seeds.parse().ok()).unwrap_or(10);
    let wanted = arguments.next().unwrap_or_default();
    println!("Mbit/s down, up; ping above idle, p99 of the first second and later, ms; drops");
    for (name, set) in SCENARIOS.iter().filter(|(name, _)| name.starts_with(&wanted)) {
        for way in ["nothing", "given", "auto"] {
            let run = |seed| {
                let traces = [vec![(0.0, DOWN)], vec![(0.0, UP)]];
                let mut rig = Rig::new(controllers(way), traces, 40.0, 300.0, seed);
                set(&mut rig);
                rig.run(END);
                [
                    rig.carried(In, SETTLED, END) / 1e6,
                    rig.carried(Out, SETTLED, END) / 1e6,
                    rig.ping(BEGIN, FIRST, 0.99),
                    rig.ping(FIRST, END, 0.99),
                    rig.slow.iter().map(|slow| slow.drops as f64).sum(),
                ]
            };
            print(name, way, &(0..seeds).map(run).collect::<Vec<_>>());
        }
    }
    println!("ms that a page takes, median and p95, of so many kB; ping p99");
    for (name, direction, bulk, bytes) in
        PAGES.iter().filter(|(name, ..)| name.starts_with(&wanted))
    {
        for way in ["nothing", "given", "auto"] {
            let run = |seed| {
                let traces = [vec![(0.0, DOWN)], vec![(0.0, UP)]];
                let mut rig = Rig::new(controllers(way), traces, 40.0, 300.0, seed);
                add(&mut rig, *direction, Cubic, *bulk);
                (0..PAGE_COUNT).for_each(|page| {
                    let start = SETTLED + f64::from(page) * PAGE_EVERY;
                    rig.transfer(*direction, Cubic, start, Some(*bytes));
                });
                rig.run(SETTLED + f64::from(PAGE_COUNT + 4) * PAGE_EVERY);
                let mut took = rig.took();
                took.sort_unstable_by(f64::total_cmp);
                let at = |part: usize| took[took.len() * part / 100];
                [at(50), at(95), took.len() as f64, rig.ping(SETTLED, SETTLED + 10.0, 0.99)]
            };
            print(name, way, &(0..seeds).map(run).collect::<Vec<_>>());
        }
    }
    println!("Mbit/s of TCP, of the rest; ping likewise; pings lost; packets dropped by the stage");
    for (name, set) in MIXES.iter().filter(|(name, _)| name.starts_with(&wanted)) {
        for way in ["nothing", "given", "given police", "auto", "auto police"] {
            let run = |seed| {
                let traces = [vec![(0.0, DOWN)], vec![(0.0, UP)]];
                let mut rig = Rig::new(controllers(way), traces, 40.0, 300.0, seed);
                set(&mut rig);
                rig.run(END);
                let carried = |carrier| {
                    let ways =
                        Direction::BOTH.map(|way| rig.carried_by(carrier, way, SETTLED, END));
                    ways.into_iter().sum::<f64>() / 1e6
                };
                [
                    carried(Tcp),
                    carried(Quic) + carried(Unseen),
                    rig.ping(BEGIN, FIRST, 0.99),
                    rig.ping(FIRST, END, 0.99),
                    rig.lost_pings as f64,
                    rig.policed as f64,
                ]
            };
            print(name, way, &(0..seeds).map(run).collect::<Vec<_>>());
        }
    }
    println!("part of the capacity; wait in the queue, p50 and p95, ms; R of a call");
    for (name, shape) in SHAPES.iter().filter(|(name, _)| name.starts_with(&wanted)) {
        for (control, count) in [(Cubic, 1), (Cubic, 4), (Bbr, 1), (Bbr, 4)] {
            for (is_fair, queue) in [(false, ""), (true, " fq")] {
                for way in ["nothing", "auto"] {
                    let run = |seed| {
                        let traces = [shape(seed + 1, LONG), vec![(0.0, UP)]];
                        let mut rig = Rig::new(controllers(way), traces, 40.0, 300.0, seed);
                        if is_fair {
                            rig.queue_fairly();
                        }
                        add(&mut rig, In, control, count);
                        rig.call(BEGIN);
                        rig.run(LONG);
                        [
                            rig.carried(In, SETTLED, LONG) / rig.slow[0].capacity(SETTLED, LONG),
                            rig.waited(In, SETTLED, LONG, 0.5),
                            rig.waited(In, SETTLED, LONG, 0.95),
                            rig.call_rating(),
                        ]
                    };
                    let what = format!("{name} {control:?} {count}{queue}");
                    print(&what, way, &(0..seeds).map(run).collect::<Vec<_>>());
                }
            }
        }
    }
}
