//! The report of a trunk.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The report of one trunk.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Trunk {
    /// Its interface.
    pub interface: String,
    /// Scheduler, which decides by which link a packet goes.
    pub scheduler: String,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// Scheduling by the kernel: realtime or normal.
    pub priority: String,
    /// Seconds since the start.
    pub seconds: f64,
    /// Whether both ends accept each other.
    pub established: bool,
    /// Sessions of the other end that were accepted: its starts.
    pub sessions: u64,
    /// Packets from the host that left; each copy counts.
    pub packets_sent: u64,
    /// Packets from the host that left with compressed headers.
    pub packets_compressed: u64,
    /// Bytes that their headers would have taken more.
    pub bytes_saved: u64,
    /// Packets whose headers were restored.
    pub packets_restored: u64,
    /// Packets from the host that were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets from the host that wait.
    pub waiting: u64,
    /// Packets handed to the host.
    pub packets_delivered: u64,
    /// Packets that the host did not take.
    pub undelivered: u64,
    /// The longest reordering timer of all flows, in milliseconds.
    pub reorder_timer_ms: f64,
    /// Frames that arrived after they had been given up.
    pub late: u64,
    /// Frames that were delivered after a later one of their flow.
    pub disordered: u64,
    /// Frames that were given up.
    pub given_up: u64,
    /// Frames that arrived twice.
    pub duplicates: u64,
    /// Parities sent.
    pub parities_sent: u64,
    /// Frames in them.
    pub frames_protected: u64,
    /// Frames that were known by a parity before they came.
    pub frames_recovered: u64,
    /// Whether frames are encrypted with a key.
    pub encrypted: bool,
    /// Handshakes that made keys.
    pub handshakes: u64,
    /// Frames that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The link that carries everything, while all links together carry less than it alone.
    pub fallen_back_to: Option<String>,
    /// By link, in the order of the command line.
    pub links: Vec<Link>,
}

/// State of one link.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Link {
    /// Its words on the command line.
    pub link: String,
    /// Address of the other end.
    pub peer: Option<String>,
    /// Whether the interface works.
    pub carrier: bool,
    /// Whether the other end replies over the link.
    pub up: bool,
    /// Whether the link takes packets.
    pub used: bool,
    /// Learned rate towards the other end in bit/s, carrier headers included.
    pub rate_bps: u64,
    /// Share of frames lost on the way there, 0 to 1.
    pub loss: f64,
    /// Round trip in milliseconds.
    pub round_trip_ms: f64,
    /// Queue in the link, in milliseconds.
    pub queue_ms: f64,
    /// Variation of the one-way delay in milliseconds.
    pub jitter_ms: f64,
    /// Packets that wait for the link.
    pub waiting: usize,
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes of the frames sent, without carrier headers.
    pub bytes_sent: u64,
    /// Frames that arrived in this session.
    pub frames_received: u32,
    /// Frames that another host sent.
    pub strangers: u64,
    /// Frames that the kernel did not take.
    pub unsent: u64,
    /// Times that the other end was found at a new address.
    pub moves: u64,
    /// Use of its quota; `None` without one.
    pub quota: Option<Quota>,
}

/// Use of a link's quota.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Quota {
    /// Bytes sent and received in this period, carrier headers included.
    pub used_bytes: u64,
    /// Bytes that the link may carry in a period.
    pub quota_bytes: u64,
    /// The period: day, week or month.
    pub period: String,
    /// Whether it is used up, so that the link is closed.
    pub used_up: bool,
}
