"""Writes optim.json: optimizers, gradient clipping and learning-rate schedules as PyTorch computes them.

    /usr/bin/python3 tests/golden/optim.py

All optimizer cases share their start and their gradients: two parameters, `a` [3, 5] and `b` [25], in separate groups.
`checkpoints` are the parameters after the steps of `at`, in float64, with the distance of PyTorch's float32 run; `state` is the state
after the last step. Lion is not in PyTorch 1.13: its twelve lines are here.
"""

import math

import torch
from torch.optim import lr_scheduler as schedules

from generate import encode, expected, write

SHAPES = {"a": (3, 5), "b": (25,)}
STEPS = 20
AT = [1, 2, 3, 10, 20]


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * beta1 + p.grad * (1 - beta1)), alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def draw():
    torch.manual_seed(11)
    start = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    gradients = {name: torch.randn((STEPS, *shape)) for name, shape in SHAPES.items()}
    # Small gradients, where eps counts.
    gradients["b"][:, 10:16] *= 1e-6
    return start, gradients


START, GRADIENTS = draw()


def run(dtype, make, before_step=lambda parameters, step: None, change=lambda groups, step: None):
    parameters = {name: torch.nn.Parameter(value.clone().to(dtype)) for name, value in START.items()}
    optimizer = make(parameters)
    history = {name: [] for name in SHAPES}
    notes = []
    for step in range(STEPS):
        change(optimizer.param_groups, step)
        for name, parameter in parameters.items():
            parameter.grad = GRADIENTS[name][step].clone().to(dtype)
        notes.append(before_step(parameters, step))
        optimizer.step()
        for name, parameter in parameters.items():
            history[name].append(parameter.detach().clone())
    checkpoints = {name: torch.stack([values[at - 1] for at in AT]) for name, values in history.items()}
    state = [
        {key: value for key, value in optimizer.state[parameter].items() if isinstance(value, torch.Tensor) and value.dim() > 0}
        for parameter in parameters.values()
    ]
    return checkpoints, state, notes


def compare(run_in):
    single, double = run_in(torch.float32), run_in(torch.float64)
    return {
        "checkpoints": {name: expected(single[0][name], double[0][name]) for name in SHAPES},
        "state": [
            {key: expected(one[key], two[key]) for key in two} for one, two in zip(single[1], double[1])
        ],
        "notes": double[2],
    }


def optimizer_case(name, optimizer, options, second=None):
    """`second` overrides options in the group of b."""
    kind = Lion if optimizer == "Lion" else getattr(torch.optim, optimizer)
    groups = lambda p: [{"params": [p["a"]]}, {"params": [p["b"]], **(second or {})}]
    result = compare(lambda dtype: run(dtype, lambda p: kind(groups(p), **options)))
    del result["notes"]
    return {"name": name, "optimizer": optimizer, "options": options, "second": second or {}, **result}


def optimizer_cases():
    case = optimizer_case
    yield case("SGD", "SGD", {"lr": 0.1})
    yield case("SGD, weight decay", "SGD", {"lr": 0.1, "weight_decay": 0.05})
    yield case("SGD, momentum", "SGD", {"lr": 0.1, "momentum": 0.9})
    yield case("SGD, dampening", "SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01})
    yield case("SGD, Nesterov", "SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.05, "nesterov": True})
    yield case("Adam", "Adam", {"lr": 1e-2})
    yield case("Adam, weight decay", "Adam", {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6})
    yield case("Adam, amsgrad", "Adam", {"lr": 1e-2, "weight_decay": 0.01, "amsgrad": True})
    yield case("AdamW", "AdamW", {"lr": 1e-2, "weight_decay": 0.1})
    yield case("AdamW, other betas, no decay", "AdamW", {"lr": 3e-3, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0})
    yield case("AdamW, amsgrad", "AdamW", {"lr": 1e-2, "amsgrad": True})
    yield case("AdamW, groups", "AdamW", {"lr": 1e-2}, {"lr": 1e-3, "weight_decay": 0.2, "betas": (0.7, 0.9)})
    yield case("RMSprop", "RMSprop", {"lr": 1e-2})
    yield case("RMSprop, weight decay, momentum", "RMSprop", {"lr": 1e-3, "weight_decay": 0.05, "momentum": 0.9, "eps": 1e-5})
    yield case("RMSprop, centered", "RMSprop", {"lr": 1e-2, "alpha": 0.9, "centered": True, "eps": 1e-3})
    yield case("RMSprop, centered, momentum", "RMSprop", {"lr": 1e-3, "alpha": 0.95, "centered": True, "momentum": 0.8, "eps": 1e-3})
    yield case("Adagrad", "Adagrad", {"lr": 0.1})
    yield case(
        "Adagrad, decays, initial sum",
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.01, "initial_accumulator_value": 0.3, "eps": 1e-6},
    )
    yield case("Lion", "Lion", {"lr": 1e-3})
    yield case("Lion, weight decay", "Lion", {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.95, 0.98)})


def clip_case(name, clip):
    make = lambda p: torch.optim.SGD([{"params": [p["a"]]}, {"params": [p["b"]]}], lr=0.1, momentum=0.9)
    result = compare(lambda dtype: run(dtype, make, lambda p, step: clip(list(p.values()))))
    del result["state"]
    return {"name": name, **result}


