"""What every reader of programs writes a `.shard` file with, be they of JAX or of PyTorch.

| module     | has                                                                |
|------------|--------------------------------------------------------------------|
| `dims`     | which dims of which tensors are one, and what they are called      |
| `program`  | values, statements, layers: what a walk makes and the text shows   |
| `builder`  | makes the statements of a layer                                    |
| `known`    | what depends on no array of the caller: masks, positions, tables   |
| `arithmetic`, `shapes`, `products`, `indexing` | what several systems have, by plain arguments |
| `rewrite`  | softmax, silu, gelu and relu where they are written out            |
| `text`, `layouts`, `translation` | the file, and how it and the program belong together |
| `source`   | the variable behind a line                                         |
"""
