//! Scenarios, rules and the reviewed table of the liveness engine.

mod closes;
#[cfg(test)]
mod leaks;
#[cfg(test)]
mod peer_asks;
#[cfg(test)]
mod probing;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod report_a;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod table;
#[cfg(test)]
mod traps;
#[cfg(test)]
mod world;
