//! The plan of the home access point on the virtual engine: what it shows, to the packet.

mod runs;

use runs::virtual_run;

#[test]
fn probe() {
    let result = virtual_run("home-ap", &[1.0, 10.0], 45.0);
    for row in &result.rows {
        let mut text = format!("{} {} {}:", row.scenario, row.treatment, row.x);
        for metric in &result.view.metrics {
            if let Some(value) = row.get(&metric.key) {
                text += &format!(" {} {value:.3}", metric.key);
            }
        }
        println!("{text}");
    }
}
