"""routing.py - reads safetensors, and makes another top-k of a trace's gate scores."""
import json
import struct

LETTER = {"U8": "B", "U16": "H", "I32": "i", "I64": "q", "F16": "e", "F32": "f"}


def header_of(file):
    """(header, offset of the data) of a safetensors file"""
    with open(file, "rb") as opened:
        size = struct.unpack("<Q", opened.read(8))[0]
        return json.loads(opened.read(size)), 8 + size


def values_of(file, name):
    """A tensor's values, flat; None where the file has no such tensor"""
    header, start = header_of(file)
    if name not in header:
        return None
    begin, end = header[name]["data_offsets"]
    with open(file, "rb") as opened:
        opened.seek(start + begin)
        data = opened.read(end - begin)
    letter = LETTER[header[name]["dtype"]]
    return struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)


def sizes_of(file):
    """tokens, layers, experts, top-k, predictions of a trace"""
    header, _ = header_of(file)
    tokens, layers, top_k = header["experts"]["shape"]
    predictions = header["pred_experts"]["shape"][2] if "pred_experts" in header else 0
    return tokens, layers, int(header["__metadata__"]["experts"]), top_k, predictions


def ranked(scores):
    """Experts by falling score; of equal ones the smallest first"""
    return sorted(range(len(scores)), key=lambda expert: -scores[expert])


def with_top_k(source, target, top_k):
    """Writes the trace `source` with the `top_k` best of its gate scores as the chosen experts.

    Everything else stays. Requires: gate scores, at most 256 experts.
    """
    header, start = header_of(source)
    tokens, layers, experts, _, _ = sizes_of(source)
    scores = values_of(source, "gate_scores")
    chosen = bytearray()
    for first in range(0, tokens * layers * experts, experts):
        chosen += bytes(ranked(scores[first:first + experts])[:top_k])
    with open(source, "rb") as opened:
        opened.seek(start)
        data = opened.read()
    pieces, new, offset = [], {"__metadata__": dict(header["__metadata__"], top_k=str(top_k))}, 0
    tensors = [name for name in header if name not in ("__metadata__", "weights")]
    for name in sorted(tensors, key=lambda name: header[name]["data_offsets"]):
        begin, end = header[name]["data_offsets"]
        piece, about = data[begin:end], dict(header[name])
        if name == "experts":
            piece, about = bytes(chosen), {"dtype": "U8", "shape": [tokens, layers, top_k]}
        about["data_offsets"] = [offset, offset + len(piece)]
        new[name] = about
        pieces.append(piece)
        offset += len(piece)
    text = json.dumps(new).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as written:
        written.write(struct.pack("<Q", len(text)))
        written.write(text)
        for piece in pieces:
            written.write(piece)
