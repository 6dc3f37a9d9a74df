//! The instructions of a plan as the statements of a strict layer.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::{InstrId, InstrKind, Op, Plan, never};

use super::comments::Comments;
use super::expression::{Written, has_natural_order, number, op_text, word};

/// The statements of a layer, a line each, and what it returns; comments of the source stand where
/// their statements stood.
pub(crate) fn statements(plan: &Plan, comments: &mut Comments<'_>) -> (Vec<String>, Vec<String>) {
    let writer = Writer::new(plan);
    let mut lines = Vec::new();
    for id in plan.ids() {
        if writer.inlined.contains(&id) {
            continue;
        }
        let value = match &plan.instruction(id).kind {
            // A constant is written where it is used.
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(Op::Fetch) => continue,
            InstrKind::Move(_) => format!("let {} = {}", writer.name(id), writer.reshard(id)),
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                let text = writer.expression(id).text;
                format!("let {}: {} = {text}", writer.name(id), plan.layout_text(id))
            }
        };
        let of =
            |i: InstrId| plan.instruction(i).origin.span.and_then(|span| comments.statement(span));
        let is_line = |i: &InstrId| {
            matches!(plan.instruction(*i).kind, InstrKind::Op(_)) && !writer.inlined.contains(i)
        };
        let is_last =
            of(id).is_some() && plan.ids().filter(is_line).rfind(|i| of(*i) == of(id)) == Some(id);
        lines.extend(comments.before(plan.instruction(id).origin.span, true));
        lines.push(match comments.behind(plan.instruction(id).origin.span, is_last) {
            Some(comment) => format!("{value}  {comment}"),
            None => value,
        });
    }
    lines.extend(comments.rest());
    let results: Vec<String> = plan.outputs.iter().map(|o| writer.operand(o.id).text).collect();
    let returned = match results.as_slice() {
        [one] => format!("return {one}"),
        many => format!("return ({})", many.join(", ")),
    };
    lines.push(match comments.behind_return() {
        Some(comment) => format!("{returned}  {comment}"),
        None => returned,
    });
    (lines, results)
}

