#!/usr/bin/python3
"""Writes batch-norm-f32.safetensors, -f16 and -bf16 (a model with batch normalization, as torch saves it) and batch-norm.json.

Run: /usr/bin/python3 tests/golden/model_file.py      (torch 1.13, Debian's python3-torch; the output is committed)

The floating-point tensors of a file are rounded to its type; `num_batches_tracked` is int64 in all. The json holds what each file's numbers
are in float32, and what a model with them computes in evaluation.
"""
import torch

import formula
from generate import FOLDER, encode, expected, write
from safetensors_file import write as write_file

X = formula.uniform(31, [5, 6], 2.0)


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    ).eval()


def state():
    weights = model().state_dict()
    for seed, (key, value) in enumerate(weights.items()):
        if value.dtype == torch.float32:
            weights[key] = formula.uniform(100 + seed, list(value.shape), 1.0)
    weights["1.running_var"] = weights["1.running_var"].abs() + 0.5
    # A subnormal number of float16.
    weights["1.running_mean"][0] = 3e-6
    weights["1.num_batches_tracked"] = torch.tensor(4321)
    return weights


def case(name, dtype):
    tensors = {key: value.to(dtype) if value.is_floating_point() else value for key, value in state().items()}
    write_file(FOLDER / f"batch-norm-{name}.safetensors", tensors, {"format": "pt"})

    def logits(compute):
        net = model().to(compute)
        net.load_state_dict({key: value.to(compute) if value.is_floating_point() else value for key, value in tensors.items()})
        with torch.no_grad():
            return net(X.to(compute))

    return {
        "name": name,
        "state": {key: encode(value.float()) for key, value in tensors.items() if value.is_floating_point()},
        "logits": expected(logits(torch.float32), logits(torch.float64)),
    }


def bits(dtype):
    """16-bit patterns with what torch makes of them in float32."""
    patterns = torch.tensor([0, -0x8000, 1, 0x03FF, 0x0400, 0x3C01, 0x7BFF, 0x7C00, 0x7F80, -0x0400, -0x0080, -0x43FF], dtype=torch.int16)
    return {"bits": [value & 0xFFFF for value in patterns.tolist()], "values": [repr(v) for v in patterns.view(dtype).float().tolist()]}


if __name__ == "__main__":
    write(
        "batch-norm.json",
        {
            "x": encode(X),
            "batches": 4321,
            "files": [case("f32", torch.float32), case("f16", torch.float16), case("bf16", torch.bfloat16)],
            "halves": {"F16": bits(torch.float16), "BF16": bits(torch.bfloat16)},
        },
    )
