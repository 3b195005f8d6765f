//! Frame error rate, the largest packet whose frames stay under a target, and the packet that
//! carries most.
//!
//! Principle: a frame is lost when one of its bits is, 1 − (1 − BER)^bits. Solved for the bits, a
//! target gives the longest frame; headers and check sum of the MAC are part of it, preamble and
//! PLCP header are not: they are sent at the most robust rate.
//!
//! Larger frames share what each frame costs, smaller ones lose less when a bit is wrong. The bytes
//! that arrive per time on the air, s (1 − BER)^bits / (cost + bits), are most where
//! cost / (s (s + cost)) = −ln(1 − BER), s being the bits of the packets in the frame and the cost
//! all else in bits. Repetitions do not matter for it: they multiply both sides. (The back-off that
//! doubles makes them dearer, which moves the size by less than a packet of a call.) Source: P.
//! Lettieri, M. Srivastava, "Adaptive frame length control for improving wireless link throughput,
//! range, and energy efficiency", INFOCOM 1998.

use crate::modulation::Modulation;

/// Bytes of a frame around its IP packet: MAC header 24, LLC/SNAP 8, check sum 4 (IEEE 802.11-2020,
/// section 9.3.2.1). A QoS frame has two more, WPA2 adds 16: at most one part in six of the
/// smallest packet.
pub const FRAME_OVERHEAD: u16 = 24 + 8 + 4;

/// Bytes of the outer header of a packet that has others in it (IPv4).
const META_OVERHEAD: u16 = 20;

/// Share of the frames of an IP packet of `packet` bytes that are lost at a bit error rate of
/// `bit_error_rate` (0..=1).
pub fn frame_error_rate(bit_error_rate: f64, packet: u16) -> f64 {
    -libm::expm1(bits(packet) * libm::log1p(-bit_error_rate))
}

/// Bits on the air of a packet of `packet` bytes.
pub(crate) fn bits(packet: u16) -> f64 {
    8.0 * (f64::from(packet) + f64::from(FRAME_OVERHEAD))
}

/// The largest IP packet in bytes whose frame error rate stays at or under `target` (0..1) at
/// `bit_error_rate` (0..=1); at least `floor` bytes and at most `mtu`, the latter where both cannot
/// be. A bit error rate that is not a number counts as 1.
pub fn largest(bit_error_rate: f64, target: f64, floor: u16, mtu: u16) -> u16 {
    let clamped = |packet: u16| packet.max(floor).min(mtu);
    if bit_error_rate <= 0.0 {
        return clamped(u16::MAX);
    }
    let bits = libm::log1p(-target) / libm::log1p(-bit_error_rate.min(1.0));
    // `as` saturates, and makes 0 of what is not a number.
    let packet = (bits / 8.0 - f64::from(FRAME_OVERHEAD)) as u16;
    // Where bits are a multiple of eight, rounding may have gone to the wrong side.
    let exceeds = frame_error_rate(bit_error_rate, packet) > target;
    clamped(packet.saturating_sub(u16::from(exceeds)))
}

/// Bytes per second on the air that frames of `packet` bytes of IP, with several packets in each,
/// bring across at `bit_error_rate` (0..=1) in `modulation`.
pub fn goodput(bit_error_rate: f64, modulation: Modulation, packet: u16) -> f64 {
    let arrives = 1.0 - frame_error_rate(bit_error_rate, packet);
    let on_air = bits(packet) / modulation.bits_per_second();
    let inner = packet.saturating_sub(META_OVERHEAD);
    f64::from(inner) * arrives / (modulation.frame_overhead_seconds() + on_air)
}

