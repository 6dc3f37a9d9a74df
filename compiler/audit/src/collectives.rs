//! Finds every collective of a program, each once: with its devices, its bytes, how often it runs,
//! and where it comes from.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::axes::{self, NamedMesh};
use crate::flow;
use crate::hlo::attributes::{Metadata, attribute, braced};
use crate::hlo::groups::{self, Groups, MOST_DEVICES};
use crate::hlo::shape::{Array, arrays};
use crate::hlo::tables::Place;
use crate::hlo::trips::Known;
use crate::hlo::visits::{Visits, visits};
use crate::hlo::{Instruction, InstructionId, Module, ReadError, shortened};

shard_ir::worded! {
    /// What a collective does.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Kind {
        /// Each device receives the parts of all devices of its group.
        AllGather = "all-gather",
        /// Terms are added up, and every device receives the sum.
        AllReduce = "all-reduce",
        /// Terms are added up, and each device receives a part of the sum.
        ReduceScatter = "reduce-scatter",
        /// Each device sends a part to every other one.
        AllToAll = "all-to-all",
        /// Each device sends its buffer to one other device.
        Permute = "collective-permute",
        /// One device sends its buffer to all.
        Broadcast = "collective-broadcast",
    }
    /// The name that HLO, reports and JSON have for it.
    fn name;
}

impl Kind {
    /// The kind of an operation that is a collective or begins an asynchronous one; `None` for
    /// others, among them those that end one.
    fn of(opcode: &str) -> Option<Kind> {
        let code = opcode.strip_suffix("-start").unwrap_or(opcode);
        let code = if code == "ragged-all-to-all" { "all-to-all" } else { code };
        Kind::ALL.into_iter().find(|kind| kind.name() == code)
    }
}

/// Who takes part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Members {
    /// Groups of devices, all of one size.
    Groups(Rc<Groups>),
    /// Pairs of a sender and a receiver.
    Pairs(Rc<Vec<(u64, u64)>>),
}

/// A collective of a program.
#[derive(Clone, Debug)]
pub struct Collective {
    /// Its name in the dump.
    pub name: String,
    /// Its operation in the dump.
    pub opcode: String,
    /// What it does.
    pub kind: Kind,
    /// The name of the computation that it stands in.
    pub computation: String,
    /// The instruction that it is.
    pub at: InstructionId,
    /// How often it runs in one run of the program.
    pub executions: u128,
    /// The loops around it, outermost first, as indices of [`Program::loops`].
    pub loops: Vec<usize>,
    /// Whether it stands in a branch of a conditional, so that it runs at most `executions` times.
    pub in_branch: bool,
    /// The arrays that each device brings.
    pub operands: Vec<Array>,
    /// The bytes on one device of the larger buffer: what an all-gather gives, what the others
    /// take.
    pub buffer_bytes: u64,
    /// Bytes that the busiest device sends each time it runs.
    pub wire_bytes_once: u64,
    /// Who takes part.
    pub members: Members,
    /// Devices in a group; 2 for pairs.
    pub group_size: u64,
    /// The axes along which it runs, as indices of the mesh; `None` if no mesh is known, or its
    /// groups run along no axes.
    pub axes: Option<Vec<usize>>,
    /// The path of scopes and the primitive of JAX that it comes from.
    pub op_name: Option<String>,
    /// The places that it comes from, innermost first.
    pub stack: Vec<Place>,
    /// The name of the caller whose place it has, if it has none of its own.
    pub place_of: Option<String>,
    /// The names of other instructions that are the same asynchronous collective.
    pub also_spelled_as: Vec<String>,
    /// What is known of its operand and its result.
    pub flow: flow::Flow,
}

/// Primitives of JAX by which a program writes collectives by hand.
const BY_HAND: [&str; 12] = [
    "psum",
    "psum2",
    "psum_invariant",
    "pmax",
    "pmin",
    "ppermute",
    "pbroadcast",
    "all_gather",
    "all_gather_invariant",
    "all_to_all",
    "reduce_scatter",
    "psum_scatter",
];

impl Collective {
    /// Whether the program has written it by hand, inside a `shard_map`.
    pub fn is_by_hand(&self) -> bool {
        let scopes = self.op_name.as_deref().and_then(|name| name.split_once("shard_map"));
        let primitive = scopes.and_then(|(_, inside)| inside.rsplit_once('/'));
        primitive.is_some_and(|(_, primitive)| BY_HAND.contains(&primitive))
    }

