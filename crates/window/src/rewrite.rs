//! The model of the eBPF program: sees every packet of an interface, keeps the table of flows, and
//! lowers windows in place.
//!
//! Principle ("An OpenWRT solution for future wireless homes", SAP-LAW): the access point sees
//! every acknowledgement; with a smaller window in it the sender slows down, and nothing changes at
//! either end. A flow whose handshake did not pass by is left alone, because its window scale is
//! unknown (RFC 7323 2.2: it is only in SYNs).
//!
//! New connections stand in a table of their own until the third packet of the handshake proves
//! that both ends are real; so a SYN flood pushes out other beginnings, but no flow.

use crate::flow::{Connection, Half, PendingFlow, Syn};
use crate::key::{Direction, FlowId, Key};
use crate::lru::Lru;
use crate::pace::Pace;
use crate::rest::{Rest, RestKey, RestSetting, Verdict};
use crate::segment::{Segment, flag};
use crate::slow_start::{self, Growth};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::checksum::adjust;
use sheaf_wire::dscp;
use sheaf_wire::ethernet::HEADER_LEN;
use sheaf_wire::header::set_ce;
use sheaf_wire::ip::{Ip, Protocol, Version};

/// Flows (established connections) that the tables hold.
pub const FLOWS: usize = 16384;
/// Handshakes that the tables hold.
pub const EMBRYOS: usize = 4096;
/// Flows of the rest that the tables hold.
pub const REST_FLOWS: usize = 4096;
/// Time for which windows are lowered after the controller's last sign of life.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// Segments that a sender begins with (RFC 6928): a larger window is of no use in the first round.
pub const INITIAL_SEGMENTS: u32 = 10;
/// The least segments of a first window: Linux sends none larger than half of it, ever
/// (tcp_bound_to_half_wnd).
pub const LEAST_SEGMENTS: u32 = 2;
/// The half of a path that is timed beyond the interface, where the bottleneck is: that of data
/// which leaves by it.
pub(crate) const OUTER: usize = Direction::Out.index();
/// The third packet of a handshake acknowledges the SYN-ACK and at most this much data (RFC 7413).
pub const THIRD_ACK: u32 = 65535;

/// The kernel's metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Direction in which it passes.
    pub direction: Direction,
    /// Whether its transport checksum is still to be finished by the device: the field then holds
    /// the sum of the pseudo header, in which the window has no part.
    pub partial: bool,
    /// Frames that it stands for; more than 1 for a super-packet.
    pub segments: u32,
    /// Bytes of link headers in front of it.
    pub link: u32,
}

impl Passing {
    /// A single finished packet behind an Ethernet header.
    pub const fn plain(direction: Direction) -> Passing {
        Passing { direction, partial: false, segments: 1, link: HEADER_LEN as u32 }
    }
}

/// The outcome for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was changed.
    Kept,
    /// Its window field was lowered.
    Clamped {
        /// The field before.
        from: u16,
        /// The field now.
        to: u16,
    },
    /// The same, and the rest of its window is given at the rate of the link: to a copy of the
    /// packet as it was, which is to be shown to [`Rewriter::release`] after
    /// [`COPY`](crate::pace::COPY).
    Withheld {
        /// The field before.
        from: u16,
        /// The field now.
        to: u16,
    },
    /// The push flag was set, and the window was not changed.
    Pushed,
    /// The packet was marked: congestion experienced.
    Marked,
    /// The packet is to be dropped.
    Dropped,
}

/// Changes to a TCP segment.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Its window field, where that changes.
    to: Option<u16>,
    /// Whether it is pushed.
    push: bool,
    /// Whether some of its window is withheld.
    withheld: bool,
}

impl Change {
    /// The outcome for a segment whose window field is `from`.
    fn outcome(self, from: u16) -> Outcome {
        match self.to {
            Some(to) if self.withheld => Outcome::Withheld { from, to },
            Some(to) => Outcome::Clamped { from, to },
            None if self.push => Outcome::Pushed,
            None => Outcome::Kept,
        }
    }
}

/// Everything that passed in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes on the wire, link headers included.
    pub wire: u64,
    /// Packets; a super-packet counts as the frames that it stands for.
    pub packets: u64,
    /// Bytes of voice that windows do not govern: packets of class EF or CS6.
    pub voice: u64,
    /// Packets of the rest that were marked.
    pub marked: u64,
    /// Packets of the rest that were dropped.
    pub dropped: u64,
}

