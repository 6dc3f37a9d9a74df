//! The rules: every way of having a value in a layout. A rule that is added here is added to the
//! search, to `explain`, to the tests and to `spec/rules.md`.
//!
//! A rule has a name that states a fact, and a law in one line. Three families build e-nodes of
//! values in layouts:
//!
//! * strategies ([`strategies`]): an op makes a layout from its operands in layouts that fit
//!   together; a composite over a split dim is one op in the search and several in the plan
//!   ([`pieces`]);
//! * moves ([`moves`]): a value in a layout is made from the same value in another;
//! * loops ([`loops`]), where they are asked for: an einsum and one of those moves at once.
//!
//! The logical rules know no layouts: they say which programs compute the same.

pub(crate) mod inside;
pub mod loops;
pub mod moves;
pub mod pieces;
pub mod strategies;

use shard_ir::{AxisId, Collective, Fused, Mesh, Op, Operand, Place};

/// What a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Another way of computing a value, before any layout.
    Logical,
    /// A value that is given, and not computed.
    Source,
    /// What one mesh axis does in an op.
    Strategy,
    /// A move between two layouts of a value.
    Move,
    /// An elementwise op in its producer's kernel.
    Fusion,
    /// An einsum with a collective in its loop; only with `--fuse`.
    Loop,
}

