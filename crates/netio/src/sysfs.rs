//! Interfaces as sysfs shows them: radios, and devices on top of others.
//!
//! `/sys/class/net` shows the interfaces of the network namespace that mounted it. An interface of
//! another one is not there, and counts as a device of which nothing is known.

use std::path::{Path, PathBuf};

/// Devices below one another, at most: a bridge of VLANs of a bond has three.
const DEPTH: usize = 8;

/// The folder of all interfaces.
#[derive(Clone, Debug)]
pub struct Interfaces {
    root: PathBuf,
}

impl Default for Interfaces {
    fn default() -> Self {
        Interfaces::at("/sys/class/net")
    }
}

impl Interfaces {
    /// The interfaces in folder `root`.
    pub fn at(root: impl AsRef<Path>) -> Interfaces {
        Interfaces { root: root.as_ref().to_owned() }
    }

    /// Whether interface `dev` is shown.
    pub fn contains(&self, dev: &str) -> bool {
        self.root.join(dev).exists()
    }

    /// Whether `dev` is the interface of a radio (cfg80211).
    pub fn is_radio(&self, dev: &str) -> bool {
        self.root.join(dev).join("phy80211").exists()
    }

    /// Whether `dev` is a radio, or lies on top of one, as a bridge or a VLAN does.
    pub fn leads_to_radio(&self, dev: &str) -> bool {
        self.leads(dev, DEPTH)
    }

    fn leads(&self, dev: &str, depth: usize) -> bool {
        self.is_radio(dev)
            || depth > 0 && self.lower(dev).iter().any(|lower| self.leads(lower, depth - 1))
    }

    /// The interfaces directly below `dev`.
    pub fn lower(&self, dev: &str) -> Vec<String> {
        let strip = |name: String| name.strip_prefix("lower_").map(str::to_owned);
        entries(&self.root.join(dev)).into_iter().filter_map(strip).collect()
    }

    /// Whether a radio other than `dev`, and than those below it, has a carrier: stations may be
    /// behind it.
    pub fn has_other_radio(&self, dev: &str) -> bool {
        let is_other = |name: &String| name != dev && !self.lower(dev).contains(name);
        let has_carrier = |name: &String| {
            // Reading fails while the interface is down.
            let carrier = std::fs::read_to_string(self.root.join(name).join("carrier"));
            carrier.is_ok_and(|carrier| carrier.trim() == "1")
        };
        let all = entries(&self.root);
        all.iter().any(|name| self.is_radio(name) && is_other(name) && has_carrier(name))
    }
}

/// Names in a folder; none where it cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let Ok(folder) = std::fs::read_dir(folder) else { return Vec::new() };
    folder.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, create_dir_all, write};

    /// A router: eth0, a bridge of eth1 and of the access point wlan0, a VLAN of the bridge, and
    /// wlan1, which is down.
    fn router() -> (tempfile::TempDir, Interfaces) {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for dev in ["eth0", "eth1", "br-lan", "br-lan.7", "wlan0", "wlan1"] {
            create_dir(at(dev)).unwrap();
        }
        for folder in ["wlan0/phy80211", "wlan1/phy80211"] {
            create_dir_all(at(folder)).unwrap();
        }
        for link in ["br-lan/lower_eth1", "br-lan/lower_wlan0", "br-lan.7/lower_br-lan"] {
            create_dir_all(at(link)).unwrap();
        }
        write(at("wlan0/carrier"), "1\n").unwrap();
        write(at("wlan1/carrier"), "0\n").unwrap();
        let interfaces = Interfaces::at(root.path());
        (root, interfaces)
    }

    #[test]
    fn a_radio_is_found_below_bridges_and_vlans() {
        let (_root, interfaces) = router();
        let leads = |dev| interfaces.leads_to_radio(dev);
        assert_eq!(["wlan0", "br-lan", "br-lan.7"].map(leads), [true; 3]);
        assert_eq!(["eth0", "eth1", "nowhere"].map(leads), [false; 3]);
        assert!(interfaces.contains("eth0") && !interfaces.contains("nowhere"));
        assert!(!interfaces.is_radio("br-lan"));
    }

    #[test]
    fn stations_may_be_behind_another_radio_that_has_a_carrier() {
        let (root, interfaces) = router();
        assert!(interfaces.has_other_radio("eth0"));
        assert!(!interfaces.has_other_radio("wlan0"), "wlan1 is down");
        assert!(!interfaces.has_other_radio("br-lan"), "it is its own");
        assert!(interfaces.has_other_radio("wlan1"));
        write(root.path().join("wlan0/carrier"), "0\n").unwrap();
        assert!(!interfaces.has_other_radio("eth0"));
    }

    #[test]
    fn devices_below_one_another_in_a_circle_end_the_search() {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("a/lower_b")).unwrap();
        create_dir_all(root.path().join("b/lower_a")).unwrap();
        assert!(!Interfaces::at(root.path()).leads_to_radio("a"));
    }
}
