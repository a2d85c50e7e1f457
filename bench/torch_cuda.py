"""Times PyTorch on a CUDA device: the training steps and products that `npm run bench` times in WebGPU.

    PYTHONPATH=tests/golden python3 bench/torch_cuda.py

Prints one JSON object a row. float32 without TF32, eager. As our page does, each step uploads its batch and reads its loss.
units: ms a step, GFLOP/s.
"""

import json
import statistics
import time

import torch
import torch.nn.functional as F

import attention
from bench import ADAM, image_batch, text_batch
from generate import build

WARM_UP, ROUNDS, STEPS = 20, 9, 24
CUBES = (256, 512, 1024, 2048, 4096)


def step_times(network, batches):
    """Median, lowest and highest time of a step over the rounds."""
    network = network.float().cuda()
    stepper = torch.optim.Adam(network.parameters(), lr=ADAM["lr"])

    def step(inputs, targets):
        inputs, targets = inputs.cuda(), targets.cuda()
        stepper.zero_grad()
        # The GPT makes its positions itself.
        with torch.device("cuda"):
            logits = network(inputs)
        loss = F.cross_entropy(logits.reshape(len(targets), -1), targets)
        loss.backward()
        stepper.step()
        return loss.item()

    for i in range(WARM_UP):
        step(*batches[i % len(batches)])
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(STEPS):
            step(*batches[i % len(batches)])
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start) / STEPS)
    return times


def product_rates(size):
    a, b = torch.randn(size, size, device="cuda"), torch.randn(size, size, device="cuda")
    count = max(10, min(500, int(2e11 / size**3)))
    rates = []
    for round_ in range(ROUNDS + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            a @ b
        end.record()
        end.synchronize()
        if round_ > 0:
            rates.append(2 * size**3 * count / start.elapsed_time(end) / 1e6)
    return rates


def report(name, unit, values):
    middle = statistics.median(values)
    print(json.dumps({"row": name, "unit": unit, "median": middle, "lowest": min(values), "highest": max(values)}), flush=True)


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for name in ("mlp", "cnn"):
        batches = [(images.float(), labels) for images, labels in (image_batch(name, i) for i in range(8))]
        report(f"{name} step", "ms", step_times(build(name), batches))
    report("gpt step", "ms", step_times(attention.Gpt(), [text_batch(i) for i in range(8)]))
    for size in CUBES:
        report(f"matmul {size}^3", "GFLOP/s", product_rates(size))
