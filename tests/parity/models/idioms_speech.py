"""Loops of speech models, written as their models write them: Tacotron 2, WaveRNN, U2."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


# ---------------------------------------------------------------- Tacotron 2
class Prenet(nn.Layer):
    def __init__(self, in_dim: int, sizes: list[int], always_drop: bool) -> None:
        super().__init__()
        dims = [in_dim, *sizes]
        self.layers = nn.LayerList(
            [nn.Linear(i, o, bias_attr=False) for i, o in zip(dims[:-1], dims[1:])]
        )
        self.always_drop = always_drop

    def forward(self, x):
        for linear in self.layers:
            drop = self.training or self.always_drop
            x = F.dropout(F.relu(linear(x)), p=0.5, training=drop)
        return x


class LocationLayer(nn.Layer):
    def __init__(self, n_filters: int, kernel_size: int, attention_dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv1D(
            2, n_filters, kernel_size, padding=(kernel_size - 1) // 2, bias_attr=False
        )
        self.dense = nn.Linear(n_filters, attention_dim, bias_attr=False)

    def forward(self, attention_weights_cat):
        processed_attention = self.conv(attention_weights_cat)
        processed_attention = processed_attention.transpose([0, 2, 1])
        return self.dense(processed_attention)


class LocationSensitiveAttention(nn.Layer):
    def __init__(self, rnn_dim: int, memory_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.query_layer = nn.Linear(rnn_dim, attention_dim, bias_attr=False)
        self.memory_layer = nn.Linear(memory_dim, attention_dim, bias_attr=False)
        self.v = nn.Linear(attention_dim, 1, bias_attr=False)
        self.location_layer = LocationLayer(4, 5, attention_dim)

    def get_alignment_energies(self, query, processed_memory, attention_weights_cat):
        processed_query = self.query_layer(query.unsqueeze(1))
        processed_weights = self.location_layer(attention_weights_cat)
        energies = self.v(paddle.tanh(processed_query + processed_weights + processed_memory))
        return energies.squeeze(-1)

    def forward(self, hidden, memory, processed_memory, attention_weights_cat, mask):
        alignment = self.get_alignment_energies(hidden, processed_memory, attention_weights_cat)
        if mask is not None:
            alignment = paddle.where(mask, paddle.full_like(alignment, -1e9), alignment)
        attention_weights = F.softmax(alignment, axis=1)
        attention_context = paddle.bmm(attention_weights.unsqueeze(1), memory)
        return attention_context.squeeze(1), attention_weights


class Tacotron2Decoder(nn.Layer):
    """`inference` of the decoder: the states are attributes, the loop ends by the gate."""

    def __init__(
        self, max_decoder_steps: int, gate_threshold: float = 0.5, always_drop: bool = False
    ) -> None:
        super().__init__()
        self.n_mel_channels, memory_dim, self.rnn_dim = 5, 6, 8
        self.max_decoder_steps = max_decoder_steps
        self.gate_threshold = gate_threshold
        self.prenet = Prenet(self.n_mel_channels, [7, 7], always_drop)
        self.attention_rnn = nn.LSTMCell(7 + memory_dim, self.rnn_dim)
        self.attention_layer = LocationSensitiveAttention(self.rnn_dim, memory_dim, 7)
        self.decoder_rnn = nn.LSTMCell(self.rnn_dim + memory_dim, self.rnn_dim)
        self.linear_projection = nn.Linear(self.rnn_dim + memory_dim, self.n_mel_channels)
        self.gate_layer = nn.Linear(self.rnn_dim + memory_dim, 1)

    def get_go_frame(self, memory):
        return paddle.zeros([memory.shape[0], self.n_mel_channels], dtype=memory.dtype)

    def initialize_decoder_states(self, memory, mask):
        B, MAX_TIME, memory_dim = memory.shape
        self.attention_hidden = paddle.zeros([B, self.rnn_dim])
        self.attention_cell = paddle.zeros([B, self.rnn_dim])
        self.decoder_hidden = paddle.zeros([B, self.rnn_dim])
        self.decoder_cell = paddle.zeros([B, self.rnn_dim])
        self.attention_weights = paddle.zeros([B, MAX_TIME])
        self.attention_weights_cum = paddle.zeros([B, MAX_TIME])
        self.attention_context = paddle.zeros([B, memory_dim])
        self.memory = memory
        self.processed_memory = self.attention_layer.memory_layer(memory)
        self.mask = mask

    def decode(self, decoder_input):
        cell_input = paddle.concat((decoder_input, self.attention_context), -1)
        _, (self.attention_hidden, self.attention_cell) = self.attention_rnn(
            cell_input, (self.attention_hidden, self.attention_cell)
        )
        attention_weights_cat = paddle.concat(
            (self.attention_weights.unsqueeze(1), self.attention_weights_cum.unsqueeze(1)), axis=1
        )
        self.attention_context, self.attention_weights = self.attention_layer(
            self.attention_hidden,
            self.memory,
            self.processed_memory,
            attention_weights_cat,
            self.mask,
        )
        self.attention_weights_cum += self.attention_weights
        decoder_input = paddle.concat((self.attention_hidden, self.attention_context), -1)
        _, (self.decoder_hidden, self.decoder_cell) = self.decoder_rnn(
            decoder_input, (self.decoder_hidden, self.decoder_cell)
        )
        hidden_and_context = paddle.concat((self.decoder_hidden, self.attention_context), axis=1)
        decoder_output = self.linear_projection(hidden_and_context)
        gate_prediction = self.gate_layer(hidden_and_context)
        return decoder_output, gate_prediction, self.attention_weights

    def parse_decoder_outputs(self, mel_outputs, gate_outputs, alignments):
        alignments = paddle.stack(alignments).transpose([1, 0, 2])
        gate_outputs = paddle.stack(gate_outputs).transpose([1, 0, 2])
        mel_outputs = paddle.stack(mel_outputs).transpose([1, 2, 0])
        return mel_outputs, gate_outputs, alignments

    def forward(self, memory):
        decoder_input = self.get_go_frame(memory)
        self.initialize_decoder_states(memory, mask=None)
        mel_outputs, gate_outputs, alignments = [], [], []
        while True:
            decoder_input = self.prenet(decoder_input)
            mel_output, gate_output, alignment = self.decode(decoder_input)

            mel_outputs += [mel_output]
            gate_outputs += [gate_output]
            alignments += [alignment]

            if F.sigmoid(gate_output) > self.gate_threshold:
                break
            elif len(mel_outputs) == self.max_decoder_steps:
                break

            decoder_input = mel_output

        return self.parse_decoder_outputs(mel_outputs, gate_outputs, alignments)


class Tacotron2Training(Tacotron2Decoder):
    """`forward` of the decoder: teacher forcing, counted by the length of the list."""

    def parse_decoder_inputs(self, decoder_inputs):
        return decoder_inputs.transpose([2, 0, 1])

    def forward(self, memory, decoder_inputs):
        decoder_input = self.get_go_frame(memory).unsqueeze(0)
        decoder_inputs = self.parse_decoder_inputs(decoder_inputs)
        decoder_inputs = paddle.concat((decoder_input, decoder_inputs), axis=0)
        decoder_inputs = self.prenet(decoder_inputs)
        self.initialize_decoder_states(memory, mask=None)
        mel_outputs, gate_outputs, alignments = [], [], []
        while len(mel_outputs) < decoder_inputs.shape[0] - 1:
            decoder_input = decoder_inputs[len(mel_outputs)]
            mel_output, gate_output, attention_weights = self.decode(decoder_input)
            mel_outputs += [mel_output]
            gate_outputs += [gate_output]
            alignments += [attention_weights]
        return self.parse_decoder_outputs(mel_outputs, gate_outputs, alignments)


# ---------------------------------------------------------------- WaveRNN
class WaveRNN(nn.Layer):
    """`generate` in RAW mode: one class of the waveform a step.

    `mode` says how a sample is taken from the logits: "argmax", "gumbel" with noise that is drawn
    before the loop, or "bernoulli", two classes drawn in the loop.
    """

    def __init__(self, mode: str = "argmax") -> None:
        super().__init__()
        rnn_dims, fc_dims, feat_dims, self.aux_dims = 8, 7, 4, 2
        self.n_classes = 2 if mode == "bernoulli" else 9
        self.rnn_dims, self.mode = rnn_dims, mode
        self.I = nn.Linear(feat_dims + self.aux_dims + 1, rnn_dims)
        self.rnn1 = nn.GRUCell(rnn_dims, rnn_dims)
        self.rnn2 = nn.GRUCell(rnn_dims + self.aux_dims, rnn_dims)
        self.fc1 = nn.Linear(rnn_dims + self.aux_dims, fc_dims)
        self.fc2 = nn.Linear(fc_dims + self.aux_dims, fc_dims)
        self.fc3 = nn.Linear(fc_dims, self.n_classes)

    def sample(self, logits, noise):
        if self.mode == "bernoulli":
            label = paddle.bernoulli(F.softmax(logits, axis=1)[:, 1])
            return 2 * label - 1.0
        if noise is not None:
            logits = logits - paddle.log(-paddle.log(noise))
        label = paddle.argmax(logits, axis=1)
        return 2 * label.astype("float32") / (self.n_classes - 1.0) - 1.0

    def forward(self, mels, aux):
        output = []
        b_size, seq_len, _ = mels.shape
        h1 = paddle.zeros([b_size, self.rnn_dims])
        h2 = paddle.zeros([b_size, self.rnn_dims])
        x = paddle.zeros([b_size, 1])
        d = self.aux_dims
        aux_split = [aux[:, :, d * i : d * (i + 1)] for i in range(4)]
        noise = None
        if self.mode == "gumbel":
            noise = paddle.rand([b_size, seq_len, self.n_classes])

        for i in range(seq_len):
            m_t = mels[:, i, :]
            a1_t, a2_t, a3_t, a4_t = (a[:, i, :] for a in aux_split)

            x = paddle.concat([x, m_t, a1_t], axis=1)
            x = self.I(x)
            h1, _ = self.rnn1(x, h1)

            x = x + h1
            inp = paddle.concat([x, a2_t], axis=1)
            h2, _ = self.rnn2(inp, h2)

            x = x + h2
            x = paddle.concat([x, a3_t], axis=1)
            x = F.relu(self.fc1(x))

            x = paddle.concat([x, a4_t], axis=1)
            x = F.relu(self.fc2(x))
            logits = self.fc3(x)

            sample = self.sample(logits, noise[:, i] if noise is not None else None)
            output.append(sample)
            x = sample.unsqueeze(-1)

        output = paddle.stack(output).transpose([1, 0])
        return output, h1, h2


# ---------------------------------------------------------------- U2
class ChunkAttention(nn.Layer):
    """Attention of a chunk to the cached chunks before it, and the next cache."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.d_k = heads, size // heads
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.linear_v = nn.Linear(size, size)
        self.linear_out = nn.Linear(size, size)

    def forward(self, x, mask, cache):
        n_batch, chunk, size = x.shape
        shape = [n_batch, chunk, self.heads, self.d_k]
        q = self.linear_q(x).reshape(shape).transpose([0, 2, 1, 3])
        k = self.linear_k(x).reshape(shape).transpose([0, 2, 1, 3])
        v = self.linear_v(x).reshape(shape).transpose([0, 2, 1, 3])
        key_cache, value_cache = paddle.split(cache, 2, axis=-1)
        k = paddle.concat([key_cache, k], axis=2)
        v = paddle.concat([value_cache, v], axis=2)
        new_cache = paddle.concat([k, v], axis=-1)[:, :, chunk:, :]
        scores = paddle.matmul(q, k, transpose_y=True) / self.d_k**0.5
        scores = paddle.where(mask, scores, paddle.full_like(scores, -1e9))
        attn = F.softmax(scores, axis=-1)
        out = paddle.matmul(attn, v).transpose([0, 2, 1, 3]).reshape([n_batch, chunk, size])
        return self.linear_out(out), new_cache


