//! What `sheaf show` prints of a trunk.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Everything known of one trunk.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Trunk {
    /// Its interface.
    pub interface: String,
    /// Who decides which link a packet takes.
    pub scheduler: String,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// How the kernel schedules it: realtime or normal.
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
    /// Frames that are none.
    pub refused: u64,
    /// Frames of a session that is not the other end's.
    pub unknown_session: u64,
    /// The link that carries everything, while all together are worse than it.
    pub fallen_back_to: Option<String>,
    /// By link, in the order of the command line.
    pub links: Vec<Link>,
}

/// What is known of one link.
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

/// A trunk in the manner of `ip -s`.
pub fn text(trunk: &Trunk) -> String {
    let mut text = String::new();
    let out = &mut text;
    let state = if trunk.established { "established" } else { "waiting for the other end" };
    let Trunk { interface, scheduler, mtu, priority, seconds, .. } = trunk;
    let _ = writeln!(
        out,
        "{interface}: trunk {state} scheduler {scheduler} mtu {mtu} priority {priority} up {seconds:.1}s"
    );
    let dropped: u64 = trunk.dropped.values().sum();
    let _ = writeln!(
        out,
        "  sent {} pkt, waiting {}, dropped {dropped}; delivered {} pkt, not taken {}",
        trunk.packets_sent, trunk.waiting, trunk.packets_delivered, trunk.undelivered
    );
    let _ = writeln!(
        out,
        "  reorder timer {:.1}ms late {} disordered {} given up {} duplicates {}; refused {} unknown session {}",
        trunk.reorder_timer_ms,
        trunk.late,
        trunk.disordered,
        trunk.given_up,
        trunk.duplicates,
        trunk.refused,
        trunk.unknown_session
    );
    if let Some(link) = &trunk.fallen_back_to {
        let _ = writeln!(out, "  alone at work, as all together are worse: {link}");
    }
    for link in &trunk.links {
        let state = match (link.carrier, link.up, link.used) {
            (false, ..) => "no carrier",
            (_, false, _) => "down",
            (.., false) => "up, left out",
            _ => "up",
        };
        let peer = link.peer.as_deref().unwrap_or("not known yet");
        let _ = writeln!(out, "  link {}: {state}, other end {peer}", link.link);
        let _ = writeln!(
            out,
            "    rate {:.2}Mbit/s loss {:.2}% rtt {:.1}ms queue {:.1}ms jitter {:.1}ms",
            link.rate_bps as f64 / 1e6,
            link.loss * 100.0,
            link.round_trip_ms,
            link.queue_ms,
            link.jitter_ms
        );
        let _ = writeln!(
            out,
            "    sent {} frames {} bytes, waiting {}, not taken {}; received {} frames, from strangers {}",
            link.frames_sent,
            link.bytes_sent,
            link.waiting,
            link.unsent,
            link.frames_received,
            link.strangers
        );
    }
    text
}
