//! A heartbeat that the settings describe: a text, or what begins with it.

use ackbeat_abi::patterns::{NoRoom, Pattern, Patterns};
use ackbeat_liveness::{Direction, FrameKind};

use super::{BOTH_WAYS, FROM_PEER, LONGEST, Message, TEXT, TO_PEER};

/// How a text is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// A message is this text.
    #[default]
    Exact,
    /// A message begins with this text.
    Prefix,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskedBy {
    /// The host: its peer answers.
    Host,
    /// The peer: the host answers.
    Peer,
    /// Either.
    #[default]
    Either,
}

/// A heartbeat that the settings describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    /// The question, 1 to 125 bytes.
    pub question: String,
    /// The answer, 1 to 125 bytes; `None` where nobody answers.
    pub answer: Option<String>,
    /// How both are compared.
    pub matching: Match,
    /// Who asks. Where question and answer are one text, only the direction tells them apart.
    pub asked_by: AskedBy,
}

impl Custom {
    /// Whether question and answer cannot be told apart: a message can be both, and either side may ask.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        let Some(answer) = &self.answer else { return false };
        self.asked_by == AskedBy::Either
            && match self.matching {
                Match::Exact => *answer == self.question,
                Match::Prefix => {
                    answer.starts_with(self.question.as_str()) || self.question.starts_with(answer.as_str())
                }
            }
    }

    pub(super) fn add_patterns(&self, patterns: &mut Patterns) -> Result<(), NoRoom> {
        let (asking, answering) = match self.asked_by {
            AskedBy::Host => (TO_PEER, FROM_PEER),
            AskedBy::Peer => (FROM_PEER, TO_PEER),
            AskedBy::Either => (BOTH_WAYS, BOTH_WAYS),
        };
        let pattern = |directions, text: &str| match self.matching {
            Match::Exact => Pattern::exact(TEXT, directions, text.as_bytes()),
            Match::Prefix => Pattern::new(TEXT, directions, text.as_bytes(), LONGEST),
        };
        patterns.add(pattern(asking, &self.question), &[])?;
        self.answer.as_ref().map_or(Ok(()), |answer| patterns.add(pattern(answering, answer), &[]))
    }

    pub(super) fn decide(&self, message: &Message<'_>) -> Option<FrameKind> {
        let (may_ask, may_answer) = match (self.asked_by, message.direction) {
            (AskedBy::Either, _) => (true, true),
            (AskedBy::Host, Direction::Egress) | (AskedBy::Peer, Direction::Ingress) => (true, false),
            _ => (false, true),
        };
        if may_ask && self.is(message, &self.question) {
            return Some(FrameKind::Ping);
        }
        let answered = may_answer && self.answer.as_ref().is_some_and(|answer| self.is(message, answer));
        answered.then_some(FrameKind::Pong)
    }

    fn is(&self, message: &Message<'_>, text: &str) -> bool {
        match self.matching {
            Match::Exact => message.is_text(text.as_bytes()),
            Match::Prefix => !message.binary && message.payload.starts_with(text.as_bytes()),
        }
    }
}
