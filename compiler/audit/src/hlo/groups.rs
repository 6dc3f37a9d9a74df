//! Reads replica groups in their three spellings, and the pairs of a permute.

use super::scan::{Cursor, shortened};

/// The most devices of a program that is read: as many as a mesh may have.
pub const MOST_DEVICES: u64 = shard_ir::mesh::MAX_DEVICES;

/// How a dump spells replica groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// `{{0,1},{2,3}}`
    Lists,
    /// `[4,2]<=[2,4]T(1,0)`: the numbers 0, 1, .. reshaped to `[2,4]`, transposed, and reshaped to
    /// `[4,2]`.
    Iota,
    /// `mesh['a'=2,'b'=4] {'b'}`: over some axes of a mesh.
    Mesh,
}

/// Groups of devices, each in the order of its list. An empty list stands for one group of all
/// devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    /// How they are spelled.
    pub spelling: Spelling,
    /// The devices of each group.
    pub groups: Vec<Vec<u64>>,
}

/// Reads replica groups, or says what is wrong with them.
///
/// ```
/// use shard_audit::hlo::groups::read;
///
/// let wanted = vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
/// for text in [
///     "{{0,4},{1,5},{2,6},{3,7}}",
///     "[4,2]<=[2,4]T(1,0)",
///     "mesh['a'=2,'b'=4] {'a'}",
///     "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}",
///     "mesh['a'=8] {'a':(1)2}",
/// ] {
///     assert_eq!(read(text, 8).unwrap().groups, wanted, "{text}");
/// }
/// assert!(read("[2,4]<=[9]", 8).is_err());
/// ```
pub fn read(text: &str, devices: u64) -> Result<Groups, String> {
    let text = text.trim();
    let (spelling, groups) = if text.starts_with('{') {
        (Spelling::Lists, lists(text)?)
    } else if text.starts_with('[') {
        (Spelling::Iota, iota(text)?)
    } else if text.starts_with("mesh") {
        (Spelling::Mesh, mesh(text)?)
    } else {
        return Err(format!("`{}` is no list of devices", shortened(text)));
    };
    let mut seen = vec![false; usize::try_from(devices.min(MOST_DEVICES)).unwrap_or(0)];
    for device in groups.iter().flatten() {
        match usize::try_from(*device).ok().and_then(|at| seen.get_mut(at)) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(format!("device {device} is in two groups")),
            None => {
                return Err(format!("device {device} is none of the {devices} of the program"));
            }
        }
    }
    Ok(Groups { spelling, groups })
}

/// Reads the pairs of sender and receiver of a permute: `{{0,1},{1,2}}`.
pub fn pairs(text: &str, devices: u64) -> Result<Vec<(u64, u64)>, String> {
    let pair = |list: Vec<u64>| match list[..] {
        [from, to] if from < devices && to < devices => Ok((from, to)),
        [from, to] => Err(format!("devices {from} and {to} are not among {devices}")),
        _ => Err("a pair of devices has two".to_string()),
    };
    lists(text.trim())?.into_iter().map(pair).collect()
}

/// Reads lists of numbers: `{{0,1},{2,3}}`, `{}`.
fn lists(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let wrong = || format!("`{}` is no list of lists of devices", shortened(text));
    let mut cursor = Cursor::new(text);
    let expect = |cursor: &mut Cursor<'_>, text: &str| {
        cursor.skip_space();
        cursor.expect(text).map_err(|_| wrong())
    };
    expect(&mut cursor, "{")?;
    let mut groups = Vec::new();
    cursor.skip_space();
    while !cursor.take("}") {
        expect(&mut cursor, "{")?;
        let mut group = Vec::new();
        cursor.skip_space();
        while !cursor.take("}") {
            group.push(cursor.number("a device").map_err(|_| wrong())?);
            cursor.skip_space();
            cursor.take(",");
            cursor.skip_space();
        }
        groups.push(group);
        cursor.skip_space();
        cursor.take(",");
        cursor.skip_space();
    }
    if cursor.at_end() { Ok(groups) } else { Err(wrong()) }
}

