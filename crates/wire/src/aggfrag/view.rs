//! The checked view of a frame.

use super::block::{Block, Cut, Next, has_implied_length, next};
use super::{Header, Refusal};

/// The most blocks of one frame: 1500 bytes carry 61 compressed voice packets of 20 bytes. For an
/// eBPF program more would cost: the kernel follows each turn of its loops before it takes it.
pub const MAX_BLOCKS: usize = 64;

/// A frame of which every block has been seen to be whole.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    header: Header,
    body: &'a [u8],
    /// Ends of the blocks, counted from the first.
    ends: [u16; MAX_BLOCKS],
    count: usize,
    cut: Option<Cut<'a>>,
    unknown: Option<u8>,
    doubt: Option<Refusal>,
}

impl<'a> Frame<'a> {
    /// Checks all of the payload `bytes`. `payload_len` returns the payload's length that a
    /// context of the stream stands for, by its number.
    pub fn parse(
        bytes: &'a [u8],
        payload_len: impl Fn(u8) -> Option<u16>,
    ) -> Result<Frame<'a>, Refusal> {
        let (header, body) = Header::parse(bytes)?;
        let mut frame = Frame {
            header,
            body,
            ends: [0; MAX_BLOCKS],
            count: 0,
            cut: None,
            unknown: None,
            doubt: None,
        };
        let blocks = frame.blocks_from();
        let (mut at, mut implied) = (0, false);
        while at < blocks.len() {
            let next = match next(&blocks[at..], &payload_len) {
                Err(refusal) if implied => {
                    frame.doubt = Some(refusal);
                    return Ok(frame);
                }
                next => next?,
            };
            match next {
                Next::Block(_) if frame.count == MAX_BLOCKS => return Err(Refusal::TooMany),
                Next::Block(len) => {
                    implied |= has_implied_length(&blocks[at..]);
                    at += len;
                    frame.ends[frame.count] = at as u16;
                    frame.count += 1;
                }
                Next::Cut(cut) => {
                    frame.cut = Some(cut);
                    break;
                }
                Next::Unknown(number) => {
                    frame.unknown = Some(number);
                    break;
                }
                Next::Pad => break,
            }
        }
        let nothing = frame.count == 0 && frame.cut.is_none() && frame.unknown.is_none();
        if body.is_empty() || nothing && header.offset == 0 {
            return Err(Refusal::Empty);
        }
        Ok(frame)
    }

    /// Fields of the header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The bytes of this frame that continue a block of the one before it.
    pub fn continuation(&self) -> &'a [u8] {
        &self.body[..usize::from(self.header.offset).min(self.body.len())]
    }

    /// The complete blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = Block<'a>> {
        let (blocks, ends) = (self.blocks_from(), self.ends);
        (0..self.count).map(move |index| {
            let start = if index == 0 { 0 } else { usize::from(ends[index - 1]) };
            Block::checked(&blocks[start..usize::from(ends[index])])
        })
    }

    /// Number of complete blocks, 0..=[`MAX_BLOCKS`].
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the frame has no complete block.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The block that continues in the next frame.
    pub fn cut(&self) -> Option<Cut<'a>> {
        self.cut
    }

    /// Number of the context, unknown here, of the compressed packet at which the view ends. What
    /// stands behind it is lost, because the context has its length.
    pub fn unknown(&self) -> Option<u8> {
        self.unknown
    }

    /// A fault behind a compressed packet whose length is that of its context. The frame is
    /// damaged, or a context is not the sender's; nothing of it may be delivered.
    pub fn doubt(&self) -> Option<Refusal> {
        self.doubt
    }

    fn blocks_from(&self) -> &'a [u8] {
        &self.body[self.continuation().len()..]
    }
}
