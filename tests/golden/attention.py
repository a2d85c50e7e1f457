"""Writes attention.json: normalisation, attention, rotary embedding, MultiheadAttention and 50 steps of a small GPT.

    /usr/bin/python3 tests/golden/attention.py          (torch 1.13, Debian's python3-torch; the output is committed)

As in generate.py, everything is computed in float64 and in float32 from the same float32 inputs; the float64 result is kept
with the distance of PyTorch's own float32 result. What PyTorch 1.13 lacks (RMS normalisation, rotary embedding, a public
scaled dot product) is written out of its ops.
"""

import json
import math

import torch
import torch.nn.functional as F

import formula
from generate import FOLDER, MADE, encode, expected, op_case, random


# --- ops --------------------------------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def attend(q, k, v, mask=None, is_causal=False, scale=None):
    scores = (q @ k.transpose(-1, -2)) * (scale or 1 / math.sqrt(q.shape[-1]))
    if is_causal:
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None:
        scores = scores + mask.to(scores.dtype) if mask.is_floating_point() else scores.masked_fill(mask == 0, -math.inf)
    return torch.softmax(scores, -1) @ v


def rotate(x, base=10000.0, interleaved=False):
    """Halves (or neighbours) turned by position * base^(-2i/d), angles in float64."""
    t, d = x.shape[-2:]
    angle = torch.arange(t).double()[:, None] * base ** (-2 * torch.arange(d // 2).double() / d)
    cos, sin = angle.cos().float().to(x.dtype), angle.sin().float().to(x.dtype)
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def op_cases(seed=30):
    torch.manual_seed(seed)
    for shape, size in (((6, 5), 1), ((18, 24), 1), ((2, 3, 4, 5), 2)):
        end = list(shape[-size:])
        yield op_case(
            f"layer norm of {list(shape)} over {end}",
            "layerNorm",
            {"x": random(*shape) + 0.5, "weight": random(*end), "bias": random(*end)},
            lambda x, weight, bias, end=end: F.layer_norm(x, end, weight, bias),
            attrs={"shape": end},
        )
    yield op_case(
        "rms norm",
        "rmsNorm",
        {"x": random(9, 20), "weight": random(20)},
        lambda x, weight: rms_norm(x, weight, 1e-6),
        attrs={"shape": [20], "eps": 1e-6},
    )
    for shape, groups in (((3, 6, 5, 3), 3), ((2, 8), 2)):
        yield op_case(
            f"group norm of {list(shape)}, {groups} groups",
            "groupNorm",
            {"x": random(*shape) * 2 + 1, "weight": random(shape[1]), "bias": random(shape[1])},
            lambda x, weight, bias, groups=groups: F.group_norm(x, groups, weight, bias),
            attrs={"groups": groups},
        )
    three = lambda q, k: {"q": random(*q), "k": random(*k), "v": random(*k)}
    yield op_case(
        "attention, 2x2 heads, 5 queries, 7 keys", "attention", three((2, 2, 5, 8), (2, 2, 7, 8)), attend
    )
    yield op_case(
        "causal attention, 36 positions",
        "attention",
        three((1, 2, 36, 4), (1, 2, 36, 4)),
        lambda q, k, v: attend(q, k, v, is_causal=True),
        attrs={"isCausal": True},
    )
    keep = (torch.rand(6, 6) < 0.6).long()
    keep[:, 0] = 1
    yield op_case(
        "attention with a boolean mask",
        "attention",
        {**three((2, 1, 6, 4), (2, 1, 6, 4)), "mask": keep},
        lambda q, k, v, mask: attend(q, k, v, mask),
    )
    bias = random(2, 1, 1, 9)
    bias[1, 0, 0, 5:] = -math.inf
    yield op_case(
        "attention with an added mask and a scale, large scores",
        "attention",
        {"q": random(2, 3, 4, 6) * 4, "k": random(2, 3, 9, 6) * 4, "v": random(2, 3, 9, 6)},
        lambda q, k, v: attend(q, k, v, bias, scale=0.9),
        attrs={"scale": 0.9, "mask": [[-1e38 if math.isinf(b) else b for b in row] for row in bias.reshape(2, 9).tolist()]},
    )
    for interleaved in (False, True):
        yield op_case(
            f"rotary embedding{', interleaved' if interleaved else ''}",
            "rotary",
            {"x": random(2, 7, 6)},
            lambda x, interleaved=interleaved: rotate(x, interleaved=interleaved),
            attrs={"isInterleaved": interleaved},
        )


    grouped = {"q": random(2, 6, 5, 8), "k": random(2, 2, 7, 8), "v": random(2, 2, 7, 8)}
    shared = lambda q, k, v, *mask, **more: attend(
        q, *(x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v)), *mask, **more
    )
    yield op_case(
        "attention, 6 heads that share 2 of keys and values",
        "attention",
        grouped,
        lambda q, k, v: shared(q, k, v, is_causal=True),
        attrs={"enableGqa": True, "isCausal": True},
    )
    yield op_case(
        "attention, 6 heads that share 2, a learned mask",
        "attention",
        {**grouped, "mask": random(6, 5, 7)},
        shared,
        attrs={"enableGqa": True},
    )


# --- torch.nn.MultiheadAttention --------------------------------------------------------------------------------------


def multihead_case(name, batch_first, inputs, options, masks=None):
    """Output and the gradients of sum(y * dy) by the inputs and by every parameter."""
    torch.manual_seed(31)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=batch_first)
    state = {key: random(*value.shape, scale=0.3) for key, value in module.state_dict().items()}
    dy = random(*inputs["query"].shape)
    results = {}
    for dtype in (torch.float32, torch.float64):
        own = torch.nn.MultiheadAttention(12, 3, batch_first=batch_first).to(dtype)
        own.load_state_dict({key: value.to(dtype) for key, value in state.items()})
        leaves = {key: value.clone().to(dtype).requires_grad_() for key, value in inputs.items()}
        query = leaves["query"]
        key = leaves.get("key", query)
        y, _ = own(query, key, leaves.get("value", key), need_weights=False, **options)
        y.backward(dy.to(dtype))
        results[dtype] = {
            "y": y,
            **{f"d{name}": leaf.grad for name, leaf in leaves.items()},
            **{f"d{name}": parameter.grad for name, parameter in own.named_parameters()},
        }
    single, double = results[torch.float32], results[torch.float64]
    return {
        "name": name,
        "batchFirst": batch_first,
        "isCausal": "attn_mask" in options,
        "padding": encode(options["key_padding_mask"].long()) if "key_padding_mask" in options else None,
        "state": {key: encode(value) for key, value in state.items()},
        "inputs": {key: encode(value) for key, value in {**inputs, "dy": dy}.items()},
        "outputs": {key: expected(single[key], double[key]) for key in double},
    }


