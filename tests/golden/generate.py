"""Writes the reference values of tests/gpu/golden-*.spec.ts from PyTorch: ops.json, trajectories.json.

    /usr/bin/python3 tests/golden/generate.py          (Debian: apt-get install python3-torch; made with 1.13)

Everything is computed twice from the same float32 inputs, in float32 and in float64. The float64 result is what is
committed, with the distance of PyTorch's own float32 result from it: ours must stay within 8 times that distance.
tests/golden/README.md describes the files.
"""

import base64
import json
import math
import pathlib
import struct
import subprocess
import sys

import torch
import torch.nn.functional as F

import formula

FOLDER = pathlib.Path(__file__).resolve().parent
torch.set_num_threads(1)
MADE = {"by": "tests/golden/generate.py", "torch": torch.__version__.split("a")[0]}


# --- encoding ---------------------------------------------------------------------------------------------------------

FORMATS = {torch.float32: ("f32", "f"), torch.float64: ("f64", "d"), torch.int64: ("i32", "i"), torch.int32: ("i32", "i")}


def encode(tensor):
    """{shape, dtype, data: base64 of the little-endian elements}"""
    dtype, letter = FORMATS[tensor.dtype]
    values = tensor.detach().flatten().tolist()
    data = base64.b64encode(struct.pack(f"<{len(values)}{letter}", *values)).decode()
    return {"shape": list(tensor.shape), "dtype": dtype, "data": data}


def distance(single, double):
    return (single.detach().double() - double.detach()).abs().max().item() if double.numel() else 0.0


def expected(single, double):
    """The float64 result, as float32 where that holds it exactly, and how far PyTorch's float32 result is from it."""
    rounded = double.float()
    is_exact = torch.equal(rounded.double(), double)
    return {**encode(rounded if is_exact else double), "distance": distance(single, double)}


def write(name, content):
    path = FOLDER / name
    path.write_text(json.dumps({"made": MADE, **content}, indent=1) + "\n")
    print(f"{name}: {path.stat().st_size} bytes")


def write_cases(name, script, cases):
    """One case a line."""
    path = FOLDER / name
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    made = json.dumps({**MADE, "by": f"tests/golden/{script}"})
    path.write_text(f'{{"made":{made},"cases":[\n{lines}\n]}}\n')
    print(f"{name}: {path.stat().st_size} bytes, {len(cases)} cases")


# --- ops --------------------------------------------------------------------------------------------------------------


def random(*shape, scale=1.0):
    return torch.randn(shape) * scale


def op_case(name, op, inputs, compute, with_gradient=True, attrs=None):
    """Runs `compute` on the inputs in both precisions; gradients are by every float input, from a drawn dy."""
    results = {}
    first = compute(**inputs)
    dy = random(*first.shape) if with_gradient else None
    for dtype in (torch.float32, torch.float64):
        leaves = {
            key: value.detach().clone().to(dtype).requires_grad_(with_gradient) if value.is_floating_point() else value
            for key, value in inputs.items()
        }
        y = compute(**leaves)
        outputs = {"y": y}
        if with_gradient:
            y.backward(dy.to(dtype))
            outputs.update({f"d{key}": leaf.grad for key, leaf in leaves.items() if leaf.is_floating_point()})
        results[dtype] = outputs
    single, double = results[torch.float32], results[torch.float64]
    return {
        "name": name,
        "op": op,
        "attrs": attrs or {},
        "inputs": {key: encode(value) for key, value in {**inputs, **({"dy": dy} if with_gradient else {})}.items()},
        "outputs": {key: expected(single[key], double[key]) for key in double},
    }


def op_cases(seed=1):
    torch.manual_seed(seed)
    for batch, inner, outer in ((1, 20, 9), (5, 60, 12), (19, 21, 10)):
        yield op_case(
            f"linear, batch {batch}, {inner} to {outer}",
            "linear",
            {"x": random(batch, inner), "w": random(outer, inner, scale=inner**-0.5), "b": random(outer)},
            lambda x, w, b: F.linear(x, w, b),
        )
    yield op_case("relu", "relu", {"x": torch.cat([random(60), torch.zeros(5)])}, lambda x: F.relu(x))
    m, k, n = 11, 23, 13
    for name, a, b, compute in (
        ("nn", (m, k), (k, n), lambda a, b: a @ b),
        ("nt", (m, k), (n, k), lambda a, b: a @ b.T),
        ("tn", (k, m), (k, n), lambda a, b: a.T @ b),
    ):
        yield op_case(f"matmul {name}", "matmul", {"a": random(*a), "b": random(*b)}, compute, attrs={"form": name})
    yield op_case("sum of all", "sum", {"x": random(13, 20)}, lambda x: x.sum(), attrs={"axes": [0, 1]})
    yield op_case("sum of columns", "sum", {"x": random(64, 10)}, lambda x: x.sum(0), attrs={"axes": [0]})
    yield op_case("sum of rows", "sum", {"x": random(4, 150)}, lambda x: x.sum(1), attrs={"axes": [1]})
    yield op_case("broadcast add, row", "add", {"a": random(11, 13), "b": random(13)}, lambda a, b: a + b)
    yield op_case("broadcast add, column", "add", {"a": random(4, 1), "b": random(3, 1, 5)}, lambda a, b: a + b)
    for rows, classes, scale, count in (
        (1, 1, 1, 1),
        (1, 10, 1, 1),
        (40, 10, 1, 40),
        (40, 10, 1, 31),
        (7, 65, 1, 7),
        (12, 10, 1e4, 12),
        (130, 4, 3, 130),
        (3, 150, 30, 3),
    ):
        target = torch.randint(0, classes, (rows,))
        yield op_case(
            f"cross entropy {rows}x{classes}, logits times {scale:g}, {count} counted",
            "crossEntropy",
            {"logits": random(rows, classes, scale=scale), "target": target},
            lambda logits, target, count=count: F.cross_entropy(logits[:count], target[:count]),
            attrs={"count": count},
        )
    for k in (1, 3):
        yield op_case(
            f"top {k} correct",
            "topKCorrect",
            {"logits": random(70, 10), "target": torch.randint(0, 10, (70,))},
            lambda logits, target, k=k: (logits.topk(k).indices == target[:, None]).any(1).sum().to(logits.dtype),
            with_gradient=False,
            attrs={"k": k},
        )


