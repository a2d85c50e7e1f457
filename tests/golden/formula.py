"""Numbers that Python and TypeScript compute the same, bit for bit: weights, images and labels for the trajectories.

tests/support/formula-data.ts holds the same formulas; tests/golden/README.md states them. Needs torch only.
"""

import torch

WORD = 0xFFFFFFFF

IMAGE_SIDE = 28
PIXELS = IMAGE_SIDE * IMAGE_SIDE
CLASSES = 10
CELL_SIDE = 7
CELLS_ACROSS = IMAGE_SIDE // CELL_SIDE
CELLS = CELLS_ACROSS * CELLS_ACROSS


def mix(z):
    """lowbias32 (Chris Wellons) on int64 tensors or ints that hold 32-bit words; low words survive int64 overflow."""
    z = ((z ^ (z >> 16)) * 0x7FEB352D) & WORD
    z = ((z ^ (z >> 15)) * 0x846CA68B) & WORD
    return z ^ (z >> 16)


def words(seed, indices):
    """Word number i of the stream `seed`: mix(mix(seed) ^ i)."""
    return mix(mix(seed) ^ indices)


def uniform(seed, shape, bound):
    """float32 numbers in [-bound, bound): ((word >> 8) / 2^23 - 1) * bound, in float64, rounded once."""
    count = 1
    for size in shape:
        count *= size
    unit = (words(seed, torch.arange(count)) >> 8).double() / 2**23 - 1
    return (unit * bound).float().reshape(shape)


def samples(seeds, first, count):
    """Images (count, 784) as float32 in 0..1 and labels (count,) of samples first .. first + count.

    Each 7x7 cell of an image has a level 0..191, each pixel noise 0..63 on top; the label is the largest of ten
    linear functions of the levels with whole weights -8..7, so that it is exact.
    """
    numbers = torch.arange(first, first + count).unsqueeze(1)
    levels = ((words(seeds["levels"], numbers * CELLS + torch.arange(CELLS)) >> 24) * 3) >> 2
    noise = words(seeds["noise"], numbers * PIXELS + torch.arange(PIXELS)) >> 26
    pixel = torch.arange(PIXELS)
    cell = (pixel // IMAGE_SIDE // CELL_SIDE) * CELLS_ACROSS + pixel % IMAGE_SIDE // CELL_SIDE
    images = ((levels[:, cell] + noise).double() / 255).float()
    weights = (words(seeds["labels"], torch.arange(CLASSES * CELLS)) >> 28).reshape(CLASSES, CELLS) - 8
    scores = (levels - 96) @ weights.T
    # The first of equal scores: torch.argmax promises no order among ties.
    is_top = scores == scores.max(dim=1, keepdim=True).values
    order = torch.arange(CLASSES).expand(count, CLASSES)
    labels = torch.where(is_top, order, torch.full_like(order, CLASSES)).min(dim=1).values
    return images, labels
