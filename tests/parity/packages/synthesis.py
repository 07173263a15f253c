"""Inference of speech synthesis: TransformerTTS, Tacotron 2, FastSpeech 2, WaveFlow."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn


# ---------------------------------------------------------------- TransformerTTS
class MultiHeadedAttention(nn.Layer):
    """Keeps the weights of the last call as an attribute, which inference collects."""

    def __init__(self, n_head: int, n_feat: int) -> None:
        super().__init__()
        assert n_feat % n_head == 0
        self.d_k, self.h = n_feat // n_head, n_head
        self.linear_q, self.linear_k = nn.Linear(n_feat, n_feat), nn.Linear(n_feat, n_feat)
        self.linear_v, self.linear_out = nn.Linear(n_feat, n_feat), nn.Linear(n_feat, n_feat)
        self.attn = None

    def forward_qkv(self, query, key, value):
        n_batch = query.shape[0]
        q = self.linear_q(query).reshape([n_batch, -1, self.h, self.d_k])
        k = self.linear_k(key).reshape([n_batch, -1, self.h, self.d_k])
        v = self.linear_v(value).reshape([n_batch, -1, self.h, self.d_k])
        return q.transpose([0, 2, 1, 3]), k.transpose([0, 2, 1, 3]), v.transpose([0, 2, 1, 3])

    def forward_attention(self, value, scores, mask=None):
        n_batch = value.shape[0]
        if mask is not None:
            mask = mask.unsqueeze(1)
            mask = paddle.logical_not(mask)
            scores = paddle.where(mask, paddle.full_like(scores, -1e9), scores)
            self.attn = F.softmax(scores, axis=-1)
            self.attn = paddle.where(mask, paddle.zeros_like(self.attn), self.attn)
        else:
            self.attn = F.softmax(scores, axis=-1)
        x = paddle.matmul(self.attn, value)
        x = x.transpose([0, 2, 1, 3]).reshape([n_batch, -1, self.h * self.d_k])
        return self.linear_out(x)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.forward_qkv(query, key, value)
        scores = paddle.matmul(q, k.transpose([0, 1, 3, 2])) / math.sqrt(self.d_k)
        return self.forward_attention(v, scores, mask)


class DecoderLayer(nn.Layer):
    """With a cache, the last step alone is computed and put behind it."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.size = size
        self.self_attn = MultiHeadedAttention(heads, size)
        self.src_attn = MultiHeadedAttention(heads, size)
        self.feed_forward = nn.Sequential(
            nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size)
        )
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(size) for _ in range(3))

    def forward(self, tgt, tgt_mask, memory, memory_mask, cache=None):
        residual = tgt
        tgt = self.norm1(tgt)
        if cache is None:
            tgt_q = tgt
            tgt_q_mask = tgt_mask
        else:
            assert cache.shape == [tgt.shape[0], tgt.shape[1] - 1, self.size], cache.shape
            tgt_q = tgt[:, -1:, :]
            residual = residual[:, -1:, :]
            tgt_q_mask = None
            if tgt_mask is not None:
                tgt_mask = paddle.cast(tgt_mask, dtype="int64")
                tgt_q_mask = tgt_mask[:, -1:, :]
                tgt_q_mask = paddle.cast(tgt_q_mask, dtype="bool")
        x = residual + self.self_attn(tgt_q, tgt, tgt, tgt_q_mask)
        residual = x
        x = self.norm2(x)
        x = residual + self.src_attn(x, memory, memory, memory_mask)
        residual = x
        x = residual + self.feed_forward(self.norm3(x))
        if cache is not None:
            x = paddle.concat([cache, x], axis=1)
        return x, tgt_mask, memory, memory_mask


def subsequent_mask(size):
    ret = paddle.ones([size, size], dtype="bool")
    return paddle.tril(paddle.cast(ret, "int64")).cast("bool")


class PositionalEncoding(nn.Layer):
    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        position = paddle.arange(0, max_len, dtype="float32").unsqueeze(1)
        scale = -(math.log(10000.0) / d_model)
        div_term = paddle.exp(paddle.arange(0, d_model, 2, dtype="float32") * scale)
        pe = paddle.zeros([max_len, d_model])
        pe[:, 0::2] = paddle.sin(position * div_term)
        pe[:, 1::2] = paddle.cos(position * div_term)
        self.pe, self.alpha = pe.unsqueeze(0), self.create_parameter([1])

    def forward(self, x):
        T = x.shape[1]
        return x + self.alpha * self.pe[:, :T]


