//! TCP goes on soon after an end of a trunk without a key started anew.

mod mix;

use mix::link::link;
use mix::tcp::Control;
use mix::{Load, Rig, Way};
use sheaf_stage::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Time within which traffic has to flow again.
const HEALED: Duration = Duration::from_secs(2);

/// Time from a restart of `end` to the first packet of the download that arrives after it, with
/// what was under way gone.
fn pause(delay_ms: f64, control: Control, end: usize, phase: Duration) -> Duration {
    let load = Load { tcp: 1, control, ..Load::default() };
    let mut rig = Rig::new(Way::Trunk, &[link(20.0, delay_ms), link(20.0, delay_ms)], load, 1);
    rig.run(1_500 * MS + phase);
    rig.restart(end);
    let start = rig.now;
    // What the links held when it restarted has arrived, or was refused, by then.
    rig.run(300 * MS);
    let before = rig.delivered[1];
    while rig.delivered[1] == before && rig.now - start < 10 * SECOND {
        rig.run(10 * MS);
    }
    rig.now - start
}

#[test]
fn tcp_goes_on_within_two_seconds_of_a_restart_of_either_end_without_a_key() {
    for control in [Control::Cubic, Control::Bbr] {
        for (end, delay_ms) in [(0, 20.0), (1, 20.0), (0, 60.0), (1, 60.0)] {
            let phases = (0..5).map(|step| pause(delay_ms, control, end, step * 73 * MS));
            let longest = phases.max().unwrap();
            println!("{control:?}, end {end}, {delay_ms} ms: {longest:?}");
            assert!(longest <= HEALED, "{control:?}, end {end}, {delay_ms} ms: {longest:?}");
        }
    }
}
