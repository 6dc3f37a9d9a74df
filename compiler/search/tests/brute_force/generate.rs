//! Small random programs and random hardware, of every kind that the search treats in its own way.

mod bodies;

use shard_cost::Hardware;
use shard_grammar::Span;
use shard_ir::{
    AxisList, AxisSet, Binary, Cuts, Def, Dim, DimId, DimPattern, Dtype, LabelId, LayoutPattern,
    Map, Mesh, Norm, Op, Output, ParameterKind, Program, Reduce, TensorType, Value, ValueId,
    result_type,
};
use shard_runtime::Random;

/// A program and the hardware that it is lowered for.
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) hardware: Hardware,
    pub(crate) hardware_text: String,
}

/// The n-th program of a seed, on a flat network.
pub(crate) fn case(seed: u64, number: u64) -> Case {
    case_with(seed, number, flat, false, Maker::body)
}

/// The n-th program of a seed that can be computed in several ways, on a flat network.
pub(crate) fn case_with_forms(seed: u64, number: u64) -> Case {
    case_with(seed, number, flat, false, Maker::body_with_forms)
}

/// The n-th program of a seed with a product of three, one of which may be the scales of another.
pub(crate) fn case_with_scales(seed: u64, number: u64) -> Case {
    case_with(seed, number, flat, false, Maker::body_with_scales)
}

/// The n-th program of a seed in which something runs along a dim that may be cut in parts.
pub(crate) fn case_along_lines(seed: u64, number: u64) -> Case {
    let network = if number.is_multiple_of(2) { networked } else { flat };
    let mut case = case_with(seed, number, network, false, Maker::body_along_lines);
    shard_ir::cuts::cut_dims(std::slice::from_mut(&mut case.program));
    case
}

/// The n-th program of a seed in which rows are added up by their ids, and perhaps looked up.
pub(crate) fn case_by_ids(seed: u64, number: u64) -> Case {
    let network = if number.is_multiple_of(2) { networked } else { flat };
    case_with(seed, number, network, false, Maker::body_by_ids)
}

/// The n-th program of a seed, on a torus, behind switches, or with several networks.
pub(crate) fn networked_case(seed: u64, number: u64) -> Case {
    case_with(seed, number, networked, false, Maker::body)
}

/// The n-th program of a seed with weights in host memory.
pub(crate) fn hosted_case(seed: u64, number: u64) -> Case {
    case_with(
        seed,
        number,
        if number.is_multiple_of(3) { networked } else { flat },
        true,
        Maker::body,
    )
}

fn case_with(
    seed: u64,
    number: u64,
    network: fn(&mut Random) -> String,
    with_host: bool,
    body: fn(&mut Maker),
) -> Case {
    let mut random = Random::for_part(seed, number);
    let mut hardware_text = hardware(&mut random, network);
    if with_host {
        hardware_text += &format!("[host]\npcie_bandwidth = {}\n", rate(&mut random, 7, 12));
    }
    let hardware = Hardware::parse(&hardware_text).expect("the file is well formed");
    let mut maker = Maker { with_host, ..Maker::new(random) };
    body(&mut maker);
    maker.results();
    Case { program: maker.program, hardware, hardware_text }
}

/// A figure, at times too large to matter.
fn rate(random: &mut Random, low: i64, high: i64) -> String {
    let exponent = if random.below(12) == 0 { 17 } else { random.between(low, high) };
    format!("{}.{}e{exponent}", random.between(1, 9), random.below(10))
}

/// Compute, memory and network each fast or slow by themselves.
fn hardware(random: &mut Random, network: fn(&mut Random) -> String) -> String {
    let (flops, slow_flops) = (rate(random, 8, 14), rate(random, 8, 13));
    let memory = rate(random, 8, 13);
    format!(
        "name = \"random\"\n[chip]\nflops = {{ bf16 = {flops}, f32 = {slow_flops} }}\nhbm_bytes = \
            1e12\n\
         hbm_bandwidth = {memory}\n[network]\n{}\n",
        network(random)
    )
}

