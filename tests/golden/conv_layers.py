"""Writes conv-layers.json and resnet50.json: convolution, pooling and batch-norm layers as PyTorch computes them, two trajectories, ResNet's keys.

    /usr/bin/python3 tests/golden/conv_layers.py          (torch 1.13, Debian's python3-torch; the output is committed)

Inputs are formula.py's numbers, so the file holds results alone: PyTorch's in float64, with the distance of its float32 from them.
torchvision is not needed: ResNet below is its module tree in plain torch, checked against its published numbers of parameters.
"""

import json
import math

import torch
import torch.nn.functional as F
from torch import nn

import formula
from generate import DATA_SEEDS, EVALUATION, FOLDER, expected


# --- layers -----------------------------------------------------------------------------------------------------------

BOUND = 2.0
# Of dy; those of the inputs follow. seeds.py changes it.
SEED = 2999


def layer_case(name, fn, shapes, compute, options=None, state=(), steps=1):
    """`shapes` by name, drawn from seeds that count up; `state` names those that have no gradient and may change in place."""
    inputs = {key: {"shape": list(shape), "seed": SEED + 1 + i} for i, (key, shape) in enumerate(shapes.items())}
    results = {}
    for dtype in (torch.float32, torch.float64):
        leaves = {}
        for key, drawn in inputs.items():
            value = formula.uniform(drawn["seed"], drawn["shape"], BOUND).to(dtype)
            if key == "running_var":
                value = value.abs() + 1
            leaves[key] = value if key in state else value.requires_grad_()
        for _ in range(steps):
            y = compute(**leaves)
        dy = formula.uniform(SEED, y.shape, BOUND)
        y.backward(dy.to(dtype))
        outputs = {"y": y}
        outputs.update({key if key in state else f"d{key}": leaf if key in state else leaf.grad for key, leaf in leaves.items()})
        results[dtype] = outputs
    single, double = results[torch.float32], results[torch.float64]
    return {
        "name": name,
        "fn": fn,
        "options": options or {},
        "inputs": inputs,
        "state": list(state),
        "steps": steps,
        "outputs": {key: expected(single[key], double[key]) for key in double},
    }


def conv(name, x, w, b, **options):
    """`options` in PyTorch's names, which are ours but for capitals."""
    fn = {3: "conv1d", 4: "conv2d"}[len(x)]
    return layer_case(
        name, fn, {"x": x, "w": w, "b": b}, lambda x, w, b: getattr(F, fn)(x, w, b, **options), options
    )


def transposed(name, x, w, b, **options):
    ours = {("outputPadding" if key == "output_padding" else key): value for key, value in options.items()}
    return layer_case(
        name, "convTranspose2d", {"x": x, "w": w, "b": b}, lambda x, w, b: F.conv_transpose2d(x, w, b, **options), ours
    )


def pool(name, fn, theirs, x, kernel, **options):
    names = {"ceil_mode": "ceilMode", "count_include_pad": "countIncludePad"}
    return layer_case(
        name,
        fn,
        {"x": x},
        lambda x: getattr(F, theirs)(x, kernel, **options),
        {"kernel": kernel, **{names.get(key, key): value for key, value in options.items()}},
    )


def batch_norm(name, x, training, momentum=0.1, steps=1):
    features = [x[1]]

    def compute(x, weight, bias, running_mean, running_var):
        # The mean over all batches is PyTorch's with the share 1 / number of batches, counted from 1.
        compute.batches += 1
        share = 1 / compute.batches if momentum is None else momentum
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, share, 1e-5)

    def counted(**leaves):
        if compute.batches == steps:
            compute.batches = 0
        return compute(**leaves)

    compute.batches = 0
    shapes = {"x": x, "weight": features, "bias": features, "running_mean": features, "running_var": features}
    return layer_case(
        name,
        "batchNorm",
        shapes,
        counted,
        {"training": training, "momentum": momentum},
        state=("running_mean", "running_var"),
        steps=steps,
    )


