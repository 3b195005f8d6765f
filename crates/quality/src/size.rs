//! Frame error rate, and the largest packet whose frames stay under a target.
//!
//! Principle: a frame is lost when one of its bits is, 1 − (1 − BER)^bits. Solved for the bits, a
//! target gives the longest frame; headers and check sum of the MAC are part of it, preamble and
//! PLCP header are not: they are sent at the most robust rate.

/// Bytes of a frame around its IP packet: MAC header 24, LLC/SNAP 8, check sum 4 (IEEE 802.11-2020,
/// section 9.3.2.1). A QoS frame has two more, WPA2 adds 16: at most one part in six of the
/// smallest packet.
pub const FRAME_OVERHEAD: u16 = 24 + 8 + 4;

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
        }
    }
}