fn latency(random: &mut Random) -> &'static str {
    match random.below(8) {
        0 => "1e-9",
        1 => "1e-7",
        2 => "3e-12",
        _ => "0.0",
    }
}

fn flat(random: &mut Random) -> String {
    let (bandwidth, latency) = (rate(random, 7, 12), latency(random));
    format!("kind = \"flat\"\nbandwidth = {bandwidth}\nlatency = {latency}")
}

/// Mostly a torus or switches; now and then one mesh axis has a network of its own, or stands for
/// two torus axes.
fn networked(random: &mut Random) -> String {
    let own = match random.below(6) {
        0 | 1 => {
            let fabric = fabric(random).replace('\n', ", ");
            format!(
                "\n[network.axes]\n{} = {{ {fabric} }}",
                ["x", "y", "z"][random.below(3) as usize]
            )
        }
        2 => "\n[network.axes]\nx = { torus = [2, 2] }".to_string(),
        _ => String::new(),
    };
    fabric(random) + &own
}

fn fabric(random: &mut Random) -> String {
    let latency = latency(random);
    match random.below(6) {
        0 => flat(random),
        1..=3 => {
            let rule = ["always", "never", "multiple-of-4", "full-axis-2", "full-axis-4"]
                [random.below(5) as usize];
            let link = rate(random, 7, 12);
            format!(
                "kind = \"torus\"\nlink_bandwidth = {link}\nhop_latency = {latency}\nwraparound \
                    = \"{rule}\""
            )
        }
        _ => {
            let (inside, nic, node) =
                (rate(random, 7, 12), rate(random, 7, 12), [2, 3, 4, 8][random.below(4) as usize]);
            format!(
                "kind = \"switched\"\nnode = {node}\nnode_bandwidth = {inside}\nnic_bandwidth = \
                    {nic}\nalpha = {latency}"
            )
        }
    }
}

const MESHES: &[&[u64]] = &[
    &[2, 2],
    &[4, 2],
    &[3, 2],
    &[2, 2],
    &[2, 4],
    &[2, 2, 2],
    &[4, 4],
    &[4],
    &[2],
    &[6],
    &[2, 3],
    &[2, 2, 2],
];

struct Maker {
    random: Random,
    program: Program,
    /// The dims that the label belongs to, sorted.
    labelled: Option<Vec<DimId>>,
    max_rank: usize,
    /// Whether weights may lie in the memory of the host.
    with_host: bool,
}

