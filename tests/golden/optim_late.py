"""Writes optim-late.json: optimizers whose parameter `b` joins `a` after 8 steps, unfrozen or by add_param_group, as PyTorch computes them.

    /usr/bin/python3 tests/golden/optim_late.py

Start and gradients are those of optim.json. `left_out` are steps whose update does not happen, as a gradient scaler has it.
`checkpoints` are the parameters after the steps of `at`; `steps` what the state says each parameter has made.
"""

import torch

from generate import expected, write
from optim import GRADIENTS, SHAPES, START, STEPS

JOINS = 8
AT = [8, 9, 10, 20]


def run(dtype, make, is_added, left_out):
    parameters = {name: torch.nn.Parameter(value.clone().to(dtype)) for name, value in START.items()}
    optimizer = make([parameters["a"]] if is_added else list(parameters.values()))
    history = {name: [] for name in SHAPES}
    for step in range(STEPS):
        if is_added and step == JOINS:
            optimizer.add_param_group({"params": [parameters["b"]]})
        for name, parameter in parameters.items():
            if name == "a" or step >= JOINS:
                parameter.grad = GRADIENTS[name][step].clone().to(dtype)
        if step not in left_out:
            optimizer.step()
        for name, parameter in parameters.items():
            history[name].append(parameter.detach().clone())
    steps = [optimizer.state[parameter].get("step") for parameter in parameters.values()]
    return {name: torch.stack([values[at - 1] for at in AT]) for name, values in history.items()}, steps


def case(name, optimizer, options, left_out=()):
    kind = getattr(torch.optim, optimizer)
    # PyTorch 1.13's Adagrad cannot take another group: it makes its state when it is made.
    for is_added in (False,) if optimizer == "Adagrad" else (False, True):
        single, double = (
            run(dtype, lambda p: kind(p, **options), is_added, left_out) for dtype in (torch.float32, torch.float64)
        )
        yield {
            "name": f"{name}, {'added' if is_added else 'unfrozen'}",
            "optimizer": optimizer,
            "options": options,
            "is_added": is_added,
            "left_out": list(left_out),
            "checkpoints": {key: expected(single[0][key], double[0][key]) for key in SHAPES},
            "steps": [None if step is None else int(step) for step in double[1]],
        }


def cases():
    yield from case("Adam", "Adam", {"lr": 0.1})
    yield from case("AdamW, amsgrad", "AdamW", {"lr": 0.01, "amsgrad": True})
    yield from case("SGD, dampening", "SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.25})
    yield from case("Adagrad, decay", "Adagrad", {"lr": 0.1, "lr_decay": 0.5})
    yield from case("RMSprop, centered", "RMSprop", {"lr": 1e-2, "centered": True, "eps": 1e-3})
    yield from case("AdamW, steps left out", "AdamW", {"lr": 0.01}, (3, 8, 12))
    yield from case("SGD, dampening, steps left out", "SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.25}, (0, 8, 12))
    yield from case("Adagrad, decay, steps left out", "Adagrad", {"lr": 0.1, "lr_decay": 0.5}, (3, 8, 12))


if __name__ == "__main__":
    write("optim-late.json", {"at": AT, "joins": JOINS, "cases": list(cases())})
