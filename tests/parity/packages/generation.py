"""Text generation: greedy search, sampling and beam search over a cached decoder, and segments
with a memory."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class CachedAttention(nn.Layer):
    """Keys and values of all steps so far in a pair that grows by `concat`."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, size // heads
        self.qkv_proj, self.out_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x, use_cache=False, cache=None):
        bsz, q_len, size = x.shape
        qkv = self.qkv_proj(x).reshape([0, 0, self.num_heads, 3 * self.head_dim])
        q, k, v = paddle.split(qkv, num_or_sections=3, axis=-1)
        if cache is not None:
            k = paddle.concat([cache[0], k], axis=1)
            v = paddle.concat([cache[1], v], axis=1)
        new_cache = (k, v) if use_cache else None
        q, k, v = (t.transpose([0, 2, 1, 3]) for t in (q, k, v))
        product = paddle.matmul(q * self.head_dim**-0.5, k, transpose_y=True)
        if q_len > 1:
            mask = paddle.triu(paddle.full([q_len, q_len], -1e4), diagonal=1)
            product = product + mask
        out = paddle.matmul(F.softmax(product, axis=-1), v).transpose([0, 2, 1, 3])
        return self.out_proj(out.reshape([bsz, q_len, size])), new_cache


class GPTModel(nn.Layer):
    def __init__(self, vocab: int, size: int, layers: int, places: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, size)
        self.position_embeddings = nn.Embedding(places, size)
        self.layers = nn.LayerList([CachedAttention(size, 2) for _ in range(layers)])
        self.norms = nn.LayerList([nn.LayerNorm(size) for _ in range(layers)])

    def forward(self, input_ids, position_ids=None, use_cache=False, cache=None):
        past_length = 0
        if cache is not None:
            past_length = cache[0][0].shape[1]
        if position_ids is None:
            position_ids = paddle.arange(past_length, input_ids.shape[1] + past_length)
            position_ids = paddle.expand(position_ids.unsqueeze(0), input_ids.shape)
        x = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        new_caches = [] if use_cache else None
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            y, new_cache = layer(norm(x), use_cache, cache[i] if cache is not None else None)
            x = x + y
            if use_cache:
                new_caches.append(new_cache)
        return x, new_caches


