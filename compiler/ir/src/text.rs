//! `.shir`: a plan as text.
