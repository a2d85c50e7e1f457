"""Writes amp.json: mixed-precision training of an MLP with dynamic loss scaling, PyTorch doing each rounding to float16.

Operands of products are rounded to float16 and multiplied in float32 (and in float64, for the distance); results of layers
and activations are float16, and so are the gradients by them. Weights, their gradients and the loss stay float32.
"""

import json
import pathlib

import torch
from formula import uniform

STEPS, BATCH, SIZES = 14, 16, [12, 20, 20, 8]
LR, INIT_SCALE, GROWTH_INTERVAL = 0.25, 2.0**22, 4


class Operand(torch.autograd.Function):
    """A float16 copy of a tensor; the gradient by the copy is the gradient by the tensor."""

    @staticmethod
    def forward(context, x):
        return x.half().to(x.dtype)

    @staticmethod
    def backward(context, dy):
        return dy


class Stored(torch.autograd.Function):
    """A result that is float16, as is the gradient by it."""

    @staticmethod
    def forward(context, x):
        return x.half().to(x.dtype)

    @staticmethod
    def backward(context, dy):
        return dy.half().to(dy.dtype)


def forward(x, parameters):
    operand, stored = Operand.apply, Stored.apply
    h = operand(x)
    for layer in range(3):
        weight, bias = parameters[2 * layer : 2 * layer + 2]
        h = stored(h @ operand(weight).T + bias)
        if layer < 2:
            h = stored(torch.relu(h))
    return h


def train(dtype):
    parameters = []
    for layer in range(3):
        bound = SIZES[layer] ** -0.5
        shape = [SIZES[layer + 1], SIZES[layer]]
        parameters.append(uniform(10 + layer, shape, bound).to(dtype).requires_grad_())
        parameters.append(uniform(20 + layer, shape[:1], bound).to(dtype).requires_grad_())
    scale, tracker = INIT_SCALE, 0
    losses, scales, first = [], [], None
    for step in range(STEPS):
        x = uniform(100 + step, [BATCH, SIZES[0]], 1).to(dtype)
        y = uniform(200 + step, [BATCH, SIZES[-1]], 1).to(dtype)
        out = forward(x, parameters)
        loss = torch.nn.functional.mse_loss(out, y)
        losses.append(loss.item())
        scales.append(scale)
        gradients = torch.autograd.grad(loss * scale, parameters)
        if all(torch.isfinite(gradient).all() for gradient in gradients):
            # The first step that counts: gradients without the scale.
            first = first or [gradient / scale for gradient in gradients]
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients):
                    parameter -= LR * (gradient / scale)
            tracker += 1
            if tracker == GROWTH_INTERVAL:
                scale, tracker = scale * 2, 0
        else:
            scale, tracker = scale / 2, 0
    return dict(losses=losses, scales=scales, first=first, parameters=[p.detach() for p in parameters])


def rounded(tensor):
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]


def main():
    torch.set_num_threads(1)
    exact, single = train(torch.float64), train(torch.float32)
    assert exact["scales"] == single["scales"]
    pairs = lambda key: [
        dict(values=rounded(a), distance=float((a - b.double()).abs().max()))
        for a, b in zip(exact[key], single[key])
    ]
    result = dict(
        steps=STEPS,
        batch=BATCH,
        sizes=SIZES,
        lr=LR,
        initScale=INIT_SCALE,
        growthInterval=GROWTH_INTERVAL,
        scales=exact["scales"],
        losses=exact["losses"],
        distances=[abs(a - b) for a, b in zip(exact["losses"], single["losses"])],
        firstGradients=pairs("first"),
        parameters=pairs("parameters"),
    )
    path = pathlib.Path(__file__).with_name("amp.json")
    path.write_text(json.dumps(result) + "\n")


main()