    /// Bytes that the busiest device sends in one run of the program.
    pub fn wire_bytes(&self) -> u64 {
        let bytes = u128::from(self.wire_bytes_once).saturating_mul(self.executions);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The innermost place that it comes from.
    pub fn source(&self) -> Option<&Place> {
        self.stack.first()
    }
}

/// A loop, as a report names it.
#[derive(Clone, Debug)]
pub struct NamedLoop {
    /// The computation that is its body, by name.
    pub body: String,
    /// How often its body runs each time that the loop runs; 1 if that is not known.
    pub trips: u64,
    /// How that is known.
    pub known: Known,
    /// How often its body runs in one run of the program.
    pub executions: u128,
}

/// What a program sends.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of the module.
    pub name: String,
    /// How many devices run it.
    pub devices: u64,
    /// Its loops, in order.
    pub loops: Vec<NamedLoop>,
    /// Its collectives, in the order in which the program gets to them.
    pub collectives: Vec<Collective>,
}

/// The most devices that the group lists of all collectives together may name.
const MOST_LISTED: u64 = 4 * MOST_DEVICES;

/// Finds the collectives of a module.
pub fn collectives(module: &Module<'_>, mesh: Option<&NamedMesh>) -> Result<Program, ReadError> {
    let visits = visits(module)?;
    let mut finder = Finder {
        module,
        visits: &visits,
        mesh,
        groups: FxHashMap::default(),
        listed: 0,
        spelled: FxHashMap::default(),
        found: Vec::new(),
    };
    for &computation in &visits.order {
        for index in 0..module.computations[computation].instructions.len() as u32 {
            finder.look_at(InstructionId { computation, index })?;
        }
    }
    let collectives = finder.found;
    let loops = visits.loops.iter().map(|of| NamedLoop {
        body: module.computations[of.body].name.to_string(),
        trips: of.trips,
        known: of.known,
        executions: of.executions,
    });
    Ok(Program {
        name: module.name.to_string(),
        devices: module.devices(),
        loops: loops.collect(),
        collectives,
    })
}

/// Members, the size of a group, and the axes along which they run.
type Read = (Members, u64, Option<Vec<usize>>);

struct Finder<'m, 'a> {
    module: &'m Module<'a>,
    visits: &'m Visits,
    mesh: Option<&'m NamedMesh>,
    /// Members by their text and whether it numbers replicas, so that each list is read once.
    groups: FxHashMap<(String, bool), Read>,
    listed: u64,
    /// Asynchronous collectives that several instructions spell, as indices of `found`: by the
    /// computation around their fusions, their channel and their chain.
    spelled: FxHashMap<(usize, String, String), usize>,
    found: Vec<Collective>,
}

