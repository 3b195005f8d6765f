//! A detour for an interface's packets, which ends with its process.
//!
//! Principle: a program at each of the interface's hooks sends every packet to another interface,
//! whose other end is the emulator's; packets that come back from there bear a mark, lose it, and
//! pass. The program, and why packets go their old way however the process ends, is in
//! redirect.bpf.c.
//!
//! Other programs of ours on the interface: what leaves is gathered first, and passes the egress
//! hook again when it is back; by the mark they know that ([`MARK`]). What arrives takes the detour
//! first.

use crate::{Error, attach};
use sheaf_netio::classifier::{Link, has_no_tcx};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub use sheaf_netio::classifier::Hook;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.deflate"));
const NAME: &str = "sheaf_detour";

/// The mark of packets that come back, but for the bits that [`MASK`] leaves for the number of a
/// process. Marks that people use are small numbers or masks; this one is neither. The programs
/// know it, too (detour.h).
pub const MARK: u32 = 0x5aea_f000;
/// The part of [`MARK`] that all have in common.
pub const MASK: u32 = 0xffff_f000;
/// The part of the traffic control index that all packets have in common which come back.
/// Indices that people use are small, as they number classes.
const INDEX: u32 = 0x5000;

/// The part that a program has; the same numbers are in redirect.bpf.c.
#[derive(Clone, Copy)]
enum Part {
    Egress = 0,
    EgressCopy = 1,
    Ingress = 2,
    IngressCopy = 3,
    Arrive = 4,
}

impl Part {
    /// The part at `hook`, by tcx or, where the filter may outlive its process, by copies.
    fn at(hook: Hook, copies: bool) -> Part {
        match (hook, copies) {
            (Hook::Egress, false) => Part::Egress,
            (Hook::Egress, true) => Part::EgressCopy,
            (Hook::Ingress, false) => Part::Ingress,
            (Hook::Ingress, true) => Part::IngressCopy,
        }
    }
}

/// A program at a hook, as long as this value lives.
#[derive(Debug)]
pub struct Redirect {
    _link: Link,
}

impl Redirect {
    /// Sends what passes `hook` of interface `ifindex` out by interface `to`, unless it bears
    /// `mark`; the mark is taken off then.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel takes no such program.
    pub fn unless_marked(ifindex: u32, hook: Hook, to: u32, mark: u32) -> Result<Redirect, Error> {
        let tcx = load(Part::at(hook, false), to, mark, |program| {
            Link::tcx(program, NAME, ifindex, hook)
        });
        match tcx {
            Err(Error::Io(error)) if has_no_tcx(&error) => by_clsact(ifindex, hook, to, mark),
            attached => attached,
        }
    }

    /// Makes what arrives on interface `ifindex` arrive on interface `on`, with `mark`.
    ///
    /// # Errors
    /// As for [`Redirect::unless_marked`].
    pub fn arrive_on(ifindex: u32, on: u32, mark: u32) -> Result<Redirect, Error> {
        load(Part::Arrive, on, mark, |program| Link::attach(program, NAME, ifindex, Hook::Ingress))
    }
}

/// Sends copies by a filter of clsact, whatever else the kernel has.
fn by_clsact(ifindex: u32, hook: Hook, to: u32, mark: u32) -> Result<Redirect, Error> {
    load(Part::at(hook, true), to, mark, |program| Link::clsact(program, NAME, ifindex, hook))
}

