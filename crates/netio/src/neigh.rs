//! The kernel's neighbour table: which link address an IP neighbour has. Read, never owned.

use crate::ip;
use std::io;
use std::net::IpAddr;

/// A neighbour that has a link address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: [u8; 6],
}

/// The neighbours on interface `name` of this thread's network namespace, those that failed left
/// out.
pub fn dump(name: &str) -> io::Result<Vec<Neighbour>> {
    let text = ip::output(&format!("neigh show dev {name}"))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// Reads `10.0.0.2 lladdr 02:00:00:00:00:02 REACHABLE`.
fn parse(line: &str) -> Option<Neighbour> {
    if line.ends_with("FAILED") || line.ends_with("INCOMPLETE") {
        return None;
    }
    let address = line.split_whitespace().next()?.parse().ok()?;
    let (_, rest) = line.split_once("lladdr ")?;
    let mac = ip::parse_mac(rest.split_whitespace().next()?)?;
    Some(Neighbour { address, mac })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_without_a_link_address_are_left_out() {
        let good = parse("10.0.0.2 lladdr 02:00:00:00:00:02 REACHABLE").unwrap();
        assert_eq!(good.mac, [2, 0, 0, 0, 0, 2]);
        assert_eq!(parse("fe80::2 lladdr 02:00:00:00:00:02 router STALE").unwrap().mac, good.mac);
        assert_eq!(parse("10.0.0.9 FAILED"), None);
        assert_eq!(parse("10.0.0.9 INCOMPLETE"), None);
        assert_eq!(parse(""), None);
    }
}
