"""Writes shape.json: products, einsum and ops that move elements, as PyTorch computes them, forward and gradients.

Run: /usr/bin/python3 tests/golden/shape.py      (torch 1.13, Debian's python3-torch; the output is committed)

The names are those of the functions in tests/values/shape.spec.ts. Encoding and distances: generate.py.
"""

import torch
import torch.nn.functional as F

from generate import op_case, random, write_cases


def case(name, compute, with_gradient=True, **inputs):
    made = op_case(name, "", inputs, compute, with_gradient)
    return {key: made[key] for key in ("name", "inputs", "outputs")}


def integers(below, *shape):
    return torch.randint(0, below, shape)


def products():
    yield case("matmul [K] [K]", lambda a, b: a @ b, a=random(37), b=random(37))
    yield case("matmul [K] [K, N]", lambda a, b: a @ b, a=random(9), b=random(9, 5))
    yield case("matmul [M, K] [K]", lambda a, b: a @ b, a=random(6, 9), b=random(9))
    yield case("matmul [K] [B, K, N]", lambda a, b: a @ b, a=random(7), b=random(3, 7, 4))
    yield case("matmul [B, M, K] [K]", lambda a, b: a @ b, a=random(3, 5, 8), b=random(8))
    yield case("matmul [B, M, K] [B, K, N]", lambda a, b: a @ b, a=random(3, 5, 8), b=random(3, 8, 4))
    yield case("matmul [A, 1, M, K] [B, K, N]", lambda a, b: a @ b, a=random(2, 1, 5, 6), b=random(3, 6, 4))
    yield case("matmul [A, B, M, K] [K, N]", lambda a, b: a @ b, a=random(2, 3, 4, 6), b=random(6, 5))
    yield case("matmul [M, K] [B, K, N]", lambda a, b: a @ b, a=random(4, 6), b=random(3, 6, 5))
    yield case("a by b transposed", lambda a, b: a @ b.transpose(-1, -2), a=random(2, 4, 6), b=random(2, 5, 6))
    yield case("a transposed by b", lambda a, b: a.transpose(-1, -2) @ b, a=random(2, 6, 4), b=random(2, 6, 5))
    yield case(
        "both transposed", lambda a, b: a.transpose(0, 1) @ b.transpose(0, 1), a=random(6, 4), b=random(5, 6)
    )
    yield case("bmm", lambda a, b: torch.bmm(a, b), a=random(4, 3, 7), b=random(4, 7, 2))
    yield case("outer", lambda a, b: torch.outer(a, b), a=random(5), b=random(7))
    yield case("dot", lambda a, b: torch.dot(a, b), a=random(33), b=random(33))
    yield case(
        "linear [A, B, K]", lambda x, w, b: F.linear(x, w, b), x=random(2, 5, 12), w=random(8, 12), b=random(8)
    )
    yield case("linear [K]", lambda x, w, b: F.linear(x, w, b), x=random(12), w=random(8, 12), b=random(8))

    def heads(x, w):
        batch, time, width = x.shape
        q, k, v = (x @ w).split(width, dim=2)
        apart = lambda part: part.reshape(batch, time, 2, width // 2).permute(0, 2, 1, 3)
        scores = apart(q) @ apart(k).transpose(-2, -1)
        return (scores @ apart(v)).permute(0, 2, 1, 3).reshape(batch, time, width)

    yield case("heads", heads, x=random(2, 5, 8), w=random(8, 24, scale=0.3))


def contractions():
    for equation, *shapes in (
        ("bij,bjk->bik", (3, 4, 5), (3, 5, 6)),
        ("bthd,bshd->bhts", (2, 3, 3, 4), (2, 5, 3, 4)),
        ("bhts,bshd->bthd", (2, 3, 3, 5), (2, 5, 3, 4)),
        ("ij->ji", (4, 7)),
        ("ij->", (4, 7)),
        ("ijk->j", (3, 4, 5)),
        ("ii->i", (6, 6)),
        ("bii->b", (3, 5, 5)),
        ("i,j->ij", (4,), (6,)),
        ("i,i->", (17,), (17,)),
        ("ij,ij->i", (5, 9), (5, 9)),
        ("ij,jk", (4, 5), (5, 3)),
        ("bn,anm,bm->ba", (3, 5), (4, 5, 6), (3, 6)),
        ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 2)),
        ("ijk,jil->kl", (3, 4, 5), (4, 3, 6)),
        ("ab,bc,cd->ad", (3, 4), (4, 5), (5, 2)),
        ("ijl,jkm->ik", (3, 4, 2), (4, 5, 3)),
    ):
        operands = {name: random(*shape) for name, shape in zip("abc", shapes)}
        yield case(
            f"einsum {equation}",
            lambda equation=equation, **tensors: torch.einsum(equation, *tensors.values()),
            **operands,
        )


