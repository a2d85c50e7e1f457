"""Writes elementwise.json: elementwise functions, activations, reductions, softmax and losses as PyTorch computes them.

    /usr/bin/python3 tests/golden/elementwise.py          (torch 1.13, Debian's python3-torch; the output is committed)

A case is { name, call, options, inputs, outputs }: `call` names an entry of the table in tests/support/elementwise-calls.ts.
Results are float64's, with the distance of PyTorch's float32 from them, as in generate.py; `dy` is what gradients start from.
Where a case says `edges`, every element is compared alone: its magnitudes differ too much for one distance.
"""

import json
import math

import torch
import torch.nn.functional as F

from generate import encode, write_cases

torch.manual_seed(30)


def short(tensor):
    """Three decimals, so that the file stays small; the values are then what float32 makes of them."""
    return (tensor.double() * 1e3).round().div(1e3).float()


def normal(*shape, scale=1.0):
    return short(torch.randn(shape) * scale)


def positive(*shape):
    return short(torch.rand(shape) * 3 + 0.1)


def ties(*shape):
    return torch.randint(-2, 3, shape).float()


def compact(result):
    single, double = result
    if not double.is_floating_point():
        return encode(double)
    isFinite = double.isfinite()
    difference = (single.detach().double() - double.detach())[isFinite]
    return {**encode(double), "distance": difference.abs().max().item() if difference.numel() else 0.0}


def case(name, call, inputs, compute, options=None, gradients=None):
    """`gradients`: the inputs whose gradients count; by default every float input, none with []."""
    wanted = [k for k, v in inputs.items() if v.is_floating_point()] if gradients is None else gradients
    results = {}
    first = compute(**inputs)
    first = first if isinstance(first, dict) else {"y": first}
    dy = normal(*first["y"].shape) if wanted else None
    for dtype in (torch.float32, torch.float64):
        leaves = {
            k: v.detach().clone().to(dtype).requires_grad_(k in wanted) if v.is_floating_point() else v
            for k, v in inputs.items()
        }
        out = compute(**leaves)
        out = dict(out) if isinstance(out, dict) else {"y": out}
        if wanted:
            out["y"].backward(dy.to(dtype))
            out.update({f"d{k}": leaves[k].grad for k in wanted})
        results[dtype] = out
    single, double = results[torch.float32], results[torch.float64]
    return {
        "name": name,
        "call": call,
        "options": options or {},
        "inputs": {k: encode(v) for k, v in {**inputs, **({"dy": dy} if wanted else {})}.items()},
        "outputs": {k: compact((single[k], double[k])) for k in double},
    }


SIZES = [1e-6, 1e-3, 0.25, 1, 3, 5, 8, 20.5, 80, 1e4]
EDGES = torch.tensor([-s for s in reversed(SIZES)] + [0.0] + SIZES)

UNARY = {
    "exp": torch.exp,
    "square": torch.square,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "erf": torch.erf,
    "neg": torch.neg,
}
POSITIVE = {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt}
ACTIVATIONS = {
    "relu": F.relu,
    "leakyRelu": lambda x: F.leaky_relu(x, 0.2),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "geluTanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "softplusSharp": lambda x: F.softplus(x, beta=2, threshold=3),
}


