"""Writes empty.json and edges.json: what PyTorch makes of empty dimensions; of single elements, infinities and extreme magnitudes.

    /usr/bin/python3 tests/golden/edges.py          (torch 1.13, Debian's python3-torch; the outputs are committed)

A case is as in elementwise.py; `call` names an entry of the table in tests/values/edges.spec.ts. Where it says `magnitudes`, every
element is compared alone and relative to itself, however small it is.
"""

import torch
import torch.nn.functional as F

from elementwise import case, normal, positive, short
from generate import write_cases

INF = float("inf")


def indices(below, *shape):
    return torch.randint(0, below, shape) if torch.Size(shape).numel() else torch.zeros(shape, dtype=torch.int64)


def at_ends(*shape):
    """Magnitudes of 1e30 and 1e-30 in turn, with both signs."""
    drawn = normal(*shape) + torch.sign(normal(*shape)) * 0.5
    scale = torch.tensor([1e30, 1e-30]).repeat((drawn.numel() + 1) // 2)[: drawn.numel()].reshape(shape)
    return (drawn.double() * scale.double()).float()


def small_and_large():
    """Neither side, squared, leaves float32."""
    return torch.tensor([1e-18, -1e-12, 3e-7, -0.25, 1.0, -4.0, 1e4, -1e12, 1e18])


# --- empty dimensions -------------------------------------------------------------------------------------------------


def empty_cases():
    x = lambda *shape: {"x": normal(*shape)}
    for name, compute in {
        "exp": torch.exp, "relu": F.relu, "gelu": F.gelu, "sigmoid": torch.sigmoid, "sqrt": torch.sqrt,
    }.items():
        yield case(f"{name} of nothing", name, x(0, 3), lambda x, f=compute: f(x))
    for shapes in (((0, 3), (3,)), ((2, 0), (2, 1)), ((0,), (1,)), ((4, 0, 1), (2,)), ((0, 3), ())):
        yield case(f"add {shapes}", "add", {"a": normal(*shapes[0]), "b": normal(*shapes[1])}, lambda a, b: a + b)
        yield case(f"mul {shapes}", "mul", {"a": normal(*shapes[0]), "b": normal(*shapes[1])}, lambda a, b: a * b)
    yield case("where of nothing", "where", {"c": normal(0, 3), "a": normal(0, 3), "b": normal(3)}, lambda c, a, b: torch.where(c != 0, a, b), gradients=["a", "b"])
    yield case("eq of nothing", "eq", {"a": normal(0, 3), "b": normal(3)}, lambda a, b: (a == b).to(a.dtype), gradients=[])
    for shape, axis, keep in (((0, 3), 0, False), ((0, 3), 1, False), ((3, 0), 1, True), ((2, 0, 3), 1, False), ((2, 0, 3), 2, True), ((0,), 0, False)):
        options = {"dim": axis, "keepDim": keep}
        text = f"{list(shape)} along {axis}{', kept' if keep else ''}"
        yield case(f"sum of {text}", "sum", x(*shape), lambda x: x.sum(axis, keep), options)
        yield case(f"mean of {text}", "mean", x(*shape), lambda x: x.mean(axis, keep), options)
        yield case(f"norm of {text}", "norm", x(*shape), lambda x: x.norm(2, axis, keep), {**options, "p": 2})
        yield case(f"logsumexp of {text}", "logsumexp", x(*shape), lambda x: x.logsumexp(axis, keep), options)
        yield case(f"variance of {text}", "variance", x(*shape), lambda x: x.var(axis, True, keep), options)
        yield case(f"softmax of {text}", "softmax", x(*shape), lambda x: x.softmax(axis), options)
        yield case(f"log softmax of {text}", "logSoftmax", x(*shape), lambda x: x.log_softmax(axis), options)
        yield case(f"cumsum of {text}", "cumsum", x(*shape), lambda x: x.cumsum(axis), options)
        yield case(f"flip of {text}", "flip", x(*shape), lambda x: x.flip(axis), options)
        yield case(f"chunks of {text}", "chunks", x(*shape), lambda x: {"y": torch.cat(x.chunk(3, axis), axis), "count": torch.tensor(float(len(x.chunk(3, axis))), dtype=x.dtype)}, options)
        if shape[axis] > 0:
            for name in ("amax", "amin"):
                yield case(f"{name} of {text}", name, x(*shape), lambda x: getattr(x, name)(axis, keep), options)
            yield case(f"argmax of {text}", "argmax", x(*shape), lambda x: x.argmax(axis, keep), options, [])
            yield case(f"topk of {text}", "topk", x(*shape), lambda x: dict(zip(("y", "indices"), x.topk(2, axis))), {"k": 2, "dim": axis})
    yield case("sum of all of nothing", "sum", x(0, 3), lambda x: x.sum())
    yield case("mean of all of nothing", "mean", x(2, 0), lambda x: x.mean())

    product = lambda a, b: a @ b
    for a, b in (((3, 0), (0, 4)), ((0, 5), (5, 4)), ((3, 5), (5, 0)), ((0, 0), (0, 0)), ((0, 3, 4), (0, 4, 2)), ((2, 3, 0), (2, 0, 4)), ((2, 0, 4), (4, 3)), ((0,), (0,)), ((0,), (0, 3)), ((3, 0), (0,)), ((2, 1, 0, 4), (3, 4, 5))):
        yield case(f"matmul {list(a)} {list(b)}", "matmul", {"a": normal(*a), "b": normal(*b)}, product)
    for rows, inputs, outputs in ((0, 5, 4), (3, 0, 4), (3, 5, 0)):
        yield case(f"linear [{rows}, {inputs}] to {outputs}", "linear", {"x": normal(rows, inputs), "w": normal(outputs, inputs), "b": normal(outputs)}, lambda x, w, b: F.linear(x, w, b))
    for equation, *shapes in (("bij,bjk->bik", (0, 2, 3), (0, 3, 4)), ("ij,jk->ik", (2, 0), (0, 3)), ("ij->j", (0, 3)), ("i,j->ij", (0,), (3,))):
        tensors = {name: normal(*shape) for name, shape in zip("ab", shapes)}
        yield case(f"einsum {equation} of nothing", "einsum", tensors, lambda equation=equation, **t: torch.einsum(equation, *t.values()), {"equation": equation})

    for shape, target in (((0, 3), (3, 0)), ((2, 0, 3), (0,)), ((0, 3), (5, 0, 2))):
        yield case(f"reshape {list(shape)} to {list(target)}", "reshape", x(*shape), lambda x: x.reshape(target), {"shape": list(target)})
    yield case("reshape [2, 0] to [2, -1]", "reshape", x(2, 0), lambda x: x.reshape(2, -1), {"shape": [2, -1]})
    for shape, start, end in (((2, 0, 3), 1, -1), ((0, 2, 3), 1, -1), ((0, 0, 3), 0, 1), ((2, 3, 4), 0, 1), ((2, 3, 4), -2, -1), ((), 0, -1)):
        yield case(f"flatten {list(shape)} from {start} to {end}", "flatten", x(*shape), lambda x: x.flatten(start, end), {"start": start, "end": end})
    yield case("permute of nothing", "permute", x(2, 0, 3), lambda x: x.permute(2, 0, 1))
    yield case("expand to nothing", "expand", x(1, 3), lambda x: x.expand(0, 3), {"shape": [0, 3]})
    yield case("expand of nothing", "expand", x(0, 1), lambda x: x.expand(2, 0, 3), {"shape": [2, 0, 3]})
    yield case("a slice of nothing", "slice", x(5, 3), lambda x: x[3:3], {"dim": 0, "start": 3, "end": 3})
    yield case("a slice past the end", "slice", x(5, 3), lambda x: x[7:9], {"dim": 0, "start": 7, "end": 9})
    yield case("narrow to nothing", "narrow", x(4, 3), lambda x: x.narrow(1, 3, 0), {"dim": 1, "start": 3, "length": 0})
    yield case("select of nothing", "select", x(0, 3), lambda x: x.select(1, 2), {"dim": 1, "index": 2})
    yield case("squeeze and unsqueeze of nothing", "squeeze", x(1, 0, 1), lambda x: x.squeeze().unsqueeze(0))
    yield case("cat with nothing", "cat", {"a": normal(0, 3), "b": normal(2, 3)}, lambda a, b: torch.cat([a, b, a], 0), {"dim": 0})
    yield case("cat of nothing", "cat", {"a": normal(0, 3), "b": normal(0, 2)}, lambda a, b: torch.cat([a, b, a], 1), {"dim": 1})
    yield case("stack of nothing", "stack", {"a": normal(0, 3), "b": normal(0, 3)}, lambda a, b: torch.stack([a, b], 1), {"dim": 1})
    yield case("split with an empty part", "splitSum", x(3, 4), lambda x: (lambda p: p[0].sum(1) + p[1].sum(1) * 2 + p[2].sum(1) * 3)(x.split([1, 0, 3], 1)), {"sizes": [1, 0, 3], "dim": 1})
    yield case("repeat no times", "repeat", x(2, 3), lambda x: x.repeat(0, 1), {"sizes": [0, 1]})
    yield case("repeat nothing", "repeat", x(0, 3), lambda x: x.repeat(2, 2), {"sizes": [2, 2]})
    yield case("roll of nothing", "roll", x(0, 3), lambda x: x.roll((1, 1), (0, 1)))
    yield case("pad nothing", "pad", x(0, 2), lambda x: F.pad(x, (1, 0, 2, 1), value=0.5), {"pads": [1, 0, 2, 1], "value": 0.5})
    yield case("pad to nothing", "pad", x(2, 3), lambda x: F.pad(x, (-1, -2)), {"pads": [-1, -2], "value": 0})
    yield case("tril of nothing", "tril", x(0, 3), lambda x: x.tril())
    yield case("triu of nothing", "triu", x(2, 0, 0), lambda x: x.triu())

    yield case("gather nothing", "gather", {"x": normal(3, 4), "i": indices(4, 3, 0)}, lambda x, i: x.gather(1, i), {"dim": 1})
    yield case("gather from nothing", "gather", {"x": normal(0, 4), "i": indices(4, 0, 2)}, lambda x, i: x.gather(1, i), {"dim": 1})
    yield case("scatterAdd nothing", "scatterAdd", {"x": normal(3, 4), "s": normal(3, 0), "i": indices(4, 3, 0)}, lambda x, s, i: x.scatter_add(1, i, s), {"dim": 1})
    yield case("indexSelect nothing", "indexSelect", {"x": normal(3, 4), "i": indices(3, 0)}, lambda x, i: x.index_select(0, i), {"dim": 0})
    yield case("indexSelect of empty rows", "indexSelect", {"x": normal(3, 0), "i": indices(3, 5)}, lambda x, i: x.index_select(0, i), {"dim": 0})
    yield case("embedding of no tokens", "embedding", {"w": normal(5, 3), "i": indices(5, 0)}, lambda w, i: F.embedding(i, w))
    yield case("embedding of two rows of no tokens", "embedding", {"w": normal(5, 3), "i": indices(5, 2, 0)}, lambda w, i: F.embedding(i, w))
    yield case("oneHot of nothing", "oneHot", {"i": indices(4, 0, 2)}, lambda i: F.one_hot(i, 4).float(), {"classes": 4}, [])

    for reduction in ("mean", "sum", "none"):
        o = {"reduction": reduction}
        pair = lambda: {"input": normal(0, 5), "target": normal(0, 5)}
        yield case(f"mse of nothing, {reduction}", "mseLoss", pair(), lambda input, target: F.mse_loss(input, target, reduction=reduction), o)
        yield case(f"huber of nothing, {reduction}", "huberLoss", pair(), lambda input, target: F.huber_loss(input, target, reduction=reduction), o)
        yield case(f"bce with logits of nothing, {reduction}", "bceWithLogits", pair(), lambda input, target: F.binary_cross_entropy_with_logits(input, target, reduction=reduction), o, ["input"])
        rows = lambda: {"input": normal(0, 5), "target": indices(5, 0)}
        yield case(f"cross entropy of no rows, {reduction}", "crossEntropy", rows(), lambda input, target: F.cross_entropy(input, target, reduction=reduction), o)
        yield case(f"nll of no rows, {reduction}", "nllLoss", rows(), lambda input, target: F.nll_loss(input, target, reduction=reduction), o)

    images = lambda: {"x": normal(0, 2, 5, 5), "w": normal(3, 2, 3, 3), "b": normal(3)}
    yield case("conv2d of no images", "conv2d", images(), lambda x, w, b: F.conv2d(x, w, b, padding=1), {"padding": 1})
    yield case("convTranspose2d of no images", "convTranspose2d", {**images(), "x": normal(0, 3, 5, 5), "b": normal(2)}, lambda x, w, b: F.conv_transpose2d(x, w, b))
    yield case("max pooling of no images", "maxPool2d", x(0, 2, 6, 6), lambda x: F.max_pool2d(x, 2), {"kernel": 2})
    yield case("mean pooling of no images", "avgPool2d", x(0, 2, 6, 6), lambda x: F.avg_pool2d(x, 2), {"kernel": 2})
    yield case("adaptive pooling of no images", "adaptiveAvgPool2d", x(0, 2, 6, 6), lambda x: F.adaptive_avg_pool2d(x, 1), {"size": 1})
    yield case("layer norm of no rows", "layerNorm", {"x": normal(0, 5), "w": normal(5), "b": normal(5)}, lambda x, w, b: F.layer_norm(x, (5,), w, b))
    yield case("attention of no samples", "attention", {name: normal(0, 2, 3, 4) for name in "qkv"}, attention)
    yield case("attention without queries", "attention", {"q": normal(1, 2, 0, 4), "k": normal(1, 2, 3, 4), "v": normal(1, 2, 3, 4)}, attention)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1) @ v


