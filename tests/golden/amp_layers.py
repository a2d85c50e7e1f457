"""Writes amp-layers.json: forward and backward of batch normalization, pooling and group normalization between convolutions in float16.

As torch.autocast("cuda") has them: batch normalization and pooling read and give float16, with float32 statistics, parameters and
sums; group normalization reads float16 as float32 and gives float32. PyTorch does each rounding to float16 and computes in float32
(and in float64, for the distance), since on a CPU it has none of these layers in float16. Sizes are such that no number lies so near
the middle of two halves that float32 and float64 round it differently: each missing rounding shows.
"""

import json
import pathlib

import torch
from formula import uniform
from halves import operand, rounded, stored

SHAPES = {
    "x": [4, 3, 5, 6],
    "w1": [6, 3, 3, 3],
    "g1": [6],
    "b1": [6],
    "w2": [6, 6, 3, 3],
    "g2": [6],
    "b2": [6],
    "gg": [6],
    "gb": [6],
    "w3": [5, 6, 1, 1],
    "g3": [5],
    "b3": [5],
    "w4": [4, 5],
    "b4": [4],
    "y": [4, 4],
}
SEED, SCALE, MOMENTUM = 500, 1024, 0.1
F = torch.nn.functional


def run(dtype):
    given = {}
    for n, (name, shape) in enumerate(SHAPES.items()):
        values = uniform(SEED + n, shape, 1 if len(shape) == 1 or name in "xy" else 0.5).to(dtype)
        # Scales of normalizations are near 1.
        given[name] = 1 + values / 2 if name[0] == "g" and name != "gb" else values
    wanted = [name for name in given if name != "y"]
    for name in wanted:
        given[name].requires_grad_()
    running = {name: torch.zeros(6, dtype=dtype) if "mean" in name else torch.ones(6, dtype=dtype)
               for name in ["mean1", "variance1", "mean2", "variance2"]}
    v = given
    norm = lambda h, n: stored(
        F.batch_norm(h, running[f"mean{n}"], running[f"variance{n}"], v[f"g{n}"], v[f"b{n}"], True, MOMENTUM)
    )
    h = stored(F.conv2d(operand(v["x"]), operand(v["w1"]), padding=1))
    h = stored(torch.relu(norm(h, 1)))
    pooled = stored(F.max_pool2d(h, 3, 2, 1))
    # Its gradient is float16 before that of the shortcut is added.
    h = stored(F.conv2d(stored(pooled), operand(v["w2"]), padding=1))
    h = stored(torch.relu(stored(norm(h, 2) + pooled)))
    h = stored(F.avg_pool2d(h, 2, 1))
    h = F.group_norm(h, 3, v["gg"], v["gb"])
    h = stored(F.conv2d(operand(h), operand(v["w3"])))
    fixed = torch.full([5], 0.125, dtype=dtype), torch.full([5], 0.75, dtype=dtype)
    h = stored(F.batch_norm(h, *fixed, v["g3"], v["b3"], False))
    h = stored(F.adaptive_avg_pool2d(h, 1)).flatten(1)
    h = stored(h @ operand(v["w4"]).T + v["b4"])
    loss = F.mse_loss(h, v["y"])
    gradients = torch.autograd.grad(loss * SCALE, [given[name] for name in wanted])
    results = {f"d{name}": gradient / SCALE for name, gradient in zip(wanted, gradients)}
    moved = {f"running{n}": torch.cat([running[f"mean{n}"], running[f"variance{n}"]]) for n in (1, 2)}
    return {"loss": loss.detach().reshape(1), **moved, **results}


def main():
    torch.set_num_threads(1)
    exact, single = run(torch.float64), run(torch.float32)
    result = dict(
        shapes=SHAPES,
        seed=SEED,
        scale=SCALE,
        results={
            name: dict(values=rounded(value), distance=float((value - single[name].double()).abs().max()))
            for name, value in exact.items()
        },
    )
    path = pathlib.Path(__file__).with_name("amp-layers.json")
    path.write_text(json.dumps(result) + "\n")


main()
