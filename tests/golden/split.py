"""Writes split.json: a classifier with batch normalization, trained by PyTorch as pipelines and DataParallel train it.

A pipeline takes the mean of its micro-batches' losses, and batch normalization sees one micro-batch at a time. DataParallel needs CUDA, so
its steps are written out: chunks of the batch, the same parameters for each, copies of the buffers for all but the first, outputs joined.
"""

import json
import pathlib

import torch
from torch.nn.utils.stateless import functional_call

from formula import uniform, words

FEATURES, HIDDEN, CLASSES, STEPS = 6, 8, 3, 20


def make_model(dtype):
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN),
        torch.nn.BatchNorm1d(HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.BatchNorm1d(HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, CLASSES),
    )
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters(), 1):
            parameter.copy_(uniform(seed, tuple(parameter.shape), 0.5))
    return model.to(dtype)


def batch_of(step, size, dtype):
    x = uniform(100 + step, (size, FEATURES), 1).to(dtype)
    y = words(500 + step, torch.arange(size)) % CLASSES
    return x, y


def pipelined(model, x, y, parts):
    losses = []
    for own_x, own_y in zip(x.chunk(parts), y.chunk(parts)):
        loss = torch.nn.functional.cross_entropy(model(own_x), own_y) / parts
        loss.backward()
        losses.append(loss.item())
    return sum(losses)


def data_parallel(model, x, y, parts):
    outputs = []
    for device, own_x in enumerate(x.chunk(parts)):
        if device == 0:
            outputs.append(model(own_x))
            continue
        copies = {name: buffer.clone() for name, buffer in model.named_buffers()}
        outputs.append(functional_call(model, {**dict(model.named_parameters()), **copies}, own_x))
    loss = torch.nn.functional.cross_entropy(torch.cat(outputs), y)
    loss.backward()
    return loss.item()


def train(run, parts, size, dtype):
    model = make_model(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(run(model, *batch_of(step, size, dtype), parts))
        optimizer.step()
    return losses, {key: value.double().flatten().tolist() for key, value in model.state_dict().items()}


def main():
    cases = []
    for kind, run, parts, size in [
        ("pipeline", pipelined, 3, 12),
        ("dataParallel", data_parallel, 2, 11),
        ("dataParallel", data_parallel, 3, 11),
    ]:
        losses, state = train(run, parts, size, torch.float64)
        near_losses, near_state = train(run, parts, size, torch.float32)
        cases.append(
            {
                "name": f"{kind} of {parts}",
                "kind": kind,
                "parts": parts,
                "batchSize": size,
                "losses": losses,
                "lossDistances": [abs(a - b) for a, b in zip(losses, near_losses)],
                "state": {
                    key: {
                        "data": values,
                        "distance": max(abs(a - b) for a, b in zip(values, near_state[key])),
                    }
                    for key, values in state.items()
                },
            }
        )
    sizes = {"features": FEATURES, "hidden": HIDDEN, "classes": CLASSES, "steps": STEPS}
    path = pathlib.Path(__file__).with_name("split.json")
    path.write_text(json.dumps({"torch": torch.__version__, **sizes, "cases": cases}) + "\n")


main()
