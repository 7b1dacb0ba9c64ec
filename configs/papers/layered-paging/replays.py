"""replays.py - what the figures share: arguments, traces cut to the paper's lengths, replays."""
import csv
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script  # noqa: E402

HERE = Path(__file__).resolve().parent
PROJECT = script.PROJECT

# Columns of the tables: the paper's name, policy, sharing. In a cache per layer llru is lru.
STRATEGIES = [
    ("OPT", "belady", "shared"),
    ("Mark", "marking", "shared"),
    ("LRU", "lru", "shared"),
    ("LRU-d", "lru", "per-layer"),
    ("LLRU", "llru", "shared"),
]
ORDERS = [("rounds", "the paper's rounds"), ("token", "an engine's steps")]

# Where a figure takes its routing from. `tokens`: as long as the paper's traces, whose requests are
# the faults at one slot in its Figure 4 (about 2,300 = 18 x 32 x 4 and 25,000 = 390 x 32 x 2);
# None: whole requests. `synthetic`: layers, experts, top-k of independent Zipf draws.
WORKLOADS = [
    dict(key="llamamoe", label="LLaMA-MoE's shape", file="llamamoe-shape.long", tokens=18),
    dict(key="mixtral", label="Mixtral's shape", file="mixtral-shape.long", tokens=390),
    dict(key="llamamoe-whole", label="LLaMA-MoE's shape", file="llamamoe-shape.long", tokens=None),
    dict(key="mixtral-whole", label="Mixtral's shape", file="mixtral-shape.long", tokens=None),
    dict(key="gpt-oss", label="gpt-oss-20b, real", file="gpt-oss-20b.a", tokens=None),
    dict(key="deepseek", label="DeepSeek-V2-Lite, real", file="deepseek-v2-lite.intent-law",
         tokens=None),
    dict(key="qwen", label="Qwen1.5-MoE's shape", file="qwen15moe-shape.long", tokens=None),
    dict(key="llamamoe-zipf", label="LLaMA-MoE's sizes, Zipf a = 1", synthetic=(32, 16, 4),
         tokens=18),
    dict(key="mixtral-zipf", label="Mixtral's sizes, Zipf a = 1", synthetic=(32, 8, 2),
         tokens=390),
]


def arguments(purpose, further=()):
    """Of the command line; `further`: (option, default, help) of a script's own counts."""
    parser = script.parser(purpose)
    parser.add_argument("--csv", metavar="FILE", help="write every figure there as well")
    for option, default, text in further:
        parser.add_argument(option, type=int, default=default, help=f"{text}; default: {default}")
    return parser.parse_args()


