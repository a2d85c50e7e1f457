"""Writes attention-maps.json: which positions each head of a GPT takes from, for a few tokens.

    /usr/bin/python3 tests/golden/attention_maps.py

The model and the formulas of its weights are those of attention.py; queries and keys have larger weights, so that the maps are not
nearly even. PyTorch computes the probabilities out of its ops: softmax over what a causal mask leaves of the scaled scores.
"""

import math

import torch

import formula
from attention import CONFIG, Gpt, tokens_of, weights_of
from generate import MADE, expected, write

TOKENS = 12
ATTENTION_BOUND = 0.4


def maps_of(model, tokens):
    """[layers, heads, T, T], rows are queries."""
    t = model.transformer
    length, heads = tokens.shape[1], CONFIG["heads"]
    x = t["wte"](tokens) + t["wpe"](torch.arange(length))
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    maps = []
    for block in t["h"]:
        q, k, _ = (
            part.view(length, heads, -1).transpose(0, 1) for part in block.attn.c_attn(block.ln_1(x))[0].split(CONFIG["width"], -1)
        )
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        maps.append(scores.masked_fill(hidden, -math.inf).softmax(-1))
        x = block(x)
    return torch.stack(maps)


if __name__ == "__main__":
    weights = [{**w, "bound": ATTENTION_BOUND} if w["key"].endswith("c_attn.weight") else w for w in weights_of(Gpt())]
    tokens = tokens_of(0, TOKENS)[None]
    results = {}
    for dtype in (torch.float32, torch.float64):
        model = Gpt().to(dtype)
        state = {w["key"]: (formula.uniform(w["seed"], w["shape"], w["bound"]) + w["base"]).to(dtype) for w in weights}
        model.load_state_dict({**state, "lm_head.weight": state["transformer.wte.weight"]})
        results[dtype] = maps_of(model, tokens).detach()
    print(f"largest in the last rows: {results[torch.float64][:, :, -1].amax(-1).tolist()}")
    write(
        "attention-maps.json",
        {
            "made": {**MADE, "by": "tests/golden/attention_maps.py"},
            "config": CONFIG,
            "weights": weights,
            "tokens": tokens[0].tolist(),
            "maps": expected(results[torch.float32], results[torch.float64]),
        },
    )
