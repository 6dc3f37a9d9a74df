//! The shardc command line.
