//! The messages of a handshake: Noise `NNpsk0`, by the crate `snow`.
//!
//! ```text
//! initiator                          responder
//!   psk, e [cookie, session, index, AES]  ->      before the DH: the right key? my cookie?
//!   <-                    retry [cookie]          if not the cookie: nothing is kept
//!   psk, e [cookie, …]                    ->
//!   <-         e, ee [session, index, cipher]     keys are made, used once a frame proves them
//!   a sealed frame                        ->
//! ```
//!
//! What is in brackets is encrypted. Whoever has no key can neither make the first message nor see
//! from it whose it is; and to check it takes no Diffie-Hellman, so that forged ones are cheap. The
//! cookie is a number of the responder's that counts once: a recorded message makes no state. It
//! needs no clock, which routers do not have at boot.

use super::key::Key;
use super::keypair::{Agreement, Cipher};
use crate::endpoint::outcome::Refusal;
use crate::seed::Random;
use sheaf_wire::trunk::sealed::{
    COOKIE_LEN, INITIATION_LEN, INITIATION_PAYLOAD, MOST_INDEX, RESPONSE_LEN, RESPONSE_PAYLOAD,
};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher as NoiseCipher, Dh, Hash, Random as NoiseRandom};
use snow::{Builder, HandshakeState};

/// The protocol, and what binds a handshake to this use of it.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"sheaf trunk 1";
/// Bytes of the first message without its kind.
pub(super) const FIRST: usize = INITIATION_LEN - 4;
const SECOND: usize = RESPONSE_LEN - 4;

pub(super) type Cookie = [u8; COOKIE_LEN];

/// Statement of an end about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    /// Its session.
    pub session: u64,
    /// The index that the other end shall write on its frames.
    pub index: u32,
    /// Whether its processor has instructions for AES.
    pub has_aes: bool,
}

impl Introduction {
    /// An introduction with an index that is drawn.
    pub fn new(session: u64, has_aes: bool, random: &mut Random) -> Introduction {
        Introduction { session, index: random.number() as u32 & MOST_INDEX, has_aes }
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.index.to_be_bytes());
        bytes[12] = u8::from(self.has_aes);
    }

    fn read(bytes: &[u8]) -> Introduction {
        let (session, rest) = bytes.split_first_chunk().expect("payloads have 16 bytes or more");
        let index = rest.first_chunk().expect("as above");
        Introduction {
            session: u64::from_be_bytes(*session),
            index: u32::from_be_bytes(*index) & MOST_INDEX,
            has_aes: bytes[12] & 1 != 0,
        }
    }
}

/// A first message that waits for its response.
pub(super) struct Initiation {
    noise: HandshakeState,
    ours: Introduction,
    /// The message.
    pub message: [u8; FIRST],
}

impl Initiation {
    pub fn new(key: &Key, ours: Introduction, cookie: &Cookie, random: &mut Random) -> Initiation {
        let mut noise =
            builder(key, random).build_initiator().expect("the pattern has all it needs");
        let mut payload = [0; INITIATION_PAYLOAD];
        payload[..COOKIE_LEN].copy_from_slice(cookie);
        ours.write(&mut payload[COOKIE_LEN..]);
        let mut message = [0; FIRST];
        noise.write_message(&payload, &mut message).expect("there is room");
        Initiation { noise, ours, message }
    }

    /// Whether a response is to this message, as far as it says itself.
    pub fn has_index(&self, index: u32) -> bool {
        self.ours.index == index
    }

    /// Takes the response. A forged one leaves everything as it was.
    pub fn finish(&mut self, message: &[u8]) -> Result<Agreement, Refusal> {
        let mut payload = [0; SECOND];
        let read = self.noise.read_message(message, &mut payload);
        read.map_err(|_| Refusal::WrongKey)?;
        let theirs = Introduction::read(&payload);
        let (send, receive) = self.noise.dangerously_get_raw_split();
        Ok(agree(&self.ours, &theirs, send, receive))
    }
}

/// A first message that shows that its sender has the key.
pub(super) struct Request {
    noise: HandshakeState,
    pub cookie: Cookie,
    pub theirs: Introduction,
}

impl Request {
    /// Reads a first message.
    pub fn read(key: &Key, message: &[u8], random: &mut Random) -> Result<Request, Refusal> {
        let mut noise =
            builder(key, random).build_responder().expect("the pattern has all it needs");
        let mut payload = [0; FIRST];
        let read = noise.read_message(message, &mut payload);
        read.map_err(|_| Refusal::WrongKey)?;
        let (cookie, rest) = payload.split_first_chunk().expect("it has 32 bytes");
        Ok(Request { noise, cookie: *cookie, theirs: Introduction::read(rest) })
    }

    /// Responds. Returns the message and what was agreed.
    pub fn respond(mut self, ours: Introduction) -> ([u8; SECOND], Agreement) {
        let mut payload = [0; RESPONSE_PAYLOAD];
        ours.write(&mut payload);
        let mut message = [0; SECOND];
        self.noise.write_message(&payload, &mut message).expect("there is room");
        let (receive, send) = self.noise.dangerously_get_raw_split();
        (message, agree(&ours, &self.theirs, send, receive))
    }
}

fn agree(
    ours: &Introduction,
    theirs: &Introduction,
    send: [u8; 32],
    receive: [u8; 32],
) -> Agreement {
    let cipher = Cipher::of(ours.has_aes, theirs.has_aes);
    let session = theirs.session;
    Agreement { cipher, send, receive, ours: ours.index, theirs: theirs.index, session }
}

fn builder<'a>(key: &'a Key, random: &mut Random) -> Builder<'a> {
    let params: NoiseParams = PATTERN.parse().expect("snow has this pattern");
    let resolver: BoxedCryptoResolver = Box::new(Drawn(random.block()));
    let builder = Builder::with_resolver(params, resolver).psk(0, key.bytes());
    builder.and_then(|builder| builder.prologue(PROLOGUE)).expect("each is given once")
}

/// The default primitives with 32 random bytes, which are what one ephemeral key takes.
struct Drawn([u8; 32]);

impl CryptoResolver for Drawn {
    fn resolve_rng(&self) -> Option<Box<dyn NoiseRandom>> {
        Some(Box::new(Once(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn NoiseCipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Random bytes that are given out once.
struct Once(Option<[u8; 32]>);

impl NoiseRandom for Once {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        let drawn = self.0.take().ok_or(snow::Error::Rng)?;
        let drawn = drawn.get(..bytes.len()).ok_or(snow::Error::Rng)?;
        bytes.copy_from_slice(drawn);
        Ok(())
    }
}
