//! Parameters of both directions, checked.

use sheaf_stage::{Bitrate, Duration};
use sheaf_wire::trunk::{HEADER_LEN, MIN_OPAQUE};
use thiserror::Error;

/// Rule that picks the link of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// NCTU: in turn, passing over busy links.
    RoundRobin,
    /// Surplus Round Robin with markers (SIGCOMM 1996); a baseline. Both ends must use it.
    Srr,
    /// Trigger Round Robin (1998); a baseline. Both ends must use it.
    Trr,
    /// The link on which the packet would arrive first; the default.
    Earliest,
    /// A copy on every link.
    Redundant,
}

impl Scheduler {
    /// Every scheduler, in the order of their declaration.
    pub const ALL: [Scheduler; 5] = [
        Scheduler::RoundRobin,
        Scheduler::Srr,
        Scheduler::Trr,
        Scheduler::Earliest,
        Scheduler::Redundant,
    ];

    /// The name used in settings and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Scheduler::RoundRobin => "round-robin",
            Scheduler::Srr => "srr",
            Scheduler::Trr => "trr",
            Scheduler::Earliest => "earliest",
            Scheduler::Redundant => "redundant",
        }
    }

    /// Whether the receiver must follow the sender's rounds instead of the sequence numbers.
    pub const fn strict(self) -> bool {
        matches!(self, Scheduler::Srr | Scheduler::Trr)
    }
}

/// Parameters of a [`Sender`](crate::Sender). The defaults are those of `sheaf trunk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Rule that picks the link of a packet; `earliest`.
    pub scheduler: Scheduler,
    /// Largest frame in bytes, trunk header included, without the carrier's headers,
    /// 128..=65535; 1508: a packet of 1500 bytes and the header.
    pub frame: u16,
    /// Packets are IP packets (true) or Ethernet frames; IP.
    pub ip: bool,
    /// Whether small packets that wait share a frame; yes.
    pub aggregate: bool,
    /// Whether headers that the other end knows are left out. Only of IP packets, and only with a
    /// key; yes.
    pub compress: bool,
    /// Whether links that have time left carry parities of frames that may be lost; yes.
    pub parity: bool,
    /// Time that packets may wait for one link; 100 ms.
    pub queue: Duration,
    /// Full frames, or as many bytes in shorter ones, that can wait for one link however slow it is
    /// taken to be; 16.
    pub queue_frames: usize,
    /// Frames that wait for one link at most; 4096.
    pub queue_frames_max: usize,
    /// Rate that a link is taken to have before it is known; 4 Mbit/s.
    pub first_rate: Bitrate,
    /// Share of its queue, in percent 1..=100, above which a link counts as busy: 25 (NCTU).
    pub busy_percent: u8,
    /// Loss, in percent 1..=100, above which a link is not used while a better one is there; 15:
    /// three transmissions then leave three losses in a thousand.
    pub max_loss_percent: u8,
}

impl Default for SenderConfig {
    fn default() -> Self {
        SenderConfig {
            scheduler: Scheduler::Earliest,
            frame: 1500 + HEADER_LEN as u16,
            ip: true,
            aggregate: true,
            compress: true,
            parity: true,
            queue: Duration::from_millis(100),
            queue_frames: 16,
            queue_frames_max: 4096,
            first_rate: Bitrate::from_mbps(4),
            busy_percent: 25,
            max_loss_percent: 15,
        }
    }
}

impl SenderConfig {
    /// Least value of `frame`.
    pub const LEAST_FRAME: u16 = 128;

    /// Time that packets may wait for every link before single ones are dropped: the busy share of
    /// the queue.
    pub fn target(&self) -> Duration {
        self.queue * u32::from(self.busy_percent) / 100
    }

    /// Checks that the parameters make sense together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.frame < SenderConfig::LEAST_FRAME {
            return Err(ConfigError::Frame { frame: self.frame });
        }
        for percent in [self.busy_percent, self.max_loss_percent] {
            if !(1..=100).contains(&percent) {
                return Err(ConfigError::Percent { percent });
            }
        }
        if self.queue.is_zero() || self.queue_frames == 0 {
            return Err(ConfigError::NoQueue);
        }
        if self.queue_frames_max < self.queue_frames {
            return Err(ConfigError::QueueBounds);
        }
        if self.first_rate.as_bps() == 0 {
            return Err(ConfigError::NoRate);
        }
        const { assert!(MIN_OPAQUE < SenderConfig::LEAST_FRAME as usize) };
        Ok(())
    }
}

