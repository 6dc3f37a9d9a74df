//! The layout rule of every op is sound: for all layouts of operands that it allows, devices that
//! each apply the op to their blocks get the blocks of what the unsharded op gives.

use crate::common::*;
use shard_ir::op::Partial;
use shard_ir::*;

/// An op on operands, written with letters: `BE`, `EF`, and the result in each order that is to be
/// tried.
struct Case {
    op: Op,
    dims: Vec<Dim>,
    operands: Vec<(Vec<DimId>, Dtype)>,
    results: Vec<Vec<DimId>>,
    exact: bool,
}

impl Case {
    fn new(
        dims_text: &str,
        operands: &[(&str, Dtype)],
        results: &[&str],
        exact: bool,
        op: impl Fn(&dyn Fn(char) -> DimId) -> Op,
    ) -> Case {
        let table = dims(dims_text);
        let dim = |c: char| ids(&table, &c.to_string())[0];
        Case {
            op: op(&dim),
            operands: operands
                .iter()
                .map(|(letters, dtype)| (ids(&table, letters), *dtype))
                .collect(),
            results: results.iter().map(|letters| ids(&table, letters)).collect(),
            exact,
            dims: table,
        }
    }

    /// The layouts in which the op may make its result of these operands: none, one, or several if
    /// the result has a dim of its own.
    fn made(&self, operands: &[Operand<'_>], result: &[DimId], mesh: &Mesh) -> Vec<Layout> {
        let made =
            |wanted| result_layout_as(&self.op, operands, result, wanted, mesh, &self.dims).ok();
        match self.op.own_dim() {
            None => made(Layout::REPLICATED).into_iter().collect(),
            Some(_) => {
                let all = all_layouts(mesh, &self.dims, result).into_iter();
                all.filter(|wanted| made(*wanted) == Some(*wanted)).collect()
            }
        }
    }

    /// Executes the op for all layouts that the rule allows, and gives how many these are.
    fn check(&self, mesh: &Mesh) -> usize {
        let layouts: Vec<Vec<Layout>> =
            self.operands.iter().map(|(d, _)| all_layouts(mesh, &self.dims, d)).collect();
        let types: Vec<TensorType> =
            self.operands.iter().map(|(d, t)| TensorType { dims: d.clone(), dtype: *t }).collect();
        let mut passed = 0;
        let mut chosen = vec![0usize; layouts.len()];
        loop {
            let operands: Vec<Operand<'_>> = self
                .operands
                .iter()
                .zip(&chosen)
                .zip(&layouts)
                .map(|(((dims, dtype), at), all)| Operand { dims, dtype: *dtype, layout: all[*at] })
                .collect();
            for result in &self.results {
                for layout in self.made(&operands, result, mesh) {
                    let typed = result_type(&self.op, &types, result, &self.dims).unwrap();
                    let mut builder = Builder::new(mesh, &self.dims);
                    let inputs: Vec<InstrId> = operands
                        .iter()
                        .map(|o| builder.parameter(o.dims, o.dtype, o.layout))
                        .collect();
                    let kind = InstrKind::Op(self.op.clone());
                    let id = builder.push(kind, &inputs, result, typed.dtype, layout);
                    let report = crate::common::check(&builder.output(id), passed as u64);
                    assert_eq!(report.exact, self.exact);
                    passed += 1;
                }
            }
            // The next choice of layouts.
            let mut place = 0;
            while place < chosen.len() {
                chosen[place] += 1;
                if chosen[place] < layouts[place].len() {
                    break;
                }
                chosen[place] = 0;
                place += 1;
            }
            if place == chosen.len() {
                return passed;
            }
        }
    }
}

use Dtype::{Bf16, Bool, F32, Int8, Int32};

/// One test for each op, on the meshes given. It pins the number of layouts that the rule allows,
/// so that a rule that becomes stricter or laxer fails it.
macro_rules! sound {
    ($($name:ident: $dims:literal, [$(($letters:literal, $dtype:ident)),+] -> [$($result:literal),+], $exact:literal, $op:expr, $([$($mesh:literal),+] = $count:literal),+;)+) => {$(
        #[test]
        fn $name() {
            let case = Case::new($dims, &[$(($letters, $dtype)),+], &[$($result),+], $exact, $op);
            let counts = [$(case.check(&mesh(&[$($mesh),+]))),+];
            assert_eq!(counts, [$($count),+]);
        }
    )+};
}

sound! {
    einsum_matmul: "B=4 E=8 F=12", [("BE", F32), ("EF", Bf16)] -> ["BF", "FB"], true, |_| Op::Einsum, [2, 2] = 78, [4, 2] = 70, [2, 2, 2] = 528;
    einsum_three_axes: "B=8 E=8 F=8", [("BE", F32), ("EF", F32)] -> ["BF"], true, |_| Op::Einsum, [2, 2, 2] = 276;
    einsum_batched: "B=4 H=4 E=4 F=4", [("BHE", F32), ("HEF", F32)] -> ["BHF"], true, |_| Op::Einsum, [2, 2] = 53, [2, 2, 2] = 411;
    einsum_of_one: "B=4 E=4 F=4", [("BEF", F32)] -> ["FB", "B"], true, |_| Op::Einsum, [2, 2] = 56, [2, 2, 2] = 316;
    einsum_of_three: "B=4 E=4", [("BE", F32), ("E", F32), ("B", F32)] -> ["BE", "B"], true, |_| Op::Einsum, [2, 2] = 76, [4, 2] = 68;
    einsum_of_integers: "B=4 E=4 F=4", [("BE", Int8), ("EF", Int8)] -> ["BF"], true, |_| Op::Einsum, [2, 2] = 39;
    einsum_outer: "B=4 E=4", [("B", F32), ("E", F32)] -> ["BE"], true, |_| Op::Einsum, [2, 2] = 27;
    add: "B=4 E=4", [("BE", F32), ("EB", F32)] -> ["BE", "EB"], true, |_| Op::Binary(Binary::Add), [2, 2] = 76, [2, 2, 2] = 488;
    add_broadcast: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Add), [2, 2] = 38, [2, 2, 2] = 244;
    add_outer: "B=4 E=4", [("B", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Add), [2, 2] = 38, [2, 2, 2] = 244;
    add_scalar: "B=4 E=4", [("BE", F32), ("", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Add), [2, 2] = 38;
    sub: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Sub), [2, 2] = 27, [2, 2, 2] = 147;
    mul: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Mul), [2, 2] = 27, [2, 2, 2] = 147;
    div: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], false, |_| Op::Binary(Binary::Div), [2, 2] = 18, [2, 2, 2] = 80;
    div_of_integers: "B=4 E=4", [("BE", Int32), ("E", Int32)] -> ["BE"], false, |_| Op::Binary(Binary::Div), [2, 2] = 11;
    maximum: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Maximum), [2, 2] = 38, [2, 2, 2] = 244;
    minimum: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Minimum), [2, 2] = 27, [2, 2, 2] = 147;
    sum: "B=4 E=4 F=4", [("BEF", F32)] -> ["BF", "FB"], true, |d| Op::Reduce { kind: Reduce::Sum, over: vec![d('E')] }, [2, 2] = 56, [2, 2, 2] = 316;
    sum_over_two: "B=4 E=4 F=4", [("BEF", F32)] -> ["E"], true, |d| Op::Reduce { kind: Reduce::Sum, over: vec![d('F'), d('B')] }, [2, 2] = 28, [2, 2, 2] = 158;
    mean: "B=4 E=8 F=4", [("BEF", F32)] -> ["F"], false, |d| Op::Reduce { kind: Reduce::Mean, over: vec![d('B'), d('E')] }, [2, 2] = 28, [2, 2, 2] = 164;
    max: "B=4 E=4 F=4", [("BEF", F32)] -> ["BF"], true, |d| Op::Reduce { kind: Reduce::Max, over: vec![d('E')] }, [2, 2] = 28, [2, 2, 2] = 158;
    max_over_all: "B=4 E=4", [("BE", F32)] -> [""], true, |d| Op::Reduce { kind: Reduce::Max, over: vec![d('B'), d('E')] }, [2, 2] = 18, [2, 2, 2] = 80;
    softmax: "B=4 E=4 F=4", [("BEF", F32)] -> ["BEF", "EFB"], false, |d| Op::Softmax { over: d('E') }, [2, 2] = 22, [2, 2, 2] = 74;
    rmsnorm: "B=4 E=4 F=4", [("BEF", F32)] -> ["BEF", "EFB"], false, |d| Op::Norm { kind: Norm::Rms, over: d('E') }, [2, 2] = 22;
    layernorm: "B=4 E=4 F=4", [("BEF", F32)] -> ["BEF", "EFB"], false, |d| Op::Norm { kind: Norm::Layer, over: d('F') }, [2, 2] = 22, [2, 2, 2] = 74;
    rename: "B=4 E=4 F=4", [("BE", F32)] -> ["BF", "FB"], true, |d| Op::Rename { from: d('E'), to: d('F') }, [2, 2] = 54, [2, 2, 2] = 294;
    split: "B=4 H=16 K=4 G=4", [("BH", F32)] -> ["BKG", "GBK"], true, |d| Op::Split { from: d('H'), to: vec![d('K'), d('G')] }, [2, 2] = 54, [4, 2] = 48, [2, 2, 2] = 306;
    split_straddling: "H=24 K=6 G=4", [("H", F32)] -> ["KG"], true, |d| Op::Split { from: d('H'), to: vec![d('K'), d('G')] }, [2, 3] = 17, [2, 2, 3] = 70, [4, 2] = 12;
    merge_of_three: "A=2 B=2 C=4 H=16 E=2", [("ABCE", F32)] -> ["HE", "EH"], true, |d| Op::Merge { from: vec![d('A'), d('B'), d('C')], to: d('H') }, [2, 2] = 50, [2, 2, 2] = 258;
    split_of_three: "A=2 B=2 C=4 H=16 E=2", [("HE", F32)] -> ["ABCE", "CEBA"], true, |d| Op::Split { from: d('H'), to: vec![d('A'), d('B'), d('C')] }, [2, 2] = 50, [2, 2, 2] = 258;
    merge: "B=4 H=16 K=4 G=4", [("KBG", F32)] -> ["BH", "HB"], true, |d| Op::Merge { from: vec![d('K'), d('G')], to: d('H') }, [2, 2] = 54, [4, 2] = 48, [2, 2, 2] = 306;
    merge_minor_first: "H=24 K=6 G=4", [("GK", F32)] -> ["H"], true, |d| Op::Merge { from: vec![d('K'), d('G')], to: d('H') }, [2, 3] = 17, [2, 2, 3] = 70;
    concat: "B=4 S=4 T=8 U=12", [("BS", F32), ("TB", F32)] -> ["BU", "UB"], true, |d| Op::Concat { left: d('S'), right: d('T'), to: d('U') }, [2, 2] = 34, [2, 2, 2] = 144;
    concat_of_one_that_lacks_a_dim: "B=4 S=4 T=8 U=12", [("S", F32), ("TB", F32)] -> ["UB", "BU"], true, |d| Op::Concat { left: d('S'), right: d('T'), to: d('U') }, [2, 2] = 34, [2, 2, 2] = 144;
    concat_of_two_that_each_lack_one: "B=4 S=4 T=8 U=12 E=4", [("SE", F32), ("TB", F32)] -> ["UEB", "BUE"], true, |d| Op::Concat { left: d('S'), right: d('T'), to: d('U') }, [2, 2] = 54;
    slice_dim: "B=4 S=8 W=4", [("BS", F32)] -> ["BW", "WB"], true, |d| Op::SliceDim { from: d('S'), to: d('W'), offset: 3 }, [2, 2] = 34, [2, 2, 2] = 144;
    append: "B=4 S=8 L=3", [("BS", F32), ("LB", F32)] -> ["BS", "SB"], true, |d| Op::Append { from: d('L'), to: d('S') }, [2, 2] = 54, [2, 2, 2] = 306;
    append_all: "B=4 S=4", [("BS", F32), ("SB", F32)] -> ["BS"], true, |d| Op::Append { from: d('S'), to: d('S') }, [2, 2] = 27;
    causal: "B=4 L=4 S=8", [("BLS", F32)] -> ["BLS", "SBL"], false, |d| Op::Mask { query: d('L'), key: d('S'), window: None }, [2, 2] = 38, [2, 2, 2] = 188;
    causal_in_a_window: "B=4 L=4 S=8", [("BLS", F32)] -> ["BLS", "SBL"], false, |d| Op::Mask { query: d('L'), key: d('S'), window: Some(3) }, [2, 2] = 38, [2, 2, 2] = 188;
    rope: "B=4 L=4 Q=8", [("LBQ", F32)] -> ["LBQ", "QLB"], false, |d| Op::Rope { over: d('Q'), at: d('L'), extent: None }, [2, 2] = 36, [2, 2, 2] = 160;
    rope_at_the_end: "B=4 L=4 Q=8 S=12", [("LBQ", F32)] -> ["LBQ", "QLB"], false, |d| Op::Rope { over: d('Q'), at: d('L'), extent: Some(d('S')) }, [2, 2] = 36, [2, 2, 2] = 160;
    take: "B=4 L=4 V=8 E=4", [("VE", F32), ("BL", Int32)] -> ["BLE", "EBL"], true, |d| Op::Take { over: d('V') }, [2, 2] = 80, [4, 2] = 68;
    take_three_axes: "B=4 V=8 E=4", [("EV", F32), ("B", Int32)] -> ["BE"], true, |d| Op::Take { over: d('V') }, [2, 2, 2] = 164;
    take_from_a_table_each: "B=4 L=4 V=8", [("BLV", F32), ("BL", Int32)] -> ["BL", "LB"], true, |d| Op::Take { over: d('V') }, [2, 2] = 56, [4, 2] = 48;
    sink_softmax: "B=4 E=6 F=4", [("BEF", F32), ("FB", F32)] -> ["BEF", "EFB"], false, |d| Op::SinkSoftmax { over: d('E') }, [2, 2] = 22, [2, 2, 2] = 74;
    cumsum: "B=4 L=6 E=4", [("BLE", F32)] -> ["BLE", "ELB"], true, |d| Op::Cumsum { over: d('L') }, [2, 2] = 36, [2, 2, 2] = 160;
    shift: "B=4 L=6 E=4", [("BLE", F32)] -> ["BLE", "ELB"], true, |d| Op::Shift { over: d('L'), by: 2 }, [2, 2] = 36, [2, 2, 2] = 160;
    shift_by_more_than_there_is: "B=4 L=2", [("BL", F32)] -> ["BL"], true, |d| Op::Shift { over: d('L'), by: 3 }, [2, 2] = 10;
    conv: "B=4 L=6 E=4 T=3", [("BLE", F32), ("TE", F32)] -> ["BLE", "ELB"], true, |d| Op::Conv { over: d('L'), taps: d('T') }, [2, 2] = 54, [2, 2, 2] = 294;
    conv_of_more_taps_than_positions: "B=4 L=2 T=4", [("LB", F32), ("BT", Bf16)] -> ["BL"], true, |d| Op::Conv { over: d('L'), taps: d('T') }, [2, 2] = 17;
    argmax: "B=4 V=6 E=4", [("BVE", F32)] -> ["BE", "EB"], true, |d| Op::Argmax { over: d('V') }, [2, 2] = 22, [2, 2, 2] = 74;
    locate: "B=4 V=8 E=4", [("BVE", F32), ("EB", F32)] -> ["BE", "EB"], true, |d| Op::Locate { over: d('V') }, [2, 2] = 38, [2, 2, 2] = 188;
    locate_of_integers: "B=4 V=8", [("VB", Int32), ("", Int32)] -> ["B"], true, |d| Op::Locate { over: d('V') }, [2, 2] = 11;
    softplus: "B=4 E=4", [("BE", F32)] -> ["BE"], false, |_| Op::Map(Map::Softplus), [2, 2] = 18;
    less: "B=4 E=4", [("BE", F32), ("E", F32)] -> ["BE"], true, |_| Op::Binary(Binary::Less), [2, 2] = 11;
    less_equal: "B=4 E=4", [("BE", Int32), ("EB", Int32)] -> ["BE", "EB"], true, |_| Op::Binary(Binary::LessEqual), [2, 2] = 22;
    equal: "B=4 E=4", [("B", Int32), ("E", Int32)] -> ["BE"], true, |_| Op::Binary(Binary::Equal), [2, 2] = 11, [2, 2, 2] = 37;
    where_: "B=4 E=4 F=4", [("BE", Bool), ("EF", F32), ("", F32)] -> ["BEF", "FBE"], true, |_| Op::Where, [2, 2] = 38, [2, 2, 2] = 176;
    where_of_two: "B=4 E=4", [("E", Bool), ("BE", F32), ("EB", Bf16)] -> ["EB"], true, |_| Op::Where, [2, 2] = 11;
    topk: "B=4 V=8 K=3", [("BV", F32)] -> ["BK", "KB"], true, |d| Op::TopK { over: d('V'), to: d('K'), parts: None }, [2, 2] = 10;
    topk_of_parts: "B=4 V=8 K=4", [("BV", F32)] -> ["BK", "KB"], true, |d| Op::TopK { over: d('V'), to: d('K'), parts: Some(4) }, [2, 2] = 22, [4, 2] = 14, [2, 2, 2] = 74;
    topk_of_two_parts: "B=4 V=8 K=4", [("VB", F32)] -> ["BK"], true, |d| Op::TopK { over: d('V'), to: d('K'), parts: Some(2) }, [2, 2] = 9, [4, 2] = 5;
    sorted: "B=4 V=6", [("BV", Int32)] -> ["BV"], true, |d| Op::TopK { over: d('V'), to: d('V'), parts: None }, [2, 2] = 5;
    argtopk: "B=4 V=8 K=4", [("BV", F32)] -> ["BK"], true, |d| Op::ArgTopK { over: d('V'), to: d('K'), parts: Some(4) }, [2, 2] = 11, [2, 2, 2] = 37;
    scatter_add: "B=4 L=4 V=6 E=4", [("BLE", F32), ("LB", Int32)] -> ["BVE", "EVB"], true, |d| Op::ScatterAdd { over: vec![d('L')], to: d('V') }, [2, 2] = 76, [2, 2, 2] = 484;
    scatter_add_of_places_that_divide: "L=4 V=8 E=4", [("LE", F32), ("L", Int32)] -> ["VE", "EV"], true, |d| Op::ScatterAdd { over: vec![d('L')], to: d('V') }, [2, 2] = 56, [4, 2] = 48, [2, 2, 2] = 328;
    scatter_add_of_integers: "B=2 L=4 V=4", [("LB", Int32), ("BL", Int32)] -> ["BV"], true, |d| Op::ScatterAdd { over: vec![d('L')], to: d('V') }, [2, 2] = 26;
    scatter_add_over_all: "B=4 L=4 V=6 E=4", [("BLE", F32), ("BL", Int32)] -> ["VE"], true, |d| Op::ScatterAdd { over: vec![d('B'), d('L')], to: d('V') }, [2, 2] = 38;
    pad: "B=4 L=4 M=7", [("BL", F32)] -> ["BM", "MB"], true, |d| Op::Pad { from: d('L'), to: d('M'), offset: 2 }, [2, 2] = 20, [2, 2, 2] = 64;
    scan: "B=4 L=4 E=4", [("BLE", F32), ("LE", F32)] -> ["BLE", "ELB"], true, |d| Op::Scan { over: d('L') }, [2, 2] = 36, [2, 2, 2] = 160;
    scan_by_channel: "B=4 L=4", [("LB", F32), ("B", F32)] -> ["BL"], true, |d| Op::Scan { over: d('L') }, [2, 2] = 10;
    iota: "B=4 E=6", [("BE", F32)] -> ["BE", "EB"], true, |d| Op::Iota { over: d('E') }, [2, 2] = 18;
    route: "G=4 T=5 X=4 C=2", [("GTX", F32)] -> ["GTXC", "XGCT"], true, |d| Op::Route { over: d('X'), at: d('T'), to: d('C'), choices: 2 }, [2, 2] = 10, [2, 2, 2] = 20;
    fetch: "B=4 E=4", [("BE", F32)] -> ["BE", "EB"], true, |_| Op::Fetch, [2, 2] = 54, [2, 2, 2] = 294;
    cast_to_float: "B=4 E=4", [("BE", F32)] -> ["BE", "EB"], true, |_| Op::Cast(Bf16), [2, 2] = 54, [2, 2, 2] = 294;
    cast_to_integer: "B=4 E=4", [("BE", F32)] -> ["BE", "EB"], true, |_| Op::Cast(Int8), [2, 2] = 36;
    cast_from_integer: "B=4 E=4", [("BE", Int32)] -> ["BE", "EB"], true, |_| Op::Cast(F32), [2, 2] = 36;
    cast_to_bool: "B=4 E=4", [("BE", F32)] -> ["BE"], true, |_| Op::Cast(Bool), [2, 2] = 11;
}

#[test]
fn every_map() {
    for map in Map::ALL {
        let exact = matches!(map, Map::Neg | Map::Relu | Map::Square | Map::Abs);
        let case = Case::new("B=4 E=4", &[("BE", F32)], &["BE", "EB"], exact, |_| Op::Map(*map));
        let passed = case.check(&mesh(&[2, 2]));
        // A matrix has 11 complete layouts on two axes, and 18 if each axis may be partial in one
        // way too.
        let expected = if map.row().sums != Partial::No || map.row().maxima != Partial::No {
            2 * 18
        } else {
            2 * 11
        };
        assert_eq!(passed, expected, "{}", map.row().text);
    }
}
