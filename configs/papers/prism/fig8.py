#!/usr/bin/env python3
"""fig8.py - Figure 8: more GPUs, and faster links between them."""
import settings

GPUS = [4, 8, 16, 32, 64, 128, 256]  # servers with 1, 1 and 2 again and again
GAPS_S = [8, 15]
BUSY_GAP_S = 1.4  # of Table II: where Uniform on 4 GPUs is as slow as the paper's
MBIT_PER_S = [100, 250, 500, 1000]
GPUS_OF_LINKS = [4, 32, 256]
# The paper's reductions: 256 GPUs against 4, by gap; 1000 Mbit/s against 100, by GPUs.
PAPER_GPUS = {8: "19 %", 15: "9 %"}
PAPER_LINKS = {4: "above 55 %", 256: "35 %"}
# How servers are linked: each pair by itself, or all links of a server over its one interface, as
# the paper's testbed limits them.
LINKS = [("a link for each pair", {}),
         ("one interface a server", {"cluster.shared_interface": "true"})]
REQUESTS = (1500, 16)  # of all servers, but so many of each at least; even, for two GPUs


def served(work, model, gpus, about):
    servers = 3 * gpus // 4
    requests = (120, 10) if work.quick else REQUESTS
    return work.cluster(model, {
        **settings.STAYS, "cluster.servers.count": gpus // 4,
        "cluster.requests": max(requests[0] // servers // 2 * 2, requests[1]), **about})


def by_gpus(work, model, counts, linked, about):
    gaps = [*GAPS_S, BUSY_GAP_S]
    found = {gap: [served(work, model, gpus, {**about, "cluster.workloads.poisson_s": gap})
                   for gpus in counts] for gap in gaps}
    rows = [[gpus, *(f"{settings.mean_s(found[gap][index]):.3f}" for gap in gaps),
             f"{100 * found[gaps[0]][index]['local_ratio']:.1f} %"] for index, gpus in enumerate(counts)]
    rows.append(["less", *(settings.less(settings.mean_s(found[gap][-1]),
                                          settings.mean_s(found[gap][0])) for gap in gaps), ""])
    rows.append(["paper", *(PAPER_GPUS.get(gap, "") for gap in gaps), ""])
    settings.table(f"{model.title}: seconds a request, by the gap between them; {linked}",
                   ["GPUs", *(f"{gap} s" for gap in gaps), "local"], rows)


def by_links(work, model, counts, rates, linked, about):
    rows, first, last = [], None, None
    for rate in rates:
        last = [settings.mean_s(served(work, model, gpus, {
            **about, "cluster.workloads.poisson_s": GAPS_S[0],
            "cluster.links.bits_per_s": rate * 1e6}))
            for gpus in counts]
        if first is not None:
            work.require(all(latency < old for latency, old in zip(last, previous)),
                         f"{model.title}: {rate} Mbit/s are not faster than the rate before")
        first, previous = first or last, last
        rows.append([rate, *(f"{value:.3f}" for value in last)])
    rows.append(["less", *(settings.less(end, begin) for begin, end in zip(first, last))])
    rows.append(["paper", *(PAPER_LINKS.get(gpus, "") for gpus in counts)])
    settings.table(f"{model.title}: seconds a request every {GAPS_S[0]} s, by GPUs; {linked}",
                   ["Mbit/s", *map(str, counts)], rows)


def main():
    work = settings.session("Figure 8: GPUs and bandwidth")
    for model in work.models(settings.DEEPSEEK):
        for linked, about in LINKS:
            by_gpus(work, model, [4, 16] if work.quick else GPUS, linked, about)
            by_links(work, model, [4] if work.quick else GPUS_OF_LINKS,
                     [100, 1000] if work.quick else MBIT_PER_S, linked, about)
    work.end()


if __name__ == "__main__":
    main()
