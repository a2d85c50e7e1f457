"""Writes rnn.json: cells, recurrent layers, packed sequences and an LSTM's training, as PyTorch computes them.

Run: /usr/bin/python3 tests/golden/rnn.py      (torch 1.13, Debian's python3-torch; the output is committed)

Each result is PyTorch's in float64 from float32 numbers, with the distance of its own float32 result. The loss is the sum of every
result times drawn numbers, so that all of them have gradients.
"""
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from generate import distance, encode, expected, write


def both(compute):
    """The results of `compute(dtype)`, a dict of tensors, in float64 with PyTorch's own distance."""
    single, double = compute(torch.float32), compute(torch.float64)
    return {key: expected(single[key], double[key]) for key in double}


def drawn_weights(module):
    return {key: torch.randn(value.shape) * 0.4 for key, value in module.state_dict().items()}


def case(name, make, x, states, lengths=None, batch_first=False, total_length=None):
    """`make` returns a module; `states` are h0 (and c0)."""
    weights = drawn_weights(make())
    coefficients = {}

    def compute(dtype):
        module = make().to(dtype)
        module.load_state_dict({key: value.to(dtype) for key, value in weights.items()})
        leaves = [value.to(dtype).clone().requires_grad_() for value in (x, *states)]
        own, state = leaves[0], leaves[1] if len(states) == 1 else tuple(leaves[1:])
        results = {}
        if isinstance(module, torch.nn.RNNCellBase):
            last = module(own, state)
            last = last if isinstance(last, tuple) else (last,)
        else:
            given = own
            if lengths is not None:
                given = pack_padded_sequence(own, lengths, batch_first=batch_first, enforce_sorted=False)
            y, last = module(given, state)
            if lengths is not None:
                y, _ = pad_packed_sequence(y, batch_first=batch_first, total_length=total_length)
            results["y"] = y
            last = last if isinstance(last, tuple) else (last,)
        results.update(dict(zip(("hn", "cn"), last)))
        loss = 0
        for key, value in results.items():
            if key not in coefficients:
                coefficients[key] = torch.randn(value.shape)
            loss = loss + (value * coefficients[key].to(dtype)).sum()
        loss.backward()
        results.update({f"d{key}": leaf.grad for key, leaf in zip(("x", "h0", "c0"), leaves)})
        results.update({f"d:{key}": parameter.grad for key, parameter in module.named_parameters()})
        return results

    outputs = both(compute)
    return {
        "name": name,
        "x": encode(x),
        "states": [encode(state) for state in states],
        "lengths": lengths,
        "weights": {key: encode(value) for key, value in weights.items()},
        "coefficients": {key: encode(value) for key, value in coefficients.items()},
        "outputs": outputs,
    }


def cases(seed=31):
    torch.manual_seed(seed)
    B, I, H = 3, 5, 6
    x, h, c = torch.randn(B, I), torch.randn(B, H), torch.randn(B, H)
    yield case("RNNCell", lambda: torch.nn.RNNCell(I, H), x, [h])
    yield case("RNNCell relu", lambda: torch.nn.RNNCell(I, H, nonlinearity="relu"), x, [h])
    yield case("GRUCell", lambda: torch.nn.GRUCell(I, H), x, [h])
    yield case("LSTMCell", lambda: torch.nn.LSTMCell(I, H), x, [h, c])

    def states(count, size=H):
        return torch.randn(count, B, size)

    T = 5
    yield case("RNN", lambda: torch.nn.RNN(I, H), torch.randn(T, B, I), [states(1)])
    yield case("GRU without bias, batch first", lambda: torch.nn.GRU(I, H, bias=False, batch_first=True),
               torch.randn(B, T, I), [states(1)])
    yield case("LSTM, wide", lambda: torch.nn.LSTM(I, 8), torch.randn(T, B, I), [states(1, 8), states(1, 8)])
    yield case("LSTM, 2 layers, both directions, batch first, packed 5 3 1",
               lambda: torch.nn.LSTM(I, 4, num_layers=2, bidirectional=True, batch_first=True),
               torch.randn(B, T, I), [states(4, 4), states(4, 4)], lengths=[5, 3, 1], batch_first=True)
    yield case("GRU, 2 layers, both directions, packed 5 3 1",
               lambda: torch.nn.GRU(I, 4, num_layers=2, bidirectional=True),
               torch.randn(T, B, I), [states(4, 4)], lengths=[5, 3, 1])
    yield case("RNN, packed 1 3 2, total length 5", lambda: torch.nn.RNN(I, 4, bidirectional=True),
               torch.randn(T, B, I), [states(2, 4)], lengths=[1, 3, 2], total_length=5)


VOCABULARY, EMBEDDING, HIDDEN, STEPS, T, B = 11, 6, 16, 30, 12, 4


class CharRnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = torch.nn.LSTM(EMBEDDING, HIDDEN, batch_first=True)
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def trajectory():
    torch.manual_seed(32)
    start = {key: torch.randn(value.shape) * 0.3 for key, value in CharRnn().state_dict().items()}
    # A text that repeats with slips, so that there is something to learn.
    text = (torch.arange(400) * 3 + torch.randint(0, 12, (400,)) // 11) % VOCABULARY
    firsts = torch.randint(0, 400 - T - 1, (STEPS, B))
    losses = {}
    for dtype in (torch.float32, torch.float64):
        model = CharRnn().to(dtype)
        model.load_state_dict({key: value.to(dtype) for key, value in start.items()})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses[dtype] = []
        for step in range(STEPS):
            rows = firsts[step][:, None] + torch.arange(T)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(text[rows]).reshape(-1, VOCABULARY), text[rows + 1].reshape(-1))
            loss.backward()
            optimizer.step()
            losses[dtype].append(loss.detach())
    single, double = (torch.stack(losses[dtype]) for dtype in (torch.float32, torch.float64))
    print(f"loss {double[0]:.4f} to {double[-1]:.4f}, distance {distance(single, double):.2e}")
    return {
        "vocabulary": VOCABULARY, "embedding": EMBEDDING, "hidden": HIDDEN, "steps": STEPS, "T": T, "B": B, "lr": 1e-2,
        "weights": {key: encode(value) for key, value in start.items()},
        "text": text.tolist(),
        "firsts": firsts.tolist(),
        "losses": expected(single, double),
    }


if __name__ == "__main__":
    write("rnn.json", {"cases": list(cases()), "trajectory": trajectory()})
