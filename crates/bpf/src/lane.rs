//! Frames under way that are counted together, and what follows from how long they take.
//!
//! A lane belongs to a gate of the program: one for a FIFO, one for each queue of a device with
//! fair queues. Its ticks are tracked until they are free ([`crate::ticker`]). From the time that
//! takes follow three things:
//! * how many may be under way: as many as fill `WORK`, so that a fast device never runs dry while
//!   this process is on its way to the next tick, and a slow one has a single frame;
//! * which packets go by a tick: those that would wait for the packets before them anyway, until
//!   this process sends the tick;
//! * now and then a probe, which costs a packet this process's reaction, or where that is long the
//!   wait for a look that comes by itself ([`crate::rounds`]).

use crate::merge::Rule;
use crate::ticker::{Tick, Ticker};
use sheaf_aggregate::{Backoff, Config, Finished};
use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;
use std::io;

/// Work that a lane gives its device ahead of time: some ten times what this process takes from a
/// frame's end to the next tick (50 to 100 µs, decision 9).
const WORK: Duration = Duration::from_millis(1);
/// The most frames under way.
const MOST: u32 = 64;
/// The least that a frame takes rises by this part of what one takes longer: where the channel got
/// slower, a few dozen frames show it.
const LEAST_RISE: u32 = 16;
/// The most that a frame is taken to take: a full one at 1 Mbit/s with all its overhead.
const SERVICE_MOST: Duration = Duration::from_millis(20);
/// Other lanes wait for a frame under way for so many times what its lane's frames take in the
/// mean: one that others go before takes longer than the mean.
const PATIENCE: u32 = 2;
/// A look so soon after a frame was sent is at once: several times what a look takes, and less than
/// a radio takes for a frame. One that came later, on a busy machine, says nothing.
const AT_ONCE: Duration = Duration::from_micros(200);
/// A device that takes less than this for a frame is done at once: the program takes longer to
/// gather a packet. An Ethernet of 1 Gbit/s takes as long for the smallest frame.
const NO_TIME: Duration = Duration::from_nanos(500);
/// So many ticks in a row must be taken before a device that was full counts as one with room: a
/// queue of which half is refused takes eight in one of 256 cases.
const DOUBT: u32 = 8;
/// Between probes: so much later than a device became busy packets gather, where no other signal
/// shows it.
const PROBE: Duration = Duration::from_millis(64);
/// Between probes, as a multiple of this process's reaction: no more than a thousandth of the
/// packets' time is spent waiting for it.
const PROBE_SHARE: u32 = 1000;
/// The same behind strangers in a FIFO, where only a probe shows that they are gone.
const PROBE_STRANGERS: Duration = Duration::from_millis(1);
/// A packet waits for strangers longer than a twentieth of that.
const PROBE_STRANGERS_SHARE: u32 = 20;
/// A packet that waits so long as a probe is not late: half of what a request and its answer may
/// take longer.
const PROMPT: Duration = Duration::from_micros(100);
/// Where a probe waits longer, one packet in so many is one at most: of 200 packets of a sparse
/// flow one may be, which the 99th percentile does not show.
const PACKETS_BETWEEN: u32 = 256;
/// Ticks that must be done before probes are few: what a frame takes the device is known then, and
/// a load that comes at once does not fill its queues unseen.
const LEARNT: u32 = 8;
/// After so long without a packet what a frame takes is forgotten: other stations may have come to
/// the channel, and what begins now is not to fill the device's queue unseen.
const FORGET: Duration = Duration::from_secs(1);
/// Until then packets closer than this are probes soon: three calls of 50 packets a second each
/// come so. What is sparser fills no queue before the few probes that it has.
const DENSE: Duration = Duration::from_millis(10);

/// Least time from the last tick to a probe: a device that gathers has ticks under way all the
/// time. Half the time between two packets of a call.
const PAUSE: Duration = Duration::from_millis(10);

/// A tick under way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// No tick was sent for `PAUSE` before this one.
    paused: bool,
    /// What the program had counted before: strangers' frames, and frames without a tick.
    strangers: u32,
    untracked: u32,
    /// Its number at the gate.
    number: u32,
    /// What it carries: packets, and bytes of IP.
    packets: u32,
    bytes: u32,
    /// Frames of ours that may have been in front of it.
    front: Front,
}

