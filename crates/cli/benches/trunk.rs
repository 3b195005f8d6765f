//! What a trunk carries, what it costs, and how it takes trouble, beside the kernel's MPTCP and
//! vtun: `cargo bench -p sheaf --bench trunk [-- PART... [WORD...]]`. Needs root; under 6 minutes
//! in all.
//!
//! Two hosts in namespaces joined by cables, real TCP, all in one run, so that the ratios hold
//! whatever else the machine does. WORDs pick cases by their names. The parts:
//!
//! * `three`: 20 Mbit/s, then 3 × 20, with CUBIC and BBR;
//! * `unequal`: 20 + 10 Mbit/s, then 20 + 5 while it runs;
//! * `peers`: plain TCP over the best link, MPTCP and vtun over the same cables;
//! * `events`: a cable is pulled, falls silent, comes back; either end starts anew;
//! * `call`: a call beside a download while one link of three loses a tenth;
//! * `key`: TCP over a cable without a limit, plain and with a key.

#[path = "trunk/call.rs"]
mod call;
#[path = "trunk/events.rs"]
mod events;
#[path = "trunk/load.rs"]
mod load;
#[path = "../tests/pair/mod.rs"]
mod pair;
#[path = "trunk/peers.rs"]
mod peers;

use load::{Load, Target};
use pair::{Pair, Trunk};
use sheaf_stage::Duration;

const PARTS: [&str; 6] = ["three", "unequal", "peers", "events", "call", "key"];
/// Long enough for slow start and for the rates to be learned.
const WARM: Duration = Duration::from_millis(1200);
const MEASURED: Duration = Duration::from_millis(3000);
const CONTROLS: [(usize, &str); 4] = [(1, "cubic"), (4, "cubic"), (1, "bbr"), (4, "bbr")];
/// Host 2 through the trunk.
const FAR: &str = "10.99.0.2";

/// What was asked for.
struct Wanted {
    parts: Vec<String>,
    words: Vec<String>,
}

impl Wanted {
    fn part(&self, name: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| part == name)
    }

    fn case(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return; // a test run builds it, no more
    }
    if !nix::unistd::geteuid().is_root() {
        println!("this benchmark needs root");
        return;
    }
    let words = words.into_iter().filter(|word| !word.starts_with("--"));
    let (parts, words) = words.partition(|word| PARTS.contains(&word.as_str()));
    let wanted = Wanted { parts, words };
    if wanted.part("three") {
        three(&wanted);
    }
    if wanted.part("unequal") {
        unequal(&wanted);
    }
    if wanted.part("peers") {
        peers::compare(&wanted);
    }
    if wanted.part("events") {
        events::all(&wanted);
    }
    if wanted.part("call") {
        call::both(&wanted);
    }
    if wanted.part("key") {
        key(&wanted);
    }
}

/// Every control and both carriers, with the name of the case.
fn cases<'a>(
    wanted: &'a Wanted,
    part: &'a str,
) -> impl Iterator<Item = (String, (usize, &'static str), bool)> + 'a {
    let both = CONTROLS.into_iter().flat_map(|flows| [(flows, false), (flows, true)]);
    both.filter_map(move |((flows, control), paths)| {
        let carrier = if paths { "UDP" } else { "Ethernet" };
        let name = format!("{part}: {carrier} {flows} {control}");
        wanted.case(&name).then_some((name, (flows, control), paths))
    })
}

fn three(wanted: &Wanted) {
    for (name, flows, paths) in cases(wanted, "three") {
        let one = shaped(&[20], flows, paths);
        let three = shaped(&[20; 3], flows, paths);
        println!("{name:26} 20: {one:6.2} Mbit/s; 3 × 20: {three:6.2}, {:.2} times", three / one);
    }
}

fn unequal(wanted: &Wanted) {
    for (name, flows, paths) in cases(wanted, "unequal") {
        let pair = Pair::new(2).shaped(&[20, 10]);
        let trunks = start(&pair, paths);
        let load = Load::start(&pair, &Target::Tcp(FAR), flows);
        load.measure(WARM);
        let before = load.measure(MEASURED);
        pair.shape(1, 5);
        load.measure(WARM);
        let after = load.measure(MEASURED);
        load.stop();
        show(&trunks);
        println!(
            "{name:26} 20 + 10: {before:6.2} Mbit/s ({:.3} of the sum of rates), \
             then 20 + 5: {after:6.2} ({:.3})",
            before / 30.0,
            after / 25.0
        );
    }
}

/// Rounds of plain and keyed trunks in turn, of which the medians count.
const ROUNDS: usize = 5;

fn key(wanted: &Wanted) {
    if !wanted.case("key") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    let new = sheaf_daemon::trunk::key::make().expect("random numbers");
    std::fs::write(&file, new.to_text().as_str()).expect("a file");
    let mine = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mine).expect("our file");
    let words = format!("key {}", file.display());
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (rates, words) in rates.iter_mut().zip(["", words.as_str()]) {
            let mut pair = Pair::new(1);
            pair.keyed = !words.is_empty();
            let trunks = pair.trunks_with(&pair.paths(), words);
            let load = Load::start(&pair, &Target::Tcp(FAR), (4, "cubic"));
            load.measure(WARM);
            rates.push(load.measure(MEASURED));
            load.stop();
            show(&trunks);
        }
    }
    let [plain, keyed] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2] / 1e3
    });
    println!("key: plain {plain:.2} Gbit/s; keyed {keyed:.2}, {:.2} of it", keyed / plain);
}

/// Megabits a second of TCP payload over links of these rates.
fn shaped(rates: &[u32], flows: (usize, &str), paths: bool) -> f64 {
    let pair = Pair::new(rates.len()).shaped(rates);
    let trunks = start(&pair, paths);
    let load = Load::start(&pair, &Target::Tcp(FAR), flows);
    load.measure(WARM);
    let rate = load.measure(MEASURED);
    load.stop();
    show(&trunks);
    rate
}

/// A trunk over every cable, by UDP or by bare frames.
fn start(pair: &Pair, paths: bool) -> (Trunk<'_>, Trunk<'_>) {
    pair.trunks(&if paths { pair.paths() } else { pair.frames() })
}

/// Prints what both ends know, where that is asked for.
fn show((here, there): &(Trunk<'_>, Trunk<'_>)) {
    if std::env::var_os("TRUNK_SHOW").is_some() {
        println!("{:#}\n{:#}", here.shown(), there.shown());
    }
}
