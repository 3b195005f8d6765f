//! A frame on a link of a trunk.

/// A frame on one link of a trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the link, from 0.
    pub link: usize,
    /// The bytes behind the header of the link.
    pub bytes: Vec<u8>,
}
