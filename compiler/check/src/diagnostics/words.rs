//! Numbers and lists in messages.

/// `1 KiB`, `4.5 MiB`: at most one digit behind the point.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = n as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

/// `16.4 us`, `2.1 ms`, `3.0 s`.
pub fn seconds(s: f64) -> String {
    match s.abs() {
        t if t >= 1.0 => format!("{s:.2} s"),
        t if t >= 1e-3 => format!("{:.2} ms", s * 1e3),
        t if t >= 1e-6 => format!("{:.2} us", s * 1e6),
        _ => format!("{:.2} ns", s * 1e9),
    }
}

/// `` `a`, `b` and `c` ``; `none` of nothing; past eight, how many more there are.
pub fn name_list<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 8;
    let quoted: Vec<String> =
        names.iter().take(SHOWN).map(|n| format!("`{}`", n.as_ref())).collect();
    match (quoted.as_slice(), names.len()) {
        ([], _) => "none".to_string(),
        (all, n) if n > SHOWN => format!("{} and {} more", all.join(", "), n - SHOWN),
        ([one], _) => one.clone(),
        ([init @ .., last], _) => format!("{} and {last}", init.join(", ")),
    }
}

/// `1 value`, `2 values`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
