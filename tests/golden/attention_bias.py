"""Writes attention-bias.json: attention whose added mask is learned, with the mask's gradient among all others.

    /usr/bin/python3 tests/golden/attention_bias.py

A scaled dot product out of PyTorch's ops, with masks that broadcast over samples, heads and queries, hide keys by -inf, or come from a
table of relative positions; and PyTorch's own multi_head_attention_forward. Weights are named as the module's parameters are.
"""

import math

import torch
import torch.nn.functional as F

from attention import attend
from generate import op_case, random, write_cases

HEADS, WIDTH = 3, 12


def relative(table):
    """[heads, L, L] of a table [2 L - 1, heads]: element (i, j) of a head is that of the distance j - i."""
    length = (table.shape[0] + 1) // 2
    place = torch.arange(length)[None, :] - torch.arange(length)[:, None] + length - 1
    return table[place].permute(2, 0, 1)


def scaled_cases():
    three = lambda q, k: {"q": random(*q), "k": random(*k), "v": random(*k)}
    q, k = (2, 3, 4, 6), (2, 3, 5, 6)
    for shape in ((4, 5), (3, 1, 5), (1, 3, 4, 5), (2, 1, 4, 5)):
        yield op_case(f"mask {list(shape)}", "attention", {**three(q, k), "mask": random(*shape)}, attend)
    hiding = random(2, 1, 1, 5)
    hiding[1, 0, 0, 3:] = -math.inf
    yield op_case(
        "mask by keys that hides some, a scale", "attention", {**three(q, k), "mask": hiding},
        lambda q, k, v, mask: attend(q, k, v, mask, scale=0.9), attrs={"scale": 0.9},
    )  # fmt: skip
    yield op_case(
        "causal, a bias by relative positions", "attention", {**three((2, 3, 7, 4), (2, 3, 7, 4)), "table": random(13, 3)},
        lambda q, k, v, table: attend(q, k, v, relative(table), is_causal=True), attrs={"isCausal": True},
    )  # fmt: skip


def multihead(query, key, mask, padding, weights):
    return F.multi_head_attention_forward(
        query, key, key, WIDTH, HEADS, weights["in_proj_weight"], weights["in_proj_bias"], None, None, False, 0.0,
        weights["out_proj.weight"], weights["out_proj.bias"],
        training=True, key_padding_mask=padding, need_weights=False, attn_mask=mask,
    )[0]  # fmt: skip


def multihead_cases():
    state = torch.nn.MultiheadAttention(WIDTH, HEADS).state_dict()
    weights = lambda: {key: random(*value.shape, scale=0.3) for key, value in state.items()}
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True

    def with_itself(query, mask, **own):
        rows = query.transpose(0, 1)
        return multihead(rows, rows, mask, padding, own).transpose(0, 1)

    yield op_case(
        "self-attention, batch first, padded", "multihead",
        {"query": random(2, 5, WIDTH), "mask": random(5, 5), **weights()}, with_itself,
        attrs={"batchFirst": True, "padding": padding.long().tolist()},
    )  # fmt: skip
    yield op_case(
        "keys of another sequence, a mask by samples and heads", "multihead",
        {"query": random(4, 2, WIDTH), "key": random(5, 2, WIDTH), "mask": random(2 * HEADS, 4, 5), **weights()},
        lambda query, key, mask, **own: multihead(query, key, mask, None, own),
        attrs={"batchFirst": False},
    )  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(34)
    write_cases("attention-bias.json", "attention_bias.py", [*scaled_cases(), *multihead_cases()])
