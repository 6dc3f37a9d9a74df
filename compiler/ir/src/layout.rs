//! [`Layout`]: where each mesh axis goes in a tensor.

use std::fmt;

use crate::mesh::{AxisId, AxisList, AxisSet, MAX_AXES, Mesh};
pub use crate::mesh_shape::MeshShape;
use crate::tensor::MAX_RANK;

/// How the terms that devices hold of a partial value are combined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reduction {
    /// Terms of a sum: `partialsum`.
    Sum,
    /// Candidates for a maximum: `partialmax`.
    Max,
}

impl Reduction {
    /// The word in a type: `partialsum` or `partialmax`.
    pub fn word(self) -> &'static str {
        match self {
            Reduction::Sum => "partialsum",
            Reduction::Max => "partialmax",
        }
    }

    /// The word of the reduction: `sum` or `max`.
    pub fn short(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Max => "max",
        }
    }
}

/// Where one mesh axis goes in a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Every device along the axis holds the same data.
    Replicated,
    /// Every device along the axis holds a term still to be combined.
    Partial(Reduction),
    /// Every device along the axis holds the attention over its own keys, together with the
    /// statistics that the merge needs: `partialsoftmax`.
    PartialSoftmax,
    /// The axis splits the dim at `dim`; `position` counts from the major side among the axes of
    /// that dim.
    Split {
        /// Index into the tensor's dims.
        dim: usize,
        /// 0 is the major-most axis of the dim.
        position: usize,
    },
}

/// How a tensor lies on a mesh: for each dim the ordered axes that split it, and the axes over
/// which the tensor is partial. It is replicated over all other axes.
///
/// A layout refers to dims by their place in the tensor and to axes by id. It is one machine word,
/// and equality is structural. Every constructor keeps these invariants:
///
/// * an axis has one place (it splits one dim, or is partial, or is replicated);
/// * the positions of the axes of a dim are 0, 1, 2, ...
///
/// Whether split dims divide depends on sizes, too: [`Layout::new`] and [`MeshShape::admits`] check
/// it against a [`MeshShape`].
///
/// An attention whose keys an axis splits is `partialsoftmax` over the axis: each device holds the
/// normalised result over its own keys, and beside it, for each query and head, the logarithm of
/// the sum of its exponentials, in f32. Only an attention makes such a value, and only a merge
/// ([`Collective::SoftmaxMerge`](crate::Collective::SoftmaxMerge)), or an op that is linear in it,
/// reads it.
///
/// When a value is both a partial sum and a partial maximum, the sum is the inner one: the value is
/// `max over y of (sum over x of term)`. So the maximum can be completed only after the sum.
///
/// ```
/// # use shard_ir::*;
/// let mesh = Mesh::new([("x", 4), ("y", 2)]).unwrap();
/// let (x, y) = (mesh.axis("x").unwrap(), mesh.axis("y").unwrap());
/// let shape = MeshShape { mesh: &mesh, sizes: &[16, 64] };
/// let layout = Layout::new(shape, &[AxisList::EMPTY, [x].into_iter().collect()], AxisSet::EMPTY.with(y), AxisSet::EMPTY).unwrap();
/// assert_eq!(layout.text(&mesh, &["B", "E"]), "BE_x(partialsum-y)");
/// assert_eq!(shape.local_sizes(layout), vec![16, 16]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    place: [u8; MAX_AXES],
}

// Ordered and hashed as one machine word, which gives the same order as the bytes.
impl Ord for Layout {
    fn cmp(&self, other: &Layout) -> std::cmp::Ordering {
        u64::from_be_bytes(self.place).cmp(&u64::from_be_bytes(other.place))
    }
}

impl PartialOrd for Layout {
    fn partial_cmp(&self, other: &Layout) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Layout {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from_be_bytes(self.place));
    }
}

const REPLICATED: u8 = 0;
const PARTIAL_SUM: u8 = 1;
const PARTIAL_MAX: u8 = 2;
const PARTIAL_SOFTMAX: u8 = 3;