/// Frames of ours that a device may have had when it was given a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Nothing.
    Nothing,
    /// Ticks of other lanes.
    Ticks,
    /// Packets that left in place, which nobody tracks.
    InPlace,
}

/// A look at what the device has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub now: Instant,
    /// Ticks of the lane that are done since the last look.
    pub done: u32,
    /// The same with those of lanes that are settled after this one: all share the time.
    pub sharing: u32,
    /// It comes right after a tick was sent: a device that is done with it by then had it in no
    /// queue, and took no time of anybody who came later.
    pub at_once: bool,
    /// No strangers' frames are in the device, so the time that a frame took is due to the channel.
    pub alone: bool,
}

/// Frames under way that are counted together.
#[derive(Debug)]
pub(crate) struct Lane {
    ticker: Ticker,
    /// The device has fair queues.
    fair: bool,
    sent: VecDeque<Sent>,
    /// Number of the last tick that is done, and of the last frame without a tick before it: all
    /// up to these have left.
    left: Option<(u32, u32)>,
    /// Strangers' frames before the last tick that is done.
    strangers: Option<u32>,
    /// When the last tick was done.
    done: Instant,
    /// Ticks that are done, up to [`LEARNT`].
    learnt: u32,
    /// The device was done with the last tick at once.
    at_once: bool,
    /// Ticks that are still to be checked since the device had no room for a frame.
    doubt: u32,
    /// What a frame takes, averaged over the last few.
    service: Duration,
    /// The same where no others are in front: near the least of the last.
    least: Duration,
    /// Until when the device has no room.
    full_until: Instant,
}

impl Lane {
    /// `fair` says that the device has fair queues.
    pub fn new(ticker: Ticker, fair: bool) -> Lane {
        Lane {
            ticker,
            fair,
            sent: VecDeque::with_capacity(MOST as usize),
            left: None,
            strangers: None,
            done: Instant::ZERO,
            learnt: 0,
            at_once: false,
            doubt: 0,
            service: Duration::ZERO,
            least: SERVICE_MOST,
            full_until: Instant::ZERO,
        }
    }

    /// Number up to which strangers' frames have left, where a tick was done.
    pub fn strangers(&self) -> Option<u32> {
        self.strangers
    }

    /// Number at the gate of the last tick that has left, where one has, and of the last frame
    /// without a tick before it.
    pub fn left(&self) -> Option<(u32, u32)> {
        self.left
    }

    /// Whether the next tick must be checked. A full FIFO frees the frames that it refuses at once,
    /// as an idle device frees those that it has sent, and an unchecked tick cannot be told apart.
    /// A checked tick does not show how long its frame takes, so only a device that was full gets
    /// checked ticks.
    pub fn checks(&self) -> bool {
        self.doubt > 0 && self.at_once
    }

    /// Sends `tick` at `now`, checked: the kernel returns to the program whether the device has
    /// room for the frame. Returns whether a frame left. `on` names the CPU that must send it.
    pub fn check(&mut self, tick: Tick, on: Option<u32>, now: Instant) -> io::Result<bool> {
        let left = self.tick(Tick { checked: true, ..tick }, on)?;
        if left {
            (self.at_once, self.doubt) = (false, self.doubt - 1);
            // As good as done; where others are under way they say more.
            self.done = if self.sent.is_empty() { now } else { self.done };
        }
        Ok(left)
    }

    fn tick(&mut self, tick: Tick, on: Option<u32>) -> io::Result<bool> {
        match on {
            None => self.ticker.tick(tick),
            Some(cpu) => self.ticker.tick_on(cpu, tick),
        }
    }

    /// The device had no room for the frame of a checked tick, or for a packet that left in place,
    /// at `now`. So the frame counts as one that took the longest, until others that the device
    /// accepts say better. It has no room before it is done with one, so nothing leaves for the
    /// time that a frame takes.
    pub fn refused(&mut self, now: Instant) {
        self.doubt = DOUBT;
        self.service = (self.service * 3 + SERVICE_MOST) / 4;
        self.full_until = now + self.service.clamp(WORK, SERVICE_MOST);
    }

    /// Until when the device has no room.
    pub fn full_until(&self) -> Instant {
        self.full_until
    }

    /// Whether a frame may leave at `now`, of at least `least` that may be under way; `hurried` as
    /// in [`Lane::rule`].
    pub fn takes(&self, least: u32, hurried: bool, now: Instant) -> bool {
        now >= self.full_until && self.room(least, hurried) > 0
    }

