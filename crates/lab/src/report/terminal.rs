//! The result as a table for the terminal.

use super::RunResult;
use sheaf_voice::rules::Rule;
use std::fmt::Write;

/// Supported flows of every treatment, beside what was published and what the air allows.
pub fn table(result: &RunResult) -> String {
    let mut text = String::new();
    let out = &mut text;
    for scenario in result.scenarios() {
        let _ = writeln!(
            out,
            "{} / {scenario}, engine {}, seed {}, {} s a point",
            result.plan, result.engine, result.seed, result.duration
        );
        let _ = writeln!(
            out,
            "  {:<12} {:>5} {:>5} {:>5}   {:>9}   {:>11} {:>8}",
            "supported", "kau", "uwc", "r70", "published", "pkts/frame", "gain"
        );
        let baseline = result.supported(scenario, "baseline", Rule::Kau);
        for treatment in result.treatments(scenario) {
            let count = |rule| {
                let supported = result.supported(scenario, treatment, rule);
                supported.map_or("-".into(), |supported| supported.to_string())
            };
            let published = result.published.iter().find(|published| {
                published.scenario == scenario && published.treatment == treatment
            });
            let published = published.and_then(|published| published.supported);
            let kau = result.supported(scenario, treatment, Rule::Kau).unwrap_or(0);
            let most = result.sweep(scenario, treatment).into_iter().find(|row| row.kau == kau);
            let gain = baseline.filter(|b| *b > 0).map(|b| f64::from(kau) / f64::from(b));
            let _ = writeln!(
                out,
                "  {treatment:<12} {:>5} {:>5} {:>5}   {:>9}   {:>11} {:>8}",
                count(Rule::Kau),
                count(Rule::Uwc),
                count(Rule::R70),
                published.map_or("-".into(), |flows| flows.to_string()),
                most.map_or("-".into(), |row| format!("{:.1}", row.packets_per_frame)),
                gain.map_or("-".into(), |gain| format!("{gain:.2}x")),
            );
        }
        if let Some(limit) = result.limits.get(scenario) {
            let _ = writeln!(
                out,
                "  air time allows {:.0} flows alone ({:.0} us a packet), {:.0} in full frames ({:.0} us)",
                limit.flows_lone, limit.lone, limit.flows_full, limit.full
            );
        }
    }
    text
}
