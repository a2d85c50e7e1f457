"""Writes changed-rate.json: 20 steps of a small classifier whose learning rate changes twice, as PyTorch computes them.

Each step has all samples. Usage: /usr/bin/python3 tests/golden/changed_rate.py
"""

import torch
from formula import uniform
from generate import write

STEPS = 20
CHANGES = [{"step": 8, "key": "lr", "from": 0.02, "to": 0.1}, {"step": 15, "key": "lr", "from": 0.1, "to": 0.004}]
SAMPLES = 24
SEEDS = {"x": 301, "weights": [302, 303, 304, 305]}
SHAPES = [(8, 2), (8,), (2, 8), (2,)]


def losses(optimizer_of):
    x = uniform(SEEDS["x"], (SAMPLES, 2), 1).double()
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    with torch.no_grad():
        for parameter, seed, shape in zip(model.parameters(), SEEDS["weights"], SHAPES):
            parameter.copy_(uniform(seed, shape, 0.7))
    optimizer = optimizer_of(model.parameters())
    found = []
    for step in range(1, STEPS + 1):
        for change in CHANGES:
            if change["step"] == step:
                optimizer.param_groups[0]["lr"] = change["to"]
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


if __name__ == "__main__":
    lr = CHANGES[0]["from"]
    write(
        "changed-rate.json",
        {
            "steps": STEPS,
            "samples": SAMPLES,
            "seeds": SEEDS,
            "shapes": SHAPES,
            "bound": 0.7,
            "changes": CHANGES,
            "losses": {
                "adamw": losses(lambda own: torch.optim.AdamW(own, lr)),
                "sgd": losses(lambda own: torch.optim.SGD(own, lr, momentum=0.9)),
            },
        },
    )