    /// Number of further frames that may be under way.
    fn room(&self, least: u32, hurried: bool) -> u32 {
        match hurried || !self.awaits_probe() {
            true => self.limit(least).saturating_sub(self.under_way()),
            false => 0,
        }
    }

    /// Whether a probe is under way behind packets that left in place. In fair queues these wait
    /// elsewhere, and only when it has left is nothing of a flow in front of what was gathered
    /// since.
    fn awaits_probe(&self) -> bool {
        self.fair && self.sent.iter().any(|sent| sent.paused && sent.front == Front::InPlace)
    }

    /// Until when other lanes wait for the oldest tick under way, on a channel that carries one
    /// frame at a time. A station that sleeps gets its frame when it wakes up; meanwhile the others
    /// go on.
    pub fn occupies_until(&self) -> Option<Instant> {
        let oldest = self.sent.front().filter(|_| self.limit(1) == 1)?;
        Some(oldest.at + (self.service * PATIENCE).clamp(WORK, SERVICE_MOST))
    }

    /// When the last tick was done.
    pub fn done(&self) -> Instant {
        self.done
    }

    /// Forgets what a frame takes where nothing has left since long before `now`; the last packet
    /// left in place at `last`. Returns when to look for that.
    pub fn forget(&mut self, last: Instant, now: Instant) -> Option<Instant> {
        let at = self.done.max(last) + FORGET;
        if self.learnt == LEARNT && self.sent.is_empty() && at <= now {
            self.learnt = 0;
        }
        Some(at).filter(|at| self.learnt == LEARNT && *at > now)
    }

    /// Frames under way.
    pub fn under_way(&self) -> u32 {
        self.sent.len() as u32
    }

    /// Whether the device has been done at once with the last ticks, and has none.
    pub fn is_done_at_once(&self) -> bool {
        self.sent.is_empty() && self.strangers.is_some() && self.service < NO_TIME
    }

    /// Frames that may be under way, at least `least`.
    pub fn limit(&self, least: u32) -> u32 {
        let frames = WORK.as_nanos() / self.service.as_nanos().max(1);
        u32::try_from(frames).unwrap_or(MOST).clamp(1, MOST).max(least)
    }

    /// Beside strangers in fair queues: from when on a tick may follow the last one though that is
    /// under way.
    ///
    /// A packet that waits until the last one has left waits for the strangers between, too, and
    /// then for those in front of the next one. Alone it would not wait for the first of them. So
    /// it waits for what a frame takes, and no longer.
    pub fn next(&self) -> Option<Instant> {
        let last = self.sent.back().filter(|_| self.under_way() < MOST)?;
        Some(last.at + self.least.clamp(WORK, SERVICE_MOST))
    }

    /// Sends `tick` at `now`; the program has counted `strangers` and `untracked` frames before.
    /// Returns whether a frame left. `on` names the CPU that must send it.
    pub fn send(
        &mut self,
        mut tick: Tick,
        on: Option<u32>,
        strangers: u32,
        untracked: u32,
        now: Instant,
    ) -> io::Result<bool> {
        let gone = self.left.map_or(0, |(_, gone)| gone);
        tick.untracked = Some(gone).filter(|gone| self.sent.is_empty() && *gone == untracked);
        let left = self.tick(tick, on)?;
        if left {
            let sent = Sent {
                at: now,
                paused: now.saturating_since(self.done) >= PAUSE,
                strangers,
                untracked,
                number: 0,
                packets: 1,
                bytes: 0,
                front: Front::InPlace,
            };
            self.sent.push_back(sent);
        }
        Ok(left)
    }

    /// The tick that was sent last has this number at the gate, carries so much, and may have
    /// `front` in front of it.
    pub fn carries(&mut self, number: u32, packets: u32, bytes: u32, front: Front) {
        if let Some(last) = self.sent.back_mut() {
            (last.number, last.packets, last.bytes) = (number, packets, bytes);
            last.front = front;
        }
    }

    /// Ticks that are done and not settled yet.
    pub fn finished(&mut self) -> io::Result<u32> {
        let left = self.ticker.under_way(self.under_way())?;
        Ok(self.under_way().saturating_sub(left))
    }

