//! Random impairments: loss, duplication, corruption, reordering, jitter.
//!
//! Everything is decided once per packet, when it arrives, by seed and packet number; the Markov
//! chains step once per packet that arrives, whether or not the rate queue then drops it. It is
//! carried out when the packet leaves the rate queue: a lost packet has used the rate, as on a
//! real link.

use crate::cause::Cause;
use crate::config::{LinkConfig, Reorder};
use crate::jitter::Jitter;
use crate::loss::{FourState, Gemodel, Loss};
use crate::packet::Fate;
use crate::random::{Chain, Chance, Dice, Purpose};

/// The states of [`FourState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Gap,
    Burst,
    LostInBurst,
    LostInGap,
}

/// All random impairments of a link, decided for each packet as it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    loss: Loss,
    duplicate: Chance,
    corrupt: Chance,
    reorder: Option<Reorder>,
    /// `None` where the delay is constant.
    jitter: Option<Jitter>,
    chains: Chains,
}

/// States of the Markov chains; the beginning is the default.
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
    /// Packets that arrived.
    arrived: u64,
}

impl Impairments {
    pub fn new(config: &LinkConfig) -> Self {
        let delay = &config.delay;
        let by_trace = config.trace.as_ref().is_some_and(|trace| trace.trace.varies());
        let varies = !delay.jitter.is_zero() || by_trace;
        Impairments {
            loss: config.loss.clone(),
            duplicate: config.duplicate,
            corrupt: config.corrupt,
            reorder: config.reorder,
            jitter: varies.then(|| Jitter::new(&delay.distribution, delay.correlation)),
            chains: Chains::default(),
        }
    }

    /// The same chances, with all chains at their beginning.
    pub fn anew(&self) -> Self {
        let mut anew = Impairments { chains: Chains::default(), ..self.clone() };
        if let Some(jitter) = &mut anew.jitter {
            jitter.restart();
        }
        anew
    }

    /// Takes other parameters; the chains go on from where they are.
    pub fn change(&mut self, config: &LinkConfig) {
        let mut new = Impairments { chains: self.chains, ..Impairments::new(config) };
        if let (Some(jitter), Some(before)) = (&mut new.jitter, &self.jitter) {
            jitter.continue_from(before);
        }
        *self = new;
    }

    /// Decides what happens to packet `number`.
    pub fn decide(&mut self, dice: Dice, number: u64) -> Fate {
        self.chains.arrived += 1;
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
            Loss::Pattern(ref pattern) => {
                pattern.loses(chains.arrived).then_some(Cause::LossPattern)
            }
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
