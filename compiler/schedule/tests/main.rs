//! Tests of timelines and of schedules.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

mod execution;
mod overlap;
mod serial;
mod timeline;
