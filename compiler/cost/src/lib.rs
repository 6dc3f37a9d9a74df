//! Hardware files, collective times, rooflines.
