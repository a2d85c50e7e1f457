#!/usr/bin/python3
"""Loads a .safetensors file of trained weights into PyTorch and prints what the model makes of images, as JSON.

    check_safetensors.py FILE --model mlp|cnn --data FOLDER        {"keys": [...], "count": ..., "accuracy": ...}
    check_safetensors.py FILE --model mlp|cnn --formula 8          {"keys": [...], "count": 8, "logits": [[...], ...]}
    check_safetensors.py FILE --model mlp|cnn --part model ...     the same of a checkpoint: its tensors "model.…"
    check_safetensors.py --self-test

--data takes the test split of an IDX folder (plain or gzip, MNIST's file names with "test" or "t10k" in them);
--formula takes that many samples of the trajectories' evaluation set (formula.py). --double computes in float64, and
--limit takes only the first images. Logits come with --data too when --logits is given.

The reader of the file is this script's own, so that it shares no mistake with the writer. Needs torch only. The
weights are loaded strictly into torch.nn.Sequential: another key, shape or type is an error.
"""

import argparse
import base64
import gzip
import json
import pathlib
import struct
import sys
import tempfile

import torch

import formula

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
}
PREFIX_BYTES = 8


def models():
    nn = torch.nn
    return {
        "mlp": nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
        "cnn": nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1568, 10),
        ),
    }


def fail(text):
    raise SystemExit(f"check_safetensors: {text}")


def read_safetensors(content):
    """{key: tensor} from a whole file's bytes. Checks what the format promises: no gap, no overlap, no rest."""
    if len(content) < PREFIX_BYTES:
        fail(f"expected a file of at least {PREFIX_BYTES} bytes, got {len(content)}")
    (header_bytes,) = struct.unpack_from("<Q", content)
    start = PREFIX_BYTES + header_bytes
    if start > len(content):
        fail(f"expected a header of {header_bytes} bytes, got a file of {len(content)}")
    header = json.loads(content[PREFIX_BYTES:start].decode("utf-8"))
    header.pop("__metadata__", None)
    tensors = {}
    end_before = 0
    for key, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype = DTYPES.get(entry["dtype"]) or fail(f'{key}: expected a type among {list(DTYPES)}, got {entry["dtype"]}')
        count = 1
        for size in entry["shape"]:
            count *= size
        expected = count * torch.empty(0, dtype=dtype).element_size()
        if begin != end_before or end - begin != expected:
            fail(f"{key}: expected {expected} bytes from {end_before}, got {begin}..{end}")
        data = bytearray(content[start + begin : start + end])
        values = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        tensors[key] = values.reshape(entry["shape"])
        end_before = end
    if start + end_before != len(content):
        fail(f"expected {start + end_before} bytes in all, got {len(content)}")
    # In the order of the header, which is the order in which the file's writer saw them.
    return {key: tensors[key] for key in header}


