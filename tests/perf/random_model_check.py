#!/usr/bin/env python3
"""random_model_check - a model that random_model.py writes spreads its tokens over the experts.

    tests/perf/random_model_check.py MOORAGE FOLDER

Writes a small one into FOLDER, records the routing of a text of its own with MOORAGE, and holds the
distinct experts of each layer against four fifths of independent uniform routing, E (1 - (1 - k/E)^T).
Rows of its routers and experts are compared, too. Exit code 1 and a line for each that is off.
"""
import json
import struct
import subprocess
import sys
from pathlib import Path

from random_model import SmallSizes, write_model

LAYERS, TOKENS = 4, 256


def tensors_of(path):
    """Name, shape and bytes of each tensor of a safetensors file."""
    raw = path.read_bytes()
    size = struct.unpack_from("<Q", raw)[0]
    for name, about in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            yield name, about["dtype"], about["shape"], raw[8 + size + begin:8 + size + end]


def off_in_weights(path):
    for name, _, shape, raw in tensors_of(path):
        if len(shape) != 2 or "embed" in name:
            continue
        width = 2 * shape[1]
        rows = [raw[start:start + width] for start in range(0, len(raw), width)]
        if name.endswith("mlp.gate.weight") and len(set(rows)) != shape[0]:
            yield f"{name}: rows are alike"
        values = [struct.unpack("<f", b"\0\0" + raw[start:start + 2])[0] for start in range(0, len(raw), 2)]
        mean = sum(values) / len(values)
        size = (sum(value * value for value in values) / len(values)) ** 0.5
        if abs(mean) > 6 * size / len(values) ** 0.5:
            yield f"{name}: a mean of {mean / size:.4f} of its values' size"


def off_in_routing(program, model, folder):
    windows, trace = folder / "windows.json", folder / "trace.safetensors"
    ids = [1 + token * 7919 % 1000 for token in range(TOKENS)]
    windows.write_text(json.dumps({"drawn": {"windows": [ids]}}))
    subprocess.run([program, "trace", "record", model, "--windows", windows, "--out", trace,
                    "--drop-gate-scores"], check=True, stdout=subprocess.DEVNULL)
    (tokens, layers, top_k), chosen = next((shape, raw) for name, dtype, shape, raw in tensors_of(trace)
                                           if name == "experts" and dtype == "U8")
    uniform = SmallSizes.experts * (1 - (1 - top_k / SmallSizes.experts) ** tokens)
    for layer in range(layers):
        reached = {chosen[(token * layers + layer) * top_k + i]
                   for token in range(tokens) for i in range(top_k)}
        print(f"layer {layer}: {len(reached)} of {SmallSizes.experts} experts, {tokens} tokens")
        if len(reached) < 0.8 * uniform:
            yield f"layer {layer}: less than 80 % of the {uniform:.1f} of independent uniform routing"


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    path = write_model(folder / "model", LAYERS, sparse=False, sizes=SmallSizes)
    off = [*off_in_weights(path), *off_in_routing(program, folder / "model", folder)]
    print("\n".join(off))
    sys.exit(1 if off else 0)


if __name__ == "__main__":
    main()
