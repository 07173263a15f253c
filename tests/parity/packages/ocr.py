"""Decoding heads for OCR: tables (SLANet), formulas (a decoder of mBART), text (attention)."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn


# ---------------------------------------------------------------- tables
class AttentionGRUCell(nn.Layer):
    def __init__(self, input_size: int, hidden_size: int, num_embeddings: int) -> None:
        super().__init__()
        self.i2h = nn.Linear(input_size, hidden_size, bias_attr=False)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1, bias_attr=False)
        self.rnn = nn.GRUCell(input_size + num_embeddings, hidden_size)

    def forward(self, prev_hidden, features, char_onehots):
        projected = self.i2h(features)
        hidden = paddle.unsqueeze(self.h2h(prev_hidden), axis=1)
        e = self.score(paddle.tanh(paddle.add(projected, hidden)))
        alpha = paddle.transpose(F.softmax(e, axis=1), [0, 2, 1])
        context = paddle.squeeze(paddle.mm(alpha, features), axis=1)
        cur_hidden = self.rnn(paddle.concat([context, char_onehots], 1), prev_hidden)
        return cur_hidden, alpha


class SLAHead(nn.Layer):
    """Structure and places of the cells of a table: written into tensors of the final size, ends
    when every row has met the end token, cut to the length that was reached."""

    def __init__(
        self, max_text_length: int, channels: int = 5, hidden_size: int = 6, elements: int = 7
    ) -> None:
        super().__init__()
        self.max_text_length, self.hidden_size = max_text_length, hidden_size
        self.num_embeddings, self.loc_reg_num, self.eos = elements, 4, 2
        self.structure_attention_cell = AttentionGRUCell(channels, hidden_size, elements)
        self.structure_generator = nn.Sequential(
            nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, elements)
        )
        self.loc_generator = nn.Sequential(
            nn.Linear(hidden_size, hidden_size),
            nn.Linear(hidden_size, self.loc_reg_num),
            nn.Sigmoid(),
        )

    def _char_to_onehot(self, input_char, onehot_dim):
        return F.one_hot(input_char, onehot_dim)

    def _decode(self, pre_chars, features, hidden):
        emb_feature = self._char_to_onehot(pre_chars, onehot_dim=self.num_embeddings)
        (output, hidden), alpha = self.structure_attention_cell(hidden, features, emb_feature)
        return hidden, self.structure_generator(output), self.loc_generator(output)

    def forward(self, inputs, targets=None):
        fea = inputs[-1]
        batch_size = fea.shape[0]
        fea = paddle.reshape(fea, [fea.shape[0], fea.shape[1], -1])
        fea = fea.transpose([0, 2, 1])

        steps = self.max_text_length + 1
        hidden = paddle.zeros((batch_size, self.hidden_size))
        structure_preds = paddle.zeros((batch_size, steps, self.num_embeddings))
        loc_preds = paddle.zeros((batch_size, steps, self.loc_reg_num))
        structure_preds.stop_gradient = True
        loc_preds.stop_gradient = True

        if self.training and targets is not None:
            structure = targets[0]
            max_len = targets[-2].max().astype("int32")
            for i in range(max_len + 1):
                hidden, structure_step, loc_step = self._decode(structure[:, i], fea, hidden)
                structure_preds[:, i, :] = structure_step
                loc_preds[:, i, :] = loc_step
            structure_preds = structure_preds[:, : max_len + 1]
            loc_preds = loc_preds[:, : max_len + 1]
        else:
            structure_ids = paddle.zeros((batch_size, steps), dtype="int32")
            pre_chars = paddle.zeros(shape=[batch_size], dtype="int32")
            max_text_length = paddle.to_tensor(self.max_text_length)
            loc_step, structure_step = None, None
            for i in range(max_text_length + 1):
                hidden, structure_step, loc_step = self._decode(pre_chars, fea, hidden)
                pre_chars = structure_step.argmax(axis=1, dtype="int32")
                structure_preds[:, i, :] = structure_step
                loc_preds[:, i, :] = loc_step
                structure_ids[:, i] = pre_chars
                if (structure_ids == self.eos).any(-1).all():
                    break
        if not self.training:
            structure_preds = F.softmax(structure_preds[:, : i + 1])
            loc_preds = loc_preds[:, : i + 1]
        return {"structure_probs": structure_preds, "loc_preds": loc_preds}


class TableAttentionHead(nn.Layer):
    """Hidden states are collected; in inference by a `while` that compares with a tensor."""

    def __init__(self, max_elem_length: int, channels: int = 5, hidden_size: int = 6) -> None:
        super().__init__()
        self.hidden_size, self.elem_num, self.max_elem_length = hidden_size, 7, max_elem_length
        self.structure_attention_cell = AttentionGRUCell(channels, hidden_size, self.elem_num)
        self.structure_generator = nn.Linear(hidden_size, self.elem_num)
        self.loc_generator = nn.Linear(hidden_size, 4)

    def forward(self, inputs, targets=None):
        fea = inputs[-1]
        batch_size = fea.shape[0]
        hidden = paddle.zeros((batch_size, self.hidden_size))
        output_hiddens = []
        if self.training and targets is not None:
            structure = targets[0]
            for i in range(self.max_elem_length + 1):
                elem_onehots = F.one_hot(structure[:, i], self.elem_num)
                (outputs, hidden), alpha = self.structure_attention_cell(hidden, fea, elem_onehots)
                output_hiddens.append(paddle.unsqueeze(outputs, axis=1))
            output = paddle.concat(output_hiddens, axis=1)
            structure_probs = self.structure_generator(output)
        else:
            temp_elem = paddle.zeros(shape=[batch_size], dtype="int32")
            structure_probs = None
            elem_onehots = None
            outputs = None
            alpha = None
            max_elem_length = paddle.to_tensor(self.max_elem_length)
            i = 0
            while i < max_elem_length + 1:
                elem_onehots = F.one_hot(temp_elem, self.elem_num)
                (outputs, hidden), alpha = self.structure_attention_cell(hidden, fea, elem_onehots)
                output_hiddens.append(paddle.unsqueeze(outputs, axis=1))
                structure_probs_step = self.structure_generator(outputs)
                temp_elem = structure_probs_step.argmax(axis=1, dtype="int32")
                i += 1
            output = paddle.concat(output_hiddens, axis=1)
            structure_probs = F.softmax(self.structure_generator(output))
        loc_preds = F.sigmoid(self.loc_generator(output))
        return {"structure_probs": structure_probs, "loc_preds": loc_preds}


# ---------------------------------------------------------------- text
class AttentionLSTMCell(nn.Layer):
    def __init__(self, input_size: int, hidden_size: int, num_embeddings: int) -> None:
        super().__init__()
        self.i2h = nn.Linear(input_size, hidden_size, bias_attr=False)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1, bias_attr=False)
        self.rnn = nn.LSTMCell(input_size + num_embeddings, hidden_size)

    def forward(self, prev_hidden, features, char_onehots):
        hidden = paddle.unsqueeze(self.h2h(prev_hidden[0]), axis=1)
        e = self.score(paddle.tanh(paddle.add(self.i2h(features), hidden)))
        alpha = paddle.transpose(F.softmax(e, axis=1), [0, 2, 1])
        context = paddle.squeeze(paddle.mm(alpha, features), axis=1)
        cur_hidden = self.rnn(paddle.concat([context, char_onehots], 1), prev_hidden)
        return cur_hidden, alpha


class AttentionLSTM(nn.Layer):
    """Text of an image: the probabilities begin as None and grow by `concat`."""

    def __init__(self, max_length: int, channels: int = 5, hidden_size: int = 6) -> None:
        super().__init__()
        self.hidden_size, self.num_classes, self.batch_max_length = hidden_size, 7, max_length
        self.attention_cell = AttentionLSTMCell(channels, hidden_size, self.num_classes)
        self.generator = nn.Linear(hidden_size, self.num_classes)

    def forward(self, inputs, targets=None):
        batch_size = inputs.shape[0]
        num_steps = self.batch_max_length
        hidden = (
            paddle.zeros((batch_size, self.hidden_size)),
            paddle.zeros((batch_size, self.hidden_size)),
        )
        output_hiddens = []
        if targets is not None:
            for i in range(num_steps):
                char_onehots = F.one_hot(targets[:, i], self.num_classes)
                hidden, alpha = self.attention_cell(hidden, inputs, char_onehots)
                hidden = (hidden[1][0], hidden[1][1])
                output_hiddens.append(paddle.unsqueeze(hidden[0], axis=1))
            return self.generator(paddle.concat(output_hiddens, axis=1))
        targets = paddle.zeros(shape=[batch_size], dtype="int32")
        probs = None
        for _ in range(num_steps):
            char_onehots = F.one_hot(targets, self.num_classes)
            hidden, alpha = self.attention_cell(hidden, inputs, char_onehots)
            probs_step = self.generator(hidden[0])
            hidden = (hidden[1][0], hidden[1][1])
            if probs is None:
                probs = paddle.unsqueeze(probs_step, axis=1)
            else:
                probs = paddle.concat([probs, paddle.unsqueeze(probs_step, axis=1)], axis=1)
            targets = probs_step.argmax(axis=1)
        return probs


class ParallelSAR(nn.Layer):
    """Recognition by `dec_seq`: the input of each step is written into a tensor of all steps."""

    def __init__(self, max_len: int, channels: int = 6, vocab: int = 7) -> None:
        super().__init__()
        self.max_seq_len, self.channels, self.start_idx, self.padding_idx = max_len, channels, 1, 0
        self.embedding = nn.Embedding(vocab, channels, padding_idx=self.padding_idx)
        self.cell = nn.LSTMCell(channels, channels)
        self.prediction = nn.Linear(2 * channels, vocab)

    def _2d_attention(self, x, state, feat, holistic_feat, valid_ratios):
        y, state = self.cell(x, state)
        score = (feat * y.unsqueeze(1)).sum(-1)
        if valid_ratios is not None:
            w = feat.shape[1]
            positions = paddle.arange(w).unsqueeze(0).astype("float32")
            outside = positions >= paddle.minimum(
                paddle.ceil(w * valid_ratios), paddle.full([], float(w))
            ).unsqueeze(1)
            score = paddle.where(outside, paddle.full_like(score, float("-inf")), score)
        weights = F.softmax(score, axis=-1).unsqueeze(-1)
        glimpse = paddle.sum(weights * feat, axis=1)
        return self.prediction(paddle.concat([glimpse, holistic_feat], axis=-1)), state

    def forward(self, feat, valid_ratios):
        bsz, seq_len = feat.shape[0], self.max_seq_len
        holistic_feat = feat.mean(1)
        start_token = paddle.full((bsz,), fill_value=self.start_idx, dtype="int64")
        start_token = self.embedding(start_token)
        emb_dim = start_token.shape[1]
        state = (paddle.zeros([bsz, emb_dim]), paddle.zeros([bsz, emb_dim]))
        _, state = self.cell(holistic_feat, state)
        start_token = start_token.unsqueeze(1)
        decoder_input = paddle.expand(start_token, shape=[bsz, seq_len, emb_dim]).clone()
        outputs = []
        for i in range(seq_len):
            char_output, state = self._2d_attention(
                decoder_input[:, i], state, feat, holistic_feat, valid_ratios
            )
            char_output = F.softmax(char_output, -1)
            outputs.append(char_output)
            max_idx = paddle.argmax(char_output, axis=1, keepdim=False)
            char_embedding = self.embedding(max_idx)
            if i < seq_len - 1:
                decoder_input[:, i + 1, :] = char_embedding
        return paddle.stack(outputs, 1)


class NRTR(nn.Layer):
    """Greedy decoding without a cache: the sequence so far is decoded again in every step."""

    def __init__(self, max_len: int, d_model: int = 6, vocab: int = 7) -> None:
        super().__init__()
        self.max_len, self.d_model, self.nhead = max_len, d_model, 2
        self.embedding = nn.Embedding(vocab, d_model)
        self.qkv, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.q, self.kv = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.tgt_word_prj = nn.Linear(d_model, vocab)

    def generate_square_subsequent_mask(self, sz):
        mask = paddle.zeros([sz, sz], dtype="float32")
        mask_inf = paddle.triu(
            paddle.full(shape=[sz, sz], dtype="float32", fill_value=float("-inf")), diagonal=1
        )
        mask = mask + mask_inf
        return mask.unsqueeze([0, 1])

    def heads(self, x):
        return x.reshape([x.shape[0], x.shape[1], self.nhead, -1]).transpose([0, 2, 1, 3])

    def attend(self, q, k, v, mask):
        qN = q.shape[1]
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        attn = (q.matmul(k.transpose((0, 1, 3, 2)))) * (self.d_model // self.nhead) ** -0.5
        if mask is not None:
            attn += mask
        attn = F.softmax(attn, axis=-1)
        x = (attn.matmul(v)).transpose((0, 2, 1, 3)).reshape((0, qN, self.d_model))
        return self.out_proj(x)

    def forward(self, src):
        bs = src.shape[0]
        memory = src
        dec_seq = paddle.full((bs, 1), 2, dtype=paddle.int64)
        dec_prob = paddle.full((bs, 1), 1.0, dtype=paddle.float32)
        for _ in range(1, self.max_len + 1):
            tgt = self.embedding(dec_seq)
            mask = self.generate_square_subsequent_mask(tgt.shape[1])
            q, k, v = self.qkv(tgt).chunk(3, axis=-1)
            tgt = self.norm1(tgt + self.attend(q, k, v, mask))
            k, v = self.kv(memory).chunk(2, axis=-1)
            tgt = self.norm2(tgt + self.attend(self.q(tgt), k, v, None))
            dec_output = tgt[:, -1, :]
            word_prob = F.softmax(self.tgt_word_prj(dec_output), axis=-1)
            preds_idx = paddle.argmax(word_prob, axis=-1)
            if paddle.equal_all(preds_idx, paddle.full(preds_idx.shape, 3, dtype=preds_idx.dtype)):
                break
            preds_prob = paddle.max(word_prob, axis=-1)
            dec_seq = paddle.concat([dec_seq, paddle.reshape(preds_idx, shape=[-1, 1])], axis=1)
            dec_prob = paddle.concat([dec_prob, paddle.reshape(preds_prob, shape=[-1, 1])], axis=1)
        return [dec_seq, dec_prob]


# ---------------------------------------------------------------- formulas
class ModelOutput(dict):
    """Results by name, read as attributes and as items; what is None is no item."""

    def __getattr__(self, name):
        return self.get(name)


class ForcedEOSTokenLogitsProcessor:
    def __init__(self, max_length: int, eos_token_id: int) -> None:
        self.max_length, self.eos_token_id = max_length, [eos_token_id]

    def __call__(self, input_ids, scores):
        cur_len = input_ids.shape[-1]
        scores_processed = scores
        if cur_len == self.max_length - 1:
            scores_processed = paddle.full_like(scores, -math.inf)
            scores_processed[:, self.eos_token_id] = 0
        return scores_processed


class LogitsProcessorList(list):
    def __call__(self, input_ids, scores):
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class MBartAttention(nn.Layer):
    """Self-attention with a pair of past keys and values, or cross-attention whose pair stays."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim, self.scaling = embed_dim // num_heads, (embed_dim // num_heads) ** -0.5
        self.k_proj, self.v_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def _shape(self, tensor, seq_len, bsz):
        return tensor.reshape([bsz, seq_len, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])

    def forward(self, hidden_states, key_value_states=None, past_key_value=None, mask=None):
        is_cross_attention = key_value_states is not None
        bsz, tgt_len, _ = hidden_states.shape
        query_states = self.q_proj(hidden_states) * self.scaling
        if (
            is_cross_attention
            and past_key_value is not None
            and past_key_value[0].shape[2] == key_value_states.shape[1]
        ):
            key_states, value_states = past_key_value[0], past_key_value[1]
        elif is_cross_attention:
            key_states = self._shape(self.k_proj(key_value_states), -1, bsz)
            value_states = self._shape(self.v_proj(key_value_states), -1, bsz)
        elif past_key_value is not None:
            key_states = self._shape(self.k_proj(hidden_states), -1, bsz)
            value_states = self._shape(self.v_proj(hidden_states), -1, bsz)
            key_states = paddle.concat([past_key_value[0], key_states], axis=2)
            value_states = paddle.concat([past_key_value[1], value_states], axis=2)
        else:
            key_states = self._shape(self.k_proj(hidden_states), -1, bsz)
            value_states = self._shape(self.v_proj(hidden_states), -1, bsz)
        past_key_value = (key_states, value_states)

        proj_shape = (bsz * self.num_heads, -1, self.head_dim)
        query_states = self._shape(query_states, tgt_len, bsz).reshape(proj_shape)
        key_states = key_states.reshape(proj_shape)
        value_states = value_states.reshape(proj_shape)
        src_len = key_states.shape[1]
        attn_weights = paddle.bmm(query_states, key_states.transpose([0, 2, 1]))
        if attn_weights.shape != [bsz * self.num_heads, tgt_len, src_len]:
            raise ValueError(f"Attention weights have shape {attn_weights.shape}")
        if mask is not None:
            attn_weights = attn_weights.reshape([bsz, self.num_heads, tgt_len, src_len]) + mask
            attn_weights = attn_weights.reshape([bsz * self.num_heads, tgt_len, src_len])
        attn_weights = F.softmax(attn_weights, axis=-1)
        attn_output = paddle.bmm(attn_weights, value_states)
        attn_output = attn_output.reshape([bsz, self.num_heads, tgt_len, self.head_dim])
        attn_output = attn_output.transpose([0, 2, 1, 3]).reshape([bsz, tgt_len, self.embed_dim])
        return self.out_proj(attn_output), past_key_value


