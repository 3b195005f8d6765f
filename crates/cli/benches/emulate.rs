//! Cost and precision of `sheaf emulate link`, beside a bare cable, a bare forwarder over
//! the same datapath, and the kernel's token bucket filter, in one run. Needs root. Words after
//! `--` choose parts:
//!
//! * `cost`: 64-byte UDP and bulk TCP;
//! * `rtt`: the delay, of the link alone and as users see it; `realtime`: what makes it more
//!   punctual;
//! * `rate`: the rate achieved;
//! * `links`: hundreds of links in one process;
//! * `netem`: beside the real one, where the kernel has it.

#[path = "emulate/cost.rs"]
mod cost;
#[path = "emulate/links.rs"]
mod links;
#[path = "../tests/many/mod.rs"]
mod many;
#[path = "emulate/netem.rs"]
mod netem;
#[path = "emulate/path.rs"]
mod path;
#[path = "emulate/rate.rs"]
mod rate;
#[path = "emulate/trips.rs"]
mod trips;

fn main() {
    let parts: [(&str, fn()); 6] = [
        ("cost", cost::run),
        ("rtt", trips::run),
        ("realtime", trips::realtime),
        ("rate", rate::run),
        ("links", links::run),
        ("netem", netem::run),
    ];
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, part) in parts {
        if words.is_empty() || words.iter().any(|word| word == name) {
            part();
        }
    }
}
