//! The arena's result: for machines, as tables, and as plots.

mod checked;
mod leaks;
mod lossy;
pub mod markdown;
mod of_single_rows;
pub mod requirements;
pub mod result;

pub use checked::{Checked, Extent};
pub use result::{ArenaResult, Build, Cell, Machine, NotRun, Standing};
