//! The report of a trunk as text.

use sheaf_daemon::trunk::report::{Quota, Trunk};
use std::fmt::Write;

/// A trunk in the manner of `ip -s`.
pub fn text(trunk: &Trunk) -> String {
    let mut text = String::new();
    let out = &mut text;
    let state = if trunk.established { "established" } else { "waiting for the other end" };
    let seal = if trunk.encrypted { "key" } else { "plain" };
    let Trunk { interface, scheduler, mtu, priority, seconds, .. } = trunk;
    let _ = writeln!(
        out,
        "{interface}: trunk {state} {seal} scheduler {scheduler} mtu {mtu} priority {priority} \
         up {seconds:.1}s"
    );
    let dropped: u64 = trunk.dropped.values().sum();
    let _ = writeln!(
        out,
        "  sent {} pkt, waiting {}, dropped {dropped}; delivered {} pkt, not taken {}",
        trunk.packets_sent, trunk.waiting, trunk.packets_delivered, trunk.undelivered
    );
    if trunk.encrypted {
        let _ = writeln!(
            out,
            "  headers left out of {} pkt, {} bytes saved; restored in {} pkt",
            trunk.packets_compressed, trunk.bytes_saved, trunk.packets_restored
        );
    }
    let _ = writeln!(
        out,
        "  reorder timer {:.1}ms late {} disordered {} given up {} duplicates {}",
        trunk.reorder_timer_ms, trunk.late, trunk.disordered, trunk.given_up, trunk.duplicates
    );
    let _ = writeln!(
        out,
        "  parities sent {} of {} frames; recovered {}",
        trunk.parities_sent, trunk.frames_protected, trunk.frames_recovered
    );
    let refused = trunk.refused.iter().map(|(reason, frames)| format!("{reason} {frames}"));
    let refused = refused.collect::<Vec<_>>().join(" ");
    let refused = if refused.is_empty() { "nothing" } else { &refused };
    let (sessions, handshakes) = (trunk.sessions, trunk.handshakes);
    let _ = writeln!(out, "  sessions {sessions} handshakes {handshakes}; refused {refused}");
    if let Some(link) = &trunk.fallen_back_to {
        let _ = writeln!(out, "  alone at work, as all together are worse: {link}");
    }
    for link in &trunk.links {
        let state = match (link.carrier, link.up, link.used) {
            (false, ..) if link.quota.as_ref().is_some_and(|quota| quota.used_up) => {
                "closed, its quota is used up"
            }
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
            "    sent {} frames {} bytes, waiting {}, not taken {}; received {} frames, \
             from strangers {}",
            link.frames_sent,
            link.bytes_sent,
            link.waiting,
            link.unsent,
            link.frames_received,
            link.strangers
        );
        if let Some(Quota { used_bytes, quota_bytes, period, .. }) = &link.quota {
            let [used, quota] = [used_bytes, quota_bytes].map(|bytes| *bytes as f64 / 1e6);
            let _ = writeln!(out, "    quota {used:.1} of {quota:.1}MB used this {period}");
        }
    }
    text
}
