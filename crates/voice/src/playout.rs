//! The listener's play-out buffer: it waits so that late packets still arrive in time, and packets
//! that arrive later are lost to the ear.
//!
//! A longer buffer trades loss for delay; the E-model prices both. The buffer here plays with the
//! fixed delay that rates best for the whole call (L. Sun, E. Ifeachor, "Voice quality prediction
//! models and their application in VoIP networks", IEEE Trans. Multimedia 8(4), 2006, section V):
//! the aim of an adaptive buffer.

use crate::emodel::{Codec, mos};
use crate::meter::Meter;
use sheaf_stage::Duration;

/// Quality for the listener.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heard {
    /// Network and buffer, from sending to playing.
    pub delay: Duration,
    /// Share of packets lost in the network or late, 0..1.
    pub loss: f64,
    /// Rating of the E-model.
    pub r: f64,
    /// Mean opinion score.
    pub mos: f64,
}

impl Heard {
    /// Quality for a listener with a buffer of `delay`, within which a share of `in_time` of the
    /// sent packets arrives.
    fn with_delay(codec: Codec, delay: Duration, in_time: f64) -> Heard {
        let loss = 1.0 - in_time;
        let r = codec.r(delay.as_secs_f64() * 1e3 + codec.delay_ms(), loss, 1.0);
        Heard { delay, loss, r, mos: mos(r) }
    }

    /// Quality of a flow of `sent` packets for a listener with the best fixed buffer.
    pub fn best(codec: Codec, meter: &Meter, sent: u64) -> Heard {
        let arrived = 1.0 - meter.loss(sent);
        let quantiles = (500..=1000).step_by(5).map(|per_mille| f64::from(per_mille) / 1000.0);
        meter
            .delay_quantiles(quantiles)
            .map(|(delay, share)| Heard::with_delay(codec, delay, share * arrived))
            .max_by(|a, b| a.r.total_cmp(&b.r))
            .expect("there are quantiles to try")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Stamp;
    use sheaf_stage::Instant;

    #[test]
    fn a_rare_late_packet_is_given_up_and_a_common_delay_is_waited_for() {
        let mut meter = Meter::default();
        for number in 0..1000u32 {
            let sent = Instant::from_millis(u64::from(number) * 20);
            let delay = if number % 100 == 0 { 900 } else { 20 + u64::from(number % 3) * 10 };
            let stamp = Stamp { flow: 0, number, sent };
            meter.arrived(stamp, sent + Duration::from_millis(delay));
        }
        let heard = Heard::best(Codec::G729A, &meter, 1000);
        assert!((heard.loss - 0.01).abs() < 1e-6, "{heard:?}");
        assert!((heard.delay.as_secs_f64() - 0.040).abs() < 0.001, "{heard:?}");
    }

    #[test]
    fn a_flow_of_which_nothing_arrives_is_unusable() {
        assert!(Heard::best(Codec::G711, &Meter::default(), 100).r < 30.0);
    }
}
