"""Eager Paddle models, written as their users write them, that several tests share."""
