#!/usr/bin/python3
"""Writes distributed.json: what torch.distributed's calls give on 4 ranks of gloo, with the arguments that are left out as defaults,
and what they give to ranks outside of a group.

Run: /usr/bin/python3 tests/golden/distributed.py   (needs PyTorch; the committed file came from 1.13)

Each case has one result a rank. tests/unit/distributed/golden.spec.ts makes the same calls. Beside them stand the names that a user may
type: functions of torch.distributed, parameters of two classes, flags of torchrun and torch.distributed.launch;
tests/unit/docs/pytorch-distributed.spec.ts holds docs/reference/pytorch.md against them.
"""

import inspect
import json
import pathlib
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.launch
import torch.distributed.run
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

SIZE = 4
# The splits of PyTorch's own documentation of all_to_all_single.
INPUT_SPLITS = [[2, 2, 1, 1], [3, 2, 2, 2], [2, 1, 1, 1], [2, 2, 2, 1]]
OUTPUT_SPLITS = [[INPUT_SPLITS[source][rank] for source in range(SIZE)] for rank in range(SIZE)]


def floats(*values):
    return torch.tensor([float(value) for value in values])


def empty(count=2):
    return torch.zeros(count)


def told(tensors):
    return [tensor.tolist() for tensor in tensors]


def gather(rank):
    out = [empty() for _ in range(SIZE)] if rank == 0 else None
    dist.gather(floats(rank, 10 * rank), out)
    return told(out) if out else None


def scatter(rank):
    out = empty()
    parts = [floats(to, 7) for to in range(SIZE)] if rank == 0 else None
    dist.scatter(out, parts)
    return out.tolist()


def all_to_all_single(rank):
    out = empty(SIZE)
    dist.all_to_all_single(out, floats(*[10 * rank + to for to in range(SIZE)]))
    return out.tolist()


def all_to_all_single_uneven(rank):
    sent = floats(*[10 * rank + at for at in range(sum(INPUT_SPLITS[rank]))])
    out = empty(sum(OUTPUT_SPLITS[rank]))
    dist.all_to_all_single(out, sent, OUTPUT_SPLITS[rank], INPUT_SPLITS[rank])
    return out.tolist()


def all_to_all_single_some(rank):
    """Split sizes on some ranks alone: the others take and send equal parts."""
    sent = floats(*[10 * rank + at for at in range(4)])
    out = empty([5, 3, 4, 4][rank])
    takes = [[2, 1, 1, 1], [0, 1, 1, 1], None, []][rank]
    dist.all_to_all_single(out, sent, takes, [2, 0, 1, 1] if rank == 0 else None)
    return out.tolist()


def all_gather_object(rank):
    out = [None] * SIZE
    returned = dist.all_gather_object(out, {"rank": rank, "names": ["ä"] * rank})
    return [out, returned]


def gather_object(rank):
    out = [None] * SIZE if rank == 0 else None
    dist.gather_object([rank, "x" * rank], out)
    return out


def broadcast_object_list(rank):
    objects = [{"a": 1}, "two", [3]] if rank == 0 else [None] * 3
    dist.broadcast_object_list(objects)
    return objects


def scatter_object_list(rank):
    out = [None, "stays"]
    dist.scatter_object_list(out, [["for", to] for to in range(SIZE)] if rank == 0 else None)
    return out


def batch_isend_irecv(rank):
    out = empty()
    ops = [
        dist.P2POp(dist.isend, floats(rank, 5), (rank + 1) % SIZE),
        dist.P2POp(dist.irecv, out, (rank + SIZE - 1) % SIZE),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out.tolist()


def recv(rank):
    if rank == 0:
        dist.send(floats(4, 2), 3)
    out = empty()
    source = dist.recv(out, 0) if rank == 3 else None
    return [out.tolist(), source]


def group_of_all(rank):
    group = dist.new_group()
    return [dist.get_rank(group), dist.get_world_size(group)]


def groups(rank):
    group = dist.new_group([3, 1])
    out = floats(rank)
    returned = dist.all_reduce(out, group=group)
    objects = [None] * 2
    dist.all_gather_object(objects, rank, group=group)
    ranks = [dist.get_rank(group), dist.get_world_size(group)]
    isOutside = group == dist.GroupMember.NON_GROUP_MEMBER
    got = dist.recv(empty(), 1, group=group) if isOutside else None
    dist.all_reduce(world := floats(rank), group=None)
    return [isOutside, ranks, out.tolist(), returned, objects, got, world.tolist()]


def refuses(call):
    try:
        call()
    except (AssertionError, KeyError, RuntimeError):
        return True
    return False


def destroy_group(rank):
    """What is left of a group's handle, of another group of the same ranks and of all ranks' own."""
    first, second = dist.new_group(), dist.new_group()
    dist.destroy_process_group(first)
    gone = [refuses(lambda: dist.get_rank(first)), refuses(lambda: dist.destroy_process_group(first))]
    dist.all_reduce(there := floats(rank), group=second)
    dist.all_reduce(world := floats(rank))
    return [gone, dist.get_rank(second), there.tolist(), world.tolist()]


CASES = [
    gather,
    scatter,
    all_to_all_single,
    all_to_all_single_uneven,
    all_to_all_single_some,
    all_gather_object,
    gather_object,
    broadcast_object_list,
    scatter_object_list,
    batch_isend_irecv,
    recv,
    group_of_all,
    groups,
    destroy_group,
]


def play(rank, folder):
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=SIZE)
    results = {case.__name__: case(rank) for case in CASES}
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def parameters(kind):
    return [name for name in inspect.signature(kind.__init__).parameters if name != "self"]


def flags(parser):
    return sorted(max(action.option_strings, key=len) for action in parser._actions if action.option_strings)


def names():
    functions = [name for name, value in vars(dist).items() if inspect.isfunction(value) and not name.startswith("_")]
    launch = inspect.getsource(torch.distributed.launch)
    return {
        "functions": sorted(functions),
        "DistributedDataParallel": parameters(DistributedDataParallel),
        "DistributedSampler": parameters(DistributedSampler),
        "init_process_group": list(inspect.signature(dist.init_process_group).parameters),
        "new_group": list(inspect.signature(dist.new_group).parameters),
        "torchrun": flags(torch.distributed.run.get_args_parser()),
        "launch": [flag for flag in ["--use_env"] if flag in launch],
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(play, args=(folder,), nprocs=SIZE)
        ranks = [json.loads(pathlib.Path(folder, f"{rank}.json").read_text()) for rank in range(SIZE)]
    cases = {case.__name__: [results[case.__name__] for results in ranks] for case in CASES}
    target = pathlib.Path(__file__).with_suffix(".json")
    lines = ",\n".join(f'"{name}":{json.dumps(result, ensure_ascii=False, separators=(",", ":"))}' for name, result in cases.items())
    told = ",\n".join(f'"{name}":{json.dumps(found, separators=(",", ":"))}' for name, found in names().items())
    target.write_text(f'{{"torch":"{torch.__version__}","cases":{{\n{lines}\n}},"names":{{\n{told}\n}}}}\n')
    print(f"{target}: {len(cases)} cases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
