"""Searches over token sequences: greedy generation whose keywords each step updates, and beam
search with scores of a CTC prefix beside those of a decoder."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class CausalLayer(nn.Layer):
    """One of a decoder, after MBart: keys and values of the image are projected once."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))
        self.cross_q, self.cross_k, self.cross_v = (nn.Linear(size, size) for _ in range(3))
        self.norm = nn.LayerNorm(size)

    def attend(self, q, k, v, mask=None):
        scores = paddle.matmul(q, k, transpose_y=True) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask
        return paddle.matmul(F.softmax(scores, axis=-1), v)

    def forward(self, x, memory, mask, past_key_value=None):
        h = self.norm(x)
        k, v = self.k(h), self.v(h)
        if past_key_value is not None:
            k = paddle.concat([past_key_value[0], k], axis=1)
            v = paddle.concat([past_key_value[1], v], axis=1)
            cross_k, cross_v = past_key_value[2], past_key_value[3]
        else:
            cross_k, cross_v = self.cross_k(memory), self.cross_v(memory)
        x = x + self.attend(self.q(h), k, v, mask)
        x = x + self.attend(self.cross_q(x), cross_k, cross_v)
        return x, (k, v, cross_k, cross_v)


class FormulaGenerator(nn.Layer):
    """`generate_export` of a formula recogniser: keys of the past in a tuple per layer, a mask that
    grows, logits that a list of processors changes, and a loop without an end of its own."""

    def __init__(self, max_length: int, vocab: int = 9, size: int = 4) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocab, size), nn.Embedding(max_length + 4, size)
        self.layers = nn.LayerList([CausalLayer(size) for _ in range(2)])
        self.lm_head = nn.Linear(size, vocab)
        self.max_length, self.pad_token_id, self.eos_token_id = max_length + 1, 1, 2
        self.logits_processor = [self.forbid_first]

    def forbid_first(self, input_ids, scores):
        scores[:, 0] = -1e4
        return scores

    def decode(self, input_ids, memory, attention_mask, past_key_values=None):
        length = 0 if past_key_values is None else past_key_values[0][0].shape[1]
        place = paddle.arange(length, length + input_ids.shape[1])
        x = self.embed(input_ids) + self.positions(place)
        mask = (1.0 - attention_mask.astype(x.dtype)).unsqueeze(1) * -1e4
        next_cache = ()
        for idx, layer in enumerate(self.layers):
            past = past_key_values[idx] if past_key_values is not None else None
            x, new = layer(x, memory, mask, past)
            next_cache += (new,)
        return {"logits": self.lm_head(x), "past_key_values": next_cache}

    def prepare_inputs_for_generation(
        self, input_ids, past_key_values=None, attention_mask=None, memory=None, **kwargs
    ):
        if attention_mask is None:
            attention_mask = paddle.ones(input_ids.shape, dtype="int64")
        if past_key_values is not None:
            past_length = past_key_values[0][0].shape[1]
            if input_ids.shape[1] > past_length:
                remove_prefix_length = past_length
            else:
                remove_prefix_length = input_ids.shape[1] - 1
            input_ids = input_ids[:, remove_prefix_length:]
        return {
            "input_ids": input_ids,
            "memory": memory,
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
        }

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs):
        model_kwargs["past_key_values"] = outputs["past_key_values"]
        if "attention_mask" in model_kwargs:
            mask = model_kwargs["attention_mask"]
            one = paddle.ones([mask.shape[0], 1], dtype=mask.dtype)
            model_kwargs["attention_mask"] = paddle.concat([mask, one], axis=-1)
        return model_kwargs

    def stopping_criteria(self, input_ids):
        return input_ids.shape[-1] >= self.max_length

    def forward(self, memory):
        batch = memory.shape[0]
        input_ids = paddle.zeros([batch, 1], dtype="int64")
        model_kwargs = {"memory": memory, "attention_mask": paddle.ones([batch, 1], "int64")}
        unfinished_sequences = paddle.ones([batch], dtype="int64")
        this_peer_finished = False
        while True:
            model_inputs = self.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = self.decode(**model_inputs)
            scores = outputs["logits"][:, -1, :]
            for processor in self.logits_processor:
                scores = processor(input_ids, scores)
            next_tokens = paddle.argmax(scores, axis=-1)
            next_tokens = next_tokens * unfinished_sequences + self.pad_token_id * (
                1 - unfinished_sequences
            )
            input_ids = paddle.concat([input_ids, next_tokens.unsqueeze(1)], axis=-1)
            model_kwargs = self._update_model_kwargs_for_generation(outputs, model_kwargs)
            unfinished_sequences = unfinished_sequences * (next_tokens != self.eos_token_id).astype(
                "int64"
            )
            if unfinished_sequences.max() == 0:
                this_peer_finished = True
            if self.stopping_criteria(input_ids):
                this_peer_finished = True
            if this_peer_finished:
                break
        return input_ids


