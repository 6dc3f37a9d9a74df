"""Runs the functions of an exported StableHLO module on virtual devices, by jaxlib alone."""

import functools

import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax.extend.mlir import ir
from jax.sharding import NamedSharding


def parsed(text):
    """The module of a text, verified."""
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        module.operation.verify()
        return module


def function_names(text):
    """The names of the functions of a module."""
    return [name(op) for op in parsed(text).body.operations if is_function(op)]


def is_function(op):
    """Whether an operation of a module is a function."""
    return op.operation.name == "func.func"


def name(op):
    """The name of a function."""
    return ir.StringAttr(op.attributes["sym_name"]).value


def left_on_the_host(module):
    """Takes away what brings values from the host, as JAX does where that is the device."""

    def leave(op):
        is_call = op.name == "stablehlo.custom_call"
        target = op.attributes["call_target_name"] if is_call else None
        if target is not None and target.value == "annotate_device_placement":
            op.results[0].replace_all_uses_with(op.operands[0])
            away.append(op)
        return ir.WalkResult.ADVANCE

    away = []
    module.operation.walk(leave)
    for op in away:
        op.erase()


class Function:
    """A function of a module, in place of one that `jax.jit` has made."""

    def __init__(self, text, title, layer, mesh):
        """Takes the specs and the memory of the parameters from the layer of the JAX module."""
        self.text, self.title, self.layer, self.mesh = text, title, layer, mesh

    @functools.cached_property
    def executable(self):
        """The function alone, compiled as `main`."""
        module = parsed(self.text)
        with module.context:
            for op in list(module.body.operations):
                if is_function(op) and name(op) == self.title:
                    op.attributes["sym_name"] = ir.StringAttr.get("main")
                elif is_function(op):
                    op.operation.erase()
            left_on_the_host(module)
            module.operation.attributes["sym_name"] = ir.StringAttr.get("exported")
            devices = self.mesh.devices.ravel()
            numbers = [[device.id for device in devices]]
            options = compiler.get_compile_options(
                num_replicas=1, num_partitions=devices.size, device_assignment=numbers
            )
            return compiler.backend_compile_and_load(
                devices[0].client,
                module,
                _jax.DeviceList(tuple(devices)),
                options,
                [],
            )

    def __call__(self, *held):
        """Runs it on arrays that lie as the parameters do."""
        outs = self.executable.execute_sharded(held)
        arrays = outs.disassemble_into_single_device_arrays()
        made = []
        for result, shards in zip(self.layer["results"].values(), arrays, strict=True):
            sharding = NamedSharding(self.mesh, result)
            local = shards[0].shape
            spec = [*result, *[None] * (len(local) - len(result))]
            shape = [size * group(self.mesh, axes) for size, axes in zip(local, spec)]
            made.append(
                jax.make_array_from_single_device_arrays(tuple(shape), sharding, shards)
            )
        return tuple(made)

    def lower(self, *_):
        """Itself: it is lowered."""
        return self

    def compile(self):
        """Itself."""
        return self

    def as_text(self):
        """The HLO that each device runs."""
        return "\n".join(m.to_string() for m in self.executable.hlo_modules())


def group(mesh, axes):
    """How many blocks a dim is in that is split by these axes."""
    blocks = 1
    for axis in [axes] if isinstance(axes, str) else axes or ():
        blocks *= mesh.shape[axis]
    return blocks


def with_functions(module, text):
    """The module of JAX with the functions of a text in place of its own."""
    names = function_names(text)
    alone = names == ["main"]
    for title, layer in module.LAYERS.items():
        found = "main" if alone else title
        if found not in names:
            raise ValueError(f"the module has no function for {title}: {names}")
        layer["sharded"] = Function(text, found, layer, module.MESH)
    if not alone and len(names) != len(module.LAYERS):
        raise ValueError(f"functions without a layer: {names}")
    return module