class session:
    """One run of a script: the program, a folder of its own for cut traces, what was noticed."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.program = script.program(arguments)
        self.folders = [PROJECT / "configs" / "traces"]
        if not arguments.quick:
            self.folders.insert(0, Path(arguments.traces))
        self.scratch = tempfile.TemporaryDirectory()
        self.rows = []  # of --csv
        self.wrong = []

    def run(self, *words):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"moorage {' '.join(map(str, words))}\n{done.stderr.strip()}")
        return done.stdout

    def new_file(self, name):
        return Path(self.scratch.name) / name

    def find(self, name):
        for folder in self.folders:
            file = folder / f"{name}.safetensors"
            if file.exists():
                return file
        return None

    def synthesize(self, layers, experts, top_k, tokens, a, seed):
        trace = self.new_file("synthetic.safetensors")
        self.run("trace", "synth", "--out", trace, "--layers", layers, "--experts", experts,
                 "--top-k", top_k, "--tokens", tokens, "--a", a, "--seed", seed)
        return trace

    def replay(self, trace, policies, slots, sharing, order):
        """{(policy, sharing, slots): misses}"""
        report = json.loads(self.run(
            "replay", trace, "--policies", ",".join(policies), "--slots",
            ",".join(map(str, slots)), "--sharing", sharing, "--order", order, "--json", "-"))
        return {(r["policy"], r["sharing"], r["slots"]): r["misses"] for r in report["results"]}

    def misses(self, trace, slots, order):
        """{(column of STRATEGIES, slots): misses}, checked for what holds on any trace"""
        _, layers, _, top_k = shape_of(trace)
        counted = self.replay(trace, ["belady", "marking", "lru", "llru"], slots,
                              "shared,per-layer", order)
        found = {(name, k): counted[policy, sharing, k]
                 for name, policy, sharing in STRATEGIES for k in slots}
        for k in slots:
            self.require(counted["lru", "per-layer", k] == counted["llru", "per-layer", k],
                         f"{order}, {k} slots: LLRU is not LRU in a cache per layer")
            for name, _, sharing in STRATEGIES:
                # A layer without room for a step serves it uncached, which OPT may not.
                room = k // layers >= (top_k if order == "token" else 1)
                self.require(found["OPT", k] <= found[name, k] or sharing != "shared" and not room,
                             f"{order}, {k} slots: {name} is below the optimum")
        for name in ("OPT", "LRU", "LLRU"):
            along = [found[name, k] for k in sorted(slots)]
            self.require(along == sorted(along, reverse=True),
                         f"{order}: misses of {name} rise with the cache")
        return found

    def require(self, holds, otherwise):
        if not holds:
            self.wrong.append(otherwise)

    def end(self):
        if self.arguments.csv:
            with open(self.arguments.csv, "w", newline="") as file:
                csv.writer(file).writerows(self.rows)
        self.scratch.cleanup()
        for message in self.wrong:
            print(f"wrong: {message}", file=sys.stderr)
        sys.exit(1 if self.wrong else 0)


def header_of(file):
    """(header, offset of the data) of a safetensors file"""
    with open(file, "rb") as opened:
        size = struct.unpack("<Q", opened.read(8))[0]
        return json.loads(opened.read(size)), 8 + size


def read_tensor(file, name):
    """The values of a tensor of whole numbers, flat."""
    header, start = header_of(file)
    begin, end = header[name]["data_offsets"]
    kind = {"U8": "B", "U16": "H", "I64": "q"}[header[name]["dtype"]]
    with open(file, "rb") as opened:
        opened.seek(start + begin)
        data = opened.read(end - begin)
    return [value for (value,) in struct.iter_unpack("<" + kind, data)]


def shape_of(file):
    """tokens, layers, experts, top-k"""
    header, _ = header_of(file)
    tokens, layers, top_k = header["experts"]["shape"]
    return tokens, layers, int(header["__metadata__"]["experts"]), top_k


def pieces(work, workload, count):
    """`count` traces of a workload: requests evenly spaced from the first to the last, cut (or run
    on into the next) to its length. Prints why there are none."""
    if "synthetic" in workload:
        for seed in range(count):
            yield work.synthesize(*workload["synthetic"], workload["tokens"], 1, seed)
        return
    file = work.find(workload["file"])
    if file is None:
        if not work.arguments.quick:
            print(f"{workload['label']}: left out, {workload['file']}.safetensors is not in\n"
                  f"{work.folders[0]}; --traces names its folder\n")
        return
    offsets = read_tensor(file, "request_offsets")
    requests = len(offsets) - 1
    for i in range(count):
        request = i * (requests - 1) // max(count - 1, 1)
        begin, end = offsets[request], offsets[request + 1]
        if workload["tokens"]:
            begin = max(0, min(begin, offsets[-1] - workload["tokens"]))
            end = begin + workload["tokens"]
        piece = work.new_file("piece.safetensors")
        work.run("trace", "convert", file, "--tokens", f"{begin}:{end}", "--out", piece)
        yield piece


def describe(workload, shape):
    tokens, layers, experts, top_k = shape
    length = f"{tokens} tokens" if workload["tokens"] else "whole requests"
    return f"{workload['label']}: {layers} x {experts} experts, top-{top_k}, {length}"
