//! What touches Linux, eBPF apart.
//!
//! * [`classifier`]: programs at an interface's hooks, by tcx or clsact;
//! * [`clock`]: the one place where the machine's clock is read;
//! * [`completion`]: events when a socket's packets have left the device;
//! * [`gso`]: super-packets, taken apart into their segments;
//! * [`icmp`]: errors about what was sent, and echoes;
//! * [`netns`]: anonymous network namespaces, which vanish with the process;
//! * [`neigh`]: the neighbour table;
//! * [`ip`]: interfaces and addresses; what is set, by the `ip` command;
//! * [`netlink`]: questions to the kernel's routing family;
//! * [`packet`]: raw packet sockets;
//! * [`poller`]: waiting for descriptors and a time;
//! * [`qdisc`]: what waits in an interface's queueing discipline;
//! * [`raw`]: raw IP sockets;
//! * [`raw_batch`]: many packets of raw IP sockets in one system call;
//! * [`redirect`]: a detour for an interface's packets, which ends with its process;
//! * [`socket`]: what several kinds of descriptors ask of the kernel alike;
//! * [`tap`]: interfaces whose other end is ours;
//! * [`timer`]: waits to the microsecond;
//! * [`tun`]: the same for IP packets, with super-packets;
//! * [`vnet`], [`vnet_packet`], [`vnet_tun`]: packets with virtio headers, so that offloads survive.

mod bpf;
pub mod classifier;
pub mod clock;
pub mod completion;
pub mod gso;
pub mod icmp;
pub mod ip;
pub mod neigh;
pub mod netlink;
pub mod netns;
pub mod packet;
pub mod poller;
pub mod qdisc;
pub mod raw;
pub mod raw_batch;
pub mod redirect;
pub mod socket;
pub mod tap;
pub mod timer;
pub mod tun;
mod tuntap;
pub mod vnet;
pub mod vnet_packet;
pub mod vnet_tun;
