"""The package against the binary: what it returns, what it raises, and what a notebook shows."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import shardc

EXAMPLES = Path(__file__).parents[3] / "examples"
MLP = EXAMPLES / "feed_forward" / "2d_weight_stationary.shard"
WRONG = EXAMPLES / "errors" / "E0203" / "splits_and_is_partial.shard"


def test_a_plan_is_objects_with_what_the_json_says() -> None:
    plan = shardc.explain(MLP)
    (layer,) = plan
    assert (layer.name, layer.mesh, layer.strategy) == ("mlp", {"x": 4, "y": 4, "z": 4}, ("2d-weight-stationary",))
    assert layer.optimality is not None and layer.optimality.status == "proven"
    assert [step.op for step in layer.collectives] == ["all-gather", "reduce-scatter", "all-gather", "reduce-scatter"]
    gather = layer.collectives[0]
    assert (gather.name, gather.axes, gather.dim, gather.line) == ("x", ("y", "z"), "E", 21)
    assert (gather.bytes, gather.wire_bytes, gather.time_s) == (4718592, 4423680, 1.6384e-05)
    assert gather.placed["dims"][2] == {"dim": "E", "axes": ["x"]}
    assert layer["h"].layout == "BLF_yzx"
    assert layer.raw is plan.raw["layers"][0]
    assert plan.diagnostics == ()
    assert layer.outputs[0].name == "y"


def test_what_is_asked_reaches_the_binary() -> None:
    plan = shardc.explain(MLP, dims={"B": 64}, mesh={"x": 2, "y": 2, "z": 2}, hardware="tpu-v5p", alternatives="none")
    (layer,) = plan.layers
    assert layer.mesh == {"x": 2, "y": 2, "z": 2} and layer.hardware == "tpu-v5p"
    assert layer.raw["dims"][0] == {"name": "B", "size": 64, "useful": 64}
    fused = shardc.explain(MLP, fuse=True).layers[0]
    assert fused.totals.serial_time_s < shardc.explain(MLP).layers[0].totals.serial_time_s


def test_cost_and_run_are_objects() -> None:
    (layer,) = shardc.cost(MLP)
    assert layer.memory.fits and layer.memory.weight_bytes == 84934656
    assert layer.mfu == pytest.approx(0.7218, abs=1e-4)
    (ran,) = shardc.run(MLP, seed=3)
    assert ran.equal and ran.devices == 64
    assert all(sent.wire_bytes == sent.model_wire_bytes for sent in ran.collectives)


def test_a_lowered_program_is_a_program() -> None:
    text = shardc.lower(MLP)
    again = shardc.explain(shardc.Source(text)).layers[0]
    assert again.totals.serial_time_s == shardc.explain(MLP).layers[0].totals.serial_time_s
    assert again.optimality is None


def test_a_wrong_program_raises_its_diagnostics() -> None:
    for call in (shardc.explain, shardc.cost, shardc.run, shardc.lower, shardc.check):
        with pytest.raises(shardc.ProgramError) as raised:
            call(WRONG)
        (diagnostic,) = raised.value.diagnostics
        assert (raised.value.status, diagnostic.code, diagnostic.severity) == (1, "E0203", "error")
        assert diagnostic.span is not None and (diagnostic.span.line, diagnostic.span.column) == (7, 31)
        assert len(diagnostic.labels) == 2 and diagnostic.helps[0].text == "BF_y or BF(partialsum-y)"
        assert "E0203" in str(raised.value) and ":7:31: " in str(raised.value)


def test_wrong_usage_raises_what_is_wrong() -> None:
    with pytest.raises(shardc.UsageError, match="cannot read `no-such-file.shard`"):
        shardc.explain("no-such-file.shard")
    with pytest.raises(shardc.UsageError, match="objective") as raised:
        shardc.explain(MLP, objective="beauty")
    assert raised.value.status == 2
    # A path with a dash in front is a path.
    with pytest.raises(shardc.UsageError, match="cannot read `./--strict`"):
        shardc.explain("--strict")


def test_warnings_are_beside_the_result() -> None:
    text = MLP.read_text()
    warned = [d.code for d in shardc.check(shardc.Source(text.replace("layer mlp", "dim Unused = 4\nlayer mlp")))]
    assert warned and all(code and code.startswith("W") for code in warned)


class Texts(HTMLParser):
    """The cells of a page, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_a_notebook_shows_a_row_for_each_instruction() -> None:
    plan = shardc.explain(MLP)
    page = Texts()
    page.feed(plan._repr_html_())
    assert page.tags.count("tr") == 1 + len(plan.layers[0].instructions)
    assert "mlp: 219 µs on x=4, y=4, z=4 of tpu-v4-flat, proven" in page.cells
    assert "all-gather yz along E" in page.cells and "4.42 MB" in page.cells
    assert "equal" in shardc.run(MLP)._repr_html_()
    assert shardc.cost(MLP)._repr_html_().count("<tr") == page.tags.count("tr")


def test_what_a_stranger_named_is_no_markup() -> None:
    plan = shardc.explain(MLP)
    raw = json.loads(json.dumps(plan.raw).replace('"mlp"', '"<script>"'))
    assert "<script>" not in shardc.Explanation.of(raw, ())._repr_html_()


def test_the_module_is_the_binary() -> None:
    ran = subprocess.run([sys.executable, "-m", "shardc", "--version"], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["shardc", shardc.version()]
    ran = subprocess.run([sys.executable, "-m", "shardc", "nonsense"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_one_file_of_the_schemas_is_all_that_a_validator_needs() -> None:
    folder = EXAMPLES.parent / "spec" / "schema"
    for path in folder.iterdir():
        Draft202012Validator.check_schema(json.loads(path.read_text()))
    commands = (("explain",), ("cost",), ("lower",), ("run",), ("check",), ("explain", "--why", "x"))
    for words in commands:
        document = json.loads(shardc.command(*words, "--format", "json", MLP).out)
        name = document["schema"].split(".")[1].split("/")[0]
        schema = json.loads((folder / f"{name}.schema.json").read_text())
        Draft202012Validator(schema).validate(document)


LAYER = """hardware tpu-v4-face
mesh x=4, y=2
dim B = 128
dim E = 1024
dim F = 4096
layer mlp(x: bf16 BE, w: weight bf16 EF_x) -> bf16 BF {
  return einsum(x, w -> BF)
}
"""


@pytest.mark.parametrize("page", ["spec/installing.md", "compiler/python/README.md"])
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    text = (EXAMPLES.parent / page).read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert blocks
    (tmp_path / "mlp.shard").write_text(LAYER)
    for block in blocks:
        ran = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), block
        assert "proven" in ran.stdout


def test_a_jitted_function_is_audited() -> None:
    dumps = Path(__file__).parents[2] / "audit" / "tests" / "dumps" / "bad_wout_columns"

    class Compiled:
        def as_text(self) -> str:
            return (dumps / "cpu.hlo").read_text()

    class Lowered:
        def as_text(self, debug_info: bool = False) -> str:
            return (dumps / "stablehlo.loc.mlir").read_text()

        def compile(self) -> Compiled:
            return Compiled()

    class Jitted:
        def lower(self) -> Lowered:
            return Lowered()

    found = shardc.audit(Jitted(), hardware="tpu-v5e")
    assert found.wire_bytes == 14155776 and found.lines[0].source == shardc.Place("bad_wout_columns.py", 15)
    assert [(one.value, one.new) for one in found.advice] == [("w_out", 'P("model", None)')]
    assert "to edit" in str(found)
    with pytest.raises(shardc.ProgramError):
        shardc.audit(Jitted(), max_bytes=1000)
