#!/usr/bin/env python3
"""figure4.py - Figure 4: misses of OPT, Marking, LRU, LRU-Dist and LLRU against the cache size."""
import reference
from replays import ORDERS, STRATEGIES, WORKLOADS, arguments, describe, pieces, session, shape_of

NAMES = [name for name, _, _ in STRATEGIES]


def sizes_of(experts, count):
    return sorted({1} | {experts * i // count for i in range(1, count + 1)})


def show(workload, shape, slots, found):
    """A line per size, the paper's order to the left, an engine's to the right."""
    total = shape[1] * shape[2]
    print(describe(workload, shape))
    print(" " * 5 + "  ".join(f"{title:>35}" for _, title in ORDERS))
    print(f"{'k':>5}" + "  ".join(["".join(f"{name:>7}" for name in NAMES)] * len(ORDERS)))
    for k in slots:
        if k != 1 and (k * 16) % total >= 16 and k != total:
            continue  # of a finer division only the sixteenths
        print(f"{k:>5}" + "  ".join(
            "".join(f"{found[order][name, k]:>7}" for name in NAMES) for order, _ in ORDERS))
    for order, title in ORDERS:
        counts = found[order]
        print(f"{title}, most x OPT: " + ", ".join(
            "{} {:.2f}".format(name, max(counts[name, k] / counts["OPT", k] for k in slots))
            for name in NAMES[1:]))
        for baseline in ("LRU", "LRU-d"):
            less = {k: 100 - 100 * counts["LLRU", k] / counts[baseline, k] for k in slots}
            low, high = min(slots, key=less.get), max(slots, key=less.get)
            print(f"  LLRU below {baseline}: {less[low]:.1f} % (k = {low}) to {less[high]:.1f} % "
                  f"(k = {high}), mean over k {sum(less.values()) / len(slots):.1f} %")
    print()


def check_ends(work, trace, shape, found):
    """At one slot of the paper's order nothing hits; where all experts fit, each is loaded once."""
    tokens, layers, experts, top_k = shape
    pages = reference.rounds(trace, shape)
    for name in NAMES:
        if name != "LRU-d":
            work.require(found["rounds"][name, 1] == tokens * layers * top_k,
                         f"{name} hits with one slot")
        for order, _ in ORDERS:
            work.require(found[order][name, layers * experts] == len(set(pages)),
                         f"{order}: {name} evicts where all fits")


def check_definitions(work, trace, shape, slots, found):
    """The same counts from the paper's definitions in plain Python."""
    pages = reference.rounds(trace, shape)
    for k in slots:
        for name, count in reference.STRATEGIES.items():
            expected = count(pages, k, shape[1])
            work.require(expected == found["rounds"][name, k],
                         f"{name}, {k} slots: {found['rounds'][name, k]} misses, "
                         f"{expected} by the definition")


def main():
    options = arguments(__doc__)
    work = session(options)
    work.rows.append(["workload", "order", "slots", "strategy", "misses"])
    for workload in WORKLOADS:
        if options.quick and "zipf" not in workload["key"] and workload["key"] != "qwen":
            continue
        for trace in pieces(work, workload, 1):
            shape = shape_of(trace)
            slots = sizes_of(shape[1] * shape[2], 16 if options.quick else 64)
            found = {order: work.misses(trace, slots, order) for order, _ in ORDERS}
            check_ends(work, trace, shape, found)
            if options.quick and workload["key"] == "llamamoe-zipf":
                check_definitions(work, trace, shape, slots, found)
            show(workload, shape, slots, found)
            work.rows += [[workload["key"], order, k, name, found[order][name, k]]
                          for order, _ in ORDERS for k in slots for name in NAMES]
    work.end()


main()
