//! Tests over ../examples and ../spec.
