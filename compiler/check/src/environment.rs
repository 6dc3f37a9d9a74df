//! What all layers of a file share: the mesh, the dims, the hardware line.

use std::collections::BTreeMap;

use shard_grammar::{SourceFile, Span, ast};
use shard_ir::tensor::MAX_DIMS;
use shard_ir::{Dim, DimId, Mesh, MeshError, never};

use crate::CheckOptions;
use crate::diagnostics::{DimProblem, HardwareProblem, LimitProblem, MeshProblem, Quote};
use crate::int_expr;
use crate::names::nearest;
use crate::sink::Sink;

/// What all layers of a file share.
pub(crate) struct Environment<'a> {
    pub(crate) file: &'a SourceFile,
    pub(crate) mesh: Mesh,
    /// The mesh line, unless the command line replaced it.
    pub(crate) mesh_line: Option<&'a ast::Mesh>,
    /// The mesh line that the command line replaced, and the replacement as text.
    pub(crate) replaced_mesh: Option<(Option<&'a ast::Mesh>, String)>,
    /// Whether the mesh had an error, so that an unknown axis is not reported.
    pub(crate) mesh_is_broken: bool,
    pub(crate) dims: Vec<Dim>,
    pub(crate) dim_lines: Vec<DimLine<'a>>,
    pub(crate) hardware: Option<String>,
    /// The phase whose sizes the dims have.
    pub(crate) phase: Option<&'a ast::Phase>,
    /// Whether lines of the file could not be read, so that an unknown dim, axis or layer is not
    /// reported.
    pub(crate) lenient: bool,
    /// Unknown axes that are reported already, each with the nearest axis of the mesh.
    pub(crate) unknown_axes: BTreeMap<String, Option<String>>,
    by_name: BTreeMap<String, Option<DimId>>,
    used: Vec<bool>,
    /// Unknown dims that are reported already, each with the nearest dim.
    unknown_dims: BTreeMap<String, Option<String>>,
}

/// The lines that declare a dim.
pub(crate) struct DimLine<'a> {
    pub(crate) line: &'a ast::Dim,
    /// What states its size: its line, or a line of the phase.
    pub(crate) stated: &'a ast::Dim,
    /// Whether the command line replaced its right side.
    pub(crate) overridden: bool,
}

/// What a name of a dim stands for.
pub(crate) enum DimLookup {
    Found(DimId),
    /// A dim whose declaration has an error, which is reported already.
    Broken,
    Unknown,
}

