//! The points of a sweep: every mesh with every combination of dims, within every memory limit.

use shard_check::CheckOptions;

use crate::memory_limit;

/// Sizes that one dim takes: `B=1..1024:x2`, `L=1,2048`, `H=48,48 pad 64`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SweptDim {
    pub(crate) dim: String,
    pub(crate) sizes: Vec<String>,
}

/// One point: its changes of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// The mesh, where the command line states one.
    pub(crate) mesh: Option<Vec<(String, u64)>>,
    /// Dims with their sizes, in the order of the command line.
    pub(crate) dims: Vec<(String, String)>,
    /// The memory limit in bytes, where the command line states one.
    pub(crate) memory_limit: Option<u64>,
}

impl Point {
    pub(crate) fn options(&self, strict: bool) -> CheckOptions {
        CheckOptions { dim_overrides: self.dims.clone(), mesh_override: self.mesh.clone(), strict }
    }
}

/// Reads the `-D` of a sweep, each a list of sizes and ranges; a part with `=` starts the next dim.
/// A dim named twice takes the sizes of both.
pub(crate) fn read_sweeps(texts: &[String], most: usize) -> Result<Vec<SweptDim>, String> {
    let mut sweeps: Vec<SweptDim> = Vec::new();
    for text in texts {
        let mut dim: Option<usize> = None;
        for part in text.split(',') {
            let size = match part.split_once('=') {
                None => part,
                Some((name, size)) => {
                    let name = name.trim();
                    dim = Some(sweeps.iter().position(|s| s.dim == name).unwrap_or_else(|| {
                        sweeps.push(SweptDim { dim: name.to_string(), sizes: Vec::new() });
                        sweeps.len() - 1
                    }));
                    size
                }
            };
            let Some(at) = dim else { return Err(format!("`-D {text}` names no dim")) };
            let sizes = &mut sweeps[at].sizes;
            read_sizes(size.trim(), most, sizes).map_err(|why| format!("`-D {text}`: {why}"))?;
        }
    }
    Ok(sweeps)
}

/// `8`, `48 pad 64`, or a range, both ends included: `1..8`, `1..1024:x2`, `128..1024:+128`.
fn read_sizes(text: &str, most: usize, sizes: &mut Vec<String>) -> Result<(), String> {
    let Some((first, rest)) = text.split_once("..") else {
        if text.is_empty() {
            return Err("a size is missing".to_string());
        }
        sizes.push(text.to_string());
        return Ok(());
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "+1"));
    let number =
        |text: &str| text.trim().parse::<u64>().map_err(|_| format!("`{text}` is no whole number"));
    let (first, last) = (number(first)?, number(last)?);
    let step = step.trim();
    let next: Box<dyn Fn(u64) -> Option<u64>> = match (
        step.strip_prefix('x'),
        step.strip_prefix('+'),
    ) {
        (Some(factor), _) => {
            let factor = number(factor)?;
            if factor < 2 || first == 0 {
                return Err(format!(
                    "the range {text} never ends: it starts at 1 or more, and its factor is 2 or \
                        more"
                ));
            }
            Box::new(move |n| n.checked_mul(factor))
        }
        (_, Some(amount)) => {
            let amount = number(amount)?;
            if amount == 0 {
                return Err(format!("the range {text} never ends: its step is 1 or more"));
            }
            Box::new(move |n| n.checked_add(amount))
        }
        (None, None) => return Err(format!("`{step}` is no step: `x2` doubles, `+128` adds")),
    };
    if first > last {
        return Err(format!("the range {text} is empty"));
    }
    let mut size = Some(first);
    while let Some(n) = size.filter(|n| *n <= last) {
        if sizes.len() >= most {
            return Err(format!("more than {most} sizes"));
        }
        sizes.push(n.to_string());
        size = next(n);
    }
    Ok(())
}

/// Reads the `--memory-limit` of a sweep, in bytes: each a list of limits and of ranges, both ends
/// included, `4GB..64GB:x2` or `4GB..16GB:+2GB`.
pub(crate) fn read_limits(texts: &[String], most: usize) -> Result<Vec<u64>, String> {
    let mut limits = Vec::new();
    for part in texts.iter().flat_map(|text| text.split(',')) {
        let Some((first, rest)) = part.split_once("..") else {
            limits.push(memory_limit::read(part)?);
            continue;
        };
        let (last, step) = rest.split_once(':').unwrap_or((rest, "x2"));
        let (first, last) = (memory_limit::read(first)?, memory_limit::read(last)?);
        let step = step.trim();
        let next: Box<dyn Fn(u64) -> Option<u64>> =
            match (step.strip_prefix('x'), step.strip_prefix('+')) {
                (Some(factor), _) => match factor.parse::<u64>() {
                    Ok(factor) if factor >= 2 => Box::new(move |bytes| bytes.checked_mul(factor)),
                    _ => return Err(format!("the factor of {part} is a whole number from 2")),
                },
                (_, Some(amount)) => {
                    let amount = memory_limit::read(amount).map_err(|_| {
                        format!("the step of {part} is a number of bytes from 1: `+2GB`")
                    })?;
                    Box::new(move |bytes| bytes.checked_add(amount))
                }
                (None, None) => {
                    return Err(format!("`{step}` is no step: `x2` doubles, `+2GB` adds"));
                }
            };
        if first > last {
            return Err(format!("the range {part} is empty"));
        }
        let mut limit = Some(first);
        while let Some(bytes) = limit.filter(|bytes| *bytes <= last) {
            if limits.len() >= most {
                return Err(format!("more than {most} memory limits"));
            }
            limits.push(bytes);
            limit = next(bytes);
        }
    }
    Ok(limits)
}

