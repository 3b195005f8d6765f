//! Keys of one handshake at work: one for each direction, and what was received under them.

use super::replay::ReplayWindow;
use crate::endpoint::outcome::Refusal;
use ring::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::sealed::{self, HEADER_LEN, LEAST_INNER};

/// Ages at which the end that began the handshake begins the next, and the other end if it does
/// not; age from which the keys are not used (WireGuard has 120 and 180 s).
const REKEY_AFTER: Duration = Duration::from_secs(120);
const REKEY_OTHER_AFTER: Duration = Duration::from_secs(150);
const REJECT_AFTER: Duration = Duration::from_secs(180);
/// Frames after which the next handshake begins, and frames that are sealed at most. Counters have
/// 32 bits and never repeat. The first is a quarter of them: at 10 Mframe/s the rest lasts for five
/// minutes.
const REKEY_FRAMES: u32 = 1 << 30;
const MOST_FRAMES: u32 = u32::MAX - 1;

/// The cipher that frames are sealed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cipher {
    /// Where a processor has no instructions for AES.
    ChaCha20Poly1305,
    /// Where both have.
    Aes256Gcm,
}

impl Cipher {
    /// The cipher of two ends, by whether each has instructions for AES.
    pub fn of(ours: bool, theirs: bool) -> Cipher {
        if ours && theirs { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Cipher::Aes256Gcm => &AES_256_GCM,
        }
    }

    fn key(self, bytes: &[u8; 32]) -> LessSafeKey {
        let key = UnboundKey::new(self.algorithm(), bytes);
        LessSafeKey::new(key.expect("both ciphers have keys of 32 bytes"))
    }
}

/// Whether this processor has instructions for AES-GCM. Without them ChaCha20 is faster.
pub(super) fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = false;
    has
}

/// The outcome of a handshake.
pub(super) struct Agreement {
    pub cipher: Cipher,
    /// Keys of this end's frames, and of the other end's.
    pub send: [u8; 32],
    pub receive: [u8; 32],
    /// Indices that this end and the other end chose.
    pub ours: u32,
    pub theirs: u32,
    /// The other end's session.
    pub session: u64,
}

/// Keys in use.
pub(super) struct Keypair {
    send: LessSafeKey,
    receive: LessSafeKey,
    ours: u32,
    theirs: u32,
    sent: u32,
    window: ReplayWindow,
    born: Instant,
    is_initiator: bool,
    /// The session of the other end, which the handshake named.
    pub session: u64,
    /// Number of the handshake: the later one has the higher.
    pub serial: u64,
}

impl Keypair {
    pub fn new(agreed: &Agreement, is_initiator: bool, serial: u64, now: Instant) -> Keypair {
        Keypair {
            send: agreed.cipher.key(&agreed.send),
            receive: agreed.cipher.key(&agreed.receive),
            ours: agreed.ours,
            theirs: agreed.theirs,
            sent: 0,
            window: ReplayWindow::new(),
            born: now,
            is_initiator,
            session: agreed.session,
            serial,
        }
    }

    pub fn has_index(&self, index: u32) -> bool {
        self.ours == index
    }

    pub fn born(&self) -> Instant {
        self.born
    }

    /// Whether frames may be sealed and opened.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now - self.born < REJECT_AFTER && self.sent < MOST_FRAMES
    }

    /// The time at which the next handshake should begin.
    pub fn rekey_at(&self) -> Instant {
        match (self.sent >= REKEY_FRAMES, self.is_initiator) {
            (true, _) => Instant::ZERO,
            (false, true) => self.born + REKEY_AFTER,
            (false, false) => self.born + REKEY_OTHER_AFTER,
        }
    }

    /// Seals a frame in place.
    pub fn seal(&mut self, frame: &mut Vec<u8>) {
        let header = sealed::header(self.theirs, self.sent);
        let len = frame.len().max(LEAST_INNER);
        frame.resize(len + HEADER_LEN, 0);
        frame.copy_within(..len, HEADER_LEN);
        frame[..HEADER_LEN].copy_from_slice(&header);
        let nonce = nonce(self.sent);
        let body = &mut frame[HEADER_LEN..];
        let tag = self.send.seal_in_place_separate_tag(nonce, Aad::from(header), body);
        frame.extend_from_slice(tag.expect("no frame is too long").as_ref());
        self.sent += 1;
    }

    /// Opens the body of a frame in place: it is then the frame that was sealed.
    pub fn open(&mut self, counter: u32, body: &mut Vec<u8>) -> Result<(), Refusal> {
        if !self.window.is_new(counter) {
            return Err(Refusal::Replayed);
        }
        let aad = Aad::from(sealed::header(self.ours, counter));
        let opened = self.receive.open_in_place(nonce(counter), aad, body);
        let len = opened.map_err(|_| Refusal::WrongKey)?.len();
        body.truncate(len);
        self.window.note(counter);
        Ok(())
    }
}

/// A counter counts once under a key, so that the nonce is used once.
fn nonce(counter: u32) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}
