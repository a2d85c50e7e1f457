"""Writes modules.json: what hooks of modules and tensors do to gradients, and training steps with spectral normalization.

    /usr/bin/python3 tests/golden/modules.py          (torch 1.13, Debian's python3-torch; the output is committed)

Inputs and first weights are formula.py's numbers: tensor number i of a state dict has the seed `first + i`.
"""

import json

import torch
from torch import nn
from torch.nn.utils import spectral_norm

import formula
from generate import FOLDER, MADE, expected

DTYPES = (torch.float32, torch.float64)


def fill(module, first):
    """Every tensor of the state dict from the formula, in its order; returns keys with seeds."""
    state = module.state_dict()
    drawn = [{"key": key, "shape": list(value.shape), "seed": first + i} for i, (key, value) in enumerate(state.items())]
    module.load_state_dict({d["key"]: formula.uniform(d["seed"], d["shape"], 1.0).to(state[d["key"]].dtype) for d in drawn})
    return drawn


# --- hooks ------------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """The hidden tensor goes into `second` and around it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        self.hidden = hidden
        if self.on_hidden:
            hidden.register_hook(self.on_hidden)
        return self.second(hidden) + hidden


def hooked(dtype, name):
    model = Net().to(dtype)
    drawn = fill(model, 100)
    x = formula.uniform(90, [5, 3], 1.0).to(dtype).requires_grad_()
    seen = {}
    model.on_hidden = None

    def see(key, *gradients):
        for i, gradient in enumerate(gradients):
            seen[f"{key}{i}"] = gradient.clone()

    if name in ("pre-hook replaces", "all at once"):
        model.second.register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))
        model.second.register_forward_pre_hook(lambda module, args: args[0] + 0.25)
    if name in ("forward hook replaces", "all at once"):
        model.first.register_forward_hook(lambda module, args, output: output + 0.25 * output * output)
        model.first.register_forward_hook(lambda module, args, output: output * args[0].sum())
    if name in ("backward hook sees", "all at once"):
        model.second.register_full_backward_hook(lambda module, given, taken: see("second in", *given) or see("second out", *taken))
        model.register_full_backward_hook(lambda module, given, taken: see("model in", *given) or see("model out", *taken))
    if name in ("backward hook replaces", "all at once"):
        model.second.register_full_backward_hook(lambda module, given, taken: (given[0] * 2 + taken[0],))
        model.second.register_full_backward_hook(lambda module, given, taken: see("after", *given) or (given[0] - 0.5,))
    if name in ("tensor hooks", "all at once"):
        model.on_hidden = lambda gradient: see("hidden", gradient) or gradient.clamp(-0.5, 0.5)
        model.first.weight.register_hook(lambda gradient: gradient * 3)
        model.first.weight.register_hook(lambda gradient: gradient + 1)
    y = model(x)
    (y * y).sum().backward()
    outputs = {"y": y, "dx": x.grad, **{f"d{key}": p.grad for key, p in model.named_parameters()}, **seen}
    return drawn, outputs


def hook_case(name):
    (drawn, single), (_, double) = (hooked(dtype, name) for dtype in DTYPES)
    return {"name": name, "weights": drawn, "outputs": {key: expected(single[key].detach(), double[key].detach()) for key in double}}


# --- spectral normalization -------------------------------------------------------------------------------------------

STEPS = 5
EVAL_AFTER = 3
LR = 0.1


def trained(make, shape, dtype):
    module = make().to(dtype)
    drawn = fill(module, 200)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=0.9)
    results = {}

    def evaluate(name):
        module.eval()
        results[name] = module(formula.uniform(250, shape, 1.0).to(dtype)).detach()
        module.train()

    losses = []
    for step in range(STEPS):
        if step == EVAL_AFTER:
            evaluate("eval midway")
        y = module(formula.uniform(300 + step, shape, 1.0).to(dtype))
        loss = (y * y).mean() + y.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    evaluate("eval")
    results["losses"] = torch.stack(losses)
    results.update({key: value.clone() for key, value in module.state_dict().items()})
    return drawn, results


def spectral_case(name, make, shape):
    (drawn, single), (_, double) = (trained(make, shape, dtype) for dtype in DTYPES)
    return {"name": name, "x": shape, "weights": drawn, "outputs": {key: expected(single[key], double[key]) for key in double}}


def spectral_cases():
    yield spectral_case("Linear", lambda: spectral_norm(nn.Linear(6, 5)), [7, 6])
    yield spectral_case("Linear, 3 iterations along dim 1", lambda: spectral_norm(nn.Linear(6, 5), n_power_iterations=3, dim=1), [7, 6])
    yield spectral_case("Linear, bias alone", lambda: spectral_norm(nn.Linear(6, 5), name="bias"), [7, 6])
    yield spectral_case("Conv2d", lambda: spectral_norm(nn.Conv2d(3, 4, (3, 2), bias=False)), [2, 3, 5, 6])
    yield spectral_case("ConvTranspose2d", lambda: spectral_norm(nn.ConvTranspose2d(4, 3, 3, stride=2)), [2, 4, 3, 4])
    yield spectral_case("Linear, eps", lambda: spectral_norm(nn.Linear(6, 5), eps=2.0), [7, 6])


if __name__ == "__main__":
    names = ["pre-hook replaces", "forward hook replaces", "backward hook sees", "backward hook replaces", "tensor hooks", "all at once"]
    content = json.dumps(
        {
            "made": {**MADE, "by": "tests/golden/modules.py"},
            "hooks": [hook_case(name) for name in names],
            "spectral": {"steps": STEPS, "evalAfter": EVAL_AFTER, "lr": LR, "cases": list(spectral_cases())},
        },
        separators=(",", ":"),
    )
    # One case a line.
    (FOLDER / "modules.json").write_text(content.replace('{"name"', '\n{"name"') + "\n")
    print(len(content), "bytes")