impl<'a> Finder<'_, 'a> {
    fn look_at(&mut self, at: InstructionId) -> Result<(), ReadError> {
        let (module, computation) = (self.module, at.computation);
        let instruction = module.instruction(at);
        let Some(mut kind) = Kind::of(instruction.opcode).or_else(|| sends(instruction)) else {
            return Ok(());
        };
        let Some(visit) = &self.visits.of[computation] else { return Ok(()) };
        let chain = braced(instruction.attributes, "frontend_attributes")
            .and_then(|inner| attribute(inner, "chain_id"));
        if let (Some(chain), Some(channel)) = (chain, instruction.attribute("channel_id")) {
            // XLA numbers chains anew in every computation that is no fusion.
            let key = (self.around_fusions(computation), channel.to_string(), chain.to_string());
            if let Some(known) = self.spelled.get(&key) {
                self.found[*known].also_spelled_as.push(instruction.name.to_string());
                return Ok(());
            }
            self.spelled.insert(key, self.found.len());
        }
        let operands = self.operands(computation, instruction)?;
        let (members, group_size, axes) = self.members(kind, instruction)?;
        let flow = flow::of(module, self.visits, at, kind, group_size);
        if kind == Kind::AllReduce && flow.scattered_in_its_fusion {
            kind = Kind::ReduceScatter;
        }
        let brought = operands.iter().try_fold(0_u64, |sum, a| sum.checked_add(a.bytes()?));
        let (buffer_bytes, wire_bytes_once) = brought
            .and_then(|brought| bytes(kind, brought, group_size, &members))
            .ok_or_else(|| ReadError {
                message: format!("`%{}` sends more than 2^64 bytes", instruction.name),
                span: instruction.span,
            })?;
        let (metadata, place_of) = self.place(computation, instruction);
        self.found.push(Collective {
            name: instruction.name.to_string(),
            opcode: instruction.opcode.to_string(),
            kind,
            computation: module.computations[computation].name.to_string(),
            at,
            executions: visit.executions,
            loops: visit.loops.clone(),
            in_branch: visit.in_branch,
            operands,
            buffer_bytes,
            wire_bytes_once,
            members,
            group_size,
            axes,
            stack: module.tables.stack(&metadata),
            op_name: metadata.op_name,
            place_of,
            also_spelled_as: Vec::new(),
            flow,
        });
        Ok(())
    }

    /// The innermost computation around a computation that is no fusion.
    fn around_fusions(&self, computation: usize) -> usize {
        let mut around = computation;
        while let Some(caller) = self.visits.of[around].as_ref().and_then(|v| v.caller) {
            if self.module.instruction(caller).opcode != "fusion" {
                break;
            }
            around = caller.computation;
        }
        around
    }

    /// The arrays that each device brings.
    fn operands(
        &self,
        computation: usize,
        instruction: &Instruction<'_>,
    ) -> Result<Vec<Array>, ReadError> {
        let all = &self.module.computations[computation].instructions;
        let mut found = Vec::new();
        // A ragged all-to-all and a send only send their first operand.
        let first_alone = matches!(instruction.opcode, "ragged-all-to-all" | "send");
        let count = if first_alone { 1 } else { instruction.operands.len() };
        for operand in instruction.operands.iter().take(count) {
            let operand = &all[*operand as usize];
            let shapes = arrays(operand.shape).ok_or_else(|| ReadError {
                message: format!(
                    "`%{}` has no shape of HLO: `{}`",
                    operand.name,
                    shortened(operand.shape)
                ),
                span: operand.span,
            })?;
            found.extend(shapes);
        }
        if found.is_empty() {
            let message = format!("expected an operand of `%{}`", instruction.name);
            return Err(ReadError { message, span: instruction.span });
        }
        Ok(found)
    }

    /// The members of a collective, the size of a group, and the axes along which they run.
    fn members(&mut self, kind: Kind, instruction: &Instruction<'_>) -> Result<Read, ReadError> {
        let pairs = match instruction.opcode {
            "send" => braced(instruction.attributes, "frontend_attributes")
                .and_then(|inner| attribute(inner, "_xla_send_recv_source_target_pairs"))
                .map(|quoted| quoted.trim_matches('"')),
            _ => instruction.attribute("source_target_pairs"),
        };
        let text = match kind {
            Kind::Permute => pairs.ok_or("source_target_pairs"),
            _ => Ok(instruction.attribute("replica_groups").unwrap_or("{}")),
        };
        let wrong = |message: String| ReadError {
            message: format!("of `%{}`: {message}", instruction.name),
            span: instruction.span,
        };
        let text = text.map_err(|name| wrong(format!("expected `{name}=`")))?;
        // Without a channel, groups are of replicas, and each partition has its own.
        let by_replica = instruction.attribute("channel_id").is_none();
        let key = (text.to_string(), by_replica);
        if let Some(known) = self.groups.get(&key) {
            return Ok(known.clone());
        }
        let devices = self.module.devices();
        if devices > MOST_DEVICES {
            return Err(wrong(format!("{devices} devices; at most {MOST_DEVICES} are read")));
        }
        self.listed = self.listed.saturating_add(devices);
        if self.listed > MOST_LISTED {
            return Err(wrong(format!("its groups and those before name {MOST_LISTED} devices")));
        }
        let read = if kind == Kind::Permute {
            let pairs = groups::pairs(text, devices).map_err(wrong)?;
            let axes = self.mesh.map(|mesh| axes::of_pairs(mesh, &pairs));
            (Members::Pairs(Rc::new(pairs)), 2, axes)
        } else {
            let mut read = groups::read(text, devices).map_err(wrong)?;
            self.written_out(&mut read, instruction, by_replica);
            let size = read.groups.first().map_or(0, Vec::len);
            if read.groups.iter().any(|group| group.len() != size) {
                return Err(wrong("its groups are of different sizes".to_string()));
            }
            let axes = self.mesh.and_then(|mesh| axes::of_groups(mesh, &read.groups));
            (Members::Groups(Rc::new(read)), size as u64, axes)
        };
        self.groups.insert(key, read.clone());
        Ok(read)
    }

    /// Replaces the numbers in groups, which may be of replicas, by numbers of devices.
    fn written_out(&self, read: &mut Groups, instruction: &Instruction<'_>, by_replica: bool) {
        let (partitions, replicas) = (self.module.partitions, self.module.replicas);
        let global = instruction.attribute("use_global_device_ids") == Some("true");
        if read.groups.is_empty() {
            // No groups means one group of all devices; without a channel, of all replicas of a
            // partition.
            let all: Vec<u64> =
                (0..if by_replica { replicas } else { partitions * replicas }).collect();
            read.groups.push(all);
        } else if by_replica || global || partitions == 1 {
            // These are numbers of replicas, which are replaced below, or of devices.
        } else if replicas == 1 && read.groups.len() == 1 && read.groups[0] == [0] && partitions > 1
        {
            // The group of the one replica has all partitions.
            read.groups = vec![(0..partitions).collect()];
        }
        if by_replica && partitions > 1 {
            let of = |group: &Vec<u64>, partition: u64| {
                group.iter().map(|replica| replica * partitions + partition).collect()
            };
            read.groups = read
                .groups
                .iter()
                .flat_map(|group| (0..partitions).map(move |partition| of(group, partition)))
                .collect();
        }
    }

    /// The metadata of a collective: its own, else that of the caller of its computation unless
    /// that is a loop.
    fn place(&self, computation: usize, instruction: &Instruction<'a>) -> Placed<'a> {
        let own = Metadata::of(instruction.attributes);
        if !own.is_empty() {
            return (own, None);
        }
        let caller = self.visits.of[computation].as_ref().and_then(|visit| visit.caller);
        if let Some(caller) = caller {
            let caller = self.module.instruction(caller);
            let found = Metadata::of(caller.attributes);
            if caller.opcode != "while" && !found.is_empty() {
                return (found, Some(caller.name.to_string()));
            }
        }
        (own, None)
    }
}

