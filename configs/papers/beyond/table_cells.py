#!/usr/bin/env python3
"""table_cells.py - best_lossless against every published system and against F*, cell by cell.

A cell is a trace, a GPU and a share of the experts that is resident. Each trace is cut in two at the
middle of its requests: `--half first` is what compositions are developed on, `--half second`, the
default, what is reported. bounds.py says what F* (here: F) is, what "fixed" adds to it, and what no
schedule beats that knows the future (cla). Then what the token's time goes to, in ms, hits and those of
Belady's optimum, how busy link and CPU are, loads a token. With --json FILE all figures of all runs.
"""

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bounds
import compositions as c

SYSTEMS = ["hybrimoe", "freetoken", "fiddler", "llama_cpp_static", "llama_cpp_cache",
           "moe_infinity", "adapmoe", "mixtral_offloading", "moepic"]
PROFILES = ["rtx_a6000", "rtx_4060_ti_16gb", "rtx_4090", "h200_sxm"]
SHARES = [25, 50, 75]
TRACES = [
    c.Trace("deepseek real", "deepseek-v2-lite.intent-law.safetensors", "deepseek_v2_lite", 832),
    c.Trace("gpt-oss real", "gpt-oss-20b.a.safetensors", "gpt_oss_20b", 384),
    c.Trace("llamamoe shape", "llamamoe-shape.long.safetensors", "llama_moe_3_5b_4_16", 256),
    c.Trace("mixtral shape", "mixtral-shape.long.safetensors", "mixtral_8x7b", 128),
    c.Trace("mixtral prose", "mixtral-shape.prose.safetensors", "mixtral_8x7b", 128),
    c.Trace("qwen shape", "qwen15moe-shape.long.safetensors", "qwen1_5_moe_a2_7b", 720, True,
            whole=True),
    c.Trace("demo", "demo.long.safetensors", "demo", 96),
]
WITHOUT_BOUND = {"demo"}  # its experts take less than what they cost to launch: F* says nothing


def options():
    parser = c.script.parser(__doc__.splitlines()[0])
    c.add_busy_link(parser)
    parser.add_argument("--tokens", type=int, default=2000, help="of each trace; default: 2,000")
    parser.add_argument("--half", choices=["first", "second"], default="second")
    parser.add_argument("--texts", type=int, default=0, metavar="N",
                        help="also N parts of the half, each by itself: the spread of gain and time")
    parser.add_argument("--config", default="best_lossless.toml", help="that is measured")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--only", default="", help="traces, GPUs, shares: those that contain a word")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="published ones; default: all")
    parser.add_argument("--kept", type=Path, help="folder of results that need not be run again")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    arguments.moorage = c.script.program(arguments)
    arguments.systems = [system for system in arguments.systems.split(",") if system]
    if arguments.quick:
        arguments.tokens, arguments.only = 150, "25 rtx_4"
        arguments.traces = c.CONFIGS / "traces"
        arguments.systems = SYSTEMS[:2]
    return arguments