# --- trajectories -----------------------------------------------------------------------------------------------------

DATA_SEEDS = {"levels": 101, "noise": 102, "labels": 103}
EVALUATION = {"first": 1_000_000, "count": 8}
TRAJECTORY_STEPS = 50


def build(model):
    layers = {
        "mlp": lambda: [torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)],
        "cnn": lambda: [
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(1568, 10),
        ],
    }[model]
    return torch.nn.Sequential(*layers())


def formula_weights(model, first_seed):
    """PyTorch's default bound 1/sqrt(fan in) for weight and bias; seeds count up in the state dict's order."""
    fan_in = 1
    entries = []
    for index, (key, value) in enumerate(model.state_dict().items()):
        if key.endswith("weight"):
            fan_in = value[0].numel()
        entries.append(
            {"key": key, "shape": list(value.shape), "seed": first_seed + index, "bound": 1 / math.sqrt(fan_in)}
        )
    return entries


def as_input(model, images):
    return images if model == "mlp" else images.reshape(-1, 1, 28, 28)


def trajectory(name, model, batch_size, optimizer, options):
    weights = formula_weights(build(model), 1000)
    evaluation, _ = formula.samples(DATA_SEEDS, EVALUATION["first"], EVALUATION["count"])
    results = {}
    for dtype in (torch.float32, torch.float64):
        network = build(model).to(dtype)
        network.load_state_dict(
            {w["key"]: formula.uniform(w["seed"], w["shape"], w["bound"]).to(dtype) for w in weights}
        )
        stepper = getattr(torch.optim, optimizer)(network.parameters(), **options)
        evaluate = lambda: network(as_input(model, evaluation.to(dtype))).detach()
        first_logits = evaluate()
        losses = []
        for step in range(TRAJECTORY_STEPS):
            images, labels = formula.samples(DATA_SEEDS, step * batch_size, batch_size)
            stepper.zero_grad()
            loss = F.cross_entropy(network(as_input(model, images.to(dtype))), labels)
            loss.backward()
            stepper.step()
            losses.append(loss.item())
        results[dtype] = (losses, first_logits, evaluate())
    single, double = results[torch.float32], results[torch.float64]
    distances = [abs(a - b) for a, b in zip(single[0], double[0])]
    relative = [d / b for d, b in zip(distances, double[0])]
    print(f"{name}: loss {double[0][0]:.4f} to {double[0][-1]:.4f}, relative distance {max(relative):.2e}, "
          f"final logits {distance(single[2], double[2]):.2e}")
    return {
        "name": name,
        "model": model,
        "batchSize": batch_size,
        "steps": TRAJECTORY_STEPS,
        "optimizer": optimizer,
        "options": options,
        "weights": weights,
        "losses": double[0],
        "losses32": single[0],
        "distances": distances,
        "largestDistance": max(distances),
        "largestRelativeDistance": max(relative),
        "firstLogits": expected(single[1], double[1]),
        "finalLogits": expected(single[2], double[2]),
    }


def main():
    write("ops.json", {"cases": list(op_cases())})
    check_words = formula.words(7, torch.tensor([0, 1, 2, 4_000_000_000])).tolist()
    check_images, check_labels = formula.samples(DATA_SEEDS, EVALUATION["first"], EVALUATION["count"])
    write(
        "trajectories.json",
        {
            "data": {"seeds": DATA_SEEDS, "evaluation": EVALUATION},
            # So that a difference between the two formula files shows as what it is.
            "check": {
                "words": {"seed": 7, "indices": [0, 1, 2, 4_000_000_000], "values": check_words},
                "uniform": {"seed": 1000, "bound": 1 / 28, "values": formula.uniform(1000, [6], 1 / 28).tolist()},
                "labels": check_labels.tolist(),
                "imageSum": check_images.double().mul(255).round().sum().item(),
                "imageHead": check_images[0, :8].tolist(),
            },
            "runs": [
                trajectory("mlp adamw", "mlp", 64, "AdamW", {"lr": 1e-3}),
                trajectory("mlp sgd", "mlp", 64, "SGD", {"lr": 0.1, "momentum": 0.9}),
                trajectory("cnn adamw", "cnn", 32, "AdamW", {"lr": 1e-3}),
            ],
        },
    )


def main_of_all():
    """Every script of this folder that writes a .json file, this one included."""
    scripts = ["amp", "amp_layers", "attention", "attention_bias", "attention_maps", "attention_masks", "bench", "checkpoint", "clip_norms", "conv", "conv_layers", "corners", "decode", "distributed", "edges", "elementwise", "forms", "images", "input_gradients", "lora", "model_file", "modules", "optim", "optim_late", "pooling", "rnn", "sampler", "seeds", "shape", "store", "sync_batch_norm", "torchrun_flags"]
    for script in scripts:
        subprocess.run([sys.executable, FOLDER / f"{script}.py"], check=True)
    main()


if __name__ == "__main__":
    main_of_all() if sys.argv[1:] == ["--all"] else main()
