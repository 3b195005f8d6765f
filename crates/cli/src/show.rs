//! `sheaf show`: the statistics of the theses, per interface and next hop; those of trunks; and the
//! flows whose windows are controlled.

use crate::emulate;
use crate::output;
use crate::trunk::report as trunk;
use crate::window;
use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use sheaf_daemon::control::{self, Error, Kind, Request, ServiceName};
use sheaf_daemon::report::Interface;
use sheaf_netio::ip;
use std::collections::BTreeSet;
use std::fmt::Write;

/// `sheaf show`: `dev` or all interfaces of this namespace.
pub fn show(dev: Option<&str>, json: bool) -> anyhow::Result<()> {
    // A trunk needs no eBPF, and a machine without has no splitters.
    let support = sheaf_bpf::support();
    let services = control::services().context("cannot see which services run; run as root")?;
    let mut names: BTreeSet<String> = match dev {
        Some(_) => BTreeSet::new(),
        None => ip::names()?.into_iter().collect(),
    };
    let wanted = |service: &&ServiceName| dev.is_none_or(|dev| dev == service.name());
    // A shell has no interface of its name; both ends of an emulated link are one service.
    names.extend(services.iter().filter(wanted).map(|service| service.name().to_owned()));
    if let Some(dev) = dev
        && names.is_empty()
    {
        ip::index(dev)?;
        names.insert(dev.to_owned());
    }
    let mut interfaces = Vec::new();
    for name in names {
        let mut interface: Interface =
            ask(Kind::Aggregate, &name)?.unwrap_or_else(|| Interface::new(&name));
        if interface.split.is_none()
            && support.is_ok()
            && let Ok(ifindex) = ip::index(&name)
        {
            interface.read_splitter(ifindex)?;
        }
        interface.trunk = ask(Kind::Trunk, &name)?;
        interface.window = ask(Kind::Window, &name)?;
        let listed = services.iter().any(|it| it.kind() == Kind::Emulate && it.name() == name);
        if dev.is_some() || listed {
            interface.emulate = ask(Kind::Emulate, &name)?;
        }
        if interface.has_anything() {
            interfaces.push(interface);
        }
    }
    if interfaces.is_empty() {
        support?;
    }
    if json {
        output::print_line(serde_json::to_string_pretty(&interfaces)?)?;
    } else if interfaces.is_empty() {
        bail!(
            "nothing aggregates or splits here, there is no trunk, no windows are controlled, and \
             no link is emulated; start `sheaf aggregate`, `sheaf trunk`, `sheaf window` or \
             `sheaf emulate`"
        );
    } else {
        output::print(interfaces.iter().map(text).collect::<String>())?;
    }
    Ok(())
}

/// The report of a service; `None` where it does not run.
fn ask<T: DeserializeOwned>(kind: Kind, name: &str) -> anyhow::Result<Option<T>> {
    // An interface that another program made may have a name that none of ours has.
    let Ok(name) = ServiceName::new(kind, name) else { return Ok(None) };
    match control::ask(&name, &Request::Report {}) {
        Ok(value) => {
            let report = serde_json::from_value(value);
            Ok(Some(report.with_context(|| format!("{name} is of another version; restart it"))?))
        }
        Err(Error::NotRunning(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An interface in the manner of `tc -s`.
pub fn text(interface: &Interface) -> String {
    let mut text = interface.trunk.as_ref().map_or_else(String::new, trunk::text);
    if interface.aggregates() {
        aggregation(&mut text, interface);
    }
    if let Some(status) = &interface.emulate {
        text += &emulate::text(status);
    }
    if let Some(report) = &interface.window {
        text += &window::text(&interface.interface, report);
    }
    text
}

fn aggregation(out: &mut String, interface: &Interface) {
    let (engine, policy) = (interface.engine.as_deref(), interface.policy.as_deref());
    let _ = writeln!(
        out,
        "{}: engine {} policy {} up {:.1}s held {} frames, passed {} frames",
        interface.interface,
        engine.unwrap_or("none"),
        policy.unwrap_or("none"),
        interface.seconds,
        interface.held_frames,
        interface.passed_frames
    );
    if interface.neighbours_left_out > 0 {
        let _ = writeln!(out, "  neighbours left out {}", interface.neighbours_left_out);
    }
    for (name, counters) in &interface.hops {
        let splits = counters.splits.as_deref().unwrap_or("-");
        let max = counters.max.map_or("-".into(), |max| max.to_string());
        let _ = writeln!(out, "  to {name}: splits {splits} max {max} probes {}", counters.probes);
        let _ = writeln!(
            out,
            "    aggregated {} pkt {} bytes in {} meta packets ({} bytes), alone {} pkt {} bytes",
            counters.aggregated_packets,
            counters.aggregated_bytes,
            counters.meta_packets,
            counters.aggregated_bytes_on_network,
            counters.unaggregated_packets,
            counters.unaggregated_bytes
        );
        let _ = writeln!(
            out,
            "    sent by size {} by ready {} by timeout {} over bound {}; {} pkt a frame, \
             {} pkt a meta packet",
            counters.sent_by_size,
            counters.sent_by_ready,
            counters.sent_by_timeout,
            counters.over_bound,
            counters.aggregation_ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            counters.average_aggregation.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        );
    }
    if let Some(split) = &interface.split {
        let mut counts = String::new();
        for (name, count) in split.iter().filter(|(_, count)| **count > 0) {
            let _ = write!(counts, " {name} {count}");
        }
        let _ =
            writeln!(out, "  split:{}", if counts.is_empty() { " nothing yet" } else { &counts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use sheaf_daemon::trunk::report::{Link, Trunk};
    use sheaf_daemon::window::report::{Flow, Report, Total};

    /// Every key in `value`, however deep.
    pub fn keys(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                into.push(key.clone());
                keys(value, into);
            }),
            Value::Array(list) => list.iter().for_each(|value| keys(value, into)),
            _ => {}
        }
    }

    #[test]
    fn the_manual_has_every_key_of_the_json() {
        let mut interface = Interface::new("eth0");
        let links = vec![Link::default()];
        interface.trunk = Some(Trunk { links, ..Trunk::default() });
        let (totals, flows) = (vec![Total::default()], vec![Flow::default()]);
        interface.window = Some(Report { totals, flows, ..Report::default() });
        let mut all = Vec::new();
        keys(&serde_json::to_value(&interface).unwrap(), &mut all);
        let page = include_str!("../../../man/sheaf-show.8");
        for key in all {
            let bold = [format!("\\fB{key}\\fR"), format!(".BR {key} "), format!("\" {key} ")];
            let listed = format!("\" {key}\n");
            let known = bold.iter().chain([&listed]).any(|form| page.contains(form));
            assert!(known, "man/sheaf-show.8 does not explain {key}");
        }
    }
}