/// The word in a type for the axes of [`Place::PartialSoftmax`].
pub const PARTIAL_SOFTMAX_WORD: &str = "partialsoftmax";

/// A set of dims of a tensor, by their places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DimSet(u16);

impl DimSet {
    /// None.
    pub const EMPTY: DimSet = DimSet(0);

    /// The set with one more dim; a place that no tensor has is ignored.
    #[must_use]
    pub fn with(self, dim: usize) -> DimSet {
        if dim < MAX_RANK { DimSet(self.0 | 1 << dim) } else { self }
    }

    /// Whether the dim at a place is in the set.
    pub fn contains(self, dim: usize) -> bool {
        dim < MAX_RANK && self.0 >> dim & 1 == 1
    }

    /// The places, lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_RANK).filter(move |dim| self.contains(*dim))
    }
}

impl FromIterator<usize> for DimSet {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> DimSet {
        dims.into_iter().fold(DimSet::EMPTY, DimSet::with)
    }
}

fn encode_split(dim: usize, position: usize) -> u8 {
    debug_assert!(dim < MAX_RANK && position < MAX_AXES);
    ((dim as u8 + 1) << 4) | position as u8
}

/// Why a layout is not legal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// The axis splits two dims, or one dim twice.
    #[error("mesh axis {axis:?} splits dim {first} and dim {second}")]
    AxisSplitsTwice {
        /// The axis.
        axis: AxisId,
        /// The dim that has it first.
        first: usize,
        /// The dim that has it again (the same one for `E_xx`).
        second: usize,
    },
    /// The axis splits a dim and is partial too.
    #[error("mesh axis {axis:?} splits dim {dim} and is partial")]
    AxisSplitsAndPartial {
        /// The axis.
        axis: AxisId,
        /// The dim.
        dim: usize,
    },
    /// The axis is partial in both ways.
    #[error("mesh axis {axis:?} is both partialsum and partialmax")]
    AxisPartialTwice {
        /// The axis.
        axis: AxisId,
    },
    /// The size of a split dim is not divisible by the product of its axes' sizes.
    #[error("dim {dim} of size {size} does not divide over {devices} devices")]
    NotDivisible {
        /// The dim.
        dim: usize,
        /// Its size.
        size: u64,
        /// The product of its axes' sizes.
        devices: u64,
    },
    /// More dims than [`MAX_RANK`].
    #[error("a tensor of {0} dims; the limit is {limit}", limit = MAX_RANK)]
    RankTooLarge(usize),
}

impl Layout {
    /// Replicated over every axis.
    pub const REPLICATED: Layout = Layout { place: [REPLICATED; MAX_AXES] };

    /// The layout with these ordered axes on each dim and these partial axes; checks every
    /// invariant and divisibility.
    pub fn new(
        shape: MeshShape<'_>,
        splits: &[AxisList],
        partial_sum: AxisSet,
        partial_max: AxisSet,
    ) -> Result<Layout, LayoutError> {
        if splits.len() > MAX_RANK {
            return Err(LayoutError::RankTooLarge(splits.len()));
        }
        let mut layout = Layout::REPLICATED;
        for (dim, axes) in splits.iter().enumerate() {
            for (position, axis) in axes.iter().enumerate() {
                if let Place::Split { dim: first, .. } = layout.place(axis) {
                    return Err(LayoutError::AxisSplitsTwice { axis, first, second: dim });
                }
                layout.place[axis.index()] = encode_split(dim, position);
            }
        }
        for (set, kind) in [(partial_sum, Reduction::Sum), (partial_max, Reduction::Max)] {
            for axis in set.iter() {
                match layout.place(axis) {
                    Place::Split { dim, .. } => {
                        return Err(LayoutError::AxisSplitsAndPartial { axis, dim });
                    }
                    Place::Partial(_) | Place::PartialSoftmax => {
                        return Err(LayoutError::AxisPartialTwice { axis });
                    }
                    Place::Replicated => layout = layout.with_partial(axis, kind),
                }
            }
        }
        match shape.first_indivisible(layout) {
            Some(error) => Err(error),
            None => Ok(layout),
        }
    }