def layer_cases():
    yield conv("conv2d, dilation 2x1, stride 1x2, padding", [2, 3, 7, 8], [4, 3, 3, 3], [4], stride=[1, 2], padding=[2, 1], dilation=[2, 1])
    yield conv("conv2d, 2 groups", [2, 4, 6, 5], [6, 2, 3, 2], [6], padding=1, groups=2)
    yield conv("conv2d, depthwise, stride 2", [2, 5, 8, 7], [5, 1, 3, 3], [5], stride=2, padding=1, groups=5)
    yield conv("conv2d, same, even kernel", [1, 2, 6, 7], [3, 2, 4, 2], [3], padding="same")
    yield conv("conv2d, same, dilation 2", [1, 2, 6, 7], [3, 2, 3, 3], [3], padding="same", dilation=2)
    yield conv("conv2d, valid", [2, 2, 5, 6], [3, 2, 3, 3], [3], padding="valid")
    yield conv("conv1d, stride 2, padding 1", [3, 4, 17], [5, 4, 3], [5], stride=2, padding=1)
    yield conv("conv1d, dilation 3, 2 groups, same", [2, 4, 19], [4, 2, 3], [4], padding="same", dilation=3, groups=2)
    yield transposed("convTranspose2d, stride 2, output padding", [2, 4, 4, 3], [4, 3, 3, 3], [3], stride=2, padding=1, output_padding=1)
    yield transposed("convTranspose2d, 2 groups, dilation 2", [2, 4, 4, 5], [4, 2, 3, 2], [4], stride=[1, 2], padding=[2, 0], dilation=[2, 1], groups=2)
    yield transposed("convTranspose2d, kernel 4, stride 2", [2, 3, 4, 3], [3, 2, 4, 4], [2], stride=2, padding=1)
    yield pool("avgPool2d, padding counts not", "avgPool2d", "avg_pool2d", [2, 3, 7, 8], [3, 2], stride=2, padding=1, count_include_pad=False)
    yield pool("avgPool2d, ceil mode, padding counts", "avgPool2d", "avg_pool2d", [2, 2, 8, 7], 3, stride=2, padding=1, ceil_mode=True)
    yield pool("adaptiveAvgPool2d, 7x10 to 3x4", "adaptiveAvgPool2d", "adaptive_avg_pool2d", [2, 3, 7, 10], [3, 4])
    yield pool("adaptiveAvgPool2d, to one", "adaptiveAvgPool2d", "adaptive_avg_pool2d", [2, 5, 5, 6], 1)
    yield pool("maxPool1d", "maxPool1d", "max_pool1d", [2, 3, 15], 3, stride=2, padding=1)
    yield pool("avgPool1d", "avgPool1d", "avg_pool1d", [2, 3, 15], 4, stride=3, padding=1, ceil_mode=True)
    yield pool("adaptiveAvgPool1d", "adaptiveAvgPool1d", "adaptive_avg_pool1d", [2, 3, 11], 4)
    yield batch_norm("batchNorm of features, training", [33, 5], True)
    yield batch_norm("batchNorm of N C L, training, mean over batches", [4, 3, 7], True, momentum=None, steps=3)
    yield batch_norm("batchNorm of images, training, 2 steps", [3, 4, 5, 6], True, momentum=0.3, steps=2)
    yield batch_norm("batchNorm of images, evaluation", [2, 3, 4, 5], False)


# --- models -----------------------------------------------------------------------------------------------------------


def conv3x3(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, channels, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inputs, channels, stride), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2, self.bn2 = conv3x3(channels, channels), nn.BatchNorm2d(channels)
        self.downsample = downsample

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, channels, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = conv3x3(channels, channels, stride), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = nn.Conv2d(channels, 4 * channels, 1, bias=False), nn.BatchNorm2d(4 * channels)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def forward(self, x):
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(out)) + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, block, depths, classes=1000, small=False, width=64):
        super().__init__()
        self.inputs = width
        self.conv1 = conv3x3(3, width) if small else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        for i, depth in enumerate(depths):
            setattr(self, f"layer{i + 1}", self.stage(block, width * 2**i, depth, 1 if i == 0 else 2))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.inputs, classes)

    def stage(self, block, channels, depth, stride):
        blocks = []
        for i in range(depth):
            step, outputs = stride if i == 0 else 1, channels * block.expansion
            downsample = None
            if step != 1 or self.inputs != outputs:
                downsample = nn.Sequential(
                    nn.Conv2d(self.inputs, outputs, 1, step, bias=False), nn.BatchNorm2d(outputs)
                )
            blocks.append(block(self.inputs, channels, step, downsample))
            self.inputs = outputs
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


RESNETS = {
    "resnet18": (BasicBlock, [2, 2, 2, 2], 11_689_512),
    "resnet34": (BasicBlock, [3, 4, 6, 3], 21_797_672),
    "resnet50": (Bottleneck, [3, 4, 6, 3], 25_557_032),
}
KEYS_WIDTH = 4


def resnet_keys():
    for name, (block, depths, published) in RESNETS.items():
        count = sum(p.numel() for p in ResNet(block, depths).parameters())
        assert count == published, f"{name}: torchvision publishes {published} parameters, this has {count}"
        state = ResNet(block, depths, width=KEYS_WIDTH).state_dict()
        yield {"name": name, "parameters": published, "state": [f"{k} {list(v.shape)}" for k, v in state.items()]}


# --- trajectories -----------------------------------------------------------------------------------------------------


def cnn_with_batch_norm():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 10),
    )


def formula_weights(model):
    """Uniform in +-1/sqrt(fan in), seeds counting up; batch norms keep ones and zeros."""
    entries, fan_in = [], 1
    for i, (key, value) in enumerate(model.state_dict().items()):
        if value.dim() >= 2:
            fan_in = value[0].numel()
        elif not (key.endswith("bias") and f"{key[:-4]}running_mean" not in model.state_dict()):
            continue
        entries.append({"key": key, "shape": list(value.shape), "seed": 5000 + i, "bound": 1 / math.sqrt(fan_in)})
    return entries


