"""A Layer whose chains end in every way, for the text of a report."""

import paddle


class Chains(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([3]))  # kept for the backward
        self.register_buffer("history", paddle.zeros([4, 3]))  # only written, in a loop
        self.register_buffer("last", paddle.zeros([3]))  # kept, but as a copy
        self.register_buffer("seen", paddle.zeros([], "int64"))  # returned
        self.scale = self.create_parameter([3])

    def forward(self, x):
        self.seen.add_(paddle.to_tensor(1))
        self.mean.scale_(0.9)
        self.mean.add_(x.mean(0) * 0.1)
        for t in range(x.shape[0]):
            self.history[t] = x[t] - self.mean
        if x.sum() > 0:
            self.last.add_(x[0])
        else:
            self.last.set_value(x[1])
        y = (x - self.mean) * self.scale * self.last * self.mean
        return y.sum(), self.seen