class Decoder(nn.Layer):
    def __init__(self, odim: int, adim: int, heads: int, layers: int, places: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            nn.Linear(odim, adim), nn.ReLU(), PositionalEncoding(adim, places)
        )
        self.decoders = nn.LayerList([DecoderLayer(adim, heads) for _ in range(layers)])
        self.after_norm, self.normalize_before = nn.LayerNorm(adim), True

    def forward_one_step(self, tgt, tgt_mask, memory, cache=None):
        x = self.embed(tgt)
        if cache is None:
            cache = [None] * len(self.decoders)
        new_cache = []
        for c, decoder in zip(cache, self.decoders):
            x, tgt_mask, memory, memory_mask = decoder(x, tgt_mask, memory, None, cache=c)
            new_cache.append(x)
        if self.normalize_before:
            y = self.after_norm(x[:, -1])
        else:
            y = x[:, -1]
        return y, new_cache


class TransformerTTS(nn.Layer):
    """`inference`: frames are fed back, the loop ends by the probability of the stop token, not
    before the least length; attention weights are collected from the sublayers."""

    def __init__(
        self, maxlen: int, odim: int = 3, adim: int = 4, reduction_factor: int = 2
    ) -> None:
        super().__init__()
        self.odim, self.reduction_factor, self.maxlen = odim, reduction_factor, maxlen
        self.threshold, self.minlen = 0.5, 0
        self.decoder = Decoder(odim, adim, 2, 2, maxlen + 1)
        self.feat_out = nn.Linear(adim, odim * reduction_factor)
        self.prob_out = nn.Linear(adim, reduction_factor)
        self.postnet = nn.Conv1D(odim, odim, 3, padding=1)

    def forward(self, hs):
        maxlen, minlen = int(self.maxlen), int(self.minlen)
        idx = 0
        ys = paddle.zeros([1, 1, self.odim])
        outs, probs = [], []
        z_cache = None
        while True:
            idx += 1
            y_masks = subsequent_mask(idx).unsqueeze(0)
            z, z_cache = self.decoder.forward_one_step(ys, y_masks, hs, cache=z_cache)
            outs += [self.feat_out(z).reshape([self.reduction_factor, self.odim])]
            probs += [F.sigmoid(self.prob_out(z))[0]]
            ys = paddle.concat((ys, outs[-1][-1].reshape([1, 1, self.odim])), axis=1)
            att_ws_ = []
            for name, m in self.named_sublayers():
                if isinstance(m, MultiHeadedAttention) and "src" in name:
                    att_ws_ += [m.attn[0, :, -1].unsqueeze(1)]
            if idx == 1:
                att_ws = att_ws_
            else:
                att_ws = [
                    paddle.concat([att_w, att_w_], axis=1) for att_w, att_w_ in zip(att_ws, att_ws_)
                ]
            if sum(paddle.cast(probs[-1] >= self.threshold, "int64")) > 0 or idx >= maxlen:
                if idx < minlen:
                    continue
                outs = paddle.concat(outs, axis=0).unsqueeze(0).transpose([0, 2, 1])
                if self.postnet is not None:
                    outs = outs + self.postnet(outs)
                outs = outs.transpose([0, 2, 1]).squeeze(0)
                probs = paddle.concat(probs, axis=0)
                break
        att_ws = paddle.stack(att_ws, axis=0)
        return outs, probs, att_ws


