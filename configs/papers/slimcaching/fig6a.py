#!/usr/bin/env python3
"""fig6a.py - Figure 6(a): latency against the storage of the edge servers."""
import settings

# At 2.5 GB, Section VI-B.
PAPER = {"latency, ms": 10.34, "slim_greedy": 16.7, "lfu": 19.5}


def main():
    work = settings.session("Figure 6(a): latency against edge storage")
    sizes = (2.5, 10) if work.quick else (2.5, 5, 7.5, 10)
    values = [(f"{size} GB", {settings.STORAGE: size * 1e9}) for size in sizes]
    means, columns = settings.figure(work, "Figure 6(a): latency against storage", "storage",
                                     values, steps=[("SlimCaching, DP", "slim_dp")], falls=True)
    for (label, _), column in zip(values, columns):
        for found in column:
            saved = [found[policy]["facts"]["saved_s"] for policy in ("slim_dp", "slim_maxconv")]
            work.require(abs(saved[0] / saved[1] - 1) < 0.01,
                         f"{label}: Algorithms 2 and 3 save {saved[0]} and {saved[1]} s")
    layers = settings.mean(work.layers(settings.seeded(seed)) for seed in range(1, work.seeds + 1))
    slim = means["slim_maxconv"][0]
    rows = [["latency, ms", f"{PAPER['latency, ms']}", f"{slim:.1f}"],
            [f"a layer of {layers:.1f}, ms", "", f"{slim / layers:.2f}"]]
    for name, policy in (("greedy", "slim_greedy"), ("LFU", "lfu")):
        gains = [100 * (1 - result["slim_maxconv"]["latency_ms"] / result[policy]["latency_ms"])
                 for result in columns[0]]
        rows.append([f"below {name}", f"{PAPER[policy]} %",
                     f"{settings.less(slim, means[policy][0])} ({min(gains):.1f} to "
                     f"{max(gains):.1f})"])
    settings.table("SlimCaching at 2.5 GB (in brackets: of single draws)", ["", "paper", "ours"],
                   rows)
    work.end()


if __name__ == "__main__":
    main()
