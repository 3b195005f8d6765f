//! `sheaf trunk`: one interface over several links.
//!
//! * [`arguments`]: the command line;
//! * [`daemon`]: the turns of the one thread: TUN interface, endpoint, links, time;
//! * [`member`]: one link: its interface, its socket, where the other end is;
//! * [`report`]: what `sheaf show` prints.
//!
//! The machine that numbers, deals out and puts in order is the crate `sheaf_trunk`.

mod arguments;
mod daemon;
mod member;
pub mod report;

use arguments::Arguments;

/// The grammar, for `--help`.
pub const HELP: &str = "\
Usage: sheaf trunk NAME { { dev IF [queue N] }... peer MAC|ADDR | path LOCAL[:PORT][@IF] [REMOTE[:PORT]] }...
                   [address ADDR/PLEN]... [mtu BYTES|auto] [aggregate on|off]
                   [scheduler earliest|rr|srr|trr|redundant] [copies RULE]... [loose RULE]...
                   [priority realtime|normal]

  NAME         the interface to make; both ends run this command with the same members in the
               same order
  dev          Ethernet frames (EtherType 0x88b6) on IF to peer, by link address or by an IP
               address that its neighbour table resolves
  queue        IF's own queue of N packets is where packets wait (not one behind it): keep it
               below a quarter; else the rate is learned. Works on radios, too
  path         UDP from LOCAL on the interface that has it, or on IF; REMOTE may be left out on
               the side that is to learn it (port 7431); [ADDR]:PORT for IPv6
  address      an address of NAME
  mtu          of NAME; auto: the largest that fits every member (default)
  aggregate    small packets that wait share a frame (on)
  scheduler    earliest: where a packet would arrive first (default); redundant: a copy on every
               link; rr: round robin; srr, trr: for comparison
  copies       what goes out on every link; default: copies match dscp ef
  loose        what needs no order, so that it never waits
  Packets of class EF or CS6 leave before others, as long as those keep half.

  RULE         match { proto udp|tcp|N | dscp D | sport A[-B] | dport A[-B] | length BYTES }...
               or none
  priority     realtime: runs before every ordinary process (SCHED_RR), so that links stay busy on a
               busy machine (default where it is allowed); normal: as other processes

Nothing is encrypted: run it over WireGuard where that matters.

Example: sheaf trunk trunk0 path 192.0.2.7 198.51.100.1 path 10.64.3.9@wwan0 198.51.100.1:7432 \\
                     address 10.99.0.1/24
         sheaf trunk trunk0 path 198.51.100.1 path 198.51.100.1:7432 address 10.99.0.2/24";

/// `sheaf trunk`: runs until it is interrupted.
pub fn trunk(words: &[String]) -> anyhow::Result<()> {
    daemon::run(&Arguments::parse(words)?)
}
