//! `sheaf emulate`: emulated links on real interfaces.
//!
//! * [`arguments`]: the command line; [`rules`]: the file of rules and pipes;
//! * [`status`]: the report as text.

mod arguments;
mod rules;
mod status;

pub use status::text;

use crate::output;
use anyhow::{Context, bail, ensure};
use sheaf_daemon::control::{self, Error, Kind, Request, ServiceName};
use sheaf_daemon::emulate::settings::Mode;
use sheaf_daemon::emulate::{self, End, Settings, Status};
use sheaf_daemon::say;
use sheaf_emulator::Distribution;
use std::process::ExitCode;

/// The grammar, for `--help`.
pub const HELP: &str = "\
Usage: sheaf emulate link IF1 IF2 LINK [reverse LINK]            a cable with these properties
       sheaf emulate dev IF [egress|ingress|both] LINK [reverse LINK]   what one interface carries
       sheaf emulate shell LINK [reverse LINK] [-- COMMAND...]   a shell behind the link
       sheaf emulate change dev|link IF [pipe NAME] LINK [reverse LINK]   nothing queued is lost
       sheaf emulate show IF [--json]
       sheaf emulate stop IF
       sheaf emulate dist PING-LOG [--out FILE]                  a distribution from `ping`

  LINK is what tc-netem(8) takes:
       limit N [single]  seed N  ordered  queue KIND
       delay TIME [JITTER [CORRELATION]]  distribution uniform|normal|pareto|paretonormal|FILE
       loss [random] P [CORR] | state P13 [P31 [P32 [P23 [P14]]]] | gemodel P [R [1-H [1-K]]]  ecn
       duplicate P [CORR]  corrupt P [CORR]  reorder P [CORR] [gap N]
       rate R [PACKETOVERHEAD [CELLSIZE [CELLOVERHEAD]]]
       slot MIN [MAX] | slot distribution NAME DELAY JITTER  packets N  bytes N
  KIND, whose words follow it at once, is what tc(8) and, for shares, ipfw(8) call:
       fifo | bfifo limit SIZE | pfifo_head_drop | dualpi2
       codel [target TIME] [interval TIME] [ecn]  pie [target TIME] [tupdate TIME] [ecn]
       fq_codel [flows N] [quantum SIZE] [target TIME] [interval TIME] [ecn|noecn]
       red limit SIZE avpkt SIZE [min SIZE] [max SIZE] [burst N] [probability P] [bandwidth R]
           [ecn] [harddrop] [adaptive] [gentle]
       gred [limit SIZE] [ecn] [harddrop] { vq [dscp CLASS,…] limit SIZE avpkt SIZE … }…
       drr|wf2q+ [quantum SIZE] [limit N] { queue N weight W [dscp CLASS,…] }…
  and  --trace FILE   Mahimahi's delivery opportunities, or CSV: time,rate,delay,loss
       --once         the trace ends; otherwise it begins again
  single       limit counts packets under way, too, as NetEm's one queue does
  It holds in both directions unless reverse gives another for IF2 to IF1, ingress, or downwards.

  --rules FILE   rules and pipes (TOML) in place of LINK
  --pcap FILE    a capture (pcapng); what happened to each packet is its comment
  --audit        print how late packets left; status 1 when p99 is over --budget TIME (1ms)
  --spin TIME    look, not sleep, before a departure, for as long as waking up takes here (which is
                 learnt), but no longer than this (200us); 0 for never
  --awake        keep idle processors from sleeping while it runs; costs power
  --fifo N       run before all ordinary processes, with real-time priority N (1 to 99)

  The rules file has pipes and, in order, rules; the first that matches decides:
       [pipe.NAME]  link = \"LINK\"  per_flow = true | mask = \"src-ip 0xffffff00 dst-port 0xffff …\"
                    flows = N  expire = \"60s\"  weights = [1, 3]  scheduler = \"drr\"|\"wf2q\"
       [[rule]]     protocol, source, destination, source_ports, destination_ports, dscp,
                    direction = \"out\"|\"in\"  interface = \"IF\"  probability = 0.5
                    pipes = [\"NAME\", \"NAME:QUEUE\"] | action = \"pass\"|\"deny\"

Example: sheaf emulate link eth1 eth2 rate 10mbit delay 20ms limit 100
         sheaf emulate dev eth0 rate 2mbit sched wf2q+ queue 0 weight 1 queue 1 weight 4 dscp ef
         sheaf emulate shell rate 2mbit delay 50ms -- curl http://100.64.0.1/";

/// `sheaf emulate`: the status that the program ends with.
pub fn run(words: &[String]) -> anyhow::Result<ExitCode> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--help" | "-h" | "help", ..] => output::print_line(HELP)?,
        [_, words @ ..] if words.iter().take_while(|w| **w != "--").any(|w| *w == "--help") => {
            output::print_line(HELP)?;
        }
        ["link" | "dev" | "shell", ..] => return emulate(&arguments::parse(words)?),
        ["change", "dev" | "link", dev, ..] => change(dev, &words[3..])?,
        ["change", ..] => bail!("change lacks its interface; write change dev IF LINK"),
        ["show", dev] if !dev.starts_with("--") => output::print(status::text(&show(dev)?))?,
        ["show", dev, "--json"] | ["show", "--json", dev] => {
            output::print_line(serde_json::to_string_pretty(&show(dev)?)?)?;
        }
        ["stop", dev] => drop(ask(dev, &Request::Stop {})?),
        ["stop", ..] => bail!("stop takes one interface; write stop IF"),
        ["show", ..] => bail!("show takes one interface; write show IF [--json]"),
        ["dist", log] => dist(log, None)?,
        ["dist", log, "--out", out] => dist(log, Some(out))?,
        ["dist", ..] => bail!("dist takes a ping log; write dist FILE [--out FILE]"),
        [word, ..] => {
            let known = ["link", "dev", "shell", "change", "show", "stop", "dist"];
            return Err(crate::grammar::unknown(word, &known));
        }
        [] => bail!("nothing to do; write link IF1 IF2, dev IF, or shell"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Emulates until Ctrl-C, or the end of the shell.
fn emulate(settings: &Settings) -> anyhow::Result<ExitCode> {
    let (status, end) = emulate::run(settings, arguments::parse_change(settings))?;
    let late = settings.audit && status.lateness.p99_us > settings.budget.as_micros() as f64;
    let quiet = matches!(settings.mode, Mode::Shell { .. }) && !settings.audit;
    if !quiet {
        say(&status::text(&status));
    }
    if late {
        say(&format!(
            "over budget: p99 of lateness is {:.0} us, more than {} us",
            status.lateness.p99_us,
            settings.budget.as_micros()
        ));
    }
    let own = if late { 1 } else { 0 };
    match end {
        End::Gone(dev) => bail!("interface {dev} went away; put it back and start again"),
        End::Command(status) => Ok(ExitCode::from(status.max(own))),
        End::Asked => Ok(ExitCode::from(own)),
    }
}

/// Asks what emulates on `dev`.
fn ask(dev: &str, request: &Request) -> anyhow::Result<serde_json::Value> {
    control::ask(&ServiceName::new(Kind::Emulate, dev)?, request).map_err(|error| match error {
        Error::NotRunning(_) => {
            anyhow::anyhow!("nothing emulates on {dev}; start `sheaf emulate dev {dev} LINK`")
        }
        error => error.into(),
    })
}

/// `sheaf emulate show`.
fn show(dev: &str) -> anyhow::Result<Status> {
    Ok(serde_json::from_value(ask(dev, &Request::Report {})?)?)
}

/// `sheaf emulate change`.
fn change(dev: &str, words: &[String]) -> anyhow::Result<()> {
    ensure!(!words.is_empty(), "change says nothing; write change dev {dev} LINK");
    let directory = std::env::current_dir().unwrap_or_default();
    ask(dev, &Request::Change { words: words.to_vec(), directory }).map(drop)
}

/// `sheaf emulate dist`: the distribution of a ping log, in the form of iproute2.
fn dist(log: &str, out: Option<&str>) -> anyhow::Result<()> {
    ensure!(out != Some(log), "--out {log} would overwrite the log; give another file");
    let text = arguments::read(log)?;
    let ping = Distribution::from_ping(&text)
        .map_err(|error| anyhow::anyhow!("{log}: {error}; give what `ping` printed"))?;
    let table = ping.distribution.to_dist_text();
    let summary = format!(
        "{} round trips: delay {:.3}ms {:.3}ms {:.0}% distribution {}",
        ping.samples,
        ping.mean_ms,
        ping.deviation_ms,
        // A link knows no negative correlation.
        ping.correlation.max(0.0) * 100.0,
        out.unwrap_or("FILE")
    );
    match out {
        None => output::print(table)?,
        Some(out) => std::fs::write(out, table)
            .with_context(|| format!("cannot write {out}; give another --out"))?,
    }
    output::warn(summary);
    Ok(())
}
