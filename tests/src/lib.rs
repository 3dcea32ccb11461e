//! Tests only (`blackbox/`, `rules/`): cargo takes no package without a library or a program.
