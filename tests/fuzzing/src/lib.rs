//! Made-up inputs for everything that reads what others wrote.
//!
//! A *target* is a pair of functions: one makes the bytes of a case from random numbers (a valid thing that was damaged, or
//! noise that is read as a script of calls), the other runs them and checks what must hold whatever they are. A case is
//! told by its target, a seed and its number, so it can be made again; one that fails is written to a file too.
//!
//! What holds for every target is checked here: no panic, an end within [`CASE_LIMIT`], and a bound on what is taken from the
//! allocator at a time, so that no few bytes from outside can make much memory out of themselves.

pub mod draw;
pub mod runner;
pub mod targets;

pub use runner::{CASE_LIMIT, Failure, Tally, run_case, run_for};
pub use targets::{TARGETS, Target};
