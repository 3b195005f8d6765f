//! Throughput of a trunk, its cost, and its conduct in trouble, beside the kernel's MPTCP and
//! vtun: `cargo bench -p sheaf --bench trunk [-- [PART] [WORD...]]`. Needs root; under 6 minutes
//! in all but for `mixes` and `loss`, which take two hours unless ROUNDS and SECONDS say less.
//!
//! Two hosts in namespaces joined by cables, real TCP, all in one run, so that the ratios hold
//! whatever else the machine does. WORDs pick cases by their names. The parts:
//!
//! * `three`: 20 Mbit/s, then 3 × 20, with CUBIC and BBR;
//! * `unequal`: 20 + 10 Mbit/s, then 20 + 5 while it runs;
//! * `peers`: plain TCP over the best link, MPTCP and vtun over the same cables;
//! * `events`: a cable is pulled, falls silent, comes back; either end starts anew;
//! * `call`: a call beside a download while one link of three loses a tenth;
//! * `key`: TCP over a cable without a limit, plain and with a key;
//! * `mixes`: sixteen mixes of two emulated links, CUBIC, BBR and QUIC, and a call;
//! * `loss`: links that lose, jitter and differ, with MPTCP beside.
//!
//! The last two take from the environment ROUNDS, how often everything is measured in turn (5),
//! and SECONDS, how long each time (6).

#[path = "trunk/call.rs"]
mod call;
#[path = "trunk/events.rs"]
mod events;
#[path = "trunk/links.rs"]
mod links;
#[path = "trunk/load.rs"]
mod load;
#[path = "trunk/losses.rs"]
mod losses;
#[path = "trunk/mixes.rs"]
mod mixes;
#[path = "trunk/mptcp.rs"]
mod mptcp;
#[path = "../tests/pair/mod.rs"]
mod pair;
#[path = "trunk/peers.rs"]
mod peers;
#[path = "trunk/quic.rs"]
mod quic;

use load::{Load, Target};
use pair::{Pair, Trunk};
use sheaf_stage::Duration;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

const PARTS: [&str; 8] = ["three", "unequal", "peers", "events", "call", "key", "mixes", "loss"];
/// Long enough for slow start and for the rates to be learned.
const WARM: Duration = Duration::from_millis(1200);
const MEASURED: Duration = Duration::from_millis(3000);
const CONTROLS: [(usize, &str); 4] = [(1, "cubic"), (4, "cubic"), (1, "bbr"), (4, "bbr")];
/// Most rounds, and most seconds of each.
const MOST: usize = 1000;
/// Host 2 through the trunk.
const FAR: &str = "10.99.0.2";

/// Parts that were asked for.
struct Wanted {
    /// All of them where none is named.
    part: Option<String>,
    words: Vec<String>,
    /// Rounds in which the parts with emulated links measure everything.
    rounds: usize,
    /// Time that each measurement takes.
    time: Duration,
}

impl Wanted {
    fn part(&self, name: &str) -> bool {
        self.part.as_ref().is_none_or(|part| part == name)
    }

    fn case(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }
}

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return Ok(()); // a test run builds it, no more
    }
    if !nix::unistd::geteuid().is_root() {
        println!("this benchmark needs root");
        return Ok(());
    }
    let mut words: Vec<_> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
    let named = words.first().is_some_and(|word| PARTS.contains(&word.as_str()));
    let wanted = Wanted {
        part: named.then(|| words.remove(0)),
        words,
        rounds: count("ROUNDS", 5)?,
        time: Duration::from_secs(count("SECONDS", 6)? as u64),
    };
    let parts: [fn(&Wanted); PARTS.len()] = [
        three,
        unequal,
        peers::compare,
        events::all,
        call::both,
        key,
        mixes::tables,
        losses::table,
    ];
    PARTS.iter().zip(parts).filter(|(name, _)| wanted.part(name)).for_each(|(_, run)| run(&wanted));
    Ok(())
}

/// A number from 1 of the environment, or what it is without.
fn count(name: &str, default: usize) -> Result<usize, String> {
    let Ok(text) = std::env::var(name) else { return Ok(default) };
    let wrong = || format!("{name} is {text:?}; give a whole number from 1 to {MOST}");
    text.parse().ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(wrong)
}

/// The middle one; not a number where there is none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A file of ours without a name, which goes with this process however that ends, and a path by
/// which others find it until then.
fn nameless(content: &str) -> (File, String) {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(content.as_bytes()).expect("the disk has room");
    file.set_permissions(Permissions::from_mode(0o600)).expect("it is ours");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    (file, path)
}

/// The words for a new key, and the file with it.
fn key_words() -> (File, String) {
    let new = sheaf_daemon::trunk::key::make().expect("random numbers");
    let (file, path) = nameless(&new.to_text());
    (file, format!("key {path}"))
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
    let (_file, words) = key_words();
    let whole = format!("{words} compress off");
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (rates, words) in rates.iter_mut().zip(["", &words, &whole]) {
            let mut pair = Pair::new(1);
            pair.keyed = !words.is_empty();
            let trunks = pair.trunks_with(&pair.paths(), words);
            let load = Load::start(&pair, &Target::Tcp(FAR), (4, "cubic"));
            load.measure(WARM);
            rates.push(load.measure(MEASURED));
            show(&trunks);
        }
    }
    let [plain, keyed, whole] = rates.map(|rates| median(rates) / 1e3);
    println!(
        "key: plain {plain:.2} Gbit/s; keyed {keyed:.2}, {:.2} of it; with whole headers \
         {whole:.2}, {:.2}",
        keyed / plain,
        whole / plain
    );
}

/// Megabits a second of TCP payload over links of these rates.
fn shaped(rates: &[u32], flows: (usize, &str), paths: bool) -> f64 {
    let pair = Pair::new(rates.len()).shaped(rates);
    let trunks = start(&pair, paths);
    let load = Load::start(&pair, &Target::Tcp(FAR), flows);
    load.measure(WARM);
    let rate = load.measure(MEASURED);
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
