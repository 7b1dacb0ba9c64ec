#!/usr/bin/env python3
"""table1.py - Table I: servers that offload alone, with requests redirected, and together."""
import settings

# Rows of the paper: three servers and the mean of all requests.
PAPER = {
    "alone": (9.14, 4.77, 3.18, 5.19),
    "redirected": (8.60, 4.77, 3.10, 5.03),
    "together": (4.96, 4.34, 3.40, 4.11),
}
GAP_S = 10
REQUESTS = 300  # of each server
GPUS = [1, 1, 2]

ALONE = settings.model("Mixtral-8x7B alone", "mixtral_alone.toml", settings.MIXTRAL.specialised,
                       settings.MIXTRAL.key, settings.MIXTRAL.trace)


def alone(work, workload, gpus, gap, prefetch="none"):
    """Mean latency at one server that loads what it lacks."""
    found = work.cluster(ALONE, {
        "cluster.servers.workload": workload, "cluster.servers.gpu_count": gpus,
        "cluster.workloads.poisson_s": gap, "cluster.requests": REQUESTS,
        "prefetch.plugin": prefetch})
    return settings.mean_s(found)


def redirected(work):
    """Every GPU gets as many requests: servers one and two give a quarter of theirs to three. A
    server's figure is that of its users' requests, wherever they are answered."""
    interval_s = GAP_S * 4 / 3
    latencies = [alone(work, workload, 1, interval_s) for workload in settings.MIXTRAL.specialised[:2]]
    redirected_latency = alone(work, "redirected", 2, interval_s / 2)
    return [*(0.75 * latency + 0.25 * redirected_latency for latency in latencies), redirected_latency]


def together(work, method, dispatch="prism"):
    found = work.cluster(settings.MIXTRAL, {
        **settings.STAYS, **method, "dispatch.plugin": dispatch,
        "cluster.workloads.poisson_s": GAP_S, "cluster.requests": REQUESTS})
    return settings.home_s(found)


def bundled(work):
    """The quick form: the model that comes with the project, alone and together."""
    common = {**settings.STAYS, "cluster.requests": 30}
    offloaded = settings.home_s(work.cluster(settings.QWEN, {
        **common, "cluster.servers.host_experts": "true", "dispatch.plugin": "load_all",
        "cache.plugin": "moe_infinity"}))
    random = settings.home_s(work.cluster(settings.QWEN, {**common, **settings.METHODS[1][1]}))
    prism = settings.home_s(work.cluster(settings.QWEN, {**common, **settings.METHODS[5][1]}))
    rows = [[name, *(f"{value:.3f}" for value in found)] for name, found in
            (("each loads what it lacks", offloaded), ("random placement", random), ("Prism", prism))]
    settings.table("Qwen1.5-MoE's shape: seconds a request", ["", *settings.SERVERS], rows)
    work.require(sum(prism) < sum(random), "Prism is slower than random placement")
    work.end()


def main():
    work = settings.session("Table I: offloading, redirecting, collaboration")
    if work.quick:
        return bundled(work)
    if work.trace_of(settings.MIXTRAL) is None:
        return work.end()
    workloads = settings.MIXTRAL.specialised
    single = [alone(work, workload, gpus, GAP_S) for workload, gpus in zip(workloads, GPUS)]
    fetched = [alone(work, workload, gpus, GAP_S, "moe_infinity")
               for workload, gpus in zip(workloads, GPUS)]
    naive = together(work, settings.METHODS[1][1])
    found = [
        ("MoE-Infinity", single, "alone"),
        ("the same, with its prefetch", fetched, None),
        ("MoE-Infinity, requests redirected", redirected(work), "redirected"),
        ("naive collaboration: random", naive, "together"),
        ("Prism's placement", together(work, settings.METHODS[5][1]), None),
    ]
    rows = []
    for name, latency, row in found:
        ours = [*latency, settings.mean(latency)]
        rows.append([name, *(f"{value:.2f}" for value in ours),
                     *(f"{value:.2f}" for value in PAPER[row])] if row else
                    [name, *(f"{value:.2f}" for value in ours), "", "", "", ""])
    settings.table(f"Mixtral-8x7B, a request every {GAP_S} s a server: seconds",
                   ["", *settings.SERVERS, "all", "paper", "", "", "all"], rows)
    work.require(sum(naive) < sum(single), "collaboration is slower than offloading")
    work.end()


if __name__ == "__main__":
    main()
