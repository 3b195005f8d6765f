//! A detour for an interface's packets, which ends with its process.
//!
//! Principle: two eBPF programs of a few instructions at the interface's hooks. One sends every packet
//! to another interface, whose other end is ours; packets that come back from there bear a mark, lose
//! it, and pass. However the process ends, packets go their old way:
//!
//! * by tcx (Linux 6.6), the programs hang on links without a name, which the kernel takes off when
//!   the last descriptor is closed;
//! * by clsact, the filters stay, so they send a copy and look whether that went: the other interface
//!   vanishes with the process, the copy is refused, and the packet itself passes. (A plain
//!   redirection to an interface that is not there drops.) No clock and no heartbeat take part, and
//!   the next start removes the filters.
//!
//! Other programs of ours on the interface: what leaves is gathered first, and passes the egress hook
//! again when it is back; by the mark they know that ([`MARK`]). What arrives takes the detour first.
//! A splitter makes several packets of it behind that, and these arrive on the hook anew. They keep
//! the traffic control index of the packet that they came in, by which they are known here.
//!
//! The programs are written out here, since some twenty instructions need no compiler.

use crate::bpf::{self, Instruction};
use crate::classifier::{self, Link};
use std::io;
use std::os::fd::AsFd;

pub use crate::classifier::Hook;

/// The program's name.
const NAME: &str = "sheaf_detour";

/// A program at a hook, as long as this value lives.
#[derive(Debug)]
pub struct Redirect {
    _link: Link,
}

impl Redirect {
    /// Sends what passes `hook` of interface `ifindex` out by interface `to`, unless it bears
    /// `mark`; the mark is taken off then.
    pub fn unless_marked(ifindex: u32, hook: Hook, to: u32, mark: u32) -> io::Result<Redirect> {
        let back = back(hook, mark);
        let redirect = [
            Instruction::new(0xb7, 1, 0, 0, to as i32),
            Instruction::new(0xb7, 2, 0, 0, 0),
            CALL_REDIRECT,
            EXIT,
        ];
        let program = bpf::load(&[&back[..], &redirect].concat(), NAME)?;
        // The link keeps the program.
        match Link::tcx(program.as_fd(), NAME, ifindex, hook) {
            Err(error) if classifier::has_no_tcx(&error) => {}
            attached => return Ok(Redirect { _link: attached? }),
        }
        by_clsact(ifindex, hook, to, &back)
    }

    /// The same by clsact alone, whatever the kernel has.
    #[cfg(test)]
    fn unless_marked_by_clsact(
        ifindex: u32,
        hook: Hook,
        to: u32,
        mark: u32,
    ) -> io::Result<Redirect> {
        by_clsact(ifindex, hook, to, &back(hook, mark))
    }

    /// Makes what arrives on interface `ifindex` arrive on interface `on`, with `mark`.
    pub fn arrive_on(ifindex: u32, on: u32, mark: u32) -> io::Result<Redirect> {
        let program = [
            Instruction::new(0xb4, 2, 0, 0, mark as i32),
            store(MARK_AT),
            Instruction::new(0xb7, 1, 0, 0, on as i32),
            Instruction::new(0xb7, 2, 0, 0, BPF_F_INGRESS),
            CALL_REDIRECT,
            EXIT,
        ];
        attach(&program, ifindex, Hook::Ingress)
    }
}

/// Sends copies by a filter of clsact, behind the instructions of [`back`].
fn by_clsact(ifindex: u32, hook: Hook, to: u32, back: &[Instruction]) -> io::Result<Redirect> {
    let copy = [
        // r1 is the packet.
        Instruction::new(0xb7, 2, 0, 0, to as i32),
        Instruction::new(0xb7, 3, 0, 0, 0),
        CALL_CLONE_REDIRECT,
        Instruction::new(0xbf, 1, 0, 0, 0),
        Instruction::new(0xb7, 0, 0, 0, TC_ACT_STOLEN),
        // A full queue is a positive number: what is at the detour is not sent twice.
        Instruction::new(0x75, 1, 0, 1, -1), // unless it was refused, go to the end
        Instruction::new(0xb7, 0, 0, 0, TCX_NEXT),
        EXIT,
    ];
    let program = bpf::load(&[back, &copy].concat(), NAME)?;
    let link = Link::clsact(program.as_fd(), NAME, ifindex, hook)?;
    Ok(Redirect { _link: link })
}

/// Lets a packet pass that was at the detour: it bears `mark`, which is taken off. At ingress it gets
/// an index, and packets that bear this pass, too. The rest goes on behind these instructions.
fn back(hook: Hook, mark: u32) -> Vec<Instruction> {
    let index = Instruction::new(0xb4, 2, 0, 0, index_of(mark));
    let mut program = vec![load(MARK_AT)];
    // The mark is compared as 32 bits without a sign.
    program.push(Instruction::new(0xb4, 3, 0, 0, mark as i32));
    if hook == Hook::Egress {
        program.push(Instruction::new(0x5d, 2, 3, 4, 0)); // unless equal, go to the end
        program.extend([ZERO, store(MARK_AT), PASS, EXIT]);
    } else {
        program.push(Instruction::new(0x5d, 2, 3, 6, 0)); // unless equal, look at the index
        program.extend([ZERO, store(MARK_AT), index, store(INDEX_AT), PASS, EXIT]);
        program.push(load(INDEX_AT));
        program.push(Instruction::new(0x45, 2, 0, 1, OUT_OF_LINE)); // any of these bits: let it pass
        program.push(Instruction::new(0x55, 2, 0, 2, index_of(mark))); // unless equal, go to the end
        program.extend([PASS, EXIT]);
    }
    program
}

