"""Updates in float32, one rounding per operation, by PyTorch's own elementwise kernels: the oracle of src/optim/exact/arithmetic.ts.

Writes exact-update.json: SHA-256 of the bits of all tensors after three updates of 2^20 elements, drawn over all finite float32 numbers,
denormals and zeros of both signs among them. NaN, whose bits are not specified, counts as 0x7fc00000.
"""

import hashlib
import json
import math
import struct
from pathlib import Path

import torch

COUNT = 2**20
STEPS = 3


def mix(z):
    """Wellons' lowbias32 of int64 tensors that hold 32 bits."""
    z = z ^ (z >> 16)
    z = (z * 0x7FEB352D) & 0xFFFFFFFF
    z = z ^ (z >> 15)
    z = (z * 0x846CA68B) & 0xFFFFFFFF
    return z ^ (z >> 16)


def drawn(seed, non_negative=False):
    """Float32 numbers of any finite bit pattern."""
    words = mix(torch.arange(COUNT, dtype=torch.int64) + seed * COUNT)
    is_special = (words & 0x7F800000) == 0x7F800000
    words = torch.where(is_special, words & 0x807FFFFF, words)
    if non_negative:
        words = words & 0x7FFFFFFF
    signed = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return torch.frombuffer(bytearray(signed.numpy().tobytes()), dtype=torch.float32).clone()


def f32(x):
    return torch.tensor(x, dtype=torch.float32)


def digest(*tensors):
    sha = hashlib.sha256()
    for tensor in tensors:
        tensor = torch.where(torch.isnan(tensor), f32(float("nan")), tensor)
        words = torch.frombuffer(bytearray(tensor.numpy().tobytes()), dtype=torch.int32)
        words = torch.where(torch.isnan(tensor), torch.tensor(0x7FC00000, dtype=torch.int32), words)
        sha.update(words.numpy().tobytes())
    return sha.hexdigest()


def adam():
    lr, beta1, beta2, eps, weight_decay = 1e-3, 0.9, 0.999, 1e-8, 0.01
    param, m, v = drawn(1), drawn(2), drawn(3, non_negative=True)
    power1 = power2 = 1.0
    for step in range(STEPS):
        grad = drawn(10 + step)
        power1, power2 = power1 * beta1, power2 * beta2
        left1, left2 = 1 - power1, 1 - power2
        m = f32(beta1) * m + f32(1 - beta1) * grad
        v = f32(beta2) * v + f32(1 - beta2) * (grad * grad)
        move = f32((lr * math.sqrt(left2)) / left1) * m / (v.sqrt() + f32(eps * math.sqrt(left2)))
        param = f32(1 - lr * weight_decay) * param - move
    return digest(param, m, v)


def sgd():
    param, buffer = drawn(1), drawn(2)
    for step in range(STEPS):
        buffer = f32(0.9) * buffer + drawn(10 + step)
        param = param - f32(0.05) * buffer
    return digest(param, buffer)


torch.set_flush_denormal(False)
assert struct.pack("<f", float(f32(1e-45))) != b"\0\0\0\0"
result = {"count": COUNT, "steps": STEPS, "adam": adam(), "sgd": sgd()}
Path(__file__).with_name("exact-update.json").write_text(json.dumps(result, indent=2) + "\n")
print(result)
