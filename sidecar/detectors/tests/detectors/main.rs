//! The detectors, told facts written by hand.

#[cfg(test)]
mod ends_and_losses;
#[cfg(test)]
mod kernel_options;
#[cfg(test)]
mod libraries;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod specs;
#[cfg(test)]
mod tape;
#[cfg(test)]
mod watchdogs;
