"""Writes conv.json: convolution and max pooling as PyTorch computes them, forward and gradients.

Run: /usr/bin/python3 tests/golden/conv.py      (torch 1.13, Debian's python3-torch; the output is committed)

Values are PyTorch's in float64 from float32 inputs; `distance` is PyTorch's own largest |float32 - float64| for each result,
and `scale` its largest magnitude. In pooling, null stands for NaN and "-inf" for minus infinity.
"""
import json
import math
import os

import torch
import torch.nn.functional as F

torch.manual_seed(20)
torch.set_num_threads(1)


def short(tensor):
    def one(v):
        if math.isnan(v):
            return None
        if math.isinf(v):
            return "inf" if v > 0 else "-inf"
        return float(f"{v:.9g}")

    return [one(v) for v in tensor.detach().double().flatten().tolist()]


def draw(*shape):
    # Four decimals keep the file small; the values are then what float32 makes of them.
    return (torch.randn(*shape, dtype=torch.float64) * 1e4).round().div(1e4).float()


def conv_case(name, x_shape, w_shape, stride, padding):
    x, w, b = draw(*x_shape), draw(*w_shape), draw(w_shape[0])
    y_shape = F.conv2d(x, w, b, stride, padding).shape
    dy = draw(*y_shape)

    def run(dtype):
        leaves = [t.to(dtype).requires_grad_() for t in (x, w, b)]
        y = F.conv2d(*leaves, stride=stride, padding=padding)
        y.backward(dy.to(dtype))
        return {"y": y, "dx": leaves[0].grad, "dw": leaves[1].grad, "db": leaves[2].grad}

    exact, single = run(torch.float64), run(torch.float32)
    return {
        "name": name,
        "x": {"shape": list(x_shape), "values": short(x)},
        "w": {"shape": list(w_shape), "values": short(w)},
        "b": {"shape": [w_shape[0]], "values": short(b)},
        "dy": {"shape": list(y_shape), "values": short(dy)},
        "stride": stride,
        "padding": padding,
        "expected": {
            k: {
                "values": short(v),
                "distance": float((v - single[k].double()).abs().max()),
                "scale": float(v.abs().max()),
            }
            for k, v in exact.items()
        },
    }


def pool_case(name, x, kernel, stride, padding):
    x = x.detach().clone().requires_grad_()
    y, index = F.max_pool2d(x, kernel, stride, padding, return_indices=True)
    dy = draw(*y.shape)
    y.backward(dy)
    return {
        "name": name,
        "x": {"shape": list(x.shape), "values": short(x)},
        "dy": {"shape": list(y.shape), "values": short(dy)},
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "y": short(y),
        "index": index.flatten().tolist(),
        "dx": short(x.grad),
    }


def ties(*shape):
    return torch.randint(-2, 2, shape).float()


special = draw(1, 2, 6, 6)
special[0, 0, 1, 1] = math.nan
special[0, 0, 1, 2] = 5.0
special[0, 0, 3, 3] = math.nan
special[0, 0, 3, 4] = math.nan
special[0, 1] = -math.inf
special[0, 1, 5, 5] = 1.0
zeros = torch.zeros(1, 1, 4, 6)
zeros[0, 0, ::2] = -0.0

out = {
    "torch": torch.__version__,
    "conv": [
        conv_case("3x3 same, 1->4, 9x9", (2, 1, 9, 9), (4, 1, 3, 3), [1, 1], [1, 1]),
        conv_case("3x3 same, 5->7, 9x7", (1, 5, 9, 7), (7, 5, 3, 3), [1, 1], [1, 1]),
        conv_case("stride 2, padding 1, 3->4, 8x9", (2, 3, 8, 9), (4, 3, 3, 3), [2, 2], [1, 1]),
        conv_case("3x2, stride 2x3, padding 2x1, 4->5, 9x11", (1, 4, 9, 11), (5, 4, 3, 2), [2, 3], [2, 1]),
        conv_case("5x5, no padding, 2->3, 8x7", (2, 2, 8, 7), (3, 2, 5, 5), [1, 1], [0, 0]),
        conv_case("1x1, stride 2, 6->4, 5x5", (3, 6, 5, 5), (4, 6, 1, 1), [2, 2], [0, 0]),
        conv_case("padding above the kernel, 1->2, 3x4", (1, 1, 3, 4), (2, 1, 2, 2), [1, 1], [2, 3]),
    ],
    "pool": [
        pool_case("2x2, 10x8", draw(2, 3, 10, 8), [2, 2], [2, 2], [0, 0]),
        pool_case("2x2 with ties, 7x9 (odd)", ties(2, 2, 7, 9), [2, 2], [2, 2], [0, 0]),
        pool_case("3x3, stride 2, padding 1, ties", ties(2, 2, 9, 8), [3, 3], [2, 2], [1, 1]),
        pool_case("3x2, stride 1, padding 1, overlapping", draw(1, 3, 6, 7), [3, 2], [1, 1], [1, 1]),
        pool_case("4x3, stride 3x2, padding 2x1", ties(1, 2, 11, 10), [4, 3], [3, 2], [2, 1]),
        pool_case("stride above the kernel", draw(1, 2, 8, 8), [2, 2], [3, 3], [0, 0]),
        pool_case("all equal", torch.zeros(1, 1, 6, 6), [3, 3], [1, 1], [1, 1]),
        pool_case("both zeros tie", zeros, [2, 2], [2, 2], [0, 0]),
        pool_case("NaN and -inf", special, [2, 2], [2, 2], [0, 0]),
        pool_case("NaN and -inf, overlapping and padded", special, [3, 3], [1, 1], [1, 1]),
    ],
}

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conv.json")
with open(path, "w") as file:
    json.dump(out, file, separators=(",", ":"))
    file.write("\n")
print(path, os.path.getsize(path), "bytes")
