"""bounds.py - what no schedule beats: computed here, from figures of machine, model and routing alone.

F* is the hard lower bound of a token's time at a hit rate h with perfect prediction: the smallest T
with
    min(h L k s, (T - t_d) W_g) + min(W_p + W_c, W_d) T  >=  L k s,         t_d = D / W_g
where a token reads D bytes that every token needs and k experts of s bytes in each of L layers; W_g is
what the GPU reads of its memory, W_p what the link brings, W_c what the CPU's expert kernel reads, W_d
what host memory gives both together. The GPU reads what is resident, link and CPU all the rest, each
without a pause; hits may run on the CPU, too. No policy that keeps the model's choice, every byte of an
expert and the dense part on the GPU is faster at that h. The h used is Belady's, of an optimum that
loads every miss (L. A. Belady, A study of replacement algorithms, 1966), which no policy that does not
know the future has.

What it leaves out is what every schedule here has to do as well:
- fixed_ns: launches, hand-overs and the like, which no policy can save (`fixed`);
- order: an expert of a layer cannot be computed before the layer is routed, so the CPU rests while the
  GPU is at attention, and it cannot take from one layer what it has too much of in another (`ordered`).
  The link may: what a layer will want can be brought at any time before.
"""

import heapq
import json
import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


def figures(path):
    """Numbers and words of a TOML file's top level."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            break
        match = re.match(r"(\w+) = (?:\"(.*)\"|([0-9.eE_+-]+))$", line)
        if match:
            found[match[1]] = match[2] if match[3] is None else float(match[3].replace("_", ""))
    return found


@dataclass
class Machine:
    gpu: float      # bytes/s that kernels read of GPU memory, W_g
    link: float     # W_p
    cpu: float      # W_c
    memory: float   # of the host, link and CPU together, W_d
    layer: float    # seconds of a layer, whatever is read: launches, hand-over of the gate's result
    expert: float   # ... of an expert on the GPU
    issue: float    # ... of a load
    cpu_issue: float
    pass_s: float   # ... of a token


def machine(profile):
    folder = PROJECT / "hw_profiles"
    device = figures(folder / "device" / f"{profile}.toml")
    link = figures(folder / "link" / f"{device['link']}.toml")
    node = figures(folder / "node" / f"{device['node']}.toml")
    launch = device["launch_ns"] / 1e9
    return Machine(gpu=device["memory_bytes_per_s"] * device["memory_efficiency"],
                   link=link["h2d_bytes_per_s"],
                   cpu=min(node["cpu_bytes_per_s"], node["memory_bytes_per_s"]),
                   memory=node["memory_bytes_per_s"],
                   layer=(device["layer_ns"] + device["sync_ns"]) / 1e9
                   + device["attention_kernels"] * launch,
                   expert=device["expert_kernels"] * launch, issue=link["issue_ns"] / 1e9,
                   cpu_issue=node["cpu_issue_ns"] / 1e9, pass_s=launch)


@dataclass
class Shape:
    layers: int
    experts: int
    top_k: int
    expert: float   # bytes
    dense: float    # bytes that every token reads: all but routed experts and the input embedding


def shape(name):
    values = figures(PROJECT / "configs" / "models" / f"{name}.toml")
    return Shape(int(values["moe_layers"]), int(values["experts"]), int(values["top_k"]),
                 values["expert_bytes"], values["dense_bytes"])


def f_star(machine, shape, hit_rate):
    """Seconds of a token."""
    routed_bytes = shape.layers * shape.top_k * shape.expert
    dense = shape.dense / machine.gpu
    host = min(machine.link + machine.cpu, machine.memory)
    # Either the hits all run on the GPU, in time, and the host's side decides ...
    time = routed_bytes * (1 - hit_rate) / host
    if time >= dense and (time - dense) * machine.gpu >= hit_rate * routed_bytes:
        return time
    # ... or the GPU has no time for all of them, and the host takes some, too.
    return max((routed_bytes + dense * machine.gpu) / (machine.gpu + host), dense)


def fixed(machine, shape):
    """Seconds of a token that no policy can save."""
    return shape.layers * machine.layer + machine.pass_s


def layer_s(machine, shape, missing):
    """Seconds of a layer's experts, `missing` of them not on the GPU; the CPU may take hits as well."""
    gpu = shape.expert / machine.gpu + machine.expert
    cpu = shape.expert / machine.cpu + machine.cpu_issue
    return min(max((shape.top_k - taken) * gpu, taken * cpu)
               for taken in range(missing, shape.top_k + 1))


