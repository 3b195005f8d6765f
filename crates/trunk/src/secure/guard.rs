//! Keys in use, and the time at which new ones are made.
//!
//! Three pairs of keys can be held, as WireGuard does: those that frames are sealed with, those
//! before them, under which frames may still be under way, and those that this end responded with
//! and that no frame has proved yet. So a change of keys loses no frame.

use super::handshake::{Cookie, FIRST, Initiation, Introduction, Request};
use super::key::Key;
use super::keypair::{Keypair, has_aes};
use crate::endpoint::outcome::Refusal;
use crate::seed::{Random, derive};
use ring::hmac;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::sealed::{self, COOKIE_LEN, Outer};

/// Time after which a first message that got no response is made anew.
const RENEW: Duration = Duration::from_secs(5);

/// Keys that a frame was sealed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The session of its sender.
    pub session: u64,
    /// Number of the handshake, and the frame's counter: a later frame has a higher pair.
    pub serial: u64,
    pub counter: u32,
}

/// The outcome of an outer frame.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A frame, in what [`Guard::take_frame`] returns.
    Frame(Seal),
    /// A message to send to where the frame came from.
    Reply(Vec<u8>),
    /// There are new keys to seal with.
    Keys,
}

/// The machine of one end.
pub(crate) struct Guard {
    key: Key,
    session: u64,
    has_aes: bool,
    random: Random,
    /// Authenticates retries.
    code: hmac::Key,
    /// Key of the tags of initiations.
    tags: [u64; 2],
    /// The trunk's slot where several share a port.
    slot: Option<u32>,
    /// The number that the next initiation has to show.
    cookie: Cookie,
    /// The number that the other end demanded last.
    demanded: Cookie,
    current: Option<Keypair>,
    previous: Option<Keypair>,
    next: Option<Keypair>,
    initiation: Option<(Initiation, Instant)>,
    /// The last initiation that was responded to, and the response: it may come on every link.
    answered: Option<([u8; FIRST], Vec<u8>)>,
    /// Time at which a frame of the session that frames are sealed for was last opened.
    heard_at: Instant,
    handshakes: u64,
    frame: Vec<u8>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("handshakes", &self.handshakes).finish_non_exhaustive()
    }
}

impl Guard {
    pub fn new(key: Key, session: u64, mut random: Random) -> Guard {
        let code = hmac::Key::new(hmac::HMAC_SHA256, &derive(key.bytes(), b"retry"));
        let tags = key.tags();
        Guard {
            key,
            session,
            has_aes: has_aes(),
            code,
            tags,
            slot: None,
            cookie: cookie(&mut random),
            random,
            demanded: [0; COOKIE_LEN],
            current: None,
            previous: None,
            next: None,
            initiation: None,
            answered: None,
            heard_at: Instant::ZERO,
            handshakes: 0,
            frame: Vec::new(),
        }
    }

    /// Gives the indices that this end chooses from now on the slot that it has on its port.
    pub fn set_slot(&mut self, slot: u32) {
        self.slot = Some(slot);
    }

    /// Handshakes that made keys.
    pub fn handshakes(&self) -> u64 {
        self.handshakes
    }

    /// Whether frames can be sealed, once [`Guard::forget_old`] was called.
    pub fn has_keys(&self) -> bool {
        self.current.is_some()
    }

    /// Forgets keys that are too old.
    pub fn forget_old(&mut self, now: Instant) {
        for keys in [&mut self.current, &mut self.previous, &mut self.next] {
            keys.take_if(|keys| !keys.is_fresh(now));
        }
    }

    /// Seals a frame in place, if there are keys.
    pub fn seal(&mut self, frame: &mut Vec<u8>) {
        if let Some(keys) = &mut self.current {
            keys.seal(frame);
        }
    }

    /// The time from which a handshake is wanted. `silence`: time without a frame of the other end
    /// after which it may have lost its keys.
    pub fn initiation_from(&self, silence: Duration) -> Instant {
        let Some(keys) = &self.current else { return Instant::ZERO };
        keys.rekey_at().min(self.heard_at.max(keys.born()) + silence)
    }

