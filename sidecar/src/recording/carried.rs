//! What a new segment must begin with: the connections that are open.

use std::collections::BTreeMap;

use ackbeat_liveness::{
    CONNECTION_LIMIT_DEFAULT, ConnectionId, Direction, Input, Opened, Snapshot, Synchronization, Timestamp,
    Upgrade,
};

use super::Carried;

/// The connections that are open, as far as a new segment has to tell of them. Bounded like the engine's own table:
/// what the engine refuses is not judged in any segment.
#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    open: BTreeMap<ConnectionId, Open>,
}

#[derive(Debug)]
struct Open {
    opened: Opened,
    upgrade: Option<Upgrade>,
    egress: Option<Synchronization>,
    ingress: Option<Synchronization>,
    /// The last reading of the socket.
    reading: Option<Box<Snapshot>>,
}

impl OpenConnections {
    /// The engine was told this.
    pub(super) fn on_input(&mut self, input: &Input) {
        match input {
            Input::Opened(opened) if self.open.len() < CONNECTION_LIMIT_DEFAULT => {
                let open = || Open {
                    opened: opened.clone(),
                    upgrade: None,
                    egress: None,
                    ingress: None,
                    reading: None,
                };
                self.open.entry(opened.connection).or_insert_with(open);
            }
            Input::Upgrade(upgrade) => {
                if let Some(open) = self.open.get_mut(&upgrade.connection) {
                    open.upgrade = Some(upgrade.clone());
                }
            }
            Input::Synchronization(synchronization) => {
                if let Some(open) = self.open.get_mut(&synchronization.connection) {
                    let known = match synchronization.direction {
                        Direction::Egress => &mut open.egress,
                        Direction::Ingress => &mut open.ingress,
                    };
                    *known = Some(synchronization.clone());
                }
            }
            Input::Sample(snapshot) => {
                if let Some(open) = self.open.get_mut(&snapshot.connection) {
                    match &mut open.reading {
                        Some(reading) => reading.as_mut().clone_from(snapshot),
                        None => open.reading = Some(Box::new(snapshot.clone())),
                    }
                }
            }
            _ => {}
        }
    }

    /// It is closed, or being closed.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.open.remove(&connection);
    }

    /// The lines that carry them over to a segment that begins at `at`, in at most `room` bytes; and how many
    /// connections found no room.
    pub(super) fn lines(&self, at: Timestamp, room: usize) -> Result<(Vec<u8>, u64), serde_json::Error> {
        let mut lines = Vec::new();
        let mut left_out = 0;
        for open in self.open.values() {
            let text = open.lines(at)?;
            if lines.len() + text.len() > room {
                left_out += 1;
            } else {
                lines.extend(text);
            }
        }
        Ok((lines, left_out))
    }
}

impl Open {
    fn lines(&self, at: Timestamp) -> Result<Vec<u8>, serde_json::Error> {
        // Found at that moment, as a sidecar that starts finds connections: of what was before nothing is known here.
        let opened = Opened { at, preexisting: true, ..self.opened.clone() };
        // The upgrade says that both directions are followed; what is known better comes after it.
        let inputs = [
            Some(Input::Opened(opened)),
            self.upgrade.clone().map(|upgrade| Input::Upgrade(Upgrade { at, ..upgrade })),
            self.egress.clone().map(|known| Input::Synchronization(Synchronization { at, ..known })),
            self.ingress.clone().map(|known| Input::Synchronization(Synchronization { at, ..known })),
            // With its own time, which is before the segment: it is as old as it is.
            self.reading.as_deref().cloned().map(Input::Sample),
        ];
        let mut lines = Vec::new();
        for input in inputs.into_iter().flatten() {
            serde_json::to_writer(&mut lines, &Carried { carried: input })?;
            lines.push(b'\n');
        }
        Ok(lines)
    }
}