/// The model of the program on one interface.
///
/// ```
/// use sheaf_stage::Instant;
/// use sheaf_window::{Direction, Outcome, Passing, Rewriter};
///
/// let mut rewriter = Rewriter::new();
/// rewriter.beat(Instant::from_millis(1));
/// // A connection that began unseen has an unknown window scale: hands off.
/// let mut packet = Vec::new();
/// etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
///     .tcp(80, 1234, 1, 65535)
///     .ack(1)
///     .write(&mut packet, &[])?;
/// let now = Instant::from_millis(2);
/// assert_eq!(rewriter.rewrite(&mut packet, Passing::plain(Direction::In), now), Outcome::Kept);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rewriter {
    flows: Lru<Key, Connection>,
    pending: Lru<Key, PendingFlow>,
    rest: Lru<RestKey, [Rest; 2]>,
    totals: [Totals; 2],
    heartbeat: Option<Instant>,
    initial: [u32; 2],
    growth: [Growth; 2],
    /// Bytes that flows which begin may be given together until the next sign of life.
    spare: [u32; 2],
    /// Bytes that flows were given since the last sign of life, and in the time before.
    given: [[u32; 2]; 2],
    push: [bool; 2],
    rest_setting: [RestSetting; 2],
    /// The clock of uploads.
    pace: Pace,
}

impl Default for Rewriter {
    fn default() -> Self {
        Rewriter::new()
    }
}

impl Rewriter {
    /// With tables as large as the program's.
    pub fn new() -> Rewriter {
        Rewriter::with_capacity(FLOWS, EMBRYOS)
    }

    /// With room for `flows` flows and `pending` handshakes, at least one each.
    pub fn with_capacity(flows: usize, pending: usize) -> Rewriter {
        Rewriter {
            flows: Lru::new(flows),
            pending: Lru::new(pending),
            rest: Lru::new(REST_FLOWS),
            totals: [Totals::default(); 2],
            heartbeat: None,
            initial: [0; 2],
            growth: [Growth::default(); 2],
            spare: [0; 2],
            given: [[0; 2]; 2],
            push: [false; 2],
            rest_setting: [RestSetting::default(); 2],
            pace: Pace::default(),
        }
    }

    /// Takes a sign of life of the controller at `now`.
    pub fn beat(&mut self, now: Instant) {
        self.heartbeat = Some(now);
        self.given = self.given.map(|[now, _]| [0, now]);
    }

    /// New flows whose data goes in `direction` begin with at most `window` bytes; 0 leaves them
    /// alone. Those that begin before the next sign of life have `spare` bytes together, and as
    /// much again for their second round: the first ones as much as a sender begins with, and two
    /// segments each when nothing is left.
    pub fn set_initial(&mut self, direction: Direction, window: u32, spare: u32) {
        self.initial[direction.index()] = window;
        self.spare[direction.index()] = spare;
    }

    /// Windows of data that goes in `direction` grow by `growth`.
    pub fn set_growth(&mut self, direction: Direction, growth: Growth) {
        self.growth[direction.index()] = growth;
    }

    /// Opens windows of uploads by a byte in each [`cost`](crate::cost::of); with 0, as
    /// acknowledgements come.
    pub fn set_pace(&mut self, cost: u32) {
        self.pace.cost = cost;
    }

    /// Whether segments of data that goes in `direction` and has a window are pushed (PSH, RFC 9293
    /// 3.9.1), so that their receiver acknowledges each at once instead of every second one.
    pub fn set_push(&mut self, direction: Direction, push: bool) {
        self.push[direction.index()] = push;
    }

    /// Treats the rest whose packets go in `direction` by `setting`.
    pub fn set_rest(&mut self, direction: Direction, setting: RestSetting) {
        self.rest_setting[direction.index()] = setting;
    }

    /// Holds `flow` to `window` bytes from its next acknowledgement on; 0 leaves it alone. Returns
    /// whether the table has the flow.
    pub fn set(&mut self, flow: FlowId, window: u32) -> bool {
        let Some(connection) = self.flows.peek_mut(&flow.key) else { return false };
        connection.half[flow.direction.index()].window = window;
        true
    }