# ---------------------------------------------------------------- Tacotron 2
class AttLoc(nn.Layer):
    """Location-sensitive attention that keeps the projected memory between steps."""

    def __init__(self, eprojs: int, dunits: int, att_dim: int, aconv_chans: int) -> None:
        super().__init__()
        self.mlp_enc = nn.Linear(eprojs, att_dim)
        self.mlp_dec = nn.Linear(dunits, att_dim, bias_attr=False)
        self.mlp_att = nn.Linear(aconv_chans, att_dim, bias_attr=False)
        self.loc_conv = nn.Conv2D(1, aconv_chans, (1, 5), padding=(0, 2), bias_attr=False)
        self.gvec = nn.Linear(att_dim, 1)
        self.eprojs, self.dunits = eprojs, dunits
        self.reset()

    def reset(self):
        self.h_length = None
        self.enc_h = None
        self.pre_compute_enc_h = None
        self.mask = None

    def forward(self, enc_hs_pad, enc_hs_len, dec_z, att_prev, scaling=2.0):
        batch = paddle.shape(enc_hs_pad)[0]
        if self.pre_compute_enc_h is None:
            self.enc_h = enc_hs_pad
            self.h_length = self.enc_h.shape[1]
            self.pre_compute_enc_h = self.mlp_enc(self.enc_h)
        if dec_z is None:
            dec_z = paddle.zeros([batch, self.dunits])
        else:
            dec_z = dec_z.reshape([batch, self.dunits])
        if paddle.sum(att_prev) == 0:
            mask = (paddle.arange(self.h_length).unsqueeze(0) < enc_hs_len.unsqueeze(1)).cast(
                "float32"
            )
            att_prev = mask / enc_hs_len.cast("float32").unsqueeze(-1)
        att_conv = self.loc_conv(att_prev.reshape([batch, 1, 1, self.h_length]))
        att_conv = att_conv.squeeze(2).transpose([0, 2, 1])
        att_conv = self.mlp_att(att_conv)
        dec_z_tiled = self.mlp_dec(dec_z).reshape([batch, 1, -1])
        e = paddle.tanh(att_conv + self.pre_compute_enc_h + dec_z_tiled)
        e = self.gvec(e).squeeze(2)
        if self.mask is None:
            steps = paddle.arange(self.h_length).unsqueeze(0)
            self.mask = steps >= enc_hs_len.unsqueeze(1)
        e = paddle.where(self.mask, paddle.full_like(e, -1e9), e)
        w = F.softmax(scaling * e, axis=1)
        c = paddle.sum(self.enc_h * w.reshape([batch, self.h_length, 1]), axis=1)
        return c, w


class TacotronDecoder(nn.Layer):
    """The decoder with its states in lists per layer; `inference` by frames, ends by the gate;
    `forward` with teacher forcing over the steps of a transposed tensor."""

    def __init__(self, maxlen: int, idim: int = 4, odim: int = 3, dunits: int = 5) -> None:
        super().__init__()
        self.odim, self.maxlen, self.minlen, self.threshold = odim, maxlen, 0, 0.5
        self.att = AttLoc(idim, dunits, 4, 3)
        self.lstm = nn.LayerList([nn.LSTMCell(idim + 4, dunits), nn.LSTMCell(dunits, dunits)])
        self.prenet = nn.Linear(odim, 4)
        self.feat_out = nn.Linear(idim + dunits, odim, bias_attr=False)
        self.prob_out = nn.Linear(idim + dunits, 1)
        self.reduction_factor, self.use_concate = 1, True

    def _zero_state(self, hs):
        return paddle.zeros([hs.shape[0], self.lstm[0].hidden_size])

    def _step(self, hs, hlens, prev_out, prev_att_w, z_list, c_list):
        att_c, att_w = self.att(hs, hlens, z_list[0], prev_att_w)
        prenet_out = F.relu(self.prenet(prev_out))
        xs = paddle.concat([att_c, prenet_out], axis=1)
        _, next_hidden = self.lstm[0](xs, (z_list[0], c_list[0]))
        z_list[0], c_list[0] = next_hidden
        for i in range(1, len(self.lstm)):
            _, next_hidden = self.lstm[i](z_list[i - 1], (z_list[i], c_list[i]))
            z_list[i], c_list[i] = next_hidden
        zcs = paddle.concat([z_list[-1], att_c], axis=1) if self.use_concate else z_list[-1]
        return zcs, att_w

    def _initial(self, hs):
        c_list, z_list = [self._zero_state(hs)], [self._zero_state(hs)]
        for _ in range(1, len(self.lstm)):
            c_list.append(self._zero_state(hs))
            z_list.append(self._zero_state(hs))
        prev_out = paddle.zeros([hs.shape[0], self.odim])
        return c_list, z_list, prev_out

    def forward(self, hs, ys):
        hlens = paddle.full([hs.shape[0]], hs.shape[1], dtype="int64")
        c_list, z_list, prev_out = self._initial(hs)
        prev_att_w = paddle.zeros(paddle.shape(hs)[:2])
        self.att.reset()
        outs, logits, att_ws = [], [], []
        for y in ys.transpose([1, 0, 2]):
            zcs, att_w = self._step(hs, hlens, prev_out, prev_att_w, z_list, c_list)
            outs.append(self.feat_out(zcs).reshape([hs.shape[0], self.odim, -1]))
            logits.append(self.prob_out(zcs))
            att_ws.append(att_w)
            prev_out = y
            if prev_att_w is not None:
                prev_att_w = prev_att_w + att_w
            else:
                prev_att_w = att_w
        logits = paddle.concat(logits, axis=1)
        before_outs = paddle.concat(outs, axis=2)
        att_ws = paddle.stack(att_ws, axis=1)
        if self.reduction_factor > 1:
            before_outs = before_outs.reshape([before_outs.shape[0], self.odim, -1])
        return before_outs.transpose([0, 2, 1]), logits, att_ws


