//! The kernel's MPTCP over the same links: both applications ask for it.

use crate::load::{Load, Target, Way, within_seconds};
use crate::pair::Pair;
use sheaf_netio::ip;

/// Host 2 tells its other addresses, host 1 joins by each: flows with every link joined, or why
/// there are none.
pub fn start(pair: &Pair, control: &str, ways: &[Way]) -> Result<Load, String> {
    if !std::path::Path::new("/proc/sys/net/mptcp").exists() {
        return Err("this kernel has no MPTCP (CONFIG_MPTCP)".to_owned());
    }
    let set = |host: usize, line: &str| {
        let done = pair.hosts[host].run(|| ip::run(line));
        done.map_err(|error| format!("{error}; install a newer iproute2"))
    };
    for host in 0..2 {
        // An address that was lost on its way is told again after a second, not after two minutes.
        for (name, value) in [("enabled", "1"), ("add_addr_timeout", "1")] {
            let write = || std::fs::write(format!("/proc/sys/net/mptcp/{name}"), value);
            pair.hosts[host]
                .run(write)
                .map_err(|error| format!("{name} cannot be set: {error}"))?;
        }
        set(host, "mptcp limits set subflow 8 add_addr_accepted 8")?;
    }
    for cable in 1..pair.cables {
        set(1, &format!("mptcp endpoint add 10.1.{cable}.2 dev if{cable} signal"))?;
    }
    let load = Load::ways(pair, &Target::Mptcp("10.1.0.2"), control, ways);
    let wanted = pair.cables * ways.len();
    if !within_seconds(|| subflows(pair) == wanted) {
        return Err(format!("only {} of {wanted} subflows joined in 5 s", subflows(pair)));
    }
    Ok(load)
}

/// Connections from host 1 to the port of the load.
fn subflows(pair: &Pair) -> usize {
    let table = || std::fs::read_to_string("/proc/thread-self/net/tcp");
    let table = pair.hosts[0].run(table).unwrap_or_default();
    // The other end's port 5001, state 1 (established).
    table.lines().filter(|line| line.contains(":1389 01 ")).count()
}
