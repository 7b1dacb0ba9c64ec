#!/usr/bin/env python3
"""figure6.py - Figure 6: how many more misses the optimum has when each layer has its own cache."""
import sys

from replays import arguments, session


def ratio(work, layers, experts, slots, a, seeds):
    """Misses of OPT in a cache per layer over those in a shared one, summed over the seeds."""
    shared = divided = 0
    for seed in range(seeds):
        trace = work.synthesize(layers, experts, 1, work.arguments.rounds, a, seed)
        counted = work.replay(trace, ["belady"], [slots], "shared,per-layer", "rounds")
        shared += counted["belady", "shared", slots]
        divided += counted["belady", "per-layer", slots]
    value = divided / shared
    place = f"{layers} layers x {experts}, {slots} slots, a = {a}"
    work.require(value >= 1, f"{place}: the optimum of a shared cache has more misses")
    work.require(value == 1 or layers * experts > slots, f"{place}: all fits, yet it is not 1")
    work.require(value == 1 or layers > 1, f"{place}: one layer, yet it is not 1")
    work.rows.append([layers, experts, slots, a, divided, shared])
    return value


def grid(work, sizes):
    print(f"(a) OPT-dist / OPT; k = 16, Zipf a = 2, {work.arguments.rounds} rounds\n"
          "down: pages per layer n, across: layers l")
    print(" " * 4 + "".join(f"{layers:>5}" for layers in sizes))
    highest = (0, 0, 0)
    for experts in reversed(sizes):
        line = []
        for layers in sizes:
            line.append(ratio(work, layers, experts, 16, 2, 1))
            highest = max(highest, (line[-1], layers, experts))
        print(f"{experts:>4}" + "".join(f"{value:>5.2f}" for value in line))
        sys.stdout.flush()
    print("most: {:.2f} at l = {}, n = {}\n".format(*highest))


def line(work, exponents, seeds):
    print(f"(b) k = 64, l = 32, n = 8, {work.arguments.rounds} rounds; traces for each a: {seeds}")
    print("   a   OPT-dist / OPT")
    for a in exponents:
        print(f"{a:>4.1f}   {ratio(work, 32, 8, 64, a, seeds):.3f}")


def main():
    options = arguments(__doc__, [("--rounds", 1000, "rounds of a trace; not in the paper")])
    work = session(options)
    work.rows.append(["layers", "experts", "slots", "a", "misses_per_layer", "misses_shared"])
    grid(work, [1, 2, 4, 8, 15] if options.quick else list(range(1, 16)))
    if options.quick:
        line(work, [0, 1, 4, 8], 1)
    else:
        line(work, [i / 2 for i in range(17)], 3)
    work.end()


main()
