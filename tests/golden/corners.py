"""Writes corners.json and integers.json: calls that PyTorch takes and that are easy to leave out, and arithmetic of integers.

    /usr/bin/python3 tests/golden/corners.py          (torch 1.13, Debian's python3-torch; the outputs are committed)

A case is as in elementwise.py; `call` names an entry of the table in tests/support/corner-calls.ts. Integers are int32 here as they are
i32 there, so that both wrap around in the same way.
"""

import torch
import torch.nn.functional as F

from elementwise import case, normal, positive
from generate import write_cases

NAN = float("nan")


def corner_cases():
    bias = lambda *shape: {"x": normal(*shape), "b": normal(shape[1])}
    yield case("layer norm, a bias alone", "layerNormBias", bias(3, 12), lambda x, b: F.layer_norm(x, (12,), None, b))
    yield case("layer norm of an odd width, a bias alone", "layerNormBias", bias(4, 5), lambda x, b: F.layer_norm(x, (5,), None, b))
    # Without a weight PyTorch 1.13 has the value and fails to differentiate it.
    yield case("group norm, a bias alone", "groupNormBias", bias(2, 6, 5), lambda x, b: F.group_norm(x, 3, torch.ones(6, dtype=x.dtype), b), {"groups": 3})

    def attend(q, k, v, mask=None):
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        return (scores if mask is None else scores + mask).softmax(-1) @ v

    def heads(q, k, v):
        return {"q": normal(*q), "k": normal(*k), "v": normal(*v)}

    yield case("attention, wider values", "attention", heads((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 8)), attend)
    yield case("attention, narrower values, one head", "attention", heads((2, 4, 6), (2, 5, 6), (2, 5, 3)), attend)
    yield case("attention, wider values and a mask", "attention", {**heads((2, 2, 4, 6), (2, 2, 5, 6), (2, 2, 5, 8)), "mask": normal(4, 5)}, attend, gradients=["q", "k", "v"])
    yield case("attention, keys of one sample", "attention", heads((2, 3, 4, 8), (1, 3, 5, 8), (1, 3, 5, 8)), attend)
    yield case("attention, keys of one head", "attention", heads((2, 3, 4, 8), (2, 1, 5, 8), (2, 1, 5, 8)), attend)
    yield case("attention, queries of one sample, keys without the axis", "attention", heads((1, 3, 4, 8), (3, 5, 8), (2, 3, 5, 8)), attend)
    causal = lambda q, k, v: attend(q, k, v, torch.full((4, 4), -float("inf"), dtype=q.dtype).triu(1))
    yield case("causal attention, wider values", "causal", heads((1, 2, 4, 6), (1, 2, 4, 6), (1, 2, 4, 7)), causal)

    for equation, *shapes in (("ij,jk->ik", (2, 1), (3, 4)), ("ij,ij->i", (2, 3), (1, 3)), ("bi,bi->b", (4, 1), (4, 3)), ("ij,jk,kl->il", (2, 3), (1, 4), (4, 2))):
        tensors = {name: normal(*shape) for name, shape in zip("abc", shapes)}
        yield case(f"einsum {equation} of {shapes}", "einsum", tensors, lambda equation=equation, **t: torch.einsum(equation, *t.values()), {"equation": equation})

    a, b = torch.tensor([NAN, 1.0, NAN, 2.0, 2.0]), torch.tensor([1.0, NAN, NAN, 2.0, 3.0])
    for name in ("maximum", "minimum"):
        yield case(f"{name} beside NaN", name, {"a": a, "b": b}, lambda a, b, f=getattr(torch, name): f(a, b), {"edges": True})

    x = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
    yield case("0 to the power of x", "powOf", {"x": x}, lambda x: torch.pow(0, x), {"base": 0})
    yield case("0 to the power of x from 0 up", "powOf", {"x": positive(5)}, lambda x: torch.pow(0, x), {"base": 0})
    yield case("-2 to the power of x", "powOf", {"x": x}, lambda x: torch.pow(-2, x), {"base": -2}, [])
    yield case("1 to the power of x", "powOf", {"x": x}, lambda x: torch.pow(1, x), {"base": 1})

    rolled = lambda: {"x": normal(3, 4)}
    yield case("roll by 1 along 0", "roll", rolled(), lambda x: x.roll(1, 0), {"shifts": 1, "dims": 0})
    yield case("roll by -2 along -1", "roll", rolled(), lambda x: x.roll(-2, -1), {"shifts": -2, "dims": -1})
    yield case("roll of all", "roll", rolled(), lambda x: x.roll(5), {"shifts": 5})
    yield case("roll of one axis twice", "roll", rolled(), lambda x: x.roll((1, 2), (1, 1)), {"shifts": [1, 2], "dims": [1, 1]})
    yield case("the 0 largest", "topk", rolled(), lambda x: dict(zip(("y", "indices"), x.topk(0, 1))), {"k": 0, "dim": 1})


