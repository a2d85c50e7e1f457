#!/usr/bin/python3
"""Continues from checkpoint.safetensors, which this library saved, in PyTorch, and writes checkpoint.json: what PyTorch makes of the next step.

Run: npx tsx tests/golden/make_checkpoint.ts && /usr/bin/python3 tests/golden/checkpoint.py      (torch 1.13; the output is committed)

Model, optimizer and scheduler are PyTorch's own and take their states by load_state_dict, strictly and without any renaming.
"""
import json
import struct

import torch

from check_safetensors import part_of, read_safetensors
from generate import FOLDER, expected, write

CONTENT = (FOLDER / "checkpoint.safetensors").read_bytes()


def tree():
    """What the file says beside its tensors, with them in their places."""
    (header_bytes,) = struct.unpack_from("<Q", CONTENT)
    metadata = json.loads(CONTENT[8 : 8 + header_bytes])["__metadata__"]
    tensors = read_safetensors(CONTENT)

    def place(value):
        if isinstance(value, list):
            return [place(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$tensor" in value:
            return tensors[value["$tensor"]]
        return {key: place(item) for key, item in value.items()}

    return place(json.loads(metadata["tabring"])["state"])


def parts():
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))
    first, *others = model.parameters()
    groups = [{"params": [first], "lr": 1.0}, {"params": others}]
    optimizer = torch.optim.AdamW(groups, lr=1.0)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)


def go_on(dtype):
    state = tree()
    model, optimizer, scheduler = parts()
    model.load_state_dict(part_of(read_safetensors(CONTENT), "model"), strict=True)
    model.to(dtype)
    saved = state["optimizer"]
    # JSON's keys are texts.
    saved["state"] = {int(index): entry for index, entry in saved["state"].items()}
    optimizer.load_state_dict(saved)
    scheduler.load_state_dict(state["scheduler"])
    x, y = (state["next"][name].to(dtype) for name in ("x", "y"))
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    results = {"loss": loss.detach(), **{f"model.{key}": value for key, value in model.state_dict().items()}}
    for index, entry in optimizer.state_dict()["state"].items():
        results |= {f"optimizer.{index}.{name}": entry[name] for name in ("step", "exp_avg", "exp_avg_sq")}
    return results, [group["lr"] for group in optimizer.param_groups], state


def main():
    double, rates, state = go_on(torch.float64)
    single, _, _ = go_on(torch.float32)
    write(
        "checkpoint.json",
        {
            "keys": sorted(part_of(read_safetensors(CONTENT), "model")),
            "step": state["step"],
            "rates": rates,
            "results": {key: expected(single[key].float(), double[key].double()) for key in double},
        },
    )


if __name__ == "__main__":
    main()
