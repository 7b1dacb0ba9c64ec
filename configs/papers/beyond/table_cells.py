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
    given = parser.parse_args()
    given.moorage = c.script.program(given)
    given.systems = [one for one in given.systems.split(",") if one]
    if given.quick:
        given.tokens, given.only = 150, "25 rtx_4"
        given.traces = c.CONFIGS / "traces"
        given.systems = SYSTEMS[:2]
    return given


class Runs:
    """Reports of runs over one half of the traces, kept by what was asked."""

    def __init__(self, given, folder):
        self.given, self.folder = given, folder
        self.routing = {}

    def trace(self, one, text=None):
        """The file of the half, or of one of its texts: equal parts of its requests."""
        path = self.folder / f"{one.file}.{text}.safetensors"
        if not path.exists():
            begin = 0 if self.given.half == "first" else 0.5
            size = 0.5 / self.given.texts if text is not None else 0.5
            begin += size * (text or 0)
            bounds.Routing(one.path(self.given.traces)).part(begin, begin + size, path)
            self.routing.setdefault(one.name, bounds.Routing(path))
        return path

    def kept(self, key, make):
        if not self.given.kept:
            return make()
        if self.given.busy_link is not None:
            key = f"busy link {self.given.busy_link} {key}"
        self.given.kept.mkdir(parents=True, exist_ok=True)
        file = self.given.kept / (key.replace("/", "_").replace(" ", "_") + ".json")
        if not file.exists():
            made = make()
            file.write_text(json.dumps(made))
            return made
        return json.loads(file.read_text())

    def report(self, config, one, profile, share, more=(), text=None):
        settings = [f"source.trace={self.trace(one, text)}", f"source.shape={one.shape}",
                    f"hardware.profile={c.device(self.given, profile)}",
                    f"memory.experts={2 * one.half * share // 100}",
                    f"run.tokens={self.given.tokens}", *more]
        return c.report_of(self.given, config, settings)

    def system(self, name, one, profile, share, text=None):
        key = f"{self.given.half} {self.given.tokens} {name} {one.name} {profile} {share}"
        if text is not None:
            key += f" {text} of {self.given.texts}"

        def make():
            done = self.report(f"systems/{name}.toml", one, profile, share, text=text)
            return done and done["tpot_ms"]["mean"]
        return self.kept(key, make)

    def misses(self, one, share):
        self.trace(one)
        key = f"{self.given.half} {self.given.tokens} belady {one.name} {share}"
        return self.kept(key, lambda: bounds.belady(
            self.routing[one.name].steps(self.given.tokens), 2 * one.half * share // 100))


    def most_hits(self, one, share):
        """Of any schedule, by loads a token."""
        self.trace(one)
        key = f"{self.given.half} {self.given.tokens} most {one.name} {share}"
        of = bounds.shape(one.shape)
        steps = self.routing[one.name].steps(self.given.tokens)
        lines = self.kept(key, lambda: bounds.most_hits(
            steps, 2 * one.half * share // 100, self.given.tokens))
        return bounds.hits_of(lines, of.layers * of.top_k)


def cell(runs, one, profile, share):
    given = runs.given
    on, of = bounds.machine(profile), bounds.shape(one.shape)
    misses = runs.misses(one, share)
    hits = 1 - sum(misses) / (len(misses) * of.top_k)
    ours = runs.report(given.config, one, profile, share, given.set)
    published = {name: runs.system(name, one, profile, share) for name in given.systems}
    there = {name: ms for name, ms in published.items() if ms}
    best = min(there, key=there.get) if there else None
    tpot = ours["tpot_ms"]["mean"]
    tokens = ours["tokens"]
    ms = {name: sum(phase[name + "_ms"] for phase in ours["causes"].values()) / tokens
          for name in ("compute", "launch", "link", "cpu")}
    texts = [(runs.report(given.config, one, profile, share, given.set, text)["tpot_ms"]["mean"],
              runs.system(best, one, profile, share, text))
             for text in range(given.texts)] if best else []
    return {
        "texts": texts,
        "trace": one.name, "gpu": profile, "share": share, "tpot_ms": tpot,
        "p50_ms": ours["tpot_ms"]["p50"], "p99_ms": ours["tpot_ms"]["p99"],
        "best": best, "best_ms": there.get(best), "published": published,
        "f_star_ms": 1e3 * bounds.f_star(on, of, hits), "fixed_ms": 1e3 * bounds.fixed(on, of),
        "clairvoyant_ms": 1e3 * bounds.clairvoyant(on, of, runs.most_hits(one, share)),
        "hits_belady": hits, "hits": ours["experts"]["hit_rate"], "causes_ms": ms,
        "link_busy": ours["time_ms"]["transfer"] / tokens / tpot,
        "cpu_busy": ours["time_ms"]["cpu"] / tokens / tpot,
        "loads": ours["bytes"]["h2d"] / of.expert / tokens,
    }


def line(one):
    causes = " ".join(f"{one['causes_ms'].get(name, 0):6.2f}"
                      for name in ("compute", "launch", "link", "cpu"))
    gain = f"{100 * (1 - one['tpot_ms'] / one['best_ms']):6.1f}" if one["best_ms"] else " " * 6
    return (f"{one['trace']:14} {one['gpu'][:11]:11} {one['share']:2} {one['tpot_ms']:7.2f} "
            f"{one['best'] or '':>16} {one['best_ms'] or 0:7.2f} {gain} "
            f"{one['f_star_ms']:7.2f} {one['tpot_ms'] / one['f_star_ms']:5.2f} "
            f"{one['tpot_ms'] / (one['f_star_ms'] + one['fixed_ms']):5.2f} "
            f"{one['tpot_ms'] / one['clairvoyant_ms']:5.2f} | {causes} | "
            f"{100 * one['hits']:4.1f} {100 * one['hits_belady']:4.1f} "
            f"{100 * one['link_busy']:4.0f} {100 * one['cpu_busy']:4.0f} {one['loads']:6.2f}"
            + spread(one))


def spread(one):
    """Least and greatest time and gain of the texts."""
    if not one["texts"]:
        return ""
    times = [ms for ms, _ in one["texts"]]
    gains = [100 * (1 - ms / theirs) for ms, theirs in one["texts"]]
    return f" | {min(times):7.2f} {max(times):7.2f} {min(gains):5.1f} {max(gains):5.1f}"


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def summary(cells):
    for share in SHARES:
        those = [one for one in cells if one["share"] == share
                 and one["trace"] not in WITHOUT_BOUND]
        if not those:
            continue
        print(f"{share} % resident: {mean(o['tpot_ms'] / o['f_star_ms'] for o in those):.2f} x F, "
              f"{mean(o['tpot_ms'] / (o['f_star_ms'] + o['fixed_ms']) for o in those):.2f} x "
              "(F + fixed), "
              f"{mean(o['tpot_ms'] / o['clairvoyant_ms'] for o in those):.2f} x clairvoyant; "
              f"mean of {len(those)} cells")
    behind = [one for one in cells if one["best_ms"] and one["tpot_ms"] > 1.005 * one["best_ms"]]
    print(f"more than 0.5 % behind a published system: {len(behind)} of {len(cells)} cells")
    for one in behind:
        print(f"  {one['trace']}, {one['gpu']}, {one['share']} %: {one['tpot_ms']:.3f} against "
              f"{one['best']} {one['best_ms']:.3f}")


def main():
    given = options()
    bounds.check()
    traces = c.present(TRACES, given)
    words = given.only.split()

    def wanted(one, profile, share):
        return all(word in one.name or word in profile or word == str(share) for word in words)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        runs = Runs(given, Path(folder))
        asked = [(one, profile, share) for share in SHARES for one in traces
                 for profile in PROFILES if wanted(one, profile, share)]
        for one in {a[0].name: a[0] for a in asked}.values():
            for text in (None, *range(given.texts)):
                runs.trace(one, text)
        print(f"{'trace':14} {'GPU':11} {'%':2} {'ms':>7} {'best published':>24} {'gain %':>6} "
              f"{'F':>7} {'x F':>5} {'+fix':>5} {'x cla':>5} | compute launch   link    cpu | "
              "hits  OPT link% cpu%  loads" + (" | texts: ms, gain %" if given.texts else ""))
        cells = []
        for one in pool.map(lambda a: cell(runs, *a), asked):
            cells.append(one)
            print(line(one), flush=True)
    summary(cells)
    if given.json:
        given.json.write_text(json.dumps(cells, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
