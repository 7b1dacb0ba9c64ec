#!/usr/bin/env python3
"""figure5_listing.py - does the order in which a recording lists experts explain Figure 5?

The paper's rounds follow that order. By score is what its text says; by id and at random are what
a recording could hold as well. Counted by the definitions (reference.py).
"""
import random

import reference
from replays import WORKLOADS, arguments, describe, pieces, session, shape_of

SLOTS = 200
LISTINGS = {
    "score": lambda experts, chance: experts,
    "id": lambda experts, chance: sorted(experts),
    "random": lambda experts, chance: chance.sample(experts, len(experts)),
}


def misses(work, workload, arrange, count):
    """Of all traces together, by strategy."""
    chance, total = random.Random(1), dict.fromkeys(reference.STRATEGIES, 0)
    for trace in pieces(work, workload, count):
        shape = shape_of(trace)
        pages = reference.rounds(trace, shape, lambda experts: arrange(experts, chance))
        for name, strategy in reference.STRATEGIES.items():
            total[name] += strategy(pages, SLOTS, shape[1])
    return total, shape


def main():
    options = arguments(__doc__)
    work = session(options)
    for workload in WORKLOADS:
        recorded = work.find(workload.get("file", "")) is not None
        if workload["tokens"] != 18 or not recorded and "synthetic" not in workload:
            continue
        for listing, arrange in LISTINGS.items():
            total, shape = misses(work, workload, arrange, 2 if options.quick else 10)
            if listing == "score":
                print(f"{describe(workload, shape)}; k = {SLOTS}, misses / OPT\n"
                      "listed by    LRU  LRU-d   LLRU  LLRU below LRU  below LRU-d")
            print(f"{listing:<9}" + "".join(f"{total[name] / total['OPT']:>7.2f}"
                                             for name in ("LRU", "LRU-d", "LLRU"))
                  + f"{100 - 100 * total['LLRU'] / total['LRU']:>14.1f} %"
                  f"{100 - 100 * total['LLRU'] / total['LRU-d']:>11.1f} %")
        print()
    work.end()


main()
