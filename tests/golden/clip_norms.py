"""Writes clip-norms.json: gradients clipped by norms other than 1, 2 and infinity, as PyTorch's clip_grad_norm_ does.

    /usr/bin/python3 tests/golden/clip_norms.py      (torch 1.13, Debian's python3-torch; the output is committed)

For norm 0 PyTorch 1.13 takes the norm of the parameters' norms, which counts parameters; its description, the norm of all gradients as
one vector, is what vector_norm of that vector gives.
"""

import math

import torch

import formula
from generate import encode, expected, write_cases

SHAPES = [[3, 4], [5]]
NORMS = [0.0, 0.5, 1.5, 3.0, 4.0, 7.0, -math.inf]
MOST = 0.75


def gradients(shapes, has_zeros):
    """From -2 to 2; with two zeros, or away from zero, since a norm of -infinity is the least of all."""
    made = [formula.uniform(12_000 + i, shape, 1.2) for i, shape in enumerate(shapes)]
    made = [gradient + 0.8 * gradient.sign() for gradient in made]
    if has_zeros:
        made[0].flatten()[1] = 0.0
        made[0].flatten()[4] = -0.0
    return made


def case(kind, shapes, has_zeros):
    def run(dtype):
        parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
        for parameter, gradient in zip(parameters, gradients(shapes, has_zeros)):
            parameter.grad = gradient.to(dtype)
        if kind == 0:
            norm = torch.linalg.vector_norm(torch.cat([parameter.grad.flatten() for parameter in parameters]), 0)
            for parameter in parameters:
                parameter.grad.mul_(torch.clamp(MOST / (norm + 1e-6), max=1.0))
        else:
            norm = torch.nn.utils.clip_grad_norm_(parameters, MOST, kind)
        return [norm, *(parameter.grad for parameter in parameters)]

    norm, *clipped = [expected(single, double) for single, double in zip(run(torch.float32), run(torch.float64))]
    return {
        "normType": str(kind),
        "most": MOST,
        "inputs": [encode(gradient) for gradient in gradients(shapes, has_zeros)],
        "norm": norm,
        "clipped": clipped,
    }


if __name__ == "__main__":
    cases = [case(kind, SHAPES, kind >= 0) for kind in NORMS]
    write_cases("clip-norms.json", "clip_norms.py", cases)
