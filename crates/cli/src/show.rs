//! `sheaf show`: the statistics of the theses, per interface and next hop; those of trunks; and the
//! flows whose windows are controlled.

use crate::emulate;
use crate::output;
use crate::reports;
use crate::trunk::report as trunk;
use crate::window;
use crate::words::unknown;
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sheaf_daemon::control::{self, Kind, ServiceName};
use sheaf_daemon::report::{Interface, Neighbour, Neighbourhood};
use sheaf_netio::ip;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The kinds of services that count something for an interface. Aggregation stands first: its
/// report is an interface, and the others add to it.
const KINDS: [Kind; 5] = [Kind::Aggregate, Kind::Split, Kind::Trunk, Kind::Window, Kind::Emulate];

/// `sheaf show` with its words: `neighbours` and `dev IF`, or an interface alone.
pub fn run(words: &[String], json: bool) -> anyhow::Result<()> {
    let lacks_value = "dev lacks its value; write dev eth0";
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["neighbours" | "neighbors"] => neighbours(None, json),
        ["neighbours" | "neighbors", "dev", dev] => neighbours(Some(dev), json),
        ["neighbours" | "neighbors", "dev"] | ["dev"] => bail!(lacks_value),
        ["neighbours" | "neighbors", word, ..] => bail!(unknown(word, &["dev"])),
        [] => show(None, json),
        [dev] | ["dev", dev] => show(Some(dev), json),
        ["dev", _, word, ..] => bail!(unknown(word, &[])),
        [word, ..] => bail!(unknown(word, &["dev", "neighbours"])),
    }
}

/// `sheaf show neighbours`: who says HELLO, on `dev` or on all interfaces.
fn neighbours(dev: Option<&str>, json: bool) -> anyhow::Result<()> {
    const SAYS_HELLO: [Kind; 2] = [Kind::Aggregate, Kind::Split];
    let mut services = running()?;
    services.retain(|service| {
        SAYS_HELLO.contains(&service.kind()) && dev.is_none_or(|dev| service.name() == dev)
    });
    let (interfaces, faults) = gather(services);
    let said = |interface: Interface| Some((interface.interface, interface.neighbourhood?));
    let shown: BTreeMap<_, _> = interfaces.into_values().filter_map(said).collect();
    if json {
        output::print_line(serde_json::to_string_pretty(&shown)?)?;
    } else if !shown.is_empty() {
        let text = |(name, one): (&String, &Neighbourhood)| neighbourhood(name, one);
        output::print(shown.iter().map(text).collect::<String>())?;
    } else if faults.is_empty() {
        dev.map(ip::index).transpose()?;
        bail!("nobody says HELLO here; start `sheaf aggregate dev IF` or `sheaf split dev IF`");
    }
    ensure!(faults.is_empty(), faults.join("; "));
    Ok(())
}

/// A line about what is said and heard, and one for each neighbour in the manner of `ip neigh`.
fn neighbourhood(name: &str, one: &Neighbourhood) -> String {
    let mut text = format!("{name}: node {} {}\n", one.node, hellos(one));
    for (mac, neighbour) in &one.neighbours {
        let Neighbour { addresses, formats, largest, heard, hears, period, .. } = neighbour;
        let addresses = match addresses.is_empty() {
            true => "-".to_owned(),
            false => addresses.join(","),
        };
        let formats: Vec<_> = formats.iter().map(u8::to_string).collect();
        let formats = if formats.is_empty() { "no".to_owned() } else { formats.join(",") };
        let largest = largest.map_or("-".to_owned(), |largest| largest.to_string());
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        let _ = write!(
            text,
            "{addresses} dev {name} lladdr {mac} splits {formats} max {largest} heard {} hears {} \
             period {period:.1}s last {:.1}s up {:.0}s restarts {}",
            percent(*heard),
            hears.map_or("-".to_owned(), percent),
            neighbour.last,
            neighbour.age,
            neighbour.restarts,
        );
        if let Some(snr) = neighbour.snr_db {
            let _ = write!(text, " snr {snr:.0}dB");
        }
        for (name, size) in [("asks", neighbour.asks), ("size", neighbour.size)] {
            if let Some(size) = size {
                let _ = write!(text, " {name} {size}");
            }
        }
        text += match neighbour.proven {
            Some(false) => " unproven\n",
            _ => "\n",
        };
    }
    text
}

/// The counters of HELLOs.
fn hellos(one: &Neighbourhood) -> String {
    let mut text = format!("HELLO sent {} heard {}", one.hellos_sent, one.hellos_heard);
    for (name, count) in [("unsent", one.hellos_unsent), ("dropped", one.hellos_dropped)] {
        if count > 0 {
            let _ = write!(text, " {name} {count}");
        }
    }
    for (reason, count) in &one.hellos_refused {
        let _ = write!(text, " {reason} {count}");
    }
    text
}

