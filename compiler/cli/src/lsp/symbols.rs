//! The names of a file: where each is defined and used, and what renaming one changes.

use shard_grammar::ast::{
    Argument, AxesWord, Claim, DimList, DimsForm, Expr, ExprKind, File, IntExpr, IntExprKind, Item,
    LayoutWord, LetTarget, Name, PartialGroup, Statement, Type,
};
use shard_grammar::{Span, print_dim_list, print_layout_word};

/// The namespace of a name. Values and labels belong to one layer, by its index in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Value(usize),
    Label(usize),
    Layer,
    Dim,
    Axis,
    Phase,
}

impl Kind {
    /// Whether a word may be such a name.
    pub(crate) fn admits(self, word: &str) -> bool {
        let mut letters = word.chars();
        let first = letters.next().unwrap_or(' ');
        let (starts, underscores) = match self {
            Kind::Value(_) => (first.is_ascii_lowercase() || first == '_', true),
            Kind::Layer | Kind::Phase => (first.is_ascii_lowercase(), true),
            Kind::Label(_) | Kind::Axis => (first.is_ascii_lowercase(), false),
            Kind::Dim => (first.is_ascii_uppercase(), false),
        };
        let reserved =
            matches!(self, Kind::Value(_) | Kind::Layer) && shard_grammar::is_reserved(word);
        starts
            && !reserved
            && letters.all(|c| c.is_ascii_alphanumeric() || (underscores && c == '_'))
    }
}

/// One place where a name stands.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Occurrence {
    pub(crate) span: Span,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) is_definition: bool,
}