def clip_cases():
    norm, value = torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_

    def norm_only(kind, most):
        return lambda parameters: norm(parameters, most, kind).item()

    def value_only(parameters):
        value(parameters, 0.5)
        return 0.0

    def value_then_norm(parameters):
        value(parameters, 0.5)
        return norm(parameters, 1.0).item()

    def norm_then_value(parameters):
        total = norm(parameters, 2.0).item()
        value(parameters, 0.3)
        return total

    yield clip_case("norm 2", norm_only(2.0, 1.0))
    yield clip_case("norm 2, often below", norm_only(2.0, 6.0))
    yield clip_case("norm 1", norm_only(1.0, 3.0))
    yield clip_case("norm infinity", norm_only(math.inf, 0.5))
    yield clip_case("value", value_only)
    yield clip_case("value, then norm", value_then_norm)
    yield clip_case("norm, then value", norm_then_value)


def average_case():
    """Parameters under SGD and their average by AveragedModel with a decay of 0.9."""
    decay = 0.9

    def run_in(dtype):
        averages = {}
        history = []
        parameters = {name: torch.nn.Parameter(value.clone().to(dtype)) for name, value in START.items()}
        optimizer = torch.optim.SGD(list(parameters.values()), lr=0.1)
        for step in range(STEPS):
            for name, parameter in parameters.items():
                parameter.grad = GRADIENTS[name][step].clone().to(dtype)
            optimizer.step()
            for name, parameter in parameters.items():
                now = parameter.detach()
                averages[name] = decay * averages[name] + (1 - decay) * now if step else now.clone()
            if step + 1 in AT:
                history.append(torch.cat([value.flatten() for value in averages.values()]))
        return torch.stack(history)

    single, double = run_in(torch.float32), run_in(torch.float64)
    return {"decay": decay, "lr": 0.1, "averages": expected(single, double)}


# --- schedules --------------------------------------------------------------------------------------------------------

METRICS = [1.0 / (1 + i) if i < 12 else 0.09 + 0.01 * math.sin(i) for i in range(50)]


def schedule_case(name, make, metrics=None):
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    kind = torch.optim.Adam if "beta" in name else torch.optim.SGD
    more = {} if "beta" in name else {"momentum": 0.9}
    optimizer = kind([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}], lr=0.1, **more)
    scheduler = make(optimizer)
    rows = []
    for step in range(50):
        rows.append([
            *(group["lr"] for group in optimizer.param_groups),
            optimizer.param_groups[0].get("momentum", optimizer.param_groups[0].get("betas", [0])[0]),
        ])
        optimizer.step()
        scheduler.step(metrics[step]) if metrics else scheduler.step()
    return {"name": name, "rows": encode(torch.tensor(rows, dtype=torch.float64))}


def schedule_cases():
    s = schedules
    case = schedule_case
    yield case("StepLR", lambda o: s.StepLR(o, 7, gamma=0.3))
    yield case("MultiStepLR", lambda o: s.MultiStepLR(o, [5, 12, 12, 40], gamma=0.5))
    yield case("ExponentialLR", lambda o: s.ExponentialLR(o, 0.93))
    yield case("ConstantLR", lambda o: s.ConstantLR(o, 0.25, 6))
    yield case("LinearLR", lambda o: s.LinearLR(o, 0.1, 1.0, 10))
    yield case("LinearLR, down", lambda o: s.LinearLR(o, 1.0, 0.05, 33))
    yield case("CosineAnnealingLR", lambda o: s.CosineAnnealingLR(o, 60, 1e-3))
    yield case("CosineAnnealingLR, several", lambda o: s.CosineAnnealingLR(o, 11, 1e-4))
    yield case("CosineAnnealingWarmRestarts", lambda o: s.CosineAnnealingWarmRestarts(o, 7, 1, 1e-3))
    yield case("CosineAnnealingWarmRestarts, longer", lambda o: s.CosineAnnealingWarmRestarts(o, 5, 2))
    yield case("OneCycleLR", lambda o: s.OneCycleLR(o, 0.2, total_steps=50))
    yield case("OneCycleLR, three phases, linear", lambda o: s.OneCycleLR(
        o, [0.2, 0.05], total_steps=50, three_phase=True, anneal_strategy="linear", div_factor=10, pct_start=0.25))
    yield case("OneCycleLR, beta", lambda o: s.OneCycleLR(o, 0.2, epochs=6, steps_per_epoch=10, base_momentum=0.8))
    yield case("LambdaLR", lambda o: s.LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 0.95**e]))
    yield case("SequentialLR", lambda o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 8), s.CosineAnnealingLR(o, 30), s.ExponentialLR(o, 0.9)], [8, 35]))
    yield case("ChainedScheduler", lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9)]))
    yield case("ReduceLROnPlateau", lambda o: s.ReduceLROnPlateau(o, patience=3, cooldown=2, factor=0.5), METRICS)
    yield case("ReduceLROnPlateau, max, absolute", lambda o: s.ReduceLROnPlateau(
        o, "max", patience=2, threshold=0.01, threshold_mode="abs", min_lr=[0.01, 0.005]), METRICS)


if __name__ == "__main__":
    write(
        "optim.json",
        {
            "at": AT,
            "start": {name: encode(value) for name, value in START.items()},
            "gradients": {name: encode(value) for name, value in GRADIENTS.items()},
            "optimizers": list(optimizer_cases()),
            "clips": list(clip_cases()),
            "average": average_case(),
            "metrics": METRICS,
            "schedules": list(schedule_cases()),
        },
    )