    /// Where an axis goes.
    pub fn place(self, axis: AxisId) -> Place {
        match self.place[axis.index()] {
            REPLICATED => Place::Replicated,
            PARTIAL_SUM => Place::Partial(Reduction::Sum),
            PARTIAL_MAX => Place::Partial(Reduction::Max),
            PARTIAL_SOFTMAX => Place::PartialSoftmax,
            code => Place::Split { dim: (code >> 4) as usize - 1, position: (code & 15) as usize },
        }
    }

    /// The dim that exactly these axes split, in this order.
    pub fn split_by(self, axes: AxisList) -> Option<usize> {
        let Place::Split { dim, .. } = self.place(axes.iter().next()?) else { return None };
        (self.axes_of(dim) == axes).then_some(dim)
    }

    /// The axes that split a dim, major to minor.
    pub fn axes_of(self, dim: usize) -> AxisList {
        let mut axes = AxisList::EMPTY;
        for (i, code) in self.place.iter().enumerate() {
            if (code >> 4) as usize == dim + 1 {
                axes.put((code & 15) as usize, AxisId(i as u8));
            }
        }
        axes
    }

    /// Whether an axis splits a dim.
    pub(crate) fn is_on(self, axis: AxisId, dim: usize) -> bool {
        (self.place[axis.index()] >> 4) as usize == dim + 1
    }

    /// The axes over which the value is partial in one way.
    pub fn partial(self, kind: Reduction) -> AxisSet {
        let code = match kind {
            Reduction::Sum => PARTIAL_SUM,
            Reduction::Max => PARTIAL_MAX,
        };
        self.axes_where(|c| c == code)
    }

    /// The axes over which the value is `partialsoftmax`.
    pub fn softmax_axes(self) -> AxisSet {
        self.axes_where(|c| c == PARTIAL_SOFTMAX)
    }

    /// The axes over which the value is partial in any way.
    pub fn partial_axes(self) -> AxisSet {
        self.axes_where(|c| (PARTIAL_SUM..=PARTIAL_SOFTMAX).contains(&c))
    }

    /// The axes that split some dim.
    pub fn split_axes(self) -> AxisSet {
        self.axes_where(|c| c >= 16)
    }

    /// The axes of the mesh over which the value is replicated.
    pub fn replicated_axes(self, mesh: &Mesh) -> AxisSet {
        mesh.all_axes().difference(self.axes_where(|c| c != REPLICATED))
    }

    fn axes_where(self, test: impl Fn(u8) -> bool) -> AxisSet {
        (0..MAX_AXES).filter(|i| test(self.place[*i])).map(|i| AxisId(i as u8)).collect()
    }

    /// Whether two layouts are partial over the same axes in the same ways.
    pub(crate) fn is_partial_like(self, other: Layout) -> bool {
        let sets =
            |l: Layout| [l.partial(Reduction::Sum), l.partial(Reduction::Max), l.softmax_axes()];
        sets(self) == sets(other)
    }

    /// Whether nothing is left to combine.
    pub fn is_complete(self) -> bool {
        self.partial_axes().is_empty()
    }

    /// The layout with a dim split over exactly these axes. They must split no other dim. An axis
    /// that was partial is no longer partial, and an axis that leaves the dim becomes replicated.
    #[must_use]
    pub fn with_dim(mut self, dim: usize, axes: AxisList) -> Layout {
        for code in &mut self.place {
            if (*code >> 4) as usize == dim + 1 {
                *code = REPLICATED;
            }
        }
        for (position, axis) in axes.iter().enumerate() {
            debug_assert!(!matches!(self.place(axis), Place::Split { .. }), "axis on two dims");
            self.place[axis.index()] = encode_split(dim, position);
        }
        self
    }

    /// The layout with an axis, which must split nothing, partial.
    #[must_use]
    pub fn with_partial(mut self, axis: AxisId, kind: Reduction) -> Layout {
        debug_assert!(
            !matches!(self.place(axis), Place::Split { .. }),
            "a split axis cannot be partial"
        );
        self.place[axis.index()] = match kind {
            Reduction::Sum => PARTIAL_SUM,
            Reduction::Max => PARTIAL_MAX,
        };
        self
    }

