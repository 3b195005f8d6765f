//! The medium of mac80211_hwsim's radios, in user space (drivers/net/wireless/virtual/
//! mac80211_hwsim.h of Linux): messages, without I/O, and the socket that they go by.
//!
//! The process that registers is handed each frame of each radio that was made in its network
//! namespace, wherever the radio is now. It says to which radios a frame comes and, for every
//! frame, how its transmission ended. When the socket is closed, radios hear each other without a
//! medium again.

mod message;
mod socket;

pub use message::{
    Attempt, Delivery, Frame, LARGEST_FRAME, Notice, RATES, Reports, TransmitStatus,
    encode_delivery, encode_status,
};
pub use socket::{Hwsim, RegisterError};

/// Name of the family of generic netlink.
const FAMILY: &str = "MAC80211_HWSIM";
