//! Frames on the links of a trunk: data behind a header of 8 bytes, and what the ends tell each
//! other.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+---------------+---------------+
//! | kind  | link  |  session tag  |   link number, low 16 bits    |  Data 8, Pack 9,
//! +-------+-------+---------------+---------------+---------------+  PackLen 10
//! | predecessor   |     global sequence number, low 24 bits       |
//! +---------------+-----------------------------------------------+
//! | one packet (Data), IP packets back to back (Pack), or packets |
//! | each behind a length of 16 bits (PackLen) …                   |
//!
//! +-------+-------+---------------+---------------+---------------+
//! | kind  | link  |  session tag  |     flags     |     pause     |  Define 3, Known 7,
//! +-------+-------+---------------+---------------+---------------+  Report 11, Hello 12,
//! |             global sequence number of the next data frame     |  Request 14
//! |             link number of this frame, 32 bits                |
//! |             session, 64 bits                                  |
//! +---------------------------------------------------------------+
//! | Hello: accepted session of the receiver, 64 bits, 0 for none  |
//! |        challenge to the receiver, 64 bits                     |
//! |        the receiver's last challenge, 64 bits, 0 for none     |
//! | Report: ten numbers of 32 bits, or twelve, see [`Report`]     |
//! | Request, Define, Known: see [`Request`], [`Define`], [`Known`] |
//! +---------------------------------------------------------------+
//!
//! +-------+-------+---------------+---------------+---------------+
//! | kind  | link  |  session tag  |   link number, low 16 bits    |  Marker 13
//! +-------+-------+---------------+---------------+---------------+
//! |                          round number                         |
//! |               deficit in bytes, two's complement              |
//! +---------------------------------------------------------------+
//!
//! +-------+-------+---------------+---------------+---------------+
//! |  15   |   5   |  session tag  |   link number, low 16 bits    |  Parity
//! +-------+-------+---------------+---------------+---------------+
//! | link  |packing|   lowest sequence number, low 24 bits         |
//! |      which of the 32 numbers from there, the lowest bit first |
//! |            length             |  predecessor  | payload …
//!
//! +-------+-------+-------+-------+---------------+---------------+
//! |  15   |   4   |   0   | link  |               0               |  Challenge
//! +-------+-------+---------------+---------------+---------------+
//! |             session of the hello that is challenged, 64 bits  |
//! |             the challenge, 64 bits                            |
//! +---------------------------------------------------------------+
//! ```
//!
//! * Data 0, Pack 1 and PackLen 2 are the same as 8, 9 and 10, but the frame left before one with a
//!   lower sequence number that takes the same link: it says nothing about the lower numbers.
//! * *Kind* stands for version and kind together: 0..=3 and 7..=14 are version 1, and 15 with four
//!   bits of its own in place of the link: 4, or 5 of a [`parity`]. It is never 4 or 6, so no IP
//!   packet is taken for a frame.
//! * A packet alone (Data) or behind a length (PackLen) can have compressed headers ([`context`]).
//! * *Link number*: counts the frames of this link alone, so that loss is known per link. Data
//!   frames carry its low 16 bits ([`extend`] finds the rest): a link of 100 Mbit/s whose delay
//!   varies by 50 ms has 400 frames out of order. Reports and hellos count too, and carry all of
//!   it.
//! * *Pause*: tenths of a second within which the next report or hello leaves on this link, if data
//!   does not; 0: the usual time.
//! * *Predecessor*: how many frames ago the packet's flow sent last ([`Predecessor`]). It is what
//!   lets the receiver keep order per flow: a loss stalls only the flow that it hit.
//! * *Session tag*: eight bits that [`tag`] makes of the session which the hellos exchanged. It
//!   keeps the frames of a past session out. It is no protection from an attacker; with a key all
//!   of these frames travel inside [`sealed`] ones.
//! * *Challenge*: a number that only the host at the address which it was sent to can echo in a
//!   hello. It is the reply to a hello that proves nothing, and says nothing of this end's session.
//! * Ethernet pads short frames: what is shorter than [`MIN_OPAQUE`] must go as Pack or PackLen,
//!   which say their length and may be followed by zeros.
//!
//! Source: "Using Wireless Trunks to increase available bandwidth" (NCTU, 2004) for the sequence
//! number in every packet; the paper's 4 bits in the TOS byte are DSCP and ECN today.

pub mod context;
pub mod parity;
pub mod sealed;

use crate::ip::Ip;
use std::ops::Range;
use thiserror::Error;

/// EtherType of trunk frames on Ethernet: IEEE 802 local experimental 2.
pub const ETHERTYPE: u16 = 0x88b6;
/// Bytes before the packets of a data frame.
pub const HEADER_LEN: usize = 8;
/// Bytes of the length before a packet, under [`Packing::Length`].
pub const LENGTH_LEN: usize = 2;
/// Bytes of a hello.
pub const HELLO_LEN: usize = 44;
/// Bytes of a report.
pub const REPORT_LEN: usize = 60;
/// Bytes of a report with a [`Prompt`].
pub const PROMPT_REPORT_LEN: usize = REPORT_LEN + 8;
/// Bytes of a request before its ranges, and of each range.
const REQUEST_LEN: usize = 24;
const RANGE_LEN: usize = 6;
/// Ranges of one request: more lie behind a long row of losses, which is an outage.
pub const MAX_RANGES: usize = 32;
/// Bytes of a definition before the headers.
const DEFINE_LEN: usize = 23;
/// Bytes of an account of contexts before its entries, and of each entry.
const KNOWN_LEN: usize = 21;
const ENTRY_LEN: usize = 2;
/// Contexts of one account: more than are defined within a round trip.
pub const MAX_ENTRIES: usize = 32;
/// Bytes of a marker.
pub const MARKER_LEN: usize = 12;
/// Bytes of a challenge: fewer than of the hello that causes it, so that nothing is amplified.
pub const CHALLENGE_LEN: usize = 20;
/// Bytes of a parity before its payload.
pub const PARITY_LEN: usize = 15;
/// Sequence numbers that one parity can span.
pub const SPAN: u32 = 32;
/// Links of one trunk: the link field has 4 bits.
pub const MAX_LINKS: usize = 16;
/// A packet of at least this many bytes can go as Data: its frame is never padded by Ethernet.
pub const MIN_OPAQUE: usize = 46 - HEADER_LEN;

