#!/usr/bin/python3
"""Writes npy.json: files of NumPy in every version, order, byte order and type, and the numbers in them.

Run: /usr/bin/python3 tests/golden/npy.py      (NumPy 1.24, Debian's python3-numpy; the output is committed)
"""

import base64
import io
import json
import pathlib
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")  # versions 2 and 3 are newer than some readers


def encode(data):
    return base64.b64encode(data).decode()


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def case(name, array, **options):
    flat = [int(x) if array.dtype.kind in "iub" else float(x) for x in array.flatten(order="C")]
    # JSON has no other numbers.
    values = [x if np.isfinite(x) else str(x) for x in flat]
    return {"name": name, "file": encode(npy(array, **options)), "shape": list(array.shape), "values": values}


def edges(dtype):
    """Numbers at the ends of a type, as far as 32 bits hold them."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, False, True, True, False], kind)
    if kind.kind == "f":
        info = np.finfo(kind)
        return np.array([info.max, -info.tiny, info.tiny / 2, -0.0, np.inf, np.nan], kind)
    narrow = np.dtype(kind.kind + str(min(kind.itemsize, 4)))
    info = np.iinfo(narrow)
    return np.array([info.min, info.max, 0, 1, info.max // 3, info.min // 5], kind)


def npz(**arrays):
    out = {}
    for name, save in [("stored", np.savez), ("deflated", np.savez_compressed)]:
        file = io.BytesIO()
        save(file, **arrays)
        out[name] = encode(file.getvalue())
    return out


def refused(name, array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return {"name": name, "file": encode(file.getvalue())}


def main():
    cases = []
    for code in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]:
        for order in "<>":
            array = edges(np.dtype(code).newbyteorder(order)).reshape(2, 3)
            cases.append(case(f"{array.dtype.str}", array))
    cube = np.arange(24, dtype="<f4").reshape(2, 3, 4) / 8
    for version in [(1, 0), (2, 0), (3, 0)]:
        cases.append(case(f"version {version[0]}", cube, version=version))
    for name, array in [
        ("Fortran order, 2 dimensions", np.asfortranarray(np.arange(6, dtype="<i2").reshape(2, 3))),
        ("Fortran order, 3 dimensions", np.asfortranarray(cube)),
        ("Fortran order, 4 dimensions, big-endian", np.asfortranarray(np.arange(120, dtype=">i8").reshape(2, 3, 4, 5))),
        ("Fortran order, sizes of 1", np.asfortranarray(np.arange(6, dtype="u1").reshape(1, 3, 1, 2))),
        ("a number alone", np.array(2.5, "<f8")),
        ("one dimension", np.arange(5, dtype="<u2")),
        ("no elements", np.zeros((0, 3), "<f4")),
        ("no elements in Fortran order", np.asfortranarray(np.zeros((2, 0, 3), "<f4"))),
    ]:
        cases.append(case(name, array))
    no = [
        refused("complex", np.zeros(2, "<c8")),
        refused("objects", np.array([{"a": 1}, None], object)),
        refused("texts", np.array(["cat", "dog"])),
        refused("bytes", np.array([b"cat"])),
        refused("dates", np.array(["2024-01-01"], "<M8[D]")),
        refused("records", np.zeros(2, [("x", "<f4"), ("y", "<i4")])),
        refused("raw bytes", np.zeros(2, "V2")),
        refused("i8 that does not fit", np.array([1, 2**31], "<i8")),
        refused("negative i8 that does not fit", np.array([[1], [-(2**31) - 1]], ">i8")),
        refused("u8 that does not fit", np.array([2**64 - 1], "<u8")),
    ]
    if np.dtype(np.longdouble).itemsize > 8:
        no.append(refused("long doubles", np.zeros(2, np.longdouble)))
    x = np.arange(32, dtype="u1").reshape(2, 4, 4)
    target = pathlib.Path(__file__).with_suffix(".json")
    target.write_text(json.dumps({
        "numpy": np.__version__,
        "cases": cases,
        "refused": no,
        "npz": npz(x_train=x, y_train=np.array([7, 3]), names=np.array(["a", "b"])),
    }, indent=1) + "\n")
    print(f"{target}: {len(cases)} cases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