# --- one element ------------------------------------------------------------------------------------------------------


def single_cases():
    x = lambda *shape: {"x": normal(*shape)}
    one = {"dim": 1, "keepDim": False}
    for name, compute in {
        "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(1), "variance": lambda x: x.var(1), "std": lambda x: x.std(1),
        "logsumexp": lambda x: x.logsumexp(1), "softmax": lambda x: x.softmax(1), "logSoftmax": lambda x: x.log_softmax(1), "cumsum": lambda x: x.cumsum(1),
        "amax": lambda x: x.amax(1), "flip": lambda x: x.flip(1),
    }.items():
        yield case(f"{name} of one", name, x(1, 1), lambda x, f=compute: f(x), one)
    yield case("topk of one", "topk", x(1, 1), lambda x: dict(zip(("y", "indices"), x.topk(1, 1))), {"k": 1, "dim": 1})
    yield case("matmul [1, 1] [1, 1]", "matmul", {"a": normal(1, 1), "b": normal(1, 1)}, lambda a, b: a @ b)
    yield case("gather of one", "gather", {"x": normal(1, 1), "i": indices(1, 1, 1)}, lambda x, i: x.gather(1, i), {"dim": 1})
    yield case("scatterAdd of one", "scatterAdd", {"x": normal(1, 1), "s": normal(1, 1), "i": indices(1, 1, 1)}, lambda x, s, i: x.scatter_add(1, i, s), {"dim": 1})
    yield case("embedding of one", "embedding", {"w": normal(1, 1), "i": indices(1, 1)}, lambda w, i: F.embedding(i, w))
    yield case("cross entropy of one class", "crossEntropy", {"input": normal(1, 1), "target": indices(1, 1)}, lambda input, target: F.cross_entropy(input, target), {})
    yield case("conv2d of one pixel", "conv2d", {"x": normal(1, 1, 1, 1), "w": normal(1, 1, 1, 1), "b": normal(1)}, lambda x, w, b: F.conv2d(x, w, b), {"padding": 0})
    yield case("conv2d of one pixel, padded", "conv2d", {"x": normal(1, 1, 1, 1), "w": normal(1, 1, 3, 3), "b": normal(1)}, lambda x, w, b: F.conv2d(x, w, b, padding=1), {"padding": 1})
    yield case("max pooling of one pixel", "maxPool2d", x(1, 1, 1, 1), lambda x: F.max_pool2d(x, 1), {"kernel": 1})
    yield case("mean pooling of one pixel", "avgPool2d", x(1, 1, 1, 1), lambda x: F.avg_pool2d(x, 1), {"kernel": 1})
    yield case("layer norm of one", "layerNorm", {"x": normal(1, 1), "w": normal(1), "b": normal(1)}, lambda x, w, b: F.layer_norm(x, (1,), w, b))
    yield case("batch norm without running statistics", "batchNorm", {"x": normal(3, 2, 2, 2), "w": normal(2), "b": normal(2)}, lambda x, w, b: F.batch_norm(x, None, None, w, b, True))
    yield case("attention of one", "attention", {name: normal(1, 1, 1, 1) for name in "qkv"}, attention)


