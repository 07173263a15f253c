"""Passes over loops: ports, and work that leaves them."""
