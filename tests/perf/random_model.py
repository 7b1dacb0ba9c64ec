#!/usr/bin/env python3
"""random_model - writes a model of Qwen1.5-MoE-A2.7B's sizes with random weights (its text means
nothing), to measure what only the sizes decide.

    tests/perf/random_model.py DIR                 24 layers, 28.6 GB
    tests/perf/random_model.py DIR --layers 8      10.4 GB
    tests/perf/random_model.py DIR --sparse        experts are holes: nothing is stored
    tests/perf/random_model.py DIR --small         the same number of experts, small ones, for a test

What is there of the right size is used again. The tokenizer is the demo's.

Routers have to spread over the experts, or what is measured is a few of them. So weights have no
mean, each row is cut from a stock of numbers at a place of its own, rows of routers are drawn number
by number, norms leave sizes as they are, and a token's row of the embedding is as large as what the
layers add to it.
"""
import argparse
import json
import random
import shutil
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FORM = 2  # of what is written: files of another form are written anew
STOCK = 1 << 20


class Sizes:
    hidden, experts, inner, shared, vocabulary, heads = 2048, 60, 1408, 5632, 151936, 16


class SmallSizes(Sizes):
    hidden, inner, shared, vocabulary, heads = 256, 64, 256, 1024, 8


def tensors(layers, sizes):
    yield "model.embed_tokens.weight", [sizes.vocabulary, sizes.hidden]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", [sizes.hidden]
        for name in "qkv":
            yield f"{prefix}self_attn.{name}_proj.weight", [sizes.hidden, sizes.hidden]
            yield f"{prefix}self_attn.{name}_proj.bias", [sizes.hidden]
        yield f"{prefix}self_attn.o_proj.weight", [sizes.hidden, sizes.hidden]
        yield f"{prefix}mlp.gate.weight", [sizes.experts, sizes.hidden]
        yield f"{prefix}mlp.shared_expert_gate.weight", [1, sizes.hidden]
        for name, shape in mlp(sizes.hidden, sizes.shared):
            yield f"{prefix}mlp.shared_expert.{name}.weight", shape
        for expert in range(sizes.experts):
            for name, shape in mlp(sizes.hidden, sizes.inner):
                yield f"{prefix}mlp.experts.{expert}.{name}.weight", shape
    yield "model.norm.weight", [sizes.hidden]
    yield "lm_head.weight", [sizes.vocabulary, sizes.hidden]


def mlp(hidden, inner):
    return [("gate_proj", [inner, hidden]), ("up_proj", [inner, hidden]),
            ("down_proj", [hidden, inner])]


def bf16(draws, count, size):
    return b"".join(struct.pack("<f", draws.gauss(0, size))[2:] for _ in range(count))


class Weights:
    """Rows of numbers without a mean."""

    def __init__(self):
        self.draws = random.Random(1)
        self.stocks = {}

    def rows(self, name, shape):
        """The rows of a tensor, in parts."""
        count = shape[0] if len(shape) == 2 else 1
        columns = shape[-1]
        if name.endswith("norm.weight"):
            yield struct.pack("<f", 1.0)[2:] * columns
        elif name.endswith(".bias"):
            yield bf16(self.draws, columns, 0.02)
        elif name.endswith("gate.weight"):  # routers, and the shared expert's
            yield bf16(self.draws, count * columns, columns ** -0.5)
        else:
            # Values near 1 / sqrt(columns) keep products of normalised inputs near 1.
            stock = self.stock(1 if name == "model.embed_tokens.weight" else columns ** -0.5)
            for first in range(0, count, 256):
                places = [2 * self.draws.randrange(STOCK - columns + 1)
                          for _ in range(min(256, count - first))]
                yield b"".join(stock[place:place + 2 * columns] for place in places)

    def stock(self, size):
        if size not in self.stocks:
            self.stocks[size] = bf16(self.draws, STOCK, size)
        return self.stocks[size]


def write_model(folder, layers, sparse, sizes=Sizes):
    """The path of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    header, offset = {}, 0
    for name, shape in tensors(layers, sizes):
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path, size = folder / "model.safetensors", 8 + len(text) + offset
    config = json.loads((ROOT / "configs/demo/config.json").read_text())
    config.update(hidden_size=sizes.hidden, num_hidden_layers=layers, num_experts=sizes.experts,
                  moe_intermediate_size=sizes.inner, shared_expert_intermediate_size=sizes.shared,
                  intermediate_size=sizes.shared, num_attention_heads=sizes.heads, num_key_value_heads=sizes.heads,
                  max_position_embeddings=8192, vocab_size=sizes.vocabulary, tie_word_embeddings=False,
                  layer_types=["full_attention"] * layers)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(ROOT / "configs/demo/tokenizer.json", folder)
    kind = folder / "kind"
    if path.exists() and path.stat().st_size == size and kind.exists() and \
            kind.read_text() == f"{FORM} {sparse}":
        return path
    weights = Weights()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, about in header.items():
            if sparse and ".experts." in name:
                continue
            file.seek(8 + len(text) + about["data_offsets"][0])
            for part in weights.rows(name, about["shape"]):
                file.write(part)
        file.truncate(size)
    kind.write_text(f"{FORM} {sparse}")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    path = write_model(arguments.folder, arguments.layers, arguments.sparse, SmallSizes if arguments.small else Sizes)
    print(f"{path}: {path.stat().st_size / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
