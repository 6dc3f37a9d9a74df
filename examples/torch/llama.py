"""A block of a Llama as a program of `torch.export`: what has to be sent for its placements, and for better ones.

    python examples/torch/llama.py

Sizes are those of Llama 3 8B; the module lies on `meta`, so that nothing is computed. The first placements split the last
matrix over its columns, which takes a hidden dim that is whole, where the two before it leave it split.
"""

import shardc
import torch
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard

MESH = {"data": 2, "model": 4}  # or a DeviceMesh with mesh_dim_names
ROWS = [Shard(0), Replicate()]
COLUMN, ROW = [Replicate(), Shard(0)], [Replicate(), Shard(1)]  # of a Linear's weight, which is [out, in]


class Block(torch.nn.Module):
    def __init__(self, width=4096, hidden=14336, heads=32, shared=8):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.first, self.second = torch.nn.RMSNorm(width, eps=1e-5), torch.nn.RMSNorm(width, eps=1e-5)
        self.wq = torch.nn.Linear(width, width, bias=False)
        self.wk = torch.nn.Linear(width, shared * self.size, bias=False)
        self.wv = torch.nn.Linear(width, shared * self.size, bias=False)
        self.wo = torch.nn.Linear(width, width, bias=False)
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        h = self.first(x)
        q = self.wq(h).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k = self.wk(h).unflatten(-1, (self.shared, self.size)).transpose(1, 2)
        v = self.wv(h).unflatten(-1, (self.shared, self.size)).transpose(1, 2)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotated(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def program(batch=8, length=256, **sizes):
    with torch.device("meta"):
        block = Block(**sizes).to(torch.bfloat16)
        x = torch.empty(batch, length, block.wq.in_features, dtype=torch.bfloat16)
        cos, sin = (torch.empty(length, block.size, dtype=torch.bfloat16) for _ in range(2))
        return torch.export.export(block, (x, cos, sin))


def placements(edited=False):
    columns = dict.fromkeys(["wq.weight", "wk.weight", "wv.weight", "gate.weight", "up.weight"], COLUMN)
    return {"x": ROWS, **columns, "wo.weight": ROW, "down.weight": ROW if edited else COLUMN}


if __name__ == "__main__":
    exported = program()
    for edited in (False, True):
        laid = {"mesh": MESH, "placements": placements(edited), "out_placements": [ROWS]}
        (layer,) = shardc.explain(exported, **laid, alternatives="none")
        sent, takes = layer.totals.comm_bytes / 1e6, layer.totals.serial_time_s * 1e3
        print(
            f"down.weight {placements(edited)['down.weight']}: {sent:.1f} MB, {takes:.2f} ms, {layer.optimality.status}"
        )
        for step in layer.collectives:
            where = "the result" if step.source is None else f"line {step.source.line}"
            print(f"  {step.op}, {step.wire_bytes / 1e6:.1f} MB, {where}")
