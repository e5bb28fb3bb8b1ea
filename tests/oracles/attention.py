# Writes tests/data/kernels/attention.json: attention by torch's scaled_dot_product_attention, document by
# document, with the relative biases of transformers' T5Attention or by its attention with gpt-oss's sinks,
# gradients included; and the buckets that T5Attention puts distances in. Read by tests/unit/core/ops/attention_oracle_test.cpp.
# Needs torch and transformers: python tests/oracles/attention.py
# SPDX-License-Identifier: Apache-2.0
import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from transformers import T5Config
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
from transformers.models.t5.modeling_t5 import T5Attention

TARGET = Path(__file__).resolve().parents[1] / "data" / "kernels" / "attention.json"


def flat(tensor):
    # Nine digits hold a float32 exactly.
    return [float(f"{v:.9g}") for v in tensor.detach().flatten().tolist()]


def buckets(num_buckets, max_distance, both_directions):
    """Where the bucket changes on the way from key 400 before the query to 400 after it."""
    distances = torch.arange(-400, 401)
    found = T5Attention._relative_position_bucket(distances, bidirectional=both_directions,
                                                  num_buckets=num_buckets, max_distance=max_distance)
    changes = [[int(d), int(b)] for i, (d, b) in enumerate(zip(distances, found)) if i == 0 or b != found[i - 1]]
    return {"num_buckets": num_buckets, "max_distance": max_distance, "both_directions": both_directions,
            "changes": changes}


def case(name, lengths, heads, kv_heads, dim, scale, causal=False, key_lengths=None, num_buckets=0, max_distance=0,
         has_sinks=False):
    keys = key_lengths or lengths
    q = torch.randn(sum(lengths), heads, dim, requires_grad=True)
    k, v = (torch.randn(sum(keys), kv_heads, dim, requires_grad=True) for _ in range(2))
    d_out = torch.randn(sum(lengths), heads, dim)
    bias_of = None
    if num_buckets:
        config = T5Config(d_model=heads * dim, d_kv=dim, num_heads=heads, is_decoder=causal,
                          relative_attention_num_buckets=num_buckets,
                          relative_attention_max_distance=max_distance)
        bias_of = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        bias_of.relative_attention_bias.weight.data.normal_()
    sinks = torch.randn(heads, requires_grad=True) if has_sinks else None
    gpt_oss = SimpleNamespace(sinks=sinks, num_key_value_groups=heads // kv_heads, training=False)
    outputs = []
    for q_d, k_d, v_d in zip(q.split(lengths), k.split(keys), v.split(keys)):
        mask = torch.zeros(1, heads, len(q_d), len(k_d))
        if bias_of is not None:
            mask = mask + bias_of.compute_bias(len(q_d), len(k_d))
        if causal:
            mask = mask + torch.full((len(q_d), len(k_d)), float("-inf")).triu(1)
        first_heads = [x.transpose(0, 1)[None] for x in (q_d, k_d, v_d)]
        if has_sinks:
            outputs.append(eager_attention_forward(gpt_oss, *first_heads, mask, scale)[0][0])
            continue
        out = F.scaled_dot_product_attention(*first_heads, attn_mask=mask, scale=scale, enable_gqa=True)
        outputs.append(out[0].transpose(0, 1))
    out = torch.cat(outputs)
    out.backward(d_out)
    table = bias_of.relative_attention_bias.weight if bias_of is not None else None
    return {"name": name, "lengths": lengths, "key_lengths": key_lengths or [], "heads": heads, "kv_heads": kv_heads,
            "dim": dim, "scale": scale, "causal": causal, "num_buckets": num_buckets, "max_distance": max_distance,
            "q": flat(q), "k": flat(k), "v": flat(v), "d_out": flat(d_out), "out": flat(out),
            "dq": flat(q.grad), "dk": flat(k.grad), "dv": flat(v.grad),
            "table": flat(table) if table is not None else [],
            "d_table": flat(table.grad) if table is not None else [],
            "sinks": flat(sinks) if has_sinks else [], "d_sinks": flat(sinks.grad) if has_sinks else []}


def main():
    torch.manual_seed(7)
    result = {
        "versions": {name: version(name) for name in ("torch", "transformers")}, "seed": 7,
        "buckets": [buckets(n, d, both) for n, d in ((32, 128), (8, 20), (16, 64), (6, 50), (32, 300))
                    for both in (True, False)],
        "cases": [
            case("Causal", [5, 9], 2, 1, 8, 0.35, causal=True),
            case("Full", [7, 1, 4], 2, 2, 11, 0.3),
            case("Cross", [5, 2], 4, 2, 8, 0.35, key_lengths=[3, 11]),
            case("T5Encoder", [13, 30], 2, 2, 4, 1.0, num_buckets=8, max_distance=16),
            case("T5Decoder", [6, 26], 2, 2, 4, 1.0, causal=True, num_buckets=8, max_distance=16),
            case("Sinks", [1, 14, 6], 4, 2, 8, 0.35, causal=True, has_sinks=True),
        ],
    }
    TARGET.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
