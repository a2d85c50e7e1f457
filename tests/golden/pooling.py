"""Writes pooling.json: max pooling with dilation, ceil mode and indices, and transposed convolutions with output padding up to the dilation.

    /usr/bin/python3 tests/golden/pooling.py
"""

import torch
import torch.nn.functional as F

from generate import distance, encode, random, write_cases


def expected(single, double):
    return {**encode(double), "distance": distance(single, double)}


def case(name, op, inputs, compute, options, indices=None):
    """Output and gradients of sum(y * dy) by all inputs; `indices` of max pooling beside them."""
    shape = compute(**inputs).shape
    dy = random(*shape)
    results = {}
    for dtype in (torch.float32, torch.float64):
        leaves = {key: value.clone().to(dtype).requires_grad_() for key, value in inputs.items()}
        y = compute(**leaves)
        y.backward(dy.to(dtype))
        results[dtype] = {"y": y, **{f"d{key}": leaf.grad for key, leaf in leaves.items()}}
    single, double = results[torch.float32], results[torch.float64]
    return {
        "name": name,
        "op": op,
        "options": options,
        "inputs": {key: encode(value) for key, value in {**inputs, "dy": dy}.items()},
        "outputs": {key: expected(single[key], double[key]) for key in double},
        "indices": None if indices is None else encode(indices),
    }


# Added to the seed of each case; seeds.py changes it.
seed = 0


def pooled(name, shape, kernel, ours, **options):
    torch.manual_seed(41 + seed)
    pool = F.max_pool1d if len(shape) == 3 else F.max_pool2d
    # Few values, so that there are ties.
    x = (random(*shape) * 2).round()
    _, indices = pool(x, kernel, return_indices=True, **options)
    op = "maxPool1d" if len(shape) == 3 else "maxPool2d"
    return case(name, op, {"x": x}, lambda x: pool(x, kernel, **options), {"kernel": kernel, **ours}, indices)


def transposed(name, x, w, ours, **options):
    torch.manual_seed(42 + seed)
    inputs = {"x": random(*x), "w": random(*w), "b": random(w[1])}
    return case(name, "convTranspose2d", inputs, lambda x, w, b: F.conv_transpose2d(x, w, b, **options), ours)


def cases():
    yield pooled("ceil mode", [2, 2, 8, 6], [3, 2], {"stride": [2, 3], "ceilMode": True}, stride=[2, 3], ceil_mode=True)
    yield pooled("ceil mode, padding, the last window left out", [1, 2, 6, 7], 2, {"stride": 3, "padding": 1, "ceilMode": True}, stride=3, padding=1, ceil_mode=True)
    yield pooled("dilation", [2, 2, 9, 8], [3, 2], {"stride": [2, 1], "dilation": [2, 3]}, stride=[2, 1], dilation=[2, 3])
    yield pooled("dilation, padding, ceil mode", [1, 2, 10, 9], 3, {"stride": 2, "padding": 1, "dilation": 2, "ceilMode": True}, stride=2, padding=1, dilation=2, ceil_mode=True)
    yield pooled("a row, all of it", [2, 3, 14], 3, {"stride": 2, "padding": 1, "dilation": 2, "ceilMode": True}, stride=2, padding=1, dilation=2, ceil_mode=True)
    yield pooled("a row, ceil mode", [2, 3, 8], 3, {"ceilMode": True}, ceil_mode=True)
    yield transposed("output padding up to the dilation", [2, 2, 3, 4], [2, 3, 3, 2], {"dilation": 3, "outputPadding": [2, 1]}, dilation=3, output_padding=[2, 1])
    yield transposed("output padding beyond the stride, padding", [1, 2, 3, 3], [2, 2, 3, 3], {"stride": 2, "dilation": 4, "padding": 2, "outputPadding": 3}, stride=2, dilation=4, padding=2, output_padding=3)


if __name__ == "__main__":
    write_cases("pooling.json", "pooling.py", list(cases()))