/// Reads numbers between brackets: `[2,4]`.
fn numbers(cursor: &mut Cursor<'_>, open: &str, close: &str) -> Option<Vec<u64>> {
    cursor.expect(open).ok()?;
    let mut found = Vec::new();
    cursor.skip_blanks();
    while !cursor.take(close) {
        found.push(cursor.number("a number").ok()?);
        cursor.skip_blanks();
        cursor.take(",");
        cursor.skip_blanks();
    }
    Some(found)
}

/// The product of sizes; `None` if it is 0 or more than the devices of a program may be.
fn product(sizes: &[u64]) -> Option<u64> {
    let product = sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size))?;
    Some(product).filter(|n| (1..=MOST_DEVICES).contains(n))
}

/// The numbers 0, 1, .. as an array of these sizes, with its dims transposed.
fn transposed(sizes: &[u64], order: &[u64]) -> Option<Vec<u64>> {
    let count = product(sizes)?;
    let mut seen = vec![false; sizes.len()];
    for at in order {
        let seen = seen.get_mut(usize::try_from(*at).ok()?)?;
        if std::mem::replace(seen, true) {
            return None;
        }
    }
    if order.len() != sizes.len() {
        return None;
    }
    let strides: Vec<u64> =
        (0..sizes.len()).map(|at| sizes[at + 1..].iter().product::<u64>()).collect();
    // The dims of the result, each with its size and the stride of its numbers.
    let dims: Vec<(u64, u64)> =
        order.iter().map(|at| (sizes[*at as usize], strides[*at as usize])).collect();
    Some((0..count).map(|index| number_at(&dims, index)).collect())
}

/// The number at an index of an array of `(size, stride)` dims, of which the last varies fastest.
fn number_at(dims: &[(u64, u64)], index: u64) -> u64 {
    let mut rest = index;
    let mut number = 0;
    for (size, stride) in dims.iter().rev() {
        number += rest % size * stride;
        rest /= size;
    }
    number
}

/// Reads `[2,4]T(1,0)` or `[8]`: the numbers 0, 1, .. reshaped and transposed.
fn reshaped(cursor: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let sizes = numbers(cursor, "[", "]")?;
    let in_order: Vec<u64> = (0..sizes.len() as u64).collect();
    let order = if cursor.take("T") { numbers(cursor, "(", ")")? } else { in_order };
    transposed(&sizes, &order)
}

/// Reads groups of the spelling `[4,2]<=[2,4]T(1,0)`.
fn iota(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let wrong = || format!("`{}` cuts no list of devices into groups", shortened(text));
    let mut cursor = Cursor::new(text);
    let sizes = numbers(&mut cursor, "[", "]").ok_or_else(wrong)?;
    cursor.expect("<=").map_err(|_| wrong())?;
    let order = reshaped(&mut cursor).ok_or_else(wrong)?;
    match sizes[..] {
        [groups, each]
            if cursor.at_end()
                && each > 0
                && groups.checked_mul(each) == Some(order.len() as u64) =>
        {
            Ok(order.chunks(each as usize).map(<[u64]>::to_vec).collect())
        }
        _ => Err(wrong()),
    }
}

/// A part of an axis: the index of the axis, the product of the sizes of the parts before it, and
/// its size.
type Part = (usize, u64, u64);

