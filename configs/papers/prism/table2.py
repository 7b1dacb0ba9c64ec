#!/usr/bin/env python3
"""table2.py - Table II: latency of a request under each placement, two workloads, two models."""
import settings

# (model, workload, mean gap of requests, tokens written, mean latency of the paper's methods). The
# second gap is the one at which Uniform is as slow as in the paper, found by bisection of Uniform
# alone, because at the paper's gap nothing queues here.
PAPER = {
    ("deepseek.toml", "specialised"): [21.66, 13.08, 19.39, 9.56, 6.63],
    ("deepseek.toml", "mixed"): [30.65, 17.70, 29.77, 14.93, 13.29],
    ("mixtral.toml", "specialised"): [5.08, 4.85, 2.30, 2.16, 2.09],
    ("mixtral.toml", "mixed"): [10.92, 9.90, 11.85, 9.36, 9.17],
}
PAPER_AT = {"Uniform": 0, "Redundance": 1, "SmartMoE": 2, "EPLB": 3, "Prism": 4}
GAPS = {
    ("deepseek.toml", "specialised"): (10, 1.4),
    ("deepseek.toml", "mixed"): (20, 1.2),
    ("mixtral.toml", "specialised"): (10, 1.7),
    ("mixtral.toml", "mixed"): (20, 2.5),
    ("qwen.toml", "specialised"): (10, 1.4),
    ("qwen.toml", "mixed"): (20, 2.5),
}
TOKENS = {"specialised": 8, "mixed": 20}  # answers are short; 20 at most in the mixed data sets
REQUESTS = 300                            # of each server


def measure(work, model, workload, gap, requests):
    """{method: report}; the plan is made once, from the workload's own statistics"""
    workloads = model.specialised if workload == "specialised" else settings.MIXED
    common = {**settings.workload_settings(workloads), **settings.STAYS,
              "cluster.workloads.output_tokens": TOKENS[workload],
              "cluster.workloads.poisson_s": gap, "cluster.requests": requests}
    methods = work.methods((settings.OURS_BOTH, settings.OURS))
    return {name: work.cluster(model, {**common, **about}) for name, about in methods}


def show(model, workload, gap, reports):
    paper = PAPER.get((model.file.name, workload))
    rows = []
    for name, report in reports.items():
        paper_value = f"{paper[PAPER_AT[name]]:.2f}" if paper and name in PAPER_AT else ""
        rows.append([name, *(f"{value:.3f}" for value in settings.home_s(report)),
                     f"{settings.mean_s(report):.3f}", f"{100 * report['local_ratio']:.1f} %",
                     f"{settings.busiest(report, 'links'):.0f} %",
                     f"{settings.busiest(report, 'devices'):.0f} %", paper_value])
    latency = {name: settings.mean_s(report) for name, report in reports.items()}
    for name in ("Prism", "joint"):
        if name in latency:
            paper_value = settings.less(paper[4], paper[3]) if paper and name == "Prism" else ""
            rows.append([f"{name} below EPLB", "", "", "",
                         settings.less(latency[name], latency["EPLB"]), "", "", "", paper_value])
    settings.table(f"{model.title}, {workload}, a request every {gap} s a server: seconds",
                   ["", *settings.SERVERS, "all", "local", "link", "GPU", "paper"], rows)


def main():
    work = settings.session("Table II: placements compared")
    for model in work.models(settings.DEEPSEEK, settings.MIXTRAL):
        for workload in TOKENS:
            gaps = GAPS[(model.file.name, workload)]
            for gap in gaps[:1] if work.quick else gaps:
                reports = measure(work, model, workload, gap, 40 if work.quick else REQUESTS)
                show(model, workload, gap, reports)
                local = {name: report["local_ratio"] for name, report in reports.items()}
                place = f"{model.title}, {workload}"
                work.require(local["Prism"] >= local["Uniform"],
                             f"{place}: Prism computes less at home than Uniform")
                work.require(settings.mean_s(reports["Prism"]) <
                             settings.mean_s(reports["Uniform"]),
                             f"{place}: Prism is slower than Uniform")
    work.end()


if __name__ == "__main__":
    main()
