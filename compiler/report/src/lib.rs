//! Explain, JSON and dot output, and the drawing of diagnostics.