class Runs:
    """Reports of runs over one half of the traces, kept by what was asked."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.routing = {}

    def trace(self, trace, text=None):
        """The file of the half, or of one of its texts: equal parts of its requests."""
        path = self.folder / f"{trace.file}.{text}.safetensors"
        if not path.exists():
            begin = 0 if self.arguments.half == "first" else 0.5
            size = 0.5 / self.arguments.texts if text is not None else 0.5
            begin += size * (text or 0)
            bounds.Routing(trace.path(self.arguments.traces)).part(begin, begin + size, path)
            self.routing.setdefault(trace.name, bounds.Routing(path))
        return path

    def kept(self, key, make):
        if not self.arguments.kept:
            return make()
        if self.arguments.busy_link is not None:
            key = f"busy link {self.arguments.busy_link} {key}"
        self.arguments.kept.mkdir(parents=True, exist_ok=True)
        file = self.arguments.kept / (key.replace("/", "_").replace(" ", "_") + ".json")
        if not file.exists():
            result = make()
            file.write_text(json.dumps(result))
            return result
        return json.loads(file.read_text())

    def report(self, config, trace, profile, share, extra_settings=(), text=None):
        settings = [f"source.trace={self.trace(trace, text)}", f"source.shape={trace.shape}",
                    f"hardware.profile={c.device(self.arguments, profile)}",
                    f"memory.experts={2 * trace.half * share // 100}",
                    f"run.tokens={self.arguments.tokens}", *extra_settings]
        return c.report_of(self.arguments, config, settings)

    def system(self, name, trace, profile, share, text=None):
        key = f"{self.arguments.half} {self.arguments.tokens} {name} {trace.name} {profile} {share}"
        if text is not None:
            key += f" {text} of {self.arguments.texts}"

        def make():
            report = self.report(f"systems/{name}.toml", trace, profile, share, text=text)
            return report and report["tpot_ms"]["mean"]
        return self.kept(key, make)

    def misses(self, trace, share):
        self.trace(trace)
        key = f"{self.arguments.half} {self.arguments.tokens} belady {trace.name} {share}"
        return self.kept(key, lambda: bounds.belady(
            self.routing[trace.name].steps(self.arguments.tokens), 2 * trace.half * share // 100))


    def most_hits(self, trace, share):
        """Of any schedule, by loads a token."""
        self.trace(trace)
        key = f"{self.arguments.half} {self.arguments.tokens} most {trace.name} {share}"
        shape = bounds.shape(trace.shape)
        steps = self.routing[trace.name].steps(self.arguments.tokens)
        lines = self.kept(key, lambda: bounds.most_hits(
            steps, 2 * trace.half * share // 100, self.arguments.tokens))
        return bounds.hits_of(lines, shape.layers * shape.top_k)


def cell(runs, trace, profile, share):
    arguments = runs.arguments
    machine, shape = bounds.machine(profile), bounds.shape(trace.shape)
    misses = runs.misses(trace, share)
    hits = 1 - sum(misses) / (len(misses) * shape.top_k)
    ours = runs.report(arguments.config, trace, profile, share, arguments.set)
    published = {name: runs.system(name, trace, profile, share) for name in arguments.systems}
    available = {name: ms for name, ms in published.items() if ms}
    best = min(available, key=available.get) if available else None
    tpot = ours["tpot_ms"]["mean"]
    tokens = ours["tokens"]
    ms = {name: sum(phase[name + "_ms"] for phase in ours["causes"].values()) / tokens
          for name in ("compute", "launch", "link", "cpu")}
    texts = [(runs.report(arguments.config, trace, profile, share, arguments.set,
                          text)["tpot_ms"]["mean"],
              runs.system(best, trace, profile, share, text))
             for text in range(arguments.texts)] if best else []
    return {
        "texts": texts,
        "trace": trace.name, "gpu": profile, "share": share, "tpot_ms": tpot,
        "p50_ms": ours["tpot_ms"]["p50"], "p99_ms": ours["tpot_ms"]["p99"],
        "best": best, "best_ms": available.get(best), "published": published,
        "f_star_ms": 1e3 * bounds.f_star(machine, shape, hits),
        "fixed_ms": 1e3 * bounds.fixed(machine, shape),
        "clairvoyant_ms": 1e3 * bounds.clairvoyant(machine, shape, runs.most_hits(trace, share)),
        "hits_belady": hits, "hits": ours["experts"]["hit_rate"], "causes_ms": ms,
        "link_busy": ours["time_ms"]["transfer"] / tokens / tpot,
        "cpu_busy": ours["time_ms"]["cpu"] / tokens / tpot,
        "loads": ours["bytes"]["h2d"] / shape.expert / tokens,
    }


def line(cell):
    causes = " ".join(f"{cell['causes_ms'].get(name, 0):6.2f}"
                      for name in ("compute", "launch", "link", "cpu"))
    gain = f"{100 * (1 - cell['tpot_ms'] / cell['best_ms']):6.1f}" if cell["best_ms"] else " " * 6
    return (f"{cell['trace']:14} {cell['gpu'][:11]:11} {cell['share']:2} {cell['tpot_ms']:7.2f} "
            f"{cell['best'] or '':>16} {cell['best_ms'] or 0:7.2f} {gain} "
            f"{cell['f_star_ms']:7.2f} {cell['tpot_ms'] / cell['f_star_ms']:5.2f} "
            f"{cell['tpot_ms'] / (cell['f_star_ms'] + cell['fixed_ms']):5.2f} "
            f"{cell['tpot_ms'] / cell['clairvoyant_ms']:5.2f} | {causes} | "
            f"{100 * cell['hits']:4.1f} {100 * cell['hits_belady']:4.1f} "
            f"{100 * cell['link_busy']:4.0f} {100 * cell['cpu_busy']:4.0f} {cell['loads']:6.2f}"
            + spread(cell))


def spread(cell):
    """Least and greatest time and gain of the texts."""
    if not cell["texts"]:
        return ""
    times = [ms for ms, _ in cell["texts"]]
    gains = [100 * (1 - ms / best_ms) for ms, best_ms in cell["texts"]]
    return f" | {min(times):7.2f} {max(times):7.2f} {min(gains):5.1f} {max(gains):5.1f}"


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def summary(cells):
    for share in SHARES:
        selected = [cell for cell in cells if cell["share"] == share
                    and cell["trace"] not in WITHOUT_BOUND]
        if not selected:
            continue
        f_star = mean(cell["tpot_ms"] / cell["f_star_ms"] for cell in selected)
        f_fixed = mean(cell["tpot_ms"] / (cell["f_star_ms"] + cell["fixed_ms"]) for cell in selected)
        clairvoyant = mean(cell["tpot_ms"] / cell["clairvoyant_ms"] for cell in selected)
        print(f"{share} % resident: {f_star:.2f} x F, {f_fixed:.2f} x (F + fixed), "
              f"{clairvoyant:.2f} x clairvoyant; "
              f"mean of {len(selected)} cells")
    behind = [cell for cell in cells
              if cell["best_ms"] and cell["tpot_ms"] > 1.005 * cell["best_ms"]]
    print(f"more than 0.5 % behind a published system: {len(behind)} of {len(cells)} cells")
    for cell in behind:
        print(f"  {cell['trace']}, {cell['gpu']}, {cell['share']} %: {cell['tpot_ms']:.3f} against "
              f"{cell['best']} {cell['best_ms']:.3f}")


def main():
    arguments = options()
    bounds.check()
    traces = c.present(TRACES, arguments)
    words = arguments.only.split()

    def is_wanted(trace, profile, share):
        return all(word in trace.name or word in profile or word == str(share) for word in words)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        runs = Runs(arguments, Path(folder))
        cases = [(trace, profile, share) for share in SHARES for trace in traces
                 for profile in PROFILES if is_wanted(trace, profile, share)]
        for trace in {a[0].name: a[0] for a in cases}.values():
            for text in (None, *range(arguments.texts)):
                runs.trace(trace, text)
        print(f"{'trace':14} {'GPU':11} {'%':2} {'ms':>7} {'best published':>24} {'gain %':>6} "
              f"{'F':>7} {'x F':>5} {'+fix':>5} {'x cla':>5} | compute launch   link    cpu | "
              "hits  OPT link% cpu%  loads" + (" | texts: ms, gain %" if arguments.texts else ""))
        cells = []
        for result in pool.map(lambda a: cell(runs, *a), cases):
            cells.append(result)
            print(line(result), flush=True)
    summary(cells)
    if arguments.json:
        arguments.json.write_text(json.dumps(cells, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
