"""Writes attention-masks.json: torch.nn.MultiheadAttention with masks by pairs and by keys, bool and float.

    /usr/bin/python3 tests/golden/attention_masks.py

Queries of 4 and keys of 5 positions, 2 samples, 3 heads of 4. All cases share `state`, `query`, `key` and `dy`. `attn` and `padding` are the
masks; an i32 one is torch's bool, and -1e38 stands for -inf.
"""

import math

import torch

from generate import encode, expected, random, write

L, S, N, HEADS, WIDTH = 4, 5, 2, 3, 12


def module_of(dtype, state):
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(dtype)
    module.load_state_dict({key: value.to(dtype) for key, value in state.items()})
    return module


def case(name, shared, attn=None, padding=None):
    results = {}
    for dtype in (torch.float32, torch.float64):
        module = module_of(dtype, shared["state"])
        query, key = (shared[one].clone().to(dtype).requires_grad_() for one in ("query", "key"))
        masks = [mask.to(dtype) if mask is not None and mask.is_floating_point() else mask for mask in (attn, padding)]
        y, _ = module(query, key, key, attn_mask=masks[0], key_padding_mask=masks[1], need_weights=False)
        y.backward(shared["dy"].to(dtype))
        results[dtype] = {"y": y, "dquery": query.grad, "dkey": key.grad, "dout": module.out_proj.weight.grad}
    single, double = results[torch.float32], results[torch.float64]
    stored = lambda mask: mask if mask is None else encode(mask.clamp(min=-1e38) if mask.is_floating_point() else mask.long())
    return {
        "name": name,
        "attn": stored(attn),
        "padding": stored(padding),
        "outputs": {key: expected(single[key], double[key]) for key in double},
    }


def cases(shared):
    pairs = torch.ones(L, S, dtype=torch.bool).triu(2)
    by_heads = torch.rand(N * HEADS, L, S) < 0.4
    by_heads[:, :, 0] = False
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[1, 3:] = True
    added = random(L, S)
    added[2, 1] = -math.inf
    yield case("bool by pairs", shared, pairs)
    yield case("bool by pairs and by keys", shared, pairs, padding)
    yield case("bool by heads and by keys", shared, by_heads, padding)
    yield case("float by pairs", shared, added)
    yield case("float by pairs, bool by keys", shared, added, padding)


if __name__ == "__main__":
    torch.manual_seed(33)
    state = {key: random(*value.shape, scale=0.3) for key, value in torch.nn.MultiheadAttention(WIDTH, HEADS).state_dict().items()}
    shared = {"state": state, "query": random(N, L, WIDTH), "key": random(N, S, WIDTH), "dy": random(N, L, WIDTH)}
    write(
        "attention-masks.json",
        {
            "state": {key: encode(value) for key, value in state.items()},
            **{key: encode(shared[key]) for key in ("query", "key", "dy")},
            "cases": list(cases(shared)),
        },
    )