def multihead_cases():
    torch.manual_seed(32)
    causal = torch.ones(7, 7, dtype=torch.bool).triu(1)
    yield multihead_case("self-attention, causal", True, {"query": random(2, 7, 12)}, {"attn_mask": causal})
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    yield multihead_case(
        "keys of another sequence, padded, sequence first",
        False,
        {"query": random(4, 2, 12), "key": random(5, 2, 12)},
        {"key_padding_mask": padding},
    )


# --- GPT --------------------------------------------------------------------------------------------------------------

CONFIG = {"vocabSize": 65, "blockSize": 64, "layers": 2, "heads": 4, "width": 64}
BATCH, STEPS, LR = 4, 50, 1e-3
TOKEN_SEED = 301


class Conv1D(torch.nn.Module):
    """GPT-2's linear layer: the weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(c, -1))
        return self.c_proj(attend(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class Mlp(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        h = self.c_fc(x)
        # gelu_new: the tanh form, which torch 1.13 has too.
        return self.c_proj(F.gelu(h, approximate="tanh"))


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = torch.nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = CONFIG["width"]
        self.transformer = torch.nn.ModuleDict(
            {
                "wte": torch.nn.Embedding(CONFIG["vocabSize"], width),
                "wpe": torch.nn.Embedding(CONFIG["blockSize"], width),
                "h": torch.nn.ModuleList(Block(width, CONFIG["heads"]) for _ in range(CONFIG["layers"])),
                "ln_f": torch.nn.LayerNorm(width),
            }
        )
        self.lm_head = torch.nn.Linear(width, CONFIG["vocabSize"], bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


def weights_of(model):
    """Keys in the state dict's order: uniform(seed, bound) plus `base`."""
    entries = []
    for index, (key, value) in enumerate(model.state_dict().items()):
        if key == "lm_head.weight":
            continue
        is_norm = ".ln_" in key and key.endswith("weight")
        bound = 0.1 if is_norm else 0.02 if key.endswith("bias") else 0.08
        entries.append(
            {"key": key, "shape": list(value.shape), "seed": 3000 + index, "bound": bound, "base": 1 if is_norm else 0}
        )
    return entries


def tokens_of(first, count):
    """A noisy arithmetic sequence, so that there is something to learn."""
    index = torch.arange(first, first + count)
    return (index * 7 + (formula.words(TOKEN_SEED, index) >> 30)) % CONFIG["vocabSize"]


def gpt_run():
    t = CONFIG["blockSize"]
    weights = weights_of(Gpt())
    evaluation = tokens_of(1_000_000, t)[None]
    results = {}
    for dtype in (torch.float32, torch.float64):
        model = Gpt().to(dtype)
        state = {w["key"]: (formula.uniform(w["seed"], w["shape"], w["bound"]) + w["base"]).to(dtype) for w in weights}
        model.load_state_dict({**state, "lm_head.weight": state["transformer.wte.weight"]})
        stepper = torch.optim.AdamW(model.parameters(), lr=LR)
        losses = []
        for step in range(STEPS):
            batch = torch.stack([tokens_of((step * BATCH + row) * (t + 1), t + 1) for row in range(BATCH)])
            stepper.zero_grad()
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.reshape(BATCH * t, -1), batch[:, 1:].reshape(-1))
            loss.backward()
            stepper.step()
            losses.append(loss.item())
        results[dtype] = (losses, model(evaluation).detach()[0, -4:])
    single, double = results[torch.float32], results[torch.float64]
    distances = [abs(a - b) for a, b in zip(single[0], double[0])]
    print(f"gpt: loss {double[0][0]:.4f} to {double[0][-1]:.4f}, distance {max(distances):.2e}")
    return {
        "config": CONFIG,
        "batchSize": BATCH,
        "steps": STEPS,
        "lr": LR,
        "tokenSeed": TOKEN_SEED,
        "weights": weights,
        "losses": double[0],
        "distances": distances,
        # Of the last 4 positions of 64 tokens from 1,000,000 on.
        "finalLogits": expected(single[1], double[1]),
    }


if __name__ == "__main__":
    content = {
        "made": {**MADE, "by": "tests/golden/attention.py"},
        "ops": list(op_cases()),
        "multihead": list(multihead_cases()),
        "gpt": gpt_run(),
    }
    path = FOLDER / "attention.json"
    path.write_text(json.dumps(content) + "\n")
    print(f"attention.json: {path.stat().st_size} bytes")
