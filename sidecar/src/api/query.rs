//! Query parameters, read strictly: what is misspelt is told, and never ignored.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::types::Problem;

/// The parameters of a request that were not read yet.
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(super) fn new(raw: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(raw.unwrap_or_default().as_bytes()).into_owned().collect();
        Self { pairs }
    }

    /// The value of a parameter, which may be given once.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let mut value = None;
        let mut times = 0;
        self.pairs.retain_mut(|(key, given)| {
            if key != name {
                return true;
            }
            times += 1;
            value = Some(std::mem::take(given));
            false
        });
        if times > 1 {
            return Err(Problem::field(name, format!("{name} is given {times} times; give it once")));
        }
        Ok(value)
    }

    /// The same, read as something else.
    pub(super) fn value<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        read(&text).map(Some).ok_or_else(|| refused(name, &text, expected))
    }

    /// Something that the standard library reads.
    pub(super) fn parsed<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<Option<T>, Problem> {
        self.value(name, expected, |text| text.parse().ok())
    }

    /// `ADDRESS:PORT`.
    pub(super) fn address(&mut self, name: &str) -> Result<Option<SocketAddr>, Problem> {
        self.value(name, ADDRESS, address)
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        self.parsed(name, "true or false")
    }

    /// An IP address.
    pub(super) fn ip(&mut self, name: &str) -> Result<Option<IpAddr>, Problem> {
        let address = self.parsed::<IpAddr>(name, "an IP address, as 10.0.0.7 or fd00::7")?;
        Ok(address.map(|address| address.to_canonical()))
    }

    /// Refuses what nobody read.
    pub(super) fn finish(self, known: &str) -> Result<(), Problem> {
        match self.pairs.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::field(
                name.as_str(),
                format!("there is no parameter {name:?}; there are {known}"),
            )),
        }
    }
}

/// What an address must look like.
pub(super) const ADDRESS: &str = "an address and a port, as 10.0.0.7:40000 or [fd00::7]:40000";

/// Reads `ADDRESS:PORT`; an IPv4-mapped address is IPv4.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    (address.port() != 0).then(|| SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// A value that does not fit.
pub(super) fn refused(name: &str, text: &str, expected: &str) -> Problem {
    const CHARACTERS_MAX: usize = 64;
    let shown: String = text.chars().take(CHARACTERS_MAX).collect();
    Problem::field(name, format!("{name}: {shown:?} is not {expected}"))
}