def moves():
    x = lambda *shape: {"x": random(*shape)}
    yield case("permute", lambda x: x.permute(2, 0, 1), **x(3, 4, 5))
    yield case("transpose", lambda x: x.transpose(0, -1), **x(3, 4, 5))
    yield case("expand", lambda x: x.expand(2, 3, -1, 4), **x(3, 5, 1))
    yield case("squeeze and unsqueeze", lambda x: x.squeeze(1).unsqueeze(-1), **x(3, 1, 4))
    yield case("slice", lambda x: x[:, 1:-1:2], **x(4, 9))
    yield case("narrow", lambda x: x.narrow(1, 2, 3), **x(4, 9))
    yield case("select", lambda x: x.select(1, -2), **x(4, 5, 3))
    yield case("flip", lambda x: x.flip(0, 2), **x(3, 4, 5))
    yield case("slice of a permute of a slice", lambda x: x[1:].permute(2, 0, 1)[:, :, ::2], **x(4, 5, 6))
    yield case("cat", lambda a, b: torch.cat([a, b, a], 1), a=random(4, 3), b=random(4, 5))
    yield case("stack", lambda a, b: torch.stack([a, b], -1), a=random(4, 3), b=random(4, 3))
    yield case("split", lambda x: (lambda p: p[0] * p[2][:, :2] + p[1][:, 1:])(x.split([2, 3, 4], 1)), **x(5, 9))
    yield case("chunk, one unused", lambda x: (lambda p: p[0] * p[2])(x.chunk(3, 0)), **x(9, 4))
    yield case("pad", lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), **x(3, 4, 5))
    yield case("pad by less than nothing", lambda x: F.pad(x, (-1, 2, 1, -1)), **x(3, 4, 5))
    yield case("gather", lambda x, i: x.gather(1, i), x=random(5, 7), i=integers(7, 4, 3))
    yield case("scatterAdd", lambda x, s, i: x.scatter_add(1, i, s), x=random(5, 7), s=random(4, 8), i=integers(7, 4, 8))
    yield case("indexSelect", lambda x, i: x.index_select(1, i), x=random(3, 5, 4), i=integers(5, 8))
    yield case(
        "embedding", lambda w, i: F.embedding(i, w, padding_idx=2), w=random(11, 6), i=integers(11, 4, 9)
    )
    yield case("oneHot", lambda i: F.one_hot(i, 5).float(), with_gradient=False, i=integers(5, 3, 4))
    yield case("cumsum", lambda x: x.cumsum(1), **x(2, 17, 2))
    yield case("cumsum, long", lambda x: x.cumsum(-1), **x(1, 260))
    yield case("tril", lambda x: x.tril(1), **x(2, 4, 6))
    yield case("triu", lambda x: x.triu(-1), **x(6, 4))
    yield case("repeat", lambda x: x.repeat(2, 1, 3), **x(3, 4))
    yield case("roll", lambda x: x.roll((1, -2), (0, 1)), **x(4, 5))
    yield case(
        "constants",
        lambda x: x + torch.arange(3, 10, 2, dtype=x.dtype) + torch.full((4,), 0.1, dtype=x.dtype) * torch.ones(4),
        **x(3, 4),
    )
    yield case("whole numbers", lambda x: x.mul(5).int().to(x.dtype), with_gradient=False, **x(3, 7))


def main():
    torch.manual_seed(30)
    write_cases("shape.json", "shape.py", [*products(), *contractions(), *moves()])


if __name__ == "__main__":
    main()
