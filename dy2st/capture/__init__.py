"""Capture: the user's function runs once with fake tensors; each Paddle call becomes an op."""
