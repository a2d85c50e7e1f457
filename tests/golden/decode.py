"""Writes decode.json: small PNG and JPEG files and the pixels that Pillow's convert('RGB') makes of them, as torchvision's folders do.

Run: /usr/bin/python3 tests/golden/decode.py      (Pillow 9.4, Debian's python3-pil; the output is committed)

The PNG files are made here, byte by byte, because Pillow writes neither interlaced ones nor every depth and filter.
"""
import base64
import io
import json
import pathlib
import struct
import zlib

import torch
from PIL import Image

import formula

FOLDER = pathlib.Path(__file__).resolve().parent
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, contents):
    return struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(name + contents))


def paeth(a, b, c):
    pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def filtered(rows, distance, first):
    """the five filters in turn, row by row"""
    out = b""
    above = bytes(len(rows[0])) if rows else b""
    for index, row in enumerate(rows):
        kind = (first + index) % 5
        out += bytes([kind])
        for i, value in enumerate(row):
            a = row[i - distance] if i >= distance else 0
            b = above[i]
            c = above[i - distance] if i >= distance else 0
            out += bytes([(value - [0, a, b, (a + b) // 2, paeth(a, b, c)][kind]) & 255])
        above = row
    return out


def pack(samples, depth):
    """samples of one row, left ones uppermost"""
    if depth == 16:
        return b"".join(struct.pack(">H", s) for s in samples)
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def png(seed, width, height, depth, colour, interlaced=False, extra=()):
    per = SAMPLES[colour]
    words = formula.words(seed, torch.arange(width * height * per)) >> (32 - depth)
    pixels = [[words[(y * width + x) * per : (y * width + x + 1) * per].tolist() for x in range(width)] for y in range(height)]
    if colour in (4, 6):
        # Transparent, half transparent, opaque, and alpha as it comes.
        for y in range(height):
            for x in range(width):
                top = 2**depth - 1
                pixels[y][x][-1] = [0, top // 2, top, pixels[y][x][-1]][(x + y) % 4]
    distance = max(1, per * depth // 8)
    data = b""
    for x0, y0, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        rows = [pack([s for p in pixels[y][x0::dx] for s in p], depth) for y in range(y0, height, dy)]
        if rows and rows[0]:
            data += filtered(rows, distance, 1)
    packed = zlib.compress(data)
    half = len(packed) // 2
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*one) for one in extra)
            + chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:]) + chunk(b"IEND", b""))


def case(name, file, **more):
    image = Image.open(io.BytesIO(file)).convert("RGB")
    return {"name": name, "file": base64.b64encode(file).decode(), "height": image.height, "width": image.width,
            "rgb": base64.b64encode(image.tobytes()).decode(), **more}


def jpeg(orientation):
    """four quarters of even colour, so that decoders agree within a few levels but a turned picture is far off"""
    image = Image.new("RGB", (32, 16))
    quarters = [(230, 40, 40), (40, 200, 60), (50, 60, 220), (240, 230, 60)]
    image.putdata([quarters[(y >= 8) * 2 + (x >= 16)] for y in range(16) for x in range(32)])
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95, subsampling=0, exif=exif)
    return out.getvalue()


def main():
    cases = []
    for colour, kind in [(0, "grey"), (2, "RGB"), (3, "palette"), (4, "grey with alpha"), (6, "RGB with alpha")]:
        for depth in {0: [1, 2, 4, 8], 2: [8, 16], 3: [1, 2, 4, 8], 4: [8, 16], 6: [8, 16]}[colour]:
            for interlaced in [False, True]:
                seed = 500 + colour * 40 + depth * 2 + interlaced
                extra = []
                if colour == 3:
                    words = formula.words(seed + 1000, torch.arange(3 * 2**depth)) >> 24
                    extra = [(b"PLTE", bytes(words.tolist())), (b"tRNS", bytes(range(2**depth)))]
                file = png(seed, 11, 7, depth, colour, interlaced, extra)
                cases.append(case(f"{kind}, {depth} bits{', interlaced' if interlaced else ''}", file))
    cases.append(case("RGB with a transparent colour", png(900, 5, 4, 8, 2, extra=[(b"tRNS", bytes(6))])))
    cases.append(case("a gamma of 1", png(901, 5, 4, 8, 6, extra=[(b"gAMA", struct.pack(">I", 100000))])))
    for colour, kind in [(0, "grey"), (2, "RGB"), (4, "grey with alpha"), (6, "RGB with alpha")]:
        for depth in [8, 16] if colour else [8]:
            extra = [(b"PLTE", bytes([200, 0, 0, 0, 200, 91])), (b"hIST", bytes(4)), (b"tRNS", bytes(6))]
            cases.append(case(f"{kind}, {depth} bits, with a palette", png(910 + colour + depth, 5, 4, depth, colour, extra=extra)))
    extra = [(b"PLTE", bytes(range(12))), (b"tRNS", bytes(7)), (b"tEXt", b"no end of its name")]
    cases.append(case("RGB with chunks that are malformed", png(940, 5, 4, 8, 2, extra=extra[1:])))
    cases.append(case("more transparency than palette", png(941, 5, 4, 2, 3, extra=extra[:2])))
    frames = [Image.open(io.BytesIO(png(950 + i, 5, 4, 8, 2))) for i in range(2)]
    moving = io.BytesIO()
    frames[0].save(moving, "PNG", save_all=True, append_images=frames[1:])
    cases.append(case("an animation's first picture", moving.getvalue()))
    exif = Image.Exif()
    exif[0x0112] = 6
    cases.append(case("a rotation", png(902, 5, 4, 8, 6, extra=[(b"eXIf", exif.tobytes()[6:])])))
    for width, height in [(1, 1), (2, 1), (1, 3), (4, 5)]:
        cases.append(case(f"{width} x {height} interlaced", png(903 + width, width, height, 8, 6, True)))
    photos = [case(f"orientation {orientation}", jpeg(orientation)) for orientation in [1, 3, 6, 8]]
    path = FOLDER / "decode.json"
    made = {"by": "tests/golden/decode.py", "pillow": getattr(Image, "__version__", "9.4")}
    path.write_text(json.dumps({"made": made, "png": cases, "jpeg": photos}, indent=1) + "\n")
    print(path, path.stat().st_size, "bytes")


main()
