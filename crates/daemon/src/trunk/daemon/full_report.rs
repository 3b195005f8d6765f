//! The report of a trunk at work.

use super::Daemon;
use crate::trunk::member::Member;
use crate::trunk::report::{Link, Quota, Trunk};
use sheaf_netio::clock;
use sheaf_stage::{DropReason, Duration, Instant};
use sheaf_trunk::{EndpointStats, LinkReceived, LinkStats};
use std::collections::BTreeMap;

impl Daemon {
    /// The report of this moment.
    pub fn full_report(&self) -> Trunk {
        let now = clock::now();
        let (endpoint, stats) = (&self.endpoint, self.endpoint.stats());
        let sent = endpoint.sent();
        let reasons = DropReason::ALL.iter().filter(|reason| sent.dropped(**reason) > 0);
        let mut trunk = Trunk {
            interface: self.settings.name.clone(),
            scheduler: self.settings.endpoint.sender.scheduler.name().to_owned(),
            mtu: self.mtu,
            priority: self.priority.name().to_owned(),
            seconds: (now - self.started).as_secs_f64(),
            established: endpoint.is_established(),
            sessions: stats.sessions,
            packets_sent: sent.packets_out,
            packets_compressed: stats.compress.packets,
            bytes_saved: stats.compress.saved,
            packets_restored: stats.restored,
            dropped: reasons.map(|why| (why.name().to_owned(), sent.dropped(*why))).collect(),
            waiting: endpoint.sender().held(),
            packets_delivered: stats.delivered,
            undelivered: self.undelivered,
            reorder_timer_ms: millis(stats.timer),
            late: stats.reorder.late,
            disordered: stats.reorder.disordered,
            given_up: stats.reorder.passed + stats.reorder.timed_out + stats.reorder.squeezed,
            duplicates: stats.duplicates,
            parities_sent: stats.parity.sent,
            frames_protected: stats.parity.frames,
            frames_recovered: stats.recovered,
            encrypted: self.settings.key.is_some(),
            handshakes: stats.handshakes,
            refused: refused(&stats),
            fallen_back_to: None,
            links: self.members.iter().map(|member| self.link(member, now)).collect(),
        };
        if self.uncut > 0 {
            trunk.dropped.insert("uncut".to_owned(), self.uncut);
        }
        let alone = endpoint.sender().fallen_back_to();
        trunk.fallen_back_to = alone.map(|id| self.members[usize::from(id.0)].name.clone());
        trunk
    }

    fn link(&self, member: &Member, now: Instant) -> Link {
        let LinkStats {
            up,
            used,
            frames,
            bytes,
            waiting,
            rate,
            loss,
            round_trip,
            queue,
            jitter,
            ..
        } = self.endpoint.link_stats(member.id, now).unwrap_or_default();
        let received = self.endpoint.link_received(member.id).unwrap_or_default();
        let LinkReceived { frames: frames_received, strangers, moves } = received;
        Link {
            link: member.name.clone(),
            peer: self.endpoint.remote(member.id).map(|end| end.to_string()),
            carrier: self.sockets[member.socket].carrier.is_some(),
            up,
            used,
            rate_bps: rate,
            loss,
            round_trip_ms: millis(round_trip),
            queue_ms: millis(queue),
            jitter_ms: millis(jitter),
            waiting,
            frames_sent: frames,
            bytes_sent: bytes,
            frames_received,
            strangers,
            unsent: member.unsent,
            moves,
            quota: member.meter.as_ref().map(|meter| Quota {
                used_bytes: meter.record().used,
                quota_bytes: meter.quota().bytes,
                period: meter.quota().period.name().to_owned(),
                used_up: meter.is_closed(),
            }),
        }
    }
}

/// Frames that were refused, by reason.
fn refused(stats: &EndpointStats) -> BTreeMap<String, u64> {
    let reasons = [
        ("malformed", stats.refused),
        ("unknown-session", stats.unknown_session),
        ("session-alive", stats.displacing),
        ("bad-report", stats.bad_reports),
        ("other-link", stats.other_link),
        ("not-sealed", stats.not_sealed),
        ("sealed", stats.sealed),
        ("no-session", stats.no_keys),
        ("wrong-key", stats.wrong_key),
        ("replayed", stats.replayed),
        ("unknown-context", stats.not_restored),
    ];
    let some = reasons.into_iter().filter(|(_, frames)| *frames > 0);
    some.map(|(reason, frames)| (reason.to_owned(), frames)).collect()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
