#!/usr/bin/env python3
"""theorems.py - the request sequences of Theorems 3.1 and 3.3, counted beside what is proved."""
import json

from replays import arguments, session


def trace_of(work, rounds, layers, experts, page):
    """Round i requests page(i, layer) of each layer."""
    log, trace = work.new_file("sequence.jsonl"), work.new_file("sequence.safetensors")
    log.write_text("".join(json.dumps({"experts": [[page(i, layer)] for layer in range(layers)]})
                           + "\n" for i in range(rounds)))
    work.run("trace", "convert", log, "--experts", experts, "--out", trace)
    return trace


def fixed_partition(work, layers, experts, rounds):
    """Theorem 3.1: every layer asks for page 0, the last one, with the fewest slots, for all its
    pages in turn; with n + l - 1 slots a shared cache misses nothing after the first time."""
    slots = experts + layers - 1
    trace = trace_of(work, rounds, layers, experts,
                     lambda i, layer: i % experts if layer == layers - 1 else 0)
    counted = work.replay(trace, ["belady", "lru", "llru"], [slots], "shared,per-layer", "rounds")
    line = []
    for policy in ("belady", "lru", "llru"):
        shared, divided = (counted[policy, sharing, slots] for sharing in ("shared", "per-layer"))
        line += [shared, divided]
        place = f"theorem 3.1, {policy}, {layers} layers, {experts} pages, {rounds} rounds"
        work.require(shared == experts + layers - 1, f"{place}: {shared} misses of a shared cache")
        work.require(divided >= rounds // experts, f"{place}: {divided} misses of divided ones")
    print(f"{layers:>3}{experts:>4}{slots:>5}{rounds:>8}" + "".join(f"{n:>9}" for n in line))
    work.rows.append(["3.1", layers, experts, slots, rounds, *line])


def cycle(work, layers, experts, rounds):
    """Theorem 3.3: all n l = k + 1 pages in turn; LRU always misses, OPT once in k requests."""
    slots = layers * experts - 1
    trace = trace_of(work, rounds, layers, experts, lambda i, layer: i % experts)
    counted = work.replay(trace, ["belady", "lru", "llru"], [slots], "shared", "rounds")
    optimum, lru, llru = (counted[name, "shared", slots] for name in ("belady", "lru", "llru"))
    requests = rounds * layers
    expected = slots + 1 + (requests - slots - 1) // slots
    place = f"theorem 3.3, {layers} layers, {experts} pages, {rounds} rounds"
    work.require(lru == requests, f"{place}: lru hits")
    work.require(optimum == expected, f"{place}: opt misses {optimum}, not {expected}")
    print(f"{layers:>3}{experts:>4}{slots:>5}{requests:>10}{optimum:>8}{lru:>8}{llru:>8}"
          f"{(lru - slots) / (optimum - slots):>10.1f}{(llru - slots) / (optimum - slots):>10.1f}")
    work.rows.append(["3.3", layers, experts, slots, rounds, optimum, lru, llru])


def main():
    options = arguments(__doc__)
    work = session(options)
    print("Theorem 3.1: n + l - 1 slots; misses of a shared cache and of one per layer\n"
          "  l   n    k  rounds      OPT  OPT-d      LRU    LRU-d     LLRU   LLRU-d")
    sizes = [(2, 2), (4, 4), (32, 8)]
    for layers, experts in sizes:
        for rounds in (100, 1000):
            fixed_partition(work, layers, experts, rounds)
    print("\nTheorem 3.3: a cycle over k + 1 pages; misses after the first k over OPT's\n"
          "  l   n    k  requests     OPT     LRU    LLRU   LRU/OPT  LLRU/OPT")
    for layers, experts in sizes:
        cycle(work, layers, experts, 1000)
    work.end()


main()
