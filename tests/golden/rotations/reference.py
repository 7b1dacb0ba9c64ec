#!/usr/bin/env python3
"""Two tiny models whose rotations follow the length of the text, and their logits in float64.

    reference.py --check    computes the logits again and compares them with the files
    reference.py --write    draws the weights anew and writes everything

Every logit is that of one pass over the whole text up to its token, without a cache: the text's
length decides how all of its positions turn. Formulas are those of the published code: longrope and
dynamic scaling, Phi-3.5-MoE (layer norms, biases, sparse mixer), Qwen3-MoE (norms of queries and
keys). Frequencies and angles are rounded to float32, as there; all else is float64. Plain Python, no
library: nothing of this is shared with the program that it checks.
"""
import json
import math
import random
import struct
import sys
from operator import mul
from pathlib import Path

HERE = Path(__file__).parent
TRAINED, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 24, 32, 4, 2, 8
EXPERTS, TOP_K, INNER, LAYERS, VOCABULARY, EPSILON = 4, 2, 32, 2, 64, 1e-5
TEXT, WINDOWS, PROMPT, CONTINUED = 40, (12, 24, 25), 8, 24

CONFIGS = {
    "longrope": {
        "model_type": "phimoe", "attention_bias": True, "lm_head_bias": True,
        "router_jitter_noise": 0.01, "intermediate_size": INNER,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
            "short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [1.5, 2.5, 4.0, 6.0],
            "original_max_position_embeddings": TRAINED}},
    "dynamic": {
        "model_type": "qwen3_moe", "attention_bias": False, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": INNER,
        "intermediate_size": INNER,
        "rope_parameters": {
            "rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0,
            "original_max_position_embeddings": TRAINED}},
}
SHARED = {
    "hidden_act": "silu", "hidden_size": HIDDEN, "max_position_embeddings": 256,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
    "num_hidden_layers": LAYERS, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K,
    "rms_norm_eps": EPSILON, "sliding_window": None, "tie_word_embeddings": False,
    "vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None}


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bfloat16(value):
    """Rounded to the nearest, ties to even; its upper 16 bits."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


# The files.

def read_tensors(path):
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, about in json.loads(data[8:end]).items():
        if name == "__metadata__":
            continue
        first, last = about["data_offsets"]
        raw = data[end + first:end + last]
        if about["dtype"] == "BF16":
            halves = struct.unpack(f"<{len(raw) // 2}H", raw)
            values = [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
        else:
            values = list(struct.unpack(f"<{len(raw) // 4}{'if'[about['dtype'] == 'F32']}", raw))
        tensors[name] = about["shape"], values
    return tensors


def write_tensors(path, tensors):
    """tensors: name -> (type, shape, values)."""
    header, data = {}, b""
    for name, (kind, shape, values) in tensors.items():
        if kind == "BF16":
            raw = struct.pack(f"<{len(values)}H", *map(bfloat16, values))
        else:
            raw = struct.pack(f"<{len(values)}{'if'[kind == 'F32']}", *values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# The arithmetic.

def product(matrix, vector, bias=None):
    sums = [math.fsum(map(mul, row, vector)) for row in matrix]
    return [a + b for a, b in zip(sums, bias)] if bias else sums


def softmax(values):
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / math.fsum(powers) for power in powers]


def rms_norm(values, weight):
    factor = 1 / math.sqrt(math.fsum(v * v for v in values) / len(values) + EPSILON)
    return [v * factor * w for v, w in zip(values, weight)]


def layer_norm(values, weight, bias):
    mean = math.fsum(values) / len(values)
    factor = 1 / math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values) + EPSILON)
    return [(v - mean) * factor * w + b for v, w, b in zip(values, weight, bias)]


def frequencies_of(rope, length):
    """Of each pair, and the factor of cosines and sines, in a text of `length` tokens."""
    theta, trained, factor = rope["rope_theta"], rope["original_max_position_embeddings"], rope["factor"]
    exponents = [2 * pair / HEAD_DIM for pair in range(HEAD_DIM // 2)]
    if rope["rope_type"] == "dynamic":
        if length > trained:
            theta *= (factor * length / trained - (factor - 1)) ** (HEAD_DIM / (HEAD_DIM - 2))
        return [float32(theta ** -exponent) for exponent in exponents], 1.0
    factors = rope["long_factor" if length > trained else "short_factor"]
    return ([float32(theta ** -exponent / divisor) for exponent, divisor in zip(exponents, factors)],
            float32(math.sqrt(1 + math.log(factor) / math.log(trained))))


def turn(head, position, frequencies, factor):
    half, turned = HEAD_DIM // 2, head[:]
    for pair, frequency in enumerate(frequencies):
        angle = float32(position * frequency)
        cosine, sine = math.cos(angle) * factor, math.sin(angle) * factor
        turned[pair] = head[pair] * cosine - head[pair + half] * sine
        turned[pair + half] = head[pair + half] * cosine + head[pair] * sine
    return turned


def sparse_mixer(scores, jitter):
    """Experts and their weights, one after the other; what lies too far below the best is masked."""
    chosen, left = [], list(scores)
    for _ in range(2):
        top = max(left)
        expert = left.index(top)
        kept = [value for value, score in zip(left, scores)
                if (top - score) / max(abs(score), top) <= 2 * jitter and value != -math.inf]
        chosen.append((expert, softmax(kept)[kept.index(top)]))
        left[expert] = -math.inf
    return chosen


def best_normalised(scores):
    shares = softmax(scores)
    order = sorted(range(EXPERTS), key=lambda expert: -shares[expert])[:TOP_K]
    total = sum(shares[expert] for expert in order)
    return [(expert, shares[expert] / total) for expert in order]


class Model:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.is_phi = self.config["model_type"] == "phimoe"
        self.vectors = {}
        for name, (shape, values) in read_tensors(folder / "model.safetensors").items():
            width = shape[-1]
            rows = [values[i:i + width] for i in range(0, len(values), width)]
            self.vectors[name] = rows if len(shape) == 2 else values

    def tensor(self, name):
        return self.vectors.get(name)

    def normed(self, values, name):
        weight, bias = self.tensor(name + ".weight"), self.tensor(name + ".bias")
        return layer_norm(values, weight, bias) if self.is_phi else rms_norm(values, weight)

    def heads(self, layer, projection, values, rotation, position):
        name = f"model.layers.{layer}.self_attn.{projection}"
        flat = product(self.tensor(name + "_proj.weight"), values, self.tensor(name + "_proj.bias"))
        heads = [flat[i:i + HEAD_DIM] for i in range(0, len(flat), HEAD_DIM)]
        if projection == "v":
            return heads
        norm = self.tensor(name + "_norm.weight")
        if norm:
            heads = [rms_norm(head, norm) for head in heads]
        return [turn(head, position, *rotation) for head in heads]

    def attention(self, layer, inputs, rotation):
        queries, keys, values = ([self.heads(layer, projection, row, rotation, position)
                                  for position, row in enumerate(inputs)] for projection in "qkv")
        name = f"model.layers.{layer}.self_attn.o_proj"
        outputs = []
        for last, query in enumerate(queries):
            mixed = []
            for head in range(HEADS):
                kv_head = head // (HEADS // KV_HEADS)
                scores = [math.fsum(map(mul, query[head], keys[position][kv_head])) / math.sqrt(HEAD_DIM)
                          for position in range(last + 1)]
                shares = softmax(scores)
                mixed += [math.fsum(share * values[position][kv_head][i] for position, share in enumerate(shares))
                          for i in range(HEAD_DIM)]
            outputs.append(product(self.tensor(name + ".weight"), mixed, self.tensor(name + ".bias")))
        return outputs

    def experts(self, layer, values):
        block = f"model.layers.{layer}." + ("block_sparse_moe." if self.is_phi else "mlp.")
        gate, up, down = ("w1", "w3", "w2") if self.is_phi else ("gate_proj", "up_proj", "down_proj")
        scores = product(self.tensor(block + "gate.weight"), values)
        chosen = sparse_mixer(scores, self.config["router_jitter_noise"]) if self.is_phi \
            else best_normalised(scores)
        sums = [0.0] * HIDDEN
        for expert, share in chosen:
            name = f"{block}experts.{expert}."
            opened = [a / (1 + math.exp(-a)) * b for a, b in zip(
                product(self.tensor(f"{name}{gate}.weight"), values),
                product(self.tensor(f"{name}{up}.weight"), values))]
            for i, value in enumerate(product(self.tensor(f"{name}{down}.weight"), opened)):
                sums[i] += share * value
        return sums

    def logits(self, text, length=0):
        """[tokens, vocabulary]; length: what the rotations follow, usually that of the text."""
        rotation = frequencies_of(self.config["rope_parameters"], length or len(text))
        rows = [self.tensor("model.embed_tokens.weight")[token][:] for token in text]
        for layer in range(LAYERS):
            name = f"model.layers.{layer}."
            added = self.attention(layer, [self.normed(row, name + "input_layernorm") for row in rows],
                                   rotation)
            rows = [[a + b for a, b in zip(*pair)] for pair in zip(rows, added)]
            added = [self.experts(layer, self.normed(row, name + "post_attention_layernorm"))
                     for row in rows]
            rows = [[a + b for a, b in zip(*pair)] for pair in zip(rows, added)]
        return [product(self.tensor("lm_head.weight"), self.normed(row, "model.norm"),
                        self.tensor("lm_head.bias")) for row in rows]


# What is drawn and what is kept.

def draw_weights(folder, config, seed):
    draws, tensors = random.Random(seed), {}
    is_phi = config["model_type"] == "phimoe"

    def add(name, *shape, mean=0.0, spread=0.2):
        count = math.prod(shape)
        tensors[name] = "BF16", list(shape), [draws.gauss(mean, spread) for _ in range(count)]

    def add_norm(name, width=HIDDEN):
        add(name + ".weight", width, mean=1.0)
        if is_phi:
            add(name + ".bias", width)

    add("model.embed_tokens.weight", VOCABULARY, HIDDEN, spread=1.0)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        add_norm(name + "input_layernorm")
        add_norm(name + "post_attention_layernorm")
        for projection, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            add(f"{name}self_attn.{projection}_proj.weight", rows * HEAD_DIM, HIDDEN, spread=0.35)
            if is_phi:
                add(f"{name}self_attn.{projection}_proj.bias", rows * HEAD_DIM)
        add(name + "self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM, spread=0.35)
        if is_phi:
            add(name + "self_attn.o_proj.bias", HIDDEN)
        else:
            add(name + "self_attn.q_norm.weight", HEAD_DIM, mean=1.5)
            add(name + "self_attn.k_norm.weight", HEAD_DIM, mean=1.5)
        block = name + ("block_sparse_moe." if is_phi else "mlp.")
        gate, up, down = ("w1", "w3", "w2") if is_phi else ("gate_proj", "up_proj", "down_proj")
        add(block + "gate.weight", EXPERTS, HIDDEN, spread=0.4)
        for expert in range(EXPERTS):
            add(f"{block}experts.{expert}.{gate}.weight", INNER, HIDDEN)
            add(f"{block}experts.{expert}.{up}.weight", INNER, HIDDEN)
            add(f"{block}experts.{expert}.{down}.weight", HIDDEN, INNER)
    add_norm("model.norm")
    add("lm_head.weight", VOCABULARY, HIDDEN)
    if is_phi:
        add("lm_head.bias", VOCABULARY)
    write_tensors(folder / "model.safetensors", tensors)


def flat(rows):
    return [value for row in rows for value in row]


def compute(model, ids):
    """Everything that golden.safetensors has beside the ids."""
    outputs = {"logits": ("F32", [TEXT, VOCABULARY], flat(model.logits(ids)))}
    for window in WINDOWS:
        outputs[f"logits_{window}"] = "F32", [window, VOCABULARY], flat(model.logits(ids[:window]))
    text, steps = ids[:PROMPT], []
    for _ in range(CONTINUED):
        steps.append(model.logits(text)[-1])
        text = text + [max(range(VOCABULARY), key=steps[-1].__getitem__)]
    outputs["greedy"] = "I32", [len(text)], text
    outputs["greedy_logits"] = "F32", [CONTINUED, VOCABULARY], flat(steps)
    return outputs


def apart(values, expected):
    return max(abs(a - b) for a, b in zip(values, expected)) / max(map(abs, expected))


def main():
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit(__doc__)
    failed = False
    for seed, (name, config) in enumerate(CONFIGS.items()):
        folder = HERE / name
        if sys.argv[1] == "--write":
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text(json.dumps(SHARED | config, indent=1) + "\n")
            draw_weights(folder, config, seed)
            ids = random.Random(100 + seed).choices(range(1, VOCABULARY), k=TEXT)
        else:
            stored = read_tensors(folder / "golden.safetensors")
            ids = stored["input_ids"][1]
        model = Model(folder)
        outputs = compute(model, ids)
        if sys.argv[1] == "--write":
            write_tensors(folder / "golden.safetensors", {"input_ids": ("I32", [TEXT], ids)} | outputs)
            stored = read_tensors(folder / "golden.safetensors")
        errors = {tensor: apart(values, stored[tensor][1])
                  for tensor, (kind, _, values) in outputs.items() if kind == "F32"}
        same = outputs["greedy"][2] == stored["greedy"][1] and max(errors.values()) < 1e-6
        # What a mistake would show: the other side's rotations, over the same text.
        mistake = apart(flat(model.logits(ids, TRAINED)), stored["logits"][1])
        print(f"{name}: {'as stored' if same else 'differs'}, at most {max(errors.values()):.1e}; the "
              f"rotations of {TRAINED} tokens would be {mistake:.2f} off")
        failed |= not same or mistake < 0.05
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
