//! Certificates: that they prove what is true, and nothing else.

mod branches;
mod forged;
mod made;
mod programs;
mod tampered;
mod together;