/// The metadata of an instruction, and the name of the caller that has it, if it is not the
/// instruction's own.
type Placed<'a> = (Metadata<'a>, Option<String>);

/// The kind of a `send`: to another device it is a permute, and to the host it sends nothing over
/// the network.
fn sends(instruction: &Instruction<'_>) -> Option<Kind> {
    let to_device = instruction.opcode == "send"
        && instruction.attributes.contains("_xla_send_recv_source_target_pairs")
        && instruction.attribute("is_host_transfer") != Some("true");
    to_device.then_some(Kind::Permute)
}

/// The bytes of the larger buffer, and the bytes that the busiest device sends, for `brought` bytes
/// that each device brings. `None` if they are more than 2^64.
fn bytes(kind: Kind, brought: u64, group: u64, members: &Members) -> Option<(u64, u64)> {
    let all_but_own = |buffer: u64, times: u128| {
        let sent = u128::from(buffer) * u128::from(group.saturating_sub(1)) * times;
        u64::try_from(sent.div_ceil(u128::from(group.max(1)))).ok()
    };
    Some(match kind {
        Kind::AllGather => (brought.checked_mul(group)?, brought.checked_mul(group.max(1) - 1)?),
        Kind::AllReduce => (brought, all_but_own(brought, 2)?),
        Kind::ReduceScatter | Kind::AllToAll => (brought, all_but_own(brought, 1)?),
        // In a ring from device to device, each sends the buffer once.
        Kind::Broadcast => (brought, if group > 1 { brought } else { 0 }),
        Kind::Permute => {
            let mut sends: FxHashMap<u64, u64> = FxHashMap::default();
            if let Members::Pairs(pairs) = members {
                for (from, _) in pairs.iter().filter(|(from, to)| from != to) {
                    *sends.entry(*from).or_default() += 1;
                }
            }
            (brought, brought.checked_mul(sends.values().copied().max().unwrap_or(0))?)
        }
    })
}
