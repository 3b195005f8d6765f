//! The words of `sheaf window` in a treatment, for the model of window control.

use super::plan::{CapacityName, Scenario, Treatment};
use anyhow::{Context, bail};
use sheaf_stage::Bitrate;
use sheaf_window::{Config, Formula, Policy, Push, Source};

/// The parameters of window control at `scenario` under `treatment`, which has `words`: those that
/// the program itself has with the same words.
///
/// # Errors
/// Words that virtual time does not have.
pub(super) fn config(
    scenario: &Scenario,
    treatment: &Treatment,
    words: &str,
) -> anyhow::Result<Config> {
    let mut config = Config::default();
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value; add it"))?;
        match (word, value) {
            ("formula", "1") => config.formula = Formula::EqualWindow,
            ("formula", "2") => config.formula = Formula::EqualRate,
            ("formula", "maxmin") => config.formula = Formula::MaxMin,
            ("fixed", bytes) => config.formula = Formula::Fixed(number(bytes)?),
            ("push", "auto") => config.push = Push::Auto,
            ("push", "on") => config.push = Push::On,
            ("push", "off") => config.push = Push::Off,
            ("rest", "leave") => config.rest = Policy::Leave,
            ("rest", "mark") => config.rest = Policy::Mark,
            ("rest", "police") => config.rest = Policy::Police,
            ("segments", count) => config.min_segments = number(count)?,
            _ => bail!(
                "{word} {value} does not exist in virtual time, which has formula, fixed (in \
                 bytes), push, rest and segments; remove it, or give --engine netns"
            ),
        }
    }
    // Without a capacity a fixed window looks for one, as the program does.
    let finds = treatment.capacity == Some(CapacityName::Auto);
    if !finds && !matches!(config.formula, Formula::Fixed(_)) {
        config.capacity = Source::Given(Bitrate::from_kbps(scenario.kbps()));
    }
    config.check()?;
    Ok(config)
}

fn number(word: &str) -> anyhow::Result<u32> {
    word.parse().with_context(|| format!("{word} is not a whole number of bytes or segments"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_treatment_of_the_plan_has_words_that_virtual_time_knows() {
        let Plan::Home(plan) = Plan::find("home-ap").unwrap() else { panic!("a home") };
        let config = |name: &str| {
            let treatment = plan.treatment(name).unwrap();
            config(&plan.scenarios[0], treatment, treatment.window.as_ref().unwrap()).unwrap()
        };
        let given = Source::Given(Bitrate::from_mbps(4));
        let usual = Config { capacity: given, ..Config::default() };
        assert_eq!(config("formula-1"), Config { formula: Formula::EqualWindow, ..usual.clone() });
        assert_eq!(config("formula-2"), Config { formula: Formula::EqualRate, ..usual.clone() });
        assert_eq!(config("maxmin"), usual);
        assert_eq!(config("pairs"), Config { push: Push::Off, ..usual });
        assert_eq!(config("auto"), Config::default());
        let fixed = Formula::Fixed(16_000);
        assert_eq!(config("fixed"), Config { formula: fixed, ..Config::default() });
    }

    #[test]
    fn a_word_that_virtual_time_does_not_know_is_refused_and_named() {
        let Plan::Home(plan) = Plan::find("home-ap").unwrap() else { panic!("a home") };
        let treatment = plan.treatment("maxmin").unwrap();
        let refused =
            |words: &str| config(&plan.scenarios[0], treatment, words).unwrap_err().to_string();
        assert!(refused("slack 5ms").contains("slack 5ms does not exist in virtual time"));
        assert!(refused("formula 3").contains("formula 3"));
        assert!(refused("fixed 16k").contains("16k is not a whole number"));
        assert!(refused("formula").contains("formula needs a value"));
        assert!(refused("segments 99").contains("min_segments is 99"));
    }
}
