//! Two hosts on a cable, for the tests of this crate.

use crate::ip;
use crate::netns::Namespace;

/// Two namespaces joined by their `eth0`: 10.0.0.1 and fd00::1, 10.0.0.2 and fd00::2.
pub fn hosts() -> [Namespace; 2] {
    let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let other = there.path();
    let set = |host: u8| {
        ip::run(&format!("addr add 10.0.0.{host}/24 dev eth0"))?;
        ip::run(&format!("addr add fd00::{host}/64 dev eth0 nodad"))?;
        ip::run("link set eth0 up")
    };
    here.run(|| {
        ip::run(&format!("link add eth0 type veth peer name eth0 netns {other}"))?;
        set(1)
    })
    .unwrap();
    there.run(|| set(2)).unwrap();
    [here, there]
}