/// The IP packet in bytes, of several small ones, that brings most across at `bit_error_rate`
/// (0..=1) in `modulation`; from `floor` to `mtu`, the latter where both cannot be. A bit error
/// rate that is not a number counts as 1.
pub fn carries_most(bit_error_rate: f64, modulation: Modulation, floor: u16, mtu: u16) -> u16 {
    let clamped = |packet: u16| packet.max(floor).min(mtu);
    if bit_error_rate <= 0.0 {
        return clamped(u16::MAX);
    }
    let on_air = modulation.frame_overhead_seconds() * modulation.bits_per_second();
    let cost = on_air + 8.0 * f64::from(FRAME_OVERHEAD + META_OVERHEAD);
    let exponent = -libm::log1p(-bit_error_rate.min(1.0));
    let bits = ((cost * cost + 4.0 * cost / exponent).sqrt() - cost) / 2.0;
    // `as` saturates, and makes 0 of what is not a number.
    clamped(((bits / 8.0) as u16).saturating_add(META_OVERHEAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_without_errors_carries_the_mtu_and_a_hopeless_one_the_floor() {
        assert_eq!(largest(0.0, 0.1, 100, 1500), 1500);
        assert_eq!(largest(1e-300, 0.1, 100, 1500), 1500);
        assert_eq!(largest(0.5, 0.1, 100, 1500), 100);
        assert_eq!(largest(1.0, 0.1, 100, 1500), 100);
        assert_eq!(largest(f64::NAN, 0.1, 100, 1500), 100);
        assert_eq!(largest(0.0, 0.1, 2000, 1500), 1500);
    }

    #[test]
    fn one_error_in_fifty_thousand_bits_leaves_six_hundred_bytes() {
        // 0.10536 / 2·10⁻⁵ = 5268 bits = 658.5 bytes, 36 of them overhead.
        assert_eq!(largest(2e-5, 0.1, 100, 1500), 622);
    }

    #[test]
    fn the_packet_that_carries_most_is_the_best_of_all_that_are_tried() {
        for modulation in [Modulation::Dqpsk, Modulation::Cck8]
            .into_iter()
            .chain([0, 4, 7].into_iter().filter_map(Modulation::of_mcs))
        {
            for rate in [1e-6, 1e-5, 5e-5, 1e-4, 5e-4] {
                let best = (100..=1500u16).max_by(|one, other| {
                    let of = |packet: &u16| goodput(rate, modulation, *packet);
                    of(one).total_cmp(&of(other))
                });
                let found = carries_most(rate, modulation, 100, 1500);
                let off = best.unwrap().abs_diff(found);
                assert!(off <= 1, "{found} for {best:?} at {rate} in {modulation:?}");
            }
        }
        assert_eq!(carries_most(0.0, Modulation::Dqpsk, 100, 1500), 1500);
        assert_eq!(carries_most(f64::NAN, Modulation::Dqpsk, 100, 1500), 100);
        assert_eq!(carries_most(1.0, Modulation::Dqpsk, 2000, 1500), 1500);
    }

    proptest! {
        #[test]
        fn the_largest_packet_is_under_the_target_and_one_byte_more_is_not(
            exponent in -8.0..-0.5f64,
            target in 0.001..0.9f64,
            floor in 0u16..2000,
            mtu in 0u16..9000,
        ) {
            let rate = libm::pow(10.0, exponent);
            let packet = largest(rate, target, floor, mtu);
            prop_assert!(packet <= mtu && packet >= floor.min(mtu));
            if packet > floor {
                prop_assert!(frame_error_rate(rate, packet) <= target);
            }
            if packet < mtu {
                // Rounding may cost a byte, never more.
                prop_assert!(frame_error_rate(rate, packet + 2) > target);
            }
        }

        #[test]
        fn worse_links_never_get_larger_packets(
            rate in 0.0..1.0f64, more in 0.0..1.0f64, target in 0.001..0.9f64,
        ) {
            let worse = (rate + more).min(1.0);
            prop_assert!(largest(worse, target, 100, 1500) <= largest(rate, target, 100, 1500));
            let most = |rate| carries_most(rate, Modulation::Dqpsk, 100, 1500);
            prop_assert!(most(worse) <= most(rate));
        }
    }
}
