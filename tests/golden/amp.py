"""Writes amp.json: mixed-precision training of an MLP with dynamic loss scaling, and one backward pass of convolutions, PyTorch
doing each rounding to float16.

Operands of products are rounded to float16 and multiplied in float32 (and in float64, for the distance); results of layers
and activations are float16, and so are the gradients by them. Weights, their gradients and the loss stay float32.
"""

import json
import pathlib

import torch
from formula import uniform
from halves import operand, rounded, stored

STEPS, BATCH, SIZES = 14, 16, [12, 20, 20, 8]
LR, INIT_SCALE, GROWTH_INTERVAL = 0.25, 2.0**22, 4


def forward(x, parameters):
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


CONV_SHAPES = {
    "x": [3, 2, 7, 6],
    "w1": [4, 2, 3, 3],
    "b1": [4],
    "w2": [6, 2, 3, 3],
    "b2": [6],
    "w3": [6, 3, 2, 2],
    "b3": [3],
    "y": [3, 3, 8, 6],
}


def convolve(dtype):
    """conv2d, a strided one of two groups, and a transposed one, with relu between; the loss and all gradients."""
    given = {
        name: uniform(300 + n, shape, 1 if len(shape) == 1 or name in "xy" else 0.4).to(dtype)
        for n, (name, shape) in enumerate(CONV_SHAPES.items())
    }
    wanted = [name for name in given if name != "y"]
    for name in wanted:
        given[name].requires_grad_()
    F = torch.nn.functional
    over = lambda b: b.reshape(-1, 1, 1)
    h = stored(F.conv2d(operand(given["x"]), operand(given["w1"]), padding=1) + over(given["b1"]))
    h = stored(torch.relu(h))
    h = stored(F.conv2d(h, operand(given["w2"]), stride=2, padding=1, groups=2) + over(given["b2"]))
    h = stored(torch.relu(h))
    h = stored(F.conv_transpose2d(h, operand(given["w3"]), stride=2) + over(given["b3"]))
    loss = F.mse_loss(h, given["y"])
    gradients = torch.autograd.grad(loss * 1024, [given[name] for name in wanted])
    return dict(loss=loss.item(), names=wanted, gradients=[g / 1024 for g in gradients])


def main():
    torch.set_num_threads(1)
    exact, single = train(torch.float64), train(torch.float32)
    assert exact["scales"] == single["scales"]
    pairs = lambda key: [
        dict(values=rounded(a), distance=float((a - b.double()).abs().max()))
        for a, b in zip(exact[key], single[key])
    ]
    conv_exact, conv_single = convolve(torch.float64), convolve(torch.float32)
    result = dict(
        conv=dict(
            shapes=CONV_SHAPES,
            loss=conv_exact["loss"],
            distance=abs(conv_exact["loss"] - conv_single["loss"]),
            gradients={
                name: dict(values=rounded(a), distance=float((a - b.double()).abs().max()))
                for name, a, b in zip(conv_exact["names"], conv_exact["gradients"], conv_single["gradients"])
            },
        ),
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
