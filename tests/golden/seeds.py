"""Writes seeds.json: each op again with other inputs, from two further seeds, forward and gradients.

    /usr/bin/python3 tests/golden/seeds.py          (torch 1.13, Debian's python3-torch; the output is committed)

The cases are those of the scripts below, with the same shapes, so that the tests compile nothing for them. Of each function
the small ones are kept, and the smallest at least.
"""

import json

import torch

import attention
import conv_layers
import elementwise
import generate
import pooling
import rnn
import shape
from generate import FOLDER, MADE

SEEDS = (2, 3)


def drawn(seed, *generators):
    """The cases of generators that draw from PyTorch's one generator."""
    torch.manual_seed(1000 * seed)
    return [case for generator in generators for case in generator()]


def pooling_cases(seed):
    pooling.seed = 1000 * seed
    return list(pooling.cases())


def layer_cases(seed):
    conv_layers.SEED = 1000 * seed + 2999
    return [{**case, "dySeed": conv_layers.SEED} for case in conv_layers.layer_cases()]


# By file: its cases of a seed, the function that a case calls, and the most bytes of a case.
FILES = {
    "ops": (lambda seed: list(generate.op_cases(1000 * seed)), lambda case: (case["op"], str(case["attrs"].get("form"))[:1]), 2500),
    "elementwise": (
        lambda seed: drawn(seed, elementwise.elementwise_cases, elementwise.reduction_cases, elementwise.loss_cases),
        lambda case: (case["call"], "weight" in case["inputs"]),
        900,
    ),
    "shape": (lambda seed: drawn(seed, shape.products, shape.contractions, shape.moves), lambda case: case["name"].split()[0], 1400),
    "attention": (lambda seed: list(attention.op_cases(1000 * seed)), lambda case: case["op"], 2500),
    "layers": (layer_cases, lambda case: (case["fn"], case["options"].get("training")), 2500),
    "pooling": (pooling_cases, lambda case: case["op"], 2500),
    "rnn": (lambda seed: list(rnn.cases(1000 * seed)), lambda case: case["name"].split()[0].rstrip(","), 2500),
}


def size(case):
    return len(json.dumps(case, separators=(",", ":")))


def chosen(cases, function_of, most_bytes):
    smallest = {}
    for case in cases:
        known = smallest.setdefault(function_of(case), case)
        if size(case) < size(known):
            smallest[function_of(case)] = case
    return [case for case in cases if size(case) <= most_bytes or case is smallest[function_of(case)]]


def main():
    lines = []
    for name, (cases_of, function_of, most_bytes) in FILES.items():
        by_seed = [chosen(cases_of(seed), function_of, most_bytes) for seed in SEEDS]
        others = [{case["name"]: case["inputs"] for case in cases if "inputs" in case} for cases in reversed(by_seed)]
        for seed, cases, other in zip(SEEDS, by_seed, others):
            # Inputs that are the same for each seed are in the first file already.
            cases = [case for case in cases if "inputs" not in case or other.get(case["name"]) != case["inputs"]]
            lines += [json.dumps({"file": name, "seed": seed, **case}, separators=(",", ":")) for case in cases]
        print(name, [len(cases) for cases in by_seed], sum(len(line) for line in lines))
    made = json.dumps({**MADE, "by": "tests/golden/seeds.py"})
    path = FOLDER / "seeds.json"
    path.write_text(f'{{"made":{made},"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"seeds.json: {path.stat().st_size} bytes, {len(lines)} cases")


if __name__ == "__main__":
    main()
