"""Writes lora.json, and lora/: low-rank adapters as PEFT defines them, trained for 50 steps, merged, and as PEFT's files.

    /usr/bin/python3 tests/golden/lora.py          (torch 1.13, Debian's python3-torch; the output is committed)

Each adapted layer is y = base(x) + scale * B(A(x)), scale = alpha / r or alpha / sqrt(r). All weights are formula.py's numbers: tensor
number i of the base's state dict has the seed 7000 + i, of the adapter's 7500 + i. lora/ours is written by make_lora_files.ts and read here.
"""

import json
import math

import torch
import torch.nn.functional as F
from torch import nn

import attention
import formula
import safetensors_file
from generate import FOLDER, MADE, expected

attention.CONFIG.update(vocabSize=11, blockSize=8, layers=2, heads=2, width=8)
CONFIG = attention.CONFIG
STEPS, LR, ROWS = 50, 0.02, 5
PREFIX = "base_model.model."


class Lora(nn.Module):
    def __init__(self, base_layer, r, scale):
        super().__init__()
        self.base_layer, self.scale = base_layer, scale
        self.fan_in_fan_out = isinstance(base_layer, attention.Conv1D)
        shape = base_layer.weight.shape
        inputs, outputs = shape if self.fan_in_fan_out else reversed(shape)
        self.lora_A = nn.Linear(inputs, r, bias=False)
        self.lora_B = nn.Linear(r, outputs, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scale

    def merge(self):
        delta = self.lora_B.weight @ self.lora_A.weight * self.scale
        self.base_layer.weight.data += delta.T if self.fan_in_fan_out else delta


def adapt(model, config):
    """Replaces the layers whose path is a target or ends with one, and freezes the rest."""
    for parameter in model.parameters():
        parameter.requires_grad = config["bias"] == "all" and parameter.dim() == 1
    scale = config["loraAlpha"] / (math.sqrt(config["r"]) if config["useRslora"] else config["r"])
    adapted = {}
    for path, module in list(model.named_modules()):
        if isinstance(module, (nn.Linear, attention.Conv1D)) and path.split(".")[-1] in config["targetModules"]:
            parent, _, name = path.rpartition(".")
            adapted[path] = Lora(module, config["r"], scale)
            setattr(model.get_submodule(parent), name, adapted[path])
    return adapted


def mlp():
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 4))


def fill(module, first, skip=(), bound=0.5):
    entries = [(key, value) for key, value in module.items() if key not in skip]
    drawn = [{"key": key, "shape": list(v.shape), "seed": first + i} for i, (key, v) in enumerate(entries)]
    for entry, (_, value) in zip(drawn, entries):
        value.data.copy_(formula.uniform(entry["seed"], entry["shape"], bound))
    return drawn


CASES = {
    "mlp": (mlp, {"targetModules": ["0", "2", "4"], "r": 3, "loraAlpha": 6, "useRslora": False, "bias": "none"}),
    "rslora": (mlp, {"targetModules": ["2", "4"], "r": 4, "loraAlpha": 2, "useRslora": True, "bias": "none"}),
    "gpt": (
        attention.Gpt,
        {"targetModules": ["c_attn", "c_fc", "c_proj"], "r": 2, "loraAlpha": 4, "useRslora": False, "bias": "none"},
    ),
}


def batch(name, step, dtype):
    if name == "gpt":
        t, rows = CONFIG["blockSize"], 3
        tokens = torch.stack([attention.tokens_of((step * rows + row) * (t + 1), t + 1) for row in range(rows)])
        return tokens[:, :-1], tokens[:, 1:].reshape(-1)
    x = formula.uniform(9000 + step, [ROWS, 6], 2.0).to(dtype)
    return x, formula.words(9500 + step, torch.arange(ROWS)) >> 30


def made(name, dtype):
    make, config = CASES[name]
    model = make().to(dtype)
    weights = fill(model.state_dict(), 7000, ["lm_head.weight"])
    adapted = adapt(model, config)
    factors = {}
    for path, layer in adapted.items():
        factors[f"{path}.lora_A.weight"] = layer.lora_A.weight
        factors[f"{path}.lora_B.weight"] = layer.lora_B.weight
    drawn = fill(factors, 7500)
    return model.to(dtype), adapted, {key: value for key, value in factors.items()}, weights, drawn