    /// All connections, the last used first.
    pub fn flows(&self) -> impl Iterator<Item = (&Key, &Connection)> {
        self.flows.iter()
    }

    /// The connection `key`.
    pub fn flow(&self, key: &Key) -> Option<&Connection> {
        self.flows.peek(key)
    }

    /// Handshakes that are not complete; at most as many as there is room for.
    pub fn beginnings(&self) -> usize {
        self.pending.len()
    }

    /// All flows of the rest, the last used first; none while the rest is left alone.
    pub fn rest(&self) -> impl Iterator<Item = (&RestKey, &[Rest; 2])> {
        self.rest.iter()
    }

    /// Everything that passed in `direction`.
    pub fn totals(&self, direction: Direction) -> Totals {
        self.totals[direction.index()]
    }

    /// Counts `packet`, an IP packet that passes at `now` (later than [`Instant::ZERO`]),
    /// and lowers its window in place. Packets other than IP are only counted.
    pub fn rewrite(&mut self, packet: &mut [u8], passing: Passing, now: Instant) -> Outcome {
        let totals = &mut self.totals[passing.direction.index()];
        totals.packets += u64::from(passing.segments);
        let Ok(view) = Ip::parse(packet) else {
            totals.wire += u64::from(passing.link) + packet.len() as u64;
            return Outcome::Kept;
        };
        let length = view.bytes().len() as u32;
        if let Some(segment) = Segment::parse(&view) {
            let headers = passing.link + length - segment.payload;
            let wire = passing.link + length + (passing.segments.max(1) - 1) * headers;
            totals.wire += u64::from(wire);
            let change = self.segment(&view, &segment, wire, passing.direction, now);
            let Some(change) = change else {
                // Acknowledgements are no load, and their loss slows nobody down.
                if segment.payload == 0 {
                    return Outcome::Kept;
                }
                let verdict = self.rest_passes(&view, wire, passing.direction, now);
                return treat(packet, verdict);
            };
            let (from, offset, lead) = (segment.window(), segment.offset, segment.lead());
            if change.push {
                let lead = lead | u16::from(flag::PSH);
                write_word(&mut packet[offset..], 12, lead, passing.partial);
            }
            if let Some(to) = change.to {
                write_word(&mut packet[offset..], 14, to, passing.partial);
            }
            return change.outcome(from);
        }
        let wire = passing.link + length;
        totals.wire += u64::from(wire);
        if view.protocol() != Protocol::UDP {
            return Outcome::Kept;
        }
        let verdict = self.rest_passes(&view, wire, passing.direction, now);
        treat(packet, verdict)
    }

    /// Gives `packet`, a copy of an acknowledgement that comes back at `now` as it was, what may be
    /// given of the window that was [withheld](Outcome::Withheld). It is dropped where that is
    /// nothing: then the link has enough, and what was let go brings the next acknowledgement.
    /// Nothing is counted.
    pub fn release(&mut self, packet: &mut [u8], now: Instant) -> Outcome {
        self.give(packet, now).unwrap_or(Outcome::Dropped)
    }

    fn give(&mut self, packet: &mut [u8], now: Instant) -> Option<Outcome> {
        let view = Ip::parse(packet).ok()?;
        let segment = Segment::parse(&view)?;
        let key = Key::of(&view, Direction::In)?;
        let live = self.is_live(now);
        let half = &mut self.flows.peek_mut(&key)?.half[OUTER];
        // A newer one has passed; a sender takes no window from an older one (RFC 9293 3.10.7.4).
        if !segment.is_bare_ack() || segment.ack() != half.ack {
            return None;
        }
        let pace = (live && self.pace.cost > 0).then_some((&mut self.pace, now));
        let (from, offset) = (segment.window(), segment.offset);
        let (to, withheld) = half.release(segment.ack(), from, live, pace)?;
        write_word(&mut packet[offset..], 14, to, false);
        Some(Change { to: (to != from).then_some(to), push: false, withheld }.outcome(from))
    }

    /// Whether the controller gave a sign of life recently.
    fn is_live(&self, now: Instant) -> bool {
        self.heartbeat.is_some_and(|beat| now - beat <= HEARTBEAT_TIMEOUT)
    }

