#!/usr/bin/env python3
"""fig7.py - Figure 7: Prism with and without migration when the workload changes.

The plan to begin with is for yet other statistics: every server's are those of its neighbour.
For 2000 s, 200 requests, all servers are asked everything, then each its own, as long again."""
import settings

THEN_S = 2000
EVERY_S = 250
SLOWER = {"placement.migration_delay_max": 0.01}
REMEMBERS = {"placement.window_s": 100000}
# The paper's mean latencies, with and without migration.
PAPER_S = (6.73, 7.48)


def served(work, model, start, then_s, about):
    change = {f"cluster.workloads.{name}.then_s": then_s for name in model.later}
    return work.cluster(model, {
        **settings.workload_settings(model.later), **change, **start, **about,
        "cluster.duration_s": 2 * then_s, "cluster.bucket_s": EVERY_S})


def compare(work, model, then_s, about, note):
    first = model.specialised
    start = work.plan(model, settings.workload_settings([first[1], first[2], first[0]]))
    runs = [served(work, model, start, then_s, about),
            served(work, model, start, then_s, {**about, **settings.STAYS})]
    buckets = 2 * then_s // EVERY_S
    rows = []
    for quantity, key, factor, digits in (("local, %", "local_ratio", 100, 1),
                                          ("seconds", "latency_ms", 1e-3, 3)):
        for name, run in zip(("migration", "none"), runs):
            values = [value * factor for value in run["over_time"][key][:buckets]]
            rows.append([f"{quantity}, {name}", *(f"{value:.{digits}f}" for value in values)])
    starts = [str(EVERY_S * bucket) for bucket in range(buckets)]
    half = buckets // 2
    title = f"{model.title}{note}, from second ... on"
    for part in (slice(0, half), slice(half, buckets)):
        settings.table(title, ["", *starts[part]], [[row[0], *row[1:][part]] for row in rows])
    with_s, without_s = (settings.mean_s(run) for run in runs)
    print(f"  seconds a request: {with_s:.3f} with, {without_s:.3f} without migration: "
          f"{settings.less(with_s, without_s)} (paper: {PAPER_S[0]}, {PAPER_S[1]}, "
          f"{settings.less(*PAPER_S)})")
    moved = [migration for migration in runs[0]["migrations"] if migration["adopted"]]
    sent = sum(link["migration_bytes"] for link in runs[0]["links"])
    times = ", ".join(f"{migration['at_s']:.0f}" for migration in moved)
    print(f"  {len(moved)} migrations at {times} s: "
          f"{sum(migration['added_bytes'] for migration in moved) / 1e9:.0f} GB, "
          f"of them {sent / 1e9:.0f} GB over links")
    print(flush=True)
    final_shares = [settings.mean(run["over_time"]["local_ratio"][buckets - 3:buckets]) for run in runs]
    work.require(final_shares[0] > final_shares[1],
                 f"{model.title}: migration does not raise the local share after the change")


def main():
    work = settings.session("Figure 7: with and without migration")
    for model in work.models(settings.DEEPSEEK):
        then_s = 1000 if work.quick else THEN_S
        compare(work, model, then_s, {}, "")
        if not work.quick:
            compare(work, model, then_s, SLOWER, ", migration adds 1 % at most")
            compare(work, model, then_s, REMEMBERS, ", nothing forgotten")
    work.end()


if __name__ == "__main__":
    main()
