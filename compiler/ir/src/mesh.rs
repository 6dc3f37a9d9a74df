//! The device mesh: named axes, sets and lists of axes.

use std::fmt;

/// How many mesh axes of size greater than one a program may use.
///
/// A [`Layout`](crate::Layout) has one byte for each axis, so that it stays a machine word. With
/// more axes no search could exhaust the plan space, which grows with the factorial of this number.
pub const MAX_AXES: usize = 8;

/// How many axes (those of size one included) a mesh line may name.
pub const MAX_NAMED_AXES: usize = 32;

/// How many devices a mesh may have, so that sizes and byte counts do not overflow in `u64`.
pub const MAX_DEVICES: u64 = 1 << 24;

/// A mesh axis, as an index into [`Mesh::axes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AxisId(pub u8);

/// One named axis of the mesh.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshAxis {
    /// The name in the source: `x`, `data`.
    pub name: String,
    /// How many devices lie along it; at least 2 (axes of size one never reach a [`Mesh`]).
    pub size: u64,
}

/// The devices, as a grid with named axes, major to minor.
///
/// Axes of size one are legal in the source and have no meaning in a plan: the checker keeps their
/// names in [`Mesh::declared`] and drops them from every layout.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mesh {
    axes: Vec<MeshAxis>,
    unit_axes: Vec<String>,
    declared: Vec<(String, u64)>,
}

/// Why a list of axes is not a mesh.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeshError {
    /// An axis of size zero.
    #[error("mesh axis {0} has size 0")]
    ZeroSize(String),
    /// The same name twice.
    #[error("mesh axis {0} is named twice")]
    Duplicate(String),
    /// More than [`MAX_AXES`] axes of size greater than one, or more than [`MAX_NAMED_AXES`] in
    /// all.
    #[error("the mesh has {0} axes; the limit is {limit} of size greater than 1 and \
        {MAX_NAMED_AXES} in all", limit = MAX_AXES)]
    TooManyAxes(usize),
    /// More than [`MAX_DEVICES`] devices.
    #[error("the mesh has more than {MAX_DEVICES} devices")]
    TooManyDevices,
}

impl Mesh {
    /// A mesh of the given `(name, size)` axes, major to minor.
    pub fn new<S: Into<String>>(
        axes: impl IntoIterator<Item = (S, u64)>,
    ) -> Result<Mesh, MeshError> {
        let mut mesh = Mesh::default();
        let mut devices: u64 = 1;
        for (name, size) in axes {
            let name = name.into();
            if size == 0 {
                return Err(MeshError::ZeroSize(name));
            }
            if mesh.declared.iter().any(|(n, _)| *n == name) {
                return Err(MeshError::Duplicate(name));
            }
            devices = devices
                .checked_mul(size)
                .filter(|d| *d <= MAX_DEVICES)
                .ok_or(MeshError::TooManyDevices)?;
            mesh.declared.push((name.clone(), size));
            if size == 1 {
                mesh.unit_axes.push(name);
            } else {
                mesh.axes.push(MeshAxis { name, size });
            }
        }
        if mesh.axes.len() > MAX_AXES || mesh.declared.len() > MAX_NAMED_AXES {
            return Err(MeshError::TooManyAxes(mesh.declared.len()));
        }
        Ok(mesh)
    }

    /// The axes of size greater than one, major to minor.
    pub fn axes(&self) -> &[MeshAxis] {
        &self.axes
    }

    /// Every axis as declared, `(name, size)`, those of size one included.
    pub fn declared(&self) -> &[(String, u64)] {
        &self.declared
    }

    /// Whether an axis of size one has this name.
    pub fn is_unit_axis(&self, name: &str) -> bool {
        self.unit_axes.iter().any(|n| n == name)
    }

    /// All axis ids, major to minor.
    pub fn axis_ids(&self) -> impl DoubleEndedIterator<Item = AxisId> + ExactSizeIterator + use<> {
        (0..self.axes.len()).map(|i| AxisId(i as u8))
    }

    /// The set of all axes.
    pub fn all_axes(&self) -> AxisSet {
        self.axis_ids().collect()
    }

