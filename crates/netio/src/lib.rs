//! What touches Linux, eBPF apart.
//!
//! * [`attribute`]: attributes of netlink messages, read and written;
//! * [`batch`]: many frames of a carrier in one system call, and segments of UDP;
//! * [`batman`]: originators, neighbours and clients of a batman-adv mesh;
//! * [`capability`]: rights of this process: checked at the start, given away after set-up;
//! * [`carrier`]: sockets that carry a trunk's frames, Ethernet or UDP;
//! * [`child`]: child processes whose end wakes a poller;
//! * [`classifier`]: programs at an interface's hooks, by tcx or clsact;
//! * [`clock`]: the one place where the machine's clock is read;
//! * [`coalesce`]: TCP segments joined to super-packets for the host;
//! * [`completion`]: events when a socket's packets have left the device;
//! * [`ethtool`]: the speed of an interface, and its features;
//! * [`generic`]: questions to families of generic netlink;
//! * [`gro`]: packets that an interface joins before they are received;
//! * [`gso`]: super-packets, taken apart into their segments;
//! * [`hwsim`]: the medium of mac80211_hwsim's radios;
//! * [`icmp`]: errors about what was sent, and echoes;
//! * [`memory`]: what a process no longer needs;
//! * [`monitor`]: interfaces with their addresses, and news of changes;
//! * [`netns`]: anonymous network namespaces, which vanish with the process;
//! * [`neigh`]: the neighbour table;
//! * [`ip`]: interfaces and addresses; what is set, by the `ip` command;
//! * [`netlink`]: questions to the kernel, and the messages of its routing family;
//! * [`nl80211`]: stations of a radio, and the noise of its channel;
//! * [`packet`]: raw packet sockets;
//! * [`poller`]: waiting for descriptors and a time;
//! * [`qdisc`]: what waits in an interface's queueing discipline;
//! * [`random`]: numbers that an attacker cannot guess;
//! * [`raw`]: raw IP sockets;
//! * [`raw_batch`]: many packets of raw IP sockets in one system call;
//! * [`scheduling`]: how soon the kernel lets a thread run;
//! * [`segment`]: super-packets from the host cut to TCP segments;
//! * [`socket`]: what several kinds of descriptors ask of the kernel alike;
//! * [`stamps`]: when packets came, by the kernel's stamps;
//! * [`sysfs`]: radios, and devices on top of others;
//! * [`tap`]: interfaces whose other end is ours;
//! * [`timer`]: waits to the microsecond; [`lead`]: how long before the moment its sleep ends;
//! * [`tun`]: the same for IP packets, with super-packets;
//! * [`vnet`], [`vnet_packet`], [`vnet_tun`]: packets with virtio headers, so that offloads
//!   survive.
//!
//! The C libraries glibc and musl give lengths and flags of messages different integer types; `as
//! _` converts to either.

pub mod attribute;
pub mod batch;
pub mod batman;
mod bpf;
#[cfg(test)]
mod cable;
pub mod capability;
pub mod carrier;
pub mod child;
pub mod classifier;
pub mod clock;
pub mod coalesce;
pub mod completion;
pub mod ethtool;
pub mod generic;
pub mod gro;
pub mod gso;
pub mod hwsim;
pub mod icmp;
pub mod ip;
pub mod lead;
pub mod link_group;
pub mod linkdown;
pub mod memory;
pub mod monitor;
pub mod neigh;
pub mod netlink;
pub mod netns;
pub mod nl80211;
pub mod packet;
pub mod poller;
pub mod qdisc;
pub mod random;
pub mod raw;
pub mod raw_batch;
pub mod scheduling;
pub mod segment;
pub mod socket;
pub mod stamps;
pub mod sysfs;
pub mod tap;
pub mod timer;
mod traffic_control;
pub mod tun;
mod tuntap;
pub mod vnet;
pub mod vnet_packet;
pub mod vnet_tun;
