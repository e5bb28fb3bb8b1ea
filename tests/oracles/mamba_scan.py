# Writes tests/data/kernels/mamba_scan.json: Mamba 2's scan with its gates by transformers' torch function for Granite 4,
# document by document, with the gradients that torch finds, and the last states.
# Read by tests/unit/core/ops/mamba_scan_test.cpp. Needs torch and transformers: python tests/oracles/mamba_scan.py
# SPDX-License-Identifier: Apache-2.0
import json
from importlib.metadata import version
from pathlib import Path

import torch
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import (GraniteMoeHybridRMSNormGated,
                                                                            mamba2_chunk_scan)

TARGET = Path(__file__).resolve().parents[1] / "data" / "kernels" / "mamba_scan.json"


def flat(tensor):
    # Nine digits hold a float32 exactly.
    return [float(f"{v:.9g}") for v in tensor.detach().flatten().tolist()]


def scan(lengths, x, dt, a_log, b, c, d, dt_bias, chunk, limit):
    """Outputs and last states of each document, given as a batch of one."""
    parts = zip(*(t.split(lengths) for t in (x, dt, b, c)))
    results = [mamba2_chunk_scan(x[None], dt[None], -a_log.exp(), b[None], c[None], chunk, D=d, dt_bias=dt_bias,
                                 dt_softplus=True, dt_limit=limit, return_final_states=True) for x, dt, b, c in parts]
    return torch.cat([out[0] for out, _ in results]), torch.cat([state for _, state in results])


def case(name, lengths, groups, heads, state, head_dim, chunk, limit=(0.0, float("inf"))):
    tokens = sum(lengths)
    leaves = {"q": torch.randn(tokens, groups, state), "k": torch.randn(tokens, groups, state),
              "v": torch.randn(tokens, heads, head_dim), "dt": torch.randn(tokens, heads),
              "a_log": torch.arange(1, heads + 1).float().log() - 2, "dt_bias": torch.randn(heads),
              "skip": torch.randn(heads)}
    for leaf in leaves.values():
        leaf.requires_grad_()
    d_out = torch.randn(tokens, heads, head_dim)
    out, states = scan(lengths, leaves["v"], leaves["dt"], leaves["a_log"], leaves["k"], leaves["q"], leaves["skip"],
                       leaves["dt_bias"], chunk, limit)
    out.backward(d_out)
    # A state here has the keys' elements as rows.
    return {"name": name, "lengths": lengths, "key_heads": groups, "value_heads": heads, "key_dim": state,
            "value_dim": head_dim, "least": limit[0], "most": min(limit[1], 1e30), "d_out": flat(d_out), "out": flat(out),
            "states": flat(states.transpose(-1, -2)), **{key: flat(leaf) for key, leaf in leaves.items()},
            **{"d_" + key: flat(leaf.grad) for key, leaf in leaves.items()}}


def gated_norm(rows, features, eps):
    norm = GraniteMoeHybridRMSNormGated(features, features, eps=eps)
    x, gate = (torch.randn(rows, features, requires_grad=True) for _ in range(2))
    norm.weight.data.normal_()
    out = norm(x, gate)
    d_out = torch.randn_like(out)
    out.backward(d_out)
    return {"rows": rows, "features": features, "eps": eps, "x": flat(x), "gate": flat(gate), "weight": flat(norm.weight),
            "d_out": flat(d_out), "out": flat(out), "d_x": flat(x.grad), "d_gate": flat(gate.grad),
            "d_weight": flat(norm.weight.grad)}


def main():
    torch.manual_seed(37)
    data = {
        "versions": {p: version(p) for p in ("torch", "transformers")},
        "seed": 37,
        "cases": [case("one document of two chunks", [70], 1, 3, 8, 8, 64),
                  case("packed documents", [5, 17, 24], 2, 4, 8, 6, 16),
                  case("many heads of one group", [33], 1, 10, 8, 4, 64),
                  case("steps within limits", [40], 1, 2, 8, 8, 64, (0.3, 1.5))],
        "gated_norm": gated_norm(5, 24, 1e-5),
    }
    TARGET.write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