def run(name, dtype):
    model, adapted, factors, weights, drawn = made(name, dtype)
    stepper = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
    probe, _ = batch(name, 1000, dtype)
    results = {"first": model(probe).detach()}
    losses = []
    for step in range(STEPS):
        x, labels = batch(name, step, dtype)
        stepper.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.reshape(labels.numel(), -1), labels)
        loss.backward()
        if step == 0:
            results.update({f"gradient {key}": p.grad.clone() for key, p in factors.items()})
        stepper.step()
        if step == 0:
            for key, p in factors.items():
                for moment in ("exp_avg", "exp_avg_sq"):
                    results[f"{moment} {key}"] = stepper.state[p][moment].clone()
        losses.append(loss.item())
    results["unmerged"] = model(probe).detach()
    trained = {key: p.detach().clone() for key, p in factors.items()}
    for layer in adapted.values():
        layer.merge()
        layer.scale = 0.0
    results["merged"] = model(probe).detach()
    return {"losses": losses, "results": results, "weights": weights, "factors": drawn, "trained": trained}


def case(name):
    single, double = run(name, torch.float32), run(name, torch.float64)
    folder = FOLDER / "lora" / name
    folder.mkdir(parents=True, exist_ok=True)
    config = CASES[name][1]
    # As PEFT writes them: scaled settings in snake_case, tensors without the adapter's name.
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "alpha_pattern": {}, "auto_mapping": None, "base_model_name_or_path": f"golden/{name}", "bias": config["bias"],
                "fan_in_fan_out": name == "gpt", "inference_mode": True, "init_lora_weights": True, "layers_pattern": None,
                "layers_to_transform": None, "lora_alpha": config["loraAlpha"], "lora_dropout": 0.0, "modules_to_save": None,
                "peft_type": "LORA", "r": config["r"], "rank_pattern": {}, "revision": None,
                "target_modules": config["targetModules"], "task_type": "CAUSAL_LM", "use_dora": False,
                "use_rslora": config["useRslora"],
            },
            indent=2,
        )
    )
    named = {f"{PREFIX}{key}": value for key, value in single["trained"].items()}
    safetensors_file.write(folder / "adapter_model.safetensors", named, {"format": "pt"})
    distances = [abs(a - b) for a, b in zip(single["losses"], double["losses"])]
    print(f"{name}: loss {double['losses'][0]:.4f} to {double['losses'][-1]:.4f}, distance {max(distances):.2e}")
    outputs = {key: expected(value, double["results"][key]) for key, value in single["results"].items()}
    return {
        "name": name, "config": config, "weights": single["weights"], "factors": single["factors"],
        "losses": double["losses"], "distances": distances, "outputs": outputs,
    }


def ours():
    """What the adapter that is written here computes, read by PEFT's rules: alpha / r for an adapter without use_rslora."""
    folder = FOLDER / "lora" / "ours"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and not config["use_rslora"], config
    assert safetensors_file.metadata(folder / "adapter_model.safetensors") == {"format": "pt"}
    tensors = safetensors_file.read(folder / "adapter_model.safetensors")
    results = []
    for dtype in (torch.float32, torch.float64):
        model = mlp()
        fill(model.state_dict(), 7000)
        adapted = adapt(
            model,
            {"targetModules": config["target_modules"], "r": config["r"], "loraAlpha": config["lora_alpha"],
             "useRslora": config["use_rslora"], "bias": config["bias"]},
        )
        for path, layer in adapted.items():
            layer.lora_A.weight.data = tensors.pop(f"{PREFIX}{path}.lora_A.weight")
            layer.lora_B.weight.data = tensors.pop(f"{PREFIX}{path}.lora_B.weight")
        assert not tensors, tensors.keys()
        tensors = safetensors_file.read(folder / "adapter_model.safetensors")
        results.append(model.to(dtype)(batch("mlp", 1000, dtype)[0]).detach())
    return {"logits": expected(*results)}


if __name__ == "__main__":
    content = {
        "made": {**MADE, "by": "tests/golden/lora.py"},
        "gptConfig": CONFIG, "tokenSeed": attention.TOKEN_SEED, "lr": LR, "rows": ROWS,
        "cases": [case(name) for name in CASES],
        "ours": ours() if (FOLDER / "lora" / "ours").exists() else None,
    }
    path = FOLDER / "lora.json"
    path.write_text(json.dumps(content) + "\n")
    print(f"lora.json: {path.stat().st_size} bytes")