    /// Counts a TCP segment. Returns what becomes of it; `None` for a connection that is not known.
    fn segment(
        &mut self,
        view: &Ip<'_>,
        segment: &Segment<'_>,
        wire: u32,
        direction: Direction,
        now: Instant,
    ) -> Option<Change> {
        let flags = segment.flags();
        let kept = Some(Change::default());
        let Some(key) = Key::of(view, direction) else { return kept };
        if flags & flag::RST != 0 {
            return kept;
        }
        if flags & flag::SYN != 0 {
            if flags & flag::FIN == 0 {
                let syn = Syn::read(segment, view.version() == Version::V6, now);
                let live = self.is_live(now);
                let field = self.handshake(key, syn, segment, direction, live);
                let to = (field < segment.window()).then_some(field);
                return Some(Change { to, ..Change::default() });
            }
            return kept;
        }
        if flags & flag::ACK == 0 {
            return kept;
        }
        if self.flows.peek(&key).is_none() {
            self.establish(key, segment.ack(), direction, now);
        }
        let live = self.is_live(now);
        let connection = self.flows.get(&key)?;
        let timestamps = if connection.timestamps { segment.options().timestamps } else { None };
        let [data, reverse] = [direction.index(), direction.reverse().index()];
        let mut step = 0;
        if !connection.timestamps || timestamps.is_some() {
            let (tsval, tsecr) = timestamps.unzip();
            connection.half[data].passes(segment, tsval, wire, now);
            step = connection.half[reverse].answered(segment.ack(), tsecr, now);
        } else {
            connection.half[data].wire += u64::from(wire);
        }
        let mut growth = self.growth[reverse].after(&connection.half[OUTER].rtt);
        // A copy of data would be data sent again. What acknowledges nothing new is a sign of loss,
        // as long as it keeps its window (RFC 5681 3.2).
        let is_paced = direction == Direction::In && self.pace.cost > 0 && segment.is_bare_ack();
        let mut pace = None;
        match is_paced {
            true if step > 0 => pace = Some((&mut self.pace, now)),
            true => growth = slow_start::NONE,
            false => {}
        }
        let (field, withheld) = connection.half[reverse].advertise(
            segment.ack(),
            step,
            segment.window(),
            growth,
            live,
            pace,
        );
        let push = live
            && self.push[data]
            && connection.half[data].window > 0
            && segment.payload > 0
            && flags & flag::PSH == 0;
        Some(Change { to: (field != segment.window()).then_some(field), push, withheld })
    }

    /// Bytes of `spare` that flows whose data goes in direction number `way` may still be given. A
    /// handshake takes longer than the time between two signs of life, so the time before counts,
    /// too.
    fn left(&self, way: usize, spare: u32) -> u32 {
        let [now, before] = self.given[way];
        spare.saturating_sub(now).saturating_sub(before)
    }

    /// The window of data that goes in direction number `way`, of a connection whose first one is
    /// `first`: twice that, as its second round has, as long as that is there.
    fn second(&mut self, way: usize, first: u32) -> u32 {
        if self.growth[way].bytes == 0 {
            // What nobody else began with is for those that are here.
            return self.initial[way].min(self.left(way, self.spare[way]).max(first));
        }
        let more = self.left(way, self.spare[way].saturating_mul(2)).min(first);
        self.given[way][0] = self.given[way][0].saturating_add(more);
        self.initial[way].min(first + more)
    }

