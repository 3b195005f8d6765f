//! What happens to packets by chance: loss, duplication, corruption, reordering, jitter.
//!
//! Everything is decided once per packet, when it arrives, by seed and packet number; the Markov
//! chains step once per packet that arrives, whether or not the rate queue then drops it. It is
//! carried out when the packet leaves the rate queue: a lost packet has used the rate, as on a
//! real link.
//!
//! Sources of the loss models: S. Salsano, F. Ludovici, A. Ordine, D. Giannuzzi, "Definition of a
//! general and intuitive loss model for packet networks and its implementation in the Netem
//! module" (2012), for the four states; E. N. Gilbert (1960) and E. O. Elliott (1963).

use crate::cause::Cause;
use crate::config::{LinkConfig, Reorder};
use crate::error::ConfigError;
use crate::jitter::Jitter;
use crate::packet::Fate;
use crate::random::{Chain, Chance, Dice, Purpose, probability};

/// A loss model. All probabilities are 0..=1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// `loss random P [CORR]`.
    Random(Chance),
    /// `loss state P13 [P31 [P32 [P23 [P14]]]]`.
    State(FourState),
    /// `loss gemodel P [R [1-H [1-K]]]`.
    Gemodel(Gemodel),
}

/// Four states: 1 received in a gap, 2 received within a burst, 3 lost within a burst, 4 lost
/// alone in a gap. The first packet leaves state 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FourState {
    /// A burst begins.
    pub p13: f64,
    /// A burst ends.
    pub p31: f64,
    /// A packet comes through within a burst.
    pub p32: f64,
    /// The next one is lost again.
    pub p23: f64,
    /// A single packet is lost.
    pub p14: f64,
}

impl FourState {
    /// With the values that tc uses where only P13 is given.
    pub fn new(p13: f64) -> Self {
        FourState { p13, p31: 1.0 - p13, p32: 0.0, p23: 1.0, p14: 0.0 }
    }
}

/// A good and a bad state, each with its loss. The first packet finds the good one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemodel {
    /// From good to bad.
    pub p: f64,
    /// From bad to good.
    pub r: f64,
    /// Loss in the bad state: 1-h.
    pub bad_loss: f64,
    /// Loss in the good state: 1-k.
    pub good_loss: f64,
}

impl Gemodel {
    /// With the values that tc uses where only P is given: a Bernoulli loss.
    pub fn new(p: f64) -> Self {
        Gemodel { p, r: 1.0 - p, bad_loss: 1.0, good_loss: 0.0 }
    }
}

impl Loss {
    pub(crate) fn check(self) -> Result<(), ConfigError> {
        let each = |option, values: &[f64]| values.iter().try_for_each(|v| probability(option, *v));
        let sum = |option, sum: f64| match sum <= 1.0 + 1e-12 {
            true => Ok(()),
            false => Err(ConfigError::Sum { option, sum }),
        };
        match self {
            Loss::None => Ok(()),
            Loss::Random(chance) => chance.check("loss random"),
            Loss::State(FourState { p13, p31, p32, p23, p14 }) => {
                each("loss state", &[p13, p31, p32, p23, p14])?;
                sum("loss state P13 + P14", p13 + p14)?;
                sum("loss state P31 + P32", p31 + p32)
            }
            Loss::Gemodel(Gemodel { p, r, bad_loss, good_loss }) => {
                each("loss gemodel", &[p, r, bad_loss, good_loss])
            }
        }
    }
}

/// The states of [`FourState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Gap,
    Burst,
    LostInBurst,
    LostInGap,
}

/// Decides about packets as they arrive.
#[derive(Clone, Debug)]
pub(crate) struct Fates {
    loss: Loss,
    duplicate: Chance,
    corrupt: Chance,
    reorder: Option<Reorder>,
    /// `None` where the delay is constant.
    jitter: Option<Jitter>,
    chains: Chains,
}

