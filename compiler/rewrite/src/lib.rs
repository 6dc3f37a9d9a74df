//! The e-graph: strategies and moves as rules, saturation, extraction.