/// One rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// A fact, in snake case.
    pub name: &'static str,
    /// The fact in the notation, on one line.
    pub law: &'static str,
    /// What it is about.
    pub family: Family,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $id:ident = $family:ident, $name:literal, $law:literal;)+) => {
        $($(#[$doc])* pub const $id: Rule = Rule { name: $name, law: $law, family: Family::$family };)+
        /// Every rule, in the order of `spec/rules.md`.
        pub const RULES: &[Rule] = &[$($id),+];
    };
}

rules! {
    /// An einsum of more than two operands.
    LONG_EINSUM = Logical, "long_einsum_is_a_tree_of_products",
        "einsum(a, b, c -> R) is einsum(einsum(a, b), c -> R), and the same holds for every \
            tree over the operands; the product of a weight in blocks and its scales stays one \
            op";
    /// A chain of einsums.
    REASSOCIATED = Logical, "einsum_of_an_einsum_reassociates",
        "einsum(einsum(a, b), c) is einsum(a, einsum(b, c)); the new two einsums may take at \
            most twice the flops of the old two";
    /// A sum over dims of an einsum.
    SUM_OF_EINSUM = Logical, "sum_of_an_einsum_is_an_einsum",
        "sum(einsum(a, b -> BF) over F) is einsum(a, b -> B)";
    /// A shared operand taken out of a sum.
    SHARED_OPERAND = Logical, "terms_that_share_an_operand_are_one_einsum",
        "einsum(x, a) + einsum(x, b) is einsum(x, a + b); the same holds for - and for more \
            terms; the rule is not applied in the other direction";
    /// A mask that hides nothing.
    UNMASKED = Logical, "mask_that_hides_nothing_is_dropped",
        "causal(a over L, S) is a where every query sees every key: L has only one position, \
            which is the last, and no window hides the first key";
    /// A first position found part by part.
    LOCATED = Logical, "argmax_is_where_the_largest_first_stands",
        "argmax(a over V) is -locate(a, max(a over V) over V); each device can compute this \
            for its own part of V";
    /// Sums up to a position, part by part.
    CUMSUM_IN_PARTS = Logical, "cumsum_in_parts_adds_the_sums_before_them",
        "cumsum(a over L) is computed in parts of L: in each part, cumsum(a) plus the sums of \
            all parts before it; devices exchange one number for each part";
    /// A recurrence, part by part.
    SCAN_IN_PARTS = Logical, "scan_in_parts_carries_from_one_to_the_next",
        "scan(a, f over L) is computed in parts of L: in each part, scan(a, f) plus the last \
            result of the part before, times the product of the factors f from the start of the \
            part up to the position";
    /// A shift, part by part.
    SHIFT_IN_PARTS = Logical, "shift_in_parts_takes_the_end_of_the_part_before",
        "shift(a over L, n) is computed in parts of L: each part begins with the last n \
            positions of the part before (with zeros in the first part), and its own positions \
            except its last n follow";
    /// A convolution, part by part.
    CONV_IN_PARTS = Logical, "conv_in_parts_adds_what_the_part_before_reaches",
        "conv(a, w over L, T) is computed in parts of L: in each part conv(a, w), and its \
            first T - 1 positions also add what the last T - 1 positions of the part before give \
            them";
    /// The largest few, part by part.
    LARGEST_OF_PARTS = Logical, "largest_few_are_among_those_of_each_part",
        "topk(a over V -> K) is topk(topk(a over V -> C, n) over C -> K), where the inner one \
            takes the K largest of each of n parts, so that C = n * K; argtopk(a over V -> K) \
            looks up the positions in V of the ones chosen from C";
    /// Equal ops.
    MERGED = Logical, "equal_ops_are_one_value",
        "two equal ops on the same operands are computed once";
    /// A parameter as stored.
    PARAMETER = Source, "parameter_has_its_declared_layout",
        "a parameter is in memory in a layout that its type allows";
    /// A constant.
    CONSTANT = Source, "constant_is_replicated",
        "every device has the number";
    /// An axis on a dim that every operand and the result have.
    BATCH = Strategy, "axis_on_a_batch_dim_splits_operands_and_result",
        "einsum(B_xE, B_xEF -> B_xF): every operand and the result have B, and x splits it in \
            all of them";
    /// An axis on a dim that some operands and the result have.
    FREE = Strategy, "axis_on_a_free_dim_splits_one_operand_and_the_result",
        "einsum(BE, EF_x -> BF_x): x splits F in the operands that have it; operands without \
            F are replicated over x";
    /// An axis on a contracted dim.
    CONTRACTED = Strategy, "axis_on_a_contracted_dim_leaves_a_partial_sum",
        "einsum(BE_x, E_xF -> BF(partialsum-x)); the same holds for sum(a over E), and for \
            take over a split vocabulary";
    /// A max over a split dim.
    CONTRACTED_MAX = Strategy, "max_over_a_split_dim_leaves_a_partial_max",
        "max(BS_x over S) is B(partialmax-x)";
    /// A linear op on a partial sum.
    LINEAR = Strategy, "linear_op_keeps_a_partial_sum",
        "f(a(partialsum-x)) is f(a)(partialsum-x) where f is linear in a and the other operands \
            are replicated over x";
    /// A sum of partial sums.
    SUM_OF_PARTIALS = Strategy, "sum_of_partial_sums_is_partial",
        "a(partialsum-x) + b(partialsum-x) is (a + b)(partialsum-x), so that one reduction \
            completes both";
    /// An increasing op on a partial maximum.
    INCREASING = Strategy, "increasing_op_keeps_a_partial_max",
        "f(a(partialmax-x)) is f(a)(partialmax-x) where f is increasing: a larger number never \
            gives a smaller result";
    /// An axis that an elementwise op or the like does not touch.
    POINTWISE = Strategy, "axis_on_a_dim_passes_through",
        "gelu(BF_x) is BF_x; the same holds for every op that computes each position of the \
            dim by itself";
    /// An axis on the places of a scatter-add.
    PLACES = Strategy, "axis_on_places_adds_what_goes_to_them",
        "scatter_add(a, ids over L -> V_x): a and ids are replicated over x, and each device \
            adds the rows whose ids are in its part of V";
    /// Nothing is split over the axis.
    REPLICATED = Strategy, "replicated_operands_give_a_replicated_result",
        "all devices along x compute the same";
    /// An attention over keys that are split.
    SPLIT_KEYS = Strategy, "axis_on_the_keys_of_an_attention_leaves_a_partial_softmax",
        "an attention that is one kernel, with its keys S split as S_x, gives \
            BHLQ(partialsoftmax-x): each device has the result over its own keys, and the \
            logarithm of the sum of their exponentials";
    /// Parts of joined keys that are split.
    SPLIT_PARTS = Strategy, "axis_on_joined_keys_splits_each_part",
        "concat(a, b, S, T -> U) of S_x and T_x is U_x where U are the keys of an attention \
            that is one kernel: each device has its block of both, which is right where nothing \
            depends on the order of the keys";
    /// A linear op on an attention over a part of the keys.
    CARRIED = Strategy, "linear_op_keeps_a_partial_softmax",
        "f(a(partialsoftmax-x)) is f(a)(partialsoftmax-x) where f is linear in a and sums \
            over no dim of the statistics of a, and the other operands are replicated over x";
    /// A softmax over a split dim.
    SOFTMAX_IN_PIECES = Strategy, "softmax_of_a_split_dim_combines_partial_max_and_sum",
        "softmax(a over S) of BS_x: m = max(a over S) and s = sum(exp(a - m) over S) are \
            all-reduced over x; the result is exp(a - m) / s in BS_x";
    /// An rmsnorm over a split dim.
    RMSNORM_IN_PIECES = Strategy, "rmsnorm_of_a_split_dim_combines_partial_sums_of_squares",
        "rmsnorm(a over E) of BE_x: q = einsum(a, a -> B) is all-reduced over x; the result \
            is a * rsqrt(q / size of E + 1e-6) in BE_x";
    /// A layernorm over a split dim.
    LAYERNORM_IN_PIECES = Strategy, "layernorm_of_a_split_dim_combines_partial_means_and_squares",
        "layernorm(a over E) of BE_x: the mean of a is all-reduced over x; c = a - mean; the \
            rest is rmsnorm(c over E)";
    /// An elementwise op joins its producer's kernel.
    FUSED = Fusion, "elementwise_op_joins_its_producer",
        "gelu(einsum(a, b -> BF)) is one kernel: the result of the einsum is not written to \
            memory";
    /// An op is part of an attention.
    ATTENTION = Fusion, "attention_is_one_kernel",
        "einsum(softmax(einsum(q, k -> BHLS) over S), v -> BHLQ) is one kernel where the chip \
            has such a kernel: the scores are not written to memory";
    /// A concat is part of an attention.
    JOINED = Fusion, "attention_goes_over_joined_keys_as_they_lie",
        "einsum(softmax(einsum(q, concat(a, b) -> LS) over S), concat(c, d) -> LD) is one \
            kernel: the joined values are not written to memory, and a prefix that lacks dims of \
            the rest is read once";
    /// An all-gather in the loop of an einsum.
    LOOPED_GATHER = Loop, "einsum_gathers_an_operand_in_its_loop",
        "einsum(all-gather(y) of BE_y, EF_y -> BF_y) is one loop over the chunks of E";
    /// A reduce-scatter in the loop of an einsum.
    LOOPED_SCATTER = Loop, "einsum_scatters_its_partial_sum_in_its_loop",
        "reduce-scatter(y) along E of einsum(BF_y, F_yE -> BE(partialsum-y)) is one loop over the \
            chunks of E";
    /// An attention whose keys and values travel.
    RING = Loop, "attention_passes_blocks_of_its_keys_round",
        "einsum(softmax(einsum(q, all-gather(z) of k -> LS) over S), all-gather(z) of v -> \
            LD) is one loop over the blocks of S; the results of the blocks are merged";
    /// All-gather.
    ALL_GATHER = Move, "all_gather_undoes_a_split",
        "all-gather(z) along E: E_yz -> E_y";
    /// Slice.
    SLICE = Move, "slice_of_a_replicated_value_is_free",
        "slice(z) along E: E_y -> E_yz, without traffic";
    /// Reduce-scatter.
    REDUCE_SCATTER = Move, "reduce_scatter_completes_and_splits",
        "reduce-scatter(x) along E: E_y(partialsum-x) -> E_yx; the same holds for partialmax";
    /// All-reduce.
    ALL_REDUCE = Move, "all_reduce_is_reduce_scatter_then_all_gather",
        "all-reduce(x): E(partialsum-x) -> E; the same holds for partialmax";
    /// All-to-all.
    ALL_TO_ALL = Move, "all_to_all_moves_a_split_to_another_dim",
        "all-to-all(x) from H to B: BH_x -> B_xH";
    /// Collective-permute.
    PERMUTE = Move, "collective_permute_reorders_blocks",
        "collective-permute: E_xy -> E_yx, or E_x -> E_y where x and y have the same size";
    /// All-gather along several dims.
    ALL_GATHER_DIMS = Move, "all_gather_undoes_splits_of_several_dims_at_once",
        "all-gather(x along B, y along E): B_xE_y -> BE";
    /// Reduce-scatter along several dims.
    REDUCE_SCATTER_DIMS = Move, "reduce_scatter_completes_and_splits_several_dims_at_once",
        "reduce-scatter(x along B, y along E): BE(partialsum-xy) -> B_xE_y; the same holds \
            for partialmax";
    /// Exchange.
    EXCHANGE = Move, "exchange_splits_by_the_same_axes_otherwise",
        "exchange: B_xyE -> BE_yx, or B_xyE_z -> B_yE_xz; it leads between any two layouts \
            that split a value by the same axes";
    /// To-partial.
    TO_PARTIAL = Move, "complete_value_is_a_partial_one_with_zeros",
        "to-partial(x): E -> E(partialsum-x), or E_x -> E(partialsum-x), without traffic";
    /// A merge.
    SOFTMAX_MERGE = Move, "softmax_merge_weighs_and_sums",
        "softmax-merge(x): Q(partialsoftmax-x) -> Q, or -> Q_x along Q; each result is \
            weighed by exp(its statistic - the largest statistic), and the sum is divided by the \
            sum of the weights";
}

/// The rule of a move.
pub fn rule_of_move(collective: &Collective) -> Rule {
    match collective {
        Collective::AllGather { .. } => ALL_GATHER,
        Collective::AllGatherDims { .. } => ALL_GATHER_DIMS,
        Collective::Slice { .. } => SLICE,
        Collective::ReduceScatter { .. } => REDUCE_SCATTER,
        Collective::ReduceScatterDims { .. } => REDUCE_SCATTER_DIMS,
        Collective::AllReduce { .. } => ALL_REDUCE,
        Collective::AllToAll { .. } => ALL_TO_ALL,
        Collective::Permute { .. } => PERMUTE,
        Collective::Exchange { .. } => EXCHANGE,
        Collective::ToPartial { .. } => TO_PARTIAL,
        Collective::SoftmaxMerge { .. } => SOFTMAX_MERGE,
    }
}

/// The rule of a loop.
pub fn rule_of_loop(fused: &Fused) -> Rule {
    match fused {
        Fused::AllGather { .. } => LOOPED_GATHER,
        Fused::ReduceScatter { .. } => LOOPED_SCATTER,
    }
}

/// The rules of a strategy, which say what each mesh axis does in an op on these operands: each
/// rule once, in mesh order of the first axis that it applies to. Axes over which the result is
/// whole have no rule, unless all axes are such.
pub fn rules_of_strategy(
    op: &Op,
    operands: &[Operand<'_>],
    result: Operand<'_>,
    mesh: &Mesh,
) -> Vec<Rule> {
    let mut found: Vec<Rule> = Vec::new();
    for rule in mesh.axis_ids().filter_map(|axis| rule_of_axis(op, operands, result, axis)) {
        if !found.contains(&rule) {
            found.push(rule);
        }
    }
    if found.is_empty() {
        found.push(REPLICATED);
    }
    found
}

/// The rule of what one mesh axis does in an op on these operands; `None` where the result is whole
/// over the axis.
pub fn rule_of_axis(
    op: &Op,
    operands: &[Operand<'_>],
    result: Operand<'_>,
    axis: AxisId,
) -> Option<Rule> {
    let split =
        operands.iter().filter(|o| matches!(o.layout.place(axis), Place::Split { .. })).count();
    let partial =
        operands.iter().filter(|o| matches!(o.layout.place(axis), Place::Partial(_))).count();
    let carried = operands.iter().filter(|o| o.layout.softmax_axes().contains(axis)).count();
    Some(match (result.layout.place(axis), op) {
        (Place::Replicated, _) => return None,
        (Place::PartialSoftmax, _) if carried > 0 => CARRIED,
        (Place::PartialSoftmax, _) => SPLIT_KEYS,
        (Place::Split { dim, .. }, Op::Softmax { over }) if result.dims.get(dim) == Some(over) => {
            SPLIT_KEYS
        }
        (Place::Split { dim, .. }, Op::Concat { to, .. }) if result.dims.get(dim) == Some(to) => {
            SPLIT_PARTS
        }
        (Place::Partial(kind), _) if split > 0 => match kind {
            shard_ir::Reduction::Sum => CONTRACTED,
            shard_ir::Reduction::Max => CONTRACTED_MAX,
        },
        (Place::Partial(shard_ir::Reduction::Max), _) => INCREASING,
        (Place::Partial(shard_ir::Reduction::Sum), _) if partial > 1 => SUM_OF_PARTIALS,
        (Place::Partial(shard_ir::Reduction::Sum), _) => LINEAR,
        (Place::Split { dim, .. }, op) if result.dims.get(dim).copied() == op.own_dim() => PLACES,
        (Place::Split { .. }, Op::Einsum) if split == operands.len() && operands.len() > 1 => BATCH,
        (Place::Split { .. }, Op::Einsum) => FREE,
        (Place::Split { .. }, _) => POINTWISE,
    })
}
