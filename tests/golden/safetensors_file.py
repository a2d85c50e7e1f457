#!/usr/bin/python3
"""A safetensors reader and writer of a few lines, independent of Tabring's, over torch tensors.

    safetensors_file.py check FILE    reads FILE with torch and compares it with the tensors that expected() makes
    safetensors_file.py write FILE    writes those tensors (python.safetensors, committed, came from PyTorch 1.13)

`from safetensors_file import read` gives {name: tensor} for other scripts.
"""

import json
import struct
import sys

import torch

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}


def read(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
        else:
            tensors[name] = torch.frombuffer(data[begin:end], dtype=dtype).reshape(entry["shape"])
    return tensors


def metadata(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size)).get("__metadata__", {})


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        # numpy has no bfloat16.
        plain = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        raw = plain.contiguous().numpy().tobytes()
        dtype = next(key for key, value in DTYPES.items() if value == tensor.dtype)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def expected():
    """The tensors that tests/unit/data/safetensors.spec.ts makes too; every value is exact in float32."""
    ramp = lambda count: torch.tensor([((i * 37) % 101 - 50) / 8 for i in range(count)], dtype=torch.float32)
    return {
        "0.weight": ramp(15).reshape(5, 3),
        "0.bias": ramp(5) * 2,
        "steps": torch.tensor(-7, dtype=torch.int32),
        "große \"Namen\"": torch.tensor([2**40, -1], dtype=torch.int64),
        "empty": torch.empty([0, 4], dtype=torch.float32),
        "pixels": torch.arange(7, dtype=torch.uint8) * 41,
    }


def check(path):
    got, want = read(path), expected()
    assert set(got) == set(want), (sorted(got), sorted(want))
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, (name, got[name])
        assert torch.equal(got[name], tensor), (name, got[name], tensor)
    assert metadata(path) == {"format": "pt"}, metadata(path)
    print(f"{path}: {len(want)} tensors equal (torch {torch.__version__})")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        write(sys.argv[2], expected(), {"format": "pt"})
