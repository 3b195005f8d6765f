//! Calls: sources that talk, voice packets, and the quality for the listener.
//!
//! * [`source`]: the times of a talker's packets (talk spurts and silences, by seed);
//! * [`packet`]: RTP header and a voice payload that carries flow, number and time;
//! * [`meter`]: loss, delay, jitter, order, duplicates of one flow, in bounded memory;
//! * [`emodel`]: ITU-T G.107 in its reduced form: from delay and loss to R and MOS;
//! * [`playout`]: the listener's buffer, which turns delay variation into delay and loss;
//! * [`rules`]: rules by which a call counts as supported.
//!
//! ```
//! use sheaf_voice::emodel::{Codec, mos};
//!
//! // G.729A with 50 ms from mouth to ear and no loss.
//! let r = Codec::G729A.r(50.0, 0.0, 1.0);
//! assert_eq!(r, 93.2 - 0.024 * 50.0 - 11.0);
//! assert!(mos(r) > 4.0);
//! ```

pub mod emodel;
pub mod meter;
pub mod packet;
pub mod playout;
pub mod rules;
pub mod source;
