//! The type checker: AST to Program, and every diagnostic.
