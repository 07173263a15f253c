"""Sequences: encoders and decoders, attention, recurrent cells by hand, decoding."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.parity.everyday import const, floats, integers, model


class Attention(nn.Layer):
    def __init__(self, hidden):
        super().__init__()
        self.attn = nn.Linear(hidden * 2, hidden)
        self.v = nn.Linear(hidden, 1, bias_attr=False)

    def forward(self, hidden, encoder_outputs):
        src_len = encoder_outputs.shape[1]
        hidden = hidden.unsqueeze(1).tile([1, src_len, 1])
        energy = paddle.tanh(self.attn(paddle.concat([hidden, encoder_outputs], axis=2)))
        return F.softmax(self.v(energy).squeeze(2), axis=1)


class Encoder(nn.Layer):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.cell = nn.GRUCell(hidden, hidden)

    def forward(self, src):
        h = paddle.zeros([src.shape[0], self.cell.hidden_size])
        outputs = []
        for t in range(src.shape[1]):
            _, h = self.cell(self.embedding(src[:, t]), h)
            outputs.append(h)
        return paddle.stack(outputs, axis=1), h


class Decoder(nn.Layer):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.attention = Attention(hidden)
        self.cell = nn.GRUCell(hidden * 2, hidden)
        self.fc_out = nn.Linear(hidden * 2, vocab)

    def forward(self, token, hidden, encoder_outputs):
        a = self.attention(hidden, encoder_outputs).unsqueeze(1)
        weighted = paddle.bmm(a, encoder_outputs).squeeze(1)
        out, hidden = self.cell(paddle.concat([self.embedding(token), weighted], 1), hidden)
        prediction = self.fc_out(paddle.concat([out, weighted], axis=1))
        return prediction, hidden, a.squeeze(1)


@model(integers(11, 2, 5), integers(11, 2, 4, seed=1), const(True))
class Seq2Seq(nn.Layer):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(11, 6)
        self.decoder = Decoder(11, 6)

    def forward(self, src, trg, teacher_forcing=False):
        batch_size, trg_len = trg.shape
        outputs = paddle.zeros([batch_size, trg_len, 11])
        encoder_outputs, hidden = self.encoder(src)
        token = trg[:, 0]
        attentions = {}
        for t in range(1, trg_len):
            output, hidden, attentions[t] = self.decoder(token, hidden, encoder_outputs)
            outputs[:, t] = output
            token = trg[:, t] if teacher_forcing else output.argmax(1)
        return outputs, paddle.stack(list(attentions.values()), axis=1)


@model(integers(11, 2, 5), integers(11, 2, 4, seed=1))
class Seq2SeqFree(Seq2Seq):
    def forward(self, src, trg):
        return super().forward(src, trg, teacher_forcing=False)[0].sum(axis=1)


@model(floats(1, 6), trained=False)
class BeamSearch(nn.Layer):
    def __init__(self, vocab=7, beam=3, steps=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, 6)
        self.cell = nn.GRUCell(6, 6)
        self.out = nn.Linear(6, vocab)
        self.vocab, self.beam, self.steps = vocab, beam, steps

    def forward(self, h):
        h = h.tile([self.beam, 1])
        scores = paddle.to_tensor([0.0] + [-1e9] * (self.beam - 1))
        tokens = paddle.zeros([self.beam], "int64")
        sequences = tokens.unsqueeze(1)
        for _ in range(self.steps):
            _, h = self.cell(self.embed(tokens), h)
            log_probs = F.log_softmax(self.out(h), axis=-1)
            total = (scores.unsqueeze(1) + log_probs).flatten()
            scores, flat = paddle.topk(total, self.beam)
            parents, tokens = flat // self.vocab, flat % self.vocab
            h = paddle.gather(h, parents)
            sequences = paddle.concat(
                [paddle.gather(sequences, parents), tokens.unsqueeze(1)], axis=1
            )
        return sequences, scores


@model(floats(6, 2, 4), trained=False)
class ViterbiDecoder(nn.Layer):
    def __init__(self, tags=4):
        super().__init__()
        self.transitions = self.create_parameter([tags, tags])
        self.start = self.create_parameter([tags])

    def forward(self, emissions):
        seq_length = emissions.shape[0]
        score = self.start + emissions[0]
        history = []
        for i in range(1, seq_length):
            next_score = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            history.append(next_score.argmax(axis=1))
            score = next_score.max(axis=1)
        best_last = score.argmax(axis=1)
        tags = [best_last]
        for hist in reversed(history):
            best_last = paddle.take_along_axis(hist, best_last.unsqueeze(1), 1).squeeze(1)
            tags.append(best_last)
        tags.reverse()
        return paddle.stack(tags, axis=1), score.max(axis=1)


@model(floats(6, 2, 4), integers(4, 6, 2))
class CRFLoss(nn.Layer):
    def __init__(self, tags=4):
        super().__init__()
        self.transitions = self.create_parameter([tags, tags])

    def _numerator(self, emissions, tags):
        rows = paddle.arange(tags.shape[1])
        score = emissions[0][rows, tags[0]]
        for i in range(1, tags.shape[0]):
            score = score + self.transitions[tags[i - 1], tags[i]]
            score = score + emissions[i][rows, tags[i]]
        return score

    def _normalizer(self, emissions):
        score = emissions[0]
        for i in range(1, emissions.shape[0]):
            broadcast = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            score = paddle.logsumexp(broadcast, axis=1)
        return paddle.logsumexp(score, axis=1)

    def forward(self, emissions, tags):
        return (self._normalizer(emissions) - self._numerator(emissions, tags)).mean()


@model(integers(9, 1, 3), trained=False)
class CachedTransformer(nn.Layer):
    """Greedy decoding with a cache in a dict of lists."""

    def __init__(self, vocab=9, dim=8, layers=2, heads=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        for name in ("q", "k", "v", "o"):
            setattr(self, name, nn.LayerList([nn.Linear(dim, dim) for _ in range(layers)]))
        self.head = nn.Linear(dim, vocab)
        self.layers, self.heads, self.dim = layers, heads, dim

    def split(self, x):
        return x.reshape([x.shape[0], -1, self.heads, self.dim // self.heads]).transpose(
            [0, 2, 1, 3]
        )

    def block(self, i, x, cache):
        q, k, v = (self.split(f[i](x)) for f in (self.q, self.k, self.v))
        if i in cache:
            k = paddle.concat([cache[i]["k"], k], axis=2)
            v = paddle.concat([cache[i]["v"], v], axis=2)
        cache[i] = {"k": k, "v": v}
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True) / math.sqrt(q.shape[-1]))
        out = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).flatten(2)
        return x + self.o[i](out)

    def forward(self, prompt, max_new_tokens=3):
        cache, x, generated = {}, prompt, []
        for _ in range(max_new_tokens):
            h = self.embed(x)
            for i in range(self.layers):
                h = self.block(i, h, cache)
            x = self.head(h[:, -1]).argmax(-1, keepdim=True)
            generated.append(x)
        return paddle.concat(generated, axis=1), cache[0]["k"]


@model(floats(2, 6, 3))
class TemporalConvNet(nn.Layer):
    def __init__(self):
        super().__init__()
        layers = []
        for i, (c_in, c_out) in enumerate([(3, 4), (4, 4)]):
            layers.append(nn.Conv1D(c_in, c_out, 2, dilation=2**i))
        self.convs = nn.LayerList(layers)
        self.downsample = nn.Conv1D(3, 4, 1)

    def forward(self, x):
        x = x.transpose([0, 2, 1])
        res = self.downsample(x)
        for i, conv in enumerate(self.convs):
            x = F.relu(conv(F.pad(x, [2**i, 0], data_format="NCL")))
        return F.relu(x + res)[:, :, -1]


@model(floats(2, 5, 3))
class HierarchicalRNN(nn.Layer):
    """Words, then sentences of two words."""

    def __init__(self):
        super().__init__()
        self.word = nn.SimpleRNNCell(3, 4)
        self.sentence = nn.SimpleRNNCell(4, 4)

    def forward(self, x):
        low = high = paddle.zeros([x.shape[0], 4])
        states = []
        for t in range(x.shape[1]):
            _, low = self.word(x[:, t], low)
            if (t + 1) % 2 == 0:
                _, high = self.sentence(low, high)
                low = paddle.zeros_like(low)
                states.append(high)
        return paddle.stack(states, 1), low


@model(integers(5, 7), trained=False)
def ctc_greedy_decode(ids, blank=0):
    previous = paddle.to_tensor(blank)
    kept = []
    for t in range(ids.shape[0]):
        token = ids[t]
        keep = paddle.logical_and(token != blank, token != previous)
        kept.append(paddle.where(keep, token, paddle.full_like(token, -1)))
        previous = token
    return paddle.stack(kept)


@model(floats(5, 4), floats(6, 4, seed=1), trained=False)
def dynamic_time_warping(a, b):
    n, m = a.shape[0], b.shape[0]
    cost = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)
    table = paddle.full([n + 1, m + 1], 1e9)
    table[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            best = paddle.minimum(
                paddle.minimum(table[i - 1, j], table[i, j - 1]), table[i - 1, j - 1]
            )
            table[i, j] = cost[i - 1, j - 1] + best
    return table[n, m]


@model(integers(4, 5), integers(4, 6, seed=3), trained=False)
def edit_distance(a, b):
    n, m = len(a), len(b)
    previous = [float(j) for j in range(m + 1)]
    for i in range(1, n + 1):
        current = [float(i)] + [0.0] * m
        for j in range(1, m + 1):
            substitution = previous[j - 1] + (0.0 if a[i - 1] == b[j - 1] else 1.0)
            current[j] = min(previous[j] + 1.0, current[j - 1] + 1.0, substitution)
        previous = current
    return previous[m]


@model(floats(2, 4, 6))
class BahdanauPointer(nn.Layer):
    """A pointer network that masks what it has visited."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(6, 6)
        self.w1 = nn.Linear(6, 6)
        self.w2 = nn.Linear(6, 6)
        self.v = nn.Linear(6, 1)

    def forward(self, x):
        n = x.shape[1]
        mask = paddle.zeros([x.shape[0], n])
        inp, state, logits = x.mean(1), None, []
        for _ in range(n):
            h, state = self.cell(inp, state)
            u = self.v(paddle.tanh(self.w1(x) + self.w2(h).unsqueeze(1))).squeeze(-1)
            u = u - mask * 1e4
            p = F.softmax(u, -1)
            mask = paddle.maximum(mask, F.one_hot(p.argmax(-1), n))
            inp = (p.unsqueeze(-1) * x).sum(1)
            logits.append(p)
        return paddle.stack(logits, 1)