mod field {
    use super::Range;
    pub const SEQ: Range<usize> = 4..8;
    pub const LINK_SEQ: Range<usize> = 8..12;
    pub const SESSION: Range<usize> = 12..20;
    pub const PEER: Range<usize> = 20..28;
    pub const LINK_SEQ_LOW: Range<usize> = 2..4;
    pub const SEQ_LOW: Range<usize> = 5..8;
    pub const ABOUT: usize = 20;
    pub const COUNT: usize = 21;
    pub const NAME: Range<usize> = 20..22;
    pub const LEN: usize = 22;
    pub const ENTRIES: usize = 20;
    pub const CHALLENGE: Range<usize> = 28..36;
    pub const ECHO: Range<usize> = 36..44;
    pub const CHALLENGED: Range<usize> = 4..12;
    pub const DEMAND: Range<usize> = 12..20;
    pub const ROUND: Range<usize> = 4..8;
    pub const DEFICIT: Range<usize> = 8..12;
    pub const PARITY_LINK: usize = 4;
    pub const MASK: Range<usize> = 8..12;
    pub const LENGTH: Range<usize> = 12..14;
    pub const PREDECESSOR: usize = 14;
}

/// Way in which the packets of a data frame are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Packing {
    /// One packet, up to the end of the frame.
    One = 0,
    /// IP packets back to back, by their own lengths.
    Ip = 1,
    /// Packets of any kind, each behind its length in 16 bits, big-endian, at least 1.
    Length = 2,
}

/// Bit of a data frame's kind that says that no lower number is still to come on its link.
const IN_ORDER: u8 = 8;
const DEFINE: u8 = 3;
const KNOWN: u8 = 7;
const REPORT: u8 = 11;
const HELLO: u8 = 12;
const MARKER: u8 = 13;
const REQUEST: u8 = 14;
const CHALLENGE: u8 = 0xf4;
const PARITY: u8 = 0xf5;

/// Which frame must be handed up before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Predecessor {
    /// None: the flow tolerates reordering, or sent nothing for long.
    Free,
    /// The frame this many numbers before, 1..=[`Predecessor::REACH`] − 1.
    Back(u8),
    /// One at least [`Predecessor::REACH`] numbers before: all of those come first.
    Far,
    /// Every frame before this one: it carries packets of several flows.
    All,
}

impl Predecessor {
    /// The smallest distance that is not told exactly.
    pub const REACH: u32 = 254;

    /// The predecessor `distance` numbers before, at least 1.
    pub fn at(distance: u32) -> Predecessor {
        if distance < Self::REACH { Predecessor::Back(distance as u8) } else { Predecessor::Far }
    }

    fn code(self) -> u8 {
        match self {
            Predecessor::Free => 0,
            Predecessor::Back(distance) => distance,
            Predecessor::Far => 254,
            Predecessor::All => 255,
        }
    }

    fn from_code(code: u8) -> Predecessor {
        match code {
            0 => Predecessor::Free,
            254 => Predecessor::Far,
            255 => Predecessor::All,
            distance => Predecessor::Back(distance),
        }
    }
}

/// Why bytes are not a trunk frame. The name of each is the label of its counter.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The first nibble is no kind of version 1.
    #[error("no trunk frame of version 1")]
    Version,
    /// Fewer bytes than the kind needs, or than an inner length says.
    #[error("shorter than it says")]
    Truncated,
    /// A field that its kind does not allow: a predecessor 0 numbers back, a session of 0.
    #[error("a field that cannot be")]
    Field,
    /// Inner bytes that are no IP packet, or a length of 0 before more bytes.
    #[error("inner bytes are not a packet")]
    Inner,
}

/// Contents of the header of a data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Way in which the packets are told apart.
    pub packing: Packing,
    /// A frame with a lower sequence number is still to take this link.
    pub overtakes: bool,
    /// The link, 0..16, as its sender numbers it.
    pub link: u8,
    /// The tag of the sender's session.
    pub tag: u8,
    /// The low 16 bits of the link number.
    pub link_seq: u16,
    /// Packet that must come first.
    pub predecessor: Predecessor,
    /// The global sequence number; of a parsed frame its low 24 bits (see [`extend_seq`]).
    pub seq: u32,
}

impl Repr {
    /// Writes the header to the first [`HEADER_LEN`] bytes.
    ///
    /// # Panics
    /// When `bytes` is shorter than that.
    pub fn emit(&self, bytes: &mut [u8]) {
        let in_order = if self.overtakes { 0 } else { IN_ORDER };
        bytes[0] = (self.packing as u8 | in_order) << 4 | self.link & 0xf;
        bytes[1] = self.tag;
        bytes[field::LINK_SEQ_LOW].copy_from_slice(&self.link_seq.to_be_bytes());
        bytes[4] = self.predecessor.code();
        bytes[field::SEQ_LOW].copy_from_slice(&self.seq.to_be_bytes()[1..]);
    }
}

/// First bytes of reports and hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The link, 0..16, as its sender numbers it.
    pub link: u8,
    /// The global sequence number that its next data frame will have. A link keeps the order, so
    /// every frame before this number that took this link has come or is lost.
    pub next_seq: u32,
    /// The link number of this frame.
    pub link_seq: u32,
    /// The sender's session, never 0.
    pub session: u64,
    /// Tenths of a second within which the next report or hello leaves on this link, if data does
    /// not; 0: the usual time.
    pub pause: u8,
}

