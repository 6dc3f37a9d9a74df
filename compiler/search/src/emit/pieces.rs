//! The instructions of a composite in pieces.

use std::collections::VecDeque;

use shard_ir::composite::{Piece, Read};
use shard_ir::reason::Reason;
use shard_ir::{Dtype, InstrId, InstrKind, Layout, Operand, ValueId};

use super::{Emitter, MoveSite, name_of};
use crate::in_pieces::kernel_of_each;
use crate::reason::{Reader, reason_in_pieces};
use crate::rules::pieces::{Laid, rule_of_pieces};
use crate::rules::{self, Rule, rule_of_move, rules_of_strategy};

impl Emitter<'_> {
    /// Adds the pieces of a composite on its operand in a layout, and behind each partial piece its
    /// all-reduce. Returns the last instruction.
    pub(super) fn pieces(
        &mut self,
        id: ValueId,
        operand: InstrId,
        layout: Layout,
    ) -> Option<InstrId> {
        let (program, kernels) = (self.program, self.kernels);
        let site = kernels.site(id);
        let pieces = site.pieces_on(layout)?;
        let rule = rule_of_pieces(site.op)?;
        let (from_dims, dtype) = *site.operands.first()?;
        let piece_of = name_of(program, id).unwrap_or(site.op.word()).to_string();
        let kernel = kernel_of_each(kernels, id, &pieces);
        let rewritten = kernels.made.get(&id);
        let mut read: Vec<InstrId> = Vec::with_capacity(pieces.len());
        let (mut numbers, mut made) = (VecDeque::new(), None);
        for (i, (piece, laid)) in pieces.iter().enumerate() {
            let start = self.plan.instructions.len();
            let begins_a_kernel = !kernel[..i].contains(&kernel[i]);
            if begins_a_kernel {
                // The numbers that a kernel reads are there before it starts.
                let members = (i..pieces.len()).filter(|j| kernel[*j] == kernel[i]);
                for number in members.flat_map(|j| &pieces[j].0.reads).filter_map(Read::number) {
                    let (kind, layout) = (InstrKind::Constant(number), Layout::REPLICATED);
                    let rules = &[rules::CONSTANT];
                    numbers.push_back(self.push(id, kind, Vec::new(), layout, rules, None));
                }
            }
            let mut operands = Vec::with_capacity(piece.reads.len());
            let mut seen: Vec<Operand<'_>> = Vec::with_capacity(piece.reads.len());
            for source in &piece.reads {
                let (instr, dims, layout) = match source {
                    Read::Operand => (operand, from_dims, layout),
                    Read::Piece(at) => {
                        (read[*at], pieces[*at].0.dims.as_slice(), pieces[*at].1.read())
                    }
                    Read::Number(_) => (numbers.pop_front()?, &[][..], Layout::REPLICATED),
                };
                operands.push(instr);
                seen.push(Operand { dims, dtype, layout });
            }
            let result = Operand { dims: &piece.dims, dtype, layout: laid.made };
            let strategy = rules_of_strategy(&piece.op, &seen, result, &program.mesh);
            let fused = (!begins_a_kernel).then_some(rules::FUSED);
            let rules: Vec<Rule> = rewritten
                .map(|r| r.rule)
                .into_iter()
                .chain([rule])
                .chain(strategy)
                .chain(fused)
                .collect();
            let is_last = i + 1 == pieces.len();
            let why =
                rewritten.filter(|_| is_last).and_then(|r| r.reason.clone()).map(Reason::Rewritten);
            let kind = InstrKind::Op(piece.op.clone());
            let instr = self.push(id, kind, operands, laid.made, &rules, why);
            let why = || reason_in_pieces(program, id, layout, &piece.op);
            read.push(self.completed(id, instr, laid, why));
            self.belong_to_a_piece(start, piece, dtype, &piece_of, is_last);
            made = Some(instr);
        }
        made
    }

    /// Adds the all-reduce of a piece of a composite, where the piece is partial. Returns the
    /// complete piece.
    fn completed(
        &mut self,
        id: ValueId,
        piece: InstrId,
        laid: &Laid,
        why: impl FnOnce() -> Option<Reason>,
    ) -> InstrId {
        let Some((collective, whole)) = laid.completed else { return piece };
        let kind = InstrKind::Move(collective);
        let all = self.push(id, kind, vec![piece], whole, &[rule_of_move(&collective)], why());
        self.moves.push(MoveSite {
            id: all,
            value: id,
            collective,
            from: laid.made,
            made_in: laid.made,
            reader: Reader::Value(id),
            in_pieces: true,
        });
        all
    }

    /// Notes that all instructions from `start` on belong to a piece of a composite: the piece, its
    /// numbers and its all-reduce. The last piece alone has the name of the composite.
    fn belong_to_a_piece(
        &mut self,
        start: usize,
        piece: &Piece,
        dtype: Dtype,
        piece_of: &str,
        is_last: bool,
    ) {
        for added in &mut self.plan.instructions[start..] {
            let is_number = matches!(added.kind, InstrKind::Constant(_));
            added.dims = if is_number { Vec::new() } else { piece.dims.clone() };
            added.dtype = dtype;
            added.origin.piece_of = Some(piece_of.to_string());
            if !is_last || is_number {
                added.name = None;
            }
        }
    }
}