    /// A SYN or a SYN-ACK; returns the window field that it shall have.
    fn handshake(
        &mut self,
        key: Key,
        mut syn: Syn,
        segment: &Segment<'_>,
        direction: Direction,
        live: bool,
    ) -> u16 {
        let way = direction.reverse().index();
        let initial = if live { self.initial[way] } else { 0 };
        let left = self.left(way, self.spare[way]);
        let mut given = 0;
        // Sent again: the SYN-ACK may reply to either one, so the round trip is not measured
        // (Karn). It has had its window.
        let mut prepare = |before: Option<Syn>| {
            let before = before.filter(|before| before.first == syn.first);
            let mss = u32::from(syn.mss);
            let limit = match initial {
                0 => 0,
                _ => left.min(mss * INITIAL_SEGMENTS).min(initial).max(mss * LEAST_SEGMENTS),
            };
            if before.is_some() {
                syn.since = Instant::ZERO;
            } else {
                given = limit;
            }
            syn.lower(limit, before.map(|before| before.window));
            syn
        };
        if segment.flags() & flag::ACK == 0 {
            let old =
                self.pending.peek(&key).filter(|pending_flow| pending_flow.initiator == direction);
            let syn = prepare(old.map(|pending_flow| pending_flow.syn));
            self.given[way][0] = self.given[way][0].saturating_add(given);
            self.pending.insert(key, PendingFlow { initiator: direction, syn, syn_ack: None });
            return syn.window;
        }
        let Some(pending_flow) = self.pending.get(&key) else { return segment.window() };
        if pending_flow.initiator == direction
            || !pending_flow.syn.is_acknowledged_by(segment.ack())
        {
            return segment.window();
        }
        let syn = prepare(pending_flow.syn_ack);
        pending_flow.syn_ack = Some(syn);
        self.given[way][0] = self.given[way][0].saturating_add(given);
        // A SYN begins a new connection, so the one under this key has ended.
        self.flows.remove(&key);
        syn.window
    }

    /// Makes a flow of a handshake on its third packet.
    fn establish(&mut self, key: Key, ack: u32, direction: Direction, now: Instant) -> Option<()> {
        let pending_flow = *self.pending.get(&key)?;
        let syn_ack = pending_flow.syn_ack?;
        if pending_flow.initiator != direction || ack.wrapping_sub(syn_ack.first) > THIRD_ACK {
            return None;
        }
        let windows = [0, 1].map(|way| self.second(way, pending_flow.first_window(way)));
        let connection = pending_flow.grow(windows, now)?;
        self.pending.remove(&key);
        self.flows.insert(key, connection);
        Some(())
    }

    /// Counts a packet of the rest. Returns what is to become of it.
    fn rest_passes(
        &mut self,
        view: &Ip<'_>,
        wire: u32,
        direction: Direction,
        now: Instant,
    ) -> Verdict {
        let setting = self.rest_setting[direction.index()];
        if setting.cost == 0 || !self.is_live(now) {
            return Verdict::Pass;
        }
        let Some(ends) = Key::of(view, direction) else { return Verdict::Pass };
        let totals = &mut self.totals[direction.index()];
        if matches!(view.dscp(), dscp::EF | dscp::CS6) {
            totals.voice += u64::from(wire);
            if setting.voice {
                return Verdict::Pass;
            }
        }
        let key = RestKey { ends, protocol: view.protocol().0 };
        if self.rest.peek(&key).is_none() {
            self.rest.insert(key, [Rest::default(); 2]);
        }
        let Some(both) = self.rest.get(&key) else { return Verdict::Pass };
        let ecn = view.traffic_class() & 3;
        let flow = &mut both[direction.index()];
        let verdict = flow.pass(wire, ecn, setting, now);
        match verdict {
            Verdict::Pass => {}
            Verdict::Mark => totals.marked += 1,
            Verdict::Drop => totals.dropped += 1,
        }
        // What is dropped on its way out takes nothing of the bottleneck.
        if verdict == Verdict::Drop && direction == Direction::Out {
            totals.wire -= u64::from(wire);
        } else {
            flow.wire += u64::from(wire);
        }
        verdict
    }
}

/// Does to `packet` what was decided.
fn treat(packet: &mut [u8], verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Pass => Outcome::Kept,
        Verdict::Mark => {
            set_ce(packet);
            Outcome::Marked
        }
        Verdict::Drop => Outcome::Dropped,
    }
}

/// Writes a word at `at` into the TCP header and updates the checksum.
fn write_word(header: &mut [u8], at: usize, new: u16, partial: bool) {
    let old = u16::from_be_bytes([header[at], header[at + 1]]);
    header[at..at + 2].copy_from_slice(&new.to_be_bytes());
    if !partial {
        adjust(&mut header[16..18], old, new);
    }
}

/// One direction of a connection in the table.
impl Connection {
    /// The half whose data goes in `direction`.
    pub fn half(&self, direction: Direction) -> &Half {
        &self.half[direction.index()]
    }
}
