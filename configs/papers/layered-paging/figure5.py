#!/usr/bin/env python3
"""figure5.py - Figure 5: misses over OPT's on ten traces, at 200 slots, as quartiles."""
import statistics

from replays import (ORDERS, STRATEGIES, WORKLOADS, arguments, describe, pieces, read_tensor,
                     session, shape_of)

NAMES = [name for name, _, _ in STRATEGIES[1:]]
# The paper's 200 slots hold 39 % of LLaMA-MoE's experts and 78 % of Mixtral's; models of other
# sizes get these shares.
SHARES = (200 / 512, 200 / 256)


def slots_of(workload, experts):
    if workload["key"].startswith(("llamamoe", "mixtral")):
        return [200]
    return [int(share * experts) for share in SHARES]


def skew(trace, shape):
    """The share of a layer's choices that its most used experts take, as many as a token chooses;
    the mean of the layers."""
    tokens, layers, experts, top_k = shape
    chosen, most = read_tensor(trace, "experts"), 0
    for layer in range(layers):
        counts = [0] * experts
        for token in range(tokens):
            first = (token * layers + layer) * top_k
            for expert in chosen[first:first + top_k]:
                counts[expert] += 1
        most += sum(sorted(counts)[-top_k:])
    return most / len(chosen)


def quartiles(values):
    if len(values) == 1:
        return values * 5
    return [min(values), *statistics.quantiles(values, n=4, method="inclusive"), max(values)]


def show(workload, shape, k, counts, skews):
    """`counts[order]`: per trace the misses of all strategies. The last column of each half: by how
    much LLRU's misses, of all traces together, are below the line's."""
    print(f"{describe(workload, shape)}; k = {k} of {shape[1] * shape[2]}")
    print(f"a layer's {shape[3]} most used experts take {100 * statistics.mean(skews):.0f} % of "
          f"its choices; equal use: {100 * shape[3] / shape[2]:.0f} %")
    print(" " * 6 + "".join(f"{title:>37}" for _, title in ORDERS))
    heads = "".join(f"{word:>6}" for word in ("min", "q1", "med.", "q3", "max")) + f"{'LLRU':>7}"
    print(" " * 6 + heads * len(ORDERS))
    print(" " * 6 + f"{'below':>37}" * len(ORDERS))
    for name in NAMES:
        line = f"{name:<6}"
        for order, _ in ORDERS:
            by_trace = counts[order]
            line += "".join(f"{value:>6.2f}" for value in
                            quartiles([misses[name, k] / misses["OPT", k] for misses in by_trace]))
            below = 1 - (sum(misses["LLRU", k] for misses in by_trace)
                         / sum(misses[name, k] for misses in by_trace))
            line += f"{100 * below:>6.1f}%" if name != "LLRU" else " " * 7
        print(line.rstrip())
    print()


def main():
    options = arguments(__doc__)
    work = session(options)
    work.rows.append(["workload", "trace", "order", "slots", "strategy", "misses"])
    for workload in WORKLOADS:
        if options.quick and "zipf" not in workload["key"] and workload["key"] != "qwen":
            continue
        counts, skews = {order: [] for order, _ in ORDERS}, []
        for number, trace in enumerate(pieces(work, workload, 3 if options.quick else 10)):
            shape = shape_of(trace)
            slots = slots_of(workload, shape[1] * shape[2])
            skews.append(skew(trace, shape))
            for order, _ in ORDERS:
                counts[order].append(work.misses(trace, slots, order))
                work.rows += [[workload["key"], number, order, k, name, misses]
                              for (name, k), misses in counts[order][-1].items()]
        for k in slots if counts["rounds"] else []:
            show(workload, shape, k, counts, skews)
    work.end()


main()