/// `sheaf show`: `dev` or all interfaces of this namespace. A service that does not respond is an
/// error, after what the others reported has been printed.
fn show(dev: Option<&str>, json: bool) -> anyhow::Result<()> {
    // A trunk needs no eBPF, and a machine without has no splitters.
    let support = sheaf_bpf::support();
    let mut services = running()?;
    if let Some(dev) = dev {
        // The second end of an emulated link is a name of its service, too, and is not listed.
        // An interface that another program made may have a name that none of ours has.
        services = KINDS.into_iter().filter_map(|kind| ServiceName::new(kind, dev).ok()).collect();
    }
    services.retain(|service| KINDS.contains(&service.kind()));
    let (mut interfaces, faults) = gather(services);
    let names = match dev {
        Some(dev) if interfaces.is_empty() => {
            ip::index(dev)?;
            vec![dev.to_owned()]
        }
        Some(dev) => vec![dev.to_owned()],
        None => ip::names()?,
    };
    for name in names.iter().filter(|_| support.is_ok()) {
        // An emulated shell has no interface of its name, and one may have gone meanwhile.
        let Ok(ifindex) = ip::index(name) else { continue };
        let interface = named(&mut interfaces, name);
        if interface.split.is_none() {
            interface.read_splitter(ifindex)?;
        }
    }
    let shown: Vec<Interface> = interfaces.into_values().filter(Interface::has_anything).collect();
    if shown.is_empty() && faults.is_empty() {
        support?;
    }
    if json {
        output::print_line(serde_json::to_string_pretty(&shown)?)?;
    } else if !shown.is_empty() {
        output::print(shown.iter().map(text).collect::<String>())?;
    } else if faults.is_empty() {
        bail!(
            "nothing aggregates or splits here, there is no trunk, no windows are controlled, and \
             no link is emulated; start `sheaf aggregate`, `sheaf trunk`, `sheaf window` or \
             `sheaf emulate`"
        );
    }
    ensure!(faults.is_empty(), faults.join("; "));
    Ok(())
}

fn running() -> anyhow::Result<Vec<ServiceName>> {
    control::services().context("cannot see which services run; run as root")
}

/// The reports of `services` by interface, and the faults of those that gave none.
fn gather(services: Vec<ServiceName>) -> (BTreeMap<String, Interface>, Vec<String>) {
    let (mut interfaces, mut faults) = (BTreeMap::new(), Vec::new());
    for report in reports::ask(services) {
        let interface = named(&mut interfaces, &report.name);
        let read = report.value.and_then(|value| add(interface, report.kind, value));
        faults.extend(read.err());
    }
    (interfaces, faults)
}

fn named<'a>(interfaces: &'a mut BTreeMap<String, Interface>, name: &str) -> &'a mut Interface {
    interfaces.entry(name.to_owned()).or_insert_with(|| Interface::new(name))
}

/// Adds the report of a service of this kind.
fn add(interface: &mut Interface, kind: &str, report: Value) -> Result<(), String> {
    let read = match kind.parse() {
        Ok(Kind::Aggregate) => serde_json::from_value(report).map(|report| *interface = report),
        Ok(Kind::Split) => serde_json::from_value(report).map(|report: Interface| {
            // Of an aggregator it is the same report under another name.
            if interface.engine.is_none() {
                *interface = report;
            }
        }),
        Ok(Kind::Trunk) => serde_json::from_value(report).map(|it| interface.trunk = Some(it)),
        Ok(Kind::Window) => serde_json::from_value(report).map(|it| interface.window = Some(it)),
        Ok(Kind::Emulate) => serde_json::from_value(report).map(|it| interface.emulate = Some(it)),
        _ => Ok(()),
    };
    let name = &interface.interface;
    read.map_err(|error| format!("{kind} {name} is of another version ({error}); restart it"))
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
    if let Some(one) = &interface.neighbourhood {
        let splits = one.neighbours.values().filter(|neighbour| neighbour.largest.is_some());
        let (splits, all) = (splits.count(), one.neighbours.len());
        let _ = writeln!(out, "  neighbours {all}, {splits} split; {}", hellos(one));
    }
    for (name, counters) in &interface.hops {
        let splits = counters.splits.as_deref().unwrap_or("-");
        let why = counters.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let by_mark = if interface.by_mark { " by mark" } else { "" };
        let max = counters.max.map_or("-".into(), |max| format!("{max}{by_mark}"));
        let (format, probes) = (counters.format.as_deref().unwrap_or("-"), counters.probes);
        let carriage = counters.carriage.as_ref();
        let carriage = carriage.map_or_else(String::new, |word| format!(" carriage {word}"));
        let _ = writeln!(
            out,
            "  to {name}: splits {splits}{why} max {max} format {format}{carriage} probes {probes}"
        );
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
    use sheaf_daemon::report::Counters;
    use sheaf_daemon::trunk::report::{Link, Quota, Trunk};
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
        let links = vec![Link { quota: Some(Quota::default()), ..Link::default() }];
        interface.trunk = Some(Trunk { links, ..Trunk::default() });
        let (totals, flows) = (vec![Total::default()], vec![Flow::default()]);
        interface.window = Some(Report { totals, flows, ..Report::default() });
        let groups = Counters { why: Some(String::new()), ..Counters::default() };
        interface.hops = [(String::new(), groups)].into();
        interface.neighbourhood = Some(Neighbourhood {
            neighbours: [(
                String::new(),
                Neighbour {
                    proven: Some(true),
                    snr_db: Some(20.0),
                    asks: Some(500),
                    size: Some(500),
                    ..Neighbour::default()
                },
            )]
            .into(),
            ..Neighbourhood::default()
        });
        let mut all = Vec::new();
        keys(&serde_json::to_value(&interface).unwrap(), &mut all);
        let page = include_str!("../../../man/sheaf-show.8");
        for key in all.iter().filter(|key| !key.is_empty()) {
            let bold = [format!("\\fB{key}\\fR"), format!(".BR {key} "), format!("\" {key} ")];
            let listed = format!("\" {key}\n");
            let known = bold.iter().chain([&listed]).any(|form| page.contains(form));
            assert!(known, "man/sheaf-show.8 does not explain {key}");
        }
    }
}
