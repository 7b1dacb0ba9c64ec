#!/usr/bin/env python3
"""fig11_cpu.py - Figure 11 again on hosts whose CPU computes experts slower or faster."""
import fig11
import settings

# What a CPU's expert kernel reads a second. 55 is fig11.py's host; 27 is 16-bit products through a
# framework, measured at 23 to 31 on 16 threads; 110 is a server of 64 cores.
RATES_GB_PER_S = [15, 27, 55, 110]

# With a fast CPU the optimum loads nothing, and a cache that begins empty stays so; with `fill` its
# free slots are filled first, as HybriMoE's are. The paper says nothing of it.
METHODS = settings.METHODS + [
    ("SMoE, optimum, fill", settings.SMOE, {"dispatch.exact": "true", "dispatch.fill": "true"}),
]
OURS = range(settings.BASELINES, len(METHODS))


def node_of(work, rate):
    """The host with another rate of its experts; CPU and copies together are never below it."""
    def change(key, old_rate):
        return rate * 1e9 if key == "cpu_bytes_per_s" else max(old_rate, 1.1e9 * rate)
    return settings.host_file(work, "node", settings.NODE, change)


def main():
    work = settings.session(settings.arguments("Figure 11 against the CPU's rate"))
    rates = [27, 55] if work.arguments.quick else RATES_GB_PER_S
    for batch in ([1] if work.arguments.quick else [1, 3]):
        for kind in work.kinds:
            rows = []
            for index in OURS:
                for setting in settings.SETTINGS:
                    rows.append([METHODS[index][0], setting["name"]])
                rows.append([METHODS[index][0], "mean"])
            for rate in rates:
                node, below = node_of(work, rate), {index: [] for index in OURS}
                for setting in settings.SETTINGS:
                    loads = settings.workloads(work, setting, kind)
                    if not loads:
                        return work.end()
                    tpot = fig11.tpot_of_all(work, setting, loads, batch,
                                             about_all={"hardware.node": node}, methods=METHODS)
                    for index in below:
                        below[index].append(fig11.below_best(tpot, index))
                column = [value for index in below
                          for value in [*below[index], settings.mean(below[index])]]
                for row, value in zip(rows, column):
                    row.append(f"{value:.1f}")
            settings.table(f"TPOT below the best baseline's, %, batch {batch}, {kind} routing,\n"
                           "by GB/s of the CPU's experts", ["", "", *map(str, rates)], rows)
    work.end()


main()
