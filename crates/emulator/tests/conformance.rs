//! Every stage of this crate passes the suite of the contract.

use proptest::prelude::*;
use sheaf_emulator::queue::codel::{CodelConfig, CodelParams};
use sheaf_emulator::queue::dualpi2::DualPi2Config;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::queue::gred::GredConfig;
use sheaf_emulator::queue::pie::PieConfig;
use sheaf_emulator::queue::red::{RedConfig, RedCurve};
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::trace::{Opportunities, Steps, Trains};
use sheaf_emulator::{
    Chance, Delay, Distribution, FourState, Gemodel, Limit, Link, LinkConfig, Loss, LossPattern,
    Packet, QueueConfig, Reorder, Slot, SlotWait, Trace, TraceConfig,
};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use std::sync::Arc;

const MS: Duration = Duration::from_millis(1);

/// UDP packets of some flows, with arrivals that may lie: the link takes them as far as possible.
fn packet() -> impl Strategy<Value = Packet> {
    (0u8..6, 0usize..1400, any::<u64>(), 0u64..80_000_000, 0u8..4, 0u16..4).prop_map(
        |(flow, len, number, arrived, ecn, queue)| {
            let mut bytes = sheaf_wire::ip::example_udp(&vec![flow; len]);
            (bytes[1], bytes[21]) = (flow << 5 | ecn, flow);
            let mut packet = Packet::new(bytes, Instant::from_nanos(arrived), number);
            packet.queue = queue;
            packet
        },
    )
}

fn queue() -> impl Strategy<Value = QueueConfig> {
    let limit =
        prop_oneof![(1u64..20).prop_map(Limit::Packets), (1000u64..20_000).prop_map(Limit::Bytes)];
    (limit, any::<bool>(), 0u8..9, 1u64..30).prop_map(|(limit, flag, kind, ms)| {
        let target = Duration::from_millis(ms);
        let params = CodelParams { target, interval: 2 * target, ecn: flag, mtu: 500 };
        let curve = RedCurve {
            min: 500,
            max: 3000,
            probability: 0.3,
            weight: 0.5,
            gentle: flag,
            adaptive: ms % 2 == 0,
            mean_packet: 500,
            bandwidth: Bitrate::from_mbps(1),
        };
        let mut weighted = WeightedConfig::new(vec![1, 5, 2]);
        weighted.limit = limit;
        weighted.by_dscp = flag.then(|| std::array::from_fn(|dscp| dscp as u16 % 4));
        match kind {
            0 => QueueConfig::Fifo(FifoConfig { limit, drop_head: flag }),
            1 => QueueConfig::Red(RedConfig { limit, curve, ecn: flag, hard_drop: false }),
            2 => {
                let second = RedCurve { max: 1000, ..curve };
                let mut by_dscp = [0; 64];
                by_dscp[8..].fill(1);
                let virtual_queues = vec![(curve, 5000), (second, 2000)];
                QueueConfig::Gred(GredConfig {
                    limit,
                    virtual_queues,
                    by_dscp,
                    ecn: flag,
                    hard_drop: true,
                })
            }
            3 => QueueConfig::Codel(CodelConfig { limit, params }),
            4 => QueueConfig::Pie(PieConfig {
                limit,
                target,
                burst: Duration::ZERO,
                alpha: 20.0,
                beta: 20.0,
                ecn_below: if flag { 0.5 } else { 0.0 },
                ..PieConfig::default()
            }),
            5 => QueueConfig::FqCodel(FqCodelConfig {
                limit: ms,
                flows: 3,
                quantum: 300,
                codel: params,
                ..FqCodelConfig::default()
            }),
            6 => QueueConfig::DualPi2(DualPi2Config {
                limit,
                target,
                alpha: 20.0,
                beta: 20.0,
                ecn: flag,
                ..DualPi2Config::default()
            }),
            7 => QueueConfig::Drr(weighted),
            _ => QueueConfig::Wf2q(weighted),
        }
    })
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        2 => Just(Chance::default()),
        1 => (0.0..=1.0, 0.0..0.99)
            .prop_map(|(probability, correlation)| Chance { probability, correlation }),
    ]
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        chance().prop_map(Loss::Random),
        (0.0..0.5, 0.0..0.5, 0.0..0.5, 0.0..1.0, 0.0..0.5).prop_map(|(p13, p31, p32, p23, p14)| {
            Loss::State(FourState { p13, p31, p32, p23, p14 })
        }),
        (0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0).prop_map(|(p, r, bad_loss, good_loss)| {
            Loss::Gemodel(Gemodel { p, r, bad_loss, good_loss })
        }),
        Just(Loss::Pattern(LossPattern::parse("2,5-7", Some(9)).unwrap().into())),
    ]
}

