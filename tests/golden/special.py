"""Writes special.json: what PyTorch makes of NaN, infinities, zeros of both signs, subnormal and huge numbers, with gradients.

    /usr/bin/python3 tests/golden/special.py          (torch 1.13, Debian's python3-torch; the output is committed)

A case is { name, call, options, inputs, outputs }, as in elementwise.py, but that `inputs` names entries of `tensors`, which many cases
share; `call` names an entry of the table in tests/support/special-values.ts.
Results are PyTorch's float32, since what overflows or is subnormal depends on it. Where those of its float64 differ, `doubles` has
them too: intermediate results may have either range. Gradients begin with 1, 0, NaN and infinity.
"""

import json
import math

import torch
import torch.nn.functional as F

from generate import FOLDER, MADE, encode

NAN, INF = math.nan, math.inf
TINY = 2.0**-126  # the smallest normal number
VALUES = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, TINY, -TINY, 1.0, -1.0, 0.5, 2.5, -3.0, 1e38, -1e38])
PAIRED = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-40, TINY, 1.0, -1.0, 2.5, -3.0, 1e38])
STARTS = torch.tensor([1.0, 0.0, NAN, INF])

# By element: each value with each start of a gradient.
ALONE = VALUES.repeat_interleave(len(STARTS))
ALONE_DY = STARTS.repeat(len(VALUES))
# Each value with each other, with a start of 1 and of 0.
LEFT = PAIRED.repeat_interleave(len(PAIRED)).repeat(2)
RIGHT = PAIRED.repeat(len(PAIRED)).repeat(2)
PAIR_DY = torch.tensor([1.0, 0.0]).repeat_interleave(len(PAIRED) ** 2)

ROWS = torch.tensor(
    [
        [1.0, NAN, -1.0, 2.0],
        [NAN, 3.0, NAN, INF],
        [INF, 1.0, -INF, 2.0],
        [INF, 1.0, INF, -2.0],
        [-INF, -INF, -INF, -INF],
        [INF, INF, INF, INF],
        [NAN, NAN, NAN, NAN],
        [0.0, -0.0, -0.0, 0.0],
        [-1.0, -INF, -3.0, -INF],
    ]
)

# Inputs by the name of their first use.
tensors = {}


def case(name, call, inputs, compute, options=None, dy=None):
    """`dy`: what gradients by all inputs begin with; without it there are none."""
    results = {}
    for dtype in (torch.float32, torch.float64):
        leaves = {
            k: v.clone().to(dtype).requires_grad_(dy is not None) if v.is_floating_point() else v for k, v in inputs.items()
        }
        out = compute(*leaves.values())
        out = dict(out) if isinstance(out, dict) else {"y": out}
        if dy is not None:
            out["y"].backward(dy.to(dtype))
            out.update({f"d{k}": v.grad for k, v in leaves.items() if v.requires_grad})
        results[dtype] = {k: v.float() if v.is_floating_point() else v for k, v in out.items()}
    single, double = results[torch.float32], results[torch.float64]
    isAlike = lambda k: torch.allclose(single[k], double[k], 1e-5, 1e-6, equal_nan=True)
    given = {**inputs, **({"dy": dy} if dy is not None else {})}
    shared = {}
    for k, v in given.items():
        encoded = encode(v)
        shared[k] = next((n for n, known in tensors.items() if known == encoded), f"{k} of {name}")
        tensors[shared[k]] = encoded
    return {
        "name": name,
        "call": call,
        "options": options or {},
        "inputs": shared,
        "outputs": {k: encode(v) for k, v in single.items()},
        "doubles": {k: encode(v) for k, v in double.items() if not isAlike(k)},
    }


def unary(name, compute, call=None, options=None, has_gradient=True):
    return case(name, call or name, {"x": ALONE}, compute, options, ALONE_DY if has_gradient else None)


def pairs(name, compute, call=None, options=None, has_gradient=True, names=("a", "b")):
    return case(name, call or name, dict(zip(names, (LEFT, RIGHT))), compute, options, PAIR_DY if has_gradient else None)


