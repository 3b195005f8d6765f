//! The report of an emulation as text.

use sheaf_daemon::emulate::{ClassStatus, Status};
use std::fmt::Write;

/// `status` in the manner of `tc -s`.
pub fn text(status: &Status) -> String {
    let mut text = format!("{}: seed {} up {:.1}s\n", status.place, status.seed, status.seconds);
    let out = &mut text;
    for (name, link) in &status.links {
        if let Some(class) = link.class.as_ref().filter(|class| !class.terms.leaf) {
            let _ = writeln!(out, "  {name}:");
            terms(out, class);
            continue;
        }
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
        if let Some(class) = &link.class {
            terms(out, class);
        }
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
    if !status.stations.is_empty() {
        stations(out, status);
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
    if status.behind > 0 {
        let _ = writeln!(out, "  fell behind: {} frames more than 10 ms late", status.behind);
    }
    if status.uncaptured > 0 {
        let _ = writeln!(out, "  not in the capture {}", status.uncaptured);
    }
    text
}

/// A class of HTB, and what the tree did with it.
fn terms(out: &mut String, class: &ClassStatus) {
    let _ = writeln!(out, "    {}", class.terms.words);
    let _ = writeln!(
        out,
        "    sent {} pkt {} bytes, borrowed {} pkt, lent {} pkt",
        class.sent_packets, class.sent_bytes, class.borrowed_packets, class.lent_packets
    );
}

/// The channel and the stations of a medium.
fn stations(out: &mut String, status: &Status) {
    let share = |ms: f64| if status.seconds > 0.0 { ms / status.seconds / 10.0 } else { 0.0 };
    let _ = writeln!(out, "  on the air {:.1}% of the time", share(status.busy_ms));
    for (name, one) in &status.stations {
        let host = one.interface.as_ref().or(one.radio.as_ref()).map_or("", String::as_str);
        let place = match &one.namespace {
            Some(namespace) => format!("{host} in {namespace}"),
            None => host.to_owned(),
        };
        let [x, y] = one.position;
        let _ = writeln!(
            out,
            "  {name} ({place}) at {x:.1} {y:.1} m: frames {} arrived {} lost {}, received {}, \
             queue {} of {}",
            one.offered_frames,
            one.delivered_frames,
            one.lost_frames,
            one.received_frames,
            one.queued_frames,
            one.queue_limit
        );
        let _ = writeln!(
            out,
            "    air {:.1}%: transmissions {} frames {} repeated {} collisions {}",
            one.air_share * 100.0,
            one.transmissions,
            one.attempts,
            one.retries,
            one.collisions
        );
        let others = [
            ("to nobody", one.unknown_frames),
            ("too large", one.oversized_frames),
            ("refused", one.refused_frames),
            ("queue full", one.dropped_frames),
            ("missed", one.missed_frames),
        ];
        let others: Vec<_> = others.iter().filter(|(_, count)| *count > 0).collect();
        if !others.is_empty() {
            let words = others.iter().map(|(name, count)| format!("{name} {count}"));
            let _ = writeln!(out, "    {}", words.collect::<Vec<_>>().join(", "));
        }
        let heard = one.heard.iter().map(|(other, heard)| {
            format!(
                "{other} {:.1} dBm ({} Mbit/s to it, {:.1}% lost)",
                heard.signal_dbm,
                heard.rate_bps as f64 / 1e6,
                heard.loss * 100.0
            )
        });
        let heard: Vec<_> = heard.collect();
        let heard = if heard.is_empty() { "nobody".to_owned() } else { heard.join(", ") };
        let _ = writeln!(out, "    hears {heard}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_daemon::emulate::{
        ClassSettings, Heard, Lateness, LinkSettings, LinkStatus, StationStatus,
    };
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
    fn a_class_is_shown_with_its_terms_and_what_it_borrowed_or_lent() {
        let class = |leaf, words: &str| {
            let terms = ClassSettings { leaf, words: words.to_owned(), ..Default::default() };
            let sent =
                ClassStatus { terms, sent_packets: 7, sent_bytes: 900, ..Default::default() };
            let class = match leaf {
                true => ClassStatus { borrowed_packets: 5, ..sent },
                false => ClassStatus { lent_packets: 5, ..sent },
            };
            LinkStatus { class: Some(class), ..Default::default() }
        };
        let home = ("class home".to_owned(), class(false, "rate 20mbit"));
        let calls = ("class calls".to_owned(), class(true, "rate 2mbit ceil 20mbit parent home"));
        let shown = text(&Status { links: [home, calls].into(), ..Default::default() });
        let expected = "  class calls: in 0 pkt 0 bytes, out 0 pkt 0 bytes, held 0 in the rate \
             queue, 0 on the delay line\n    \
             rate 2mbit ceil 20mbit parent home\n    \
             sent 7 pkt 900 bytes, borrowed 5 pkt, lent 0 pkt\n    \n  \
             class home:\n    rate 20mbit\n    \
             sent 7 pkt 900 bytes, borrowed 0 pkt, lent 5 pkt\n";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn a_medium_is_shown_by_station_and_says_where_it_fell_behind() {
        let heard = Heard { signal_dbm: -84.66, rate_bps: 5_500_000, loss: 0.012 };
        let left = StationStatus {
            interface: Some("radio0".to_owned()),
            namespace: Some("left".to_owned()),
            offered_frames: 12,
            delivered_frames: 9,
            lost_frames: 1,
            received_frames: 7,
            unknown_frames: 1,
            attempts: 20,
            retries: 10,
            transmissions: 20,
            collisions: 3,
            queued_frames: 2,
            queue_limit: 50,
            air_share: 0.125,
            position: [0.0, 2.5],
            heard: [("middle".to_owned(), heard)].into(),
            ..Default::default()
        };
        let status = Status {
            place: "emulating medium row".to_owned(),
            seconds: 2.0,
            stations: [("left".to_owned(), left)].into(),
            busy_ms: 500.0,
            behind: 4,
            ..Default::default()
        };
        let expected = "emulating medium row: seed 0 up 2.0s\n  \
             on the air 25.0% of the time\n  \
             left (radio0 in left) at 0.0 2.5 m: frames 12 arrived 9 lost 1, received 7, \
             queue 2 of 50\n    \
             air 12.5%: transmissions 20 frames 20 repeated 10 collisions 3\n    \
             to nobody 1\n    \
             hears middle -84.7 dBm (5.5 Mbit/s to it, 1.2% lost)\n  \
             late by p50 0 us, p99 0 us, p99.9 0 us, at most 0 us (0 pkt)\n  \
             fell behind: 4 frames more than 10 ms late\n";
        assert_eq!(text(&status), expected);
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
        let station = serde_json::to_value(StationStatus::default()).unwrap();
        let heard = serde_json::to_value(Heard::default()).unwrap();
        let terms = ClassSettings { parent: Some(String::new()), ..Default::default() };
        let terms = serde_json::to_value(terms).unwrap();
        let class = serde_json::to_value(ClassStatus::default()).unwrap();
        for key in [status, link, lateness, settings, station, heard, terms, class]
            .into_iter()
            .flat_map(object)
        {
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
