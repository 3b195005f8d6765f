//! Arrivals by the kernel's stamps, on the monotonic clock, and none of them too early.
//!
//! The kernel stamps packets with CLOCK_REALTIME (SO_TIMESTAMPNS), which anybody may set at any
//! moment; a process may also be shown another wall clock than the kernel's. So the distance from
//! the monotonic clock to the stamps is measured with a stamp: of a message to ourselves, which
//! the kernel stamped before it was read. What this says is at most the true distance, so that an
//! arrival comes out late by the microsecond that this takes, and never early.
//!
//! A clock that is slewed moves the monotonic clock alike; one that is set changes its distance to
//! it. That distance is looked at after each batch of packets was read. Where it changed, a stamp
//! of the batch may be from before or after, and its packets count from when they were read, as do
//! those without a stamp.

use crate::clock;
use crate::socket::{control_messages, set_option, stamp_in};
use nix::libc;
use sheaf_stage::Instant;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// A smaller step of the wall clock is not seen: two looks at two clocks differ by as much. Sending
/// a packet takes longer, so that none is early by it.
const NOISE: u64 = 2_000;
/// Looks and messages of one measurement, of which the one that was held up least counts.
const TRIES: u32 = 8;

/// The distance of the stamps from the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Nanoseconds that stamps are ahead, at least.
    ahead: u64,
    /// Time from when on that is known.
    since: Instant,
}

impl Offset {
    /// Time at which a packet came that has this `stamp` and was read at `read`, from a socket that
    /// had no packet at `empty`.
    pub fn arrival(self, stamp: Option<u64>, empty: Instant, read: Instant) -> Instant {
        let stamp = stamp.filter(|_| empty >= self.since);
        let at = stamp.map(|stamp| Instant::from_nanos(stamp.saturating_sub(self.ahead)));
        at.unwrap_or(read).clamp(empty, read.max(empty))
    }
}

/// Follows the distance through the steps of the wall clock.
#[derive(Debug)]
pub struct Stamps {
    probe: Probe,
    watch: Watch,
}

impl Stamps {
    /// Measures the distance for the first time.
    pub fn new() -> io::Result<Stamps> {
        let probe = Probe::new()?;
        let watch = Watch::new(&mut clock::epoch, &mut || probe.ahead());
        Ok(Stamps { probe, watch })
    }

    /// The distance, for stamps that were read just now.
    pub fn offset(&mut self) -> Offset {
        let Stamps { probe, watch } = self;
        watch.look(&mut clock::epoch, &mut || probe.ahead());
        watch.offset
    }
}

/// A message's stamp against the time at which it was read.
type Ahead = Option<(u64, Instant)>;

/// The state without the clocks.
#[derive(Debug)]
struct Watch {
    /// Nanoseconds that the wall clock is ahead of the monotonic one, as seen when the distance of
    /// the stamps was measured.
    wall: u64,
    offset: Offset,
}

impl Watch {
    fn new(wall: &mut dyn FnMut() -> u64, probe: &mut dyn FnMut() -> Ahead) -> Watch {
        let offset = Offset { ahead: u64::MAX, since: Instant::MAX };
        let mut watch = Watch { wall: 0, offset };
        watch.measure(wall, probe);
        watch
    }

    /// Measures anew where the wall clock was set.
    fn look(&mut self, wall: &mut dyn FnMut() -> u64, probe: &mut dyn FnMut() -> Ahead) {
        // A thread that is held up between two clocks sees a step where there is none.
        let same = (0..TRIES).any(|_| wall().abs_diff(self.wall) <= NOISE);
        if !same || self.offset.since == Instant::MAX {
            self.measure(wall, probe);
        }
    }

    fn measure(&mut self, wall: &mut dyn FnMut() -> u64, probe: &mut dyn FnMut() -> Ahead) {
        // First the wall clock: a step behind this is seen by the next look.
        self.wall = (0..TRIES).map(|_| wall()).max().unwrap_or(0);
        let best = (0..TRIES).filter_map(|_| probe()).max();
        // Without a stamp none is believed until one is there.
        self.offset =
            best.map_or(Offset { ahead: u64::MAX, since: Instant::MAX }, |(ahead, since)| Offset {
                ahead,
                since,
            });
    }
}

/// A pair of sockets for messages to ourselves.
#[derive(Debug)]
struct Probe {
    from: UnixDatagram,
    to: UnixDatagram,
}