class PrefixScorer:
    """Scores of all prefixes by one more token, after CTCPrefixScoreTH: a recursion over the
    frames for each hypothesis and token."""

    def __init__(self, x, blank: int, eos: int) -> None:
        self.x, self.blank, self.eos = x, blank, eos  # x: log probabilities [T, V]

    def initial_state(self, n):
        blanks = paddle.cumsum(self.x[:, self.blank], axis=0)
        r = paddle.stack([paddle.full_like(blanks, -1e4), blanks], axis=-1)
        return r.unsqueeze(1).tile([1, n, 1]), paddle.zeros([n, 1])

    def __call__(self, last, state):
        r_prev, s_prev = state  # [T, n, 2], [n, 1]
        frames, n, vocab = r_prev.shape[0], r_prev.shape[1], self.x.shape[1]
        r_sum = paddle.logsumexp(r_prev, axis=2)
        same = F.one_hot(last, vocab) > 0
        log_phi = paddle.where(
            same.unsqueeze(0), r_prev[:, :, 1].unsqueeze(-1), r_sum.unsqueeze(-1)
        )
        r = paddle.full([frames, 2, n, vocab], -1e4)
        r[0, 0] = self.x[0].unsqueeze(0).expand([n, vocab])
        for t in range(1, frames):
            rp = r[t - 1]
            rr = paddle.stack([rp[0], log_phi[t - 1], rp[0], rp[1]]).reshape([2, 2, n, vocab])
            now = paddle.stack([self.x[t], self.x[t, self.blank].expand([vocab])]).unsqueeze(1)
            r[t] = paddle.logsumexp(rr, axis=1) + now
        start = r[0, 0].unsqueeze(0)
        later = log_phi[:-1] + self.x[1:].unsqueeze(1)
        log_psi = paddle.logsumexp(paddle.concat([start, later]), axis=0)
        log_psi = paddle.concat(
            [log_psi[:, : self.eos], r_sum[-1].unsqueeze(1), log_psi[:, self.eos + 1 :]], axis=1
        )
        return log_psi - s_prev, (r, log_psi)

    def select(self, state, parents, tokens):
        r, log_psi = state
        frames, _, n, vocab = r.shape
        flat = r.transpose([0, 2, 3, 1]).reshape([frames, n * vocab, 2])
        picked = parents * vocab + tokens
        s = paddle.gather(log_psi.reshape([-1]), picked)
        return paddle.gather(flat, picked, axis=1), s.unsqueeze(1)


class JointBeamSearch(nn.Layer):
    """`BatchBeamSearch`: attention and CTC scores are added, the best of beams x vocabulary stay,
    their states are gathered by parents, ended ones keep their scores, the search ends early."""

    def __init__(self, maxlen: int, beam: int = 3, vocab: int = 6, size: int = 4) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(vocab, size), nn.GRUCell(size, size)
        self.out, self.ctc = nn.Linear(2 * size, vocab), nn.Linear(size, vocab)
        self.maxlen, self.beam, self.vocab, self.sos, self.eos = maxlen, beam, vocab, 1, 2
        self.size, self.ctc_weight, self.penalty = size, 0.3, 0.6

    def score(self, yseq, states, memory):
        h, _ = self.cell(self.embed(yseq[:, -1]), states["decoder"])
        weights = F.softmax(paddle.matmul(h, memory, transpose_y=True), axis=-1)
        logits = self.out(paddle.concat([h, paddle.matmul(weights, memory)], axis=-1))
        return F.log_softmax(logits, axis=-1), h

    def forward(self, memory):  # [T, size]
        n, vocab = self.beam, self.vocab
        prefix = PrefixScorer(F.log_softmax(self.ctc(memory), axis=-1), blank=0, eos=self.eos)
        yseq = paddle.full([n, 1], self.sos, dtype="int64")
        scores = paddle.concat([paddle.zeros([1]), paddle.full([n - 1], -1e4)])
        lengths = paddle.ones([n], dtype="int64")
        finished = paddle.zeros([n], dtype="bool")
        states = {"decoder": paddle.zeros([n, self.size]), "ctc": prefix.initial_state(n)}
        only_eos = paddle.full([vocab], -1e4)
        only_eos[self.eos] = 0.0
        for _ in range(self.maxlen):
            logp, h = self.score(yseq, states, memory)
            psi, ctc_state = prefix(yseq[:, -1], states["ctc"])
            joint = (1 - self.ctc_weight) * logp + self.ctc_weight * psi
            joint = paddle.where(finished.unsqueeze(1), only_eos.unsqueeze(0), joint)
            total = (scores.unsqueeze(1) + joint).reshape([-1])
            scores, best = paddle.topk(total, n)
            parents, tokens = best // vocab, best % vocab
            yseq = paddle.concat([paddle.gather(yseq, parents), tokens.unsqueeze(1)], axis=1)
            finished = paddle.gather(finished, parents)
            lengths = paddle.gather(lengths, parents) + (~finished).astype("int64")
            finished = paddle.logical_or(finished, tokens == self.eos)
            states = {
                "decoder": paddle.gather(h, parents),
                "ctc": prefix.select(ctc_state, parents, tokens),
            }
            if finished.all():
                break
        final = scores / ((5.0 + lengths.astype("float32")) / 6.0) ** self.penalty
        return yseq, final, paddle.argmax(final)