/// Where the chains are; the beginning is the default.
#[derive(Clone, Copy, Debug, Default)]
struct Chains {
    lost: Chain,
    state: State,
    bad: bool,
    duplicated: Chain,
    corrupted: Chain,
    reordered: Chain,
    /// Packets since the last one that skipped the delay.
    since: u32,
}

impl Fates {
    pub fn new(config: &LinkConfig) -> Self {
        let delay = &config.delay;
        let varies = !delay.jitter.is_zero();
        Fates {
            loss: config.loss,
            duplicate: config.duplicate,
            corrupt: config.corrupt,
            reorder: config.reorder,
            jitter: varies.then(|| Jitter::new(&delay.distribution, delay.correlation)),
            chains: Chains::default(),
        }
    }

    /// The same chances, with all chains at their beginning.
    pub fn anew(&self) -> Self {
        let mut anew = Fates { chains: Chains::default(), ..self.clone() };
        if let Some(jitter) = &mut anew.jitter {
            jitter.restart();
        }
        anew
    }

    /// Takes other parameters; the chains go on from where they are.
    pub fn change(&mut self, config: &LinkConfig) {
        let mut new = Fates { chains: self.chains, ..Fates::new(config) };
        if let (Some(jitter), Some(before)) = (&mut new.jitter, &self.jitter) {
            jitter.continue_from(before);
        }
        *self = new;
    }

    /// What happens to packet `number`.
    pub fn decide(&mut self, dice: Dice, number: u64) -> Fate {
        let mut fate = Fate { lost: self.loses(dice, number), ..Fate::default() };
        let chains = &mut self.chains;
        let happens = |chain: &mut Chain, chance: Chance, purpose| {
            chance.probability > 0.0 && chain.next(chance, dice.unit(purpose, number))
        };
        fate.duplicated = happens(&mut chains.duplicated, self.duplicate, Purpose::Duplicate);
        fate.corrupted = happens(&mut chains.corrupted, self.corrupt, Purpose::Corrupt);
        if let Some(Reorder { chance, gap }) = self.reorder {
            chains.since = chains.since.saturating_add(1);
            fate.reordered =
                chains.since >= gap && happens(&mut chains.reordered, chance, Purpose::Reorder);
            if fate.reordered {
                chains.since = 0;
            }
        }
        if let Some(jitter) = &mut self.jitter {
            fate.jitter = jitter.next(dice.unit(Purpose::Jitter, number));
        }
        fate
    }

    fn loses(&mut self, dice: Dice, number: u64) -> Option<Cause> {
        let chains = &mut self.chains;
        match self.loss {
            Loss::None => None,
            Loss::Random(chance) => chains
                .lost
                .next(chance, dice.unit(Purpose::Loss, number))
                .then_some(Cause::LossRandom),
            Loss::State(model) => {
                chains.state = model.next(chains.state, dice.unit(Purpose::Loss, number));
                matches!(chains.state, State::LostInBurst | State::LostInGap)
                    .then_some(Cause::LossState)
            }
            Loss::Gemodel(Gemodel { p, r, bad_loss, good_loss }) => {
                // As in the kernel, the loss is that of the state before the step.
                let (loss, leaves) = if chains.bad { (bad_loss, r) } else { (good_loss, p) };
                chains.bad ^= dice.unit(Purpose::Loss, number) < leaves;
                dice.happens(Purpose::LossInState, number, loss).then_some(Cause::LossGemodel)
            }
        }
    }
}

impl FourState {
    /// The state after `state`; each interval of `unit` leads somewhere, without gaps.
    fn next(self, state: State, unit: f64) -> State {
        match state {
            State::Gap if unit < self.p14 => State::LostInGap,
            State::Gap if unit < self.p14 + self.p13 => State::LostInBurst,
            State::Gap => State::Gap,
            State::Burst if unit < self.p23 => State::LostInBurst,
            State::Burst => State::Burst,
            State::LostInBurst if unit < self.p32 => State::Burst,
            State::LostInBurst if unit < self.p32 + self.p31 => State::Gap,
            State::LostInBurst => State::LostInBurst,
            State::LostInGap => State::Gap,
        }
    }
}
