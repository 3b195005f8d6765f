//! The report of an emulation as text.

use sheaf_daemon::emulate::Status;
use std::fmt::Write;

/// `status` in the manner of `tc -s`.
pub fn text(status: &Status) -> String {
    let mut text = format!("{}: seed {} up {:.1}s\n", status.place, status.seed, status.seconds);
    let out = &mut text;
    for (name, link) in &status.links {
        let _ = writeln!(
            out,
            "  {name}: in {} pkt {} bytes, out {} pkt {} bytes, held {} in the rate queue, \
             {} on the delay line",
            link.offered_packets,
            link.offered_bytes,
            link.delivered_packets,
            link.delivered_bytes,
            link.rate_queue_packets,
            link.delay_line_packets
        );
        let _ = writeln!(out, "    {}", link.settings.words);
        if link.standstills > 0 {
            let _ = writeln!(
                out,
                "    stood still {} times for burst, {:.3} ms lost",
                link.standstills, link.stood_still_ms
            );
        }
        if link.flows > 0 || link.expired_flows > 0 {
            let _ = writeln!(
                out,
                "    flows {}, gone {}, gave way {}, without a link {} pkt",
                link.flows, link.expired_flows, link.reused_flows, link.crowded_packets
            );
        }
        let causes: Vec<_> =
            link.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        if !causes.is_empty() {
            let _ = writeln!(out, "    {}", causes.join(", "));
        }
    }
    let late = &status.lateness;
    let _ = writeln!(
        out,
        "  late by p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, at most {:.0} us ({} pkt)",
        late.p50_us, late.p99_us, late.p999_us, late.max_us, late.packets
    );
    if status.missed + status.memory_full + status.refused + status.denied > 0 {
        let _ = writeln!(
            out,
            "  lost before the link {} (memory full {}), behind it {}, denied by rules {}",
            status.missed, status.memory_full, status.refused, status.denied
        );
    }
    if status.uncaptured > 0 {
        let _ = writeln!(out, "  not in the capture {}", status.uncaptured);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_daemon::emulate::{Lateness, LinkSettings, LinkStatus};
    use sheaf_emulator::Cause;

    #[test]
    fn time_lost_to_the_bound_on_bursts_is_shown() {
        let with = |standstills, stood_still_ms| {
            let link = LinkStatus { standstills, stood_still_ms, ..Default::default() };
            text(&Status { links: [("a egress".to_owned(), link)].into(), ..Default::default() })
        };
        assert!(with(12, 3.214).contains("    stood still 12 times for burst, 3.214 ms lost\n"));
        assert!(!with(0, 0.0).contains("stood still"));
    }

    #[test]
    fn the_manual_has_every_key_of_the_json_and_every_cause() {
        let page = include_str!("../../../../man/sheaf-emulate.8");
        let object = |value| match value {
            serde_json::Value::Object(map) => map.into_iter().map(|(key, _)| key),
            other => panic!("{other} is no object"),
        };
        let status = serde_json::to_value(Status::default()).unwrap();
        let link = serde_json::to_value(LinkStatus::default()).unwrap();
        let lateness = serde_json::to_value(Lateness::default()).unwrap();
        let settings = LinkSettings {
            rate_bps: Some(1),
            burst_bytes: Some(1),
            loss: Some(0.5),
            ..Default::default()
        };
        let settings = serde_json::to_value(settings).unwrap();
        for key in [status, link, lateness, settings].into_iter().flat_map(object) {
            let known = page.contains(&format!("\\fB{key}\\fR"));
            assert!(known, "man/sheaf-emulate.8 does not explain {key}");
        }
        for cause in Cause::ALL {
            let name = cause.name().replace('-', "\\-");
            let known = [format!(".BR {name} "), format!("\" {name} ")];
            let known = known.iter().any(|form| page.contains(form));
            assert!(known, "man/sheaf-emulate.8 does not explain the cause {name}");
        }
    }
}