def digits(step, batch):
    images, labels = formula.samples(DATA_SEEDS, step * batch, batch)
    return images.reshape(-1, 1, 28, 28), labels


def colours(step, batch, side=32):
    labels = formula.words(7000, torch.arange(step * batch, (step + 1) * batch)) >> 29
    images = formula.uniform(8000 + step, [batch, 3, side, side], 1.0)
    # The label shows as the brightness of a channel, so that there is something to learn.
    images = images + (labels % 4).float().reshape(-1, 1, 1, 1) * 0.25
    return images, labels


def trajectory(name, make, data, batch, steps, options, evaluation):
    weights = formula_weights(make())
    results = {}
    for dtype in (torch.float32, torch.float64):
        network = make()
        network.load_state_dict(
            {w["key"]: formula.uniform(w["seed"], w["shape"], w["bound"]) for w in weights}, strict=False
        )
        network.to(dtype).train()
        stepper = torch.optim.SGD(network.parameters(), **options)
        losses = []
        for step in range(steps):
            images, labels = data(step, batch)
            stepper.zero_grad()
            loss = F.cross_entropy(network(images.to(dtype)), labels)
            loss.backward()
            stepper.step()
            losses.append(loss.item())
        network.eval()
        state = network.state_dict()
        results[dtype] = (losses, network(evaluation.to(dtype)).detach(), state)
    single, double = results[torch.float32], results[torch.float64]
    distances = [abs(a - b) for a, b in zip(single[0], double[0])]
    print(f"{name}: loss {double[0][0]:.4f} to {double[0][-1]:.4f}, largest distance {max(distances):.2e}")
    kept = [key for key in double[2] if "running" in key and double[2][key].numel() <= 64][:4]
    return {
        "name": name,
        "batchSize": batch,
        "steps": steps,
        "options": options,
        "weights": weights,
        "losses": double[0],
        "distances": distances,
        "finalLogits": expected(single[1], double[1]),
        "finalState": {key: expected(single[2][key], double[2][key]) for key in kept},
    }


# Its rate is a small one: at five times that, from about the 16th step on, rounding alone moves the loss in the fourth digit (PyTorch's float32
# leaves its float64 at the 23rd).
RESNET_WIDTH = 8


def trajectories():
    digits_evaluation, _ = formula.samples(DATA_SEEDS, EVALUATION["first"], EVALUATION["count"])
    yield trajectory(
        "cnn with batch norm", cnn_with_batch_norm, digits, 16, 50, {"lr": 0.01, "momentum": 0.9},
        digits_evaluation.reshape(-1, 1, 28, 28),
    )
    yield {
        **trajectory(
            "resnet18 on 32x32",
            lambda: ResNet(BasicBlock, [2, 2, 2, 2], classes=8, small=True, width=RESNET_WIDTH),
            colours, 4, 50, {"lr": 0.0001, "momentum": 0.9}, formula.uniform(9000, [4, 3, 32, 32], 1.0),
        ),
        "width": RESNET_WIDTH,
    }
    # As torchvision has it. The last stage is one pixel, so one unit that float32 puts on the other side of a ReLU moves the third digit
    # of the next loss: three steps at a rate where no float32 reaches one.
    yield trajectory(
        "resnet18 of full width", lambda: ResNet(BasicBlock, [2, 2, 2, 2], classes=8), colours, 8, 3,
        {"lr": 0.002, "momentum": 0.9}, formula.uniform(9000, [4, 3, 32, 32], 1.0),
    )


def deep_trajectory():
    """Bottlenecks and torchvision's 7x7 stem: a separate file, so that each stays small."""
    run = trajectory(
        "resnet50 of width 4", lambda: ResNet(Bottleneck, [3, 4, 6, 3], classes=8, width=4), lambda step, batch: colours(step, batch, 128), 4, 2,
        {"lr": DEEP_RATE, "momentum": 0.9}, formula.uniform(9000, [2, 3, 128, 128], 1.0),
    )
    content = json.dumps({"made": MADE, "trajectories": [run]}, separators=(",", ":"))
    (FOLDER / "resnet50.json").write_text(content.replace('},{"key"', '},\n{"key"') + "\n")
    print(len(content), "bytes")


# As for the full resnet18: a size and a rate at which no float32 puts a unit on the other side of a ReLU in two steps.
DEEP_RATE = 0.00002
MADE = {"by": "tests/golden/conv_layers.py", "torch": torch.__version__.split("a")[0]}

if __name__ == "__main__":
    deep_trajectory()
    content = json.dumps(
        {
            "made": MADE,
            "bound": BOUND,
            "layers": list(layer_cases()),
            "keysWidth": KEYS_WIDTH,
            "resnets": list(resnet_keys()),
            "trajectories": list(trajectories()),
        },
        separators=(",", ":"),
    )
    # One case a line.
    (FOLDER / "conv-layers.json").write_text(content.replace('},{"name"', '},\n{"name"') + "\n")
    print(len(content), "bytes")