fn trace() -> impl Strategy<Value = Option<TraceConfig>> {
    let steps = "time,rate,delay,loss,jitter,limit,duplicate,duplicate_delay,route\n\
                 0,1mbit,5,0,,3,20,4,1\n0.01,0,,50,2,,,,2\n0.03,,20,,,1,50,,1\n\
                 0.05,10mbit,,,1,,,,\n";
    let opportunities = Arc::new(Opportunities::parse("3\n3\n10\n40\n").unwrap());
    let trains = Trains::parse("0 5 0 1 3\n20 9 0\n30 1 0 0 8\n").unwrap();
    let traces = [
        Trace::Opportunities(opportunities.clone()),
        Trace::Loads(opportunities, trains.into()),
        Trace::Steps(Steps::parse(steps).unwrap().into()),
    ];
    let start = proptest::option::of((0u64..30_000_000).prop_map(Instant::from_nanos));
    let config = (proptest::sample::select(traces.to_vec()), start, any::<bool>())
        .prop_map(|(trace, start, looped)| TraceConfig { trace, start, looped });
    proptest::option::of(config)
}

fn duration(max_ms: u64) -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), (0..max_ms * 1_000_000).prop_map(Duration::from_nanos)]
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let delay = (duration(50), duration(10), 0.0..0.95).prop_map(|(time, jitter, correlation)| {
        Delay { time, jitter, correlation, distribution: Distribution::uniform() }
    });
    let slot =
        (duration(5), duration(5), 0u32..3, 0u64..2000).prop_map(|(min, more, packets, bytes)| {
            Slot { wait: SlotWait::Between(min, min + more), packets, bytes }
        });
    let reorder = (chance(), 1u32..4).prop_map(|(chance, gap)| Reorder { chance, gap });
    let rate = prop_oneof![Just(0u64), 10_000u64..100_000_000];
    (
        (
            proptest::option::of(rate),
            queue(),
            trace(),
            delay,
            any::<[bool; 2]>(),
            1usize..200,
            proptest::option::of(1500u64..6000),
        ),
        (loss(), any::<bool>(), chance(), chance()),
        (proptest::option::of(reorder), proptest::option::of(slot)),
    )
        .prop_map(|(link, (loss, loss_ecn, duplicate, corrupt), (reorder, slot))| {
            let (rate, queue, trace, delay, [ordered, one], delay_limit, burst) = link;
            let steps = |trace: &TraceConfig| matches!(trace.trace, Trace::Steps(_));
            let paced = rate.is_some() && trace.as_ref().is_none_or(steps);
            let single = one && matches!(queue, QueueConfig::Fifo(_));
            LinkConfig {
                rate: rate.map(Bitrate::from_bps),
                burst: burst.filter(|_| paced),
                queue,
                single,
                trace,
                delay,
                ordered,
                delay_limit,
                loss,
                loss_ecn,
                duplicate,
                corrupt,
                reorder,
                slot,
                ..LinkConfig::default()
            }
        })
}

fn op() -> impl Strategy<Value = Op<Packet, LinkConfig>> {
    prop_oneof![
        8 => packet().prop_map(Op::Enqueue),
        4 => (0u64..20_000_000).prop_map(|ns| Op::Advance(Duration::from_nanos(ns))),
        1 => config().prop_map(Op::Control),
        1 => Just(Op::Advance(1000 * MS)),
    ]
}

proptest! {
    #[test]
    fn a_link_of_any_kind_keeps_the_contract_through_any_change(
        first in config(), seed in any::<u64>(), ops in proptest::collection::vec(op(), 1..60),
    ) {
        conformance::check_displacing(
            || Link::new(first.clone(), seed).unwrap(),
            &ops,
            |link, config, now| link.change(config.clone(), now).unwrap(),
            |packet| packet.clone(),
        );
    }

    #[test]
    fn a_link_that_is_called_late_gives_the_same_departures(
        config in config(), seed in any::<u64>(),
        arrivals in proptest::collection::vec((packet(), 0u64..8_000_000), 1..60),
    ) {
        // The delay line's bound is one for the memory: it counts what was not fetched yet.
        // A bound on bursts is what late calls are to change.
        let config = LinkConfig { delay_limit: 1000, burst: None, ..config };
        let run = |late: bool| {
            let mut link = Link::new(config.clone(), seed).unwrap();
            let (mut out, mut now) = (Vec::new(), Instant::ZERO);
            let mut call = |link: &mut Link, until: Instant| {
                while let Some(at) = link.next_deadline().filter(|at| *at <= until) {
                    let at = if late { until } else { at };
                    out.extend(std::iter::from_fn(|| link.dequeue(at)));
                }
            };
            for (number, (packet, gap)) in (0..).zip(&arrivals) {
                now += Duration::from_nanos(*gap);
                if !late {
                    call(&mut link, now);
                }
                let mut packet = packet.clone();
                (packet.arrived, packet.number) = (now, number);
                let _ = link.enqueue(packet, now);
            }
            call(&mut link, now + 10_000 * MS);
            (out, link.counters())
        };
        prop_assert_eq!(run(false), run(true));
    }
}