    /// The axis of this name, if the mesh has it and its size is greater than one.
    pub fn axis(&self, name: &str) -> Option<AxisId> {
        self.axes.iter().position(|a| a.name == name).map(|i| AxisId(i as u8))
    }

    /// The size of an axis.
    pub fn size(&self, axis: AxisId) -> u64 {
        self.axes[axis.index()].size
    }

    /// The name of an axis.
    pub fn name(&self, axis: AxisId) -> &str {
        &self.axes[axis.index()].name
    }

    /// The product of the sizes of some axes: the number of devices in a group over them.
    pub fn group_size(&self, axes: impl IntoIterator<Item = AxisId>) -> u64 {
        axes.into_iter().map(|a| self.size(a)).product()
    }

    /// How many devices there are.
    pub fn devices(&self) -> u64 {
        self.group_size(self.axis_ids())
    }

    /// The coordinates of a device along each axis; devices are numbered with the last axis
    /// fastest.
    ///
    /// ```
    /// # use shard_ir::Mesh;
    /// let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    /// assert_eq!(mesh.coordinates(4), vec![1, 1]);
    /// ```
    pub fn coordinates(&self, device: u64) -> Vec<u64> {
        let mut rest = device;
        let mut out = vec![0; self.axes.len()];
        for (i, axis) in self.axes.iter().enumerate().rev() {
            out[i] = rest % axis.size;
            rest /= axis.size;
        }
        out
    }

    /// The number of the device at these coordinates: the inverse of [`Mesh::coordinates`].
    pub fn device_at(&self, coordinates: &[u64]) -> u64 {
        self.axes.iter().zip(coordinates).fold(0, |d, (axis, c)| d * axis.size + c)
    }

    /// Axes as the source writes them: `xyz` where every name is one letter, else `{data,model}`.
    pub fn axes_text(&self, axes: impl IntoIterator<Item = AxisId>) -> String {
        let names: Vec<&str> = axes.into_iter().map(|a| self.name(a)).collect();
        if names.iter().all(|n| n.chars().count() == 1) {
            names.concat()
        } else {
            format!("{{{}}}", names.join(","))
        }
    }
}

impl fmt::Display for Mesh {
    /// `x=4, y=4, z=4`: the declared axes as the `mesh` line has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, size)) in self.declared.iter().enumerate() {
            write!(f, "{}{name}={size}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// A set of mesh axes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AxisSet(u8);

impl AxisSet {
    /// No axis.
    pub const EMPTY: AxisSet = AxisSet(0);

    /// Whether the set has no axis.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// How many axes it has.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }
    /// Whether it has this axis.
    pub fn contains(self, axis: AxisId) -> bool {
        self.0 >> axis.0 & 1 == 1
    }
    /// The set with one more axis.
    pub fn with(self, axis: AxisId) -> AxisSet {
        AxisSet(self.0 | 1 << axis.0)
    }
    /// The set less one axis.
    pub fn without(self, axis: AxisId) -> AxisSet {
        AxisSet(self.0 & !(1 << axis.0))
    }
    /// Axes in either.
    pub fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }
    /// Axes in both.
    pub fn intersection(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }
    /// Axes in this one alone.
    pub fn difference(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }
    /// Whether every axis of this set is in the other.
    pub fn is_subset(self, other: AxisSet) -> bool {
        self.0 & !other.0 == 0
    }
    /// The axes in mesh order.
    pub fn iter(self) -> impl Iterator<Item = AxisId> + Clone {
        (0..MAX_AXES as u8).filter(move |i| self.0 >> i & 1 == 1).map(AxisId)
    }
    /// All subsets but the empty one, in a fixed order.
    pub fn nonempty_subsets(self) -> impl Iterator<Item = AxisSet> {
        let all = self.0;
        // Subtracting the whole set from a subset gives, within the set, the next subset.
        let next =
            move |subset: &u8| Some(subset.wrapping_sub(all) & all).filter(|next| *next != 0);
        std::iter::successors(Some(0), next).skip(1).map(AxisSet)
    }
}

impl FromIterator<AxisId> for AxisSet {
    fn from_iter<T: IntoIterator<Item = AxisId>>(iter: T) -> Self {
        iter.into_iter().fold(AxisSet::EMPTY, AxisSet::with)
    }
}

impl IntoIterator for AxisSet {
    type Item = AxisId;
    type IntoIter = std::vec::IntoIter<AxisId>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}

/// An ordered list of distinct mesh axes, major to minor: the axes over which one dim is split.
///
/// Order has meaning: `E_xy` numbers its blocks `ix * |y| + iy`, `E_yx` the other way round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AxisList {
    len: u8,
    ids: [u8; MAX_AXES],
}