def rows(name, compute, call=None, options=None, dy=True):
    shape = compute(ROWS)
    shape = (shape["y"] if isinstance(shape, dict) else shape).shape
    return case(name, call or name, {"x": ROWS}, compute, options, torch.ones(shape) if dy else None)


UNARY = {
    "exp": torch.exp,
    "square": torch.square,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "erf": torch.erf,
    "neg": torch.neg,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "relu": F.relu,
    "leakyRelu": lambda x: F.leaky_relu(x, 0.2),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "geluTanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "softplusSharp": lambda x: F.softplus(x, beta=2, threshold=3),
    "reciprocal": lambda x: 1 / x,
    # What a compiler would like to fold.
    "lessItself": lambda x: x - x,
    "overItself": lambda x: x / x,
    "timesZero": lambda x: x * 0,
    "plusZero": lambda x: x + 0.0,
    "smallerThanItself": lambda x: torch.minimum(x, x),
}
OF_ITSELF = ("eq", "ne", "lt", "le", "gt", "ge")


def elementwise_cases():
    for name, compute in UNARY.items():
        yield unary(name, compute)
    for exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7, -2.5, 9, -9):
        yield unary(f"pow {exponent}", lambda x: x**exponent, "powNumber", {"exponent": exponent})
    for base in (2, 0.5, 1, 0, -2):
        yield unary(f"{base} to the power of x", lambda x: torch.pow(torch.tensor(float(base)), x), "powOf", {"base": base})
    for name, low, high in (("clamp", -0.5, 0.75), ("clamp from below", -0.5, None), ("clamp from above", None, 0.5), ("clamp at 0", 0.0, None)):
        yield unary(name, lambda x: x.clamp(low, high), "clamp", {k: v for k, v in (("min", low), ("max", high)) if v is not None})
    for name in OF_ITSELF:
        compute = getattr(torch, name)
        yield unary(f"{name} of itself", lambda x: compute(x, x).float(), "ofItself", {"name": name}, False)
        yield unary(f"{name} of 0", lambda x: compute(x, 0).float(), "ofZero", {"name": name}, False)
        yield pairs(name, lambda a, b: compute(a, b).float(), None, None, False)
    yield unary("NaN cleaned", lambda x: torch.where(x != x, torch.zeros_like(x), x), "cleaned")
    yield unary("log masked", lambda x: torch.where(x > 0, x.log(), torch.zeros_like(x)), "maskedLog")
    yield pairs("where", lambda a, b: torch.where(a != 0, b, torch.ones_like(b)), None, None, False)
    for name, compute in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "minimum": torch.minimum, "maximum": torch.maximum}.items():
        yield pairs(name, compute)
    none = {"reduction": "none"}
    loss = lambda name, call, f, has_gradient=True, **options: pairs(
        name, lambda a, b: f(a, b, **none, **options), call, {**none, **options}, has_gradient, ("input", "target")
    )
    yield loss("mse", "mseLoss", F.mse_loss)
    yield loss("l1", "l1Loss", F.l1_loss)
    yield loss("huber", "huberLoss", F.huber_loss, delta=0.7)
    yield loss("smooth l1", "smoothL1Loss", F.smooth_l1_loss, beta=0.4)
    certain = torch.tensor([0.0, 0.5, 1.0, NAN])
    yield case(
        "bce with logits",
        "bceWithLogits",
        {"input": VALUES.repeat_interleave(4), "target": certain.repeat(len(VALUES))},
        lambda input, target: F.binary_cross_entropy_with_logits(input, target, **none),
        none,
        torch.ones(4 * len(VALUES)),
    )
    yield loss("kl", "klDiv", F.kl_div, False)