/// Parameters of a [`Resequencer`](crate::Resequencer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReorderConfig {
    /// Frames that can wait, and how far ahead of the expected one a frame can be: a power of two,
    /// 512..=32768; 4096.
    pub window: u32,
    /// Bytes that can wait; 8 MiB.
    pub bytes: usize,
    /// Reordering timer of a flow not known before; 80 ms.
    pub first_timer: Duration,
    /// The timer never halves below this; 40 ms: losses are mostly known without it, so it may be
    /// generous.
    pub min_timer: Duration,
    /// The timer never grows above this; 500 ms.
    pub max_timer: Duration,
    /// Time that each packet that comes too late adds to the timer; 1 ms (NCTU).
    pub late_step: Duration,
    /// Adjusting timer: without a late packet for this long the timer halves; 1 s (NCTU).
    pub adjust: Duration,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        ReorderConfig {
            window: 4096,
            bytes: 8 << 20,
            first_timer: Duration::from_millis(80),
            min_timer: Duration::from_millis(40),
            max_timer: Duration::from_millis(500),
            late_step: Duration::from_millis(1),
            adjust: Duration::from_secs(1),
        }
    }
}

impl ReorderConfig {
    /// Checks that the parameters make sense together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.window.is_power_of_two() || !(512..=32_768).contains(&self.window) {
            return Err(ConfigError::Window { window: self.window });
        }
        let ordered = self.min_timer <= self.first_timer && self.first_timer <= self.max_timer;
        if self.min_timer.is_zero() || !ordered || self.adjust.is_zero() {
            return Err(ConfigError::Timers);
        }
        if self.bytes < 65_536 {
            return Err(ConfigError::Bytes { bytes: self.bytes });
        }
        Ok(())
    }
}

/// Parameters of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The sending half.
    pub sender: SenderConfig,
    /// The receiving half.
    pub reorder: ReorderConfig,
    /// Time between reports on a link that carries data; 20 ms.
    pub report: Duration,
    /// Time between reports, which are then probes, on an idle link; 100 ms.
    pub probe: Duration,
    /// A link that says nothing for this long is down; 500 ms.
    pub silence: Duration,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            sender: SenderConfig::default(),
            reorder: ReorderConfig::default(),
            report: Duration::from_millis(20),
            probe: Duration::from_millis(100),
            silence: Duration::from_millis(500),
        }
    }
}

impl EndpointConfig {
    /// Checks that the parameters make sense together.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.sender.check()?;
        self.reorder.check()?;
        let ordered = self.report <= self.probe && 2 * self.probe < self.silence;
        if self.report < Duration::from_millis(1) || !ordered {
            return Err(ConfigError::Reports);
        }
        Ok(())
    }
}

/// Parameters that cannot work, each with its remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Frame size out of range.
    #[error("frame {frame} is out of range; give 128 to 65535 bytes")]
    Frame {
        /// Bytes asked for.
        frame: u16,
    },
    /// Not a share.
    #[error("{percent}% is out of range; give 1% to 100%")]
    Percent {
        /// Percent asked for.
        percent: u8,
    },
    /// No room for a packet.
    #[error("the queue holds nothing; give it at least 1 frame and more than 0 s")]
    NoQueue,
    /// The smallest queue is above the largest.
    #[error("queue_frames is above queue_frames_max; raise the latter")]
    QueueBounds,
    /// A rate of zero.
    #[error("a link cannot start at 0 bit/s; give at least 1 bit/s")]
    NoRate,
    /// Not a power of two, or out of range.
    #[error("window {window} is not a power of two; give one from 512 to 32768")]
    Window {
        /// Frames asked for.
        window: u32,
    },
    /// Too few bytes for one frame.
    #[error("{bytes} bytes hold no large frame; give at least 65536")]
    Bytes {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Timers of zero or out of order.
    #[error("timers must be above 0 s, and min_timer <= first_timer <= max_timer")]
    Timers,
    /// Intervals out of order.
    #[error("reports need 1 ms <= report <= probe, and twice probe < silence")]
    Reports,
    /// A 17th link.
    #[error("a trunk has at most 16 links")]
    TooManyLinks,
    /// A session of zero, which stands for none.
    #[error("session 0 stands for none; draw another number")]
    NoSession,
}