# --- infinities, and gradients at corners -----------------------------------------------------------------------------


def corner_cases():
    # Row by row: -inf alone, inf among others, -inf among others.
    rows = torch.tensor([[-INF, -INF, -INF], [1.0, INF, -2.0], [-INF, 0.5, 1.5]])
    yield case("logsumexp with infinities", "logsumexp", {"x": rows}, lambda x: x.logsumexp(1), {"dim": 1})
    yield case("logsumexp with infinities, long rows", "logsumexp", {"x": torch.cat([rows] * 30, 1)}, lambda x: x.logsumexp(1), {"dim": 1}, [])
    yield case("softmax with -inf", "softmax", {"x": rows[2:]}, lambda x: x.softmax(1), {"dim": 1})
    for p in (0.5, 1, 1.5, 2, 3, 4, -1, -2):
        vectors = torch.tensor([[0.0, 0.0, 0.0], [0.0, -1.0, 2.0], [0.5, -1.0, 2.0]])
        yield case(f"norm {p} at 0 and beside it", "norm", {"x": vectors}, lambda x: torch.norm(x, p, 1), {"p": p, "dim": 1})
    # Positive at first: by a negative base there is no gradient of the exponent.
    bases = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    yield case("pow of 0", "pow", {"a": bases, "b": torch.tensor([-1.0, -2.5, 0.0, 1.0, 2.0, -1.0])}, lambda a, b: a**b)
    for exponent in (-1, -2.5, 0, 1, 0.5):
        yield case(f"0 to the power of {exponent}", "powNumber", {"x": torch.tensor([0.0, 2.0])}, lambda x: x**exponent, {"exponent": exponent})
    c, a = torch.tensor([0.0, 1.0, 1.0, 0.0]), normal(3, 4)
    for name, value in (("-inf", -INF), ("inf", INF), ("nan", float("nan"))):
        yield case(f"where, {name}", "whereNumber", {"c": c, "a": a}, lambda c, a: torch.where(c != 0, a, torch.full((), value, dtype=a.dtype)), {"value": name}, ["a"])
    yield case("masked softmax", "maskedSoftmax", {"c": c, "a": a}, lambda c, a: torch.where(c != 0, a, torch.full((), -INF, dtype=a.dtype)).softmax(1), {}, ["a"])
    yield case("clamp to infinities", "clamp", {"x": normal(5)}, lambda x: x.clamp(-INF, INF))