impl<'a> Environment<'a> {
    pub(crate) fn new(
        file: &'a SourceFile,
        tree: &'a ast::File,
        options: &CheckOptions,
        phase: Option<&'a ast::Phase>,
        lenient: bool,
        sink: &mut Sink,
    ) -> Environment<'a> {
        let mut env = Environment {
            file,
            mesh: Mesh::default(),
            mesh_line: None,
            replaced_mesh: None,
            mesh_is_broken: lenient,
            dims: Vec::new(),
            dim_lines: Vec::new(),
            hardware: None,
            phase,
            lenient,
            unknown_axes: BTreeMap::new(),
            by_name: BTreeMap::new(),
            used: Vec::new(),
            unknown_dims: BTreeMap::new(),
        };
        env.read_hardware(tree, sink);
        env.read_mesh(tree, options, sink);
        env.read_dims(tree, options, sink);
        env
    }

    fn read_hardware(&mut self, tree: &ast::File, sink: &mut Sink) {
        let mut lines = tree.hardware();
        let Some(first) = lines.next() else { return };
        self.hardware = Some(match &first.chip {
            ast::HardwareRef::BuiltIn(name) => name.value.clone(),
            ast::HardwareRef::Path(path) => path.value.clone(),
        });
        for line in lines {
            sink.report(HardwareProblem::SecondLine { span: line.span, first: first.span });
        }
    }

    fn read_mesh(&mut self, tree: &'a ast::File, options: &CheckOptions, sink: &mut Sink) {
        let mut lines = tree.meshes();
        let first = lines.next();
        if let Some(first) = first {
            for line in lines {
                sink.report(MeshProblem::SecondLine { span: line.span, first: first.span });
            }
        }
        let axes: Vec<(String, u64, Option<Span>, Option<Span>)> = match &options.mesh_override {
            Some(axes) => {
                let text: Vec<String> =
                    axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
                self.replaced_mesh = Some((first, text.join(",")));
                axes.iter().map(|(name, size)| (name.clone(), *size, None, None)).collect()
            }
            None => {
                self.mesh_line = first;
                let axes = first.map_or(&[][..], |line| &line.axes);
                axes.iter()
                    .map(|a| {
                        (a.name.value.clone(), a.size.value, Some(a.name.span), Some(a.size.span))
                    })
                    .collect()
            }
        };
        let mut seen: BTreeMap<&str, Option<Span>> = BTreeMap::new();
        for (name, size, name_span, size_span) in &axes {
            if *size == 0 {
                sink.report(MeshProblem::ZeroAxis { axis: name.clone(), span: *size_span });
                self.mesh_is_broken = true;
            }
            if let Some(first) = seen.get(name.as_str()) {
                let taken = |free: &&str| axes.iter().all(|(name, ..)| name != free);
                let free = ["x", "y", "z", "w", "v", "u"]
                    .into_iter()
                    .find(taken)
                    .unwrap_or("other")
                    .to_string();
                let (axis, span, first) = (name.clone(), *name_span, *first);
                sink.report(MeshProblem::DuplicateAxis { axis, span, first, free });
                self.mesh_is_broken = true;
            } else {
                seen.insert(name, *name_span);
            }
        }
        if self.mesh_is_broken && !self.lenient {
            return;
        }
        match Mesh::new(axes.iter().map(|(name, size, ..)| (name.clone(), *size))) {
            Ok(mesh) => self.mesh = mesh,
            Err(error) => {
                let span = self.mesh_line.map(|line| line.span);
                self.mesh_is_broken = true;
                match error {
                    MeshError::TooManyAxes(found) => {
                        sink.report(MeshProblem::TooManyAxes { found, span })
                    }
                    MeshError::TooManyDevices => sink.report(MeshProblem::TooManyDevices { span }),
                    // The loop above has reported these, each at its place.
                    MeshError::ZeroSize(_) | MeshError::Duplicate(_) => {}
                }
            }
        }
    }

    fn read_dims(&mut self, tree: &'a ast::File, options: &CheckOptions, sink: &mut Sink) {
        let mut overrides = self.read_overrides(tree, options, sink);
        let mut first: BTreeMap<&str, Span> = BTreeMap::new();
        let mut too_many = false;
        for line in tree.dims() {
            let name = line.name.value.as_str();
            if let Some(first) = first.get(name) {
                sink.report(DimProblem::Duplicate {
                    name: name.to_string(),
                    span: line.name.span,
                    first: *first,
                });
                continue;
            }
            first.insert(name, line.name.span);
            if self.dims.len() >= MAX_DIMS {
                if !too_many {
                    sink.report(LimitProblem::Dims { limit: MAX_DIMS, span: line.span });
                }
                too_many = true;
                self.by_name.insert(name.to_string(), None);
                continue;
            }
            let replaced = overrides.remove(name);
            // Dims of a right side count as used even if the command line replaces that right side.
            self.mark_dims(&line.value);
            let of_phase =
                |phase: &'a ast::Phase| phase.sizes.iter().find(|size| size.name.value == name);
            tree.phases().filter_map(of_phase).for_each(|size| self.mark_dims(&size.value));
            let overridden = replaced.is_some();
            let stated = self.phase.and_then(of_phase).unwrap_or(line);
            let source = replaced.as_ref().unwrap_or(stated);
            let size = int_expr::dim_size(self, source, overridden, tree, sink);
            let id = size.map(|(size, useful)| {
                let id = DimId(self.dims.len() as u16);
                self.dims.push(Dim { name: name.to_string(), size, useful });
                self.dim_lines.push(DimLine { line, stated, overridden });
                self.used.push(false);
                id
            });
            self.by_name.insert(name.to_string(), id);
        }
    }

    fn read_overrides(
        &self,
        tree: &ast::File,
        options: &CheckOptions,
        sink: &mut Sink,
    ) -> BTreeMap<String, ast::Dim> {
        let mut overrides = BTreeMap::new();
        let known: Vec<String> = tree.dims().map(|d| d.name.value.clone()).collect();
        for (name, text) in &options.dim_overrides {
            if !known.contains(name) {
                if !self.lenient {
                    let near = nearest(name, known.iter().map(String::as_str)).map(str::to_string);
                    sink.report(DimProblem::UnknownOverride {
                        name: name.clone(),
                        near,
                        known: known.clone(),
                    });
                }
                continue;
            }
            match shard_grammar::parse_dim_override(&format!("{name}={text}")) {
                Ok(dim) => {
                    overrides.insert(name.clone(), dim);
                }
                Err(error) => {
                    let (name, text) = (name.clone(), text.clone());
                    sink.report(DimProblem::BadOverride { name, text, message: error.message() });
                }
            }
        }
        overrides
    }

    fn mark_dims(&mut self, expr: &ast::IntExpr) {
        match &expr.kind {
            ast::IntExprKind::Number(_) => {}
            ast::IntExprKind::Dim(name) => {
                self.lookup(name);
            }
            ast::IntExprKind::Binary { left, right, .. } => {
                self.mark_dims(left);
                self.mark_dims(right);
            }
            ast::IntExprKind::Paren(inner) => self.mark_dims(inner),
        }
    }

    /// Looks a dim up, which counts as a use of it.
    pub(crate) fn lookup(&mut self, name: &str) -> DimLookup {
        match self.by_name.get(name) {
            Some(Some(id)) => {
                self.used[id.index()] = true;
                DimLookup::Found(*id)
            }
            Some(None) => DimLookup::Broken,
            None => DimLookup::Unknown,
        }
    }

    /// The dim of a name that stands in a type or expression; `together` is the whole word, where
    /// several letters of it may be meant as one dim.
    pub(crate) fn dim(
        &mut self,
        name: &ast::Name,
        together: Option<(Span, &str)>,
        sink: &mut Sink,
    ) -> Option<DimId> {
        match self.lookup(&name.value) {
            DimLookup::Found(id) => Some(id),
            DimLookup::Broken => None,
            DimLookup::Unknown => {
                let is_letter = together.is_some();
                let together = together
                    .filter(|(_, word)| self.by_name.contains_key(*word))
                    .map(|(span, word)| Quote { span, text: word.to_string() });
                self.report_unknown_dim(&name.value, name.span, is_letter, together, sink);
                None
            }
        }
    }

    /// Whether an unknown dim is to be reported, which is so once; from now on it counts as
    /// reported.
    pub(crate) fn speaks_of(&mut self, unknown: &str, sink: &Sink) -> bool {
        !self.lenient
            && sink.has_room()
            && self.unknown_dims.insert(unknown.to_string(), None).is_none()
    }

    /// Reports an unknown dim, once in a file, and not if its line may be one that could not be
    /// read. `is_letter` says whether each letter of the word at `span` is read as a dim.
    pub(crate) fn report_unknown_dim(
        &mut self,
        unknown: &str,
        span: Span,
        is_letter: bool,
        together: Option<Quote>,
        sink: &mut Sink,
    ) {
        if self.lenient {
            return;
        }
        let place = together.as_ref().map_or(span, |word| word.span);
        let told = self.unknown_dims.get(unknown);
        let mended = match &together {
            Some(word) => Some(format!("[{}]", word.text)),
            None => told.cloned().flatten(),
        };
        if (told.is_some() && sink.is_told("E0301", unknown, place, mended)) || !sink.has_room() {
            return;
        }
        let known = self.dim_names();
        let near = nearest(unknown, known.iter().map(String::as_str)).map(str::to_string);
        self.unknown_dims.insert(unknown.to_string(), near.clone());
        sink.report_name(
            unknown,
            DimProblem::Unknown {
                name: unknown.to_string(),
                span,
                near,
                known,
                is_letter,
                together,
            },
        );
    }

    /// The dims of a list, all different.
    pub(crate) fn dim_list(&mut self, list: &ast::DimList, sink: &mut Sink) -> Option<Vec<DimId>> {
        let compact = list.form == ast::DimsForm::Compact && list.dims.len() > 1;
        let before = sink.errors();
        let mut out: Vec<(DimId, Span)> = Vec::new();
        let mut whole = true;
        for name in &list.dims {
            match self.dim(name, compact.then_some((list.span, list.raw.as_str())), sink) {
                Some(id) => match out.iter().find(|(seen, _)| *seen == id) {
                    Some((_, first)) => {
                        let dim = name.value.clone();
                        sink.report(DimProblem::Repeated { dim, span: name.span, first: *first });
                        whole = false;
                    }
                    None => out.push((id, name.span)),
                },
                None => whole = false,
            }
            if compact && sink.errors() > before {
                break; // one word, one error
            }
        }
        whole.then(|| out.into_iter().map(|(id, _)| id).collect())
    }

    /// Every name of a dim, in name order.
    pub(crate) fn dim_names(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// Some dims as they are written: `BLE`, or `[Batch, E]` where a name is longer than a letter
    /// and digits.
    pub(crate) fn dims_text(&self, dims: &[DimId]) -> String {
        let names: Vec<&str> = dims.iter().map(|d| self.dims[d.index()].name.as_str()).collect();
        let compact = !names.is_empty()
            && names.iter().all(|n| n.chars().skip(1).all(|c| c.is_ascii_digit()));
        if compact { names.concat() } else { format!("[{}]", names.join(", ")) }
    }

    /// The name of a dim.
    pub(crate) fn dim_name(&self, dim: DimId) -> &str {
        &self.dims[dim.index()].name
    }

    /// The size of a dim.
    pub(crate) fn size(&self, dim: DimId) -> u64 {
        self.dims[dim.index()].size
    }

    /// The text to remove so that a phase no longer states a size: the size, and the comma behind
    /// it or else the comma before it.
    fn without(&self, phase: &ast::Phase, at: usize) -> Span {
        let size = phase.sizes[at].span;
        let behind = self.file.text.get(size.end..phase.span.end);
        let behind = behind.unwrap_or_else(|| never!("a size that ends outside its phase", ""));
        let rest = behind.trim_start_matches([' ', '\t']);
        if let Some(next) = rest.strip_prefix(',') {
            let spaces = next.len() - next.trim_start_matches([' ', '\t']).len();
            return Span::new(size.start, size.end + behind.len() - next.len() + spaces);
        }
        let start = at.checked_sub(1).map_or(size.start, |before| phase.sizes[before].span.end);
        Span::new(start, size.end)
    }

    /// Warns of the dims that nothing uses.
    pub(crate) fn report_unused(&self, tree: &ast::File, sink: &mut Sink) {
        for (dim, (line, used)) in self.dims.iter().zip(self.dim_lines.iter().zip(&self.used)) {
            if !used {
                let sizes = tree.phases().flat_map(|phase| {
                    let of_dim = phase.sizes.iter().enumerate();
                    of_dim
                        .filter(|(_, size)| size.name.value == dim.name)
                        .map(|(at, _)| (phase.name.value.clone(), self.without(phase, at)))
                });
                sink.report(DimProblem::Unused {
                    name: dim.name.clone(),
                    span: line.line.span,
                    phases: sizes.collect(),
                });
            }
        }
    }
}
