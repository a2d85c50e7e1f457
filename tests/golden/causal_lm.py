"""Writes causal-lm.json: small models of the structures that CausalLm has, out of plain operations.

    /usr/bin/python3 tests/golden/causal_lm.py          (torch 1.13, Debian's python3-torch; the output is committed)

Each run has one peculiarity: an output layer of its own, a tied one, scaled angles, biases, norms of queries and keys. All in float64 and in
float32 from the same float32 weights: hidden states after each block, queries and keys after rotation, the loss, its gradients, the losses of
50 steps of AdamW, and a greedy continuation.
"""

import math

import torch
import torch.nn.functional as F

import formula
from generate import expected, write

BATCH, LENGTH, STEPS, LR = 2, 6, 50, 3e-3
TOKEN_SEED = 401
PROMPT, NEW_TOKENS = 3, 8
IGNORED = -100

BASE = {
    "architecture": "LlamaForCausalLM",
    "vocabSize": 29,
    "hiddenSize": 24,
    "intermediateSize": 20,
    "numHiddenLayers": 2,
    "numAttentionHeads": 6,
    "numKeyValueHeads": 2,
    "headDim": 4,
    "maxPositionEmbeddings": 16,
    "rmsNormEps": 1e-5,
    "ropeTheta": 10000.0,
    "tieWordEmbeddings": False,
}
# Waves of each kind: longer than the original positions, shorter than half of them, and between.
SCALING = {"factor": 4.0, "lowFreqFactor": 1.0, "highFreqFactor": 4.0, "originalMaxPositionEmbeddings": 16}
RUNS = {
    "llama": {},
    "llama, tied": {"tieWordEmbeddings": True},
    "llama, scaled angles": {"headDim": 8, "ropeTheta": 20.0, "ropeScaling": SCALING},
    "qwen2, biases": {"architecture": "Qwen2ForCausalLM", "rmsNormEps": 1e-6, "ropeTheta": 1e6},
    "qwen3, norms of wider heads": {"architecture": "Qwen3ForCausalLM", "headDim": 8, "tieWordEmbeddings": True},
}


def shapes_of(c):
    """The state dict's keys and shapes in transformers."""
    width, hidden, dim = c["hiddenSize"], c["intermediateSize"], c["headDim"]
    q, kv = c["numAttentionHeads"] * dim, c["numKeyValueHeads"] * dim
    shapes = {"model.embed_tokens.weight": (c["vocabSize"], width)}
    for n in range(c["numHiddenLayers"]):
        layer = {}
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            layer[f"self_attn.{name}_proj.weight"] = (rows, width)
            if c["architecture"] == "Qwen2ForCausalLM":
                layer[f"self_attn.{name}_proj.bias"] = (rows,)
        layer["self_attn.o_proj.weight"] = (width, q)
        if c["architecture"] == "Qwen3ForCausalLM":
            layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = (dim,)
        layer["mlp.gate_proj.weight"] = layer["mlp.up_proj.weight"] = (hidden, width)
        layer["mlp.down_proj.weight"] = (width, hidden)
        layer["input_layernorm.weight"] = layer["post_attention_layernorm.weight"] = (width,)
        shapes.update({f"model.layers.{n}.{key}": shape for key, shape in layer.items()})
    shapes["model.norm.weight"] = (width,)
    if not c["tieWordEmbeddings"]:
        shapes["lm_head.weight"] = (c["vocabSize"], width)
    return shapes


def weights_of(config):
    """uniform(seed, bound) + base for each key."""
    entries = []
    for index, (key, shape) in enumerate(shapes_of(config).items()):
        is_norm = "norm" in key
        gain = 4 if "o_proj" in key or "down_proj" in key else 1.5
        bound = 0.4 if is_norm or key.endswith("bias") else gain / math.sqrt(shape[-1])
        entries.append({"key": key, "shape": list(shape), "seed": 4000 + index, "bound": bound, "base": int(is_norm)})
    return entries


