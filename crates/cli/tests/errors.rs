//! Mistakes of a user: every answer is one line with cause and remedy, and status 2. Needs
//! root.

use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::process::{Command, Output};
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// A host with a cable `v0` to `v1`; `v0` is up and has 10.5.0.1.
fn host() -> Namespace {
    let host = Namespace::new().unwrap();
    host.run(|| {
        ip::run("link add v0 type veth peer name v1")?;
        ip::run("addr add 10.5.0.1/24 dev v0")?;
        ip::run("link set v1 up")?;
        ip::run("link set v0 up")
    })
    .unwrap();
    host
}

fn run(host: &Namespace, line: &str) -> Output {
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace());
    host.enter(&mut command);
    command.output().unwrap()
}

/// Nothing but one line on the error output that has all of `told`, and status 2.
fn refused(host: &Namespace, line: &str, told: &[&str]) {
    let output = run(host, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "sheaf {line}: {said}");
    assert!(output.stdout.is_empty(), "sheaf {line}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(said.starts_with("sheaf: ") && said.lines().count() == 1, "sheaf {line}: {said}");
    for part in told {
        assert!(said.contains(part), "sheaf {line}: {said}");
    }
}

#[test]
fn a_word_that_is_none_is_answered_with_those_that_are() {
    let host = host();
    for (line, told) in [
        ("agregate", &["a similar subcommand exists: 'aggregate'", "see `sheaf --help`"][..]),
        ("lab frob", &["unrecognized subcommand 'frob'", "see `sheaf lab --help`"]),
        ("aggregate --frob dev v0", &["'--frob'", "see `sheaf aggregate --help`"]),
        ("aggregate dev v0 xyzzy", &["unknown keyword \"xyzzy\"; give one of dev, peer, key, to"]),
        ("aggregate dev v0 per any", &["did you mean \"peer\"?"]),
        ("split dev v0 xyzzy", &["give one of dev, peer, carriage, key, from, off"]),
        ("trunk t0 pth 10.5.0.1", &["did you mean \"path\"?"]),
        ("window dev v0 capcity 1mbit", &["did you mean \"capacity\"?"]),
        ("show frob v0", &["unknown keyword \"frob\"; give one of dev"]),
        ("show --frob", &["'--frob'", "see `sheaf show --help`"]),
        ("emulate dev v0 dellay 1ms", &["did you mean \"delay\"?"]),
        ("emulate frob", &["give one of link, dev, shell"]),
        ("lab run voip-two-hop --frob", &["see `sheaf lab run --help`"]),
    ] {
        refused(&host, line, told);
    }
}

#[test]
fn a_value_that_cannot_be_is_answered_with_one_that_can() {
    let host = host();
    for (line, told) in [
        ("aggregate dev v0 peer any timeout -5ms", "write it like 5ms"),
        ("aggregate dev v0 peer any hold 5", "hold 5 has no unit; write 5ms or 5us"),
        (
            "aggregate dev v0 peer any max 99999",
            "max 99999 is out of range; give 100 to 2048 bytes",
        ),
        ("aggregate dev v0 peer any inflight x", "is not a number; write it like 1"),
        ("aggregate dev v0 peer any inflight 99999999999", "give a smaller number"),
        ("trunk t0 path 10.5.0.1 mtu -1", "write it like 1400, or auto"),
        ("trunk t0 path 10.5.0.1 plain mtu 1500", "give at most 1464, or auto"),
        ("window dev v0 capacity 10", "capacity 10 has no unit; write 10mbit or 10kbit"),
        ("window dev v0 capacity -10mbit", "write it like 20mbit"),
        ("window dev v0 capacity 1mbit segments x", "is not a number; write it like 2"),
        ("emulate dev v0 delay -5ms", "write it like 20ms"),
        ("emulate dev v0 loss 101", "is not a percentage; write it like 1%"),
        ("emulate dev v0 limit 0", "limit 0 is too small; give 1 or more"),
        ("emulate dev v0 rate 1", "rate 1 has no unit; write 1mbit or 1kbit"),
        ("emulate dev v0 rate 1mbit reverse rate 2mbit", "write dev v0 both, or leave it out"),
        ("emulate dev v0 --budget -3ms", "write it like 1ms"),
        ("lab run voip-two-hop --points x", "invalid value 'x'"),
        ("lab run voip-two-hop --engine frob", "[possible values: netns, virtual]"),
        ("lab run voip-two-hop --duration -1 --out /proc/none", "give seconds above zero"),
        ("lab run voip-two-hop --seed -1", "invalid value '-1'"),
    ] {
        refused(&host, line, &[told]);
    }
}

#[test]
fn a_word_too_many_or_too_few_is_told() {
    let host = host();
    for (line, told) in [
        ("aggregate dev v0 dev v1", "dev is given twice; give it once"),
        ("aggregate dev v0 peer any peer any", "peer any is given twice; give it once"),
        ("split dev v0 off off", "off is given twice; give it once"),
        ("split dev v0 off key k", "off takes no peers, no key and no carriage; leave these out"),
        ("trunk t0", "write path LOCAL REMOTE"),
        ("trunk t0 path 10.5.0.1 scheduler rr scheduler rr", "give it once"),
        ("window dev v0", "write capacity 20mbit"),
        ("show dev", "dev lacks its value; write dev eth0"),
        ("show dev v0 v1", "\"v1\" is one word too many; leave it out"),
        ("emulate dev", "dev lacks IF; write dev eth0"),
        ("emulate medium", "medium lacks FILE; write medium air.toml"),
        ("emulate show", "show lacks IF|NAME; write show eth0"),
        ("emulate change dev", "change lacks IF, such as eth0; add it"),
        ("lab gather", "not provided: <FOLDERS>...; see `sheaf lab gather --help`"),
    ] {
        refused(&host, line, &[told]);
    }
}

#[test]
fn what_is_not_there_is_told_with_what_to_do() {
    let host = host();
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("result.json"), "{\"x\":").unwrap();
    let folder = folder.path().display();
    for (line, told) in [
        ("aggregate dev nope0 peer any", "no interface \"nope0\"; there are"),
        ("aggregate dev v0 to 192.0.2.1", "no route leads to 192.0.2.1; add one"),
        ("split dev nope0 peer any", "no interface \"nope0\"; there are"),
        ("split dev v0 off", "no splitter on v0; nothing to take off"),
        ("trunk t0 path 10.6.0.1 plain", "give an address of ours to path"),
        ("trunk v0 path 10.5.0.1 plain", "there is an interface v0 already; take another name"),
        ("window dev nope0 capacity 1mbit", "no interface \"nope0\"; there are"),
        ("window dev lo capacity link", "give capacity RATE, or capacity auto"),
        ("show", "start `sheaf aggregate`, `sheaf trunk`, `sheaf window` or `sheaf emulate`"),
        ("show dev nope0", "no interface \"nope0\"; there are"),
        ("emulate link v0 nope0", "no interface \"nope0\"; there are"),
        ("emulate show v0", "nothing emulates on v0; start `sheaf emulate dev v0 LINK`"),
        ("emulate change dev v0 rate 1mbit", "start `sheaf emulate dev v0 LINK`"),
        ("emulate dist /nonexistent", "cannot read /nonexistent; give a file that is there"),
        ("emulate dev v0 --rules /nonexistent", "give a file that is there"),
        ("emulate dev v0 --pcap /nonexistent/x", "give another file to --pcap"),
        ("lab show frob", "no plan \"frob\"; give one of"),
        (&format!("lab report {folder}"), "is not a result of this version; run it again"),
        (&format!("lab gather {folder}"), "run `sheaf lab run"),
    ] {
        refused(&host, line, &[told]);
    }
}
