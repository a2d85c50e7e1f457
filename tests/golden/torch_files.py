#!/usr/bin/python3
"""Writes torch-files/*.pt, files of torch.save of every form, and torch-files.json with what torch.load gives for them.

Run: /usr/bin/python3 tests/golden/torch_files.py      (torch 1.13, Debian's python3-torch; the output is committed)

It also loads what make_torch_files.ts wrote of those values, tabring-tensors.pt, tabring-values.pt and a run's tabring-run.pt. `--resnet18 FILE [WIDTH]` writes a file with the keys and shapes of torchvision's resnet18 alone.
"""
import argparse
import collections
import io
import pickle
import sys
import zipfile

import numpy
import torch

import formula
from conv_layers import BasicBlock, ResNet
from generate import FOLDER, expected, write

OUT = FOLDER / "torch-files"


class Odd(torch.nn.Linear):
    """A class that only the program that saved it has."""


def plain(value):
    """A value as JSON: what the reader should give for it."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach().contiguous()
        data = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        return {
            "dtype": str(value.dtype).replace("torch.", ""),
            "shape": list(value.shape),
            "bytes": data.numpy().tobytes().hex(),
        }
    if isinstance(value, numpy.ndarray):
        return plain(torch.from_numpy(value.astype(value.dtype.newbyteorder("="))))
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(one) for one in value)
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, (torch.dtype, torch.device, torch.layout)):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return {"int": str(value)}
    return value


def uniform(seed, shape):
    return formula.uniform(seed, shape, 1.0)


def tensors():
    base = uniform(1, [4, 6])
    tied = uniform(2, [3])
    return collections.OrderedDict(
        f32=uniform(3, [2, 3]),
        f64=uniform(4, [3]).double(),
        f16=uniform(5, [3]).half(),
        bf16=uniform(6, [3]).bfloat16(),
        i64=torch.tensor([2**40, -1]),
        i32=torch.tensor([[7], [-8]], dtype=torch.int32),
        i16=torch.tensor([-300], dtype=torch.int16),
        i8=torch.tensor([-5, 5], dtype=torch.int8),
        u8=torch.tensor([200, 0], dtype=torch.uint8),
        bool=torch.tensor([True, False, True]),
        scalar=torch.tensor(1.5),
        empty=torch.zeros(0, 3),
        transposed=base.T,
        part=base[1:3, ::2],
        row=base[2],
        expanded=torch.tensor([2.5]).expand(2, 3),
        permuted=uniform(7, [2, 3, 4]).permute(2, 0, 1),
        half_transposed=uniform(8, [2, 3]).half().T,
        tied_a=tied,
        tied_b=tied,
        parameter=torch.nn.Parameter(uniform(9, [2])),
        **{"__proto__": torch.tensor([3.0])},
    )


def values():
    noted = torch.nn.Parameter(torch.ones(1))
    noted.note = "attributes are not kept"
    return {
        "none": None,
        "flags": [True, False],
        "ints": [0, 255, 65535, -1, 2**31 - 1, -(2**40), 2**53, 2**70, -(2**70)],
        "floats": [0.1, -0.0, 1e300],
        "texts": ["", "é", "long" * 100],
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "sets": [{3}, frozenset([4, 5]), set()],
        "bytes": [b"", b"a\xff", bytearray(b"xy"), bytes(300)],
        "dicts": [{}, {1: "one"}, collections.Counter("aab"), collections.defaultdict(list, {"a": [1]})],
        "size": torch.Size([2, 3]),
        "kinds": [torch.float16, torch.complex64, torch.device("cpu"), torch.device("cuda:1"), torch.strided],
        "numpy": [numpy.float64(1.5), numpy.float32(0.25), numpy.int64(-3), numpy.bool_(True), numpy.float16(0.5)],
        "arrays": [
            numpy.arange(6, dtype=numpy.int16).reshape(2, 3),
            numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
            numpy.arange(2, dtype=">f4"),
        ],
        "noted": noted,
        "storage": torch.tensor([1.0, 2.0]).storage(),
    }


def storage_sizes(content):
    """The size of an element of each storage, by its key."""
    sizes = {}

    class Reader(pickle.Unpickler):
        def persistent_load(self, given):
            _, kind, key, _, length = given
            sizes[key] = torch.empty(0, dtype=kind.dtype).element_size()
            return torch.empty(length, dtype=kind.dtype).storage()

    Reader(io.BytesIO(content)).load()
    return sizes


def as_big_endian(name, to):
    """The same file as a machine of the other byte order writes it: PyTorch 2.1 and later name the order."""
    with zipfile.ZipFile(OUT / f"{name}.pt") as source, zipfile.ZipFile(OUT / f"{to}.pt", "w") as target:
        keys = storage_sizes(source.read(f"{name}/data.pkl"))
        for entry in source.namelist():
            data = source.read(entry)
            if "/data/" in entry:
                size = keys[entry.split("/")[-1]]
                data = b"".join(data[at : at + size][::-1] for at in range(0, len(data), size))
            target.writestr(entry, data)
        target.writestr(f"{name}/byteorder", "big")


def refused():
    ns = argparse.Namespace(lr=0.1, layers=[1, 2])
    model = Odd(2, 1)
    torch.save(model, OUT / "whole-model.pt")
    torch.save(model, OUT / "whole-model-legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": torch.nn.Linear(2, 1).state_dict(), "args": ns, "c": torch.ones(1, dtype=torch.complex64)}, OUT / "with-args.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 1)), OUT / "program.pt")


def resnet18(width, classes):
    """A model with torchvision's structure, and with statistics and counts that are not those it begins with."""
    model = ResNet(BasicBlock, [2, 2, 2, 2], width=width, classes=classes).eval()
    weights = model.state_dict()
    for seed, (key, value) in enumerate(weights.items()):
        if value.dtype == torch.float32:
            weights[key] = formula.uniform(300 + seed, list(value.shape), 1.0 if value.dim() == 1 else 2 / value[0].numel() ** 0.5)
        if key.endswith("running_var"):
            weights[key] = weights[key].abs() + 0.5
        if key.endswith("num_batches_tracked"):
            weights[key] = torch.tensor(seed)
    model.load_state_dict(weights)
    return model


