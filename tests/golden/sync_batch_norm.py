"""Writes sync-batch-norm.json: training steps with batch normalization over one big batch, which ranks with shares of it must equal.

    /usr/bin/python3 tests/golden/sync_batch_norm.py      (torch 1.13, Debian's python3-torch; the output is committed)

PyTorch's SyncBatchNorm is defined by what BatchNorm makes of the concatenated batch.
"""

import torch

import formula
from generate import encode, expected, write_cases

ROWS = 7
STEPS = 3
SHAPES = {"features": [ROWS, 3], "planes": [ROWS, 3, 5]}


def build(kind, momentum):
    norm = torch.nn.BatchNorm1d(3, momentum=momentum)
    with torch.no_grad():
        norm.weight.copy_(formula.uniform(20_001, [3], 1.0) + 1)
        norm.bias.copy_(formula.uniform(20_002, [3], 0.5))
    return norm


def inputs(kind):
    shape = SHAPES[kind]
    # Rows far apart, so that a rank's own statistics are not those of all.
    offset = torch.arange(ROWS).reshape([ROWS] + [1] * (len(shape) - 1)) * 0.5
    xs = [formula.uniform(20_100 + step, shape, 1.0) + offset for step in range(STEPS)]
    factor = formula.uniform(20_200, shape, 1.0)
    return xs, factor


def case(kind, momentum):
    xs, factor = inputs(kind)

    def run(dtype):
        norm = build(kind, momentum).to(dtype)
        # What the gradient by x passes through: a factor on each row before the layer.
        scale = torch.nn.Parameter(torch.ones(SHAPES[kind][1:], dtype=dtype))
        optimizer = torch.optim.SGD([scale, *norm.parameters()], lr=0.25)
        losses, gradients = [], []
        for x in xs:
            loss = (norm(x.to(dtype) * scale) * factor.to(dtype)).tanh().reshape(ROWS, -1).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            gradients.append(scale.grad.clone())
            optimizer.step()
            losses.append(loss.detach())
        return [torch.stack(losses), torch.stack(gradients), scale, *norm.parameters(), norm.running_mean, norm.running_var]

    names = ["losses", "scaleGradients", "scale", "weight", "bias", "runningMean", "runningVar"]
    results = [expected(single, double) for single, double in zip(run(torch.float32), run(torch.float64))]
    return {
        "name": f"{kind}, momentum {momentum}",
        "momentum": momentum,
        "xs": [encode(x) for x in xs],
        "factor": encode(factor),
        "weight": encode(formula.uniform(20_001, [3], 1.0) + 1),
        "bias": encode(formula.uniform(20_002, [3], 0.5)),
        "outputs": dict(zip(names, results)),
    }


if __name__ == "__main__":
    cases = [case("features", 0.1), case("planes", 0.3), case("features", None)]
    write_cases("sync-batch-norm.json", "sync_batch_norm.py", cases)
