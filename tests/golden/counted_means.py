"""Writes counted-means.json: a classifier trained by PyTorch on what several ranks, or micro-steps, have together.

Each rank's loss is a mean over its own samples, or over the class numbers that it does not ignore. Weighed by hand, by how many counted on
that rank of all that counted, their sum is the mean over everything: what tests/unit/train/counted-means.spec.ts expects of ranks that
weigh without being asked. Where nothing is counted ranks have equal weights, as in torch's DistributedDataParallel.
"""

import json
import pathlib

import torch

from formula import uniform, words

ROWS, FEATURES, HIDDEN, CLASSES, STEPS = 8, 6, 5, 3, 4
IGNORED = -100

# By rank, what counts in each of its micro-steps; ranks take turns from step to step.
CASES = [
    {"name": "samples, 8 and 1", "kind": "samples", "counts": [[8], [1]]},
    {"name": "samples, 8 and 0", "kind": "samples", "counts": [[8], [0]]},
    {"name": "samples, 3 ranks", "kind": "samples", "counts": [[4], [0], [7]]},
    {"name": "class numbers, 4 and 1", "kind": "classes", "counts": [[4], [1]]},
    {"name": "class numbers, 4 ranks", "kind": "classes", "counts": [[8], [3], [0], [5]]},
    {"name": "samples in micro-steps", "kind": "samples", "counts": [[8, 1, 5], [3, 8, 0]]},
    {"name": "class numbers in micro-steps", "kind": "classes", "counts": [[2, 8], [1, 3], [7, 6]]},
    {"name": "micro-steps of one rank", "kind": "samples", "counts": [[8, 2, 3]]},
    {"name": "class numbers in micro-steps of one rank", "kind": "classes", "counts": [[1, 8, 3]]},
    {"name": "all, 2 ranks", "kind": "samples", "counts": [[8], [8]]},
    {"name": "all, 3 ranks", "kind": "classes", "counts": [[8], [8], [8]]},
    {"name": "nothing counted", "kind": "plain", "counts": [[8], [8], [8]]},
]


def parameters(dtype):
    shapes = [(HIDDEN, FEATURES), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,)]
    return [
        uniform(1 + i, shape, 0.5).to(dtype).requires_grad_() for i, shape in enumerate(shapes)
    ]


def mean_loss(params, case, step, rank, micro, dtype):
    """What counts for this rank, and its own mean over it."""
    ranks = len(case["counts"])
    count = case["counts"][(rank + step) % ranks][micro]
    seed = 1000 + 100 * step + 10 * rank + micro
    x = uniform(seed, (ROWS, FEATURES), 1).to(dtype)
    y = words(seed, torch.arange(ROWS)) % CLASSES
    w1, b1, w2, b2 = params
    out = torch.relu(x @ w1.T + b1) @ w2.T + b2
    if case["kind"] == "plain":
        return 1, (out**2).mean()
    row = torch.arange(ROWS)
    counts = row < count if case["kind"] == "samples" else (row * 3 + step) % ROWS < count
    y = torch.where(counts, y, torch.full_like(y, IGNORED))
    if count == 0:
        return 0, torch.zeros((), dtype=dtype)
    return count, torch.nn.functional.cross_entropy(out, y, ignore_index=IGNORED)


def train(case, dtype):
    params = parameters(dtype)
    optimizer = torch.optim.SGD(params, lr=0.3, momentum=0.5)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        micros = range(len(case["counts"][0]))
        parts = [
            [mean_loss(params, case, step, rank, micro, dtype) for rank in range(len(case["counts"]))]
            for micro in micros
        ]
        total = sum(count for part in parts for count, _ in part)
        for part in parts:
            for count, loss in part:
                if count:
                    (loss * count / total).backward(retain_graph=True)
        # What a run returns is the mean over the last micro-step.
        last = sum(count for count, _ in parts[-1])
        losses.append(float(sum(count * loss for count, loss in parts[-1]) / last) if last else None)
        optimizer.step()
    return losses, torch.cat([p.detach().flatten() for p in params]).double()


def main():
    cases = []
    for case in CASES:
        losses, exact = train(case, torch.float64)
        losses32, rounded = train(case, torch.float32)
        cases.append(
            {
                **case,
                "losses": losses,
                "parameters": exact.tolist(),
                "distance": max(
                    float((exact - rounded).abs().max()),
                    max(abs(a - b) for a, b in zip(losses, losses32) if a is not None),
                ),
            }
        )
    path = pathlib.Path(__file__).with_name("counted-means.json")
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