def small_resnet18():
    model = resnet18(1, 3)
    torch.save(model.state_dict(), OUT / "resnet18.pth")
    x = formula.uniform(299, [2, 3, 32, 32], 1.0)
    with torch.no_grad():
        return {"seed": 299, "shape": list(x.shape), "logits": expected(model(x), model.double()(x.double()))}


def trained():
    """A checkpoint as training scripts save them, with an object of another class in it."""
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    checkpoint = {
        "epoch": 3,
        "best_acc1": torch.tensor(75.0),
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(checkpoint, OUT / "checkpoint.pth")
    unread = {"args": argparse.Namespace(lr=0.01), "turns": torch.ones(1, dtype=torch.complex64)}
    torch.save({**checkpoint, **unread}, OUT / "checkpoint-with-args.pth")
    return plain(checkpoint)


def refused():
    torch.save(Odd(2, 1), OUT / "whole-model.pt")
    torch.save(Odd(2, 1), OUT / "whole-model-legacy.pt", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 1)), OUT / "program.pt")


def check_ours():
    """torch.load reads what `writeTorch` wrote: with the restricted reader, and what one needs the other reader for."""
    if not (OUT / "tabring-tensors.pt").exists():
        return None
    tensors = torch.load(OUT / "tabring-tensors.pt", weights_only=True)
    values = torch.load(OUT / "tabring-values.pt")
    assert tensors["tied_a"].data_ptr() == tensors["tied_b"].data_ptr()
    run = torch.load(OUT / "tabring-run.pt")
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
    model.load_state_dict(run["state_dict"])
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.load_state_dict(run["optimizer"])
    scheduler.load_state_dict(run["scheduler"])
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.state_dict()["state"][0]["step"] == 2 and scheduler.get_last_lr() == [0.05]
    return {"tensors": plain(tensors), "values": plain(values), "run": plain(run)}


def main():
    OUT.mkdir(exist_ok=True)
    legacy = {"_use_new_zipfile_serialization": False}
    torch.save(tensors(), OUT / "tensors.pt")
    torch.save(tensors(), OUT / "tensors-legacy.pt", **legacy)
    as_big_endian("tensors", "tensors-big-endian")
    for protocol in (2, 3, 4, 5):
        torch.save(values(), OUT / f"values-{protocol}.pt", pickle_protocol=protocol)
    torch.save(values(), OUT / "values-legacy.pt", **legacy)
    refused()
    write(
        "torch-files.json",
        {
            "tensors": plain(tensors()),
            "values": plain({**values(), "storage": torch.tensor([1.0, 2.0])}),
            "checkpoint": trained(),
            "resnet18": small_resnet18(),
            "ours": check_ours(),
        },
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--resnet18"]:
        torch.save(resnet18(int(sys.argv[3]) if len(sys.argv) > 3 else 64, 1000).state_dict(), sys.argv[2])
    else:
        main()
