//! Rules that send packets through pipes, as dummynet's.
//!
//! Rules are tried in order and the first that matches decides (ipfw(8)); a packet that none
//! matches passes. A rule sends a packet through any number of pipes in a row.

use crate::error::ConfigError;
use crate::packet::{Direction, Packet, Target};
use crate::random::{Dice, Purpose, probability};
use sheaf_wire::flow::mix;
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::prefix::Prefix;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One rule; every condition must hold. Packets that are not IP match only rules that ask nothing
/// about IP.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Protocol number.
    pub protocol: Option<Protocol>,
    /// Source addresses.
    pub source: Option<Prefix>,
    /// Destination addresses.
    pub destination: Option<Prefix>,
    /// Source ports of UDP or TCP; the full range matches packets without ports, too.
    pub source_ports: RangeInclusive<u16>,
    /// Destination ports.
    pub destination_ports: RangeInclusive<u16>,
    /// DSCP, 0..=63.
    pub dscp: Option<u8>,
    /// The packet's direction.
    pub direction: Option<Direction>,
    /// The packet's interface.
    pub interface: Option<u16>,
    /// Of the packets that match otherwise, the share that does match; 0..=1.
    pub probability: f64,
    /// Action on the packet.
    pub action: Action,
}

impl Default for Rule {
    /// Everything passes.
    fn default() -> Self {
        Rule {
            protocol: None,
            source: None,
            destination: None,
            source_ports: 0..=u16::MAX,
            destination_ports: 0..=u16::MAX,
            dscp: None,
            direction: None,
            interface: None,
            probability: 1.0,
            action: Action::Pass,
        }
    }
}

/// Action of a rule on a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Let it pass without delay.
    Pass,
    /// Drop it.
    Deny,
    /// Send it through these, one after the other.
    Pipes(Arc<[Target]>),
}

impl Rule {
    pub(crate) fn check(&self, pipes: usize) -> Result<(), ConfigError> {
        probability("rule probability", self.probability)?;
        let Action::Pipes(targets) = &self.action else { return Ok(()) };
        match targets.iter().find(|target| target.pipe >= pipes) {
            Some(target) => Err(ConfigError::Missing { option: "pipe", number: target.pipe }),
            None => Ok(()),
        }
    }

    fn matches(&self, packet: &Packet, view: Option<&Ip<'_>>) -> bool {
        self.direction.is_none_or(|direction| direction == packet.direction)
            && self.interface.is_none_or(|interface| interface == packet.interface)
            && match view {
                Some(view) => self.matches_ip(view),
                None => !self.asks_about_ip(),
            }
    }

    fn asks_about_ip(&self) -> bool {
        self.protocol.is_some()
            || self.source.is_some()
            || self.destination.is_some()
            || self.dscp.is_some()
            || self.asks_about_ports()
    }

    fn asks_about_ports(&self) -> bool {
        let any = 0..=u16::MAX;
        self.source_ports != any || self.destination_ports != any
    }

    fn matches_ip(&self, view: &Ip<'_>) -> bool {
        self.protocol.is_none_or(|protocol| protocol == view.protocol())
            && self.dscp.is_none_or(|dscp| dscp == view.dscp())
            && self.source.is_none_or(|prefix| prefix.contains(&view.source()))
            && self.destination.is_none_or(|prefix| prefix.contains(&view.destination()))
            && (!self.asks_about_ports()
                || view.ports().is_some_and(|(source, destination)| {
                    self.source_ports.contains(&source)
                        && self.destination_ports.contains(&destination)
                }))
    }
}

/// The first rule that matches.
pub(crate) fn first<'r>(
    rules: &'r [Rule],
    packet: &Packet,
    ip: usize,
    dice: Dice,
) -> Option<&'r Rule> {
    let view = Ip::parse(packet.after_link(ip)).ok();
    (0u64..).zip(rules).find_map(|(index, rule)| {
        // Each rule rolls its own dice for a packet.
        let number = mix(packet.number).wrapping_add(index);
        let hits = rule.probability >= 1.0 || dice.happens(Purpose::Rule, number, rule.probability);
        (rule.matches(packet, view.as_ref()) && hits).then_some(rule)
    })
}

/// Source and destination.
pub(crate) fn split<'a>(view: &Ip<'a>) -> (&'a [u8], &'a [u8]) {
    let addresses = view.addresses();
    addresses.split_at(addresses.len() / 2)
}
