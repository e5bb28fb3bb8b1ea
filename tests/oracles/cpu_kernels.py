# Writes tests/data/kernels/kernels.json: what transformers' modules, torch's losses and torch's optimizers
# give on small random inputs, gradients included. Read by tests/unit/core/kernels/oracle_test.cpp.
# Needs torch and transformers: python tests/oracles/cpu_kernels.py
# SPDX-License-Identifier: Apache-2.0
# (Not named kernels.py: transformers would import it in place of the package of that name.)
import json
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

TARGET = Path(__file__).resolve().parents[1] / "data" / "kernels" / "kernels.json"
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def flat(tensor):
    # Nine digits hold a float32 exactly.
    return [float(f"{v:.9g}") for v in tensor.detach().double().flatten().tolist()]


def random(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype)


def rms_norm(name, module_class):
    rows, dim = 4, 37
    dtype = TYPES[name]
    module = module_class(dim, eps=1e-5).to(dtype)
    module.weight.data = random(dim, dtype=dtype)
    x, dy = random(rows, dim, dtype=dtype, scale=2.0).requires_grad_(), random(rows, dim, dtype=dtype)
    y = module(x)
    y.backward(dy)
    return {"type": name, "gemma": module_class is GemmaRMSNorm, "rows": rows, "dim": dim, "x": flat(x),
            "weight": flat(module.weight), "dy": flat(dy), "y": flat(y), "dx": flat(x.grad),
            "dweight": flat(module.weight.grad)}


def layer_norm(name):
    rows, dim = 4, 37
    dtype = TYPES[name]
    x, dy = random(rows, dim, dtype=dtype, scale=2.0).add_(1).requires_grad_(), random(rows, dim, dtype=dtype)
    weight, bias = (random(dim, dtype=dtype).requires_grad_() for _ in range(2))
    y = F.layer_norm(x, (dim,), weight, bias, eps=1e-5)
    y.backward(dy)
    return {"type": name, "rows": rows, "dim": dim, "x": flat(x), "weight": flat(weight), "bias": flat(bias),
            "dy": flat(dy), "y": flat(y), "dx": flat(x.grad), "dweight": flat(weight.grad), "dbias": flat(bias.grad)}


ROPE = {
    "none": ({"rope_type": "default"}, 40),
    "linear": ({"rope_type": "linear", "factor": 4.0}, 40),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.0}, 100),
    "llama3": ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}, 40),
    "yarn": ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 100),
    "yarn_mscale": ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                     "mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 16.0, "beta_slow": 2.0,
                     "truncate": False}, 100),
    "longrope_short": ({"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 64,
                        "short_factor": [1 + 0.1 * i for i in range(8)],
                        "long_factor": [2 + 0.5 * i for i in range(8)]}, 60),
    "longrope_long": ({"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 64,
                       "short_factor": [1 + 0.1 * i for i in range(8)],
                       "long_factor": [2 + 0.5 * i for i in range(8)]}, 100),
}


def rope(name):
    parameters, tokens = ROPE[name]
    heads, head_dim, longest = 2, 16, 64
    config = LlamaConfig(hidden_size=heads * head_dim, num_attention_heads=heads, head_dim=head_dim,
                         max_position_embeddings=longest, rope_parameters={"rope_theta": 10000.0, **parameters})
    embedding = LlamaRotaryEmbedding(config)
    q = random(1, heads, tokens, head_dim).requires_grad_()
    cos, sin = embedding(q, torch.arange(tokens)[None])
    turned, _ = apply_rotary_pos_emb(q, q, cos, sin)
    dy = random(1, heads, tokens, head_dim)
    turned.backward(dy)
    last = lambda t: flat(t[0].transpose(0, 1)[-1])  # noqa: E731  (H, D) of the last token
    return {"name": name, "parameters": parameters, "max_position": longest, "tokens": tokens, "heads": heads,
            "head_dim": head_dim, "inverse": flat(embedding.inv_freq),
            "attention_factor": embedding.attention_scaling, "q": last(q), "turned": last(turned),
            "dy": last(dy), "dq": last(q.grad)}


def activation(name, function):
    gate, up, dy = random(50, scale=3.0).requires_grad_(), random(50).requires_grad_(), random(50)
    y = function(gate) * up
    y.backward(dy)
    return {"name": name, "gate": flat(gate), "up": flat(up), "dy": flat(dy), "y": flat(y),
            "dgate": flat(gate.grad), "dup": flat(up.grad)}


def cross_entropy(smoothing):
    rows, vocabulary = 5, 83
    logits = random(rows, vocabulary, scale=3.0).requires_grad_()
    targets = torch.randint(vocabulary, (rows,))
    targets[2] = -100
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    loss.backward()
    return {"smoothing": smoothing, "rows": rows, "vocabulary": vocabulary, "logits": flat(logits),
            "targets": targets.tolist(), "loss_sum": loss.item(), "gradient": flat(logits.grad)}


def embedding():
    ids = torch.tensor([3, 1, 3, 0, 3, 1])
    weight, dy = random(5, 7).requires_grad_(), random(6, 7)
    F.embedding(ids, weight, padding_idx=0).backward(dy)
    return {"ids": ids.tolist(), "vocabulary": 5, "dim": 7, "padding_index": 0, "dy": flat(dy),
            "grad": flat(weight.grad)}


def optimizer(name, make, dtype=torch.float32, steps=10):
    parameter = torch.nn.Parameter(random(23, dtype=dtype))
    torch_optimizer = make([parameter])
    result = {"name": name, "start": flat(parameter), "grads": [], "params": []}
    for _ in range(steps):
        parameter.grad = random(23, dtype=dtype, scale=0.3)
        result["grads"].append(flat(parameter.grad))
        torch_optimizer.step()
        result["params"].append(flat(parameter))
    for key, value in torch_optimizer.state[parameter].items():
        if torch.is_tensor(value) and value.numel() == 23:
            result[key] = flat(value)
    return result


def adamw(fused, dtype=torch.float32):
    return optimizer("BF16" if dtype == torch.bfloat16 else "F32",
                     lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1,
                                                 fused=fused), dtype)


def sgd(**options):
    result = optimizer("F32", lambda p: torch.optim.SGD(p, lr=0.05, **options), steps=5)
    return {**result, "options": options}


def norm():
    tensors = [random(100, scale=3.0), random(7), random(33, scale=0.1)]
    total = torch.linalg.vector_norm(torch.cat(tensors).double()).item()
    return {"tensors": [flat(t) for t in tensors], "norm": total}


def main():
    torch.manual_seed(20)
    data = {
        "versions": {p: version(p) for p in ("torch", "transformers")},
        "seed": 20,
        "rms_norm": [rms_norm(t, LlamaRMSNorm) for t in TYPES] + [rms_norm(t, GemmaRMSNorm) for t in ("F32", "BF16")],
        "rope": [rope(name) for name in ROPE],
        "activation": [activation("silu", F.silu), activation("gelu_erf", F.gelu),
                       activation("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))],
        "cross_entropy": [cross_entropy(0.0), cross_entropy(0.1)],
        "embedding": embedding(),
        "adamw": [adamw(False), adamw(True), adamw(True, torch.bfloat16)],
        "sgd": [sgd(), sgd(weight_decay=0.1), sgd(momentum=0.9, weight_decay=0.01),
                sgd(momentum=0.9, dampening=0.5), sgd(momentum=0.8, nesterov=True)],
        "norm": norm(),
        "layer_norm": [layer_norm(t) for t in TYPES],
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
