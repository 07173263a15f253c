"""A module that tests ask dy2st to leave alone."""

import paddle


def rescale(x, steps):
    """A loop and a generator, which a conversion would look into."""
    for factor in (k + 1.0 for k in range(steps)):
        x = x * factor
    return x


def pick(x):
    return x if x.sum() > 0 else -x


class Gain(paddle.nn.Layer):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.weight = self.create_parameter([4])

    def forward(self, x):
        for _ in range(2):
            x = x * self.factor + self.weight
        return x
