//! The arena's result: for machines, as tables, and as plots.

mod leaks;
pub mod markdown;
mod of_single_rows;
pub mod requirements;
pub mod result;

pub use requirements::Checked;
pub use result::{ArenaResult, Build, Cell, Machine, NotRun, Standing};