def elementwise_cases():
    for name, compute in UNARY.items():
        yield case(name, name, {"x": normal(11)}, lambda x, f=compute: f(x))
    for name, compute in POSITIVE.items():
        yield case(name, name, {"x": positive(11)}, lambda x, f=compute: f(x))
    special = torch.tensor([0.0, 1e-30, 1.0, 1e30, -1.0])
    yield case("log near 0 and below", "log", {"x": special}, torch.log, gradients=[])
    for exponent, draw in ((2, normal), (3, normal), (-1, normal), (5, normal), (0.5, positive), (1.7, positive), (-2.5, positive), (0, normal)):
        yield case(f"pow {exponent}", "powNumber", {"x": draw(9)}, lambda x, e=exponent: x**e, {"exponent": exponent})
    yield case("pow of tensors", "pow", {"a": positive(4, 5), "b": normal(5)}, lambda a, b: a**b)
    yield case("2 to the power of x", "powOfTwo", {"x": normal(9)}, lambda x: 2**x)
    yield case("numbers", "numbers", {"x": normal(9)}, lambda x: ((1 - x) * 0.3 + 2) / 7 - 0.1)
    yield case("1 / x", "reciprocal", {"x": positive(9)}, lambda x: 1 / x)
    yield case("div of tensors", "div", {"a": normal(3, 5), "b": positive(3, 1)}, lambda a, b: a / b)
    yield case("clamp", "clamp", {"x": torch.cat([normal(12), torch.tensor([-0.5, 0.75])])}, lambda x: x.clamp(-0.5, 0.75), {"min": -0.5, "max": 0.75})
    yield case("clamp from below", "clamp", {"x": normal(12)}, lambda x: x.clamp(min=-0.5), {"min": -0.5})
    yield case("clamp from above", "clamp", {"x": normal(12)}, lambda x: x.clamp(max=0.5), {"max": 0.5})
    for name in ("minimum", "maximum"):
        yield case(f"{name} with ties", name, {"a": ties(4, 7), "b": ties(7)}, lambda a, b, f=getattr(torch, name): f(a, b))
    yield case("where", "where", {"c": ties(4, 6).clamp(0, 1), "a": normal(4, 1), "b": normal(6)}, lambda c, a, b: torch.where(c != 0, a, b), gradients=["a", "b"])
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield case(name, name, {"a": ties(3, 6), "b": ties(6)}, lambda a, b, f=getattr(torch, name): f(a, b).to(a.dtype), gradients=[])
    for name, compute in ACTIVATIONS.items():
        yield case(name, name, {"x": normal(13, scale=2)}, lambda x, f=compute: f(x))
        yield case(f"{name}, edges", name, {"x": EDGES}, lambda x, f=compute: f(x), {"edges": True})


def reduction_cases():
    x3 = lambda: normal(2, 3, 4)
    for name, axes, keep in (("all", [0, 1, 2], False), ("last", [2], True), ("outer two", [0, 2], False), ("middle", [-2], False)):
        options = {"dim": axes, "keepDim": keep}
        yield case(f"mean, {name}", "mean", {"x": positive(2, 3, 4)}, lambda x: x.mean(axes, keep), options)
        yield case(f"amax with ties, {name}", "amax", {"x": ties(2, 3, 4)}, lambda x: x.amax(axes, keep), options)
        yield case(f"logsumexp, {name}", "logsumexp", {"x": x3()}, lambda x: x.logsumexp(axes, keep), options)
        yield case(f"variance, {name}", "variance", {"x": x3()}, lambda x: x.var(axes, True, keep), options)
    yield case("sum of rows", "sum", {"x": normal(2, 300)}, lambda x: x.sum(1), {"dim": [1]}, [])
    yield case("mean of long rows", "mean", {"x": normal(1, 700)}, lambda x: x.mean(1), {"dim": [1]}, [])
    yield case("amin with ties", "amin", {"x": ties(4, 5)}, lambda x: x.amin([1]), {"dim": [1]})
    yield case("max of all, ties", "maxAll", {"x": ties(3, 5)}, lambda x: x.max())
    yield case("min of all", "minAll", {"x": normal(5, 7)}, lambda x: x.min())
    for name in ("max", "min"):
        for axis in (0, 1):
            yield case(f"{name} along {axis}, ties", name, {"x": ties(4, 5)}, lambda x: dict(zip(("y", "indices"), getattr(x, name)(axis))), {"dim": axis})
    for name in ("argmax", "argmin"):
        yield case(f"{name} along 1", name, {"x": normal(3, 40)}, lambda x: getattr(x, name)(1), {"dim": 1}, gradients=[])
        yield case(f"{name} of all", name, {"x": normal(4, 5)}, lambda x: getattr(x, name)(), gradients=[])
    for k, axis, largest in ((3, 1, True), (2, 0, False), (5, -1, True)):
        yield case(
            f"topk {k} along {axis}, {'largest' if largest else 'smallest'}",
            "topk",
            {"x": normal(3, 9)},
            lambda x: dict(zip(("y", "indices"), x.topk(k, axis, largest))),
            {"k": k, "dim": axis, "largest": largest},
        )
    yield case("variance, biased", "variance", {"x": normal(2, 70)}, lambda x: x.var([1], False), {"dim": [1], "unbiased": False})
    yield case("variance about 1000", "variance", {"x": normal(2, 20) + 1000}, lambda x: x.var([1]), {"dim": [1]})
    yield case("std", "std", {"x": normal(3, 5)}, lambda x: x.std([0]), {"dim": [0]})
    yield case("std of equal elements", "std", {"x": torch.ones(2, 5) * 0.5}, lambda x: x.std([1]), {"dim": [1]})
    yield case("logsumexp, huge", "logsumexp", {"x": normal(4, 9, scale=1e4)}, lambda x: x.logsumexp([1]), {"dim": [1]})
    for p in (1, 2, 3, math.inf):
        text = "inf" if p == math.inf else p
        yield case(f"norm {text}", "norm", {"x": normal(4, 9)}, lambda x: torch.linalg.vector_norm(x, p, [1]), {"p": text, "dim": [1]})
    yield case("norm 2 of zeros", "norm", {"x": torch.zeros(2, 3)}, lambda x: x.norm(2, [1]), {"p": 2, "dim": [1]})
    for name in ("softmax", "logSoftmax"):
        compute = {"softmax": F.softmax, "logSoftmax": F.log_softmax}[name]
        for shape, axis, scale in (((3, 5), 1, 1), ((7, 3), 0, 3), ((2, 3, 4), -2, 1), ((1, 100), 1, 5), ((2, 9), 1, 1e4)):
            yield case(f"{name} {shape} along {axis}, times {scale:g}", name, {"x": normal(*shape, scale=scale)}, lambda x: compute(x, axis), {"axis": axis})