@model(integers(12, 2, 6))
class CharRNNLanguageModel(nn.Layer):
    def __init__(self, vocab=12, hidden=8, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(vocab, hidden)
        self.cells = nn.LayerList([nn.LSTMCell(hidden, hidden) for _ in range(layers)])
        self.decoder = nn.Linear(hidden, vocab)
        self.drop = nn.Dropout(0.0)

    def init_hidden(self, batch):
        return [
            (paddle.zeros([batch, 8]), paddle.zeros([batch, 8])) for _ in range(len(self.cells))
        ]

    def forward(self, tokens, hidden=None):
        if hidden is None:
            hidden = self.init_hidden(tokens.shape[0])
        loss = 0
        for t in range(tokens.shape[1] - 1):
            x = self.drop(self.encoder(tokens[:, t]))
            for k, cell in enumerate(self.cells):
                x, hidden[k] = cell(x, hidden[k])
            loss += F.cross_entropy(self.decoder(x), tokens[:, t + 1])
        return loss / (tokens.shape[1] - 1), hidden


@model(floats(3, 5, 4), const([5, 3, 2]))
class PackedRNN(nn.Layer):
    """Lengths as Python numbers: each step runs the rows that are still there."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x, lengths):
        h = paddle.zeros([x.shape[0], 4])
        last = [None] * len(lengths)
        for t in range(max(lengths)):
            _, h = self.cell(x[:, t], h)
            for b, n in enumerate(lengths):
                if n == t + 1:
                    last[b] = h[b]
        assert all(q is not None for q in last)
        return paddle.stack(last)


@model(floats(2, 6, 4), integers(2, 2, 6))
class MaskedBiRNN(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fw, self.bw = nn.GRUCell(4, 3), nn.GRUCell(4, 3)

    def run(self, cell, x, mask, reverse=False):
        h = paddle.zeros([x.shape[0], 3])
        steps = reversed(range(x.shape[1])) if reverse else range(x.shape[1])
        outs = []
        for t in steps:
            _, new = cell(x[:, t], h)
            m = mask[:, t].unsqueeze(-1).astype("float32")
            h = m * new + (1 - m) * h
            outs.append(h)
        return paddle.stack(outs[::-1] if reverse else outs, axis=1)

    def forward(self, x, mask):
        both = [self.run(self.fw, x, mask), self.run(self.bw, x, mask, reverse=True)]
        return paddle.concat(both, axis=-1)
