//! What touches Linux, eBPF apart.
//!
//! * [`clock`]: the one place where the machine's clock is read;
//! * [`netns`]: anonymous network namespaces, which vanish with the process;
//! * [`neigh`]: the neighbour table;
//! * [`ip`]: interfaces and addresses, by the `ip` command;
//! * [`packet`]: raw packet sockets;
//! * [`tap`]: interfaces whose other end is ours.

pub mod clock;
pub mod ip;
pub mod neigh;
pub mod netns;
pub mod packet;
pub mod tap;
