"""From a function of JAX to a `.shard` file.

    jaxpr --walk--> layers of statements --rewrite--> the same, shorter --text--> `.shard`

| module       | has                                                              |
|--------------|------------------------------------------------------------------|
| `walk`       | equations one after another, calls written out                   |
| `primitives`, `indexing`, `convolutions`, `loops` | what each primitive becomes |
| `evaluate`   | what depends on no array of the caller, computed                 |
| `specs`      | meshes and `PartitionSpec`s                                      |
| `source`     | the line behind an equation                                      |
| `compiler`   | XLA, for the audit                                               |

All else is in `_program`. JAX is imported when it is used: without it the rest of the package works.
"""