def part_of(tensors, part):
    """The tensors of one part of a checkpoint, with the keys that the part itself has."""
    return {key[len(part) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{part}.")}


def read_idx(path):
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    zero, kind, rank = struct.unpack_from(">HBB", content)
    if zero != 0 or kind != 8:
        fail(f"{path.name}: expected an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{rank}I", content, 4)
    return torch.frombuffer(bytearray(content[4 + 4 * rank :]), dtype=torch.uint8).reshape(shape)


def read_split(folder):
    def find(part):
        found = [
            path
            for split in ("test", "t10k")
            for path in sorted(folder.glob(f"{split}*{part}*idx*"))
        ]
        return read_idx(found[0]) if found else fail(f"{folder}: expected a test file with {part} in its name, got none")

    images, labels = find("images"), find("labels")
    if len(images) != len(labels):
        fail(f"{folder}: expected as many images as labels, got {len(images)} and {len(labels)}")
    # One division, as the trainer does it: pixels scaled to 0..1 in float32.
    return images.reshape(len(images), -1).float() / 255, labels.long()


def evaluate(tensors, model, images, double):
    """Logits of images (count, 784)."""
    network = models()[model]
    wrong = [key for key, value in tensors.items() if value.dtype != torch.float32]
    if wrong:
        fail(f"expected float32 weights, got others in {wrong}")
    network.load_state_dict(tensors, strict=True)
    dtype = torch.float64 if double else torch.float32
    shaped = images if model == "mlp" else images.reshape(-1, 1, 28, 28)
    with torch.no_grad():
        return network.to(dtype)(shaped.to(dtype))


def report(arguments):
    tensors = read_safetensors(pathlib.Path(arguments.file).read_bytes())
    if arguments.part:
        tensors = part_of(tensors, arguments.part)
    if arguments.formula:
        golden = json.loads((pathlib.Path(__file__).parent / "trajectories.json").read_text())["data"]
        first = golden["evaluation"]["first"]
        images, labels = formula.samples(golden["seeds"], first, arguments.formula)
    elif arguments.data:
        images, labels = read_split(pathlib.Path(arguments.data))
    else:
        fail("expected --data or --formula, got neither")
    if arguments.limit is not None:
        images, labels = images[: arguments.limit], labels[: arguments.limit]
    logits = evaluate(tensors, arguments.model, images, arguments.double)
    result = {
        "keys": list(tensors),
        "count": len(labels),
        "accuracy": (logits.argmax(1) == labels).double().mean().item() if len(labels) else None,
    }
    if arguments.formula or arguments.logits:
        result["logits"] = logits.tolist()
    return result


def write_golden(arguments):
    """FILE's .json: PyTorch's logits of the evaluation samples, in float64 and in float32."""
    arguments.formula, arguments.double = 8, True
    double = report(arguments)
    arguments.double = False
    file = pathlib.Path(arguments.file)
    content = {
        "made": {
            "by": f"tests/golden/check_safetensors.py {file.name} --model {arguments.model} --write-golden",
            "torch": torch.__version__,
        },
        "keys": double["keys"],
        "logits": double["logits"],
        "logits32": report(arguments)["logits"],
    }
    file.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


def self_test():
    """Writes the trajectories' first weights by hand and expects the first logits that are committed for them."""
    golden = json.loads((pathlib.Path(__file__).parent / "trajectories.json").read_text())
    for run in golden["runs"]:
        header, data = {}, b""
        for weight in run["weights"]:
            values = formula.uniform(weight["seed"], weight["shape"], weight["bound"]).flatten().tolist()
            begin = len(data)
            data += struct.pack(f"<{len(values)}f", *values)
            header[weight["key"]] = {"dtype": "F32", "shape": weight["shape"], "data_offsets": [begin, len(data)]}
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
            file.flush()
            arguments = parser().parse_args([file.name, "--model", run["model"], "--formula", "8", "--double"])
            logits = torch.tensor(report(arguments)["logits"], dtype=torch.float64)
        raw = bytearray(base64.b64decode(run["firstLogits"]["data"]))
        expected = torch.frombuffer(raw, dtype=torch.float64).reshape(run["firstLogits"]["shape"])
        assert torch.allclose(logits, expected, rtol=0, atol=1e-12), (run["name"], logits, expected)
    print(f"{len(golden['runs'])} models load and agree")


def parser():
    result = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    result.add_argument("file", nargs="?")
    result.add_argument("--model", choices=["mlp", "cnn"])
    result.add_argument("--data", help="a folder with IDX files; its test split is taken")
    result.add_argument("--formula", type=int, help="how many samples of the evaluation set by formula")
    result.add_argument("--part", help="the part of a checkpoint that is the model")
    result.add_argument("--limit", type=int, help="take only so many images")
    result.add_argument("--logits", action="store_true", help="print logits too")
    result.add_argument("--double", action="store_true", help="compute in float64")
    result.add_argument("--write-golden", action="store_true", help="write the formula's logits beside the file")
    result.add_argument("--self-test", action="store_true")
    return result


if __name__ == "__main__":
    options = parser().parse_args()
    if options.self_test:
        self_test()
    elif not options.file or not options.model:
        fail("expected a file and --model, see --help")
    elif options.write_golden:
        write_golden(options)
    else:
        print(json.dumps(report(options)))
        sys.stdout.flush()
