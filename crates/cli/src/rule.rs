//! The words behind `match`: criteria that packets meet.

use crate::words::{Entry, Form, Value, form, literal, part, set};
use sheaf_aggregate::Rule;
use sheaf_wire::ip::Protocol;
use std::marker::PhantomData;

/// Settings with a rule that criteria are added to.
pub trait Ruled: 'static {
    /// That rule.
    fn rule(&mut self) -> &mut Rule;
}

/// A rule that every packet matches.
pub fn everything() -> Rule {
    Rule { protocol: None, max_len: u16::MAX, ..Rule::default() }
}

/// The criteria of rules, for the tables of commands.
pub struct Criteria<S>(PhantomData<S>);

impl<S: Ruled> Criteria<S> {
    /// The protocol.
    pub const PROTO: Entry<S> = Entry {
        name: "proto",
        help: "the protocol: udp, tcp, icmp, icmp6, sctp, any, or a number",
        about: "The protocol.",
        forms_name: "P",
        forms: &[
            form(&[literal("udp", |s: &mut S| protocol(s, 17))], ""),
            form(&[literal("tcp", |s: &mut S| protocol(s, 6))], ""),
            form(&[literal("icmp", |s: &mut S| protocol(s, 1))], ""),
            form(&[literal("icmp6", |s: &mut S| protocol(s, 58))], ""),
            form(&[literal("ipv6-icmp", |s: &mut S| protocol(s, 58))], ""),
            form(&[literal("sctp", |s: &mut S| protocol(s, 132))], ""),
            form(&[literal("any", set!(|s| s.rule().protocol = None))], ""),
            form(&[part("N", "17", Value::Number(0..=255, |s: &mut S, n| protocol(s, n)))], ""),
        ],
        ..Entry::ONCE
    };
    /// The class.
    pub const DSCP: Entry<S> = Entry {
        name: "dscp",
        help: "the class: 0 to 63, or a name such as ef",
        about: "The class: 0 to 63, or `be`, `le`, `ef`, `va`, `cs0` to `cs7`, `af11` to `af43`.",
        forms: &[form(
            &[part("D", "ef", Value::Class(set!(|s, class| s.rule().dscp = Some(class))))],
            "",
        )],
        ..Entry::ONCE
    };
    /// The source port.
    pub const SPORT: Entry<S> = Entry {
        name: "sport",
        help: "the source port, or a range",
        about: "Source port of UDP or TCP, or a range of ports.",
        forms: &[form(
            &[part("A[-B]", "5004-5100", Value::Ports(set!(|s, p| s.rule().source_ports = p)))],
            "",
        )],
        ..Entry::ONCE
    };
    /// The destination port.
    pub const DPORT: Entry<S> = Entry {
        name: "dport",
        help: "the destination port, or a range",
        about: "Destination port.",
        forms: &[form(
            &[part(
                "A[-B]",
                "5004-5100",
                Value::Ports(set!(|s, p| s.rule().destination_ports = p)),
            )],
            "",
        )],
        ..Entry::ONCE
    };
    /// The firewall mark.
    pub const MARK: Entry<S> = Entry {
        name: "mark",
        help: "the firewall mark; of the bits in MASK",
        about: "Firewall mark, decimal or 0x...; of the bits in <MASK> (all).",
        forms: &[form(&[part("M[/MASK]", "0x3/0x3", Value::Mark(mark))], "")],
        ..Entry::ONCE
    };
    /// The longest packet.
    pub const LENGTH: Entry<S> = Entry {
        name: "length",
        help: "the longest packet, in bytes of IP",
        about: "Longest packet, in bytes of IP.",
        forms: &[form(
            &[part(
                "BYTES",
                "256",
                Value::Number(0..=65535, set!(|s, n| s.rule().max_len = n as u16)),
            )],
            "",
        )],
        ..Entry::ONCE
    };
}

fn protocol<S: Ruled>(state: &mut S, number: u64) -> anyhow::Result<()> {
    state.rule().protocol = Some(Protocol(u8::try_from(number)?));
    Ok(())
}

fn mark<S: Ruled>(state: &mut S, (value, mask): (u32, u32)) -> anyhow::Result<()> {
    anyhow::ensure!(
        value & !mask == 0,
        "mark {value:#x}/{mask:#x} matches nothing; set only bits that the mask has"
    );
    state.rule().mark = (value, mask);
    Ok(())
}

/// A form of the word `match`, and of those that it follows.
pub const fn matching<S>(
    begin: Option<fn(&mut S) -> anyhow::Result<()>>,
    parts: &'static [crate::words::Part<S>],
    criteria: &'static [Entry<S>],
    example: &'static str,
) -> Form<S> {
    Form {
        begin,
        parts,
        group: criteria,
        group_name: "RULE",
        group_example: example,
        ..Form::EMPTY
    }
}