class MBartDecoderLayer(nn.Layer):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.self_attn, self.encoder_attn = MBartAttention(d_model, heads), None
        self.encoder_attn = MBartAttention(d_model, heads)
        self.self_attn_layer_norm = nn.LayerNorm(d_model)
        self.encoder_attn_layer_norm = nn.LayerNorm(d_model)
        self.fc1, self.fc2 = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)
        self.final_layer_norm = nn.LayerNorm(d_model)

    def forward(
        self, hidden_states, attention_mask, encoder_hidden_states, past_key_value, use_cache
    ):
        residual = hidden_states
        self_attn_past_key_value = past_key_value[:2] if past_key_value is not None else None
        hidden_states, present_key_value = self.self_attn(
            self.self_attn_layer_norm(hidden_states),
            past_key_value=self_attn_past_key_value,
            mask=attention_mask,
        )
        hidden_states = residual + hidden_states
        residual = hidden_states
        cross_attn_past_key_value = past_key_value[-2:] if past_key_value is not None else None
        hidden_states, cross_attn_present_key_value = self.encoder_attn(
            self.encoder_attn_layer_norm(hidden_states),
            key_value_states=encoder_hidden_states,
            past_key_value=cross_attn_past_key_value,
        )
        hidden_states = residual + hidden_states
        present_key_value = present_key_value + cross_attn_present_key_value
        residual = hidden_states
        hidden_states = self.fc2(F.gelu(self.fc1(self.final_layer_norm(hidden_states))))
        outputs = (residual + hidden_states,)
        if use_cache:
            outputs += (present_key_value,)
        return outputs


