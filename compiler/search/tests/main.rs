//! Tests of the search by itself, and against solvers and checkers that share nothing with it.
//!
//! All are one binary, since linking one for each file takes longer than most of them take to run.

#![allow(missing_docs)]

mod alternatives;
mod attention;
mod axis_orders;
mod blocks;
mod brute_force;
mod certificate;
mod chains;
mod closure;
mod common;
mod feed_forward;
mod grouped_queries;
mod joined_keys;
mod labels;
mod less_memory;
mod logical;
mod many_forms;
mod memory;
mod moves_alone;
mod parts;
mod phases;
mod pieces;
mod pins;
mod random_attentions;
mod rings;
mod search_cache;
mod second_solver;
mod shared_values;
mod split_keys;
mod stop;
mod strict;
mod training;