def row_cases():
    for name in ("sum", "mean", "amax", "amin"):
        yield rows(name, lambda x: getattr(x, name)(1), None, {"dim": 1})
    for name in ("max", "min"):
        yield rows(name, lambda x: dict(zip(("y", "indices"), getattr(x, name)(1))), None, {"dim": 1})
    for name in ("argmax", "argmin"):
        yield rows(name, lambda x: getattr(x, name)(1), None, {"dim": 1}, False)
    apart = torch.tensor([[1.0, NAN, -1.0, 2.0], [INF, 1.0, -INF, NAN], [1e38, -INF, 0.0, -3.0]])
    for k, largest in ((2, True), (2, False), (4, True), (4, False)):
        compute = lambda x: dict(zip(("y", "indices"), x.topk(k, 1, largest)))
        yield case(f"topk {k}, {'largest' if largest else 'smallest'}", "topk", {"x": apart}, compute, {"k": k, "dim": 1, "largest": largest}, torch.ones(3, k))
    yield rows("logsumexp", lambda x: x.logsumexp(1), None, {"dim": 1})
    yield rows("variance", lambda x: x.var(1), None, {"dim": 1})
    yield rows("std", lambda x: x.std(1), None, {"dim": 1})
    yield rows("cumsum", lambda x: x.cumsum(1), None, {"dim": 1})
    for p in (1, 2, 3):
        yield rows(f"norm {p}", lambda x: torch.linalg.vector_norm(x, p, 1), "norm", {"p": p, "dim": 1})
    yield rows("softmax", lambda x: x.softmax(1), None, {"axis": 1})
    yield rows("log softmax", lambda x: x.log_softmax(1), "logSoftmax", {"axis": 1})
    target = torch.tensor([0, 1, 2, 1, 0, 3, 2, 1, 0])
    yield case("cross entropy", "crossEntropy", {"input": ROWS, "target": target}, lambda input, target: F.cross_entropy(input, target, reduction="none"), {"reduction": "none"}, torch.ones(9))
    yield case("mean cross entropy", "crossEntropy", {"input": ROWS, "target": target}, lambda input, target: F.cross_entropy(input, target), {"reduction": "mean"}, torch.tensor(1.0))
    yield case("nll", "nllLoss", {"input": ROWS, "target": target}, lambda input, target: F.nll_loss(input, target, reduction="none"), {"reduction": "none"}, torch.ones(9))
    image = ROWS[:8].reshape(1, 1, 8, 4)
    yield case("max pool", "maxPool2d", {"x": image}, lambda x: F.max_pool2d(x, 2), {"kernel": 2}, torch.ones(1, 1, 4, 2))
    yield case("average pool", "avgPool2d", {"x": image}, lambda x: F.avg_pool2d(x, 2), {"kernel": 2}, torch.ones(1, 1, 4, 2))
    w, b = torch.tensor([[1.0, 0.0, 0.5, -2.0], [0.0, 0.0, 1.0, 1.0]]), torch.tensor([0.5, 0.0])
    yield case("linear", "linear", {"x": ROWS, "w": w, "b": b}, lambda x, w, b: F.linear(x, w, b), {}, torch.ones(9, 2))
    ones, zeros = torch.ones(4), torch.zeros(4)
    yield case("layer norm", "layerNorm", {"x": ROWS, "w": ones, "b": zeros}, lambda x, w, b: F.layer_norm(x, [4], w, b), {}, torch.ones(9, 4))
    attend = lambda q, k, v: (q @ k.transpose(-2, -1) / 2).softmax(-1) @ v
    plain = torch.tensor([[[0.5, 1.0, -1.0, 2.0], [1.0, 0.0, 0.5, -0.5], [-2.0, 1.0, 1.0, 0.0]]])
    for name in ("q", "k", "v"):
        for value in (NAN, INF):
            given = {n: plain.clone() for n in ("q", "k", "v")}
            given[name][0, 1, 2] = value
            yield case(f"attention, {value} in {name}", "attention", given, attend, {}, torch.ones(1, 3, 4))
    columns = torch.tensor([[1.0, NAN, INF, 0.0], [2.0, 1.0, 2.0, 0.0], [-1.0, 3.0, 1.0, 0.0]])
    yield case("batch norm", "batchNorm", {"x": columns, "w": ones, "b": zeros}, lambda x, w, b: F.batch_norm(x, None, None, w, b, True), {}, torch.ones(3, 4))


def main():
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in [*elementwise_cases(), *row_cases()])
    path = FOLDER / "special.json"
    made = {**MADE, "by": "tests/golden/special.py"}
    path.write_text(f'{{"made":{json.dumps(made)},"tensors":{json.dumps(tensors, indent=1)},"cases":[\n{lines}\n]}}\n')
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
