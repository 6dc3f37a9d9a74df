//! One layout as each community writes it.
//!
//! | notation | of | split over x, then y; partial over z |
//! |---|---|---|
//! | `esti` | ESTI, and this language | `BE_xy(partialsum-z)` |
//! | `book` | the book | `[B,E_XY]{U_Z}` |
//! | `jax` | JAX's `PartitionSpec` | `P(None, ('x','y'), unreduced={'z'})` |
//! | `dtensor` | PyTorch's placements, one a mesh axis | `[Shard(1), Shard(1), Partial(sum)]` |
//! | `shardy` | Shardy's dialect | `[{}, {"x","y"}], unreduced={"z"}` |

use shard_ir::{AxisId, AxisSet, Layout, Mesh, PARTIAL_SOFTMAX_WORD, Place, Plan, Reduction};

shard_ir::worded! {
    /// A way of writing layouts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Notation {
        /// ESTI's, which is the language's own.
        #[default]
        Esti = "esti",
        /// The book's: axes in capitals, unreduced ones behind.
        Book = "book",
        /// JAX's `PartitionSpec`.
        Jax = "jax",
        /// PyTorch's `DTensor` placements.
        Dtensor = "dtensor",
        /// Shardy's, without the name of the mesh.
        Shardy = "shardy",
    }
    /// Its name on the command line.
    fn name;
}

impl Notation {
    /// A layout of a value whose dims have these names.
    ///
    /// ```
    /// use shard_ir::{AxisList, Layout, Mesh, Reduction};
    /// use shard_report::layout_notation::Notation;
    /// let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).unwrap();
    /// let [x, y, z] = ["x", "y", "z"].map(|name| mesh.axis(name).unwrap());
    /// let axes: AxisList = [x, y].into_iter().collect();
    /// let layout = Layout::REPLICATED.with_dim(1, axes).with_partial(z, Reduction::Sum);
    /// let written = Notation::ALL.map(|notation| notation.layout(&mesh, layout, &["B", "E"]));
    /// assert_eq!(written[0], "BE_xy(partialsum-z)");
    /// assert_eq!(written[1], "[B,E_XY]{U_Z}");
    /// assert_eq!(written[2], "P(None, ('x','y'), unreduced={'z'})");
    /// assert_eq!(written[3], "[Shard(1), Shard(1), Partial(sum)]");
    /// assert_eq!(written[4], "[{}, {\"x\",\"y\"}], unreduced={\"z\"}");
    /// ```
    pub fn layout(self, mesh: &Mesh, layout: Layout, dims: &[&str]) -> String {
        match self {
            Notation::Esti => layout.text(mesh, dims),
            Notation::Book => book(mesh, layout, dims),
            Notation::Jax => jax(mesh, layout, dims.len()),
            Notation::Dtensor => dtensor(mesh, layout),
            Notation::Shardy => shardy(mesh, layout, dims.len()),
        }
    }
}

fn book(mesh: &Mesh, layout: Layout, dims: &[&str]) -> String {
    let axes = |axes: &mut dyn Iterator<Item = AxisId>| mesh.axes_text(axes).to_uppercase();
    let dims: Vec<String> = dims
        .iter()
        .enumerate()
        .map(|(at, name)| match layout.axes_of(at) {
            split if split.is_empty() => (*name).to_string(),
            split => format!("{name}_{}", axes(&mut split.iter())),
        })
        .collect();
    let mut terms = Vec::new();
    for (kind, letter) in [(Reduction::Sum, "U"), (Reduction::Max, "Umax")] {
        let set = layout.partial(kind);
        if !set.is_empty() {
            terms.push(format!("{letter}_{}", axes(&mut set.iter())));
        }
    }
    if !layout.softmax_axes().is_empty() {
        terms.push(format!("Usoftmax_{}", axes(&mut layout.softmax_axes().iter())));
    }
    let unreduced =
        if terms.is_empty() { String::new() } else { format!("{{{}}}", terms.join(",")) };
    format!("[{}]{unreduced}", dims.join(","))
}

