"""Decoding loops, written as their models write them: greedy search and beam search."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class GreedyDecoder(nn.Layer):
    """The sequence grows by `concat`; the loop ends when every row has met the end token."""

    def __init__(self, max_length: int, vocab: int = 7, hidden: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, vocab)
        self.max_length = max_length
        self.bos_token_id, self.eos_token_id, self.pad_token_id = 1, 2, 0

    def forward(self, memory):
        batch_size = memory.shape[0]
        input_ids = paddle.full([batch_size, 1], self.bos_token_id, dtype="int64")
        unfinished_flag = paddle.full([batch_size, 1], True, dtype="bool")
        state = memory
        cur_len = 0
        while cur_len < self.max_length:
            x = self.embed(input_ids[:, -1])
            y, state = self.cell(x, state)
            logits = self.out(y)
            next_tokens = paddle.argmax(logits, axis=-1).unsqueeze(-1)
            next_tokens = paddle.where(
                unfinished_flag, next_tokens, paddle.full_like(next_tokens, self.pad_token_id)
            )
            input_ids = paddle.concat([input_ids, next_tokens], axis=1)
            cur_len += 1
            unfinished_flag = paddle.logical_and(unfinished_flag, next_tokens != self.eos_token_id)
            if not paddle.any(unfinished_flag):
                break
        return input_ids[:, 1:]


class EarlyExitDecoder(nn.Layer):
    """`if (next == eos).all(): break` in a `for` over the steps, with attention to the memory."""

    def __init__(self, max_len: int, vocab: int = 7, hidden: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.cell = nn.LSTMCell(2 * hidden, hidden)
        self.query = nn.Linear(hidden, hidden)
        self.out = nn.Linear(2 * hidden, vocab)
        self.max_len, self.hidden, self.eos = max_len, hidden, 2

    def forward(self, memory, start):
        batch = memory.shape[0]
        h = c = paddle.zeros([batch, self.hidden])
        context = memory.mean(axis=1)
        ys = start.unsqueeze(1)
        for _ in range(self.max_len):
            x = paddle.concat([self.embed(ys[:, -1]), context], axis=-1)
            _, (h, c) = self.cell(x, (h, c))
            scores = paddle.matmul(memory, self.query(h).unsqueeze(-1)).squeeze(-1)
            weights = F.softmax(scores, axis=-1)
            context = paddle.sum(weights.unsqueeze(-1) * memory, axis=1)
            next_word = self.out(paddle.concat([h, context], axis=-1)).argmax(axis=-1)
            ys = paddle.concat([ys, next_word.unsqueeze(1)], axis=1)
            if (next_word == self.eos).all():
                break
        return ys, h


class BeamSearch(nn.Layer):
    """Scores of all beams in one tensor; parents and tokens are collected, then followed back."""

    def __init__(self, max_len: int, beam_size: int = 3, vocab: int = 7, hidden: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, vocab)
        self.max_len, self.beam_size, self.vocab = max_len, beam_size, vocab
        self.bos, self.eos = 1, 2

    def initial(self, memory):
        batch = memory.shape[0]
        tokens = paddle.full([batch, self.beam_size], self.bos, dtype="int64")
        first = paddle.zeros([batch, 1])
        others = paddle.full([batch, self.beam_size - 1], -1e9)
        scores = paddle.concat([first, others], axis=1)
        finished = paddle.zeros([batch, self.beam_size], dtype="bool")
        state = memory.unsqueeze(1).expand([batch, self.beam_size, memory.shape[1]])
        return tokens, scores, finished, state.reshape([-1, memory.shape[1]])

    def select(self, scores):
        """The best beams of a row: scores, parents and tokens."""
        top_scores, top = paddle.topk(scores, self.beam_size, axis=1)
        return top_scores, top // self.vocab, top % self.vocab

    def forward(self, memory):
        batch = memory.shape[0]
        tokens, scores, finished, state = self.initial(memory)
        offset = (paddle.arange(batch) * self.beam_size).unsqueeze(1)
        mask = paddle.full([self.vocab], -1e9)
        mask[self.eos] = 0.0
        all_tokens, all_parents = [], []
        for _ in range(self.max_len):
            y, state = self.cell(self.embed(tokens.flatten()), state)
            log_probs = F.log_softmax(self.out(y), axis=-1)
            log_probs = log_probs.reshape([batch, self.beam_size, self.vocab])
            log_probs = paddle.where(finished.unsqueeze(-1), mask, log_probs)
            total = scores.unsqueeze(-1) + log_probs
            scores, parents, tokens = self.select(total.reshape([batch, -1]))
            beam = (parents + offset).flatten()
            state = paddle.gather(state, beam)
            finished = paddle.gather(finished.flatten(), beam).reshape([batch, self.beam_size])
            finished = paddle.logical_or(finished, tokens == self.eos)
            all_tokens.append(tokens)
            all_parents.append(parents)
            if finished.all():
                break
        ids = F.gather_tree(paddle.stack(all_tokens), paddle.stack(all_parents))
        return ids.transpose([1, 2, 0]), scores


class ArgmaxBeamSearch(BeamSearch):
    """The best beams one after another by `argmax`: no `topk`, no early exit; sequences are
    reordered in a buffer of their final length, as fairseq does."""

    def select(self, scores):
        top_scores, top = [], []
        for _ in range(self.beam_size):
            best = scores.argmax(axis=1, keepdim=True)
            chosen = paddle.arange(scores.shape[1]).unsqueeze(0) == best
            top_scores.append(scores.max(axis=1))
            top.append(best.squeeze(1))
            scores = paddle.where(chosen, paddle.full_like(scores, -1e30), scores)
        top = paddle.stack(top, axis=1)
        return paddle.stack(top_scores, axis=1), top // self.vocab, top % self.vocab

    def forward(self, memory):
        batch = memory.shape[0]
        tokens, scores, _, state = self.initial(memory)
        offset = (paddle.arange(batch) * self.beam_size).unsqueeze(1)
        sequences = paddle.zeros([batch * self.beam_size, self.max_len], dtype="int64")
        for step in range(self.max_len):
            y, state = self.cell(self.embed(tokens.flatten()), state)
            log_probs = F.log_softmax(self.out(y), axis=-1)
            total = scores.unsqueeze(-1) + log_probs.reshape([batch, self.beam_size, self.vocab])
            scores, parents, tokens = self.select(total.reshape([batch, -1]))
            beam = (parents + offset).flatten()
            state = paddle.gather(state, beam)
            sequences = paddle.gather(sequences, beam)
            sequences[:, step] = tokens.flatten()
        return sequences.reshape([batch, self.beam_size, self.max_len]), scores


class GPT(nn.Layer):
    """Greedy decoding: per layer a cache in Python lists, written at the step and read up to it."""

    def __init__(
        self, steps: int, layers: int = 2, width: int = 8, heads: int = 2, vocab: int = 11
    ) -> None:
        super().__init__()
        self.steps, self.width, self.heads = steps, width, heads
        self.embed = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(steps, width)
        self.layers = nn.LayerList([GPTBlock(width, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, prompt):
        given = prompt.shape[0]
        shape = [self.heads, self.steps, self.width // self.heads]
        keys = [paddle.zeros(shape) for _ in self.layers]
        values = [paddle.zeros(shape) for _ in self.layers]
        tokens = []
        token = prompt[0:1]
        for p in range(self.steps):
            x = self.embed(token) + self.positions.weight[p : p + 1]
            for n, layer in enumerate(self.layers):
                x = layer(x, keys[n], values[n], p)
            following = self.out(self.norm(x)).argmax(-1)
            tokens.append(following)
            token = prompt[p + 1 : p + 2] if p + 1 < given else following
        return paddle.concat(tokens)


class GPTBlock(nn.Layer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, keys, values, p):
        q, k, v = self.qkv(self.first(x)).reshape([3, self.heads, 1, self.size]).unbind(0)
        keys[:, p : p + 1] = k
        values[:, p : p + 1] = v
        scores = paddle.matmul(q, keys[:, : p + 1], transpose_y=True) / self.size**0.5
        a = paddle.matmul(F.softmax(scores, axis=-1), values[:, : p + 1])
        x = x + self.proj(a.reshape([1, -1]))
        return x + self.down(F.gelu(self.up(self.second(x))))
