//! The times at which the frames of a link left, for reports that tell of one of them.

/// Frames remembered: those of 0.15 s at 300 Mbit/s and of 0.9 s at 50, a round trip and a full
/// queue. Those of 100 Mbit/s and more do not wait in queues of mobile networks.
const FRAMES: usize = 4096;

/// Ring of numbers and times in µs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departures(Vec<(u32, u32)>);

impl Departures {
    /// Notes that frame `number` leaves at `at`.
    pub fn note(&mut self, number: u32, at: u32) {
        if self.0.is_empty() {
            // Each place with a number that is not of it.
            self.0 = (1..=FRAMES as u32).map(|number| (number, 0)).collect();
        }
        self.0[number as usize % FRAMES] = (number, at);
    }

    /// The time at which frame `number` left, while it is remembered.
    pub fn at(&self, number: u32) -> Option<u32> {
        let (noted, at) = *self.0.get(number as usize % FRAMES)?;
        (noted == number).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frames_are_remembered_over_the_wrap_of_their_numbers() {
        let mut departures = Departures::default();
        assert_eq!(departures.at(0), None);
        let first = u32::MAX - 2_000;
        for n in 0..5_000 {
            departures.note(first.wrapping_add(n), n);
        }
        for n in 0..5_000 {
            let expected = (n >= 5_000 - FRAMES as u32).then_some(n);
            assert_eq!(departures.at(first.wrapping_add(n)), expected);
        }
        assert_eq!(departures.at(first.wrapping_add(5_000)), None, "not yet");
    }
}