class TacotronInference(TacotronDecoder):
    def forward(self, h):
        assert len(h.shape) == 2
        hs = h.unsqueeze(0)
        ilens = paddle.shape(h)[0].unsqueeze(0)
        maxlen, minlen = int(self.maxlen), int(self.minlen)
        c_list, z_list, prev_out = self._initial(hs)
        prev_att_w = paddle.zeros([1, hs.shape[1]])
        self.att.reset()
        idx = 0
        outs, att_ws, probs = [], [], []
        while True:
            idx += self.reduction_factor
            zcs, att_w = self._step(hs, ilens, prev_out, prev_att_w, z_list, c_list)
            att_ws += [att_w]
            outs += [self.feat_out(zcs).reshape([1, self.odim, -1])]
            probs += [F.sigmoid(self.prob_out(zcs))[0]]
            prev_out = outs[-1][:, :, -1]
            prev_att_w = prev_att_w + att_w
            if int(sum(probs[-1] >= self.threshold)) > 0 or idx >= maxlen:
                if idx < minlen:
                    continue
                outs = paddle.concat(outs, axis=2)
                outs = outs.transpose([0, 2, 1]).squeeze(0)
                probs = paddle.concat(probs, axis=0)
                att_ws = paddle.concat(att_ws, axis=0)
                break
        return outs, probs, att_ws


