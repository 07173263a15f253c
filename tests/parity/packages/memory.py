"""Networks with a memory: neural Turing machine, pointers, attention over a source, trees."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class NTM(nn.Layer):
    """A controller that reads and writes a memory by content and by place."""

    def __init__(self, steps: int, N: int = 5, M: int = 3, size: int = 4) -> None:
        super().__init__()
        self.N, self.M = N, M
        self.controller = nn.LSTMCell(3 + M, size)
        self.read_head = nn.Linear(size, M + 1 + 1 + 3 + 1)
        self.write_head = nn.Linear(size, M + 1 + 1 + 3 + 1 + 2 * M)
        self.out = nn.Linear(size + M, 3)
        self.mem_bias = self.create_parameter([N, M])

    def address(self, memory, o, w_prev):
        M = self.M
        k, beta, g = o[:, :M], F.softplus(o[:, M : M + 1]), F.sigmoid(o[:, M + 1 : M + 2])
        s, gamma = F.softmax(o[:, M + 2 : M + 5], axis=1), 1 + F.softplus(o[:, M + 5 : M + 6])
        dot = (memory * k.unsqueeze(1)).sum(-1)
        norms = (memory**2).sum(-1).sqrt() * (k**2).sum(-1, keepdim=True).sqrt()
        wc = F.softmax(beta * dot / (norms + 1e-6), axis=1)
        wg = g * wc + (1 - g) * w_prev
        shifted = paddle.zeros_like(wg)
        for j in range(3):
            shifted = shifted + paddle.roll(wg, j - 1, axis=1) * s[:, j : j + 1]
        w = (shifted + 1e-9) ** gamma
        return w / w.sum(1, keepdim=True)

    def forward(self, xs):
        batch = xs.shape[0]
        self.memory = self.mem_bias.unsqueeze(0).tile([batch, 1, 1])
        r = paddle.zeros([batch, self.M])
        w_read = w_write = F.softmax(paddle.zeros([batch, self.N]), 1)
        state = None
        outputs = []
        for x in xs.unbind(1):
            h, state = self.controller(paddle.concat([x, r], 1), state)
            o = self.write_head(h)
            w_write = self.address(self.memory, o, w_write)
            e, a = F.sigmoid(o[:, -2 * self.M : -self.M]), o[:, -self.M :]
            erase = paddle.matmul(w_write.unsqueeze(-1), e.unsqueeze(1))
            add = paddle.matmul(w_write.unsqueeze(-1), a.unsqueeze(1))
            self.memory = self.memory * (1 - erase) + add
            w_read = self.address(self.memory, self.read_head(h), w_read)
            r = paddle.matmul(w_read.unsqueeze(1), self.memory).squeeze(1)
            outputs.append(F.sigmoid(self.out(paddle.concat([h, r], 1))))
        return paddle.stack(outputs, 1), self.memory


class DNC(nn.Layer):
    """Allocation by usage, temporal links: the rest of what a differentiable computer remembers."""

    def __init__(self, steps: int, N: int = 4, W: int = 3, size: int = 4) -> None:
        super().__init__()
        self.N, self.W = N, W
        self.cell, self.interface = nn.GRUCell(3 + W, size), nn.Linear(size, 2 * W + 3)
        self.out = nn.Linear(size + W, 3)

    def allocation(self, usage):
        free = paddle.sort(usage, axis=-1)
        order = paddle.argsort(usage, axis=-1)
        before = paddle.concat([paddle.ones_like(free[:, :1]), free[:, :-1]], -1)
        sorted_allocation = (1 - free) * paddle.cumprod(before, dim=-1)
        back = F.one_hot(order, self.N).astype(usage.dtype)
        return paddle.matmul(sorted_allocation.unsqueeze(1), back).squeeze(1)

    def forward(self, xs):
        batch, N, W = xs.shape[0], self.N, self.W
        state = {
            "memory": paddle.zeros([batch, N, W]),
            "usage": paddle.zeros([batch, N]),
            "link": paddle.zeros([batch, N, N]),
            "precedence": paddle.zeros([batch, N]),
            "read": paddle.full([batch, N], 1.0 / N),
        }
        h, r = paddle.zeros([batch, self.cell.hidden_size]), paddle.zeros([batch, W])
        eye = paddle.eye(N).unsqueeze(0)
        ys = []
        for t in range(xs.shape[1]):
            h, _ = self.cell(paddle.concat([xs[:, t], r], -1), h)
            z = self.interface(h)
            gates = F.sigmoid(z[:, :3])
            key, value = z[:, 3 : 3 + W], z[:, 3 + W :]
            usage = state["usage"] * (1 - gates[:, :1] * state["read"])
            content = F.softmax((state["memory"] * key.unsqueeze(1)).sum(-1), -1)
            w = gates[:, 1:2] * self.allocation(usage) + (1 - gates[:, 1:2]) * content
            link = (1 - w.unsqueeze(-1) - w.unsqueeze(1)) * state["link"]
            link = (link + w.unsqueeze(-1) * state["precedence"].unsqueeze(1)) * (1 - eye)
            forward = paddle.matmul(link, state["read"].unsqueeze(-1)).squeeze(-1)
            state = {
                "memory": state["memory"] + w.unsqueeze(-1) * value.unsqueeze(1),
                "usage": usage + w - usage * w,
                "link": link,
                "precedence": (1 - w.sum(-1, keepdim=True)) * state["precedence"] + w,
                "read": gates[:, 2:] * forward + (1 - gates[:, 2:]) * content,
            }
            r = paddle.matmul(state["read"].unsqueeze(1), state["memory"]).squeeze(1)
            ys.append(self.out(paddle.concat([h, r], -1)))
        return paddle.stack(ys, 1), state["memory"]


class PointerNetwork(nn.Layer):
    """Points at one input a step; what has been visited is masked in place."""

    def __init__(self, steps: int, size: int = 4) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.LSTMCell(2, size), nn.LSTMCell(2, size)
        self.W1, self.W2, self.v = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, 1)
        self.size = size

    def forward(self, inputs):
        batch, n, _ = inputs.shape
        h = c = paddle.zeros([batch, self.size])
        enc = []
        for i in range(n):
            _, (h, c) = self.encoder(inputs[:, i], (h, c))
            enc.append(h)
        enc = paddle.stack(enc, axis=1)
        mask = paddle.zeros([batch, n])
        rows = paddle.arange(batch)
        x = inputs.mean(1)
        pointers, log_probs = [], 0
        for _ in range(n):
            _, (h, c) = self.decoder(x, (h, c))
            u = self.v(paddle.tanh(self.W1(enc) + self.W2(h).unsqueeze(1))).squeeze(-1)
            logp = F.log_softmax(u + mask * -1e9, axis=-1)
            idx = logp.argmax(-1)
            log_probs = log_probs + paddle.take_along_axis(logp, idx.unsqueeze(-1), 1).squeeze(-1)
            mask[rows, idx] = 1.0
            x = inputs[rows, idx]
            pointers.append(idx)
        return paddle.stack(pointers, 1), log_probs


class Seq2Seq(nn.Layer):
    """Additive attention; teacher forcing by lots that are drawn for each step."""

    def __init__(self, steps: int, vocab: int = 7, size: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.encoder, self.decoder = nn.GRUCell(size, size), nn.GRUCell(2 * size, size)
        self.W, self.U, self.v = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, 1)
        self.out, self.size, self.vocab = nn.Linear(size, vocab), size, vocab

    def forward(self, source, target, lots):
        batch, length = target.shape
        h, memory = None, []
        for t in range(source.shape[1]):
            y, h = self.encoder(self.embed(source[:, t]), h)
            memory.append(y)
        memory = paddle.stack(memory, axis=1)
        keys = self.U(memory)
        outputs = paddle.zeros([length, batch, self.vocab])
        token = target[:, 0]
        for t in range(1, length):
            e = self.v(paddle.tanh(self.W(h).unsqueeze(1) + keys))
            context = (F.softmax(e, axis=1) * memory).sum(1)
            y, h = self.decoder(paddle.concat([self.embed(token), context], -1), h)
            output = self.out(y)
            outputs[t] = output
            teacher_force = lots[t] < 0.5
            token = target[:, t] if teacher_force else output.argmax(1)
        return outputs


class TreeLSTM(nn.Layer):
    """Children before parents: nodes in an order, states in tensors that are read by index."""

    def __init__(self, nodes: int, size: int = 4) -> None:
        super().__init__()
        self.iou, self.f = nn.Linear(2 * size, 3 * size), nn.Linear(2 * size, size)
        self.size = size

    def forward(self, x, left, right):
        n, size = x.shape
        h, c = paddle.zeros([n + 1, size]), paddle.zeros([n + 1, size])
        for i in range(n):
            hl, hr = h[left[i]], h[right[i]]
            i_, o, u = self.iou(paddle.concat([x[i], hl + hr])).chunk(3)
            fl = F.sigmoid(self.f(paddle.concat([x[i], hl])))
            fr = F.sigmoid(self.f(paddle.concat([x[i], hr])))
            cell = F.sigmoid(i_) * paddle.tanh(u) + fl * c[left[i]] + fr * c[right[i]]
            c[i + 1] = cell
            h[i + 1] = F.sigmoid(o) * paddle.tanh(cell)
        return h[1:], c[-1]
