//! Scenarios, rules and the reviewed table of the liveness engine.

#[cfg(test)]
mod closes;
#[cfg(test)]
mod leaks;
#[cfg(test)]
mod middle_hop;
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
mod restarts;
#[cfg(test)]
mod table;
#[cfg(test)]
mod told_kills;
mod traps;
#[cfg(test)]
mod world;
