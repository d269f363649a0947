//! Storms, outages and resonances, told from made-up arrivals.

mod fleet;
mod fleets;
mod outages;
mod storms;
mod world;
