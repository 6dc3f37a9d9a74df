//! Source text, grammar, AST, parser and printer of .shard files.