impl Control {
    fn emit(&self, kind: u8, flags: u8, bytes: &mut [u8]) {
        bytes[0] = kind << 4 | self.link & 0xf;
        bytes[1] = tag(self.session);
        bytes[2] = flags;
        bytes[3] = self.pause;
        bytes[field::SEQ].copy_from_slice(&self.next_seq.to_be_bytes());
        bytes[field::LINK_SEQ].copy_from_slice(&self.link_seq.to_be_bytes());
        bytes[field::SESSION].copy_from_slice(&self.session.to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Result<Control, Refusal> {
        let session = word64(bytes, field::SESSION);
        if session == 0 || tag(session) != bytes[1] {
            return Err(Refusal::Field);
        }
        let (next_seq, link_seq) = (word(bytes, field::SEQ), word(bytes, field::LINK_SEQ));
        Ok(Control { link: bytes[0] & 0xf, next_seq, link_seq, session, pause: bytes[3] })
    }
}

/// The start of a session, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The common part.
    pub control: Control,
    /// The session that the sender accepts from the other end; 0 when it accepts none.
    pub peer: u64,
    /// Number that the receiver has to echo where it is not known to the sender.
    pub challenge: u64,
    /// The receiver's last challenge; 0 without one.
    pub echo: u64,
    /// It replies to a hello, and wants no reply.
    pub answer: bool,
    /// The sender restores compressed headers.
    pub restores: bool,
    /// The sender recovers lost frames by [`parity`].
    pub recovers: bool,
}

/// Bits of a hello's flags.
const ANSWER: u8 = 1;
const RESTORES: u8 = 2;
const RECOVERS: u8 = 4;

impl Hello {
    /// Writes the frame over `bytes`, which becomes [`HELLO_LEN`] long.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(HELLO_LEN, 0);
        let answer = if self.answer { ANSWER } else { 0 };
        let restores = if self.restores { RESTORES } else { 0 };
        let recovers = if self.recovers { RECOVERS } else { 0 };
        self.control.emit(HELLO, answer | restores | recovers, bytes);
        bytes[field::PEER].copy_from_slice(&self.peer.to_be_bytes());
        bytes[field::CHALLENGE].copy_from_slice(&self.challenge.to_be_bytes());
        bytes[field::ECHO].copy_from_slice(&self.echo.to_be_bytes());
    }
}

/// The reply to a hello whose sender has to show that it receives at the address it sends from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The link of that hello, 0..16.
    pub link: u8,
    /// The session of that hello: nobody who did not see it can forge this.
    pub session: u64,
    /// Number to be echoed, never 0.
    pub challenge: u64,
}

impl Challenge {
    /// Writes the frame over `bytes`, which becomes [`CHALLENGE_LEN`] long.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(CHALLENGE_LEN, 0);
        bytes[0] = CHALLENGE;
        bytes[1] = self.link & 0xf;
        bytes[field::CHALLENGED].copy_from_slice(&self.session.to_be_bytes());
        bytes[field::DEMAND].copy_from_slice(&self.challenge.to_be_bytes());
    }
}

/// Account of what an end received on one link, sent back on the same link. Times are in µs on the
/// clock of the end that says them, modulo 2³²; counts are since the session began, modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The common part.
    pub control: Control,
    /// Time at which this report was sent.
    pub sent_at: u32,
    /// Whether the fields from `echo` on mean anything: the sender has heard this link.
    pub heard: bool,
    /// `sent_at` of the newest report heard on this link.
    pub echo: u32,
    /// µs between hearing it and sending this.
    pub held: u32,
    /// The highest link number heard.
    pub highest: u32,
    /// Frames heard.
    pub frames: u32,
    /// Bytes of these frames, trunk headers included.
    pub bytes: u32,
    /// Time at which the last of them was heard.
    pub last_at: u32,
    /// Hearing time minus `sent_at` of the newest report heard: the one-way delay plus an unknown
    /// difference of clocks, the same for all links.
    pub one_way: u32,
    /// Variation of that delay in µs, smoothed as in RFC 3550 section 6.4.1.
    pub jitter: u32,
    /// Frames of any link that were given up or came too late.
    pub late: u32,
    /// Where the delay varies, one of the data frames heard since the report before.
    pub prompt: Option<Prompt>,
}

/// Data frame whose delay is about the least of all that were heard since the report before. Its
/// sender knows when it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Link number.
    pub number: u32,
    /// Time at which it was heard.
    pub at: u32,
}

/// Bits of a report's flags.
const HEARD: u8 = 1;
const PROMPT: u8 = 2;

impl Report {
    /// Writes the frame over `bytes`, which becomes [`REPORT_LEN`] long, or [`PROMPT_REPORT_LEN`].
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        let (len, flag) = self.prompt.map_or((REPORT_LEN, 0), |_| (PROMPT_REPORT_LEN, PROMPT));
        bytes.resize(len, 0);
        let flags = flag | if self.heard { HEARD } else { 0 };
        self.control.emit(REPORT, flags, bytes);
        let Prompt { number, at } = self.prompt.unwrap_or(Prompt { number: 0, at: 0 });
        let words = [
            self.sent_at,
            self.echo,
            self.held,
            self.highest,
            self.frames,
            self.bytes,
            self.last_at,
            self.one_way,
            self.jitter,
            self.late,
            number,
            at,
        ];
        for (place, word) in bytes[field::SESSION.end..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }

    fn parse(bytes: &[u8]) -> Result<Report, Refusal> {
        let at = |index: usize| word(bytes, field::SESSION.end + 4 * index..bytes.len());
        let has_prompt = bytes[2] & PROMPT != 0;
        if has_prompt && bytes.len() < PROMPT_REPORT_LEN {
            return Err(Refusal::Truncated);
        }
        Ok(Report {
            control: Control::parse(bytes)?,
            heard: bytes[2] & HEARD != 0,
            sent_at: at(0),
            echo: at(1),
            held: at(2),
            highest: at(3),
            frames: at(4),
            bytes: at(5),
            last_at: at(6),
            one_way: at(7),
            jitter: at(8),
            late: at(9),
            prompt: has_prompt.then(|| Prompt { number: at(10), at: at(11) }),
        })
    }
}

