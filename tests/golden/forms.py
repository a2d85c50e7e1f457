"""Writes forms.json: padding modes, and layers and losses of inputs without a batch axis, as PyTorch computes them.

    /usr/bin/python3 tests/golden/forms.py          (torch 1.13, Debian's python3-torch; the output is committed)

A case is as in elementwise.py; `call` names an entry of the table in tests/values/forms.spec.ts.
"""

import torch
import torch.nn.functional as F
from torch import nn

from elementwise import case, normal
from generate import write_cases

MODES = ("reflect", "replicate", "circular")


def with_weights(module, x, **weights):
    """What the module makes of x with these tensors in place of its parameters."""
    for name, value in weights.items():
        delattr(module, name)
        setattr(module, name, value)
    return module(x)


def padding_cases():
    for mode in MODES:
        for shape, pads in (((2, 2, 5), [2, 3]), ((1, 2, 4, 3), [1, 2, 3, 0]), ((1, 1, 4, 4), [3, 3, 3, 3]), ((1, 1, 3, 3, 2), [1, 0, 0, 2, 2, 1])):
            yield case(f"pad {list(shape)} by {pads}, {mode}", "pad", {"x": normal(*shape)}, lambda x: F.pad(x, pads, mode=mode), {"pads": pads, "mode": mode})
        for padding, kernel, dilation, stride in (((1, 1), (3, 3), 1, 2), ((2, 1), (3, 2), 1, 1), ("same", (4, 3), 1, 1), ("same", (3, 3), 2, 1)):
            options = {"padding": padding, "dilation": dilation, "stride": stride, "paddingMode": mode}
            yield case(
                f"Conv2d {kernel}, padding {padding}, dilation {dilation}, stride {stride}, {mode}",
                "Conv2d",
                {"x": normal(1, 2, 5, 4), "weight": normal(3, 2, *kernel), "bias": normal(3)},
                lambda x, weight, bias: with_weights(nn.Conv2d(2, 3, kernel, stride, padding, dilation, padding_mode=mode), x, weight=weight, bias=bias),
                options,
            )
        for padding in (2, "same"):
            yield case(
                f"Conv1d, padding {padding}, {mode}",
                "Conv1d",
                {"x": normal(1, 2, 7), "weight": normal(3, 2, 4), "bias": normal(3)},
                lambda x, weight, bias: with_weights(nn.Conv1d(2, 3, 4, 1, padding, padding_mode=mode), x, weight=weight, bias=bias),
                {"padding": padding, "paddingMode": mode},
            )


