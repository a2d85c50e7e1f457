"""Writes input-gradients.json: gradients by inputs and computed tensors, as PyTorch's autograd gives them.

    /usr/bin/python3 tests/golden/input_gradients.py      (torch 1.13, Debian's python3-torch; the output is committed)

A small CNN on formula.py's numbers: the saliency map of a class's score, a gradient kept of a hidden layer, and an adversarial
batch (Goodfellow et al., arXiv 1412.6572) with the parameters' gradients of a second backward on it.
"""

import json

import torch
import torch.nn.functional as F
from torch import nn

import formula
from generate import FOLDER, expected

BATCH, SIDE, CLASSES = 3, 8, 5
EPSILON = 0.05
LABELS = [4, 0, 2]
WEIGHTS = [("0.weight", [4, 1, 3, 3], 0.6), ("0.bias", [4], 0.3), ("3.weight", [5, 64], 0.2), ("3.bias", [5], 0.2)]


def cnn(dtype):
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Linear(64, CLASSES))
    model.load_state_dict(
        {key: formula.uniform(11_000 + i, shape, bound) for i, (key, shape, bound) in enumerate(WEIGHTS)}
    )
    return model.to(dtype)


def forward(model, x):
    hidden = model[1](model[0](x))
    return hidden, model[3](model[2](hidden).flatten(1))


def compute(dtype):
    images = formula.uniform(10_999, [BATCH, 1, SIDE, SIDE], 1.0).to(dtype)
    labels = torch.tensor(LABELS)
    out = {}

    model = cnn(dtype)
    x = images.clone().requires_grad_()
    hidden, logits = forward(model, x)
    hidden.retain_grad()
    logits.gather(1, labels.unsqueeze(1)).sum().backward()
    out["saliency"], out["hidden"] = x.grad.abs(), hidden.grad

    model.zero_grad()
    x = images.clone().requires_grad_()
    loss = F.cross_entropy(forward(model, x)[1], labels)
    loss.backward()
    adversarial = (x + EPSILON * x.grad.sign()).detach()
    out["loss"], out["adversarial"] = loss, adversarial
    model.zero_grad()
    second = F.cross_entropy(forward(model, adversarial)[1], labels)
    second.backward()
    out["second"] = second
    for key, parameter in model.named_parameters():
        out[f"d:{key}"] = parameter.grad

    # A gradient is a constant for what comes after it, and several backwards add up.
    x = images.clone().requires_grad_()
    (x**3).sum().backward()
    (x.grad * x).sum().backward()
    out["added"] = x.grad
    return out


if __name__ == "__main__":
    single, double = compute(torch.float32), compute(torch.float64)
    content = {
        "made": {"by": "tests/golden/input_gradients.py", "torch": torch.__version__.split("a")[0]},
        "epsilon": EPSILON,
        "labels": LABELS,
        "images": {"shape": [BATCH, 1, SIDE, SIDE], "seed": 10_999},
        "weights": [
            {"key": key, "shape": shape, "seed": 11_000 + i, "bound": bound}
            for i, (key, shape, bound) in enumerate(WEIGHTS)
        ],
        "outputs": {key: expected(single[key], double[key]) for key in double},
    }
    path = FOLDER / "input-gradients.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(path.stat().st_size, "bytes")
