//! A link whose delay swings without its failing.

mod mix;

use mix::link::link;
use mix::{Load, Rig, Way, median};
use sheaf_stage::Duration;
use sheaf_trunk::{DeliveryMode, LinkId};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_link_that_swings_between_100_and_1200_ms_makes_no_long_gaps_and_is_not_tried_all_the_time() {
    let (mut gaps, mut returns) = (Vec::new(), Vec::new());
    for seed in 1..=10 {
        let call = Some(DeliveryMode::Copies);
        let load = Load { tcp: 1, stream: 2.0, call, ..Load::default() };
        let links = [link(20.0, 10.0).jitter(1.0), link(20.0, 100.0).jitter(5.0)];
        let mut rig = Rig::new(Way::Trunk, &links, load, seed);
        rig.run(3 * SECOND);
        (rig.probe, rig.stream) = Default::default();
        let (mut used, mut returned) = (true, 0);
        for second in 0..60 {
            for pipes in &mut rig.pipes {
                pipes[1].extra = if second % 2 == 0 { 1_100 * MS } else { Duration::ZERO };
            }
            for _ in 0..20 {
                rig.run(50 * MS);
                let now = rig.ends[0].link_stats(LinkId(1), rig.now).unwrap().used;
                returned += u32::from(now && !std::mem::replace(&mut used, now));
            }
        }
        gaps.push(rig.stream.longest_gap.max(rig.probe.longest_gap).as_secs_f64() * 1e3);
        returns.push(f64::from(returned));
    }
    println!("gaps {gaps:.0?}, returns {returns:?}");
    let (gap, returns) = (median(gaps), median(returns));
    assert!(gap <= 150.0 && returns <= 1.0, "gap {gap:.0} ms, {returns} returns a minute");
}
