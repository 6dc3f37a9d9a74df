//! Compares the tables of `README.md`, which carry one program of two values through the search,
//! with what the search has. `SHARDC_UPDATE=1` writes the tables anew.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{Layout, Program, ValueId};

use crate::Limits;
use crate::emit::emit;
use crate::kernel::Kernels;
use crate::logical::Saturated;
use crate::relax::factors::{Factors, ValueUse};
use crate::relax::graph::{FAR, Queue};
use crate::relax::prices::use_index;
use crate::relax::{Branch, Region, Setting, Wanted, all_plans};
use crate::search::{Search, Sought};
use crate::space::Space;
use crate::table::{Source, Tables};

/// The program of the page, from which its tables are made.
struct Walkthrough {
    program: Arc<Program>,
    hardware: Hardware,
    limits: Limits,
}

impl Walkthrough {
    /// The text of a layout of a value, as its type is written.
    fn layout(&self, value: ValueId, layout: Layout) -> String {
        layout.text(&self.program.mesh, &self.program.dim_names(&self.program.value(value).dims))
    }

    /// A value by the name that the page has for it.
    fn name(&self, value: ValueId) -> &str {
        self.program.value(value).name.as_deref().unwrap_or("y")
    }

    /// Both values, the parameter first.
    fn values(&self) -> Vec<ValueId> {
        self.program.value_ids().collect()
    }

    /// Ticks as nanoseconds; a dash for what cannot be had.
    fn ns(&self, ticks: i64, of: &Factors) -> String {
        match ticks {
            ticks if ticks >= FAR => "-".into(),
            ticks if ticks <= -FAR => "no use".into(),
            ticks => format!("{:.0}", ticks as f64 / of.ticks as f64 / 1000.0),
        }
    }

    fn forms(&self) -> String {
        let mut text = String::from("form  rewritten  takes at least (flops alone)\n");
        let forms = Saturated::new(&self.program, false, &self.limits).forms(&self.limits);
        for (i, form) in forms.all.iter().enumerate() {
            let bound = form.first_bound(&self.hardware);
            let _ =
                writeln!(text, "{i:<6}{:<11}{bound} ps", if form.rewritten { "yes" } else { "no" });
        }
        text
    }

    /// The time of bringing each value from the layout of the row to that of the column.
    fn moves(&self, problem: &Factors) -> String {
        let mut text = String::new();
        for value in self.values() {
            let graph = &problem.graphs[value.index()];
            let names: Vec<String> = graph.layouts.iter().map(|l| self.layout(value, *l)).collect();
            let _ = write!(text, "{:<20}", format!("{} from, to:", self.name(value)));
            names.iter().for_each(|name| {
                let _ = write!(text, "{name:>20}");
            });
            text.push('\n');
            for (from, name) in names.iter().enumerate() {
                let mut cost = vec![FAR; graph.nodes()];
                cost[from] = 0;
                graph.spread_forward(&mut cost, &mut Queue::default());
                let _ = write!(text, "{name:<20}");
                cost[..names.len()].iter().for_each(|cost| {
                    let _ = write!(text, "{:>20}", self.ns(*cost, problem));
                });
                text.push('\n');
            }
        }
        text
    }

    /// The strategies of both values, with a last column of which the heading and the cells are
    /// given.
    fn strategies(
        &self,
        problem: &Factors,
        last_heading: &str,
        last_cell: &dyn Fn(ValueId, usize) -> String,
    ) -> String {
        let mut text = format!(
            "{:<8}{:<22}{:<22}{:>6}{:>20}\n",
            "value", "made in", "from", "own", last_heading
        );
        for value in self.values() {
            let factor = &problem.factors[value.index()];
            for s in 0..factor.out.len() {
                let layout = |value, node| {
                    problem.layout(value, node).map(|l| self.layout(value, l)).unwrap_or_default()
                };
                let reads = factor.reads_of(s).iter().zip(&problem.operands[value.index()]);
                let reads: Vec<String> = reads.map(|(n, o)| layout(*o, *n)).collect();
                let (out, own) = (layout(value, factor.out[s]), self.ns(factor.cost[s], problem));
                let reads = if reads.is_empty() { "as stored".into() } else { reads.join(", ") };
                let last = last_cell(value, s);
                let _ =
                    writeln!(text, "{:<8}{out:<22}{reads:<22}{own:>6}{last:>20}", self.name(value));
            }
        }
        text
    }

    /// What readers pay, and the least time of a plan with each layout.
    fn prices(&self, branch: &Branch) -> String {
        let (problem, prices) = branch.problem_and_prices();
        let mut text = format!(
            "{:<8}{:<22}{:>16}{:>22}\n",
            "value", "layout", "its reader pays", "any plan with it"
        );
        for value in self.values() {
            let uses = &problem.uses[value.index()];
            let reader: ValueUse = uses[0];
            let paid = &prices.paid[value.index()][use_index(problem, value, reader)];
            for (node, layout) in problem.graphs[value.index()].layouts.iter().enumerate() {
                let through = self.ns(prices.through_node[value.index()][node], problem);
                let (paid, layout) = (self.ns(paid[node], problem), self.layout(value, *layout));
                let _ =
                    writeln!(text, "{:<8}{layout:<22}{paid:>16}{through:>22}", self.name(value));
            }
        }
        text
    }