class Generation(nn.Layer):
    """`greedy_search`: inputs are prepared from keywords that the last step has updated."""

    def __init__(self, max_length: int, vocab: int = 9, size: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.max_length = max_length
        self.model = GPTModel(vocab, size, layers, max_length + 8)
        self.out = nn.Linear(size, vocab)
        self.eos_token_id, self.pad_token_id = 2, 0

    def prepare_inputs_for_generation(self, input_ids, use_cache=False, cache=None, **kwargs):
        if cache is not None:
            input_ids = input_ids[:, -1].unsqueeze(-1)
        return {"input_ids": input_ids, "use_cache": use_cache, "cache": cache}

    def update_model_kwargs_for_generation(self, outputs, model_kwargs):
        if isinstance(outputs, tuple) and len(outputs) > 1 and not isinstance(outputs[1], int):
            model_kwargs["cache"] = outputs[1]
        if "position_ids" in model_kwargs:
            position_ids = model_kwargs["position_ids"]
            model_kwargs["position_ids"] = paddle.concat(
                [position_ids, position_ids[..., -1:] + 1], axis=-1
            )
        return model_kwargs

    def update_scores_for_generation(self, scores, next_scores, length, unfinished_flag):
        unfinished_scores = (scores * length + next_scores) / (length + 1)
        return paddle.where(unfinished_flag, unfinished_scores, scores)

    def choose(self, logits):
        return paddle.argmax(logits, axis=-1).unsqueeze(-1)

    def forward(self, input_ids, **model_kwargs):
        model_kwargs["use_cache"] = model_kwargs.get("use_cache", True)
        batch_size, cur_len = input_ids.shape
        origin_len = cur_len
        max_length = origin_len + self.max_length
        unfinished_flag = paddle.full([batch_size, 1], True, dtype="bool")
        scores = paddle.full([batch_size, 1], 0.0, dtype=paddle.get_default_dtype())
        while cur_len < max_length:
            model_inputs = self.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = self.model(**model_inputs)
            hidden = outputs[0] if isinstance(outputs, tuple) else outputs
            next_token_logits = self.out(hidden)[:, -1, :]
            probs = paddle.log(F.softmax(next_token_logits))
            next_tokens = self.choose(next_token_logits)
            next_scores = paddle.index_sample(probs.astype("float32"), next_tokens)
            if self.eos_token_id is not None:
                next_tokens = paddle.where(
                    unfinished_flag, next_tokens, paddle.full_like(next_tokens, self.pad_token_id)
                )
            scores = self.update_scores_for_generation(
                scores, next_scores, cur_len - origin_len, unfinished_flag
            )
            cur_len += 1
            input_ids = paddle.concat([input_ids, next_tokens], axis=1)
            if self.eos_token_id is not None:
                unfinished_flag = paddle.logical_and(
                    unfinished_flag, next_tokens != self.eos_token_id
                )
            if not paddle.any(unfinished_flag):
                break
            model_kwargs = self.update_model_kwargs_for_generation(outputs, model_kwargs)
        return input_ids[:, origin_len:], scores


class Sampling(Generation):
    """`sample`: the largest logits stay, a token is drawn from them."""

    def choose(self, logits):
        probs = F.softmax(logits / 0.7)
        top_probs, _ = paddle.topk(probs, k=4)
        probs = paddle.where(probs >= top_probs[:, -1:], probs, paddle.full_like(probs, 0.0))
        return paddle.multinomial(probs)


class BeamSearch(Generation):
    """`beam_search`: sequences and caches are reordered by the beams that survive."""

    num_beams = 3

    def forward(self, input_ids):
        batch_size, origin_len = input_ids.shape
        num_beams = self.num_beams
        input_ids = paddle.repeat_interleave(input_ids, num_beams, axis=0)
        beam_scores = paddle.full([batch_size, num_beams], -1e9)
        beam_scores[:, 0] = 0.0
        beam_scores = beam_scores.reshape([-1])
        rows = (paddle.arange(batch_size) * num_beams).unsqueeze(1)
        cache = None
        for _ in range(self.max_length):
            model_inputs = self.prepare_inputs_for_generation(input_ids, True, cache)
            hidden, cache = self.model(**model_inputs)
            scores = F.log_softmax(self.out(hidden)[:, -1, :])
            vocab_size = scores.shape[-1]
            next_scores = scores + beam_scores.unsqueeze(-1)
            next_scores = next_scores.reshape([batch_size, num_beams * vocab_size])
            next_scores, next_tokens = paddle.topk(next_scores, num_beams, axis=1)
            beam_idx = (next_tokens // vocab_size + rows).reshape([-1])
            beam_next_tokens = (next_tokens % vocab_size).reshape([-1, 1])
            beam_scores = next_scores.reshape([-1])
            input_ids = paddle.concat(
                [paddle.index_select(input_ids, beam_idx), beam_next_tokens], axis=-1
            )
            cache = [tuple(paddle.index_select(c, beam_idx) for c in pair) for pair in cache]
            if (beam_next_tokens == self.eos_token_id).all():
                break
        return input_ids[:, origin_len:], beam_scores


class TransformerXL(nn.Layer):
    """Segment by segment, with the hidden states of the segment before as a memory per layer."""

    def __init__(self, segments: int, size: int = 4, layers: int = 2, mem_len: int = 3) -> None:
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(size, 3 * size) for _ in range(layers)])
        self.segment, self.mem_len, self.size = 2, mem_len, size

    def init_mems(self, batch):
        return [paddle.zeros([batch, self.mem_len, self.size]) for _ in self.layers]

    def _update_mems(self, hids, mems):
        if mems is None:
            return None
        assert len(hids) == len(mems), "length of hids and length of mems must be the same."
        with paddle.no_grad():
            new_mems = []
            for i in range(len(hids)):
                cat = paddle.concat([mems[i], hids[i]], axis=1)
                new_mems.append(cat[:, -self.mem_len :].detach())
        return new_mems

    def forward(self, x):
        mems = self.init_mems(x.shape[0])
        outputs = []
        for start in range(0, x.shape[1], self.segment):
            core_out = x[:, start : start + self.segment]
            hids = []
            for i, layer in enumerate(self.layers):
                hids.append(core_out)
                cat = paddle.concat([mems[i], core_out], axis=1)
                q, k, v = layer(cat).chunk(3, axis=-1)
                q = q[:, -core_out.shape[1] :]
                a = F.softmax(paddle.matmul(q, k, transpose_y=True) / self.size**0.5, -1)
                core_out = core_out + paddle.matmul(a, v)
            mems = self._update_mems(hids, mems)
            outputs.append(core_out)
        return paddle.concat(outputs, axis=1), mems
