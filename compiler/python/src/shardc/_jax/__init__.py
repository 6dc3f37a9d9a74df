"""From a function of JAX to a `.shard` file.

    jaxpr --walk--> layers of statements --rewrite--> the same, shorter --text--> `.shard`

| module     | has                                                               |
|------------|-------------------------------------------------------------------|
| `dims`     | which dims of which tensors are one, and what they are called     |
| `program`  | values, statements, layers: what the walk makes and the text shows |
| `known`    | what depends on no array of the caller: masks, positions, tables  |
| `walk`     | equations one after another, calls written out                    |
| `arithmetic`, `shapes`, `products`, `indexing`, `loops` | what each primitive becomes |
| `rewrite`  | softmax, silu, gelu and relu where they are written out           |
| `specs`    | meshes and `PartitionSpec`s                                       |
| `source`   | the line and the variable behind an equation                      |
| `text`     | the file                                                          |

JAX is imported when it is used: without it the rest of the package works.
"""