# ---------------------------------------------------------------- FastSpeech 2
class LengthRegulator(nn.Layer):
    """Phones are repeated as often as their durations say; `alpha` scales them."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.pad_value = 0.0

    def expand_matrix(self, encodings, durations, t_dec):
        batch_size, t_enc = durations.shape
        durations = durations.numpy()
        M = paddle.zeros([batch_size, t_dec, t_enc])
        for i in range(batch_size):
            k = 0
            for j in range(t_enc):
                d = int(durations[i, j])
                M[i, k : k + d, j] = 1
                k += d
        return paddle.matmul(M, encodings)

    def forward(self, xs, ds):
        return self.expand_matrix(xs, ds, 3 * ds.shape[1])


class GaussianUpsampling(nn.Layer):
    """Frames attend to the phones that are near: no Python number depends on the durations."""

    def __init__(self, tokens: int, delta: float = 0.1) -> None:
        super().__init__()
        self.delta, self.tokens = delta, tokens

    def forward(self, hs, ds, h_masks):
        T_feats = 2 * self.tokens
        ds = ds.astype("float32")
        t = paddle.arange(0, T_feats).unsqueeze(0).astype("float32") * h_masks.astype("float32")
        c = ds.cumsum(axis=-1) - ds / 2
        energy = -1 * self.delta * (t.unsqueeze(-1) - c.unsqueeze(1)) ** 2
        p_attn = F.softmax(energy, axis=2)
        return paddle.matmul(p_attn, hs)


# ---------------------------------------------------------------- WaveFlow
class ResidualBlock(nn.Layer):
    """Causal in height by a buffer of rows, which begins as a tensor of one element."""

    def __init__(self, channels: int, cond_channels: int, kernel_size, dilations) -> None:
        super().__init__()
        rh, rw = (1 + (k - 1) * d for k, d in zip(kernel_size, dilations))
        self.rh, self.rw, self.dilations = rh, rw, dilations
        paddings = [rh - 1, 0, rw // 2, (rw - 1) // 2]
        self.conv = nn.Conv2D(
            channels, 2 * channels, kernel_size, padding=paddings, dilation=dilations
        )
        self.condition_proj = nn.Conv2D(cond_channels, 2 * channels, (1, 1))
        self.out_proj = nn.Conv2D(channels, 2 * channels, (1, 1))

    def start_sequence(self):
        if self.training:
            raise ValueError("Only use start sequence at evaluation mode.")
        self._conv_buffer = paddle.zeros([1])

    def add_input(self, x_row, condition_row):
        x_row_in = x_row
        if len(paddle.shape(self._conv_buffer)) == 1:
            self._init_buffer(x_row)
        self._update_buffer(x_row)
        rw = self.rw
        x_row = F.conv2d(
            self._conv_buffer,
            self.conv.weight,
            self.conv.bias,
            padding=[0, 0, rw // 2, (rw - 1) // 2],
            dilation=self.dilations,
        )
        x_row += self.condition_proj(condition_row)
        content, gate = paddle.chunk(x_row, 2, axis=1)
        x_row = paddle.tanh(content) * F.sigmoid(gate)
        res, skip = paddle.chunk(self.out_proj(x_row), 2, axis=1)
        return x_row_in + res, skip

    def _init_buffer(self, input):
        batch_size, channels, _, width = input.shape
        self._conv_buffer = paddle.zeros([batch_size, channels, self.rh, width], dtype=input.dtype)

    def _update_buffer(self, input):
        self._conv_buffer = paddle.concat([self._conv_buffer[:, :, 1:, :], input], axis=2)


class ResidualNet(nn.LayerList):
    def start_sequence(self):
        for layer in self:
            layer.start_sequence()

    def add_input(self, x_row, condition_row):
        skip_connections = []
        for layer in self:
            x_row, skip = layer.add_input(x_row, condition_row)
            skip_connections.append(skip)
        return paddle.sum(paddle.stack(skip_connections, 0), 0)


class Flow(nn.Layer):
    """`inverse`: row by row, each from the row that has just been written."""

    def __init__(self, n_group: int, layers: int = 2, channels: int = 3, mels: int = 2) -> None:
        super().__init__()
        self.n_group = n_group
        self.input_proj = nn.Conv2D(1, channels, (1, 1))
        self.resnet = ResidualNet(
            [ResidualBlock(channels, mels, (3, 3), (1, 2**i)) for i in range(layers)]
        )
        self.output_proj = nn.Conv2D(channels, 2, (1, 1))

    def _predict_row_parameters(self, x_row, condition_row):
        x_row = self.input_proj(x_row)
        x_row = self.resnet.add_input(x_row, condition_row)
        logs, b = paddle.chunk(self.output_proj(x_row), 2, axis=1)
        return logs, b

    def _inverse_row(self, z_row, x_row, condition_row):
        logs, b = self._predict_row_parameters(x_row, condition_row)
        x_next_row = (z_row - b) * paddle.exp(-logs)
        return x_next_row, (logs, b)

    def forward(self, z, condition):
        z_0 = z[:, :, :1, :]
        x = paddle.zeros_like(z)
        x[:, :, :1, :] = z_0
        self.resnet.start_sequence()
        num_step = paddle.ones([1], dtype="int32") * (self.n_group)
        for i in range(1, num_step):
            x_row = x[:, :, i - 1 : i, :]
            z_row = z[:, :, i : i + 1, :]
            condition_row = condition[:, :, i : i + 1, :]
            x_next_row, (logs, b) = self._inverse_row(z_row, x_row, condition_row)
            x[:, :, i : i + 1, :] = x_next_row
        return x


class WaveFlow(nn.LayerList):
    """The flows in reverse, each after a permutation of the rows."""

    def __init__(self, n_group: int, n_flows: int = 2) -> None:
        super().__init__()
        for _ in range(n_flows):
            self.append(Flow(n_group))
        self.n_group, self.n_flows = n_group, n_flows
        self.perms = self._create_perm(n_group, n_flows)

    def _create_perm(self, n_group, n_flows):
        indices = list(range(n_group))
        half = n_group // 2
        perms = []
        for i in range(n_flows):
            if i < n_flows // 2:
                perm = indices[::-1]
            else:
                perm = list(reversed(indices[:half])) + list(reversed(indices[half:]))
            perm = paddle.to_tensor(perm)
            self.register_buffer(f"perm{i}", perm)
            perms.append(perm)
        return perms

    def forward(self, z, condition):
        pruned_len = int(paddle.shape(z)[-1] // self.n_group * self.n_group)
        if z.shape[-1] > pruned_len:
            z = z[:, :pruned_len]
        if condition.shape[-1] > pruned_len:
            condition = condition[:, :, :pruned_len]
        z = paddle.unsqueeze(paddle.transpose(self.fold(z), [0, 2, 1]), 1)
        condition = paddle.transpose(self.fold(condition), [0, 1, 3, 2])
        for i in reversed(range(self.n_flows)):
            z = paddle.gather(z, self.perms[i], axis=2)
            condition = paddle.gather(condition, self.perms[i], axis=2)
            z = self[i](z, condition)
        x = paddle.squeeze(z, 1)
        return paddle.reshape(paddle.transpose(x, [0, 2, 1]), [x.shape[0], -1])

    def fold(self, x):
        spatial_shape = list(x.shape[:-1])
        time_steps = paddle.shape(x)[-1]
        new_shape = spatial_shape + [time_steps // self.n_group, self.n_group]
        return paddle.reshape(x, new_shape)