impl Maker {
    fn new(mut random: Random) -> Maker {
        let sizes = MESHES[random.below(MESHES.len() as u64) as usize];
        let mesh = Mesh::new(["x", "y", "z"].into_iter().zip(sizes.iter().copied()))
            .expect("the mesh is legal");
        let pool: &[u64] = match random.below(4) {
            0 => &[1, 2, 3, 4, 6, 8],
            1 => &[4, 8, 12, 16, 24],
            2 => &[2, 4, 6, 12, 5],
            _ => &[8, 16, 24, 48],
        };
        let dims = ["A", "B", "C", "D", "E"]
            .iter()
            .map(|name| {
                let size = pool[random.below(pool.len() as u64) as usize];
                Dim { name: (*name).to_string(), size, useful: size }
            })
            .collect();
        let max_rank = if sizes.len() == 3 { 2 } else { 3 };
        let program = Program {
            name: "random".into(),
            repeat: 1,
            phase: None,
            strict: false,
            hardware: None,
            mesh,
            dims,
            cuts: Cuts::default(),
            values: Vec::new(),
            outputs: Vec::new(),
            folds: Vec::new(),
            labels: Vec::new(),
        };
        Maker { random, program, labelled: None, max_rank, with_host: false }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize].clone()
    }

    fn push(&mut self, ty: TensorType, def: Def) -> ValueId {
        let id = ValueId(self.program.values.len() as u32);
        let TensorType { dims, dtype } = ty;
        let name = Some(format!("v{}", id.0));
        let span = Span { start: 0, end: 0 };
        self.program.values.push(Value {
            name,
            dims,
            dtype,
            def,
            span,
            in_layers: Vec::new(),
            times: 1,
            fold: None,
        });
        id
    }

    fn type_of(&self, id: ValueId) -> TensorType {
        let value = self.program.value(id);
        TensorType { dims: value.dims.clone(), dtype: value.dtype }
    }

    fn some_dims(&mut self, most: usize) -> Vec<DimId> {
        let mut all: Vec<DimId> = (0..self.program.dims.len() as u16).map(DimId).collect();
        let count = 1 + self.random.below(most as u64) as usize;
        (0..count).map(|_| all.remove(self.random.below(all.len() as u64) as usize)).collect()
    }

    fn parameter(&mut self, dims: Vec<DimId>, dtype: Dtype) -> ValueId {
        let kind = self.pick(&[ParameterKind::Activation, ParameterKind::Weight]);
        if self.with_host && self.chance(2) {
            return self.fetched(dims, dtype);
        }
        let pattern = self.pattern(&dims, true);
        self.push(TensorType { dims, dtype }, Def::Parameter { kind, pattern })
    }

    /// A weight of the host, now and then pinned in the memory of the host, and fetched.
    fn fetched(&mut self, dims: Vec<DimId>, dtype: Dtype) -> ValueId {
        let ty = TensorType { dims, dtype };
        let mut pattern = self.pattern(&ty.dims, true);
        // What lies there whole is cut; terms of a sum are stored nowhere.
        (pattern.partial_sum, pattern.partial_max) = (AxisSet::EMPTY, AxisSet::EMPTY);
        let mut at =
            self.push(ty.clone(), Def::Parameter { kind: ParameterKind::HostWeight, pattern });
        if self.chance(6) {
            let (pattern, written) = (self.pattern(&ty.dims, false), self.chance(2));
            at = self.push(ty.clone(), Def::Pin { operand: at, pattern, written });
        }
        self.push(ty, Def::Op { op: Op::Fetch, operands: vec![at] })
    }

    /// A value to read, most often a late one.
    fn some_value(&mut self) -> ValueId {
        let count = self.program.values.len() as u64;
        let back = self
            .random
            .below(count)
            .min(self.random.below(count))
            .min(self.random.below(count + 2));
        let mut id = ValueId((count - 1 - back) as u32);
        // What lies with the host is read when it is fetched, at most two values on.
        while self.program.in_host_memory(id) {
            id = ValueId(id.0 + 1);
        }
        id
    }

    fn op(&mut self) -> Option<ValueId> {
        let a = self.some_value();
        let dims = self.type_of(a).dims;
        match self.random.below(17) {
            0..=3 => {
                let b = self.factor_of(a, &dims);
                self.einsum(&[a, b])
            }
            4 => self.einsum(&[a]),
            5..=7 => {
                let b = match self.random.below(6) {
                    0 => a,
                    1 => {
                        let dtype = self.type_of(a).dtype;
                        self.push(TensorType { dims: Vec::new(), dtype }, Def::Constant(2.0))
                    }
                    2 if !dims.is_empty() => {
                        let dtype = self.type_of(a).dtype;
                        let dim = self.pick(&dims);
                        self.parameter(vec![dim], dtype)
                    }
                    _ => self.some_value(),
                };
                let binary = self.pick(&[
                    Binary::Add,
                    Binary::Add,
                    Binary::Sub,
                    Binary::Mul,
                    Binary::Maximum,
                    Binary::Less,
                    Binary::Equal,
                ]);
                let (a, b) = if self.chance(3) { (b, a) } else { (a, b) };
                self.typed(Op::Binary(binary), &[a, b], &[])
            }
            8..=9 => {
                let map = self.pick(&[Map::Relu, Map::Gelu, Map::Neg]);
                self.typed(Op::Map(map), &[a], &[])
            }
            _ if dims.is_empty() => None,
            10..=11 => {
                let over = self.pick(&dims);
                let norm = |kind| Op::Norm { kind, over };
                let op = self.pick(&[Op::Softmax { over }, norm(Norm::Rms), norm(Norm::Layer)]);
                self.typed(op, &[a], &[])
            }
            12 => {
                let over = self.pick(&dims);
                self.along(a, over)
            }
            13 => {
                let over = self.pick(&dims);
                if self.chance(2) {
                    return self.typed(Op::Argmax { over }, &[a], &[]);
                }
                if self.chance(3) {
                    let sink = self.some_value();
                    return self.typed(Op::SinkSoftmax { over }, &[a, sink], &[]);
                }
                let largest = Op::Reduce { kind: Reduce::Max, over: vec![over] };
                let largest = self.typed(largest, &[a], &[])?;
                self.typed(Op::Locate { over }, &[a, largest], &[])
            }
            _ => {
                let kind = self.pick(&[Reduce::Sum, Reduce::Max]);
                let over = vec![self.pick(&dims)];
                self.typed(Op::Reduce { kind, over }, &[a], &[])
            }
        }
    }

    /// A factor for a product with a value: another value, or a weight that shares a dim with it.
    fn factor_of(&mut self, a: ValueId, dims: &[DimId]) -> ValueId {
        let dtype = self.type_of(a).dtype;
        match self.random.below(4) {
            0 => self.some_value(),
            // A weight that shares a dim with it.
            _ => {
                let mut dims_of_b: Vec<DimId> =
                    dims.first().map(|_| self.pick(dims)).into_iter().collect();
                for d in self.some_dims(self.max_rank.min(2)) {
                    if !dims_of_b.contains(&d) && dims_of_b.len() < 2 {
                        dims_of_b.push(d);
                    }
                }
                let narrow = dtype == Dtype::Bf16 && self.chance(6);
                let stored = if dims_of_b.len() < 2 { Dtype::F4 } else { Dtype::Int8 };
                self.parameter(dims_of_b, if narrow { stored } else { dtype })
            }
        }
    }

    /// An op on a value that runs along one of its dims.
    fn along(&mut self, a: ValueId, over: DimId) -> Option<ValueId> {
        if self.chance(3) {
            // The entries of one value up to a position, and those of another behind it.
            let at = self.typed(Op::Iota { over }, &[a], &[])?;
            let ty = TensorType { dims: Vec::new(), dtype: Dtype::Int32 };
            let middle = self.push(ty, Def::Constant(1.0));
            let holds = self.typed(Op::Binary(Binary::LessEqual), &[at, middle], &[])?;
            let b = self.some_value();
            return self.typed(Op::Where, &[holds, a, b], &[]);
        }
        if self.chance(3) {
            let parts = self.pick(&[None, Some(2)]);
            let to = over;
            let op = self.pick(&[Op::TopK { over, to, parts }, Op::ArgTopK { over, to, parts }]);
            return self.typed(op, &[a], &[]);
        }
        if self.chance(3) {
            let factor = self.some_value();
            return self.typed(Op::Scan { over }, &[a, factor], &[]);
        }
        let op = self.pick(&[
            Op::Cumsum { over },
            Op::Shift { over, by: 1 },
            Op::Pad { from: over, to: over, offset: 0 },
        ]);
        self.typed(op, &[a], &[])
    }

    /// An einsum whose result has some of the dims of the operands.
    fn einsum(&mut self, operands: &[ValueId]) -> Option<ValueId> {
        let mut dims: Vec<DimId> = Vec::new();
        for operand in operands {
            for dim in self.type_of(*operand).dims {
                if !dims.contains(&dim) {
                    dims.push(dim);
                }
            }
        }
        let shared = |d: &DimId| {
            operands.iter().all(|o| self.program.value(*o).dims.contains(d)) && operands.len() > 1
        };
        let is_shared: Vec<bool> = dims.iter().map(shared).collect();
        let mut named = Vec::new();
        for (dim, shared) in dims.into_iter().zip(is_shared) {
            // A dim of both is most often contracted, one of a single operand most often stays.
            if self.chance(5) == shared {
                named.push(dim);
            }
        }
        if self.chance(4) {
            named.reverse();
        }
        self.typed(Op::Einsum, operands, &named)
    }

    fn typed(&mut self, op: Op, operands: &[ValueId], named: &[DimId]) -> Option<ValueId> {
        let types: Vec<TensorType> = operands.iter().map(|o| self.type_of(*o)).collect();
        let mut ty = result_type(&op, &types, named, &self.program.dims).ok()?;
        // Now and then an einsum states what it is accumulated in.
        if op == Op::Einsum && ty.dtype.is_float() && self.chance(6) {
            ty.dtype = self.pick(&[Dtype::F32, Dtype::F32, Dtype::Bf16]);
        }
        (ty.dims.len() <= self.max_rank)
            .then(|| self.push(ty, Def::Op { op, operands: operands.to_vec() }))
    }

    fn pin(&mut self) {
        let operand = self.some_value();
        let ty = self.type_of(operand);
        let pattern = self.pattern(&ty.dims, false);
        let written = self.chance(2);
        self.push(ty, Def::Pin { operand, pattern, written });
    }

    /// Makes results of all values that nothing reads, and now and then of one that is read.
    fn results(&mut self) {
        let ids: Vec<ValueId> = self.program.value_ids().collect();
        let read: Vec<ValueId> =
            self.program.values.iter().flat_map(|v| v.def.operands().to_vec()).collect();
        for id in ids {
            let is_source =
                matches!(self.program.value(id).def, Def::Parameter { .. } | Def::Constant(_));
            if ((read.contains(&id) || is_source) && !self.chance(20))
                || self.program.in_host_memory(id)
            {
                continue;
            }
            let dims = self.program.value(id).dims.clone();
            let pattern = self.pattern(&dims, true);
            let mut declared = dims;
            if self.chance(4) {
                declared.reverse();
            }
            let span = Span { start: 0, end: 0 };
            let name = format!("r{}", id.0);
            self.program.outputs.push(Output {
                name,
                value: id,
                dims: declared,
                pattern,
                span,
                state: false,
            });
        }
    }

    /// Exact, in any order, free, or with a label.
    fn pattern(&mut self, dims: &[DimId], boundary: bool) -> LayoutPattern {
        let mut pattern = LayoutPattern {
            whole: shard_ir::AxisSet::EMPTY,
            dims: vec![DimPattern::default(); dims.len()],
            partial_sum: AxisSet::EMPTY,
            partial_max: AxisSet::EMPTY,
            open: false,
            free_partial: false,
            label: None,
        };
        let kind = self.random.below(10);
        if kind < 2 {
            pattern.open = true;
            pattern.free_partial = !boundary;
            let mut sorted = dims.to_vec();
            sorted.sort_unstable();
            if self.chance(2) && self.labelled.as_ref().is_none_or(|l| *l == sorted) {
                if self.labelled.is_none() {
                    self.program.labels.push("l".into());
                }
                self.labelled = Some(sorted);
                pattern.label = Some(LabelId(0));
                return pattern;
            }
        }
        let partials = if boundary { 9 } else { 5 };
        for axis in self.program.mesh.axis_ids() {
            let choice = self.random.below(10);
            if choice < 3 || (pattern.open && choice < 7) {
                continue;
            }
            if self.chance(partials) {
                if self.chance(5) {
                    pattern.partial_max = pattern.partial_max.with(axis)
                } else {
                    pattern.partial_sum = pattern.partial_sum.with(axis)
                }
            } else if !dims.is_empty() {
                let at = self.random.below(dims.len() as u64) as usize;
                let axes = pattern.dims[at].axes;
                let devices =
                    self.program.mesh.group_size(axes.iter()) * self.program.mesh.size(axis);
                if self.program.dims[dims[at].index()].size.is_multiple_of(devices) {
                    let front = self.chance(2);
                    let one = AxisList::EMPTY.then(axis);
                    pattern.dims[at].axes = if front { one.concat(axes) } else { axes.concat(one) };
                }
            }
        }
        if self.chance(5) {
            pattern.dims.iter_mut().for_each(|d| d.any_order = d.axes.len() > 1);
        }
        pattern
    }
}