struct Writer<'a> {
    plan: &'a Plan,
    /// Instructions that are written inside the statement that reads them.
    inlined: BTreeSet<InstrId>,
    names: BTreeMap<InstrId, String>,
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan) -> Writer<'a> {
        let mut writer = Writer { plan, inlined: BTreeSet::new(), names: BTreeMap::new() };
        writer.inline();
        writer.give_names();
        writer
    }

    /// Chooses the instructions that are written inside another statement: ops without a name that
    /// are used once, and the last move of a result. The order of instructions stays as it is.
    fn inline(&mut self) {
        let plan = self.plan;
        let mut uses = vec![0usize; plan.instructions.len()];
        let operands = plan.instructions.iter().flat_map(|i| &i.operands);
        operands.chain(plan.outputs.iter().map(|o| &o.id)).for_each(|id| uses[id.index()] += 1);
        let mut next = plan.instructions.len();
        for output in plan.outputs.iter().rev() {
            let is_move = matches!(plan.instruction(output.id).kind, InstrKind::Move(_));
            if is_move && uses[output.id.index()] == 1 && self.before(next) == Some(output.id) {
                self.inlined.insert(output.id);
                next = output.id.index();
            } else {
                self.absorb(output.id, &uses, &mut next);
            }
        }
        for id in plan.ids().rev() {
            if matches!(plan.instruction(id).kind, InstrKind::Op(_)) && !self.inlined.contains(&id)
            {
                let mut next = id.index();
                self.absorb_operands(id, &uses, &mut next);
            }
        }
    }

    /// The last instruction before a place that is no constant: a constant has no statement.
    fn before(&self, place: usize) -> Option<InstrId> {
        let earlier = &self.plan.instructions[..place];
        earlier
            .iter()
            .rposition(|i| !matches!(i.kind, InstrKind::Constant(_)))
            .map(|at| InstrId(at as u32))
    }

    fn absorb(&mut self, id: InstrId, uses: &[usize], next: &mut usize) {
        let instr = self.plan.instruction(id);
        let is_op = matches!(instr.kind, InstrKind::Op(_));
        if is_op
            && instr.name.is_none()
            && uses[id.index()] == 1
            && self.before(*next) == Some(id)
            && has_natural_order(self.plan, id)
        {
            self.inlined.insert(id);
            *next = id.index();
            self.absorb_operands(id, uses, next);
        }
    }

    fn absorb_operands(&mut self, id: InstrId, uses: &[usize], next: &mut usize) {
        for operand in self.plan.instruction(id).operands.iter().rev() {
            self.absorb(*operand, uses, next);
        }
    }

    fn give_names(&mut self) {
        let plan = self.plan;
        let mut taken: BTreeSet<String> = BTreeSet::new();
        // A returned value without a name gets the name of the result, so that the result keeps it.
        let returned: BTreeMap<InstrId, &String> =
            plan.outputs.iter().map(|o| (self.origin(o.id), &o.name)).collect();
        // A name of the source stays with the first op that bears it.
        for moves in [false, true] {
            for id in plan.ids().filter(|id| !self.inlined.contains(id)) {
                let instr = plan.instruction(id);
                let known = instr.name.as_ref().or_else(|| returned.get(&id).copied());
                let base = match (&instr.kind, known) {
                    (InstrKind::Constant(_) | InstrKind::Op(Op::Fetch), _) => continue,
                    (InstrKind::Move(_), _) if !moves => continue,
                    (
                        InstrKind::Parameter(_) | InstrKind::Op(_) | InstrKind::CollectiveEinsum(_),
                        _,
                    ) if moves => {
                        continue;
                    }
                    (
                        InstrKind::Parameter(_) | InstrKind::Op(_) | InstrKind::CollectiveEinsum(_),
                        Some(name),
                    ) => {
                        if taken.insert(name.clone()) {
                            self.names.insert(id, name.clone());
                            continue;
                        }
                        name.clone()
                    }
                    // Moves are named after the value that their chain starts from: `x1`, `x2`.
                    (InstrKind::Move(_), _) => {
                        self.names.get(&self.origin(id)).map_or("moved", String::as_str).to_string()
                    }
                    (InstrKind::Op(op), None) => word(op).to_string(),
                    (InstrKind::CollectiveEinsum(_), None) => word(&Op::Einsum).to_string(),
                    (InstrKind::Parameter(_), None) => "p".to_string(),
                };
                self.names.insert(id, fresh(&base, &mut taken));
            }
        }
    }

    /// The instruction that makes the value of a chain of moves.
    fn origin(&self, mut id: InstrId) -> InstrId {
        while let (InstrKind::Move(_) | InstrKind::Op(Op::Fetch), Some(operand)) =
            (&self.plan.instruction(id).kind, self.plan.instruction(id).operands.first())
        {
            id = *operand;
        }
        id
    }

    fn name(&self, id: InstrId) -> &str {
        let name = self.names.get(&id).map(String::as_str);
        name.unwrap_or_else(|| never!("a value with a statement and without a name", "_"))
    }

    fn operand(&self, id: InstrId) -> Written {
        match &self.plan.instruction(id).kind {
            InstrKind::Constant(value) => number(self.plan.number(*value)),
            InstrKind::Op(Op::Fetch) => self.expression(id),
            _ if !self.inlined.contains(&id) => Written::atom(self.name(id)),
            InstrKind::Move(_) => Written::atom(self.reshard(id)),
            InstrKind::Parameter(_) | InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                self.expression(id)
            }
        }
    }

    fn expression(&self, id: InstrId) -> Written {
        let instr = self.plan.instruction(id);
        let operands: Vec<Written> = instr.operands.iter().map(|o| self.operand(*o)).collect();
        match instr.kind.op() {
            Some(op) => op_text(self.plan, id, op, &operands),
            None => self.operand(id),
        }
    }

    fn reshard(&self, id: InstrId) -> String {
        let source = self.operand(self.plan.moved(id)).text;
        format!("reshard({source}, {})", self.plan.layout_text(id))
    }
}

/// A name that was not taken yet, and is now: `x1`, `x2`, ...
pub fn fresh(base: &str, taken: &mut BTreeSet<String>) -> String {
    let mut n = 1u32;
    loop {
        let candidate = format!("{base}{n}");
        if taken.insert(candidate.clone()) {
            return candidate;
        }
        n += 1;
    }
}
