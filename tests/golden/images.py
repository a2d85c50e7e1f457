"""Writes images.json: Pillow's bilinear scaling and torchvision's crops, which the transforms repeat byte for byte.

Run: /usr/bin/python3 tests/golden/images.py      (Pillow 9.4, Debian's python3-pil; the output is committed)

Pixels come from formula.py's words, so that the file holds the results alone. torchvision is not in Debian's torch: its centre crop
and the output size of its Resize are the few lines of torchvision 0.14 below.
"""
import base64
import json
import pathlib

import torch
from PIL import Image

import formula

FOLDER = pathlib.Path(__file__).resolve().parent


def picture(seed, height, width, channels):
    words = formula.words(seed, torch.arange(height * width * channels)) >> 24
    data = bytes(words.tolist())
    return Image.frombytes("RGB" if channels == 3 else "L", (width, height), data)


def encode(image):
    return {
        "height": image.height,
        "width": image.width,
        "data": base64.b64encode(image.tobytes()).decode(),
    }


def resize(image, size):
    """torchvision.transforms.functional.resize of a PIL image, bilinear"""
    if isinstance(size, int):
        w, h = image.size
        short, long = (w, h) if w <= h else (h, w)
        new_short, new_long = size, int(size * long / short)
        w, h = (new_short, new_long) if w <= h else (new_long, new_short)
    else:
        h, w = size
    return image.resize((w, h), Image.BILINEAR)


def center_crop(image, size):
    """torchvision.transforms.functional.center_crop of a PIL image"""
    height, width = (size, size) if isinstance(size, int) else size
    if width > image.width or height > image.height:
        left = (width - image.width) // 2 if width > image.width else 0
        top = (height - image.height) // 2 if height > image.height else 0
        padded = Image.new(image.mode, (max(width, image.width), max(height, image.height)))
        padded.paste(image, (left, top))
        image = padded
    top = int(round((image.height - height) / 2.0))
    left = int(round((image.width - width) / 2.0))
    return image.crop((left, top, left + width, top + height))


def main():
    cases = []
    for index, (height, width, channels, size) in enumerate(
        [(17, 23, 3, 8), (23, 17, 3, 8), (9, 9, 1, [20, 31]), (40, 12, 3, [5, 12]), (12, 40, 1, 12), (1, 1, 3, 3), (64, 48, 3, 10)]
    ):
        image = picture(300 + index, height, width, channels)
        cases.append({"op": "resize", "seed": 300 + index, "height": height, "width": width, "channels": channels,
                      "size": size, "result": encode(resize(image, size))})
    for index, (height, width, size) in enumerate([(9, 12, 5), (10, 11, [4, 4]), (5, 8, [8, 4]), (3, 3, 6), (7, 7, 7)]):
        image = picture(400 + index, height, width, 3)
        cases.append({"op": "centerCrop", "seed": 400 + index, "height": height, "width": width, "channels": 3,
                      "size": size, "result": encode(center_crop(image, size))})
    path = FOLDER / "images.json"
    path.write_text(json.dumps({"made": {"by": "tests/golden/images.py", "pillow": Image.__version__ if hasattr(Image, "__version__") else "9.4"}, "cases": cases}, indent=1) + "\n")
    print(path, path.stat().st_size, "bytes")


main()
