#!/usr/bin/env python3
"""Table 1: hit rate of cache policies at 10 to 50 cached of 60 experts a layer."""
import json

from runs import arguments, session, table

POLICIES = [("random", "RND"), ("lfu:half_life=0", "LFU"), ("lru", "LRU"), ("lcp", "LCP")]
PAPER = {"RND": [16.41, 33.02, 49.69, 67.41, 83.15], "LFU": [24.36, 43.74, 60.68, 75.84, 89.34],
         "LRU": [19.11, 38.88, 56.38, 73.16, 88.97], "LCP": [25.56, 45.36, 62.21, 77.12, 90.08]}
CACHED = [10, 20, 30, 40, 50]


def rates(run, trace, tokens):
    """By policy, and of the offline optimum: hit rate at each size."""
    slots = ",".join(str(24 * count) for count in CACHED)
    policies = ",".join(name for name, _ in POLICIES)
    results = json.loads(run.run(
        ["replay", trace, "--policies", policies, "--slots", slots, "--sharing", "per-layer",
         "--order", "token", "--tokens", tokens, "--json", "-"]))["results"]
    by_policy = {name: [] for _, name in POLICIES}
    optimum = {}
    for entry in results:
        name = dict(POLICIES)[entry["policy"]]
        by_policy[name].append((entry["slots"], 100 * entry["hit_rate"]))
        optimum[entry["slots"]] = 100 * (1 - entry["opt_misses"] / entry["requests"])
    return {name: [rate for _, rate in sorted(points)] for name, points in by_policy.items()}, [
        rate for _, rate in sorted(optimum.items())]


def show(run, title, trace, tokens):
    found, best = rates(run, trace, tokens)
    rows = [[name, *(f"{rate:.2f}" for rate in values)] for name, values in found.items()]
    rows.append(["optimum", *(f"{rate:.2f}" for rate in best)])
    table(title, ["hit rate, %", *CACHED], rows)
    for name, values in found.items():
        run.check(values == sorted(values), f"{name} hits less with more slots")
        run.check(all(a <= b + 1e-9 for a, b in zip(values, best)), f"{name} is above the optimum")


def main():
    run = session(arguments(__doc__))
    table("The paper, Qwen1.5-MoE on MMLU", ["hit rate, %", *CACHED],
          [[name, *(f"{rate:.2f}" for rate in values)] for name, values in PAPER.items()])
    tokens = run.tokens(20_000)
    for name in ["long"] if run.arguments.quick else ["long", "code", "arith"]:
        if trace := run.trace(f"qwen15moe-shape.{name}"):
            show(run, f"Qwen1.5-MoE's shape, {name}", trace, tokens)
    made_up = run.made_up("as in Table 1", 0.7, run.tokens(20_000))
    show(run, "Made up: weights 1 / rank^0.3, slow drift", made_up["trace"], tokens)
    run.end()


main()
