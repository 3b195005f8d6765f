//! The report of window control as text.

use sheaf_daemon::window::report::{LISTED, Report, Total};
use std::fmt::Write;

/// The report on interface `dev` in the manner of `tc -s`.
pub fn text(dev: &str, report: &Report) -> String {
    let mut text = String::new();
    let out = &mut text;
    let (formula, seconds) = (&report.formula, report.seconds);
    let _ = writeln!(out, "{dev}: windows by formula {formula} up {seconds:.1}s");
    for total in &report.totals {
        let _ = writeln!(
            out,
            "  {}: capacity {} ({}) not governed {} active {} of {} flows, queue {:.1}ms{}",
            total.direction,
            rate(total.capacity),
            total.source,
            rate(total.usage),
            total.active,
            total.flows,
            total.queue_ms,
            responsiveness(total)
        );
        let _ = writeln!(
            out,
            "    passed {} pkt {} bytes, windows lowered {}{}, rest {}{}{} marked {} policed {}",
            total.packets,
            total.bytes,
            total.clamped,
            if total.paced > 0 { format!(" paced {}", total.paced) } else { String::new() },
            total.rest,
            total.rest_share.map_or(String::new(), |share| format!(" to {}", rate(share))),
            if total.competes { ", which takes all: TCP without windows" } else { "" },
            total.marked,
            total.policed
        );
    }
    for flow in &report.flows {
        let rtt = flow.rtt_ms.map_or("-".to_owned(), |rtt| format!("{rtt:.1}ms"));
        let _ = writeln!(
            out,
            "  {} {} > {}: rate {} rtt {rtt} share {} asked {} written {} lowered {}",
            flow.direction,
            flow.from,
            flow.to,
            rate(flow.rate),
            flow.share,
            flow.asked,
            flow.written,
            flow.clamped
        );
    }
    let all: usize = report.totals.iter().map(|total| total.flows).sum();
    if report.flows.len() == LISTED && all > LISTED {
        let _ = writeln!(out, "  … and slower flows");
    }
    text
}

/// Round trips per minute under load and the grade of the latency that load adds, where there was
/// any load.
fn responsiveness(total: &Total) -> String {
    match (total.rpm, &total.grade) {
        (Some(rpm), Some(grade)) => format!(" rpm {rpm:.0} grade {grade}"),
        _ => String::new(),
    }
}

/// `bits` per second as `tc` writes it, with two digits behind the point.
fn rate(bits: f64) -> String {
    match bits {
        bits if bits >= 1e9 => format!("{:.2}Gbit", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.2}Mbit", bits / 1e6),
        bits if bits >= 1e3 => format!("{:.2}Kbit", bits / 1e3),
        bits => format!("{bits:.0}bit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_daemon::window::report::Flow;
    use sheaf_stage::Duration;
    use sheaf_window::controller::FlowStatus;
    use sheaf_window::{Direction, Half, Key};

    #[test]
    fn a_flow_is_told_from_sender_to_receiver() {
        let outside = ("10.0.0.1".parse().unwrap(), 80);
        let key = Key::new(outside, ("fd00::1".parse().unwrap(), 4000));
        let half = Half { window: 30_000, asked: 60_000, written: 29_952, ..Half::default() };
        let rtt = Some(Duration::from_micros(60_250));
        let status = FlowStatus { rate: 2.164e6, rtt, ..FlowStatus::default() };
        let flows = Direction::BOTH.map(|way| Flow::new(&key, way, &half, status));
        assert_eq!((&*flows[1].from, &*flows[1].to), ("[fd00::1]:4000", "10.0.0.1:80"));
        let report = Report { flows: flows.into(), ..Report::default() };
        let text = text("eth0", &report);
        let line = "  download 10.0.0.1:80 > [fd00::1]:4000: rate 2.16Mbit rtt 60.2ms share 30000 \
                    asked 60000 written 29952 lowered 0";
        assert!(text.lines().any(|one| one == line), "{text}");
    }

    #[test]
    fn a_direction_that_was_loaded_shows_its_responsiveness_and_another_does_not() {
        let loaded = Total { rpm: Some(1432.4), grade: Some("A+".to_owned()), ..Total::default() };
        let report = Report { totals: vec![loaded, Total::default()], ..Report::default() };
        let text = text("eth0", &report);
        assert!(text.contains("queue 0.0ms rpm 1432 grade A+\n"), "{text}");
        assert!(text.contains("queue 0.0ms\n"), "{text}");
    }

    #[test]
    fn copies_are_shown_where_there_were_any() {
        let [paced, other] = [7, 0].map(|paced| Total { paced, ..Total::default() });
        let text = text("eth0", &Report { totals: vec![paced, other], ..Report::default() });
        assert!(text.contains("windows lowered 0 paced 7, rest"), "{text}");
        assert!(text.contains("windows lowered 0, rest"), "{text}");
    }

    #[test]
    fn the_rest_is_shown_with_the_share_that_it_is_held_to() {
        let held = Total {
            rest: "police".to_owned(),
            rest_share: Some(9.5e6),
            marked: 3,
            policed: 12,
            ..Total::default()
        };
        let left = Total { rest: "leave".to_owned(), ..Total::default() };
        let alone = Total { rest: "leave".to_owned(), competes: true, ..Total::default() };
        let text = text("eth0", &Report { totals: vec![held, left, alone], ..Report::default() });
        let held = "windows lowered 0, rest police to 9.50Mbit marked 3 policed 12\n";
        assert!(text.contains(held), "{text}");
        assert!(text.contains("windows lowered 0, rest leave marked 0 policed 0\n"), "{text}");
        let alone = "rest leave, which takes all: TCP without windows marked 0 policed 0\n";
        assert!(text.contains(alone), "{text}");
    }

    #[test]
    fn rates_have_the_unit_that_fits() {
        let rates = [20e9, 20e6, 64e3, 12.0].map(rate);
        assert_eq!(rates, ["20.00Gbit", "20.00Mbit", "64.00Kbit", "12bit"]);
    }
}
