"""Loops of taggers and recommenders: CRF, Viterbi, AUGRU, recurrences in both directions."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class LinearChainCrf(nn.Layer):
    """The log of the partition function, by the forward algorithm; padding leaves alpha alone."""

    def __init__(self, num_labels: int = 5) -> None:
        super().__init__()
        self.num_labels = num_labels
        self.transitions = self.create_parameter([num_labels, num_labels])
        self.start = self.create_parameter([num_labels])
        self.stop = self.create_parameter([num_labels])

    def log_sum_exp(self, x, axis):
        high = x.max(axis=axis, keepdim=True)
        return (high + (x - high).exp().sum(axis=axis, keepdim=True).log()).squeeze(axis)

    def forward(self, emissions, lengths):
        batch_size, seq_len, n_labels = emissions.shape
        alpha = self.start.unsqueeze(0) + emissions[:, 0]
        for i in range(1, seq_len):
            emit = emissions[:, i].unsqueeze(1)
            scores = alpha.unsqueeze(2) + self.transitions.unsqueeze(0) + emit
            next_alpha = self.log_sum_exp(scores, 1)
            mask = (i < lengths).unsqueeze(-1)
            alpha = paddle.where(mask, next_alpha, alpha)
        return self.log_sum_exp(alpha + self.stop.unsqueeze(0), 1)


class ViterbiDecoder(nn.Layer):
    """Back-pointers are collected in a list and followed backwards from the last step."""

    def __init__(self, num_tags: int = 5) -> None:
        super().__init__()
        self.num_tags = num_tags
        self.transitions = self.create_parameter([num_tags, num_tags])

    def forward(self, inputs):
        batch_size, seq_len, n_labels = inputs.shape
        alpha = inputs[:, 0]
        batch_offset = paddle.arange(batch_size) * n_labels
        historys = []
        for i in range(1, seq_len):
            alpha_trn_sum = alpha.unsqueeze(2) + self.transitions.unsqueeze(0)
            alpha_max = alpha_trn_sum.max(axis=1)
            alpha_argmax = alpha_trn_sum.argmax(axis=1)
            historys.append(alpha_argmax)
            alpha = alpha_max + inputs[:, i]

        scores, last_ids = alpha.max(axis=1), alpha.argmax(axis=1)
        batch_path = [last_ids]
        for hist in reversed(historys):
            last_ids = paddle.gather(hist.flatten(), batch_offset + last_ids)
            batch_path.append(last_ids)
        return scores, paddle.flip(paddle.stack(batch_path, axis=1), axis=[1])


class AUGRU(nn.Layer):
    """Interest evolution of DIEN: a GRU whose update gate is scaled by an attention score."""

    def __init__(self, features: int = 6, hidden: int = 6) -> None:
        super().__init__()
        self.hidden = hidden
        self.attention = nn.Linear(features + hidden, 1)
        self.gates = nn.Linear(features + hidden, 2 * hidden)
        self.candidate = nn.Linear(features + hidden, hidden)

    def forward(self, interests, target, lengths):
        batch, steps, _ = interests.shape
        query = target.unsqueeze(1).expand([batch, steps, target.shape[1]])
        scores = self.attention(paddle.concat([interests, query], axis=-1)).squeeze(-1)
        mask = paddle.arange(steps).unsqueeze(0) < lengths.unsqueeze(1)
        scores = F.softmax(paddle.where(mask, scores, paddle.full_like(scores, -1e9)), axis=1)
        h = paddle.zeros([batch, self.hidden])
        outputs = []
        for t in range(steps):
            x_t = interests[:, t]
            r, u = paddle.split(F.sigmoid(self.gates(paddle.concat([x_t, h], -1))), 2, axis=-1)
            c = paddle.tanh(self.candidate(paddle.concat([x_t, r * h], axis=-1)))
            u = scores[:, t : t + 1] * u
            new_h = (1.0 - u) * h + u * c
            keep = mask[:, t].unsqueeze(-1).astype("float32")
            h = keep * new_h + (1.0 - keep) * h
            outputs.append(h)
        return h, paddle.stack(outputs, axis=1)


class BiLSTM(nn.Layer):
    """Cells in both directions over padded sequences, joined step by step."""

    def __init__(self, features: int = 5, hidden: int = 6) -> None:
        super().__init__()
        self.forward_cell = nn.LSTMCell(features, hidden)
        self.backward_cell = nn.LSTMCell(features, hidden)
        self.hidden = hidden

    def run(self, cell, x, mask, steps):
        h = c = paddle.zeros([x.shape[0], self.hidden])
        outputs = []
        for t in steps:
            keep = mask[:, t].unsqueeze(-1)
            _, (new_h, new_c) = cell(x[:, t], (h, c))
            h = paddle.where(keep, new_h, h)
            c = paddle.where(keep, new_c, c)
            outputs.append(h)
        return outputs, h

    def forward(self, x, mask):
        steps = x.shape[1]
        ahead, last_ahead = self.run(self.forward_cell, x, mask, range(steps))
        back, last_back = self.run(self.backward_cell, x, mask, range(steps - 1, -1, -1))
        back = paddle.flip(paddle.stack(back, axis=1), axis=[1])
        out = paddle.concat([paddle.stack(ahead, axis=1), back], axis=-1)
        return out, paddle.concat([last_ahead, last_back], axis=-1)


class BiGRUBuffers(nn.Layer):
    """Both directions in one loop, each into a buffer of its own."""

    def __init__(self, features: int = 5, hidden: int = 6) -> None:
        super().__init__()
        self.fw, self.bw = nn.GRUCell(features, hidden), nn.GRUCell(features, hidden)
        self.hidden = hidden

    def forward(self, x):
        batch, steps, _ = x.shape
        hf = paddle.zeros([batch, self.hidden])
        hb = paddle.zeros([batch, self.hidden])
        out = paddle.zeros([batch, steps, 2 * self.hidden])
        for t in range(steps):
            hf, _ = self.fw(x[:, t], hf)
            hb, _ = self.bw(x[:, steps - 1 - t], hb)
            out[:, t, : self.hidden] = hf
            out[:, steps - 1 - t, self.hidden :] = hb
        return out, hf, hb


class RecurrentHighway(nn.Layer):
    """Frames times layers: the depth of a step is a loop over stacked weights."""

    def __init__(self, features: int = 5, hidden: int = 6, depth: int = 4) -> None:
        super().__init__()
        self.depth, self.hidden = depth, hidden
        self.inputs = nn.Linear(features, 2 * hidden)
        self.weights = self.create_parameter([depth, hidden, 2 * hidden])
        self.biases = self.create_parameter([depth, 2 * hidden], is_bias=True)

    def forward(self, frames):
        batch, steps, _ = frames.shape
        s = paddle.zeros([batch, self.hidden])
        outputs = []
        for t in range(steps):
            projected = self.inputs(frames[:, t])
            for layer in range(self.depth):
                z = paddle.matmul(s, self.weights[layer]) + self.biases[layer]
                if layer == 0:
                    z = z + projected
                h, gate = paddle.split(z, 2, axis=-1)
                gate = F.sigmoid(gate)
                s = gate * paddle.tanh(h) + (1 - gate) * s
            outputs.append(s)
        return paddle.stack(outputs, axis=1), s
