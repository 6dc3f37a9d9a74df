//! Tests of the cost model, by hand-worked numbers.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

mod collective_times;
mod loops;
mod plan_prices;
mod worked_numbers;
