//! A detour for an interface's packets, which ends with its process.
//!
//! Principle: two eBPF programs of a few instructions at the interface's tc hooks (tcx, Linux 6.6).
//! One sends every packet to another interface, whose other end is ours; packets that come back
//! from there bear a mark, lose it, and pass. The programs hang on links without a name, which the
//! kernel takes off when the last descriptor is closed: however the process ends, packets go their
//! old way.
//!
//! The programs are written out here, since eleven instructions need no compiler.

use crate::bpf::{self, Instruction};
use crate::classifier::Link;
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
        let program = [
            load_mark(),
            // The mark is compared as 32 bits without a sign.
            Instruction::new(0xb4, 3, 0, 0, mark as i32),
            Instruction::new(0x5d, 2, 3, 4, 0), // unless equal, go to the redirection
            Instruction::new(0xb7, 2, 0, 0, 0),
            store_mark(),
            Instruction::new(0xb7, 0, 0, 0, TCX_NEXT),
            EXIT,
            Instruction::new(0xb7, 1, 0, 0, to as i32),
            Instruction::new(0xb7, 2, 0, 0, 0),
            CALL_REDIRECT,
            EXIT,
        ];
        attach(&program, ifindex, hook)
    }

    /// Makes what arrives on interface `ifindex` arrive on interface `on`, with `mark`.
    pub fn arrive_on(ifindex: u32, on: u32, mark: u32) -> io::Result<Redirect> {
        let program = [
            Instruction::new(0xb4, 2, 0, 0, mark as i32),
            store_mark(),
            Instruction::new(0xb7, 1, 0, 0, on as i32),
            Instruction::new(0xb7, 2, 0, 0, BPF_F_INGRESS),
            CALL_REDIRECT,
            EXIT,
        ];
        attach(&program, ifindex, Hook::Ingress)
    }
}

const BPF_F_INGRESS: i32 = 1;
const TCX_NEXT: i32 = -1;
/// Where `struct __sk_buff` has the mark.
const MARK: i16 = 8;

const EXIT: Instruction = Instruction::new(0x95, 0, 0, 0, 0);
/// `bpf_redirect(r1: interface, r2: flags)`.
const CALL_REDIRECT: Instruction = Instruction::new(0x85, 0, 0, 0, 23);

/// `r2 = packet->mark`.
const fn load_mark() -> Instruction {
    Instruction::new(0x61, 2, 1, MARK, 0)
}

/// `packet->mark = r2`.
const fn store_mark() -> Instruction {
    Instruction::new(0x63, 1, 2, MARK, 0)
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

    #[test]
    fn what_leaves_takes_the_detour_once_and_passes_again_when_the_value_is_gone() {
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
                let redirect = Redirect::unless_marked(a, Hook::Egress, detour, mark)?;
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
}