def evenly(cost, missing):
    """The least mean cost of layers that miss so many on average: the convex hull of `cost`."""
    least = cost[-1] if missing >= len(cost) - 1 else math.inf
    for below in range(int(missing) + 1):
        for above in range(int(missing) + 1, len(cost)):
            share = (missing - below) / (above - below)
            least = min(least, (1 - share) * cost[below] + share * cost[above])
    return least


def clairvoyant(machine, shape, most_hits):
    """Seconds of a token at least, of any schedule, the future known: `most_hits`, of loads a token,
    bounds the hits a token."""
    base = shape.dense / machine.gpu + fixed(machine, shape)
    choices = shape.layers * shape.top_k
    cost = [layer_s(machine, shape, missing) for missing in range(shape.top_k + 1)]

    def least_s(time):  # of a token that has the link for so long
        loads = time / (shape.expert / machine.link)
        absent = max(0.0, choices - most_hits(loads))
        host = absent * shape.expert / machine.memory
        return max(base + shape.layers * evenly(cost, absent / shape.layers), host)
    low, high = base, base + shape.layers * max(cost)
    for _ in range(50):  # what a token takes falls with the time that the link has
        time = (low + high) / 2
        low, high = (time, high) if least_s(time) > time else (low, time)
    return high


def most_hits(steps, slots, tokens):
    """A function: no schedule that loads x experts a token has more hits a token than it says.

    A hit needs the expert to lie in a slot; from one use to the next it takes that slot for as many
    steps, and it comes there by a load, just in time at best. Whatever a slot's step and a load are
    said to cost, m and l, an expert's own best sum of hits less costs is found by itself, use by use;
    the sum over all experts and what slots and loads there are is above every schedule's hits
    (Lagrangian duality). The least over a grid of m and l is the bound."""
    uses = {}
    for step, pages in enumerate(steps):
        for page in pages:
            uses.setdefault(page, []).append(step)
    end = step + 1
    gaps = [[later - sooner for sooner, later in zip(times, times[1:])] for times in uses.values()]

    def surplus(load, slot):
        total = 0.0
        for page_gaps in gaps:
            # After a use: the expert lies there; or either way.
            resident_gain = best_gain = max(0.0, 1 - load)
            if load > 1:
                resident_gain = 1 - load
            for gap in page_gaps:
                keep_gain, reload_gain = resident_gain - slot * gap, best_gain - load
                resident_gain = (keep_gain if keep_gain > reload_gain else reload_gain) + 1
                if resident_gain > best_gain:
                    best_gain = resident_gain
            total += best_gain
        return total

    lines = []  # hits <= surplus + slot * slots * steps + load * loads, of a token
    for load in (0.05, 0.3, 0.6, 0.9, 1.3, 2.0, 3.5, 8.0):
        def value(log):
            return surplus(load, math.exp(log)) + math.exp(log) * slots * end
        least = smallest(value, math.log(1e-6), math.log(0.3), 8)
        lines.append((least / tokens, load))
    return lines


def smallest(value, low, high, calls):
    """About the least value of a convex function between the two: golden section."""
    part = (math.sqrt(5) - 1) / 2
    points = [high - part * (high - low), low + part * (high - low)]
    values = [value(points[0]), value(points[1])]
    least = min(values)
    for _ in range(calls - 2):
        if values[0] < values[1]:
            high, points[1], values[1] = points[1], points[0], values[0]
            points[0] = high - part * (high - low)
            values[0] = value(points[0])
        else:
            low, points[0], values[0] = points[0], points[1], values[1]
            points[1] = low + part * (high - low)
            values[1] = value(points[1])
        least = min(least, *values)
    return least


def hits_of(lines, choices):
    return lambda loads: min(choices, min(fixed_hits + load * loads for fixed_hits, load in lines))


