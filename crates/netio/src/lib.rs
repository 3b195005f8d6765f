//! What touches Linux, eBPF apart.
//!
//! * [`clock`]: the one place where the machine's clock is read;
//! * [`netns`]: anonymous network namespaces, which vanish with the process;
//! * [`neigh`]: the neighbour table;
//! * [`ip`]: interfaces and addresses, by the `ip` command;
//! * [`netlink`]: questions to the kernel's routing family;
//! * [`packet`]: raw packet sockets;
//! * [`poller`]: waiting for descriptors and a time;
//! * [`qdisc`]: what waits in an interface's queueing discipline;
//! * [`raw`]: raw IP sockets;
//! * [`tap`]: interfaces whose other end is ours;
//! * [`tun`]: the same for IP packets, with super-packets.

pub mod clock;
pub mod ip;
pub mod neigh;
pub mod netlink;
pub mod netns;
pub mod packet;
pub mod poller;
pub mod qdisc;
pub mod raw;
pub mod tap;
pub mod tun;
