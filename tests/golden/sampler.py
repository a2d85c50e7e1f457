#!/usr/bin/python3
"""Writes sampler.json: what PyTorch's DistributedSampler gives over a grid of sizes, ranks, and options.

Run: /usr/bin/python3 tests/golden/sampler.py   (needs PyTorch; the committed file came from 1.13)

Each case holds the order before sharing: range(n) without shuffle, PyTorch's own permutation with it.
"""

import json
import pathlib

import torch
from torch.utils.data import DistributedSampler

cases = []
for length in [0, 1, 2, 3, 5, 8, 13]:
    for replicas in [1, 2, 3, 4, 7]:
        for drop_last in [False, True]:
            samplers = [
                DistributedSampler(range(length), num_replicas=replicas, rank=rank, shuffle=False, drop_last=drop_last)
                for rank in range(replicas)
            ]
            cases.append({
                "shuffle": False,
                "order": list(range(length)),
                "numReplicas": replicas,
                "dropLast": drop_last,
                "length": len(samplers[0]),
                "totalSize": samplers[0].total_size,
                "indices": [list(sampler) for sampler in samplers],
            })

for length, replicas, drop_last, seed, epoch in [(10, 4, False, 0, 0), (10, 4, False, 0, 1), (11, 3, True, 5, 2), (2, 5, False, 1, 0)]:
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    order = torch.randperm(length, generator=generator).tolist()
    rows = []
    for rank in range(replicas):
        sampler = DistributedSampler(range(length), num_replicas=replicas, rank=rank, seed=seed, drop_last=drop_last)
        sampler.set_epoch(epoch)
        rows.append(list(sampler))
    cases.append({
        "shuffle": True,
        "order": order,
        "numReplicas": replicas,
        "dropLast": drop_last,
        "length": len(sampler),
        "totalSize": sampler.total_size,
        "indices": rows,
    })

target = pathlib.Path(__file__).with_suffix(".json")
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
target.write_text(f'{{"torch":"{torch.__version__}","cases":[\n{lines}\n]}}\n')
print(f"{target}: {len(cases)} cases, {target.stat().st_size} bytes")
