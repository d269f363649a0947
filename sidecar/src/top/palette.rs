//! Colours, or none. No meaning is in a colour alone: words and marks say it too.

use ackbeat_liveness::Verdict;
use ratatui::style::{Color, Modifier, Style};

/// How things are shown. Without colour only bold and reversed text are left, which every terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Palette {
    /// Whether colours are used.
    pub(super) has_colour: bool,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A verdict. What justifies a kill is bold.
    pub(super) fn verdict(self, verdict: Verdict, kill_justified: bool) -> Style {
        let style = match verdict {
            Verdict::Alive => self.colour(Color::Green),
            Verdict::Congested => self.colour(Color::Yellow),
            Verdict::Stalled => self.colour(Color::Magenta),
            Verdict::Silent | Verdict::Unreachable => self.colour(Color::Red),
            Verdict::Unknown | Verdict::Closed => self.faint(),
        };
        if kill_justified { style.add_modifier(Modifier::BOLD) } else { style }
    }

    /// Something that an operator should see.
    pub(super) fn alarm(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Titles.
    pub(super) const fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Heads, the chosen row, the line with the keys.
    pub(super) const fn reversed(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// What matters less.
    pub(super) fn faint(self) -> Style {
        self.colour(Color::DarkGray)
    }

    /// A sparkline.
    pub(super) fn sparkline(self) -> Style {
        self.colour(Color::Cyan)
    }
}
