//! The way back of acknowledgements' copies: what the program withholds of an upload's window is
//! given to a copy that comes again a little later ([`sheaf_window::pace`]).
//!
//! The program sends copies to a TAP interface, whose other end is here. Each waits for [`COPY`]
//! and goes back to it, where the program for such copies takes it. Nothing else gets through that
//! program, whatever the kernel sends by the interface. The acknowledgements themselves never wait:
//! when this process dies or hangs, what is withheld comes with the next ones.

use sheaf_netio::ip;
use sheaf_netio::poller::Poller;
use sheaf_netio::tap::Tap;
use sheaf_stage::Instant;
use sheaf_window::pace::COPY;
use std::collections::VecDeque;
use std::io;

/// Longest acknowledgement: Ethernet with two tags, IPv4 and TCP with all their options.
const LONGEST: usize = 14 + 8 + 60 + 60;
/// Most copies that wait; those of 5000 acknowledgements a second are 15. A copy more is dropped:
/// the next acknowledgement has another one.
const MOST: usize = 256;
/// Packets that the interface holds until they are read.
const QUEUE: u32 = 500;

/// The interface, and the copies that wait.
pub(super) struct Back {
    name: String,
    tap: Tap,
    /// Number of the interface in the poller.
    number: usize,
    waiting: VecDeque<Waiting>,
    buffer: [u8; LONGEST + 1],
}

/// A copy that waits.
struct Waiting {
    due: Instant,
    len: usize,
    frame: [u8; LONGEST],
}

impl Back {
    /// The interface for copies of what arrives on interface `dev`, whose number is `ifindex`.
    pub fn open(dev: &str, ifindex: u32) -> anyhow::Result<Back> {
        let name = format!("sheafw{ifindex}");
        // As packets of PPP and WireGuard have no Ethernet header, their copies have none.
        let tap = match ip::link_header(dev)? {
            0 => Tap::open_ip(&name),
            _ => Tap::open(&name),
        };
        let tap = tap.map_err(|error| {
            anyhow::anyhow!("cannot make the TAP interface {name}, {error}; load the module tun")
        })?;
        ip::run(&format!("link set {name} txqueuelen {QUEUE} arp off addrgenmode none"))?;
        ip::run(&format!("link set {name} up"))?;
        let waiting = VecDeque::new();
        Ok(Back { name, tap, number: 0, waiting, buffer: [0; LONGEST + 1] })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn interest(&mut self, poller: &mut Poller) {
        self.number = poller.add(&self.tap);
    }

    /// Takes in copies, and sends back those whose time has come. Returns when the next one's does.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn turn(&mut self, now: Instant, poller: &Poller) -> io::Result<Option<Instant>> {
        if poller.readable(self.number) {
            while let Some(len) = self.tap.receive(&mut self.buffer)? {
                if let Some(frame) = self.buffer.first_chunk().filter(|_| len <= LONGEST)
                    && self.waiting.len() < MOST
                {
                    self.waiting.push_back(Waiting { due: now + COPY, len, frame: *frame });
                }
            }
        }
        while let Some(copy) = self.waiting.front().filter(|copy| copy.due <= now) {
            // It is refused where the interface went down, as by a person.
            let _ = self.tap.send(&copy.frame[..copy.len]);
            self.waiting.pop_front();
        }
        Ok(self.waiting.front().map(|copy| copy.due))
    }
}
