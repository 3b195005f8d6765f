//! Settings of a host.

/// Congestion control of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// CUBIC (RFC 9438) with HyStart, Linux's default.
    #[default]
    Cubic,
    /// BBR of version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as in Linux.
    Bbr,
}

/// Settings of a [`Host`](crate::Host). The defaults are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Congestion control of what it sends.
    pub control: Algorithm,
    /// Bytes of an IP packet at most; 576 to 65535. 1500.
    pub mtu: u16,
    /// Bytes of the receive window; 2048 to 1 GiB. 6 MiB: the largest that Linux lets a buffer
    /// grow to by itself (`net.ipv4.tcp_rmem`).
    pub receive_window: u32,
    /// Bytes that may be sent and not yet acknowledged; from 2048. 4 MiB: the largest that Linux
    /// lets a buffer grow to by itself (`net.ipv4.tcp_wmem`).
    pub send_buffer: u32,
    /// Paced segments that leave together at most; from 1. 45, the 64 KiB of a super-packet: Linux
    /// fills one with a millisecond of the rate. 1 for an interface that takes none
    /// (`gso_max_segs 1`).
    pub burst: u32,
    /// Bytes that each flow of a sender carries before it ends; without end where it is `None`.
    pub bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            control: Algorithm::Cubic,
            mtu: 1500,
            receive_window: 6 << 20,
            send_buffer: 4 << 20,
            burst: 45,
            bytes: None,
        }
    }
}

/// Smallest values that work.
const LEAST_MTU: u16 = 576;
const LEAST_WINDOW: u32 = 2048;
/// Largest window that its scale can say (RFC 7323, section 2.3).
const MOST_WINDOW: u32 = 1 << 30;

impl Config {
    /// The same with every value in its range.
    pub(crate) fn clamped(self) -> Config {
        Config {
            mtu: self.mtu.max(LEAST_MTU),
            receive_window: self.receive_window.clamp(LEAST_WINDOW, MOST_WINDOW),
            send_buffer: self.send_buffer.max(LEAST_WINDOW),
            burst: self.burst.max(1),
            ..self
        }
    }
}