def loss_cases():
    pair = lambda: {"input": normal(3, 5), "target": normal(3, 5)}
    unit = lambda *shape: short(torch.rand(*shape) * 0.98 + 0.01)
    for reduction in ("mean", "sum", "none"):
        o = {"reduction": reduction}
        yield case(f"mse, {reduction}", "mseLoss", pair(), lambda input, target: F.mse_loss(input, target, reduction=reduction), o)
        yield case(f"l1, {reduction}", "l1Loss", pair(), lambda input, target: F.l1_loss(input, target, reduction=reduction), o)
        yield case(f"huber, {reduction}", "huberLoss", pair(), lambda input, target: F.huber_loss(input, target, reduction=reduction, delta=0.7), {**o, "delta": 0.7})
        yield case(f"smooth l1, {reduction}", "smoothL1Loss", pair(), lambda input, target: F.smooth_l1_loss(input, target, reduction=reduction, beta=0.4), {**o, "beta": 0.4})
        yield case(f"bce, {reduction}", "binaryCrossEntropy", {"input": unit(3, 5), "target": unit(3, 5)}, lambda input, target: F.binary_cross_entropy(input, target, reduction=reduction), o, ["input"])
        yield case(f"bce with logits, {reduction}", "bceWithLogits", {"input": normal(3, 5, scale=3), "target": unit(3, 5)}, lambda input, target: F.binary_cross_entropy_with_logits(input, target, reduction=reduction), o)
    yield case("bce, certain", "binaryCrossEntropy", {"input": torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5]), "target": torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0])}, lambda input, target: F.binary_cross_entropy(input, target, reduction="none"), {"reduction": "none"}, gradients=[])
    yield case("bce with weight", "binaryCrossEntropy", {"input": unit(3, 5), "target": unit(3, 5), "weight": unit(5)}, lambda input, target, weight: F.binary_cross_entropy(input, target, weight), {}, ["input"])
    yield case("bce with logits, posWeight and weight", "bceWithLogits", {"input": normal(3, 5, scale=3), "target": unit(3, 5), "posWeight": unit(5), "weight": unit(3, 1)}, lambda input, target, posWeight, weight: F.binary_cross_entropy_with_logits(input, target, weight, pos_weight=posWeight), {}, ["input"])
    yield case("bce with logits, huge", "bceWithLogits", {"input": EDGES, "target": unit(len(EDGES))}, lambda input, target: F.binary_cross_entropy_with_logits(input, target, reduction="none"), {"reduction": "none", "edges": True}, ["input"])
    logs = lambda *shape: torch.log_softmax(normal(*shape), 1)
    for reduction in ("mean", "batchmean", "sum", "none"):
        yield case(f"kl, {reduction}", "klDiv", {"input": logs(3, 5), "target": F.softmax(normal(3, 5), 1)}, lambda input, target: F.kl_div(input, target, reduction=reduction), {"reduction": reduction}, ["input"])
    yield case("kl of logarithms", "klDiv", {"input": logs(3, 5), "target": logs(3, 5)}, lambda input, target: F.kl_div(input, target, reduction="batchmean", log_target=True), {"reduction": "batchmean", "logTarget": True})

    def classes(rows, count, *more, scale=1.0):
        return {"input": normal(rows, count, *more, scale=scale), "target": torch.randint(0, count, (rows, *more))}

    for reduction in ("mean", "sum", "none"):
        for name, options in (("plain", {}), ("ignored 2", {"ignoreIndex": 2}), ("smoothed", {"labelSmoothing": 0.1})):
            torch_options = {"ignore_index": options.get("ignoreIndex", -100), "label_smoothing": options.get("labelSmoothing", 0.0)}
            yield case(
                f"cross entropy {name}, {reduction}",
                "crossEntropy",
                classes(6, 5),
                lambda input, target: F.cross_entropy(input, target, reduction=reduction, **torch_options),
                {**options, "reduction": reduction},
            )
        yield case(
            f"cross entropy with everything, {reduction}",
            "crossEntropy",
            {**classes(6, 5), "weight": unit(5)},
            lambda input, target, weight: F.cross_entropy(input, target, weight, reduction=reduction, ignore_index=1, label_smoothing=0.2),
            {"ignoreIndex": 1, "labelSmoothing": 0.2, "reduction": reduction},
            ["input"],
        )
        yield case(
            f"nll with weights, {reduction}",
            "nllLoss",
            {**classes(7, 5), "weight": unit(5)},
            lambda input, target, weight: F.nll_loss(input, target, weight, reduction=reduction, ignore_index=3),
            {"ignoreIndex": 3, "reduction": reduction},
            ["input"],
        )
    yield case("cross entropy of images", "crossEntropy", {**classes(2, 4, 2, 3), "weight": unit(4)}, lambda input, target, weight: F.cross_entropy(input, target, weight), {}, ["input"])
    yield case("cross entropy, long rows, ignored 0", "crossEntropy", classes(2, 70, scale=5), lambda input, target: F.cross_entropy(input, target, ignore_index=0), {"ignoreIndex": 0})
    yield case("cross entropy, huge", "crossEntropy", classes(6, 9, scale=1e4), lambda input, target: F.cross_entropy(input, target, ignore_index=0), {"ignoreIndex": 0})
    yield case("cross entropy against probabilities", "crossEntropy", {"input": normal(5, 6), "target": F.softmax(normal(5, 6), 1), "weight": unit(6)}, lambda input, target, weight: F.cross_entropy(input, target, weight, label_smoothing=0.1), {"labelSmoothing": 0.1}, ["input"])
    output, target = normal(40, 12), torch.randint(0, 12, (40,))
    yield case(
        "accuracy",
        "accuracy",
        {"input": output, "target": target},
        lambda input, target: {
            ("y", "y5")[n]: (input.topk(k).indices == target[:, None]).any(1).to(input.dtype).sum() * (100.0 / 40) for n, k in enumerate((1, 5))
        },
        gradients=[],
    )
    # PyTorch's default of ignore_index, given to no loss.
    unlabelled = torch.tensor([1, -100, 4, 0, -100, 2])
    yield case("cross entropy, unlabelled rows", "crossEntropy", {"input": normal(6, 5), "target": unlabelled}, lambda input, target: F.cross_entropy(input, target), {})
    yield case("nll, unlabelled rows", "nllLoss", {"input": normal(6, 5), "target": unlabelled}, lambda input, target: F.nll_loss(input, target), {})


def main():
    cases = [*elementwise_cases(), *reduction_cases(), *loss_cases()]
    write_cases("elementwise.json", "elementwise.py", cases)


if __name__ == "__main__":
    main()
