"""Passes over loops: ports, invariant code motion, batching, fission, fusion."""