class CausalConvolution(nn.Layer):
    """A depthwise convolution that remembers the last frames of the chunk before."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.lorder = kernel - 1
        self.pointwise = nn.Linear(channels, 2 * channels)
        self.weight = self.create_parameter([kernel, channels])

    def forward(self, x, cache):
        x = F.glu(self.pointwise(x), axis=-1)
        x = paddle.concat([cache, x], axis=1)
        new_cache = x[:, -self.lorder :, :]
        length = x.shape[1] - self.lorder
        y = 0
        for j in range(self.lorder + 1):
            y = y + x[:, j : j + length, :] * self.weight[j]
        return F.silu(y), new_cache


class U2Encoder(nn.Layer):
    """Chunk by chunk, with an attention cache and a convolution cache for each block."""

    def __init__(self, chunk_size: int = 4, left_chunks: int = 2, blocks: int = 2) -> None:
        super().__init__()
        self.size, self.heads, self.kernel = 8, 2, 3
        self.chunk_size, self.required_cache_size = chunk_size, chunk_size * left_chunks
        self.attentions = nn.LayerList([ChunkAttention(8, 2) for _ in range(blocks)])
        self.convolutions = nn.LayerList([CausalConvolution(8, 3) for _ in range(blocks)])
        self.norms = nn.LayerList([nn.LayerNorm(8) for _ in range(blocks)])

    def forward_chunk(self, xs, offset, att_cache, cnn_cache):
        position = paddle.arange(self.required_cache_size + self.chunk_size)
        mask = position >= self.required_cache_size - offset
        r_att_cache, r_cnn_cache = [], []
        for i, (attention, convolution) in enumerate(zip(self.attentions, self.convolutions)):
            y, new_att = attention(self.norms[i](xs), mask, att_cache[i])
            xs = xs + y
            y, new_cnn = convolution(xs, cnn_cache[i])
            xs = xs + y
            r_att_cache.append(new_att)
            r_cnn_cache.append(new_cnn)
        return xs, paddle.stack(r_att_cache), paddle.stack(r_cnn_cache)

    def forward(self, xs):
        n_batch, num_frames, _ = xs.shape
        layers = len(self.attentions)
        att_cache = paddle.zeros(
            [layers, n_batch, self.heads, self.required_cache_size, 2 * self.size // self.heads]
        )
        cnn_cache = paddle.zeros([layers, n_batch, self.kernel - 1, self.size])
        outputs, offset = [], 0
        for cur in range(0, num_frames, self.chunk_size):
            chunk_xs = xs[:, cur : cur + self.chunk_size, :]
            y, att_cache, cnn_cache = self.forward_chunk(chunk_xs, offset, att_cache, cnn_cache)
            outputs.append(y)
            offset += y.shape[1]
        return paddle.concat(outputs, axis=1), att_cache, cnn_cache
