#!/usr/bin/env python3
"""random_model - writes a model of Qwen1.5-MoE-A2.7B's sizes with random weights (the same pattern
over and over, so its text means nothing), to measure what only the sizes decide.

    tests/perf/random_model.py DIR                 24 layers, 28.6 GB
    tests/perf/random_model.py DIR --layers 8      10.4 GB
    tests/perf/random_model.py DIR --sparse        experts are holes: nothing is stored

What is there of the right size is used again. The tokenizer is the demo's.
"""
import argparse
import json
import random
import shutil
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HIDDEN, EXPERTS, INNER, SHARED, VOCABULARY = 2048, 60, 1408, 5632, 151936


def tensors(layers):
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{name}.weight", [HIDDEN]
        for name in "qkv":
            yield f"{at}self_attn.{name}_proj.weight", [HIDDEN, HIDDEN]
            yield f"{at}self_attn.{name}_proj.bias", [HIDDEN]
        yield f"{at}self_attn.o_proj.weight", [HIDDEN, HIDDEN]
        yield f"{at}mlp.gate.weight", [EXPERTS, HIDDEN]
        yield f"{at}mlp.shared_expert_gate.weight", [1, HIDDEN]
        for name, shape in mlp(SHARED):
            yield f"{at}mlp.shared_expert.{name}.weight", shape
        for expert in range(EXPERTS):
            for name, shape in mlp(INNER):
                yield f"{at}mlp.experts.{expert}.{name}.weight", shape
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]


def mlp(inner):
    return [("gate_proj", [inner, HIDDEN]), ("up_proj", [inner, HIDDEN]),
            ("down_proj", [HIDDEN, inner])]


def bf16(draws, count):
    return b"".join(struct.pack("<f", draws.gauss(0, 0.02))[2:] for _ in range(count))


def write_model(folder, layers, sparse):
    """The path of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, shape in tensors(layers):
        size = 2
        for one in shape:
            size *= one
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path, size = folder / "model.safetensors", 8 + len(text) + at
    config = json.loads((ROOT / "configs/demo/config.json").read_text())
    config.update(hidden_size=HIDDEN, num_hidden_layers=layers, num_experts=EXPERTS,
                  moe_intermediate_size=INNER, shared_expert_intermediate_size=SHARED,
                  intermediate_size=SHARED, num_attention_heads=16, num_key_value_heads=16,
                  max_position_embeddings=8192, vocab_size=VOCABULARY, tie_word_embeddings=False,
                  layer_types=["full_attention"] * layers)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(ROOT / "configs/demo/tokenizer.json", folder)
    kind = folder / "kind"
    if path.exists() and path.stat().st_size == size and kind.exists() and \
            kind.read_text() == str(sparse):
        return path
    draws = random.Random(1)
    pattern = bf16(draws, 1 << 20) * 16
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, about in header.items():
            begin, end = (8 + len(text) + one for one in about["data_offsets"])
            if sparse and ".experts." in name:
                continue
            out.seek(begin)
            first = 2 * draws.randrange(1 << 20)  # no two tensors alike
            for part in range(begin, end, len(pattern) // 2):
                out.write(pattern[first:first + min(len(pattern) // 2, end - part)])
        out.truncate(size)
    kind.write_text(str(sparse))
    return path


def main():
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("folder", type=Path)
    given.add_argument("--layers", type=int, default=24)
    given.add_argument("--sparse", action="store_true")
    given = given.parse_args()
    path = write_model(given.folder, given.layers, given.sparse)
    print(f"{path}: {path.stat().st_size / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