/// The traffic control index that says that a packet was at the detour of `mark`: 16 bits.
fn index_of(mark: u32) -> i32 {
    // Indices that are in use are small, as they number classes.
    i32::from(0x5000 | (mark & !MASK) as u16)
}

/// The mark of packets that come back, but for the bits that [`MASK`] leaves for the number of a
/// process. Marks that people use are small numbers or masks; this one is neither. The programs of
/// `sheaf_bpf` know it, too (detour.h).
pub const MARK: u32 = 0x5aea_f000;
/// The part of [`MARK`] that all have in common.
pub const MASK: u32 = 0xffff_f000;

/// The traffic control index of packets that the splitter has put into the backlog (split.bpf.c):
/// they, or the meta packet that carried them, have been here.
const OUT_OF_LINE: i32 = 0x8000;

const BPF_F_INGRESS: i32 = 1;
/// On to the next program; of clsact, TC_ACT_UNSPEC.
const TCX_NEXT: i32 = -1;
const TC_ACT_STOLEN: i32 = 4;
/// Where `struct __sk_buff` has the mark, and the traffic control index.
const MARK_AT: i16 = 8;
const INDEX_AT: i16 = 44;

const EXIT: Instruction = Instruction::new(0x95, 0, 0, 0, 0);
/// `bpf_redirect(r1: interface, r2: flags)`.
const CALL_REDIRECT: Instruction = Instruction::new(0x85, 0, 0, 0, 23);

/// `bpf_clone_redirect(r1: packet, r2: interface, r3: flags)`.
const CALL_CLONE_REDIRECT: Instruction = Instruction::new(0x85, 0, 0, 0, 13);
/// `r2 = 0`.
const ZERO: Instruction = Instruction::new(0xb7, 2, 0, 0, 0);
/// The result that lets the packet pass.
const PASS: Instruction = Instruction::new(0xb7, 0, 0, 0, TCX_NEXT);

/// `r2 = packet->field`, which is `at` of the context.
const fn load(at: i16) -> Instruction {
    Instruction::new(0x61, 2, 1, at, 0)
}

/// `packet->field = r2`.
const fn store(at: i16) -> Instruction {
    Instruction::new(0x63, 1, 2, at, 0)
}

fn attach(program: &[Instruction], ifindex: u32, hook: Hook) -> io::Result<Redirect> {
    let program = bpf::load(program, NAME)?;
    // The link keeps the program.
    let link = Link::attach(program.as_fd(), NAME, ifindex, hook)?;
    Ok(Redirect { _link: link })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::netns::Namespace;
    use crate::vnet;
    use crate::vnet_packet::{Receive, VnetSocket};
    use crate::vnet_tun::{Layer, VnetTun};

    /// A broadcast frame of a private EtherType.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; vnet::LEN];
        frame.extend_from_slice(&[0xff; 6]);
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.extend_from_slice(&[9; 50]);
        frame
    }

    type Attach = fn(u32, Hook, u32, u32) -> io::Result<Redirect>;

    #[test]
    fn what_leaves_takes_the_detour_once_and_passes_again_when_the_value_is_gone() {
        let ways: [Attach; 2] = [Redirect::unless_marked, Redirect::unless_marked_by_clsact];
        ways.into_iter().for_each(takes_the_detour);
    }

    fn takes_the_detour(attach: Attach) {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                // Else the kernel sends packets of its own.
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
                ip::run("link add near type veth peer name far")?;
                let tap = VnetTun::open("detour", Layer::Tap)?;
                for dev in ["near", "far", "detour"] {
                    ip::run(&format!("link set {dev} up"))?;
                }
                let (a, detour) = (ip::index("near")?, ip::index("detour")?);
                let mark = 0xf123_4567;
                let redirect = attach(a, Hook::Egress, detour, mark)?;
                let mut plain = VnetSocket::open(a, Receive::Nothing)?;
                let mut marked = VnetSocket::open(a, Receive::Nothing)?;
                marked.set_mark(mark)?;
                let mut b = VnetSocket::open(ip::index("far")?, Receive::Everything)?;

                plain.send([frame().as_slice()]);
                let mut buffer = vec![0; vnet::LEN + vnet::LONGEST];
                let len = tap.receive(&mut buffer)?.expect("it is at the detour");
                assert_eq!(buffer[vnet::LEN..len], frame()[vnet::LEN..]);
                assert_eq!(b.receive(|_, _| panic!("it passed"))?, 0);

                marked.send([&buffer[..len]]);
                assert_eq!(tap.receive(&mut buffer)?, None);
                assert_eq!(b.receive(|bytes, _| assert_eq!(bytes, frame()))?, 1);

                drop(redirect);
                plain.send([frame().as_slice()]);
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
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
                ip::run("link add near type veth peer name far")?;
                let tap = VnetTun::open("detour", Layer::Tap)?;
                for dev in ["near", "far", "detour"] {
                    ip::run(&format!("link set {dev} up"))?;
                }
                let (a, detour) = (ip::index("near")?, ip::index("detour")?);
                // As when the process is killed: nobody takes the filter off, and the TAP goes.
                let filter = Redirect::unless_marked_by_clsact(a, Hook::Egress, detour, 1)?;
                std::mem::forget(filter);
                drop(tap);
                let mut plain = VnetSocket::open(a, Receive::Nothing)?;
                let mut b = VnetSocket::open(ip::index("far")?, Receive::Everything)?;
                plain.send([frame().as_slice()]);
                assert_eq!(b.receive(|bytes, _| assert_eq!(bytes, frame()))?, 1);
                Ok(())
            })
            .unwrap();
    }
}
