//! Random programs whose blocks may each be computed in several ways.

use super::dice::Dice;

/// Blocks one after another, each of which may be computed in several ways.
pub(crate) fn blocks(dice: &mut Dice) -> String {
    let mut parameters = format!("x0: bf16 {}", dice.of(&["AB?", "A_xB", "AB_y", "A_xB_y"]));
    let (mut body, mut results, mut types) = (String::new(), vec![], vec![]);
    let count = 2 + dice.below(2);
    for i in 0..count {
        let mut weight = |name: &str, dims: &str, dice: &mut Dice| {
            let (a, b) = dims.split_at(1);
            let layout = match dice.below(5) {
                0 => format!("{a}_x{b}"),
                1 => format!("{a}{b}_y"),
                2 => format!("{a}_yx{b}"),
                3 if dims == "BC" => format!("{a}{b}?l"),
                _ => format!("{a}{b}?"),
            };
            parameters += &format!(", {name}{i}: weight bf16 {layout}");
        };
        match dice.below(4) {
            0 => {
                weight("wq", "BC", dice);
                weight("wk", "BC", dice);
                weight("c", "DB", dice);
                weight("v", "DB", dice);
                body += &format!(
                    "  let q{i} = einsum(x{i}, wq{i} -> AC)\n  let k{i} = {}\n  let s{i} = \
                        einsum(q{i}, k{i} -> AD)\n  \
                     let p{i} = {}\n  let y{i} = einsum(p{i}, v{i} -> AB)\n",
                    dice.of(&["einsum(c#, wk# -> DC)", "relu(einsum(c#, wk# -> DC))"])
                        .replace('#', &i.to_string()),
                    dice.of(&["softmax(s# over D)", "gelu(s# * 0.5)", "s# * 0.5", "relu(s#) + s#"])
                        .replace('#', &i.to_string()),
                );
                if dice.below(3) == 0 {
                    results.push(format!("k{i}"));
                    types.push("DC?");
                }
            }
            1 => {
                weight("w", "BC", dice);
                weight("u", "CB", dice);
                body += &format!(
                    "  let h{i} = einsum(x{i}, w{i} -> AC)\n  let y{i} = einsum(h{i}, u{i} -> AB)\n"
                );
                if dice.below(3) == 0 {
                    results.push(format!("gelu(h{i})"));
                    types.push("AC?");
                }
            }
            2 => {
                weight("w", "BC", dice);
                weight("u", "BC", dice);
                weight("v", "CB", dice);
                body += &format!(
                    "  let g{i} = einsum(x{i}, w{i} -> AC) + einsum(x{i}, u{i} -> AC)\n  \
                     let y{i} = einsum({}, v{i} -> AB)\n",
                    dice.of(&["g#", "g# * 0.5", "relu(g#)"]).replace('#', &i.to_string())
                );
            }
            _ => {
                weight("w", "BC", dice);
                body += &format!(
                    "  let h{i} = einsum(x{i}, w{i} -> AC)\n  let z{i} = sum(h{i} over C)\n  \
                     let y{i} = einsum(z{i}, x{i} -> AB)\n"
                );
            }
        }
        let next = dice.of(&[
            "relu(y#)",
            "y#",
            "y# * 0.5",
            "x# + y#",
            "rmsnorm(y# over B)",
            "x# + relu(y#)",
            "relu(y#) * relu(y#)",
        ]);
        let pin = dice.of(&["", "", "", ": A_xB", ": AB_y"]);
        body += &format!("  let x{}{pin} = {}\n", i + 1, next.replace('#', &i.to_string()));
    }
    results.push(format!("x{count}"));
    types.push(dice.of(&["AB?", "A_xB", "AB_y"]));
    in_a_file(dice, &parameters, &body, &results, &types)
}

/// The layer of some blocks, on a mesh, with sizes.
fn in_a_file(
    dice: &mut Dice,
    parameters: &str,
    body: &str,
    results: &[String],
    types: &[&str],
) -> String {
    let sizes: Vec<usize> = (0..4).map(|_| 64 << dice.below(6)).collect();
    let types: Vec<String> =
        types.iter().enumerate().map(|(i, ty)| format!("r{i}: bf16 {ty}")).collect();
    format!(
        "mesh x=2, y=4\ndim A = {}\ndim B = {}\ndim C = {}\ndim D = {}\nlayer f({parameters}) -> \
            ({}) {{\n{body}  \
         return ({})\n}}\n",
        sizes[0],
        sizes[1],
        sizes[2],
        sizes[3],
        types.join(", "),
        results.join(", ")
    )
}