    /// Writes an initiation over `out`; the same one for a while, so that it can go out on every
    /// link.
    pub fn write_initiation(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.initiation.as_ref().is_none_or(|(_, since)| now - *since >= RENEW) {
            self.initiate(now);
        }
        if let Some((initiation, _)) = &self.initiation {
            let tag = sealed::tag(&self.tags, &initiation.message);
            sealed::initiation(tag, &initiation.message, out);
        }
    }

    /// Takes an outer frame.
    pub fn open(&mut self, bytes: &[u8], now: Instant) -> Result<Opened, Refusal> {
        match Outer::parse(bytes).map_err(Refusal::Malformed)? {
            None => Err(Refusal::NotSealed),
            Some(Outer::Sealed { index, counter, body }) => {
                self.open_frame(index, counter, body, now)
            }
            Some(Outer::Initiation { tag, message }) => {
                if tag != sealed::tag(&self.tags, message) {
                    return Err(Refusal::WrongKey);
                }
                self.respond(message, now)
            }
            Some(Outer::Retry { index, cookie, code }) => self.retry(index, cookie, code, now),
            Some(Outer::Response { index, message }) => self.finish(index, message, now),
        }
    }

    /// The frame that was opened last; give it back for reuse.
    pub fn take_frame(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.frame)
    }

    pub fn give_back(&mut self, frame: Vec<u8>) {
        self.frame = frame;
    }

    fn open_frame(
        &mut self,
        index: u32,
        counter: u32,
        body: &[u8],
        now: Instant,
    ) -> Result<Opened, Refusal> {
        let keys = [&mut self.current, &mut self.next, &mut self.previous];
        let keys = keys.into_iter().flatten().find(|keys| keys.has_index(index));
        let keys = keys.filter(|keys| keys.is_fresh(now)).ok_or(Refusal::NoKeys)?;
        self.frame.clear();
        self.frame.extend_from_slice(body);
        keys.open(counter, &mut self.frame)?;
        let seal = Seal { session: keys.session, serial: keys.serial, counter };
        // The other end has the keys of the last handshake.
        if self.next.as_ref().is_some_and(|next| next.serial == seal.serial) {
            self.previous = self.current.take();
            self.current = self.next.take();
        }
        if self.current.as_ref().is_some_and(|keys| keys.session == seal.session) {
            self.heard_at = now;
        }
        Ok(Opened::Frame(seal))
    }

    /// Responds to an initiation.
    fn respond(&mut self, message: &[u8], now: Instant) -> Result<Opened, Refusal> {
        if let Some((answered, response)) = &self.answered
            && answered == message
        {
            return Ok(Opened::Reply(response.clone()));
        }
        let request = Request::read(&self.key, message, &mut self.random)?;
        if request.theirs.session == self.session {
            // This end's own message, sent back.
            return Err(Refusal::UnknownSession);
        }
        let mut reply = Vec::new();
        if request.cookie != self.cookie {
            let code = self.code_of(&self.cookie, message);
            sealed::retry(request.theirs.index, &self.cookie, code.as_ref(), &mut reply);
            return Ok(Opened::Reply(reply));
        }
        // A cookie counts once.
        self.cookie = cookie(&mut self.random);
        let ours = self.introduction();
        let to = request.theirs.index;
        let (response, agreed) = request.respond(ours);
        self.handshakes += 1;
        self.next = Some(Keypair::new(&agreed, false, self.handshakes, now));
        sealed::response(to, &response, &mut reply);
        let message = message.try_into().expect("its length was checked");
        self.answered = Some((message, reply.clone()));
        Ok(Opened::Reply(reply))
    }

    /// Repeats an initiation with the cookie that the other end demands.
    fn retry(
        &mut self,
        index: u32,
        cookie: &[u8],
        code: &[u8],
        now: Instant,
    ) -> Result<Opened, Refusal> {
        let initiation = self.initiation.as_ref().filter(|(one, _)| one.has_index(index));
        let (initiation, _) = initiation.ok_or(Refusal::NoKeys)?;
        let mut signed = cookie.to_vec();
        signed.extend_from_slice(&initiation.message);
        // An initiation goes out on every link, so some retries are to one that was repeated since.
        hmac::verify(&self.code, &signed, code).map_err(|_| Refusal::NoKeys)?;
        self.demanded = cookie.try_into().expect("its length was checked");
        self.initiate(now);
        let mut reply = Vec::new();
        self.write_initiation(now, &mut reply);
        Ok(Opened::Reply(reply))
    }

    /// Takes the response to an initiation.
    fn finish(&mut self, index: u32, message: &[u8], now: Instant) -> Result<Opened, Refusal> {
        let initiation = self.initiation.as_mut().filter(|(one, _)| one.has_index(index));
        let (initiation, _) = initiation.ok_or(Refusal::NoKeys)?;
        let agreed = initiation.finish(message)?;
        self.initiation = None;
        self.handshakes += 1;
        let keys = Keypair::new(&agreed, true, self.handshakes, now);
        self.previous = self.current.replace(keys);
        Ok(Opened::Keys)
    }

    /// Words of this end about itself in a message.
    fn introduction(&mut self) -> Introduction {
        let mut ours = Introduction::new(self.session, self.has_aes, &mut self.random);
        if let Some(slot) = self.slot {
            ours.index = sealed::index_in(slot, ours.index);
        }
        ours
    }

    fn initiate(&mut self, now: Instant) {
        let ours = self.introduction();
        let initiation = Initiation::new(&self.key, ours, &self.demanded, &mut self.random);
        self.initiation = Some((initiation, now));
    }

    fn code_of(&self, cookie: &Cookie, message: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.code);
        context.update(cookie);
        context.update(message);
        context.sign()
    }
}

