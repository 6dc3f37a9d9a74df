"""Compiles the text of a program of StableHLO, as JAX compiles one of its own, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._program.lib import module


class Compiler:
    """Compiles for the devices that a compiled function of JAX is for."""

    def __init__(self, before: str, compiled: Any) -> None:
        """`before` is the text from which `compiled` was made."""
        self._compiled = compiled
        self._before = before

    def reply(self, text: str) -> Mapping[str, str]:
        """The optimised HLO and the kind of device, or the error."""
        try:
            hlo = self._compiled.as_text() if text == self._before else self._compile(text)
            return {"hlo": hlo, "platform": str(self._devices()[0].platform)}
        except Exception as error:  # noqa: BLE001 - JAX keeps none of this stable: what it says is handed on
            return {"error": f"{type(error).__name__}: {str(error)[:400]}"}

    def _compile(self, text: str) -> str:
        devices = self._devices()
        compiler, mlir, ir = (
            module(f"jax.{name}") for name in ("_src.compiler", "_src.interpreters.mlir", "extend.mlir.ir")
        )
        with mlir.make_ir_context():
            program = ir.Module.parse(text)
            options = compiler.get_compile_options(
                num_replicas=1, num_partitions=len(devices), device_assignment=[[device.id for device in devices]]
            )
            # The collectives are decided before code is generated, and no code is run.
            debug = options.executable_build_options.debug_options
            debug.xla_backend_optimization_level = 0
            debug.xla_llvm_disable_expensive_passes = True
            on = module("jax._src.lib")._jax.DeviceList(tuple(devices))
            made = compiler.backend_compile_and_load(devices[0].client, program, on, options, [])
        (hlo,) = made.hlo_modules()
        return str(hlo.to_string())

    def _devices(self) -> list[Any]:
        """In the order of the partitions."""
        shardings = module("jax").tree.leaves(
            (self._compiled.input_shardings, self._compiled.output_shardings),
            is_leaf=lambda node: hasattr(node, "device_set"),
        )
        for sharding in shardings:
            if hasattr(sharding, "_device_assignment"):
                return list(sharding._device_assignment)
        raise ValueError("no argument and no result lies on devices")
