//! The graph as DOT.