# --- magnitudes -------------------------------------------------------------------------------------------------------


def magnitude_cases():
    each = {"magnitudes": True}
    x = lambda *shape: {"x": at_ends(*shape)}
    for name, compute in {"neg": torch.neg, "abs": torch.abs, "relu": F.relu, "square": torch.square}.items():
        drawn = small_and_large() if name == "square" else at_ends(8)
        yield case(f"{name} of magnitudes", name, {"x": drawn}, lambda x, f=compute: f(x), each)
    for name, compute in {"sqrt": torch.sqrt, "log": torch.log, "rsqrt": torch.rsqrt}.items():
        yield case(f"{name} of magnitudes", name, {"x": torch.tensor([1e-20, 1e-12, 1e-4, 3.0, 1e4, 1e12, 1e20])}, lambda x, f=compute: f(x), each)
    yield case("mul of magnitudes", "mul", {"a": torch.tensor([1e30, -1e-30, 1e20]), "b": torch.tensor([1e-30, 1e30, -1e-20])}, lambda a, b: a * b, each)
    yield case("div of magnitudes", "div", {"a": torch.tensor([1e18, -1e-18, 1e15]), "b": torch.tensor([1e15, -1e-15, 1e18])}, lambda a, b: a / b, each)
    for scale in (1e30, 1e-30):
        text = f"{scale:g}"
        scaled = lambda *shape: {"x": (normal(*shape).double() * scale).float()}
        o = {"dim": 1, "keepDim": False}
        yield case(f"sum of {text}", "sum", scaled(3, 40), lambda x: x.sum(1), o)
        yield case(f"mean of {text}", "mean", scaled(3, 40), lambda x: x.mean(1), o)
        yield case(f"amax of {text}", "amax", scaled(3, 40), lambda x: x.amax(1), o)
        yield case(f"topk of {text}", "topk", scaled(3, 40), lambda x: dict(zip(("y", "indices"), x.topk(3, 1))), {"k": 3, "dim": 1})
        yield case(f"cumsum of {text}", "cumsum", scaled(2, 30), lambda x: x.cumsum(1), o)
        yield case(f"softmax of {text}", "softmax", scaled(3, 9), lambda x: x.softmax(1), o)
        yield case(f"logsumexp of {text}", "logsumexp", scaled(3, 9), lambda x: x.logsumexp(1), o)
        yield case(f"flip of {text}", "flip", scaled(3, 4), lambda x: x.flip(1), o)
        yield case(f"gather of {text}", "gather", {**scaled(3, 4), "i": indices(4, 3, 6)}, lambda x, i: x.gather(1, i), {"dim": 1})
        yield case(f"indexSelect of {text}", "indexSelect", {**scaled(3, 4), "i": indices(3, 7)}, lambda x, i: x.index_select(0, i), {"dim": 0})
        yield case(f"scatterAdd of {text}", "scatterAdd", {**scaled(3, 4), "s": scaled(3, 6)["x"], "i": indices(4, 3, 6)}, lambda x, s, i: x.scatter_add(1, i, s), {"dim": 1})
        yield case(f"pad of {text}", "pad", scaled(2, 3), lambda x: F.pad(x, (1, 1)), {"pads": [1, 1], "value": 0})
        other = (normal(7, 5).double() / scale).float()
        yield case(f"matmul of {text} by its inverse", "matmul", {"a": scaled(6, 7)["x"], "b": other}, lambda a, b: a @ b)
        yield case(f"conv2d of {text} by its inverse", "conv2d", {"x": scaled(1, 2, 5, 5)["x"], "w": (normal(3, 2, 3, 3).double() / scale).float(), "b": normal(3)}, lambda x, w, b: F.conv2d(x, w, b, padding=1), {"padding": 1})
        yield case(f"convTranspose2d of {text} by its inverse", "convTranspose2d", {"x": scaled(1, 2, 4, 4)["x"], "w": (normal(2, 3, 3, 3).double() / scale).float(), "b": normal(3)}, lambda x, w, b: F.conv_transpose2d(x, w, b))
        yield case(f"max pooling of {text}", "maxPool2d", scaled(1, 2, 6, 6), lambda x: F.max_pool2d(x, 2), {"kernel": 2})
        yield case(f"mean pooling of {text}", "avgPool2d", scaled(1, 2, 5, 5), lambda x: F.avg_pool2d(x, 2), {"kernel": 2})
    for scale in (1e4, 1e-4):
        text = f"{scale:g}"
        scaled = lambda *shape: (normal(*shape).double() * scale).float()
        yield case(f"softmax, logits of {text}", "softmax", {"x": scaled(3, 40)}, lambda x: x.softmax(1), {"dim": 1})
        yield case(f"log softmax, logits of {text}", "logSoftmax", {"x": scaled(3, 40)}, lambda x: x.log_softmax(1), {"dim": 1})
        yield case(f"cross entropy, logits of {text}", "crossEntropy", {"input": scaled(5, 12), "target": indices(12, 5)}, lambda input, target: F.cross_entropy(input, target), {})
        yield case(f"layer norm of {text}", "layerNorm", {"x": scaled(3, 12), "w": normal(12), "b": normal(12)}, lambda x, w, b: F.layer_norm(x, (12,), w, b))
        yield case(f"conv2d of {text}", "conv2d", {"x": scaled(1, 2, 5, 5), "w": normal(3, 2, 3, 3), "b": normal(3)}, lambda x, w, b: F.conv2d(x, w, b, padding=1), {"padding": 1})
        for mode in ("rnn", "gru", "lstm"):
            yield recurrent_case(f"{mode} of {text}", mode, scaled(4, 2, 3))