fn jax(mesh: &Mesh, layout: Layout, rank: usize) -> String {
    let mut parts: Vec<String> = (0..rank)
        .map(|at| {
            let names = quoted(mesh, layout.axes_of(at).iter(), '\'');
            match names.as_slice() {
                [] => "None".to_string(),
                [one] => one.clone(),
                several => format!("({})", several.join(",")),
            }
        })
        .collect();
    parts.extend(unreduced(mesh, layout, '\''));
    format!("P({}){}", parts.join(", "), maximum(mesh, layout))
}

/// One placement for each axis of the mesh as it was declared, axes of size 1 too. A dim that
/// several axes split is cut by them in the order of the mesh; where the layout has another order,
/// the placement says how often the dim was cut before.
fn dtensor(mesh: &Mesh, layout: Layout) -> String {
    let placement = |(name, _): &(String, u64)| {
        let Some(axis) = mesh.axis(name) else { return "Replicate()".to_string() };
        match layout.place(axis) {
            Place::Replicated => "Replicate()".to_string(),
            Place::Partial(Reduction::Sum) => "Partial(sum)".to_string(),
            Place::Partial(Reduction::Max) => "Partial(max)".to_string(),
            Place::PartialSoftmax => "Partial(softmax)".to_string(),
            Place::Split { dim, .. } => {
                let later_in_the_mesh = layout
                    .axes_of(dim)
                    .iter()
                    .take_while(|major| *major != axis)
                    .filter(|a| a.index() > axis.index());
                match mesh.group_size(later_in_the_mesh) {
                    1 => format!("Shard({dim})"),
                    cut => format!("_StridedShard({dim}, split_factor={cut})"),
                }
            }
        }
    };
    let placements: Vec<String> = mesh.declared().iter().map(placement).collect();
    format!("[{}]", placements.join(", "))
}

fn shardy(mesh: &Mesh, layout: Layout, rank: usize) -> String {
    let dims: Vec<String> = (0..rank)
        .map(|at| format!("{{{}}}", quoted(mesh, layout.axes_of(at).iter(), '"').join(",")))
        .collect();
    let unreduced = unreduced(mesh, layout, '"').map_or(String::new(), |set| format!(", {set}"));
    format!("[{}]{unreduced}{}", dims.join(", "), maximum(mesh, layout))
}

/// `unreduced={'x','y'}`: the axes over which a sum is still to be taken.
fn unreduced(mesh: &Mesh, layout: Layout, quote: char) -> Option<String> {
    let axes: AxisSet = layout.partial(Reduction::Sum);
    (!axes.is_empty())
        .then(|| format!("unreduced={{{}}}", quoted(mesh, axes.iter(), quote).join(",")))
}

/// What neither JAX nor Shardy can write: the axes over which a maximum is still to be taken, or
/// attentions over parts of the keys are to be merged.
fn maximum(mesh: &Mesh, layout: Layout) -> String {
    let kinds = [
        (Reduction::Max.word(), layout.partial(Reduction::Max)),
        (PARTIAL_SOFTMAX_WORD, layout.softmax_axes()),
    ];
    let named = kinds.into_iter().filter(|(_, axes)| !axes.is_empty());
    named.map(|(word, axes)| format!(" ({word}-{})", mesh.axes_text(axes.iter()))).collect()
}

fn quoted(mesh: &Mesh, axes: impl Iterator<Item = AxisId>, quote: char) -> Vec<String> {
    axes.map(|axis| format!("{quote}{}{quote}", mesh.name(axis))).collect()
}

/// Every value of a plan in a notation, as lines of comment for the end of its IR text.
pub fn comment_table(plan: &Plan, notation: Notation) -> String {
    let name =
        |id| format!("%{} {}", id, plan.instructions[id as usize].name.as_deref().unwrap_or(""));
    let names: Vec<String> = plan.ids().map(|id| name(id.0)).collect();
    let width = names.iter().map(|name| name.trim_end().chars().count()).max().unwrap_or(0);
    let mut out = format!("\n// layouts of {} as {} writes them\n", plan.name, notation.name());
    for (id, name) in plan.ids().zip(&names) {
        let instr = plan.instruction(id);
        let layout = notation.layout(&plan.mesh, instr.layout, &plan.dim_names(&instr.dims));
        out.push_str(&format!("// {:width$}  {layout}\n", name.trim_end()));
    }
    out
}
