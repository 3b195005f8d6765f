//! The report of a trunk.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything known of one trunk.
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
    /// Time since start.
    pub seconds: f64,
    /// Both ends know and accept each other.
    pub established: bool,
    /// Sessions of the other end that were accepted: its starts.
    pub sessions: u64,
    /// Packets from the host that left, a copy on each link counted.
    pub packets_sent: u64,
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
    /// Frames that came after they had been given up.
    pub late: u64,
    /// Frames that went up after a later one of their flow.
    pub disordered: u64,
    /// Frames that were given up.
    pub given_up: u64,
    /// Frames that came twice.
    pub duplicates: u64,
    /// Whether frames are encrypted with a key.
    pub encrypted: bool,
    /// Handshakes that made keys.
    pub handshakes: u64,
    /// Frames that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The link that carries everything, while all together are worse than it.
    pub fallen_back_to: Option<String>,
    /// By link, in the order of the command line.
    pub links: Vec<Link>,
}

/// State of one link.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Link {
    /// As on the command line.
    pub link: String,
    /// Where the other end is.
    pub peer: Option<String>,
    /// The interface works.
    pub carrier: bool,
    /// The other end answers.
    pub up: bool,
    /// It takes packets.
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
    /// Packets that wait for it.
    pub waiting: usize,
    /// Frames sent, and their bytes without carrier headers.
    pub frames_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Frames that came in this session.
    pub frames_received: u32,
    /// Frames from somebody else.
    pub strangers: u64,
    /// Frames that the kernel did not take.
    pub unsent: u64,
    /// Times that the other end was found at a new address.
    pub moves: u64,
}