    /// Learns from a look which ticks are done. `backoff` is the device's: frames of all lanes
    /// contend for its channel as those of one station.
    pub fn settle(&mut self, look: Look, config: &Config, backoff: &mut Backoff) {
        let Look { now, done, mut sharing, at_once, alone } = look;
        let left = self.under_way() - done;
        for _ in 0..done {
            let Some(sent) = self.sent.pop_front() else { break };
            let began = sent.at.max(self.done);
            self.strangers = Some(sent.strangers);
            self.left = Some((sent.number, sent.untracked));
            // Several that are done in one look share the time.
            let soon = at_once && now.saturating_since(sent.at) < AT_ONCE;
            let soon = soon && left == 0;
            let took = if soon { Duration::ZERO } else { now.saturating_since(began) / done };
            self.at_once = soon;
            let before = if self.learnt == 0 { took } else { self.service };
            self.service = (before * 3 + took) / 4;
            self.learnt = (self.learnt + 1).min(LEARNT);
            let more = took.saturating_sub(self.least) / LEAST_RISE;
            self.least = (self.least + more).min(took.max(Duration::from_nanos(1)));
            // A fast device has many frames under way, which hide what one of them took.
            // What left in place is not contention, and nobody knows how much of it was in front.
            if alone && self.limit(1) == 1 && sent.front != Front::InPlace {
                let exact = sent.front == Front::Nothing && look.sharing == 1;
                let Sent { packets, bytes, .. } = sent;
                backoff.began(sent.at);
                backoff.finished(config, Finished { packets, bytes, sharing, exact }, now);
            }
            sharing -= 1;
        }
        self.done = now;
    }

    /// What the program does from `now` on, where this process takes `reaction` to look.
    /// `strangers` says that theirs may be in front of ours in a FIFO; `hurried`, that ticks may
    /// leave before earlier ones have ([`Lane::next`]); `contended`, that other stations keep the
    /// channel from a frame for longer than that.
    pub fn rule(
        &self,
        least: u32,
        reaction: Duration,
        strangers: bool,
        hurried: bool,
        contended: bool,
        now: Instant,
    ) -> Rule {
        let limit = self.limit(least);
        let knows_little = self.learnt < LEARNT;
        // A packet waits for the channel longer than for this process. Each frame has to be seen
        // then, as those that are not fill the device's queue, and are in front of those that are.
        let sees_all = limit == 1 && contended && !strangers;
        let (probe, share) = match (strangers, knows_little) {
            (true, _) => (PROBE_STRANGERS, PROBE_STRANGERS_SHARE),
            (_, true) => (PROBE, 0),
            (_, false) => (PROBE, PROBE_SHARE),
        };
        Rule {
            closed: !self.sent.is_empty() || self.full_until > now,
            hurried,
            // A slow device has its frames from ticks alone.
            credit: if limit > 1 { self.room(least, hurried) } else { 0 },
            rests: false,
            service: self.service.min(SERVICE_MOST),
            reaction,
            probe_at: if sees_all { self.done } else { self.done + probe.max(reaction * share) },
            // What waits for strangers or the channel anyway is not late.
            between: if strangers || sees_all { 0 } else { packets_between_probes(reaction) },
            dense: if knows_little { DENSE } else { Duration::ZERO },
        }
    }
}