    /// The layout with an axis, which must split nothing, `partialsoftmax`.
    #[must_use]
    pub fn with_softmax(mut self, axis: AxisId) -> Layout {
        debug_assert!(
            !matches!(self.place(axis), Place::Split { .. }),
            "a split axis cannot be partial"
        );
        self.place[axis.index()] = PARTIAL_SOFTMAX;
        self
    }

    /// The layout with `partialsoftmax` in the place of partial sums: that of an attention whose
    /// last product sums over split keys.
    #[must_use]
    pub fn sums_as_softmax(self) -> Layout {
        self.partial(Reduction::Sum).iter().fold(self, Layout::with_softmax)
    }

    /// The layout with an axis, which must split nothing, replicated.
    #[must_use]
    pub fn with_replicated(mut self, axis: AxisId) -> Layout {
        debug_assert!(!matches!(self.place(axis), Place::Split { .. }), "use with_dim");
        self.place[axis.index()] = REPLICATED;
        self
    }

    /// The number of dims up to the last one that an axis splits.
    pub fn split_rank(self) -> usize {
        self.place.iter().map(|code| usize::from(*code >> 4)).max().unwrap_or(0)
    }

    /// The same layout for a tensor whose dims are reordered: dim `i` of the result is dim
    /// `order[i]` of this one.
    #[must_use]
    pub fn permuted(self, order: &[usize]) -> Layout {
        let mut out = self;
        for code in &mut out.place {
            if *code >= 16 {
                let dim = (*code >> 4) as usize - 1;
                let to = order.iter().position(|d| *d == dim).unwrap_or(dim);
                *code = encode_split(to, (*code & 15) as usize);
            }
        }
        out
    }

    /// The canonical text, `BLE_xyz(partialsum-w)`: compact where every dim name is a letter and
    /// digits, bracketed otherwise, and then the partial axes in mesh order.
    pub fn text<S: AsRef<str>>(self, mesh: &Mesh, dims: &[S]) -> String {
        let compact = !dims.is_empty()
            && dims.iter().all(|d| {
                let mut chars = d.as_ref().chars();
                chars.next().is_some_and(|c| c.is_ascii_uppercase())
                    && chars.all(|c| c.is_ascii_digit())
            });
        let words: Vec<String> = dims
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let axes = self.axes_of(i);
                if axes.is_empty() {
                    name.as_ref().to_string()
                } else {
                    format!("{}_{}", name.as_ref(), mesh.axes_text(axes.iter()))
                }
            })
            .collect();
        let mut out = if compact { words.concat() } else { format!("[{}]", words.join(", ")) };
        let partials: Vec<String> = [Reduction::Sum, Reduction::Max]
            .into_iter()
            .map(|kind| (kind.word(), self.partial(kind)))
            .chain([(PARTIAL_SOFTMAX_WORD, self.softmax_axes())])
            .filter(|(_, axes)| !axes.is_empty())
            .map(|(word, axes)| format!("{word}-{}", mesh.axes_text(axes.iter())))
            .collect();
        if !partials.is_empty() {
            out.push_str(&format!("({})", partials.join(", ")));
        }
        out
    }
}

impl fmt::Debug for Layout {
    /// Axes and dims by number: `[1:[0], Sum:[2]]`. [`Layout::text`] is for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for dim in 0..MAX_RANK {
            if !self.axes_of(dim).is_empty() {
                list.entry(&format_args!("{dim}:{:?}", self.axes_of(dim)));
            }
        }
        for kind in [Reduction::Sum, Reduction::Max] {
            if !self.partial(kind).is_empty() {
                list.entry(&format_args!(
                    "{kind:?}:{:?}",
                    self.partial(kind).iter().map(|a| a.0).collect::<Vec<_>>()
                ));
            }
        }
        if !self.softmax_axes().is_empty() {
            let axes: Vec<u8> = self.softmax_axes().iter().map(|a| a.0).collect();
            list.entry(&format_args!("Softmax:{axes:?}"));
        }
        list.finish()
    }
}
