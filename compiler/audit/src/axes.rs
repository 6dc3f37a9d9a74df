//! The axes of a mesh along which groups of devices run.

/// A mesh as the user names it: axes with their sizes, major to minor. Device 0 has coordinate 0
/// along all of them.
pub type NamedMesh = [(String, u64)];

/// The axes along which groups run, as indices of the mesh: the axes along which the devices of a
/// group differ, if each group has all devices along these axes. `None` for other groups.
///
/// ```
/// use shard_audit::axes::of_groups;
///
/// let mesh = [("data".to_string(), 2), ("model".to_string(), 4)];
/// assert_eq!(of_groups(&mesh, &[vec![0, 1, 2, 3], vec![4, 5, 6, 7]]), Some(vec![1]));
/// assert_eq!(of_groups(&mesh, &[vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]), Some(vec![0]));
/// assert_eq!(of_groups(&mesh, &[vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]), None);
/// ```
pub fn of_groups(mesh: &NamedMesh, groups: &[Vec<u64>]) -> Option<Vec<usize>> {
    let devices: u64 = mesh.iter().try_fold(1_u64, |n, (_, size)| n.checked_mul(*size))?;
    let mut axes: Option<Vec<usize>> = None;
    for group in groups {
        let &first = group.first()?;
        if group.iter().any(|device| *device >= devices) {
            return None;
        }
        let varying: Vec<usize> = (0..mesh.len())
            .filter(|&axis| {
                group.iter().any(|d| coordinate(mesh, *d, axis) != coordinate(mesh, first, axis))
            })
            .collect();
        let whole: u64 = varying.iter().map(|axis| mesh[*axis].1).product();
        if whole != group.len() as u64 || axes.as_ref().is_some_and(|known| *known != varying) {
            return None;
        }
        axes = Some(varying);
    }
    axes
}

/// The axes along which the devices of some pair of a permute differ.
pub fn of_pairs(mesh: &NamedMesh, pairs: &[(u64, u64)]) -> Vec<usize> {
    (0..mesh.len())
        .filter(|&axis| {
            pairs.iter().any(|(a, b)| coordinate(mesh, *a, axis) != coordinate(mesh, *b, axis))
        })
        .collect()
}

/// The coordinate of a device along an axis.
fn coordinate(mesh: &NamedMesh, device: u64, axis: usize) -> u64 {
    let stride: u64 = mesh[axis + 1..].iter().map(|(_, size)| *size).product();
    device / stride.max(1) % mesh[axis].1.max(1)
}
