//! Queues of a device: the order in which they serve frames, and a rate that they are given.
//!
//! Own frames under way show how busy a device is ([`sheaf_bpf::Controller::track`]), but not
//! whether strangers' frames matter. In a FIFO a packet that waits outside loses its place to every
//! stranger's frame that comes meanwhile, so nothing waits while they send. Fair queues (fq_codel,
//! cake, the queues of mac80211) serve strangers beside us, whoever came first.
//!
//! Where a discipline sets the rate, a frame waits for the bytes before it and for no other
//! station.

use sheaf_netio::netlink::Netlink;
use sheaf_netio::qdisc::{self, Discipline};
use sheaf_netio::sysfs::Interfaces;
use std::fmt;

/// Disciplines that serve flows in turn, by the flow hash of their frames.
const FAIR: [&str; 6] = ["fq_codel", "cake", "cake_mq", "fq", "fq_pie", "sfq"];
/// Disciplines that hold nothing, but share a device's queues or a rate out to those below them.
const TRANSPARENT: [&str; 9] =
    ["mq", "mqprio", "tbf", "htb", "hfsc", "prio", "drr", "ets", "multiq"];
/// Disciplines that set a rate.
const SHAPERS: [&str; 6] = ["tbf", "htb", "hfsc", "cake", "cake_mq", "netem"];
/// Devices below one another, at most: a bridge of VLANs of a bond has three.
const DEPTH: usize = 8;

/// How a device orders frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they come, or unknown.
    Fifo,
    /// By flow.
    Fair,
}

/// The queues of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Order of their frames.
    pub order: Order,
    /// Whether a discipline sets the rate.
    pub shaped: bool,
}

impl Queues {
    /// Queues of interface `dev`, number `ifindex`.
    pub fn of(netlink: &mut Netlink, dev: &str, ifindex: u32) -> anyhow::Result<Queues> {
        Queues::below(netlink, dev, ifindex, DEPTH)
    }

    fn below(
        netlink: &mut Netlink,
        dev: &str,
        ifindex: u32,
        depth: usize,
    ) -> anyhow::Result<Queues> {
        let disciplines = qdisc::disciplines(netlink, ifindex)?;
        let queues = disciplines.iter().any(|one| one.root && one.kind != "noqueue");
        if queues {
            return Ok(of(&disciplines));
        }
        let interfaces = Interfaces::default();
        // mac80211 has no discipline but queues of its own for each station and class.
        if interfaces.is_radio(dev) {
            return Ok(Queues { order: Order::Fair, shaped: false });
        }
        // A device on top of others (VLAN, bridge, bat0) is what they are: fair where all are, and
        // shaped where one is.
        let lower = interfaces.lower(dev);
        let mut all = Queues { order: Order::Fifo, shaped: false };
        if depth == 0 {
            return Ok(all);
        }
        let mut fair = !lower.is_empty();
        for name in lower {
            // In another namespace: what it is stays unknown.
            let Ok(ifindex) = sheaf_netio::ip::index(&name) else {
                fair = false;
                continue;
            };
            let one = Queues::below(netlink, &name, ifindex, depth - 1)?;
            fair &= one.order == Order::Fair;
            all.shaped |= one.shaped;
        }
        all.order = if fair { Order::Fair } else { Order::Fifo };
        Ok(all)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Fifo => "fifo",
            Order::Fair => "fair queues",
        })
    }
}

/// Fair where every discipline that holds packets is.
fn of(disciplines: &[Discipline]) -> Queues {
    let mut holding = disciplines.iter().filter(|one| !TRANSPARENT.contains(&one.kind.as_str()));
    let any = holding.clone().next().is_some();
    let fair = any && holding.all(|one| FAIR.contains(&one.kind.as_str()));
    Queues {
        order: if fair { Order::Fair } else { Order::Fifo },
        shaped: disciplines.iter().any(|one| SHAPERS.contains(&one.kind.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(kinds: &[&str]) -> Queues {
        let one =
            |(at, kind): (usize, &&str)| Discipline { kind: (*kind).to_owned(), root: at == 0 };
        of(&kinds.iter().enumerate().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn a_device_is_shaped_where_any_discipline_sets_a_rate() {
        for kinds in [&["cake"][..], &["tbf", "fq_codel"], &["htb", "pfifo"], &["prio", "tbf"]] {
            assert!(queues(kinds).shaped, "{kinds:?}");
        }
        for kinds in [&["fq_codel"][..], &["mq", "fq_codel"], &["pfifo_fast"], &["prio", "sfq"]] {
            assert!(!queues(kinds).shaped, "{kinds:?}");
        }
    }

    #[test]
    fn a_device_is_fair_where_all_that_holds_packets_is() {
        let of = |kinds: &[&str]| queues(kinds).order;
        assert_eq!(of(&["fq_codel"]), Order::Fair);
        assert_eq!(of(&["mq", "fq_codel", "fq_codel"]), Order::Fair);
        assert_eq!(of(&["tbf", "fq_codel"]), Order::Fair);
        assert_eq!(of(&["cake"]), Order::Fair);
        assert_eq!(of(&["htb", "fq_codel", "fq_codel"]), Order::Fair);
        for kinds in [
            &["pfifo_fast"][..],
            &["tbf"],
            &["tbf", "bfifo"],
            &["htb"],
            &["htb", "pfifo", "fq_codel"],
            &["mq", "fq_codel", "pfifo_fast"],
            &["netem"],
        ] {
            assert_eq!(of(kinds), Order::Fifo, "{kinds:?}");
        }
    }
}
