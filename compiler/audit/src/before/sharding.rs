//! Reads shardings of Shardy, `<@mesh, [{"data"}, {}]>`, and of JAX before Shardy,
//! `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`; writes specs as JAX does.

use crate::axes::NamedMesh;
use crate::hlo::groups;

/// The axes of each dim, major to minor, by name.
pub type Spec = Vec<Vec<String>>;

/// Reads the dims of a sharding of Shardy: `[{"data"}, {"a", "b", ?}, {}]`. `None` if it has a part
/// of an axis, which no layout of ours has.
pub fn shardy(text: &str) -> Option<Spec> {
    let inner = text.split_once('[')?.1;
    let mut dims = Vec::new();
    let mut dim: Option<Vec<String>> = None;
    let mut rest = inner;
    loop {
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        match c {
            ']' if dim.is_none() => return Some(dims),
            '{' => dim = Some(Vec::new()),
            '}' => dims.push(dim.take()?),
            '"' => {
                let (name, behind) = rest.split_once('"')?;
                dim.as_mut()?.push(name.to_string());
                if behind.starts_with(':') {
                    return None;
                }
                rest = behind;
            }
            _ => {}
        }
    }
}

/// Reads a sharding of HLO on a mesh: each dim has the axes along which its blocks differ. `None`
/// if blocks run along no axes.
pub fn hlo(text: &str, mesh: &NamedMesh, rank: usize) -> Option<Spec> {
    let text = text.trim().trim_matches(['{', '}']).trim();
    if text == "replicated" || text.starts_with("maximal") {
        return Some(vec![Vec::new(); rank]);
    }
    let tiles = text.strip_prefix("devices=[")?;
    let (sizes, order) = tiles.split_once(']')?;
    let sizes: Vec<u64> = sizes.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
    let order = order.strip_prefix("<=")?.split_whitespace().next()?;
    let devices: u64 = sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size))?;
    let ids = groups::read(&format!("[1,{devices}]<={order}"), devices).ok()?;
    let ids = ids.groups.into_iter().next()?;
    let mut spec = Vec::new();
    for dim in 0..rank {
        // The devices whose tiles differ in this dim alone.
        let stride: u64 = sizes.get(dim + 1..)?.iter().product();
        let tiles: Vec<u64> = (0..*sizes.get(dim)?)
            .map(|at| ids.get(usize::try_from(at * stride).ok()?).copied())
            .collect::<Option<_>>()?;
        let axes = crate::axes::of_groups(mesh, &[tiles])?;
        spec.push(axes.into_iter().map(|axis| mesh[axis].0.clone()).collect());
    }
    Some(spec)
}

/// A spec as JAX writes it, `P(None, 'model')`; dims at the end that are not split are left out.
pub fn partition_spec(spec: &Spec) -> String {
    let long = spec.iter().rposition(|dim| !dim.is_empty()).map_or(0, |last| last + 1);
    let dims: Vec<String> = spec[..long]
        .iter()
        .map(|dim| match &dim[..] {
            [] => "None".to_string(),
            [only] => format!("\"{only}\""),
            several => {
                let names: Vec<String> = several.iter().map(|n| format!("\"{n}\"")).collect();
                format!("({})", names.join(", "))
            }
        })
        .collect();
    format!("P({})", dims.join(", "))
}

/// A spec as JAX writes it, with a `None` for each dim at the end that is not split.
///
/// ```
/// use shard_audit::before::sharding::{partition_spec, whole_partition_spec};
///
/// let spec = vec![vec!["a".to_string(), "b".to_string()], vec![]];
/// assert_eq!(partition_spec(&spec), r#"P(("a", "b"))"#);
/// assert_eq!(whole_partition_spec(&spec), r#"P(("a", "b"), None)"#);
/// ```
pub fn whole_partition_spec(spec: &Spec) -> String {
    let short = partition_spec(spec);
    let long = spec.iter().rposition(|dim| !dim.is_empty()).map_or(0, |last| last + 1);
    let missing = vec!["None"; spec.len() - long].join(", ");
    match (long, spec.len() - long) {
        (_, 0) => short,
        (0, _) => format!("P({missing})"),
        _ => format!("{}, {missing})", short.strip_suffix(')').unwrap_or(&short)),
    }
}