fn cookie(random: &mut Random) -> Cookie {
    *random.block().first_chunk().expect("a block has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    const NOW: Instant = Instant::ZERO;

    fn guard(key: u8, session: u64) -> Guard {
        Guard::new(Key::new([key; 32]), session, Seed::from(session).random(b"handshakes"))
    }

    /// Lets `from` open what `to` sends until neither replies.
    fn shake(from: &mut Guard, to: &mut Guard) {
        let mut message = Vec::new();
        from.write_initiation(NOW, &mut message);
        let (mut sender, mut receiver) = (from, to);
        while let Ok(Opened::Reply(reply)) = receiver.open(&message, NOW) {
            message = reply;
            std::mem::swap(&mut sender, &mut receiver);
        }
    }

    fn passes(from: &mut Guard, to: &mut Guard, frame: &[u8]) -> Result<Seal, Refusal> {
        let mut sealed = frame.to_vec();
        from.seal(&mut sealed);
        assert_eq!(sealed.len(), frame.len() + sealed::OVERHEAD);
        let opened = to.open(&sealed, NOW)?;
        assert_eq!(to.take_frame(), frame);
        match opened {
            Opened::Frame(seal) => Ok(seal),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn two_ends_agree_whatever_their_processors_have() {
        for aes in [[true, true], [true, false], [false, true], [false, false]] {
            let (mut here, mut there) = (guard(1, 10), guard(1, 20));
            (here.has_aes, there.has_aes) = (aes[0], aes[1]);
            shake(&mut here, &mut there);
            assert_eq!(passes(&mut here, &mut there, &[7; 100]).unwrap().session, 10);
            assert_eq!(passes(&mut there, &mut here, &[8; 1_500]).unwrap().session, 20);
        }
    }

    #[test]
    fn a_recorded_initiation_makes_no_keys() {
        let (mut here, mut there) = (guard(1, 10), guard(1, 20));
        let mut messages = Vec::new();
        let mut message = Vec::new();
        here.write_initiation(NOW, &mut message);
        messages.push(message.clone());
        let Ok(Opened::Reply(retry)) = there.open(&message, NOW) else { panic!("no retry") };
        let Ok(Opened::Reply(again)) = here.open(&retry, NOW) else { panic!("nothing repeated") };
        messages.push(again.clone());
        let Ok(Opened::Reply(response)) = there.open(&again, NOW) else { panic!("no response") };
        assert!(matches!(here.open(&response, NOW), Ok(Opened::Keys)));
        // Another handshake, so that the one before is not simply answered again.
        shake(&mut here, &mut there);
        let made = there.handshakes();
        for message in messages.iter().cycle().take(100) {
            let _ = there.open(message, NOW);
        }
        assert_eq!(there.handshakes(), made);
        assert!(passes(&mut here, &mut there, &[7; 60]).is_ok());
    }

    #[test]
    fn a_frame_with_any_bit_changed_is_refused_and_the_right_one_passes_afterwards() {
        let (mut here, mut there) = (guard(1, 10), guard(1, 20));
        shake(&mut here, &mut there);
        let mut sealed = vec![5; 40];
        here.seal(&mut sealed);
        for bit in 0..8 * sealed.len() {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(there.open(&damaged, NOW), Ok(Opened::Frame(_))), "bit {bit}");
        }
        assert!(matches!(there.open(&sealed, NOW), Ok(Opened::Frame(_))));
        assert!(matches!(there.open(&sealed, NOW), Err(Refusal::Replayed)));
    }

    #[test]
    fn what_comes_back_to_an_end_with_a_slot_names_it() {
        let (mut here, mut there) = (guard(1, 10), guard(1, 20));
        here.set_slot(41);
        let mut message = Vec::new();
        here.write_initiation(NOW, &mut message);
        let Ok(Opened::Reply(retry)) = there.open(&message, NOW) else { panic!("no retry") };
        let Ok(Opened::Reply(again)) = here.open(&retry, NOW) else { panic!("nothing repeated") };
        let Ok(Opened::Reply(response)) = there.open(&again, NOW) else { panic!("no response") };
        assert!(matches!(here.open(&response, NOW), Ok(Opened::Keys)));
        passes(&mut here, &mut there, &[7; 60]).unwrap();
        let mut sealed = vec![5; 40];
        there.seal(&mut sealed);
        for frame in [&retry, &response, &sealed] {
            assert_eq!(frame[1] >> 2, 41);
        }
    }

    #[test]
    fn an_initiation_with_another_tag_is_refused_before_it_is_read() {
        let (mut here, mut there) = (guard(1, 10), guard(1, 20));
        let mut message = Vec::new();
        here.write_initiation(NOW, &mut message);
        for at in 1..4 {
            let mut forged = message.clone();
            forged[at] ^= 1;
            assert!(matches!(there.open(&forged, NOW), Err(Refusal::WrongKey)));
        }
        assert!(matches!(there.open(&message, NOW), Ok(Opened::Reply(_))));
    }

    #[test]
    fn ends_with_different_keys_make_none() {
        let (mut here, mut there) = (guard(1, 10), guard(2, 20));
        let mut message = Vec::new();
        here.write_initiation(NOW, &mut message);
        assert!(matches!(there.open(&message, NOW), Err(Refusal::WrongKey)));
        assert!(!here.has_keys() && !there.has_keys());
    }

    #[test]
    fn forged_responses_leave_a_handshake_as_it_was() {
        let (mut here, mut there) = (guard(1, 10), guard(1, 20));
        let mut message = Vec::new();
        here.write_initiation(NOW, &mut message);
        let Ok(Opened::Reply(retry)) = there.open(&message, NOW) else { panic!("no retry") };
        let Ok(Opened::Reply(again)) = here.open(&retry, NOW) else { panic!("nothing repeated") };
        let Ok(Opened::Reply(response)) = there.open(&again, NOW) else { panic!("no response") };
        for at in 4..response.len() {
            let mut forged = response.clone();
            forged[at] ^= 1;
            assert!(matches!(here.open(&forged, NOW), Err(Refusal::WrongKey)), "byte {at}");
        }
        assert!(matches!(here.open(&response, NOW), Ok(Opened::Keys)));
        assert!(passes(&mut here, &mut there, &[7; 60]).is_ok());
    }
}