/// Where a sender that stripes by rounds stands (`srr`: a marker; `trr`: a trigger).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The link, 0..16.
    pub link: u8,
    /// The tag of the sender's session.
    pub tag: u8,
    /// The low 16 bits of the link number.
    pub link_seq: u16,
    /// The round of the next packet on this link (`srr`) or the one that ends here (`trr`).
    pub round: u32,
    /// Bytes that the link may still send in that round (`srr`).
    pub deficit: i32,
}

impl Marker {
    /// Writes the frame over `bytes`, which becomes [`MARKER_LEN`] long.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(MARKER_LEN, 0);
        bytes[0] = MARKER << 4 | self.link & 0xf;
        bytes[1] = self.tag;
        bytes[field::LINK_SEQ_LOW].copy_from_slice(&self.link_seq.to_be_bytes());
        bytes[field::ROUND].copy_from_slice(&self.round.to_be_bytes());
        bytes[field::DEFICIT].copy_from_slice(&self.deficit.to_be_bytes());
    }
}

/// Frames that are missing on a link of the sender's, to be sent again on any link.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The common part.
    pub control: Control,
    /// The link, 0..16, on which the frames were sent.
    pub about: u8,
    ranges: &'a [u8],
}

impl<'a> Request<'a> {
    /// Bytes of a request with this many ranges.
    pub fn len(ranges: usize) -> usize {
        REQUEST_LEN + RANGE_LEN * ranges.min(MAX_RANGES)
    }

    /// Writes a request over `bytes`. `ranges`: first link number and count of each row of missing
    /// frames, at most [`MAX_RANGES`]; what is beyond that is left out.
    pub fn emit(control: Control, about: u8, ranges: &[(u32, u16)], bytes: &mut Vec<u8>) {
        let ranges = &ranges[..ranges.len().min(MAX_RANGES)];
        bytes.clear();
        bytes.resize(Self::len(ranges.len()), 0);
        control.emit(REQUEST, 0, bytes);
        (bytes[field::ABOUT], bytes[field::COUNT]) = (about, ranges.len() as u8);
        let places = bytes[REQUEST_LEN..].chunks_exact_mut(RANGE_LEN);
        for (place, (first, count)) in places.zip(ranges) {
            place[..4].copy_from_slice(&first.to_be_bytes());
            place[4..].copy_from_slice(&count.to_be_bytes());
        }
    }

    fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Refusal> {
        let head = bytes.get(..REQUEST_LEN).ok_or(Refusal::Truncated)?;
        let count = usize::from(head[field::COUNT]);
        if count == 0 || count > MAX_RANGES {
            return Err(Refusal::Field);
        }
        let end = REQUEST_LEN + RANGE_LEN * count;
        let ranges = bytes.get(REQUEST_LEN..end).ok_or(Refusal::Truncated)?;
        Ok(Request { control: Control::parse(head)?, about: head[field::ABOUT], ranges })
    }

    /// First link number and count of each row of missing frames.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u16)> + use<'a> {
        let ranges = self.ranges.chunks_exact(RANGE_LEN);
        ranges.map(|range| (word(range, 0..4), half(range, 4..6)))
    }
}

/// Number of generations of a context.
const GENERATIONS: u8 = 16;

/// Number and generation of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The number.
    pub id: u8,
    /// 0..16.
    pub generation: u8,
}

impl Name {
    /// Name of the next context with this number.
    pub fn next(self) -> Name {
        Name { generation: (self.generation + 1) % GENERATIONS, ..self }
    }
}

/// A context for compressed headers. Behind the common part stand the context's number, its
/// generation, how many bytes of headers follow, and these.
#[derive(Clone, Copy, Debug)]
pub struct Define<'a> {
    /// The common part.
    pub control: Control,
    /// The context that these headers are from now on.
    pub name: Name,
    /// IP's, then TCP's or UDP's, not looked at yet: [`Context::parse`](context::Context::parse).
    pub headers: &'a [u8],
}

impl<'a> Define<'a> {
    /// Bytes of a definition with so many bytes of headers.
    pub fn len_of(headers: usize) -> usize {
        DEFINE_LEN + headers
    }

    /// Writes the frame over `bytes`.
    ///
    /// # Panics
    /// With more than 255 bytes of headers.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(DEFINE_LEN, 0);
        self.control.emit(DEFINE, 0, bytes);
        bytes[field::NAME].copy_from_slice(&[self.name.id, self.name.generation]);
        bytes[field::LEN] = u8::try_from(self.headers.len()).expect("headers are short");
        bytes.extend_from_slice(self.headers);
    }

    fn parse(bytes: &'a [u8]) -> Result<Define<'a>, Refusal> {
        let (head, rest) = bytes.split_at_checked(DEFINE_LEN).ok_or(Refusal::Truncated)?;
        let [id, generation] = [head[field::NAME.start], head[field::NAME.start + 1]];
        let headers = rest.get(..usize::from(head[field::LEN])).ok_or(Refusal::Truncated)?;
        if generation >= GENERATIONS {
            return Err(Refusal::Field);
        }
        Ok(Define { control: Control::parse(head)?, name: Name { id, generation }, headers })
    }
}

/// Account of the contexts that an end has. Behind the common part stands the count of entries. An
/// entry is a context's number and its generation, to which 128 is added where the end does not
/// have that context though a packet refers to it.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The common part.
    pub control: Control,
    entries: &'a [u8],
}

/// Bit of an entry's second byte: the context is missing.
const MISSING: u8 = 0x80;

impl<'a> Known<'a> {
    /// Bytes of an account of so many contexts.
    pub fn len_of(entries: usize) -> usize {
        KNOWN_LEN + ENTRY_LEN * entries.min(MAX_ENTRIES)
    }

