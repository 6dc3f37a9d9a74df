//! Every loop of small einsums, executed chunk by chunk: the result is that of the einsum and the
//! collective one after the other, and the busiest device sends what the collective alone sends.

use crate::common::*;
use shard_ir::*;

/// Executes every loop of an einsum `a,b->r`, on operands in every layout without a partial
/// maximum; gives how many gathered and how many scattered.
fn check_all(
    mesh: &Mesh,
    dims_text: &str,
    [a, b, r]: [&str; 3],
    [da, db]: [Dtype; 2],
) -> (usize, usize) {
    let table = dims(dims_text);
    let [a, b, r] = [a, b, r].map(|letters| ids(&table, letters));
    let layouts = |tensor: &[DimId]| -> Vec<Layout> {
        let all = all_layouts(mesh, &table, tensor);
        all.into_iter().filter(|l| l.partial(Reduction::Max).is_empty()).collect()
    };
    let (mut gathered, mut scattered) = (0, 0);
    for left in layouts(&a) {
        for right in layouts(&b) {
            let operands = [
                Operand { dims: &a, dtype: da, layout: left },
                Operand { dims: &b, dtype: db, layout: right },
            ];
            for (fused, inside) in Fused::all_on(&operands, &r, mesh, &table) {
                let mut builder = Builder::new(mesh, &table);
                let read = [builder.parameter(&a, da, left), builder.parameter(&b, db, right)];
                let id =
                    builder.push(InstrKind::CollectiveEinsum(fused), &read, &r, da, inside.result);
                let plan = builder.output(id);
                let unfused = plan.unfused();
                assert_eq!(verify::verify(&plan), Ok(()), "{}", text::print(&plan));
                assert_eq!(verify::verify(&unfused), Ok(()), "{}", text::print(&unfused));
                assert_eq!(
                    text::parse(&text::print(&plan)).as_deref(),
                    Ok(std::slice::from_ref(&plan))
                );
                let seed = (gathered + scattered) as u64;
                let report = check(&plan, seed);
                assert!(report.exact);
                let by_itself = check(&unfused, seed);
                assert_eq!(report.outputs, by_itself.outputs, "{}", text::print(&plan));
                assert_eq!(report.collectives[0].wire_bytes, by_itself.collectives[0].wire_bytes);
                match fused {
                    Fused::AllGather { .. } => gathered += 1,
                    Fused::ReduceScatter { .. } => scattered += 1,
                }
            }
        }
    }
    (gathered, scattered)
}

macro_rules! runs_as_its_two_steps {
    ($($name:ident: [$($mesh:literal),+], $dims:literal, $equation:expr, $dtypes:expr => $count:expr;)+) => {$(
        #[test]
        fn $name() {
            assert_eq!(check_all(&mesh(&[$($mesh),+]), $dims, $equation, $dtypes), $count);
        }
    )+};
}

const F32: [Dtype; 2] = [Dtype::F32, Dtype::F32];

runs_as_its_two_steps! {
    a_matrix_product_on_one_axis: [4], "B=4 E=8 F=12", ["BE", "EF", "BF"], F32 => (12, 6);
    a_matrix_product_on_two_axes: [2, 3], "B=6 E=6 F=12", ["BE", "EF", "BF"], F32 => (232, 116);
    a_matrix_product_of_narrow_weights: [2, 2], "B=4 E=4 F=8", ["BE", "EF", "BF"], [Dtype::Bf16, Dtype::Int8] => (232, 116);
    a_product_turned: [2, 2], "B=4 E=4 F=4", ["BE", "EF", "FB"], F32 => (232, 116);
    a_batch_of_products: [2, 2], "B=4 H=2 L=2 S=4", ["BHL", "BSH", "BLS"], F32 => (286, 146);
    an_outer_product: [2, 2], "B=4 F=4", ["B", "F", "BF"], F32 => (104, 56);
    a_sum_of_one_operand_alone: [2, 2], "B=4 E=4 F=4", ["BE", "BF", "B"], F32 => (232, 88);
}
