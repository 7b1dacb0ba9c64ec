#!/usr/bin/env python3
"""fig6.py - Figure 6: share of local computation over time, with migration every 5 minutes.

Every policy begins with its plan for the other workload, so that the first decision has something
to correct. As in the paper Uniform and Redundance place once; the others move by their own rule or
by Prism's."""
import settings

MINUTES = 30
EVERY_MINUTES = 2.5
LAST_BUCKETS = 4  # whose mean is compared
STATIC = "Prism, stays"


def over_time(work, model, workloads, initial_workloads, method, minutes, gap, about):
    """The report of a run that begins with the plan for `initial_workloads`"""
    start = work.plan(model, {**settings.workload_settings(initial_workloads), **method})
    return work.cluster(model, {
        **settings.workload_settings(workloads), **method, **start, **about,
        "cluster.duration_s": 60 * minutes, "cluster.bucket_s": 60 * EVERY_MINUTES, "cluster.workloads.poisson_s": gap})


def show(work, model, workload, gap):
    minutes = 15 if work.quick else MINUTES
    workloads, initial_workloads = model.specialised, settings.MIXED
    if workload == "mixed":
        workloads, initial_workloads = initial_workloads, workloads
    methods = [settings.METHODS[index] for index in (0, 3, 5)] if work.quick else work.methods()
    rows, end = [], {}
    for name, method in [*methods, (STATIC, settings.METHODS[5][1])]:
        report = over_time(work, model, workloads, initial_workloads, method, minutes, gap,
                           settings.STAYS if name == STATIC else {})
        local = [100 * share for share in report["over_time"]["local_ratio"]
                 if share is not None][:int(minutes / EVERY_MINUTES)]
        moved = [migration for migration in report["migrations"] if migration["adopted"]]
        sent = sum(link["migration_bytes"] for link in report["links"]) / 1e9
        end[name] = settings.mean(local[-LAST_BUCKETS:])
        rows.append([name, *(f"{value:.0f}" for value in local), f"{len(moved)}", f"{sent:.1f}",
                     f"{settings.mean_s(report):.3f}"])
    starts = [f"{EVERY_MINUTES * bucket:g}" for bucket in range(len(rows[0]) - 4)]
    settings.table(f"{model.title}, {workload}: % local from minute ... on; migrations, GB, seconds",
                   ["", *starts, "moves", "GB", "s"], rows)
    work.require(end["Prism"] > end[STATIC],
                 f"{model.title}, {workload}: migration does not raise the local share")
    work.require(end["Prism"] >= end["Uniform"],
                 f"{model.title}, {workload}: Prism ends with less at home than Uniform")


def main():
    work = settings.session("Figure 6: local computation over time with migration")
    for model in work.models(settings.DEEPSEEK, settings.MIXTRAL):
        for workload, gap in (("specialised", 10), ("mixed", 20)):
            show(work, model, workload, gap)
    work.end()


if __name__ == "__main__":
    main()
