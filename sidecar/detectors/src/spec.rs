//! Detectors by name.

mod definitions;
mod error;

use core::fmt;
use core::str::FromStr;

use ackbeat_liveness::Opened;

use crate::{Detector, Evidence, Need, NotJudged};
use definitions::{DEFINITIONS, Definition};

pub use error::SpecError;

/// No parameter is larger: a day in milliseconds.
pub(crate) const PARAMETER_MAX: u64 = 86_400_000;

/// A parameter of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its key, with its unit: `interval_ms`.
    pub name: &'static str,
    /// Its value where none is given.
    pub default: u64,
    /// What it is.
    pub meaning: &'static str,
}

/// A detector with its parameters: `ws-2`, `ws-2:interval_ms=30000,missed=3`.
#[derive(Clone)]
pub struct Spec {
    definition: &'static Definition,
    /// In the order of the definition's parameters.
    values: Vec<u64>,
}

impl Spec {
    /// The default line-up, in the order of the arena's table.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for definition in DEFINITIONS {
            all.push(Self::of(definition));
            if definition.name == "user-timeout" {
                all.push(Self { definition, values: vec![30_000] });
            }
        }
        all
    }

    /// The names that exist, in the order of the arena's table.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DEFINITIONS.iter().map(|definition| definition.name)
    }

    /// Its name, without parameters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Its parameters and their values.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static Parameter, u64)> {
        self.definition.parameters.iter().zip(self.values.iter().copied())
    }

    /// Its rule and its parameters in one line, for tables.
    #[must_use]
    pub fn describe(&self) -> String {
        let parameters: Vec<String> =
            self.parameters().map(|(parameter, value)| format!("{} = {value}", parameter.name)).collect();
        format!("{} ({})", self.definition.rule, parameters.join(", "))
    }

    /// Where the rule is from: the library with its version and file, the RFC, the kernel file.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.definition.source
    }

    /// The facts it needs, all of them.
    #[must_use]
    pub const fn needs(&self) -> &'static [Need] {
        self.definition.needs
    }

    /// The shortest time after a connection was opened at which it can decide to kill, in milliseconds.
    #[must_use]
    pub fn earliest_kill_ms(&self) -> u64 {
        (self.definition.earliest_kill_ms)(&self.values)
    }

    /// Starts it on a connection.
    ///
    /// `evidence` says which facts the recording has about the connection. Where it has the host's reports, their ticks
    /// and Pongs are the heartbeat; otherwise the frames on the wire are. A connection whose source does not see frames
    /// ([`Opened::frames_visible`]) has none, whatever `evidence` says.
    ///
    /// # Errors
    /// [`NotJudged::Missing`] names what it needs and the recording lacks.
    pub fn start(&self, opened: &Opened, evidence: Evidence) -> Result<Box<dyn Detector>, NotJudged> {
        let evidence = Evidence { frames: evidence.frames && opened.frames_visible, ..evidence };
        if let Some(need) = self.needs().iter().find(|need| !need.is_met(evidence)) {
            return Err(NotJudged::Missing(*need));
        }
        Ok((self.definition.start)(&self.values, opened, evidence.reports))
    }

    fn of(definition: &'static Definition) -> Self {
        let values = definition.parameters.iter().map(|parameter| parameter.default).collect();
        Self { definition, values }
    }

    fn set(&mut self, text: &str) -> Result<(), SpecError> {
        let definition = self.definition;
        let (key, value) = text
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .ok_or_else(|| SpecError::not_a_parameter(definition, text))?;
        let index = definition
            .parameters
            .iter()
            .position(|parameter| parameter.name == key)
            .ok_or_else(|| SpecError::unknown_parameter(definition, key))?;
        let number = value
            .parse::<u64>()
            .ok()
            .filter(|number| (1..=PARAMETER_MAX).contains(number))
            .ok_or_else(|| SpecError::bad_value(definition, key, value))?;
        if let Some(slot) = self.values.get_mut(index) {
            *slot = number;
        }
        Ok(())
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name.trim(), Some(parameters)),
            None => (text.trim(), None),
        };
        let definition = DEFINITIONS
            .iter()
            .find(|definition| definition.name == name)
            .ok_or_else(|| SpecError::unknown_detector(name))?;
        let mut spec = Self::of(definition);
        for parameter in parameters.into_iter().flat_map(|parameters| parameters.split(',')) {
            spec.set(parameter)?;
        }
        Ok(spec)
    }
}

/// As it is read: the name, and the parameters that differ from their defaults.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let changed = self.parameters().filter(|(parameter, value)| *value != parameter.default);
        for (index, (parameter, value)) in changed.enumerate() {
            write!(f, "{}{}={value}", if index == 0 { ':' } else { ',' }, parameter.name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.values == other.values
    }
}

impl Eq for Spec {}
