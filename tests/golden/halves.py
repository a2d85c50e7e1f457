"""What PyTorch's autocast does to a graph in float16, on any device and in any dtype that computes it."""

import torch


class Operand(torch.autograd.Function):
    """A float16 copy of a tensor; the gradient by the copy is the gradient by the tensor."""

    @staticmethod
    def forward(context, x):
        return x.half().to(x.dtype)

    @staticmethod
    def backward(context, dy):
        return dy


class Stored(torch.autograd.Function):
    """A result that is float16, as is the gradient by it."""

    @staticmethod
    def forward(context, x):
        return x.half().to(x.dtype)

    @staticmethod
    def backward(context, dy):
        return dy.half().to(dy.dtype)


operand, stored = Operand.apply, Stored.apply


def rounded(tensor):
    """The numbers of a tensor, short enough for JSON and exact as float32."""
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]
