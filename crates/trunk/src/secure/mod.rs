//! A trunk with a key: every frame is sealed, and nothing is learned from one that is not.
//!
//! * [`key`]: the key that both ends have in a file;
//! * `handshake`: messages of Noise (`NNpsk0`) by the crate `snow`, in which both ends show that
//!   they have the key and agree on keys that nobody can find out from it later (forward secrecy);
//! * `keypair`: these keys at work, by the crate `ring`;
//! * `replay`: every frame counts once, over all links;
//! * `guard`: the machine: which keys are in use, and when new ones are made.
//!
//! Sealed frames are a layer around the frames of [`sheaf_wire::trunk`], which stay as they are.

mod guard;
mod handshake;
pub mod key;
mod keypair;
mod replay;

pub(crate) use guard::{Guard, Opened, Seal};
pub use key::{Key, KeyError};
