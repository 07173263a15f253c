"""Speech recognition: U2's chunks and attention decoder, a transducer, CTC."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn


# ---------------------------------------------------------------- U2
class RelPositionAttention(nn.Layer):
    def __init__(self, n_head: int, n_feat: int) -> None:
        super().__init__()
        self.h, self.d_k = n_head, n_feat // n_head
        self.linear_q, self.linear_k = nn.Linear(n_feat, n_feat), nn.Linear(n_feat, n_feat)
        self.linear_v, self.linear_out = nn.Linear(n_feat, n_feat), nn.Linear(n_feat, n_feat)
        self.linear_pos = nn.Linear(n_feat, n_feat, bias_attr=False)
        self.pos_bias_u = self.create_parameter([n_head, n_feat // n_head])
        self.pos_bias_v = self.create_parameter([n_head, n_feat // n_head])

    def forward(self, query, pos_emb, cache):
        n_batch = query.shape[0]
        q = self.linear_q(query).reshape([n_batch, -1, self.h, self.d_k])
        k = self.linear_k(query).reshape([n_batch, -1, self.h, self.d_k]).transpose([0, 2, 1, 3])
        v = self.linear_v(query).reshape([n_batch, -1, self.h, self.d_k]).transpose([0, 2, 1, 3])
        if cache.shape[0] > 0:
            key_cache, value_cache = paddle.split(cache, 2, axis=-1)
            k = paddle.concat([key_cache, k], axis=2)
            v = paddle.concat([value_cache, v], axis=2)
        new_cache = paddle.concat((k, v), axis=-1)
        p = self.linear_pos(pos_emb).reshape([pos_emb.shape[0], -1, self.h, self.d_k])
        p = p.transpose([0, 2, 1, 3])
        q_with_bias_u = (q + self.pos_bias_u).transpose([0, 2, 1, 3])
        q_with_bias_v = (q + self.pos_bias_v).transpose([0, 2, 1, 3])
        matrix_ac = paddle.matmul(q_with_bias_u, k.transpose([0, 1, 3, 2]))
        matrix_bd = paddle.matmul(q_with_bias_v, p.transpose([0, 1, 3, 2]))
        attn = F.softmax((matrix_ac + matrix_bd) / math.sqrt(self.d_k), axis=-1)
        x = paddle.matmul(attn, v).transpose([0, 2, 1, 3])
        return self.linear_out(x.reshape([n_batch, -1, self.h * self.d_k])), new_cache


class ConvolutionModule(nn.Layer):
    """Causal: the cache of the frames before, zeros where there is none."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.lorder = kernel_size - 1
        self.pointwise_conv1 = nn.Conv1D(channels, 2 * channels, 1)
        self.depthwise_conv = nn.Conv1D(channels, channels, kernel_size, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.pointwise_conv2 = nn.Conv1D(channels, channels, 1)

    def forward(self, x, cache):
        x = x.transpose([0, 2, 1])
        if self.lorder > 0:
            if cache.shape[2] == 0:
                x = F.pad(x, [self.lorder, 0], "constant", 0.0, data_format="NCL")
            else:
                assert cache.shape[0] == x.shape[0]
                assert cache.shape[1] == x.shape[1]
                x = paddle.concat((cache, x), axis=2)
            assert x.shape[2] > self.lorder
            new_cache = x[:, :, -self.lorder :]
        else:
            new_cache = paddle.zeros([0, 0, 0], dtype=x.dtype)
        x = F.glu(self.pointwise_conv1(x), axis=1)
        x = self.depthwise_conv(x).transpose([0, 2, 1])
        x = F.silu(self.norm(x)).transpose([0, 2, 1])
        return self.pointwise_conv2(x).transpose([0, 2, 1]), new_cache


class ConformerLayer(nn.Layer):
    def __init__(self, size: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.self_attn = RelPositionAttention(heads, size)
        self.conv_module = ConvolutionModule(size, kernel)
        self.norm_mha, self.norm_conv = nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, x, pos_emb, att_cache, cnn_cache):
        y, new_att_cache = self.self_attn(self.norm_mha(x), pos_emb, att_cache)
        x = x + y
        y, new_cnn_cache = self.conv_module(self.norm_conv(x), cnn_cache)
        return x + y, new_att_cache, new_cnn_cache


class U2ChunkEncoder(nn.Layer):
    """`forward_chunk_by_chunk`: windows of frames, with caches that begin without elements."""

    subsampling_rate, right_context = 2, 1

    def __init__(self, left_chunks: int = -1, chunk: int = 2, size: int = 4, places: int = 64):
        super().__init__()
        self.embed = nn.Linear(2 * size, size)
        self.encoders = nn.LayerList([ConformerLayer(size, 2, 3) for _ in range(2)])
        self.after_norm, self.normalize_before = nn.LayerNorm(size), True
        self.decoding_chunk_size, self.num_decoding_left_chunks = chunk, left_chunks
        self.pe = self.create_parameter([1, places, size])

    def position_encoding(self, offset, size):
        return self.pe[:, offset : offset + size]

    def subsample(self, xs):
        steps = (xs.shape[1] - self.right_context - 1) // self.subsampling_rate + 1
        now = xs[:, : self.subsampling_rate * steps : self.subsampling_rate]
        later = xs[:, 1 : self.subsampling_rate * steps + 1 : self.subsampling_rate]
        return self.embed(paddle.concat([now, later], -1))

    def forward_chunk(self, xs, offset, required_cache_size, att_cache, cnn_cache):
        assert xs.shape[0] == 1
        xs = self.subsample(xs)
        elayers = paddle.shape(att_cache)[0]
        cache_t1 = paddle.shape(att_cache)[2]
        chunk_size = paddle.shape(xs)[1]
        attention_key_size = cache_t1 + chunk_size
        pos_emb = self.position_encoding(offset - cache_t1, attention_key_size)
        if required_cache_size < 0:
            next_cache_start = 0
        elif required_cache_size == 0:
            next_cache_start = attention_key_size
        else:
            next_cache_start = max(attention_key_size - required_cache_size, 0)
        r_att_cache, r_cnn_cache = [], []
        for i, layer in enumerate(self.encoders):
            xs, new_att_cache, new_cnn_cache = layer(
                xs,
                pos_emb,
                att_cache=att_cache[i : i + 1] if elayers > 0 else att_cache,
                cnn_cache=cnn_cache[i] if paddle.shape(cnn_cache)[0] > 0 else cnn_cache,
            )
            r_att_cache.append(new_att_cache[:, :, next_cache_start:, :])
            r_cnn_cache.append(new_cnn_cache.unsqueeze(0))
        if self.normalize_before:
            xs = self.after_norm(xs)
        r_att_cache = paddle.concat(r_att_cache, axis=0)
        r_cnn_cache = paddle.concat(r_cnn_cache, axis=0)
        return xs, r_att_cache, r_cnn_cache

    def forward(self, xs):
        assert self.decoding_chunk_size > 0
        context = self.right_context + 1
        stride = self.subsampling_rate * self.decoding_chunk_size
        decoding_window = (self.decoding_chunk_size - 1) * self.subsampling_rate + context
        num_frames = xs.shape[1]
        required_cache_size = self.decoding_chunk_size * self.num_decoding_left_chunks
        att_cache = paddle.zeros([0, 0, 0, 0])
        cnn_cache = paddle.zeros([0, 0, 0, 0])
        outputs = []
        offset = 0
        for cur in range(0, num_frames - context + 1, stride):
            end = min(cur + decoding_window, num_frames)
            chunk_xs = xs[:, cur:end, :]
            (y, att_cache, cnn_cache) = self.forward_chunk(
                chunk_xs, offset, required_cache_size, att_cache, cnn_cache
            )
            outputs.append(y)
            offset += y.shape[1]
        ys = paddle.concat(outputs, 1)
        masks = paddle.ones([1, 1, ys.shape[1]], dtype=paddle.bool)
        return ys, masks


class U2ConvolutionalEncoder(U2ChunkEncoder):
    """With convolutions in front, and a `while` over the frames; the last window is shorter."""

    subsampling_rate, right_context = 4, 6

    def __init__(self, left_chunks: int = -1, chunk: int = 2, size: int = 4, places: int = 64):
        super().__init__(left_chunks, chunk, size, places)
        self.conv = nn.Sequential(
            nn.Conv2D(1, 3, 3, 2), nn.ReLU(), nn.Conv2D(3, size, 3, 2), nn.ReLU()
        )
        self.embed = nn.Linear(size, size)

    def subsample(self, xs):
        x = self.conv(xs.unsqueeze(1))
        b, c, t, f = x.shape
        return self.embed(x.transpose([0, 2, 1, 3]).reshape([b, t, c * f]))

    def forward(self, xs):
        context = self.right_context + 1
        stride = self.subsampling_rate * self.decoding_chunk_size
        decoding_window = (self.decoding_chunk_size - 1) * self.subsampling_rate + context
        num_frames, outputs = xs.shape[1], []
        required_cache_size = self.decoding_chunk_size * self.num_decoding_left_chunks
        att_cache, cnn_cache = paddle.zeros([0, 0, 0, 0]), paddle.zeros([0, 0, 0, 0])
        offset = cur = 0
        while cur + context <= num_frames:
            end = min(cur + decoding_window, num_frames)
            y, att_cache, cnn_cache = self.forward_chunk(
                xs[:, cur:end, :], offset, required_cache_size, att_cache, cnn_cache
            )
            outputs.append(y)
            offset += y.shape[1]
            cur += stride
        return paddle.concat(outputs, 1), att_cache


class DecoderLayer(nn.Layer):
    """One of a Transformer's decoder; with a cache only the last token is computed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(size, size), nn.Linear(size, 2 * size)
        self.src_q, self.src_kv = nn.Linear(size, size), nn.Linear(size, 2 * size)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def attend(self, q, kv):
        k, v = kv.chunk(2, axis=-1)
        return F.softmax(paddle.matmul(q, k, transpose_y=True) / q.shape[-1] ** 0.5, -1) @ v

    def forward(self, tgt, memory, cache=None):
        residual, tgt = tgt, self.norm1(tgt)
        if cache is None:
            tgt_q = tgt
        else:
            assert cache.shape == [tgt.shape[0], tgt.shape[1] - 1, tgt.shape[2]]
            tgt_q, residual = tgt[:, -1:, :], residual[:, -1:, :]
        x = residual + self.attend(self.q(tgt_q), self.kv(tgt))
        x = x + self.attend(self.src_q(self.norm2(x)), self.src_kv(memory))
        if cache is not None:
            x = paddle.concat([cache, x], axis=1)
        return x


class AttentionDecoder(nn.Layer):
    """`recognize` of U2: beam search over a growing tensor of hypotheses, caches per layer that
    are reordered in each step."""

    def __init__(self, maxlen: int, beam_size: int = 3, vocab: int = 7, size: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.decoders = nn.LayerList([DecoderLayer(size) for _ in range(2)])
        self.out = nn.Linear(size, vocab)
        self.maxlen, self.beam_size, self.vocab, self.sos, self.eos = maxlen, beam_size, vocab, 1, 2

    def forward_one_step(self, hyps, memory, cache):
        x = self.embed(hyps)
        new_cache = []
        for i, decoder in enumerate(self.decoders):
            c = None if cache is None else cache[i]
            x = decoder(x, memory, cache=c)
            new_cache.append(x)
        return F.log_softmax(self.out(x[:, -1]), axis=-1), new_cache

    def forward(self, encoder_out):
        batch_size, maxlen, size = encoder_out.shape
        beam_size = self.beam_size
        running_size = batch_size * beam_size
        encoder_out = encoder_out.unsqueeze(1).tile([1, beam_size, 1, 1])
        encoder_out = encoder_out.reshape([running_size, maxlen, size])
        hyps = paddle.ones([running_size, 1], dtype=paddle.int64) * self.sos
        scores = paddle.to_tensor([0.0] + [-float("inf")] * (beam_size - 1))
        scores = scores.tile([batch_size]).unsqueeze(1)
        end_flag = paddle.zeros_like(scores, dtype=paddle.bool)
        cache = None
        for _ in range(1, self.maxlen + 1):
            if end_flag.cast(paddle.int64).sum() == running_size:
                break
            logp, cache = self.forward_one_step(hyps, encoder_out, cache)
            top_k_logp, top_k_index = logp.topk(beam_size)
            top_k_logp = paddle.where(
                end_flag,
                paddle.to_tensor([0.0] + [-float("inf")] * (beam_size - 1)).unsqueeze(0),
                top_k_logp,
            )
            top_k_index = paddle.where(
                end_flag, paddle.full_like(top_k_index, self.eos), top_k_index
            )
            scores = scores + top_k_logp
            scores = scores.reshape([batch_size, beam_size * beam_size])
            scores, offset_k_index = scores.topk(k=beam_size)
            scores = scores.reshape([-1, 1])
            base_k_index = paddle.arange(batch_size).reshape([-1, 1]).tile([1, beam_size])
            base_k_index = base_k_index * beam_size * beam_size
            best_k_index = base_k_index.reshape([-1]) + offset_k_index.reshape([-1])
            best_k_pred = paddle.index_select(top_k_index.reshape([-1]), best_k_index, axis=0)
            best_hyps_index = best_k_index // beam_size
            last_best_k_hyps = paddle.index_select(hyps, best_hyps_index, axis=0)
            hyps = paddle.concat((last_best_k_hyps, best_k_pred.reshape([-1, 1])), axis=1)
            cache = [paddle.index_select(c, best_hyps_index, axis=0) for c in cache]
            end_flag = paddle.equal(hyps[:, -1], self.eos).reshape([-1, 1])
        scores = scores.reshape([batch_size, beam_size])
        best_index = paddle.argmax(scores, axis=-1)
        best_hyps_index = best_index + paddle.arange(batch_size) * beam_size
        best_hyps = paddle.index_select(hyps, best_hyps_index, axis=0)
        return best_hyps[:, 1:], scores.max(-1)


class Rescoring(nn.Layer):
    """`attention_rescoring`: the scores of hypotheses of different lengths, one after another."""

    def __init__(self, tokens: int, vocab: int = 7, size: int = 4) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(vocab, size), nn.Linear(size, vocab)
        self.eos, self.ctc_weight = 2, 0.3

    def forward(self, hyps, hyp_scores, hyps_lens):
        decoder_out = F.log_softmax(self.out(paddle.tanh(self.embed(hyps))), axis=-1)
        best_score = paddle.full([], -1e9)
        best_index = paddle.zeros([], "int64")
        for i in range(hyps.shape[0]):
            score = paddle.zeros([])
            for j in range(hyps.shape[1]):
                if j < hyps_lens[i]:
                    score = score + decoder_out[i][j][hyps[i][j]]
            score = score + decoder_out[i][-1][self.eos] + hyp_scores[i] * self.ctc_weight
            if score > best_score:
                best_score = score
                best_index = paddle.full([], i, "int64")
        return hyps[best_index], best_score


# ---------------------------------------------------------------- transducer
class Transducer(nn.Layer):
    """Greedy search: at a frame as many symbols as are no blanks, at most `n_steps`."""

    def __init__(self, frames: int, vocab: int = 6, size: int = 4, n_steps: int = 3) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(vocab, size), nn.LSTMCell(size, size)
        self.joint, self.out = nn.Linear(2 * size, size), nn.Linear(size, vocab)
        self.size, self.blank, self.n_steps = size, 0, n_steps

    def predict(self, token, state):
        y, state = self.cell(self.embed(token), state)
        return y, state

    def forward(self, encoder_out):
        hyps = paddle.zeros([encoder_out.shape[1] * self.n_steps], dtype="int64")
        count = paddle.zeros([], "int64")
        state = (paddle.zeros([1, self.size]), paddle.zeros([1, self.size]))
        pred_input_step = paddle.full([1], self.blank, "int64")
        y, new_state = self.predict(pred_input_step, state)
        t, per_frame_noblk = 0, 0
        prev_out_nblk = True
        while t < encoder_out.shape[1]:
            encoder_out_step = encoder_out[:, t]
            if prev_out_nblk:
                y, new_state = self.predict(pred_input_step, state)
            joint_out_step = self.out(
                paddle.tanh(self.joint(paddle.concat([encoder_out_step, y], -1)))
            )
            joint_out_max = joint_out_step.argmax(axis=-1)
            if joint_out_max != self.blank:
                hyps[count] = joint_out_max[0]
                count = count + 1
                prev_out_nblk = True
                per_frame_noblk = per_frame_noblk + 1
                pred_input_step = joint_out_max
                state = new_state
            if joint_out_max == self.blank or per_frame_noblk >= self.n_steps:
                if joint_out_max == self.blank:
                    prev_out_nblk = False
                t = t + 1
                per_frame_noblk = 0
        return hyps, count


class BatchedTransducer(Transducer):
    """Greedy search of a batch: an inner loop over symbols while any row is no blank."""

    def forward(self, encoder_out):
        batch, frames, _ = encoder_out.shape
        hyps = paddle.zeros([batch, frames * self.n_steps], dtype="int64")
        count = paddle.zeros([batch], "int64")
        h = c = paddle.zeros([batch, self.size])
        last = paddle.full([batch], self.blank, "int64")
        rows = paddle.arange(batch)
        for t in range(frames):
            frame = encoder_out[:, t]
            not_blank = paddle.ones([batch], "bool")
            symbols_added = 0
            while not_blank.any() and symbols_added < self.n_steps:
                y, (new_h, new_c) = self.predict(last, (h, c))
                joint = paddle.tanh(self.joint(paddle.concat([frame, y], -1)))
                token = self.out(joint).argmax(-1)
                not_blank = paddle.logical_and(not_blank, token != self.blank)
                place = paddle.where(not_blank, count, paddle.full_like(count, hyps.shape[1] - 1))
                old = hyps[rows, place]
                hyps[rows, place] = paddle.where(not_blank, token, old)
                count = count + not_blank.astype("int64")
                keep = not_blank.unsqueeze(-1)
                h, c = paddle.where(keep, new_h, h), paddle.where(keep, new_c, c)
                last = paddle.where(not_blank, token, last)
                symbols_added += 1
        return hyps, count, h


# ---------------------------------------------------------------- CTC
class GreedyCTC(nn.Layer):
    """Repeats and blanks are left out, step by step; an alignment by dynamic programming."""

    def __init__(self, frames: int, vocab: int = 5, size: int = 4) -> None:
        super().__init__()
        self.ctc_lo, self.blank = nn.Linear(size, vocab), 0

    def forward(self, hidden):
        logits = F.log_softmax(self.ctc_lo(hidden), axis=-1)
        ids = logits.argmax(-1)
        batch, frames = ids.shape
        out = paddle.full([batch, frames + 1], -1, "int64")
        last = paddle.full([batch], self.blank, "int64")
        length = paddle.zeros([batch], "int64")
        score = paddle.zeros([batch])
        for t in range(frames):
            token = ids[:, t]
            keep = paddle.logical_and(token != self.blank, token != last)
            for b in range(batch):
                if keep[b]:
                    out[b, length[b]] = token[b]
            length = length + keep.astype("int64")
            score = score + logits[:, t].max(-1)
            last = token
        return out, length, score


class CTCForcedAlign(nn.Layer):
    """`forced_align`: the trellis of labels between blanks, its pointers followed back."""

    def __init__(self, frames: int, vocab: int = 5, size: int = 4) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(size, vocab)

    def forward(self, hidden, y):
        ctc_probs = F.log_softmax(self.ctc_lo(hidden), axis=-1)
        frames, labels = ctc_probs.shape[0], 2 * y.shape[0] + 1
        y_insert_blank = paddle.zeros([labels], "int64")
        y_insert_blank[1::2] = y
        log_alpha = paddle.full([frames, labels], -1e30)
        state_path = paddle.full([frames, labels], -1, dtype="int16").astype("int64")
        log_alpha[0, 0] = ctc_probs[0][y_insert_blank[0]]
        log_alpha[0, 1] = ctc_probs[0][y_insert_blank[1]]
        for t in range(1, frames):
            for s in range(labels):
                blank = y_insert_blank[s] == 0
                if s < 2 or blank or y_insert_blank[s] == y_insert_blank[s - 2]:
                    candidates = paddle.stack([log_alpha[t - 1, s], log_alpha[t - 1, s - 1]])
                    prev_state = paddle.stack([paddle.full([], s), paddle.full([], s - 1)])
                else:
                    candidates = paddle.stack([log_alpha[t - 1, s], log_alpha[t - 1, s - 2]])
                    prev_state = paddle.stack([paddle.full([], s), paddle.full([], s - 2)])
                log_alpha[t, s] = paddle.max(candidates) + ctc_probs[t][y_insert_blank[s]]
                state_path[t, s] = prev_state[paddle.argmax(candidates)].astype("int64")
        state_seq = paddle.full([frames], -1, dtype="int64")
        candidates = paddle.stack([log_alpha[-1, labels - 1], log_alpha[-1, labels - 2]])
        state_seq[frames - 1] = labels - 1 - paddle.argmax(candidates)
        for t in range(frames - 2, -1, -1):
            state_seq[t] = state_path[t + 1, state_seq[t + 1]]
        return y_insert_blank[state_seq], log_alpha