/// Loads the program with its part and attaches it; the link keeps it.
fn load(
    part: Part,
    to: u32,
    mark: u32,
    attach_by: impl FnOnce(BorrowedFd<'_>) -> io::Result<Link>,
) -> Result<Redirect, Error> {
    let index = INDEX | mark & !MASK;
    let mut ebpf = attach::loader()
        .btf(None)
        .override_global("part", &(part as u32), true)
        .override_global("to", &to, true)
        .override_global("back_mark", &mark, true)
        .override_global("back_index", &index, true)
        .load(&attach::unpack(OBJECT))?;
    let program = attach::load(&mut ebpf, NAME)?;
    Ok(Redirect { _link: attach_by(program.fd()?.as_fd())? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_netio::netns::Namespace;
    use sheaf_netio::poller::Poller;
    use sheaf_netio::vnet_packet::{Receive, VnetSocket};
    use sheaf_netio::vnet_tun::{Layer, VnetTun};
    use sheaf_netio::{ip, vnet};
    use sheaf_stage::Duration;

    /// Longer than any machine takes.
    const LONG: Duration = Duration::from_secs(30);

    /// Waits until something has come: on a busy machine another thread of the kernel may bring it.
    fn until_it_comes(to: &impl AsFd) -> io::Result<()> {
        let mut poller = Poller::default();
        poller.add(to);
        poller.wait(Some(LONG))
    }

    /// A broadcast frame of a private EtherType.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; vnet::LEN];
        frame.extend_from_slice(&[0xff; 6]);
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.extend_from_slice(&[9; 50]);
        frame
    }

    type Attach = fn(u32, Hook, u32, u32) -> Result<Redirect, Error>;

    #[test]
    fn what_leaves_takes_the_detour_once_and_passes_again_when_the_value_is_gone() {
        let ways: [Attach; 2] = [Redirect::unless_marked, by_clsact];
        ways.into_iter().for_each(takes_the_detour);
    }

    /// A cable from `near` to `far`, and a TAP interface; with the numbers of `near` and the TAP.
    fn cable_with_detour() -> io::Result<(VnetTun, u32, u32)> {
        // Else the kernel sends packets of its own.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
        ip::run("link add near type veth peer name far")?;
        let tap = VnetTun::open("detour", Layer::Tap)?;
        for dev in ["near", "far", "detour"] {
            ip::run(&format!("link set {dev} up"))?;
        }
        Ok((tap, ip::index("near")?, ip::index("detour")?))
    }

    fn takes_the_detour(attach: Attach) {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                let (tap, a, detour) = cable_with_detour()?;
                let mark = 0xf123_4567;
                let redirect = attach(a, Hook::Egress, detour, mark).map_err(io::Error::other)?;
                let mut plain = VnetSocket::open(a, Receive::Nothing)?;
                let mut marked = VnetSocket::open(a, Receive::Nothing)?;
                marked.set_mark(mark)?;
                let mut b = VnetSocket::open(ip::index("far")?, Receive::Everything)?;

                plain.send([frame().as_slice()]);
                let mut buffer = vec![0; vnet::LEN + vnet::LONGEST];
                until_it_comes(&tap)?;
                let len = tap.receive(&mut buffer)?.expect("it is at the detour");
                assert_eq!(buffer[vnet::LEN..len], frame()[vnet::LEN..]);
                assert_eq!(b.receive(|_, _| panic!("it passed"))?, 0);

                marked.send([&buffer[..len]]);
                until_it_comes(&b)?;
                assert_eq!(tap.receive(&mut buffer)?, None);
                assert_eq!(b.receive(|bytes, _| assert_eq!(bytes, frame()))?, 1);

                drop(redirect);
                plain.send([frame().as_slice()]);
                until_it_comes(&b)?;
                assert_eq!(tap.receive(&mut buffer)?, None);
                assert_eq!(b.receive(|bytes, _| assert_eq!(bytes, frame()))?, 1);
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn a_filter_that_outlives_its_process_lets_packets_pass() {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                let (tap, a, detour) = cable_with_detour()?;
                // As when the process is killed: nobody takes the filter off, and the TAP goes.
                let filter = by_clsact(a, Hook::Egress, detour, 1).map_err(io::Error::other)?;
                std::mem::forget(filter);
                drop(tap);
                let mut plain = VnetSocket::open(a, Receive::Nothing)?;
                let mut b = VnetSocket::open(ip::index("far")?, Receive::Everything)?;
                plain.send([frame().as_slice()]);
                until_it_comes(&b)?;
                assert_eq!(b.receive(|bytes, _| assert_eq!(bytes, frame()))?, 1);
                Ok(())
            })
            .unwrap();
    }
}
