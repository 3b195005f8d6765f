//! Radios on the way of the packets: where the kernel's own queues are fair already, and where each
//! acknowledgement takes the air from data.
//!
//! mac80211 has a queue for each station and flow (FQ-CoDel with airtime fairness), so what leaves
//! by it waits in no common queue. A radio sends or receives, and an acknowledgement costs about
//! half of what a full segment does; so no more of them are asked for ([`sheaf_window::Push`]).

use sheaf_netio::netlink::Netlink;
use sheaf_netio::qdisc;
use sheaf_netio::sysfs::Interfaces;

/// Radios at interface `dev`, and behind this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Air {
    /// The interface is a radio, or leads to one.
    is_radio: bool,
    /// It has a queueing discipline. mac80211 has queues of its own instead; the radio of a driver
    /// that does all by itself has a discipline.
    has_discipline: bool,
    /// Stations may be behind another radio.
    has_stations: bool,
}

impl Air {
    /// Of `dev` with number `ifindex`; what cannot be seen is taken not to be there.
    pub fn look(interfaces: &Interfaces, dev: &str, ifindex: u32) -> Air {
        let is_radio = interfaces.leads_to_radio(dev);
        // Only where it matters: the question is about all interfaces.
        let has_discipline = is_radio
            && Netlink::open()
                .and_then(|mut netlink| qdisc::disciplines(&mut netlink, ifindex))
                .is_ok_and(|all| all.iter().any(|one| one.root && one.kind != "noqueue"));
        Air { is_radio, has_discipline, has_stations: interfaces.has_other_radio(dev) }
    }

    /// Whether acknowledgements take the air of a radio.
    pub fn is_shared(self) -> bool {
        self.is_radio || self.has_stations
    }

    /// Whether what leaves by the interface has fair queues already.
    pub fn is_fair(self) -> bool {
        self.is_radio && !self.has_discipline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn air(is_radio: bool, has_discipline: bool, has_stations: bool) -> Air {
        Air { is_radio, has_discipline, has_stations }
    }

    #[test]
    fn a_radio_has_fair_queues_where_it_has_no_discipline() {
        assert!(air(true, false, false).is_fair());
        assert!(!air(true, true, false).is_fair(), "its driver does without mac80211");
        assert!(!air(false, false, true).is_fair(), "a cable, though stations are behind");
    }

    #[test]
    fn acknowledgements_share_the_air_on_a_radio_and_in_front_of_stations() {
        assert!(air(true, false, false).is_shared());
        assert!(air(true, true, false).is_shared());
        assert!(air(false, true, true).is_shared());
        assert!(!air(false, true, false).is_shared());
    }

    #[test]
    fn an_interface_is_judged_by_what_sysfs_shows() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("sheaf-none/phy80211")).unwrap();
        std::fs::create_dir_all(at("eth0")).unwrap();
        std::fs::write(at("sheaf-none/carrier"), "1").unwrap();
        let interfaces = Interfaces::at(root.path());
        // No interface has this number, so no discipline is found.
        let look = |dev| Air::look(&interfaces, dev, u32::MAX);
        assert_eq!(look("sheaf-none"), air(true, false, false));
        assert_eq!(look("eth0"), air(false, false, true));
    }
}
