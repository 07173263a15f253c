"""Common functions of Paddle, each against eager: forward, gradient, two calls."""
