//! An interface's queueing disciplines: their kinds, and what waits in them.

use crate::attribute::{Attributes, Value, put};
use crate::netlink::{Netlink, Object};
use crate::traffic_control::{TcMessage, attribute};
use std::io;

/// Parent of an interface's root discipline (TC_H_ROOT).
const ROOT: u32 = u32::MAX;

/// Packets in the root discipline of interface `ifindex` and below it; `None` where it has none
/// (`noqueue`).
///
/// The kernel tells of all interfaces or, to everyone who listens, of one; so all are asked for.
pub fn waiting(netlink: &mut Netlink, ifindex: u32) -> io::Result<Option<u32>> {
    let mut waiting = None;
    let question = Object::GetQueueDiscipline(TcMessage::default());
    netlink.dump(question, |object| {
        if let Object::NewQueueDiscipline(discipline) = object
            && (discipline.index, discipline.parent) == (ifindex, ROOT)
        {
            waiting = read(&discipline);
        }
    })?;
    Ok(waiting)
}

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Its kind, as `tc qdisc` names it.
    pub kind: String,
    /// Whether it is the interface's root.
    pub root: bool,
}

/// The disciplines of interface `ifindex`, with the FIFOs that classes have by themselves; hooks
/// (clsact, ingress) are not among them.
pub fn disciplines(netlink: &mut Netlink, ifindex: u32) -> io::Result<Vec<Discipline>> {
    let mut found = Vec::new();
    let mut question = TcMessage::default();
    // Else the kernel leaves out what nobody configured.
    put(&mut question.attributes, attribute::DUMP_INVISIBLE, &[]);
    let question = Object::GetQueueDiscipline(question);
    netlink.dump(question, |object| {
        if let Object::NewQueueDiscipline(message) = object
            && message.index == ifindex
        {
            let root = message.parent == ROOT;
            let hook = |kind: &String| kind == "clsact" || kind == "ingress";
            found.extend(
                message.kind().filter(|kind| !hook(kind)).map(|kind| Discipline { kind, root }),
            );
        }
    })?;
    Ok(found)
}

/// The packets that wait in it; `None` for `noqueue`, and where it does not say.
fn read(discipline: &TcMessage) -> Option<u32> {
    if discipline.kind()? == "noqueue" {
        return None;
    }
    let parts = Attributes::of(discipline.attribute(attribute::STATS2)?);
    let queue = parts.into_iter().find(|(kind, _)| *kind == attribute::STATS_QUEUE);
    let (_, queue) = queue?;
    u32::of(queue.get(..size_of::<u32>())?)
}

#[cfg(test)]
mod tests {
    use super::waiting;
    use crate::ip;
    use crate::netlink::Netlink;
    use crate::netns::Namespace;
    use std::net::UdpSocket;

    #[test]
    fn packets_in_a_token_bucket_filter_are_told_and_without_a_queue_nothing_is() {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                let mut netlink = Netlink::open()?;
                ip::run("link add eth0 type veth peer name eth1")?;
                ip::run("addr add 10.0.0.1/24 dev eth0")?;
                ip::run("link set eth0 up")?;
                ip::run("link set eth1 up")?;
                ip::run("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0")?;
                let ifindex = ip::index("eth0")?;
                assert_eq!(waiting(&mut netlink, ifindex)?, None);
                // One packet in a quarter of an hour: all but the first wait.
                let tbf = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8bit"];
                let size = ["burst", "1600", "limit", "100000"];
                let done = std::process::Command::new("tc").args(tbf).args(size).status()?;
                assert!(done.success());
                let socket = UdpSocket::bind("10.0.0.1:0")?;
                for _ in 0..5 {
                    socket.send_to(&[0; 1000], "10.0.0.2:9")?;
                }
                assert_eq!(waiting(&mut netlink, ifindex)?, Some(4));
                Ok(())
            })
            .unwrap();
    }
}