    fn bound(&self, branch: &Branch) -> String {
        let (problem, prices) = branch.problem_and_prices();
        let terms: Vec<(String, i64)> = self
            .values()
            .into_iter()
            .map(|v| (format!("{} and its op", self.name(v)), prices.terms_of(v)))
            .collect();
        let known: i64 = terms.iter().map(|(_, term)| *term).sum();
        let mut text = String::new();
        for (name, term) in
            terms.iter().chain([&("the result".to_string(), prices.bound() - known)])
        {
            let _ = writeln!(text, "{name:<16}{:>10}", self.ns(*term, problem));
        }
        let _ = writeln!(
            text,
            "{:<16}{:>10}   = {} ps",
            "bound",
            self.ns(prices.bound(), problem),
            branch.bound().unwrap_or(0)
        );
        text
    }

    fn region(&self, region: &Region) -> String {
        let mut text = String::from("value   layouts\n");
        for value in self.values() {
            let mut layouts: Vec<Layout> = region.layouts[value.index()].iter().copied().collect();
            layouts.sort_unstable();
            let names: Vec<String> = layouts.into_iter().map(|l| self.layout(value, l)).collect();
            let _ = writeln!(text, "{:<8}{}", self.name(value), names.join("  "));
        }
        text
    }

    fn tables(&self, tables: &Tables) -> String {
        let mut text = format!("{:<8}{:<22}{:<54}{:>10}\n", "value", "e-class", "e-node", "ps");
        for value in self.values() {
            let table = tables.of(value);
            for (to, layout) in table.layouts.iter().enumerate() {
                let mut row = |node: String, time: u64| {
                    let class = self.layout(value, *layout);
                    let _ =
                        writeln!(text, "{:<8}{class:<22}{node:<54}{time:>10}", self.name(value));
                };
                for made in &table.producers[to] {
                    let read = |(value, layout): &(ValueId, u32)| {
                        let of = tables.of(*value).layouts[*layout as usize];
                        format!("{} as {}", self.name(*value), self.layout(*value, of))
                    };
                    let read: Vec<String> = made.reads.iter().map(read).collect();
                    match made.source {
                        Source::Given => row("source".into(), made.cost.time),
                        Source::Pin => row(format!("pin of {}", read.join(", ")), made.cost.time),
                        Source::Kernel(number, _) => {
                            row(format!("kernel {number} of {}", read.join(", ")), made.cost.time);
                        }
                    }
                }
                for arc in &table.arcs_into[to] {
                    let from = self.layout(value, table.layouts[arc.from as usize]);
                    row(format!("{} from {from}", arc.collective.name()), arc.cost.time);
                }
            }
        }
        text
    }
}

/// Puts a table behind its mark on the page.
fn put(page: &str, name: &str, table: &str) -> String {
    let mark = format!("<!-- {name} -->\n```text\n");
    let start = page.find(&mark).unwrap_or_else(|| panic!("README.md has no {mark}")) + mark.len();
    let end = start + page[start..].find("```\n").unwrap_or_else(|| panic!("{name} ends nowhere"));
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    format!("{}{}\n{}", &page[..start], lines.join("\n"), &page[end..])
}

#[test]
fn the_tables_of_the_page_are_those_of_the_search() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(&path).expect("a page");
    let source = page
        .split("```shard\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("a program");
    let checked = check_source(&SourceFile::new("total.shard", source), &CheckOptions::default());
    let program = checked.programs.into_iter().next().expect("a layer without an error");
    let hardware = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
    let walk = Walkthrough { program: Arc::new(program), hardware, limits: Limits::default() };

    let mut made = put(&page, "forms", &walk.forms());
    let form = Saturated::new(&walk.program, false, &walk.limits).written();
    let kernels = Arc::new(Kernels::of_form(form, false, false, &walk.hardware));
    let setting = Setting::of(&kernels.program, &walk.hardware, false, &walk.limits);
    let (branch, _) = all_plans(&kernels, setting, Wanted::default()).expect("prices");
    let (problem, prices) = branch.problem_and_prices();
    made = put(&made, "moves", &walk.moves(problem));
    made = put(&made, "strategies", &walk.strategies(problem, "", &|_, _| String::new()));
    made = put(&made, "prices", &walk.prices(&branch));
    made = put(&made, "bound", &walk.bound(&branch));
    let through =
        |value: ValueId, s: usize| walk.ns(prices.through_strategy[value.index()][s], problem);
    made = put(&made, "fixed", &walk.strategies(problem, "any plan with it", &through));
    let bound = branch.bound().expect("a plan");
    let region = branch.priced().region(bound);
    made = put(&made, "region", &walk.region(&region));
    let space = Space::saturate(Arc::clone(&kernels), &walk.hardware, Some(region), &walk.limits)
        .expect("a space");
    let tables = Tables::new(&space, &walk.hardware).expect("tables");
    made = put(&made, "e-graph", &walk.tables(&tables));
    let sought = Sought { least: bound, upto: None, guide: None };
    let mut search = Search::new(&space, &tables, Some(&[]), false, None, sought);
    let found = search.run(&walk.limits, 1).expect("a plan");
    let solution = &found.solutions[0];
    assert_eq!(solution.cost.time, bound, "the plan costs what the prices say");
    let plan = emit(&kernels, &tables, solution).expect("a plan").plan;
    made = put(&made, "plan", &shard_ir::text::print(&plan));

    if made != page && std::env::var_os("SHARDC_UPDATE").is_some() {
        std::fs::write(&path, &made).expect("a file of ours");
    } else {
        assert_eq!(made, page, "README.md: run this test with SHARDC_UPDATE=1");
    }
}