/// Reads groups of the spelling `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}` or `mesh['a'=8]
/// {'a':(2)4}`.
fn mesh(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let wrong = || format!("`{}` is no mesh with the axes of its groups", shortened(text));
    let mut cursor = Cursor::new(text);
    cursor.expect("mesh[").map_err(|_| wrong())?;
    let mut axes: Vec<(&str, u64)> = Vec::new();
    while !cursor.take("]") {
        let name = quoted(&mut cursor).ok_or_else(wrong)?;
        cursor.expect("=").map_err(|_| wrong())?;
        axes.push((name, cursor.number("a size").map_err(|_| wrong())?));
        cursor.take(",");
        cursor.skip_blanks();
    }
    let sizes: Vec<u64> = axes.iter().map(|(_, size)| *size).collect();
    let count = product(&sizes).ok_or_else(wrong)?;
    cursor.skip_blanks();
    let devices = if cursor.take(",") {
        cursor.skip_blanks();
        cursor.expect("device_ids=(").map_err(|_| wrong())?;
        let listed = if cursor.peek() == Some(b'[') {
            let found = reshaped(&mut cursor).ok_or_else(wrong)?;
            cursor.expect(")").map_err(|_| wrong())?;
            found
        } else {
            numbers(&mut cursor, "", ")").ok_or_else(wrong)?
        };
        Some(listed).filter(|listed| listed.len() as u64 == count).ok_or_else(wrong)?
    } else {
        (0..count).collect()
    };
    cursor.skip_blanks();
    cursor.expect("{").map_err(|_| wrong())?;
    let mut parts: Vec<Part> = Vec::new();
    while !cursor.take("}") {
        parts.push(part(&mut cursor, &axes).ok_or_else(wrong)?);
        cursor.take(",");
        cursor.skip_blanks();
    }
    over_axes(&sizes, &devices, &parts).filter(|_| cursor.at_end()).ok_or_else(wrong)
}

/// `'a'`.
fn quoted<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    cursor.skip_blanks();
    let quote = if cursor.take("'") {
        b'\''
    } else {
        cursor.expect("\"").ok()?;
        b'"'
    };
    let name = cursor.take_while(|b| b != quote && b != b'\n');
    (cursor.take("'") || cursor.take("\"")).then_some(name)
}

/// `'a'`, or `'a':(2)4`: the part of size 4 behind a part of size 2.
fn part(cursor: &mut Cursor<'_>, axes: &[(&str, u64)]) -> Option<Part> {
    let name = quoted(cursor)?;
    let axis = axes.iter().position(|(known, _)| *known == name)?;
    if !cursor.take(":") {
        return Some((axis, 1, axes[axis].1));
    }
    cursor.expect("(").ok()?;
    let before = cursor.number("a size").ok()?;
    cursor.expect(")").ok()?;
    let size = cursor.number("a size").ok()?;
    let divides = before > 0
        && size > 0
        && before.checked_mul(size).is_some_and(|n| axes[axis].1.is_multiple_of(n));
    divides.then_some((axis, before, size))
}

/// The groups over parts of the axes of a mesh: the devices of a group differ along these parts, of
/// which the last varies fastest.
fn over_axes(sizes: &[u64], devices: &[u64], parts: &[Part]) -> Option<Vec<Vec<u64>>> {
    let strides: Vec<u64> =
        (0..sizes.len()).map(|at| sizes[at + 1..].iter().product::<u64>()).collect();
    let inside: Vec<(u64, u64)> = parts
        .iter()
        .map(|&(axis, before, size)| (size, sizes[axis] / before / size * strides[axis]))
        .collect();
    let each = product(&inside.iter().map(|(size, _)| *size).collect::<Vec<_>>())?;
    let count = devices.len() as u64;
    let mut seen = vec![false; devices.len()];
    let mut groups = Vec::new();
    for first in 0..count {
        if seen[first as usize] {
            continue;
        }
        let mut group = Vec::new();
        for index in 0..each {
            // The first device not seen yet has coordinate 0 along every part; if a device is seen
            // twice, two parts overlap.
            let at = usize::try_from(first + number_at(&inside, index)).ok()?;
            let seen = seen.get_mut(at)?;
            if std::mem::replace(seen, true) {
                return None;
            }
            group.push(devices[at]);
        }
        groups.push(group);
    }
    Some(groups)
}