/// A word that is rewritten as a whole when a name in it changes: `E_xy` with `x` renamed `data` is
/// `E_{data,y}`.
enum Word<'a> {
    Layout(&'a LayoutWord),
    Axes(&'a AxesWord),
    List(&'a DimList),
}

/// All names of a file, in no special order.
#[derive(Default)]
pub(crate) struct Symbols<'a> {
    pub(crate) all: Vec<Occurrence>,
    words: Vec<Word<'a>>,
    layer: usize,
    /// The names of the layers, in file order.
    layers: Vec<&'a str>,
}

impl<'a> Symbols<'a> {
    pub(crate) fn of(file: &'a File) -> Symbols<'a> {
        let layers = file.layers().map(|layer| layer.name.value.as_str()).collect();
        let mut symbols = Symbols { layers, ..Symbols::default() };
        for item in &file.items {
            symbols.item(item);
        }
        symbols
    }

    /// The name that stands at a byte, or ends there.
    pub(crate) fn at(&self, at: usize) -> Option<&Occurrence> {
        let at_end = || self.all.iter().find(|o| o.span.end == at);
        self.all.iter().find(|o| o.span.start <= at && at < o.span.end).or_else(at_end)
    }

    /// Every place of the same name.
    pub(crate) fn same_as<'s>(
        &'s self,
        one: &'s Occurrence,
    ) -> impl Iterator<Item = &'s Occurrence> {
        self.all.iter().filter(|o| o.kind == one.kind && o.name == one.name)
    }

    /// The edits that rename a name. A word that would not parse with the new name in its place is
    /// rewritten as a whole.
    pub(crate) fn renamed(&self, one: &Occurrence, to: &str) -> Vec<(Span, String)> {
        let mut edits: Vec<(Span, String)> =
            self.words.iter().filter_map(|word| renamed_word(word, one, to)).collect();
        for place in self.same_as(one) {
            let inside = |(span, _): &(Span, String)| {
                span.start <= place.span.start && place.span.end <= span.end
            };
            if !edits.iter().any(inside) {
                edits.push((place.span, to.to_string()));
            }
        }
        edits
    }

    fn item(&mut self, item: &'a Item) {
        match item {
            Item::Hardware(_) => {}
            Item::Mesh(mesh) => {
                mesh.axes.iter().for_each(|axis| self.name(&axis.name, Kind::Axis, true))
            }
            Item::Dim(dim) => {
                self.name(&dim.name, Kind::Dim, true);
                self.size(&dim.value);
                dim.pad.iter().for_each(|pad| self.size(pad));
            }
            Item::Phase(phase) => {
                self.name(&phase.name, Kind::Phase, true);
                for dim in &phase.sizes {
                    self.name(&dim.name, Kind::Dim, false);
                    self.size(&dim.value);
                    dim.pad.iter().for_each(|pad| self.size(pad));
                }
            }
            Item::Layer(layer) => {
                self.name(&layer.name, Kind::Layer, true);
                for param in &layer.params {
                    self.name(&param.name, Kind::Value(self.layer), true);
                    self.ty(&param.ty);
                }
                layer.results.types().into_iter().for_each(|ty| self.ty(ty));
                layer.body.iter().for_each(|statement| self.statement(statement));
                self.layer += 1;
            }
        }
    }

    fn statement(&mut self, statement: &'a Statement) {
        let value = Kind::Value(self.layer);
        match statement {
            Statement::Let(statement) => {
                match &statement.target {
                    LetTarget::One { name, ty } => {
                        self.name(name, value, true);
                        ty.iter().for_each(|ty| self.ty(ty));
                    }
                    LetTarget::Many { names, .. } => {
                        names.iter().for_each(|name| self.name(name, value, true))
                    }
                }
                self.expr(&statement.value);
            }
            Statement::Expect(expect) => match &expect.claim {
                Claim::Strategy { .. } => {}
                Claim::None { of, .. } | Claim::Measured { of, .. } => {
                    of.iter().for_each(|name| self.name(name, value, false));
                }
            },
            Statement::Return(statement) => {
                statement.value.values().into_iter().for_each(|e| self.expr(e))
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match &expr.kind {
            ExprKind::Number(_) => {}
            ExprKind::Name(name) => self.push(expr.span, name, Kind::Value(self.layer), false),
            ExprKind::Call { callee, args } => {
                self.name(callee, Kind::Layer, false);
                // `w: tied`: the name is one of the layer that is called.
                let called = self.layers.iter().position(|name| *name == callee.value);
                for arg in args {
                    if let (ExprKind::Named { name, .. }, Some(layer)) = (&arg.kind, called) {
                        self.name(name, Kind::Value(layer), false);
                    }
                }
            }
            ExprKind::Einsum { output, .. } => self.list(output),
            ExprKind::Form { arguments, .. } => {
                arguments.iter().for_each(|argument| match argument {
                    Argument::Dim(name) => self.name(name, Kind::Dim, false),
                    Argument::Dims(list) => self.list(list),
                    Argument::Number(size) => self.size(size),
                    Argument::Dtype(_) => {}
                })
            }
            ExprKind::Reshard { layout, partial, .. } => {
                self.layout(layout);
                self.partial(partial);
            }
            ExprKind::Named { .. }
            | ExprKind::Paren(_)
            | ExprKind::Neg { .. }
            | ExprKind::Binary { .. } => {}
        }
        expr.operands().into_iter().for_each(|operand| self.expr(operand));
    }

    fn size(&mut self, size: &'a IntExpr) {
        match &size.kind {
            IntExprKind::Number(_) => {}
            IntExprKind::Dim(name) => self.push(size.span, name, Kind::Dim, false),
            IntExprKind::Binary { left, right, .. } => {
                self.size(left);
                self.size(right);
            }
            IntExprKind::Paren(inner) => self.size(inner),
        }
    }

    fn ty(&mut self, ty: &'a Type) {
        self.layout(&ty.layout);
        self.partial(&ty.partial);
    }

    fn layout(&mut self, word: &'a LayoutWord) {
        self.words.push(Word::Layout(word));
        for dim in &word.dims {
            self.name(&dim.name, Kind::Dim, false);
            dim.axes
                .iter()
                .flat_map(|axes| &axes.axes)
                .for_each(|axis| self.name(axis, Kind::Axis, false));
        }
        let label = word.free.as_ref().and_then(|free| free.label.as_ref());
        label.into_iter().for_each(|label| self.name(label, Kind::Label(self.layer), false));
    }

    fn partial(&mut self, groups: &'a [PartialGroup]) {
        for group in groups {
            self.words.push(Word::Axes(&group.axes));
            group.axes.axes.iter().for_each(|axis| self.name(axis, Kind::Axis, false));
        }
    }

    fn list(&mut self, list: &'a DimList) {
        self.words.push(Word::List(list));
        list.dims.iter().for_each(|dim| self.name(dim, Kind::Dim, false));
    }

    fn name(&mut self, name: &Name, kind: Kind, is_definition: bool) {
        self.push(name.span, &name.value, kind, is_definition);
    }

    fn push(&mut self, span: Span, name: &str, kind: Kind, is_definition: bool) {
        self.all.push(Occurrence { span, name: name.to_string(), kind, is_definition });
    }
}

fn renamed_word(word: &Word<'_>, one: &Occurrence, to: &str) -> Option<(Span, String)> {
    let mut changed = false;
    let mut rename = |name: &mut Name| {
        if name.value == one.name {
            name.value = to.to_string();
            changed = true;
        }
    };
    let (span, text) = match word {
        Word::Layout(word) => {
            let mut new = (*word).clone();
            for dim in &mut new.dims {
                match one.kind {
                    Kind::Dim => rename(&mut dim.name),
                    Kind::Axis => {
                        dim.axes.iter_mut().flat_map(|axes| &mut axes.axes).for_each(&mut rename)
                    }
                    Kind::Value(_) | Kind::Label(_) | Kind::Layer | Kind::Phase => return None,
                }
            }
            (word.span, print_layout_word(&new))
        }
        Word::Axes(axes) if one.kind == Kind::Axis => {
            let mut new: Vec<Name> = axes.axes.clone();
            new.iter_mut().for_each(&mut rename);
            let names: Vec<&str> = new.iter().map(|axis| axis.value.as_str()).collect();
            let short = names.iter().all(|name| name.len() == 1);
            (axes.span, if short { names.concat() } else { format!("{{{}}}", names.join(",")) })
        }
        Word::List(list) if one.kind == Kind::Dim => {
            let mut new: DimList = (*list).clone();
            new.dims.iter_mut().for_each(&mut rename);
            if new.form == DimsForm::Compact && new.dims.len() == 1 {
                new.form = DimsForm::Single;
            }
            (list.span, print_dim_list(&new))
        }
        Word::Axes(_) | Word::List(_) => return None,
    };
    changed.then_some((span, text))
}