impl Probe {
    fn new() -> io::Result<Probe> {
        let (from, to) = UnixDatagram::pair()?;
        to.set_nonblocking(true)?;
        let on: libc::c_int = 1;
        set_option(&to, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        Ok(Probe { from, to })
    }

    /// How far the stamp of a message is ahead of the time at which the message was read, and that
    /// time. `None`: the kernel gave no stamp.
    fn ahead(&self) -> Ahead {
        self.from.send(&[0]).ok()?;
        let (mut byte, mut control) = ([0_u8; 1], [0_u64; 8]);
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
        // SAFETY: an all-zero msghdr is a valid one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: every pointer in the message leads to memory of the length beside it.
        if unsafe { libc::recvmsg(self.to.as_raw_fd(), &raw mut message, 0) } < 0 {
            return None;
        }
        let read = clock::now();
        let stamp = control_messages(&message).find_map(|(level, kind, data)| {
            let ours = (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
            // SAFETY: the kernel says that it is a stamp.
            ours.then(|| unsafe { stamp_in(data) })
        });
        Some((stamp?.saturating_sub(read.as_nanos()), read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sheaf_stage::Duration;
    use std::cell::Cell;

    /// Long against what is between two looks at a clock, short against what people notice.
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_distance_is_that_of_the_wall_clock_where_nobody_pretends_otherwise() {
        let mut stamps = Stamps::new().unwrap();
        let offset = stamps.offset();
        let empty = clock::now();
        let stamp = clock::epoch() + clock::now().as_nanos();
        let read = clock::now() + MINUTE;
        let at = offset.arrival(Some(stamp), empty, read);
        assert!(empty <= at && at < empty + MINUTE / 2, "{at:?} from {empty:?}");
        assert_eq!(offset.arrival(None, empty, read), read);
        assert_eq!(stamps.offset(), offset, "nobody set the clock");
    }

    #[test]
    fn the_kernel_stamps_a_message_to_ourselves_before_it_is_read() {
        let probe = Probe::new().unwrap();
        let (ahead, read) = probe.ahead().unwrap();
        // It is no further ahead than the wall clock, and behind by what the message took.
        let wall = || (0..TRIES).map(|_| clock::epoch()).max().unwrap();
        assert!(ahead <= wall() + NOISE && ahead + MINUTE.as_nanos() as u64 > wall());
        assert!(read <= clock::now());
    }

    /// A machine whose clocks are set while packets come.
    struct World {
        now: Cell<u64>,
        /// What stamps are ahead, and what a process believes that the wall clock is.
        ahead: Cell<u64>,
        pretended: u64,
    }

    impl World {
        fn wall(&self) -> impl FnMut() -> u64 {
            || self.ahead.get() + self.pretended
        }

        /// A message takes a microsecond.
        fn probe(&self) -> impl FnMut() -> Ahead {
            || {
                self.now.set(self.now.get() + 1_000);
                Some((self.ahead.get() - 1_000, Instant::from_nanos(self.now.get())))
            }
        }
    }

    const HOUR: u64 = 3_600_000_000_000;

    proptest! {
        /// Packets come after a pause, and are read some time later; the clock is set before or
        /// after one came, or not at all.
        #[test]
        fn no_packet_seems_to_have_come_before_it_came_or_after_it_was_read(
            events in proptest::collection::vec(
                (0u64..50_000_000, 0u64..3_000_000, 0u8..8, any::<bool>(), 0..2 * HOUR), 1..60,
            ),
            pretended in prop_oneof![Just(0), 0..HOUR],
        ) {
            let world = World { now: Cell::new(HOUR), ahead: Cell::new(100 * HOUR), pretended };
            let mut watch = Watch::new(&mut world.wall(), &mut world.probe());
            let (mut empty, mut steady) = (Instant::from_nanos(world.now.get()), 0);
            for (pause, wait, step, before, size) in events {
                let set = |here| if step == 0 && here == before {
                    world.ahead.set((world.ahead.get() + size).saturating_sub(HOUR));
                };
                steady = if step == 0 { 0 } else { steady + 1 };
                set(true);
                let came = Instant::from_nanos(world.now.get() + pause);
                let stamp = came.as_nanos() + world.ahead.get();
                set(false);
                let read = came + Duration::from_nanos(wait);
                world.now.set(read.as_nanos());
                watch.look(&mut world.wall(), &mut world.probe());
                let at = watch.offset.arrival(Some(stamp), empty, read);
                prop_assert!(at >= came && at <= read, "{came:?} {at:?} {read:?}");
                // Two packets after a step all is as precise as before.
                let late = Duration::from_nanos(NOISE);
                prop_assert!(steady < 2 || at <= came + late, "{came:?} {at:?}");
                empty = read;
            }
        }
    }

    #[test]
    fn a_process_that_is_held_up_between_two_looks_sees_no_step() {
        let world = World { now: Cell::new(HOUR), ahead: Cell::new(9 * HOUR), pretended: 0 };
        let mut watch = Watch::new(&mut world.wall(), &mut world.probe());
        let (offset, looks) = (watch.offset, Cell::new(0));
        let mut held_up = || {
            looks.set(looks.get() + 1);
            9 * HOUR - if looks.get() < 3 { 5_000_000 } else { 0 }
        };
        watch.look(&mut held_up, &mut world.probe());
        assert_eq!((watch.offset, looks.get()), (offset, 3));
    }

    #[test]
    fn without_a_stamp_every_packet_came_when_it_was_read() {
        let mut none = || None;
        let mut watch = Watch::new(&mut || HOUR, &mut none);
        watch.look(&mut || HOUR, &mut none);
        let (empty, read) = (Instant::from_millis(1), Instant::from_millis(9));
        assert_eq!(watch.offset.arrival(Some(HOUR + 5_000_000), empty, read), read);
    }
}