def unbatched_cases():
    x = lambda *shape: {"x": normal(*shape)}
    yield case("conv1d [C, L]", "conv1d", {**x(2, 9), "w": normal(3, 2, 3), "b": normal(3)}, lambda x, w, b: F.conv1d(x, w, b, padding=1), {"padding": 1})
    yield case("conv2d [C, H, W]", "conv2d", {**x(2, 5, 6), "w": normal(3, 2, 3, 3), "b": normal(3)}, lambda x, w, b: F.conv2d(x, w, b, padding=1), {"padding": 1})
    yield case("convTranspose2d [C, H, W]", "convTranspose2d", {**x(2, 4, 3), "w": normal(2, 3, 3, 3), "b": normal(3)}, lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), {"stride": 2})
    yield case("maxPool1d [C, L]", "maxPool1d", x(2, 9), lambda x: F.max_pool1d(x, 2), {"kernel": 2})
    yield case("maxPool2d [C, H, W], indices", "maxPool2d", x(2, 6, 5), lambda x: dict(zip(("y", "indices"), F.max_pool2d(x, 2, return_indices=True))), {"kernel": 2})
    yield case("avgPool1d [C, L]", "avgPool1d", x(2, 9), lambda x: F.avg_pool1d(x, 2), {"kernel": 2})
    yield case("avgPool2d [C, H, W]", "avgPool2d", x(2, 6, 5), lambda x: F.avg_pool2d(x, 2), {"kernel": 2})
    yield case("adaptiveAvgPool1d [C, L]", "adaptiveAvgPool1d", x(2, 9), lambda x: F.adaptive_avg_pool1d(x, 4), {"size": 4})
    yield case("adaptiveAvgPool2d [C, H, W]", "adaptiveAvgPool2d", x(2, 6, 5), lambda x: F.adaptive_avg_pool2d(x, (None, 2)), {"size": [None, 2]})
    for reduction in ("mean", "none"):
        label = lambda: torch.tensor(3)
        o = {"reduction": reduction}
        yield case(f"crossEntropy [C], {reduction}", "crossEntropy", {"input": normal(5), "target": label()}, lambda input, target: F.cross_entropy(input, target, reduction=reduction), o)
        yield case(f"nllLoss [C], {reduction}", "nllLoss", {"input": normal(5), "target": label()}, lambda input, target: F.nll_loss(input, target, reduction=reduction), o)
    yield case("crossEntropy [C] against probabilities", "crossEntropy", {"input": normal(5), "target": normal(5).softmax(0)}, lambda input, target: F.cross_entropy(input, target), {}, ["input"])
    for kind, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        drawn = {"weight_ih_l0": normal(8 * gates, 3), "weight_hh_l0": normal(8 * gates, 8), "bias_ih_l0": normal(8 * gates), "bias_hh_l0": normal(8 * gates)}
        states = {"h0": normal(1, 8), **({"c0": normal(1, 8)} if kind == "LSTM" else {})}

        def sequence(x, h0, c0=None, **weights):
            layer = getattr(torch._VF, {"RNN": "rnn_tanh", "GRU": "gru", "LSTM": "lstm"}[kind])
            first = h0.unsqueeze(1) if c0 is None else (h0.unsqueeze(1), c0.unsqueeze(1))
            out, hn, *cn = layer(x.unsqueeze(1), first, list(weights.values()), True, 1, 0.0, False, False, False)
            return {"y": out.squeeze(1), "hn": hn.squeeze(1), **({"cn": cn[0].squeeze(1)} if cn else {})}

        yield case(f"{kind} [T, F]", kind, {**x(5, 3), **states, **drawn}, sequence)

        def cell(x, h, c=None, **weights):
            step = getattr(torch._VF, {"RNN": "rnn_tanh_cell", "GRU": "gru_cell", "LSTM": "lstm_cell"}[kind])
            first = h.unsqueeze(0) if c is None else (h.unsqueeze(0), c.unsqueeze(0))
            out = step(x.unsqueeze(0), first, *weights.values())
            return (out if c is None else out[0]).squeeze(0)

        cell_states = {"h": normal(8), **({"c": normal(8)} if kind == "LSTM" else {})}
        yield case(f"{kind}Cell [F]", f"{kind}Cell", {**x(3), **cell_states, **{k[:-3]: v for k, v in drawn.items()}}, cell)
    for name, keys in (("to itself", None), ("to other keys, padded", 7)):
        weights = {"w": normal(18, 6, scale=0.5), "b": normal(18), "wo": normal(6, 6, scale=0.5), "bo": normal(6)}
        inputs = {"x": normal(5, 6), **({"key": normal(keys, 6), "padding": torch.tensor([0, 0, 1, 0, 0, 0, 1])} if keys else {})}

        def attend(x, w, b, wo, bo, key=None, padding=None):
            key = x if key is None else key
            return F.multi_head_attention_forward(
                x, key, key, 6, 2, w, b, None, None, False, 0.0, wo, bo,
                key_padding_mask=None if padding is None else padding.bool(), need_weights=False,
            )[0]

        yield case(f"MultiheadAttention [L, E] {name}", "MultiheadAttention", {**inputs, **weights}, attend)


def main():
    torch.manual_seed(43)
    write_cases("forms.json", "forms.py", [*padding_cases(), *unbatched_cases()])


if __name__ == "__main__":
    main()
