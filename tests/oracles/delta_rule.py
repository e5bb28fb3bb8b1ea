# Writes tests/data/kernels/delta_rule.json: the gated delta rule by transformers' chunked and recurrent functions for
# Qwen3-Next, document by document, with the gradients that torch finds through the former.
# Read by tests/unit/core/ops/sequence/delta_rule_test.cpp. Needs torch and transformers: python tests/oracles/delta_rule.py
# SPDX-License-Identifier: Apache-2.0
import json
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers.models.qwen3_next.modeling_qwen3_next import (torch_chunk_gated_delta_rule,
                                                                torch_recurrent_gated_delta_rule)

TARGET = Path(__file__).resolve().parents[1] / "data" / "kernels" / "delta_rule.json"


def flat(tensor):
    # Nine digits hold a float32 exactly.
    return [float(f"{v:.9g}") for v in tensor.detach().flatten().tolist()]


def documents(function, lengths, *inputs, **options):
    """Outputs and last states of each document, given to `function` as a batch of one."""
    parts = zip(*(x.split(lengths) for x in inputs))
    results = [function(*(x[None] for x in part), initial_state=None, output_final_state=True,
                        use_qk_l2norm_in_kernel=True, **options) for part in parts]
    return torch.cat([out[0] for out, _ in results]), torch.cat([state for _, state in results])


def case(name, lengths, key_heads, value_heads, key_dim, value_dim, decay, chunk):
    tokens = sum(lengths)
    q, k = (torch.randn(tokens, key_heads, key_dim, requires_grad=True) for _ in range(2))
    v = torch.randn(tokens, value_heads, value_dim, requires_grad=True)
    # As the model makes them: log decays by softplus, betas by a sigmoid.
    g = (-decay * F.softplus(torch.randn(tokens, value_heads))).requires_grad_()
    beta = torch.randn(tokens, value_heads).sigmoid().requires_grad_()
    d_out = torch.randn(tokens, value_heads, value_dim)
    inputs = (q, k, v, g, beta)
    out, states = documents(torch_chunk_gated_delta_rule, lengths, *inputs, chunk_size=chunk)
    out.backward(d_out)
    with torch.no_grad():
        recurrent, recurrent_states = documents(torch_recurrent_gated_delta_rule, lengths, *inputs)
    return {"name": name, "lengths": lengths, "key_heads": key_heads, "value_heads": value_heads, "key_dim": key_dim,
            "value_dim": value_dim, "chunk": chunk, "q": flat(q), "k": flat(k), "v": flat(v), "g": flat(g),
            "beta": flat(beta), "d_out": flat(d_out), "out": flat(out), "states": flat(states),
            "recurrent_out": flat(recurrent), "recurrent_states": flat(recurrent_states), "dq": flat(q.grad),
            "dk": flat(k.grad), "dv": flat(v.grad), "dg": flat(g.grad), "dbeta": flat(beta.grad)}


def main():
    torch.manual_seed(31)
    data = {
        "versions": {p: version(p) for p in ("torch", "transformers")},
        "seed": 31,
        "cases": [case("one document of two chunks", [70], 1, 2, 8, 8, 1.0, 64),
                  case("packed documents", [5, 17, 24], 2, 4, 8, 6, 0.3, 16),
                  case("one head each", [33], 2, 2, 8, 12, 0.05, 64),
                  case("strong decay", [50], 1, 1, 8, 8, 20.0, 64)],
    }
    TARGET.write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