class MBartDecoder(nn.Layer):
    def __init__(self, vocab: int, d_model: int, layers: int, heads: int, places: int) -> None:
        super().__init__()
        self.embed_scale = math.sqrt(d_model)
        self.embed_tokens = nn.Embedding(vocab, d_model)
        self.embed_positions = nn.Embedding(places + 2, d_model)
        self.layers = nn.LayerList([MBartDecoderLayer(d_model, heads) for _ in range(layers)])
        self.layer_norm = nn.LayerNorm(d_model)

    def _causal_mask(self, length, past_key_values_length, dtype):
        if length == 1:
            return None
        mask = paddle.full([length, length], -1e9, dtype=dtype)
        mask = paddle.triu(mask, diagonal=1)
        if past_key_values_length > 0:
            before = paddle.zeros([length, past_key_values_length], dtype=dtype)
            mask = paddle.concat([before, mask], axis=-1)
        return mask.unsqueeze([0, 1])

    def forward(self, input_ids, encoder_hidden_states, past_key_values=None, use_cache=True):
        input_shape = input_ids.shape
        input_ids = input_ids.reshape([-1, input_shape[-1]])
        past_key_values_length = (
            past_key_values[0][0].shape[2] if past_key_values is not None else 0
        )
        inputs_embeds = self.embed_tokens(input_ids) * self.embed_scale
        mask = self._causal_mask(input_shape[-1], past_key_values_length, inputs_embeds.dtype)
        positions = paddle.arange(
            past_key_values_length, past_key_values_length + input_shape[-1], dtype="int64"
        ).expand([input_shape[0], -1])
        hidden_states = inputs_embeds + self.embed_positions(positions + 2)
        next_decoder_cache = () if use_cache else None
        for idx, decoder_layer in enumerate(self.layers):
            past_key_value = past_key_values[idx] if past_key_values is not None else None
            layer_outputs = decoder_layer(
                hidden_states, mask, encoder_hidden_states, past_key_value, use_cache
            )
            hidden_states = layer_outputs[0]
            if use_cache:
                next_decoder_cache += (layer_outputs[1],)
        hidden_states = self.layer_norm(hidden_states)
        return ModelOutput(last_hidden_state=hidden_states, past_key_values=next_decoder_cache)


