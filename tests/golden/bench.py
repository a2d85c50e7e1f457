"""Writes bench.json: the first losses of the training steps that `npm run bench` times, in float64.

    /usr/bin/python3 tests/golden/bench.py              (torch 1.13, Debian's python3-torch; the output is committed)

Weights and batches come from the formulas of formula.py, so that the benchmark's page makes the same ones. The optimizer is
Adam, because TensorFlow.js has no AdamW.
"""

import json

import torch
import torch.nn.functional as F

import attention
import formula
from generate import DATA_SEEDS, FOLDER, MADE, as_input, build, formula_weights

ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
STEPS = 5
IMAGES, SEQUENCES = 64, 8


def image_batch(model, step):
    images, labels = formula.samples(DATA_SEEDS, step * IMAGES, IMAGES)
    return as_input(model, images.double()), labels


def text_batch(step):
    length = attention.CONFIG["blockSize"]
    rows = [attention.tokens_of((step * SEQUENCES + row) * (length + 1), length + 1) for row in range(SEQUENCES)]
    tokens = torch.stack(rows)
    return tokens[:, :-1], tokens[:, 1:].reshape(-1)


def losses_of(network, batch_of):
    stepper = torch.optim.Adam(
        network.parameters(), lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"]
    )
    losses = []
    for step in range(STEPS):
        inputs, targets = batch_of(step)
        stepper.zero_grad()
        logits = network(inputs)
        loss = F.cross_entropy(logits.reshape(len(targets), -1), targets)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses


def run(network, weights, batch_of):
    network = network.double()
    for w in weights:
        values = formula.uniform(w["seed"], w["shape"], w["bound"]) + w.setdefault("base", 0)
        network.get_parameter(w["key"]).data.copy_(values)
    return {"weights": weights, "losses": losses_of(network, batch_of)}


if __name__ == "__main__":
    steps = {
        model: run(build(model), formula_weights(build(model), 4000), lambda step, model=model: image_batch(model, step))
        for model in ("mlp", "cnn")
    }
    steps["gpt"] = run(attention.Gpt(), attention.weights_of(attention.Gpt()), text_batch)
    content = {
        "made": {**MADE, "by": "tests/golden/bench.py"},
        "adam": ADAM,
        "images": {"batchSize": IMAGES, "seeds": DATA_SEEDS},
        "text": {"batchSize": SEQUENCES, "tokenSeed": attention.TOKEN_SEED, "config": attention.CONFIG},
        "steps": steps,
    }
    path = FOLDER / "bench.json"
    path.write_text(json.dumps(content) + "\n")
    print(f"bench.json: {path.stat().st_size} bytes")
    for name, step in steps.items():
        print(name, step["losses"])
