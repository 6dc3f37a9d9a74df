//! Mesh, layouts and their algebra, collectives and their laws, Program and Plan, the IR text form and its verifier.