def inverse_frequencies(c):
    """source: transformers' modeling_rope_utils, _compute_llama3_parameters."""
    found = []
    for i in range(c["headDim"] // 2):
        frequency = c["ropeTheta"] ** (-2 * i / c["headDim"])
        scaling = c.get("ropeScaling")
        if scaling:
            wave, original = 2 * math.pi / frequency, scaling["originalMaxPositionEmbeddings"]
            low, high = scaling["lowFreqFactor"], scaling["highFreqFactor"]
            if wave > original / low:
                frequency /= scaling["factor"]
            elif wave >= original / high:
                smooth = (original / wave - low) / (high - low)
                frequency = (1 - smooth) * frequency / scaling["factor"] + smooth * frequency
        found.append(frequency)
    return torch.tensor(found, dtype=torch.float64)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotated(x, frequencies):
    """shape: [N, H, T, D], halves turned; angles in float64"""
    angle = torch.arange(x.shape[-2]).double()[:, None] * frequencies
    cos, sin = (part.float().to(x.dtype) for part in (angle.cos(), angle.sin()))
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(c, w, tokens, seen=None):
    """Logits [N, T, V]. `seen`: takes hidden states, and the first block's queries and keys."""
    n, t = tokens.shape
    eps, frequencies = c["rmsNormEps"], inverse_frequencies(c)
    x = w["model.embed_tokens.weight"][tokens]
    causal = torch.ones(t, t, dtype=torch.bool).triu(1)
    for layer in range(c["numHiddenLayers"]):
        own = {key.split(".", 3)[3]: value for key, value in w.items() if key.startswith(f"model.layers.{layer}.")}
        normed = rms_norm(x, own["input_layernorm.weight"], eps)

        def heads(name):
            projected = F.linear(normed, own[f"self_attn.{name}_proj.weight"], own.get(f"self_attn.{name}_proj.bias"))
            split = projected.view(n, t, -1, c["headDim"])
            norm = own.get(f"self_attn.{name}_norm.weight")
            return (split if norm is None else rms_norm(split, norm, eps)).transpose(1, 2)

        q, k, v = rotated(heads("q"), frequencies), rotated(heads("k"), frequencies), heads("v")
        if seen is not None and layer == 0:
            ends = [0, 1, t - 1]
            seen.update({name: part.transpose(1, 2).reshape(n, t, -1)[:, ends] for name, part in (("q", q), ("k", k))})
        group = c["numAttentionHeads"] // c["numKeyValueHeads"]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(c["headDim"])).masked_fill(causal, -math.inf)
        attended = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, -1)
        x = x + F.linear(attended, own["self_attn.o_proj.weight"])
        normed = rms_norm(x, own["post_attention_layernorm.weight"], eps)
        gated = F.silu(F.linear(normed, own["mlp.gate_proj.weight"])) * F.linear(normed, own["mlp.up_proj.weight"])
        x = x + F.linear(gated, own["mlp.down_proj.weight"])
        if seen is not None:
            seen[f"block{layer}"] = x
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return F.linear(rms_norm(x, w["model.norm.weight"], eps), head)


def batch_of(step, vocabulary):
    """Tokens of a noisy arithmetic sequence, and labels without the first tokens of the first sample."""
    index = torch.arange(step * BATCH * LENGTH, (step + 1) * BATCH * LENGTH)
    tokens = ((index * 7 + (formula.words(TOKEN_SEED, index) >> 30)) % vocabulary).view(BATCH, LENGTH)
    labels = tokens.clone()
    labels[0, :3] = IGNORED
    return tokens, labels


def loss_of(c, w, step, seen=None):
    tokens, labels = batch_of(step, c["vocabSize"])
    logits = forward(c, w, tokens, seen)
    return F.cross_entropy(logits[:, :-1].reshape(-1, c["vocabSize"]), labels[:, 1:].reshape(-1), ignore_index=IGNORED)


def greedy(c, w):
    """Continues the first tokens of step 0, and says how far the best logit was above the second at least."""
    tokens = batch_of(0, c["vocabSize"])[0][:1, :PROMPT]
    margin = math.inf
    for _ in range(NEW_TOKENS):
        top = forward(c, w, tokens)[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        tokens = torch.cat([tokens, top.indices[:1][None]], 1)
    return tokens[0, PROMPT:].tolist(), margin


def run(config, weights):
    results = {}
    for dtype in (torch.float32, torch.float64):
        w = {
            e["key"]: (formula.uniform(e["seed"], e["shape"], e["bound"]) + e["base"]).to(dtype).requires_grad_()
            for e in weights
        }
        with torch.no_grad():
            continued, margin = greedy(config, w)
        seen = {}
        loss = loss_of(config, w, 0, seen)
        loss.backward()
        seen["loss"] = loss
        gradients = [w[e["key"]].grad.clone() for e in weights]
        optimizer = torch.optim.AdamW(w.values(), lr=LR)
        losses = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(config, w, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        results[dtype] = (seen, gradients, torch.stack(losses), continued, margin)
    single, double = results[torch.float32], results[torch.float64]
    # Of each gradient its product with numbers of the formula, by the gradient's own size: a few bytes that no error leaves as they are.
    sizes = [g.norm().item() for g in double[1]]
    products = [
        torch.stack([(g * formula.uniform(e["seed"] + 500, e["shape"], 1).to(g.dtype)).sum() / s for g, e, s in zip(gs, weights, sizes)])
        for gs in (single[1], double[1])
    ]
    outputs = {name: expected(single[0][name], double[0][name]) for name in double[0]}
    assert single[3] == double[3] and double[4] > 1e-3, "another greedy continuation, or one by chance"
    return {
        "config": config,
        "weights": weights,
        "outputs": {**outputs, "gradients": expected(*products), "losses": expected(single[2], double[2])},
        "gradientSizes": sizes,
        "greedy": double[3],
    }


if __name__ == "__main__":
    runs = []
    for name, more in RUNS.items():
        config = {**BASE, **more}
        runs.append({"name": name, **run(config, weights_of(config))})
        losses = runs[-1]["outputs"]["losses"]
        print(f"{name}: distance of losses {losses['distance']:.2e}, greedy {runs[-1]['greedy']}")
    sizes = {"batch": BATCH, "length": LENGTH, "steps": STEPS, "lr": LR, "tokenSeed": TOKEN_SEED, "prompt": PROMPT}
    write("causal-lm.json", {**sizes, "runs": runs})