    /// Writes an account over `bytes`. `entries`: names, and whether the end has that context, at
    /// most [`MAX_ENTRIES`]; what is beyond that is left out.
    pub fn emit(control: Control, entries: &[(Name, bool)], bytes: &mut Vec<u8>) {
        let entries = &entries[..entries.len().min(MAX_ENTRIES)];
        bytes.clear();
        bytes.resize(Self::len_of(entries.len()), 0);
        control.emit(KNOWN, 0, bytes);
        bytes[field::ENTRIES] = entries.len() as u8;
        let places = bytes[KNOWN_LEN..].chunks_exact_mut(ENTRY_LEN);
        for (place, (name, has)) in places.zip(entries) {
            place.copy_from_slice(&[name.id, name.generation | if *has { 0 } else { MISSING }]);
        }
    }

    fn parse(bytes: &'a [u8]) -> Result<Known<'a>, Refusal> {
        let head = bytes.get(..KNOWN_LEN).ok_or(Refusal::Truncated)?;
        let count = usize::from(head[field::ENTRIES]);
        if count == 0 || count > MAX_ENTRIES {
            return Err(Refusal::Field);
        }
        let end = KNOWN_LEN + ENTRY_LEN * count;
        let entries = bytes.get(KNOWN_LEN..end).ok_or(Refusal::Truncated)?;
        if entries.iter().skip(1).step_by(2).any(|byte| byte & !MISSING >= GENERATIONS) {
            return Err(Refusal::Field);
        }
        Ok(Known { control: Control::parse(head)?, entries })
    }

    /// Names, and whether the end has that context.
    pub fn entries(&self) -> impl Iterator<Item = (Name, bool)> + use<'a> {
        self.entries.chunks_exact(ENTRY_LEN).map(|entry| {
            let name = Name { id: entry[0], generation: entry[1] & !MISSING };
            (name, entry[1] & MISSING == 0)
        })
    }
}

/// A checked view of one frame.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'a> {
    /// Packets.
    Data(Data<'a>),
    /// Feedback, and the probe of an idle link.
    Report(Report),
    /// The start of a session.
    Hello(Hello),
    /// A mark of the baselines.
    Marker(Marker),
    /// Frames to be sent again.
    Request(Request<'a>),
    /// A context for compressed headers.
    Define(Define<'a>),
    /// Account of the contexts that the other end has.
    Known(Known<'a>),
    /// A demand to a stranger.
    Challenge(Challenge),
    /// Parity of data frames.
    Parity(Parity<'a>),
}

impl<'a> Frame<'a> {
    /// The link that the frame says it was sent on, 0..16.
    pub fn link(&self) -> u8 {
        match self {
            Frame::Data(data) => data.repr.link,
            Frame::Report(report) => report.control.link,
            Frame::Hello(hello) => hello.control.link,
            Frame::Marker(marker) => marker.link,
            Frame::Request(request) => request.control.link,
            Frame::Define(define) => define.control.link,
            Frame::Known(known) => known.control.link,
            Frame::Challenge(challenge) => challenge.link,
            Frame::Parity(parity) => parity.link,
        }
    }

    /// Reads a frame; zeros that a link padded it with are left out.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let kind = bytes.first().ok_or(Refusal::Truncated)? >> 4;
        let packing = match kind {
            0 | 8 => Packing::One,
            1 | 9 => Packing::Ip,
            2 | 10 => Packing::Length,
            HELLO => {
                let bytes = bytes.get(..HELLO_LEN).ok_or(Refusal::Truncated)?;
                let control = Control::parse(bytes)?;
                return Ok(Frame::Hello(Hello {
                    control,
                    peer: word64(bytes, field::PEER),
                    challenge: word64(bytes, field::CHALLENGE),
                    echo: word64(bytes, field::ECHO),
                    answer: bytes[2] & ANSWER != 0,
                    restores: bytes[2] & RESTORES != 0,
                    recovers: bytes[2] & RECOVERS != 0,
                }));
            }
            REPORT => {
                if bytes.len() < REPORT_LEN {
                    return Err(Refusal::Truncated);
                }
                return Ok(Frame::Report(Report::parse(bytes)?));
            }
            MARKER => {
                let bytes = bytes.get(..MARKER_LEN).ok_or(Refusal::Truncated)?;
                return Ok(Frame::Marker(Marker {
                    link: bytes[0] & 0xf,
                    tag: bytes[1],
                    link_seq: half(bytes, field::LINK_SEQ_LOW),
                    round: word(bytes, field::ROUND),
                    deficit: word(bytes, field::DEFICIT).cast_signed(),
                }));
            }
            REQUEST => return Ok(Frame::Request(Request::parse(bytes)?)),
            DEFINE => return Ok(Frame::Define(Define::parse(bytes)?)),
            KNOWN => return Ok(Frame::Known(Known::parse(bytes)?)),
            15 if bytes[0] == CHALLENGE => {
                let bytes = bytes.get(..CHALLENGE_LEN).ok_or(Refusal::Truncated)?;
                let (session, challenge) =
                    (word64(bytes, field::CHALLENGED), word64(bytes, field::DEMAND));
                if challenge == 0 {
                    return Err(Refusal::Field);
                }
                let link = bytes[1] & 0xf;
                return Ok(Frame::Challenge(Challenge { link, session, challenge }));
            }
            15 if bytes[0] == PARITY => return Ok(Frame::Parity(Parity::parse(bytes)?)),
            _ => return Err(Refusal::Version),
        };
        let (header, payload) = bytes.split_at_checked(HEADER_LEN).ok_or(Refusal::Truncated)?;
        let repr = Repr {
            packing,
            overtakes: kind & IN_ORDER == 0,
            link: header[0] & 0xf,
            tag: header[1],
            link_seq: half(header, field::LINK_SEQ_LOW),
            predecessor: Predecessor::from_code(header[4]),
            seq: word(header, field::SEQ) & SEQ_MASK,
        };
        let payload = &payload[..check(packing, payload)?];
        Ok(Frame::Data(Data { repr, payload }))
    }
}

/// Parity of data frames ([`parity`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity<'a> {
    /// The link, 0..16, as its sender numbers it.
    pub link: u8,
    /// The tag of the sender's session.
    pub tag: u8,
    /// The low 16 bits of the link number.
    pub link_seq: u16,
    /// The lowest sequence number of the frames; of a parsed parity its low 24 bits.
    pub first: u32,
    /// One bit for each of the [`SPAN`] numbers from there, the lowest first: 1 for a frame.
    pub mask: u32,
    /// Sums modulo 2 of what the frames have: the codes of their packing, below 16, …
    pub packing: u8,
    /// … the lengths of their payloads, …
    pub length: u16,
    /// … the codes of their predecessors, …
    pub predecessor: u8,
    /// … and the payloads, as if followed by zeros.
    pub payload: &'a [u8],
}

impl<'a> Parity<'a> {
    /// Writes the frame over `bytes`.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(PARITY_LEN, 0);
        bytes[0] = PARITY;
        bytes[1] = self.tag;
        bytes[field::LINK_SEQ_LOW].copy_from_slice(&self.link_seq.to_be_bytes());
        bytes[field::PARITY_LINK] = self.link << 4 | self.packing & 0xf;
        bytes[field::SEQ_LOW].copy_from_slice(&self.first.to_be_bytes()[1..]);
        bytes[field::MASK].copy_from_slice(&self.mask.to_be_bytes());
        bytes[field::LENGTH].copy_from_slice(&self.length.to_be_bytes());
        bytes[field::PREDECESSOR] = self.predecessor;
        bytes.extend_from_slice(self.payload);
    }

    fn parse(bytes: &'a [u8]) -> Result<Parity<'a>, Refusal> {
        let (header, payload) = bytes.split_at_checked(PARITY_LEN).ok_or(Refusal::Truncated)?;
        let mask = word(header, field::MASK);
        // The lowest number is that of a frame.
        if mask & 1 == 0 {
            return Err(Refusal::Field);
        }
        Ok(Parity {
            link: header[field::PARITY_LINK] >> 4,
            tag: header[1],
            link_seq: half(header, field::LINK_SEQ_LOW),
            first: word(header, field::SEQ) & SEQ_MASK,
            mask,
            packing: header[field::PARITY_LINK] & 0xf,
            length: half(header, field::LENGTH),
            predecessor: header[field::PREDECESSOR],
            payload,
        })
    }
}

/// A checked data frame.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Contents of the header.
    pub repr: Repr,
    /// The packets as they stand in the frame, without padding.
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    /// The packets, at least one.
    pub fn packets(&self) -> Packets<'a> {
        Packets { packing: self.repr.packing, rest: self.payload }
    }
}

