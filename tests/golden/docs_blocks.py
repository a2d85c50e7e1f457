#!/usr/bin/python3
"""Runs the Python blocks of the documentation on files that Tabring saved, and writes docs-blocks.json: each block with the keys it loaded.

Run: npm run train -- --nproc-per-node 2 --epochs 1 --out /tmp/model.safetensors
     /usr/bin/python3 tests/golden/docs_blocks.py /tmp/model.safetensors      (torch 1.13, torchvision 0.14; the output is committed)

Where the package safetensors is missing, as in Debian, `load_file` is the reader of check_safetensors.py.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import types

import torch

from check_safetensors import read_safetensors

FOLDER = pathlib.Path(__file__).parent
DOCS = FOLDER.parent.parent / "docs"


def provide_safetensors():
    package, module = types.ModuleType("safetensors"), types.ModuleType("safetensors.torch")
    module.load_file = lambda path: read_safetensors(pathlib.Path(path).read_bytes())
    package.torch = module
    sys.modules.update({"safetensors": package, "safetensors.torch": module})


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)


def checkpoint_model():
    nn = torch.nn
    return nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


def write_photos():
    """Two classes of noisy pictures, and the environment of a single rank."""
    import torchvision

    generator = torch.Generator().manual_seed(0)
    for name, channel in (("red", 0), ("blue", 2)):
        os.makedirs(f"photos/{name}")
        for i in range(16):
            pixels = (torch.rand(3, 24, 24, generator=generator) * 60).to(torch.uint8)
            pixels[channel] = 255 - pixels[channel]
            torchvision.io.write_png(pixels, f"photos/{name}/{i}.png")
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")


def main():
    try:
        import safetensors.torch
    except ImportError:
        provide_safetensors()
    trained = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shutil.copy(trained, "model.safetensors")
        shutil.copy(FOLDER.resolve() / "checkpoint.safetensors", "step-1200.safetensors")
        write_photos()
        ran = []
        pages = {
            "get-started.md": {},
            "guides/checkpoints.md": {"model": checkpoint_model()},
            "guides/split.md": {},
            "reference/pytorch.md": {},
        }
        for page, given in pages.items():
            import safetensors.torch

            names = {"safetensors": safetensors, "torch": torch, **given}
            for text in blocks(page):
                # This machine has no GPU: the devices that a block names are its CPU.
                exec(compile(re.sub("cuda:[01]", "cpu", text), page, "exec"), names)
                ran.append({"page": page, "text": text, "keys": list(names["model"].state_dict())})
    (FOLDER.resolve() / "docs-blocks.json").write_text(json.dumps(ran, indent=1) + "\n")


main()