class FormulaHead(nn.Layer):
    """UniMERNet's and PP-FormulaNet's head: greedy generation over `model_kwargs`."""

    def __init__(
        self, max_new_tokens: int, vocab: int = 9, d_model: int = 6, layers: int = 2
    ) -> None:
        super().__init__()
        self.max_seq_len = max_new_tokens
        self.decoder = MBartDecoder(vocab, d_model, layers, 2, max_new_tokens + 1)
        self.lm_head = nn.Linear(d_model, vocab, bias_attr=False)
        self.out = nn.Linear(d_model, vocab)
        self.eos_token_id, self.pad_token_id = 2, 1
        self.logits_processor = LogitsProcessorList()
        self.logits_processor.append(
            ForcedEOSTokenLogitsProcessor(max_new_tokens + 1, self.eos_token_id)
        )

    def _prepare_decoder_input_ids_for_generation(self, batch_size, model_kwargs, start):
        if model_kwargs is not None and "decoder_input_ids" in model_kwargs:
            decoder_input_ids = model_kwargs.pop("decoder_input_ids")
        elif "input_ids" in model_kwargs:
            decoder_input_ids = model_kwargs.pop("input_ids")
        else:
            decoder_input_ids = None
        decoder_input_ids_start = paddle.ones((batch_size, 1), dtype=paddle.int64) * start
        if decoder_input_ids is None:
            decoder_input_ids = decoder_input_ids_start
        return decoder_input_ids, model_kwargs

    def prepare_inputs_for_generation(
        self, input_ids, past_key_values=None, attention_mask=None, use_cache=None,
        encoder_outputs=None, **kwargs,
    ):  # fmt: skip
        if attention_mask is None:
            attention_mask = paddle.ones(input_ids.shape)
        if past_key_values:
            past_length = past_key_values[0][0].shape[2]
            if input_ids.shape[1] > past_length:
                remove_prefix_length = past_length
            else:
                remove_prefix_length = input_ids.shape[1] - 1
            input_ids = input_ids[:, remove_prefix_length:]
        return {
            "decoder_input_ids": input_ids,
            "decoder_attention_mask": attention_mask,
            "encoder_outputs": encoder_outputs,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
        }

    def _extract_past_from_model_output(self, outputs):
        past_key_values = None
        if "past_key_values" in outputs:
            past_key_values = outputs.past_key_values
        elif "mems" in outputs:
            past_key_values = outputs.mems
        return past_key_values

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs):
        model_kwargs["past_key_values"] = self._extract_past_from_model_output(outputs)
        if getattr(outputs, "state", None) is not None:
            model_kwargs["state"] = outputs.state
        if "attention_mask" in model_kwargs:
            attention_mask = model_kwargs["attention_mask"]
            model_kwargs["attention_mask"] = paddle.concat(
                [attention_mask, paddle.ones((attention_mask.shape[0], 1))], axis=-1
            )
        if "cache_position" in model_kwargs and model_kwargs["cache_position"] is not None:
            model_kwargs["cache_position"] = model_kwargs["cache_position"][-1:] + 1
        return model_kwargs

    def stopping_criteria(self, input_ids):
        return paddle.isin(input_ids[:, -1], paddle.to_tensor([self.eos_token_id]))

    def generate_single_iter(
        self, decoder_input_ids=None, decoder_attention_mask=None, encoder_outputs=None,
        past_key_values=None, use_cache=None, return_dict=None, **kwargs,
    ):  # fmt: skip
        decoder_outputs = self.decoder(
            decoder_input_ids,
            encoder_outputs["last_hidden_state"],
            past_key_values=past_key_values,
            use_cache=use_cache,
        )
        return ModelOutput(
            logits=self.out(decoder_outputs.last_hidden_state),
            past_key_values=decoder_outputs.past_key_values,
        )

    @paddle.no_grad()
    def generate(self, model_kwargs):
        batch_size = model_kwargs["encoder_outputs"]["last_hidden_state"].shape[0]
        input_ids, model_kwargs = self._prepare_decoder_input_ids_for_generation(
            batch_size=batch_size, model_kwargs=model_kwargs, start=0
        )
        batch_size, cur_len = input_ids.shape
        model_kwargs["cache_position"] = paddle.arange(cur_len)
        pad_token_id = self.pad_token_id
        eos_token = self.eos_token_id
        unfinished_sequences = paddle.ones([batch_size], dtype=paddle.int64)
        for _ in range(self.max_seq_len):
            model_inputs = self.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = self.generate_single_iter(**model_inputs, return_dict=True)
            next_token_logits = outputs.logits[:, -1, :]
            next_tokens_scores = self.logits_processor(input_ids, next_token_logits)
            next_tokens = paddle.argmax(next_tokens_scores, axis=-1)
            next_tokens = next_tokens * unfinished_sequences + pad_token_id * (
                1 - unfinished_sequences
            )
            input_ids = paddle.concat([input_ids, next_tokens[:, None]], axis=-1)
            model_kwargs = self._update_model_kwargs_for_generation(outputs, model_kwargs)
            unfinished_sequences = unfinished_sequences & ~self.stopping_criteria(input_ids).cast(
                paddle.int64
            )
            if (
                eos_token is not None
                and (
                    paddle.cumsum((input_ids == eos_token).cast(paddle.int64), 1)[:, -1] >= 1
                ).all()
            ):
                break
        return input_ids

    def forward(self, memory):
        model_kwargs = {
            "output_attentions": False,
            "use_cache": True,
            "encoder_outputs": ModelOutput(last_hidden_state=memory),
        }
        return self.generate(model_kwargs)
