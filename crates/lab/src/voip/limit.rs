//! The capacity of a scenario by the arithmetic of air time.

use super::plan::{Plan, Scenario};
use anyhow::Context;
use sheaf_medium::air_time;
use sheaf_stage::Duration;

/// Flows for which the channel's time is just enough, every hop paid, without collisions.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Microseconds on the air of a packet that travels alone.
    pub lone: f64,
    /// Microseconds of a packet's share of a full meta packet of 1500 bytes, in a full A-MPDU of
    /// these where a treatment has that.
    pub full: f64,
    /// Flows, when all packets travel alone.
    pub flows_lone: f64,
    /// Flows, when all meta packets are full.
    pub flows_full: f64,
}

impl Limit {
    /// The limit of `scenario`.
    pub fn of(plan: &Plan, scenario: &Scenario) -> anyhow::Result<Limit> {
        let has_ampdu =
            |name: &&String| plan.treatment(name).is_ok_and(|treatment| treatment.ampdu);
        let treatment = scenario.treatments.iter().find(has_ampdu);
        let treatment = treatment.or(scenario.treatments.first());
        let treatment = treatment.context("a scenario has a treatment")?;
        let point = plan.point(scenario, treatment, scenario.directions.len() as u32)?;
        let bytes = 28 + sheaf_voice::packet::Stamp::len(point.codec) as u32;
        let packets = (1500 - 20) / bytes;
        let rate = point.medium.radios[0].rate;
        let exchange = |bytes| match point.is_group {
            true => air_time::group_exchange(&point.medium, bytes),
            false => air_time::exchange(&point.medium, rate, bytes),
        };
        let meta = 20 + packets * bytes;
        let full = match air_time::ampdu_frames(&point.medium, rate, meta) {
            1 => exchange(meta),
            frames => air_time::block_exchange(&point.medium, rate, frames, meta) / frames,
        };
        let (lone, full) = (exchange(bytes), full / packets);
        let first = point.flows.first().context("a scenario has a direction")?;
        let hops: usize =
            point.flows.iter().map(|flow| hops(&point.next_hop, flow.from, flow.to)).sum();
        let hops = hops as f64 / point.flows.len() as f64;
        let activity = first.pattern.activity();
        // Of flows that take turns only some talk at a time.
        let activity = activity / f64::from(point.turns);
        let per_second = activity / sheaf_voice::source::INTERVAL.as_secs_f64() * hops;
        let flows = |time: Duration| 1.0 / (per_second * time.as_secs_f64());
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Ok(Limit {
            lone: micros(lone),
            full: micros(full),
            flows_lone: flows(lone),
            flows_full: flows(full),
        })
    }

    /// In a sentence.
    pub fn remark(&self) -> String {
        format!(
            "air time allows {:.0} flows alone ({:.0} µs a packet), {:.0} in full frames \
             ({:.0} µs)",
            self.flows_lone, self.lone, self.flows_full, self.full
        )
    }
}

fn hops(next_hop: &[Vec<usize>], mut from: usize, to: usize) -> usize {
    let mut hops = 0;
    while from != to {
        from = next_hop[from][to];
        hops += 1;
    }
    hops
}
