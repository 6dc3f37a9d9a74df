//! Removes ways that no plan can have: those that read a layout that cannot be had, and those that
//! make a layout that no reader can use.

use shard_ir::Def;

use crate::attention::Attention;
use crate::moves::Node;
use crate::space::{Reader, Space};

/// Removes ways until all that are left are usable, and notes the layouts in which each reader may
/// read a value.
pub(crate) fn keep_usable(space: &mut Space<'_>) {
    loop {
        let had = drop_what_cannot_be_had(space);
        if !drop_what_nobody_reads(space, &had.layouts) && !had.dropped {
            return;
        }
    }
}

/// What a pass from the parameters to the results finds.
struct Had {
    /// For each value and each of its layouts, whether some plan has it.
    layouts: Vec<Vec<bool>>,
    dropped: bool,
}

/// Removes the ways that read a layout that no way or move makes, from the parameters to the
/// results.
fn drop_what_cannot_be_had(space: &mut Space<'_>) -> Had {
    let count = space.program.values.len();
    let mut had = Had { layouts: vec![Vec::new(); count], dropped: false };
    // For each value the layouts that a kernel makes which an elementwise op may join.
    let mut joinable_layouts: Vec<Vec<bool>> = vec![Vec::new(); count];
    // A value outside of the part of the program may be had in any layout.
    for v in (0..count).filter(|v| !space.is_within[*v]) {
        had.layouts[v] = vec![true; space.moves[v].nodes()];
    }
    for id in space.live.clone() {
        let (v, reads) = (id.index(), space.reads[id.index()].clone());
        let joins = space.joins[v].clone();
        let between_passes = joins
            .as_ref()
            .map(|joins| passed_by_all(space, &joins.pins, &joinable_layouts[joins.maker.index()]));
        let ways = &mut space.ways[v];
        let mut layouts = vec![false; space.moves[v].nodes()];
        let mut joinable = vec![false; layouts.len()];
        for way in 0..ways.len() {
            let is_had = |i: usize| had.layouts[reads[i].0][ways.reads_of(way)[i] as usize];
            let in_own_kernel = ways.in_own_kernel[way] && (0..reads.len()).all(is_had);
            let joins_kernel = ways.joins_kernel[way]
                && joins.as_ref().zip(between_passes.as_ref()).is_some_and(|(joins, passes)| {
                    (0..reads.len()).all(|i| {
                        if joins.from_maker.contains(&i) {
                            passes[ways.reads_of(way)[i] as usize]
                        } else {
                            is_had(i)
                        }
                    })
                });
            had.dropped |=
                (in_own_kernel, joins_kernel) != (ways.in_own_kernel[way], ways.joins_kernel[way]);
            (ways.in_own_kernel[way], ways.joins_kernel[way]) = (in_own_kernel, joins_kernel);
            let out = ways.out[way] as usize;
            layouts[out] |= in_own_kernel || joins_kernel;
            joinable[out] |=
                (in_own_kernel || joins_kernel) && ways.joinable.get(way).copied().unwrap_or(false);
        }
        // The last value of an attention is also made by the attention's kernel, which other ops
        // may join.
        let variants = space.attentions[v].iter().flat_map(Attention::variants);
        for way in variants.flat_map(|found| &found.ways) {
            (layouts[way.out as usize], joinable[way.out as usize]) = (true, true);
        }
        space.moves[v].mark_reached(&mut layouts);
        (had.layouts[v], joinable_layouts[v]) = (layouts, joinable);
    }
    had
}

/// Those of the given layouts that all of some pins let through.
fn passed_by_all(space: &Space<'_>, pins: &[shard_ir::ValueId], layouts: &[bool]) -> Vec<bool> {
    let mut passed = layouts.to_vec();
    for pin in pins {
        let Def::Pin { pattern, .. } = &space.program.value(*pin).def else { continue };
        let all = &space.moves[pin.index()].layouts;
        passed.iter_mut().zip(all).for_each(|(passed, layout)| *passed &= pattern.admits(*layout));
    }
    passed
}

/// The layouts in which a reader may read a value outside of the part: any across the border, and
/// none where the reader lies outside too.
fn in_any(space: &Space<'_>, value: usize, reader: &Reader) -> Vec<Node> {
    if space.is_border(value, reader) {
        (0..space.moves[value].layouts.len() as Node).collect()
    } else {
        Vec::new()
    }
}

/// Removes the ways that make a layout that no reader reads, from the results to the parameters.
/// Returns whether anything was removed.
fn drop_what_nobody_reads(space: &mut Space<'_>, had: &[Vec<bool>]) -> bool {
    let mut dropped = false;
    // For each value the layouts in which some op joins the kernel that makes the value.
    let mut joined: Vec<Vec<bool>> =
        space.moves.iter().map(|moves| vec![false; moves.nodes()]).collect();
    for v in (0..space.moves.len()).filter(|v| !space.is_within[*v]) {
        space.wanted[v] = space.readers[v].iter().map(|reader| in_any(space, v, reader)).collect();
    }
    for id in space.live.clone().into_iter().rev() {
        let v = id.index();
        let mut useful = vec![true; space.moves[v].nodes()];
        space.wanted[v].clear();
        for reader in &space.readers[v] {
            let mut read = vec![false; useful.len()];
            match reader {
                border if space.is_border(v, border) => {
                    let any = in_any(space, v, border);
                    space.wanted[v].push(any);
                    continue;
                }
                Reader::Result(i) => {
                    space.results[*i].iter().for_each(|node| read[*node as usize] = true)
                }
                Reader::Operand(by, place) => {
                    let ways = &space.ways[by.index()];
                    for way in (0..ways.len()).filter(|way| ways.in_own_kernel[*way]) {
                        read[ways.reads_of(way)[*place] as usize] = true;
                    }
                }
            }
            read.iter_mut().zip(&had[v]).for_each(|(read, had)| *read &= *had);
            let wanted =
                (0..read.len()).filter(|node| read[*node]).map(|node| node as Node).collect();
            space.wanted[v].push(wanted);
            space.moves[v].mark_reaching(&mut read);
            useful.iter_mut().zip(read).for_each(|(useful, read)| *useful &= read);
        }
        let joins = space.joins[v].clone();
        let ways = &mut space.ways[v];
        for way in 0..ways.len() {
            let out = ways.out[way] as usize;
            let joinable = ways.joinable.get(way).copied().unwrap_or(false);
            let is_used = useful[out] || (joinable && joined[v][out]);
            dropped |= !is_used && (ways.in_own_kernel[way] || ways.joins_kernel[way]);
            ways.in_own_kernel[way] &= is_used;
            ways.joins_kernel[way] &= is_used;
            if let (true, Some(joins)) = (ways.joins_kernel[way], &joins) {
                joined[joins.maker.index()][ways.reads_of(way)[joins.from_maker[0]] as usize] =
                    true;
            }
        }
    }
    dropped
}
