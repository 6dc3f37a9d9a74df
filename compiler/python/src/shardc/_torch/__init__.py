"""From an exported program of PyTorch to a `.shard` file.

    ExportedProgram --walk--> layers of statements --rewrite--> the same, shorter --text--> `.shard`

| module        | has                                                        |
|---------------|------------------------------------------------------------|
| `walk`        | nodes one after another; which operator becomes what       |
| `node`        | one call of an operator: its arguments by name             |
| `elementwise`, `reductions`, `shapes`, `products`, `attention`, `indexing` | what each operator becomes |
| `evaluate`    | what depends on no tensor of the caller, computed          |
| `placements`  | meshes and placements of DTensor                           |
| `source`      | the line behind a node                                     |

All else is in `_program`. PyTorch is imported when it is used: without it the rest of the package works.
"""