impl AxisList {
    /// No axis: the dim is whole.
    pub const EMPTY: AxisList = AxisList { len: 0, ids: [0; MAX_AXES] };

    /// How many axes.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The axes, major to minor.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = AxisId> + ExactSizeIterator + Clone + use<> {
        let ids = self.ids;
        (0..self.len as usize).map(move |i| AxisId(ids[i]))
    }
    /// The axis at a place, counted from the major side.
    pub fn get(&self, i: usize) -> Option<AxisId> {
        (i < self.len()).then(|| AxisId(self.ids[i]))
    }
    /// The list with one more, minor-most axis. The caller keeps the axes distinct and at most
    /// [`MAX_AXES`].
    #[must_use]
    pub fn then(mut self, axis: AxisId) -> AxisList {
        self.ids[self.len as usize] = axis.0;
        self.len += 1;
        self
    }
    /// This list and then the other.
    #[must_use]
    pub fn concat(self, minor: AxisList) -> AxisList {
        let moved = minor.word().unbounded_shl(8 * u32::from(self.len));
        AxisList { len: self.len + minor.len, ids: (self.word() | moved).to_le_bytes() }
    }
    /// The first `n` axes.
    #[must_use]
    pub fn prefix(&self, n: usize) -> AxisList {
        let len = self.len.min(n as u8);
        let kept = !u64::MAX.unbounded_shl(8 * u32::from(len));
        AxisList { len, ids: (self.word() & kept).to_le_bytes() }
    }
    /// All but the first `n` axes.
    #[must_use]
    pub fn suffix_from(&self, n: usize) -> AxisList {
        let left = self.len.min(n as u8);
        AxisList {
            len: self.len - left,
            ids: self.word().unbounded_shr(8 * u32::from(left)).to_le_bytes(),
        }
    }
    /// The ids, with zeros behind them, as one number: the search cuts and joins lists all the
    /// time.
    fn word(&self) -> u64 {
        u64::from_le_bytes(self.ids)
    }
    /// Puts an axis at a place. The caller must fill all places from the first on.
    pub(crate) fn put(&mut self, position: usize, axis: AxisId) {
        self.ids[position] = axis.0;
        self.len = self.len.max(position as u8 + 1);
    }
    /// Whether the list ends in `tail`.
    pub fn ends_with(&self, tail: &AxisList) -> bool {
        tail.len() <= self.len() && self.suffix_from(self.len() - tail.len()) == *tail
    }
    /// The axes without their order.
    pub fn set(&self) -> AxisSet {
        self.iter().collect()
    }
    /// Every non-empty list of distinct axes drawn from a set, shorter lists first, in a fixed
    /// order.
    pub fn arrangements(set: AxisSet) -> Vec<AxisList> {
        let mut out: Vec<AxisList> = Vec::new();
        let mut last = vec![AxisList::EMPTY];
        for _ in 0..set.len() {
            let mut next = Vec::new();
            for list in &last {
                next.extend(set.difference(list.set()).iter().map(|a| list.then(a)));
            }
            out.extend(next.iter().copied());
            last = next;
        }
        out
    }
}

impl FromIterator<AxisId> for AxisList {
    fn from_iter<T: IntoIterator<Item = AxisId>>(iter: T) -> Self {
        iter.into_iter().fold(AxisList::EMPTY, AxisList::then)
    }
}

impl fmt::Debug for AxisList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|a| a.0)).finish()
    }
}