BIG = [16777217, -16777219, 2147483647, -2147483648, 0, 5, -7, 123456789]


def integers(*values):
    return torch.tensor(values or BIG, dtype=torch.int32)


def integer_cases():
    other = lambda: {"a": integers(), "b": integers(3, 16777217, 1, -1, 0, -5, 2, -123456788)}
    x = lambda: {"x": integers()}
    rows = lambda: {"x": integers().reshape(2, 4)}

    def each(name, compute, inputs, options=None):
        text = " ".join([name, *([f"along {options['dim']}"] if options and "dim" in options else [])])
        return case(f"integers: {text}", name, inputs, lambda **tensors: compute(*tensors.values()), options, [])

    for name in ("add", "sub", "mul"):
        yield each(name, getattr(torch, name), other())
    for name in ("maximum", "minimum"):
        yield each(name, getattr(torch, name), other())
    yield each("addBroadcast", lambda a, b: a.reshape(8, 1) + b, other())
    for name, compute in {"neg": torch.neg, "square": torch.square, "sign": torch.sign, "relu": F.relu}.items():
        yield each(name, compute, x())
    # Of the least integer PyTorch's abs is that of a library.
    yield each("abs", torch.abs, {"x": integers(16777217, -16777219, 0, -2147483647)})
    yield each("cube", lambda x: x**3, {"x": integers(257, -259, 0, 2)})
    yield each("addOne", lambda x: x + 1, x())
    yield each("oneLess", lambda x: 1 - x, x())
    yield each("clamp", lambda x: x.clamp(-16777217, 16777217), x(), {"min": -16777217, "max": 16777217})
    for name in ("eq", "lt", "ge"):
        compute = getattr(torch, name)
        pair = {"a": integers(16777217, 16777217, 16777216, -16777217), "b": integers(16777216, 16777217, 16777217, -16777216)}
        yield each(name, lambda a, b, f=compute: f(a, b).float(), pair)
    yield each("whereNumber", lambda c, x: torch.where(c != 0, x, torch.tensor(-1, dtype=torch.int32)), {"c": integers(0, 1, 0, 2, 1, 1, 0, 0), "x": integers()})
    yield each("half", lambda x: x / 2, {"x": integers(5, -7, 0)})
    yield each("moreThanHalf", lambda x: x + 0.5, {"x": integers(5, -7, 0)})
    for dim in (0, 1):
        o = {"dim": dim, "keepDim": False}
        yield each("sum", lambda x, dim=dim: x.sum(dim, dtype=torch.int32), rows(), o)
        yield each("cumsum", lambda x, dim=dim: x.cumsum(dim, dtype=torch.int32), rows(), o)
        yield each("amax", lambda x, dim=dim: x.amax(dim), rows(), o)
        yield each("amin", lambda x, dim=dim: x.amin(dim), rows(), o)
        yield each("argmax", lambda x, dim=dim: x.argmax(dim), rows(), o)
        yield each("argmin", lambda x, dim=dim: x.argmin(dim), rows(), o)
        yield each("topk", lambda x, dim=dim: dict(zip(("y", "indices"), x.topk(2, dim))), rows(), {"dim": dim, "k": 2})
    yield each("sum", lambda x: x.sum(dtype=torch.int32), rows())
    yield each("max", torch.max, rows())
    yield each("min", torch.min, rows())
    mixed = {"x": integers(5, -7, 3, 1, 0, 2, 8, 4).reshape(2, 4), "w": normal(4)}
    # Sums and products of integers between floats, which are joined into chains where both sides are floats.
    yield case("integers: between floats", "mixed", mixed, lambda x, w: x.sum(1, True, dtype=torch.int32).to(w.dtype) * 0.5 + torch.relu(w * 2) * (x + 1) + (x * x).amax(0).to(w.dtype) / 3, None, ["w"])
    table = {"w": normal(6, 3), "i": integers(0, 4, 2, 2)}
    yield case("integers: embedding of the next index", "nextEmbedding", table, lambda w, i: F.embedding(i + 1, w))


def main():
    torch.manual_seed(44)
    write_cases("corners.json", "corners.py", list(corner_cases()))
    write_cases("integers.json", "corners.py", list(integer_cases()))


if __name__ == "__main__":
    main()