class Routing:
    """Chosen experts of a trace file, and some of its requests as a file of their own."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        self.header = json.loads(data[8:8 + size])
        self.about = self.header.pop("__metadata__")
        self.data = memoryview(data)[8 + size:]

    def bytes_of(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.data[begin:end]

    def numbers(self, name):
        letter = {"U8": "B", "U16": "H", "I32": "i", "I64": "q"}[self.header[name]["dtype"]]
        data = self.bytes_of(name)
        return struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)

    def part(self, begin, end, target):
        """Writes the requests between two shares of all."""
        ends = self.numbers("request_offsets")
        first, last = (round(share * (len(ends) - 1)) for share in (begin, end))
        kept = ends[first:last + 1]
        tokens = self.header["experts"]["shape"][0]
        header, parts, offset = {"__metadata__": self.about}, [], 0
        for name, tensor in self.header.items():
            if name == "request_offsets":
                part = struct.pack(f"<{len(kept)}q", *(end - kept[0] for end in kept))
                rows = len(kept)
            else:
                rows_before, tensor_data = tensor["shape"][0], self.bytes_of(name)
                width = len(tensor_data) // rows_before
                a, b = (kept[0], kept[-1]) if rows_before == tokens else (first, last)
                part, rows = bytes(tensor_data[a * width:b * width]), b - a
            header[name] = {"dtype": tensor["dtype"], "shape": [rows, *tensor["shape"][1:]],
                            "data_offsets": [offset, offset + len(part)]}
            parts.append(part)
            offset += len(part)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        Path(target).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))

    def steps(self, tokens):
        """The experts of each layer step of the first tokens, as pages."""
        recorded_tokens, layers, top_k = self.header["experts"]["shape"]
        experts = int(self.about["experts"])
        chosen = self.numbers("experts")
        for step in range(min(tokens, recorded_tokens) * layers):
            base = step % layers * experts
            yield [base + expert for expert in chosen[step * top_k:(step + 1) * top_k]]


def belady(steps, slots):
    """Misses of each step under the offline optimum: one cache of all layers, the experts of a step
    judged together and kept while it runs, every miss loaded; the one wanted furthest ahead goes."""
    steps = list(steps)
    never = len(steps)
    following, last = [None] * len(steps), {}
    for step in range(len(steps) - 1, -1, -1):
        following[step] = [last.get(page, never) for page in steps[step]]
        for page in steps[step]:
            last[page] = step
    held, heap, misses = {}, [], []  # held: page -> next use
    for step, pages in enumerate(steps):
        absent = sum(page not in held for page in pages)
        misses.append(absent)
        room = len(held) + absent - slots
        pinned = set(pages)
        aside = []
        while room > 0 and heap:
            use, page = heapq.heappop(heap)
            if held.get(page) != -use:
                continue
            if page in pinned:
                aside.append((use, page))
                continue
            del held[page]
            room -= 1
        for entry in aside:
            heapq.heappush(heap, entry)
        for page, use in zip(pages, following[step]):
            if page not in held and len(held) >= slots:
                continue  # all slots are in use by the step itself
            held[page] = use
            heapq.heappush(heap, (-use, page))
    return misses


def check():
    """Cases worked by hand. A6000: 768 GB/s, 25, 140, 160 together; 4060 Ti: 288, 12.5, 55, 70."""
    def build_machine(gpu, link, cpu, memory):
        return Machine(gpu * 1e9, link * 1e9, cpu * 1e9, memory * 1e9, 0, 0, 0, 0, 0)
    a6000, ti = build_machine(768, 25, 140, 160), build_machine(288, 12.5, 55, 70)
    # Mixtral, 22.549 GB of experts a token: 62.5 % of them over 160 GB/s are 88.1 ms; at h = .9 the
    # GPU cannot do its hits in the 14.1 ms of the misses: (22.549 + 25.5) GB at 928 GB/s, 25.5 GB
    # being 33.2 ms of the GPU less its 30.0 ms of 22.549 GB ... by the formula, 27.5 ms.
    mixtral = Shape(32, 8, 2, 352.32e6, (33.2e-3 - 22.549 / 768) * 768e9)
    lite = Shape(26, 64, 6, 17.30e6, (17.0e-3 - 2.699 / 288) * 288e9)
    for machine, shape, hits, ms in ((a6000, mixtral, .375, 88.1), (a6000, mixtral, .7, 42.3),
                                     (a6000, mixtral, .9, 27.5), (ti, lite, .395, 24.2),
                                     (ti, lite, .95, 13.8)):
        result_ms = f_star(machine, shape, hits) * 1e3
        assert abs(result_ms - ms) < 0.006 * ms + 0.05, (hits, ms, result_ms)
    # Two slots; a b | c | a | b: c takes the place of b, which is wanted later.
    assert belady([[0, 1], [2], [0], [1]], 2) == [2, 1, 0, 1]


if __name__ == "__main__":
    check()
