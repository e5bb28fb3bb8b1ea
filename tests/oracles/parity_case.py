# SPDX-License-Identifier: Apache-2.0
"""What one case of tests/parity/model_parity_test.cpp reads, written from a transformers model:
config.json and model.safetensors as save_pretrained writes them, and expected.safetensors:
  input_ids (B, T), labels (B, T)   tokens whose targets make the loss, -1 behind a row's last one;
                                    labels as transformers takes them: of a decoder alone those of the
                                    same tokens, not shifted; of an encoder-decoder the tokens' targets
  source_ids (B, M)                 what an encoder reads, if there is one, -1 behind a row's last one
  pixels (B, height, width, 3)      uint8, if the model looks at pictures
  logits (B, T, V), loss (1)        of the first batch, mean over counted tokens
  grad.<parameter>                  of that loss
  losses (S), adam_eps (1)          of S AdamW steps over the rows, a batch at a time, repeating
  final.<parameter>                 after them, of those that `keep` names
  routed (L, E)                     of the first batch, where experts are balanced: the tokens of each
                                    expert of each block that has some
  prompt_ids (P, L), greedy (P, n)  the most probable tokens after each prompt, one by one; an
                                    encoder and pictures are those of the same row
"""
import torch
from safetensors.torch import save_file

BATCH = 2
# What has no gradient but for roundings, such as the bias of keys, would move by as much as others.
ADAM_EPS = 1e-4


def jitter(model, words=("norm", "bias", "ln_")):
    """Biases and norms that are zeros and ones would hide mistakes."""
    with torch.no_grad():
        for key, p in model.named_parameters():
            if any(word in key for word in words):
                p.add_(torch.randn_like(p) * 0.1)


def mild(model):
    """Decays of the delta rule that a float32 sum over a row still tells apart: transformers adds them up in float32."""
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key.endswith("A_log"):
                p.sub_(3)


def lean(model):
    """Biases that routers choose experts by, which a new model has as zeros."""
    for key, buffer in model.named_buffers():
        if key.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.copy_(torch.randn_like(buffer) * 0.2)


def scaled(model):
    """Numbers of blocks and experts that a new model has as ones. Where there are some, scores of attention have no
    scale besides the norms' weights: smaller ones keep roundings small."""
    gemma4 = any(key.endswith("layer_scalar") for key, _ in model.named_buffers())
    with torch.no_grad():
        for key, tensor in (*model.named_buffers(), *model.named_parameters()):
            if key.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
                tensor.mul_(0.7 + 0.6 * torch.rand_like(tensor))
            if gemma4 and key.endswith("q_norm.weight"):
                tensor.mul_(0.3)


def ragged(lengths, vocabulary, first=0, generator=None):
    """Rows of random tokens, -1 behind each one's end."""
    rows = torch.full((len(lengths), max(lengths)), -1)
    for row, length in enumerate(lengths):
        rows[row, :length] = torch.randint(first, vocabulary, (length,), generator=generator)
    return rows


def write_case(name, model, folder, stored, forward, next_logits=None, prompt_ids=None, new_tokens=10,
               steps=20, keep=("norm", "q_proj"), ours=lambda key, value: {key: value}):
    """`stored`: what forward's rows are made of; forward(model, rows) -> transformers' output for a
    slice of rows; next_logits(model, row, ids) -> logits (V) after a list of tokens; ours(name, value)
    -> what our files have for one of its parameters, by name."""
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    rows = len(stored["input_ids"])
    expected = {key: value if value.dtype == torch.uint8 else value.int() for key, value in stored.items()}
    out = forward(model, slice(0, BATCH))
    out.loss.backward()
    expected["logits"] = out.logits.detach().clone()
    expected["loss"] = out.loss.detach().reshape(1).clone()
    for key, p in model.named_parameters():
        if p.grad is not None:
            expected |= {"grad." + name: value.clone().contiguous() for name, value in ours(key, p.grad).items()}
    model.zero_grad()
    if next_logits is not None:
        expected["prompt_ids"] = prompt_ids.int()
        expected["greedy"] = greedy(model, prompt_ids, next_logits, new_tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95),
                                  eps=ADAM_EPS)
    expected["adam_eps"] = torch.tensor([ADAM_EPS])
    losses = []
    for step in range(steps):
        at = step * BATCH % rows
        loss = forward(model, slice(at, at + BATCH)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    expected["losses"] = torch.tensor(losses, dtype=torch.float32)
    for key, p in model.named_parameters():
        if any(word in key for word in keep):
            expected |= {"final." + name: value.clone().contiguous() for name, value in ours(key, p.detach()).items()}
    save_file(expected, folder / "expected.safetensors")
    print(name, "loss", float(expected["loss"]), "->", losses[-1])


@torch.no_grad()
def greedy(model, prompts, next_logits, count):
    rows = []
    for row, prompt in enumerate(prompts.tolist()):
        ids = list(prompt)
        for _ in range(count):
            logits = next_logits(model, row, ids)
            first, second = logits.topk(2).values.tolist()
            assert first - second > 1e-4, "too close to tell apart"
            ids.append(int(logits.argmax()))
        rows.append(ids[len(prompt):])
    return torch.tensor(rows, dtype=torch.int32)
