//! Where a little loss or jitter on one link made a trunk slower than the other link alone: plain
//! TCP over each link, the trunk, and the kernel's MPTCP, in turn; medians.

use crate::links::{KeptUp, Link, Linked, link};
use crate::load::{Load, Target, Way};
use crate::{FAR, Wanted, median, mptcp};

struct Case {
    name: &'static str,
    links: [Link; 2],
    control: &'static str,
    ways: &'static [Way],
}

/// A mobile network whose rate goes up and down: Mbit/s, in turn.
const SWING: &[u32] = &[50, 75, 100, 125, 150, 125, 100, 75];

const ONE: &[Way] = &[Way::Forth];
const FOUR: &[Way] = &[Way::Forth; 4];
const BOTH: &[Way] = &[Way::Forth, Way::Back];

fn cases() -> [Case; 12] {
    let case = |name, links, control, ways| Case { name, links, control, ways };
    // Where no delay was said: that of a good fixed line.
    let clean = link(20, 10.0);
    let two = [clean.loss(2.0), clean];
    let jitter = [clean.jitter(9.0), clean];
    let mobile = [link(100, 20.0).loss(1.0).swing(SWING), link(20, 50.0)];
    [
        case("20 with 2 % loss + 20", two, "cubic", ONE),
        case("20 with 2 % loss + 20", two, "cubic", FOUR),
        case("20 with 2 % loss + 20", two, "bbr", ONE),
        case("20 with 0.5 % loss + 20", [clean.loss(0.5), clean], "cubic", ONE),
        case("20±9 ms + 20", jitter, "cubic", ONE),
        case("20±9 ms + 20", jitter, "bbr", ONE),
        case("LTE 20 at 50 ms + DSL 5 at 10 ms", [link(20, 50.0), link(5, 10.0)], "bbr", ONE),
        case("100 + 1", [link(100, 10.0), link(1, 10.0)], "cubic", ONE),
        case("geostationary 10 at 300 ms + 20", [link(10, 300.0), clean], "cubic", ONE),
        case("50 to 150 with 1 % loss + LTE 20", mobile, "bbr", FOUR),
        case("50 to 150 with 1 % loss + LTE 20", mobile, "cubic", ONE),
        case("20 + 10, both directions at once", [clean, link(10, 10.0)], "cubic", BOTH),
    ]
}

/// By what the flows go.
#[derive(Clone, Copy)]
enum By {
    Link(usize),
    Trunk,
    Mptcp,
}

const TURN: [By; 4] = [By::Link(0), By::Link(1), By::Trunk, By::Mptcp];

/// Prints a row for each case.
pub fn table(wanted: &Wanted) {
    let cases = cases();
    let cases: Vec<&Case> = cases.iter().filter(|case| wanted.case(case.name)).collect();
    if cases.is_empty() {
        return;
    }
    println!("loss: Mbit/s, {} rounds of {} s, medians", wanted.rounds, wanted.time.as_secs());
    println!();
    println!(
        "| links | flows | link 1 | link 2 | trunk | MPTCP | of best | of MPTCP | late, ms | \
         first |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut skipped = None;
    for case in cases {
        let mut rates = TURN.map(|_| Vec::new());
        let mut kept_up = KeptUp::default();
        for round in 0..wanted.rounds {
            for (by, rates) in TURN.into_iter().zip(&mut rates) {
                match measure(case, by, round, wanted) {
                    Ok((rate, one)) => {
                        rates.push(rate);
                        kept_up.with(one);
                    }
                    Err(why) => skipped = Some(why),
                }
            }
        }
        let [one, two, trunk, mptcp] = rates.map(median);
        let best = one.max(two);
        // Without MPTCP there is nothing to compare with, which is not a defeat.
        let first = trunk >= best && (mptcp.is_nan() || trunk >= mptcp);
        println!(
            "| {} | {} {} | {one:.1} | {two:.1} | {trunk:.1} | {} | {:.2} | {} | {kept_up} | {} |",
            case.name,
            case.ways.len(),
            case.control.to_uppercase(),
            known(mptcp, 1),
            trunk / best,
            known(trunk / mptcp, 2),
            if first { "yes" } else { "no" }
        );
    }
    println!();
    if let Some(why) = skipped {
        println!("loss: MPTCP was skipped at least once: {why}");
    }
}

/// With so many digits, or a dash where there is no number.
fn known(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// Mbit/s of all flows of a case together; why there is no MPTCP.
fn measure(case: &Case, by: By, round: usize, wanted: &Wanted) -> Result<(f64, KeptUp), String> {
    let linked = Linked::new(&case.links, round);
    let trunks = matches!(by, By::Trunk).then(|| linked.trunks());
    let tcp =
        |address: &str| Load::ways(&linked.pair, &Target::Tcp(address), case.control, case.ways);
    let load = match by {
        By::Link(number) => tcp(&Linked::address(number)),
        By::Trunk => tcp(FAR),
        By::Mptcp => mptcp::start(&linked.pair, case.control, case.ways)?,
    };
    Ok(linked.measure(&load, trunks.as_ref(), wanted.time))
}