/// Packets between two probes, at least, where this process takes `reaction` to look.
fn packets_between_probes(reaction: Duration) -> u32 {
    if reaction > PROMPT { PACKETS_BETWEEN } else { 0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ticker::{Cause, FRAME};
    use nix::sys::socket::MsgFlags;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, recv, socketpair};
    use std::os::fd::{AsRawFd, OwnedFd};

    const MS: Duration = Duration::from_millis(1);
    const REACTION: Duration = Duration::from_micros(50);
    /// Time that a lane of [`learnt`] takes for a frame.
    pub(crate) const SERVICE: Duration = Duration::from_millis(3);

    /// A lane, and its device: a frame that is read there is done.
    fn lane() -> (Lane, OwnedFd) {
        let (kind, flags) = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
        let (ours, device) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
        (Lane::new(Ticker::over(ours, [2; 6], 1), true), device)
    }

    fn send(lane: &mut Lane, front: Front, now: Instant) {
        assert!(lane.send(Tick::new(0, Cause::Ready), None, 0, 0, now).unwrap());
        lane.carries(1, 4, 250, front);
    }

    fn is_done(lane: &mut Lane, device: &OwnedFd, backoff: &mut Backoff, now: Instant) {
        let mut frame = [0; FRAME];
        recv(device.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).unwrap();
        let done = lane.finished().unwrap();
        assert_eq!(done, 1);
        let look = Look { now, done, sharing: done, at_once: false, alone: true };
        lane.settle(look, &Config::default(), backoff);
    }

    /// A lane that has learnt until `now` that a frame takes [`SERVICE`], and its device.
    pub(crate) fn learnt(now: Instant) -> (Lane, OwnedFd) {
        let ((mut lane, device), mut backoff) = (lane(), Backoff::default());
        for left in (0..LEARNT).rev() {
            let done = now - SERVICE * left;
            send(&mut lane, Front::Nothing, done - SERVICE);
            is_done(&mut lane, &device, &mut backoff, done);
        }
        (lane, device)
    }

    /// The contention noted after frames of 2 ms and then one of 90 ms behind `front`.
    fn contention(front: Front) -> Duration {
        let ((mut lane, device), mut backoff) = (lane(), Backoff::default());
        let mut now = Instant::from_millis(1);
        for (front, took) in [(Front::Nothing, 2), (Front::Nothing, 2), (front, 90)] {
            send(&mut lane, front, now);
            now += took * MS;
            is_done(&mut lane, &device, &mut backoff, now);
        }
        backoff.contention(now)
    }

    #[test]
    fn a_frame_behind_packets_that_left_in_place_says_nothing_of_other_stations() {
        assert_eq!(contention(Front::InPlace), Duration::ZERO);
        assert!(contention(Front::Nothing) > 10 * MS);
    }

    #[test]
    fn nothing_follows_a_probe_that_packets_in_fair_queues_may_be_in_front_of() {
        let follows = |fair, pause, front, hurried| {
            let ((mut lane, device), mut backoff) = (lane(), Backoff::default());
            lane.fair = fair;
            let now = Instant::from_millis(1);
            send(&mut lane, Front::Nothing, now);
            // As fast as a device that has many frames under way.
            is_done(&mut lane, &device, &mut backoff, now + REACTION);
            let now = now + REACTION + pause;
            send(&mut lane, front, now);
            let rule = lane.rule(1, REACTION, false, hurried, false, now);
            let takes = lane.takes(1, hurried, now);
            assert_eq!(takes, rule.credit > 0);
            takes
        };
        assert!(!follows(true, PAUSE, Front::InPlace, false));
        assert!(follows(false, PAUSE, Front::InPlace, false), "a FIFO keeps the order");
        assert!(follows(true, PAUSE, Front::InPlace, true), "strangers' frames are in front");
        assert!(follows(true, PAUSE, Front::Nothing, false), "nothing is in front");
        assert!(follows(true, MS, Front::InPlace, false), "it is one of many ticks");
    }

    #[test]
    fn other_lanes_wait_for_a_slow_frame_but_not_for_a_station_that_sleeps() {
        let ((mut lane, _device), now) = (lane(), Instant::from_millis(1));
        lane.service = 3 * MS;
        assert_eq!(lane.occupies_until(), None, "nothing is under way");
        send(&mut lane, Front::Nothing, now);
        for (service, until) in [
            (3 * MS, Some(now + 6 * MS)),
            (100 * MS, Some(now + SERVICE_MOST)),
            // The device has several at a time.
            (MS / 10, None),
        ] {
            lane.service = service;
            assert_eq!(lane.occupies_until(), until);
        }
    }

    #[test]
    fn after_a_silence_the_first_packets_are_probes_as_at_the_beginning() {
        let now = Instant::from_millis(100);
        let (mut lane, _device) = learnt(now);
        let dense = |lane: &Lane, now| lane.rule(1, MS, false, false, false, now).dense;
        let last = now + 5 * MS;
        assert_eq!(lane.forget(last, now + 6 * MS), Some(last + FORGET));
        assert_eq!(dense(&lane, now), Duration::ZERO);
        assert_eq!(lane.forget(last, last + FORGET), None);
        assert_eq!(dense(&lane, last + FORGET), DENSE);
    }

    #[test]
    fn where_others_contend_for_a_slow_channel_no_packet_near_another_leaves_unseen() {
        let now = Instant::from_millis(100);
        let (lane, _device) = learnt(now);
        for reaction in [REACTION, MS] {
            let rule = |contended| lane.rule(1, reaction, false, false, contended, now);
            let (contended, alone) = (rule(true), rule(false));
            assert!(contended.probe_at <= now && contended.between == 0);
            assert!(alone.probe_at > now);
        }
    }
}