def masked_cases():
    # The mask is applied where the product is stored.
    seen = torch.tensor([[1.0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    inputs = {"c": seen, "a": normal(4, 8), "b": normal(8, 5)}
    compute = lambda c, a, b: torch.where(c != 0, a @ b, torch.full((), -INF, dtype=a.dtype))
    yield case("masked product", "maskedProduct", inputs, compute, gradients=[])
    yield case("softmax of a masked product", "maskedAttention", inputs, lambda c, a, b: compute(c, a, b).softmax(1), gradients=["a", "b"])


def recurrent_case(name, mode, x):
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[mode]
    weights = {"wi": normal(gates * 4, 3), "wh": normal(gates * 4, 4), "bi": normal(gates * 4), "bh": normal(gates * 4)}

    def compute(x, wi, wh, bi, bh):
        first = torch.zeros(1, x.shape[1], 4, dtype=x.dtype)
        run = {"rnn": torch._VF.rnn_tanh, "gru": torch._VF.gru, "lstm": torch._VF.lstm}[mode]
        return run(x, (first, first) if mode == "lstm" else first, [wi, wh, bi, bh], True, 1, 0.0, False, False, False)[0]

    return case(name, mode, {"x": x, **weights}, compute)


def main():
    torch.manual_seed(41)
    write_cases("empty.json", "edges.py", list(empty_cases()))
    write_cases("edges.json", "edges.py", [*single_cases(), *corner_cases(), *magnitude_cases(), *masked_cases()])


if __name__ == "__main__":
    main()