/// Every mesh with every combination of sizes and memory limits: meshes change slowest, of the dims
/// the last fastest, and memory limits faster than dims.
pub(crate) fn points(
    meshes: &[Vec<(String, u64)>],
    sweeps: &[SweptDim],
    limits: &[u64],
    most: usize,
) -> Result<Vec<Point>, String> {
    let counts =
        sweeps.iter().map(|s| s.sizes.len()).chain([meshes.len().max(1), limits.len().max(1)]);
    let count = counts.fold(1usize, usize::saturating_mul);
    if count > most {
        return Err(format!("the sweep has {count} points, and at most {most} are computed"));
    }
    let mut points = Vec::with_capacity(count);
    for at in 0..count {
        let mut rest = at;
        let memory_limit = limits.get(rest % limits.len().max(1)).copied();
        rest /= limits.len().max(1);
        let mut dims: Vec<(String, String)> = Vec::new();
        for sweep in sweeps.iter().rev() {
            dims.push((sweep.dim.clone(), sweep.sizes[rest % sweep.sizes.len()].clone()));
            rest /= sweep.sizes.len();
        }
        dims.reverse();
        points.push(Point { mesh: meshes.get(rest).cloned(), dims, memory_limit });
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
        let sweeps = read_sweeps(&[text.to_string()], 100)?;
        Ok(sweeps.into_iter().map(|s| (s.dim, s.sizes)).collect())
    }

    #[test]
    fn lists_and_ranges_are_read_with_both_ends() {
        let of = |dim: &str, sizes: &[&str]| {
            (dim.to_string(), sizes.iter().map(ToString::to_string).collect())
        };
        assert_eq!(sizes("B=1..1000:x10"), Ok(vec![of("B", &["1", "10", "100", "1000"])]));
        assert_eq!(sizes("B=2..4,9"), Ok(vec![of("B", &["2", "3", "4", "9"])]));
        assert_eq!(sizes("B=128..400:+128"), Ok(vec![of("B", &["128", "256", "384"])]));
        assert_eq!(sizes("B=1,2,L=8"), Ok(vec![of("B", &["1", "2"]), of("L", &["8"])]));
        assert_eq!(sizes("H=48 pad 64"), Ok(vec![of("H", &["48 pad 64"])]));
    }

    #[test]
    fn a_range_without_an_end_is_refused() {
        for text in [
            "B=0..8:x2",
            "B=1..8:x1",
            "B=1..8:+0",
            "B=8..1",
            "B=1..8:2",
            "B=1..1000000000000",
            "B=",
            "8",
            "B=a..b",
        ] {
            assert!(sizes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn too_many_points_are_refused_before_they_are_made() {
        let sweeps =
            read_sweeps(&["B=1..90".to_string(), "L=1..90".to_string()], 100).expect("two dims");
        assert!(points(&[], &sweeps, &[], 1000).is_err());
        assert_eq!(points(&[], &sweeps, &[], 8100).map(|p| p.len()), Ok(8100));
    }

    #[test]
    fn the_last_dim_changes_fastest_and_the_mesh_slowest() {
        let sweeps = read_sweeps(&["B=1,2".to_string(), "L=3,4".to_string()], 9).expect("two dims");
        let meshes = [vec![("x".to_string(), 2)], vec![("x".to_string(), 4)]];
        let text: Vec<String> = points(&meshes, &sweeps, &[], 9)
            .expect("eight points")
            .iter()
            .map(|p| {
                format!("{} {} {}", p.mesh.as_ref().map_or(0, |m| m[0].1), p.dims[0].1, p.dims[1].1)
            })
            .collect();
        assert_eq!(text, ["2 1 3", "2 1 4", "2 2 3", "2 2 4", "4 1 3", "4 1 4", "4 2 3", "4 2 4"]);
    }

    #[test]
    fn limits_are_read_as_lists_and_ranges_and_change_fastest() {
        let read = |text: &str| read_limits(&[text.to_string()], 100);
        assert_eq!(read("8GB,16GB"), Ok(vec![8_000_000_000, 16_000_000_000]));
        assert_eq!(
            read("1GB..8GB:x2"),
            Ok(vec![1_000_000_000, 2_000_000_000, 4_000_000_000, 8_000_000_000])
        );
        assert_eq!(read("1GB..2GB:+500MB"), Ok(vec![1_000_000_000, 1_500_000_000, 2_000_000_000]));
        for text in
            ["8GB..4GB", "1GB..8GB:x1", "1GB..8GB:2", "1GB..8GB:+0", "", "many", "1B..100000GB:+1B"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        let sweeps = read_sweeps(&["B=1,2".to_string()], 9).expect("a dim");
        let points = points(&[], &sweeps, &[3, 4], 9).expect("four points");
        let all: Vec<(&str, Option<u64>)> =
            points.iter().map(|p| (p.dims[0].1.as_str(), p.memory_limit)).collect();
        assert_eq!(all, [("1", Some(3)), ("1", Some(4)), ("2", Some(3)), ("2", Some(4))]);
    }
}