/// The packets of a checked data frame.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    packing: Packing,
    rest: &'a [u8],
}

impl<'a> Packets<'a> {
    /// The packets in `payload`, from [`Data::payload`]. Of bytes that are something else, as
    /// many as make sense.
    pub fn new(packing: Packing, payload: &'a [u8]) -> Self {
        Packets { packing, rest: payload }
    }

    /// The bytes that are still to come.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (packet, rest) = split(self.packing, self.rest)?.ok()?;
        self.rest = rest;
        Some(packet)
    }
}

/// Appends `packet` to the payload of a frame of this packing.
///
/// # Panics
/// Under [`Packing::Length`] when the packet is empty or longer than 65535 bytes.
pub fn push(packing: Packing, packet: &[u8], bytes: &mut Vec<u8>) {
    push_parts(packing, [packet, &[]], bytes);
}

/// The same of a packet in two parts.
///
/// # Panics
/// As [`push`].
pub fn push_parts(packing: Packing, parts: [&[u8]; 2], bytes: &mut Vec<u8>) {
    if packing == Packing::Length {
        let len = u16::try_from(parts[0].len() + parts[1].len()).ok().filter(|len| *len > 0);
        bytes.extend_from_slice(&len.expect("packets have 1 to 65535 bytes").to_be_bytes());
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
}

/// Walks the packets; answers how many bytes they fill before the padding.
fn check(packing: Packing, payload: &[u8]) -> Result<usize, Refusal> {
    let mut rest = payload;
    while let Some(step) = split(packing, rest) {
        rest = step?.1;
    }
    let filled = payload.len() - rest.len();
    match filled {
        0 => Err(Refusal::Truncated),
        _ if rest.iter().any(|byte| *byte != 0) => Err(Refusal::Inner),
        filled => Ok(filled),
    }
}

/// The first packet and what follows it; `None` where only padding is left.
#[allow(clippy::type_complexity)]
fn split(packing: Packing, rest: &[u8]) -> Option<Result<(&[u8], &[u8]), Refusal>> {
    match packing {
        _ if rest.is_empty() => None,
        Packing::One => Some(Ok((rest, &[]))),
        // Neither version nor length of a packet is 0: the rest is padding.
        Packing::Ip if rest[0] == 0 => None,
        Packing::Ip => Some(match Ip::parse(rest) {
            Ok(packet) => Ok(rest.split_at(packet.bytes().len())),
            Err(crate::ip::IpError::Truncated) => Err(Refusal::Truncated),
            Err(_) => Err(Refusal::Inner),
        }),
        Packing::Length => {
            let Some((len, body)) = rest.split_first_chunk() else {
                return (rest[0] != 0).then_some(Err(Refusal::Truncated));
            };
            match usize::from(u16::from_be_bytes(*len)) {
                0 => None,
                len => Some(body.split_at_checked(len).ok_or(Refusal::Truncated)),
            }
        }
    }
}

/// The tag of a session in data frames.
pub fn tag(session: u64) -> u8 {
    session.to_be_bytes().iter().fold(0, |tag, byte| tag ^ byte)
}

/// Bits of the global sequence number that data frames carry.
const SEQ_BITS: u32 = 24;
const SEQ_MASK: u32 = (1 << SEQ_BITS) - 1;

/// The 32-bit link number nearest to `expected` whose low 16 bits are `low`.
pub fn extend(low: u16, expected: u32) -> u32 {
    let ahead = low.wrapping_sub(expected as u16).cast_signed();
    expected.wrapping_add_signed(i32::from(ahead))
}

/// The 32-bit sequence number nearest to `expected` whose low 24 bits are those of `low`.
pub fn extend_seq(low: u32, expected: u32) -> u32 {
    let shift = u32::BITS - SEQ_BITS;
    let ahead = (low.wrapping_sub(expected) << shift).cast_signed() >> shift;
    expected.wrapping_add_signed(ahead)
}

/// The big-endian half word at the start of `range`.
fn half(bytes: &[u8], range: Range<usize>) -> u16 {
    let half = bytes[range].first_chunk().expect("the length was checked");
    u16::from_be_bytes(*half)
}

/// The big-endian word at the start of `range`.
fn word(bytes: &[u8], range: Range<usize>) -> u32 {
    let word = bytes[range].first_chunk().expect("the length was checked");
    u32::from_be_bytes(*word)
}

fn word64(bytes: &[u8], range: Range<usize>) -> u64 {
    let word = bytes[range].first_chunk().expect("the length was checked");
    u64::from_be_bytes(*word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{example_udp, example_v4};
    use proptest::prelude::*;

    const SESSION: u64 = 0x0102_0304_0506_0708;

    fn data(packing: Packing, packets: &[&[u8]]) -> Vec<u8> {
        let repr = Repr {
            packing,
            overtakes: false,
            link: 3,
            tag: tag(SESSION),
            link_seq: 200,
            predecessor: Predecessor::Back(7),
            seq: 0xad_beef,
        };
        let mut bytes = vec![0; HEADER_LEN];
        repr.emit(&mut bytes);
        packets.iter().for_each(|packet| push(packing, packet, &mut bytes));
        bytes
    }

    fn control() -> Control {
        Control { link: 9, next_seq: 77, link_seq: u32::MAX, session: SESSION, pause: 11 }
    }

    fn report() -> Report {
        Report {
            control: control(),
            heard: true,
            sent_at: 1,
            echo: 2,
            held: 3,
            highest: 4,
            frames: 5,
            bytes: 6,
            last_at: 7,
            one_way: 8,
            jitter: 9,
            late: 10,
            prompt: Some(Prompt { number: 11, at: 12 }),
        }
    }

    fn hello() -> Hello {
        let (answer, restores) = (true, true);
        let recovers = !restores;
        Hello { control: control(), peer: 42, challenge: 7, echo: 9, answer, restores, recovers }
    }

    fn parity() -> Parity<'static> {
        let (link, tag, link_seq, first, mask) = (9, 2, 3, 0xad_beef, 5);
        let (packing, length, predecessor) = (Packing::One as u8, 300, 8);
        let payload = &[6; 400];
        Parity { link, tag, link_seq, first, mask, packing, length, predecessor, payload }
    }

    const NAME: Name = Name { id: 200, generation: 15 };

    fn samples() -> Vec<Vec<u8>> {
        let (a, b) = (example_udp(&[1; 20]), example_v4());
        let mut frames = vec![
            data(Packing::One, &[&a]),
            data(Packing::Ip, &[&a, &b, &a]),
            data(Packing::Length, &[b"abc", &a, b"x"]),
        ];
        let mut bytes = Vec::new();
        report().emit(&mut bytes);
        frames.push(bytes.clone());
        hello().emit(&mut bytes);
        frames.push(bytes.clone());
        Marker { link: 1, tag: 2, link_seq: 3, round: 4, deficit: -5 }.emit(&mut bytes);
        frames.push(bytes.clone());
        Request::emit(control(), 5, &[(7, 1), (u32::MAX, 300)], &mut bytes);
        frames.push(bytes.clone());
        Challenge { link: 9, session: SESSION, challenge: 6 }.emit(&mut bytes);
        frames.push(bytes.clone());
        Define { control: control(), name: NAME, headers: &a[..28] }.emit(&mut bytes);
        frames.push(bytes.clone());
        Known::emit(control(), &[(NAME, true), (NAME.next(), false)], &mut bytes);
        frames.push(bytes.clone());
        parity().emit(&mut bytes);
        frames.push(bytes);
        frames
    }

    fn parse_data(bytes: &[u8]) -> Data<'_> {
        match Frame::parse(bytes) {
            Ok(Frame::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_packed_comes_out_whole_and_in_order() {
        let (a, b) = (example_udp(&[1; 20]), example_v4());
        let one = data(Packing::One, &[&a]);
        assert_eq!(one.len(), 8 + a.len(), "eight bytes besides the packet");
        let frame = parse_data(&one);
        assert_eq!((frame.repr.link, frame.repr.link_seq, frame.repr.seq), (3, 200, 0xad_beef));
        assert_eq!(frame.repr.predecessor, Predecessor::Back(7));
        assert_eq!(frame.packets().collect::<Vec<_>>(), [&a[..]]);

        let packed = data(Packing::Ip, &[&a, &b, &a]);
        assert_eq!(parse_data(&packed).packets().collect::<Vec<_>>(), [&a[..], &b[..], &a[..]]);
        let packed = data(Packing::Length, &[b"abc", b"x"]);
        assert_eq!(parse_data(&packed).packets().collect::<Vec<_>>(), [&b"abc"[..], b"x"]);
    }

    #[test]
    fn what_is_no_data_says_what_it_was_given() {
        let samples = samples();
        assert!(matches!(Frame::parse(&samples[3]), Ok(Frame::Report(r)) if r == report()));
        assert!(matches!(Frame::parse(&samples[4]), Ok(Frame::Hello(h)) if h == hello()));
        let marker = Marker { link: 1, tag: 2, link_seq: 3, round: 4, deficit: -5 };
        assert!(matches!(Frame::parse(&samples[5]), Ok(Frame::Marker(m)) if m == marker));
        let Ok(Frame::Request(request)) = Frame::parse(&samples[6]) else { panic!("a request") };
        assert_eq!((request.control, request.about), (control(), 5));
        assert_eq!(request.ranges().collect::<Vec<_>>(), [(7, 1), (u32::MAX, 300)]);
        let challenge = Challenge { link: 9, session: SESSION, challenge: 6 };
        assert!(matches!(Frame::parse(&samples[7]), Ok(Frame::Challenge(c)) if c == challenge));
        let Ok(Frame::Define(define)) = Frame::parse(&samples[8]) else { panic!("a definition") };
        assert_eq!((define.control, define.name), (control(), NAME));
        assert_eq!(define.headers, &example_udp(&[1; 20])[..28]);
        let Ok(Frame::Known(known)) = Frame::parse(&samples[9]) else { panic!("an account") };
        let next = Name { generation: 0, ..NAME };
        assert_eq!(known.entries().collect::<Vec<_>>(), [(NAME, true), (next, false)]);
        assert_eq!(known.control, control());
        assert!(matches!(Frame::parse(&samples[10]), Ok(Frame::Parity(p)) if p == parity()));
        let links = samples.iter().map(|bytes| Frame::parse(bytes).unwrap().link());
        assert_eq!(links.collect::<Vec<_>>(), [3, 3, 3, 9, 9, 1, 9, 9, 9, 9, 9]);
    }

    #[test]
    fn the_padding_of_a_short_ethernet_frame_is_left_out() {
        for mut frame in [
            data(Packing::Ip, &[&example_v4()]),
            data(Packing::Length, &[b"abc"]),
            samples().remove(4),
        ] {
            let before = format!("{:?}", Frame::parse(&frame).unwrap());
            frame.resize(frame.len() + 18, 0);
            assert_eq!(before, format!("{:?}", Frame::parse(&frame).unwrap()));
        }
    }

    #[test]
    fn each_fault_is_refused_with_its_own_reason() {
        let refusal = |bytes: &[u8]| Frame::parse(bytes).unwrap_err();
        let a = example_udp(&[1; 20]);
        assert_eq!(refusal(&[]), Refusal::Truncated);
        assert_eq!(refusal(&a), Refusal::Version);
        assert_eq!(refusal(&[0xf0; 60]), Refusal::Version);
        assert_eq!(refusal(&data(Packing::One, &[])), Refusal::Truncated);
        assert_eq!(refusal(&data(Packing::Ip, &[&a, &a[..30]])), Refusal::Truncated);
        assert_eq!(refusal(&data(Packing::Ip, &[&a, b"\x10rubbish"])), Refusal::Inner);
        assert_eq!(refusal(&data(Packing::Ip, &[&a, b"\0\0\x01"])), Refusal::Inner);
        let cut = data(Packing::Length, &[b"abc"]);
        assert_eq!(refusal(&cut[..cut.len() - 1]), Refusal::Truncated);
        // A parity can have any length from that of its header on.
        for frame in &samples()[3..10] {
            assert_eq!(refusal(&frame[..frame.len() - 1]), Refusal::Truncated);
        }
        let mut forged = samples().remove(3);
        forged[1] ^= 1;
        assert_eq!(refusal(&forged), Refusal::Field, "the tag is not that of the session");
    }

    #[test]
    fn predecessors_beyond_the_reach_are_told_as_far() {
        assert_eq!(Predecessor::at(253), Predecessor::Back(253));
        assert_eq!(Predecessor::at(254), Predecessor::Far);
        for code in 0..=255 {
            assert_eq!(Predecessor::from_code(code).code(), code);
        }
    }

    #[test]
    fn truncated_link_numbers_are_found_again_over_the_wrap() {
        let mut seed = 1u64;
        let (mut sent, mut seen) = (u32::MAX - 200_000, u32::MAX - 200_001);
        for _ in 0..500_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            sent = sent.wrapping_add(1 + (seed >> 49) as u32); // up to 32,767 lost in a row
            seen = extend(sent as u16, seen.wrapping_add(1));
            assert_eq!(seen, sent);
            let behind = (seed as u32) >> 9;
            assert_eq!(extend_seq(sent.wrapping_sub(behind), sent), sent.wrapping_sub(behind));
        }
    }

    /// A million damaged frames, the same ones in every run.
    #[test]
    fn a_million_damaged_frames_never_panic_and_tile_exactly() {
        let samples = samples();
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut bytes = Vec::new();
        let mut accepted = 0;
        for _ in 0..1_000_000 {
            bytes.clear();
            bytes.extend_from_slice(&samples[random() as usize % samples.len()]);
            for _ in 0..random() % 4 {
                let (at, value) = (random() as usize % bytes.len(), random() as u8);
                bytes[at] = value;
            }
            let keep = random() as usize % (2 * bytes.len());
            bytes.truncate(keep.max(1));
            accepted += u32::from(check_frame(&bytes));
        }
        assert!((100_000..900_000).contains(&accepted), "{accepted} of a million accepted");
    }

    fn check_frame(bytes: &[u8]) -> bool {
        let frame = Frame::parse(bytes);
        if let Ok(Frame::Data(data)) = &frame {
            let overhead = if data.repr.packing == Packing::Length { LENGTH_LEN } else { 0 };
            let total: usize = data.packets().map(|packet| packet.len() + overhead).sum();
            assert_eq!(total, data.payload.len());
            assert!(data.packets().next().is_some());
        }
        frame.is_ok()
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0u8..16,
        ) {
            let mut bytes = bytes;
            check_frame(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = kind << 4 | *first & 0xf;
                check_frame(&bytes);
            }
        }

        #[test]
        fn a_header_comes_back_as_it_was(
            overtakes: bool, link in 0u8..16, tag: u8, link_seq: u16,
            distance in 1u32..400, seq in 0u32..1 << 24
        ) {
            let predecessor = Predecessor::at(distance);
            let repr =
                Repr { packing: Packing::One, overtakes, link, tag, link_seq, predecessor, seq };
            let mut bytes = vec![1; HEADER_LEN + 1];
            repr.emit(&mut bytes);
            prop_assert_eq!(parse_data(&bytes).repr, repr);
        }
    }
}
