#!/usr/bin/env python3
"""predicted.py - latency as `place` predicts it and as `run` has it, and where they part."""
import settings

WITHIN = 0.05
GPUS = settings.CLUSTERS / "prism.toml"
GPU_METHODS = [("Prism", "prism"), ("uniform", "uniform"), ("redundance", "redundance"),
               ("SmartMoE", "smartmoe"), ("EPLB", "eplb")]

# Requests that never meet, a token at a time, no later decisions: what Equations 3 to 14 assume.
ALONE = {"cluster.duration_s": 0, "placement.interval_s": 0, "run.batch": 1,
         "cluster.workloads.input_tokens": 1}
SLIM_ALONE = {**ALONE, "dispatch.plugin": "slim", "cluster.workloads.poisson_s": 1000,
              "cluster.workloads.output_tokens": 10, "cluster.requests": 200}
GPU_ALONE = {**ALONE, "dispatch.plugin": "prism", "cluster.workloads.poisson_s": 100,
             "cluster.workloads.output_tokens": 199, "cluster.requests": 50}


def compare(work, title, config, methods, about, alone):
    """A line for each method; the plan of each, by policy"""
    plans = {policy: work.new_file(f"{config.stem}-{policy}.json") for _, policy in methods}

    def measure_both(policy):
        predicted_ms = work.place(about, [policy], config, plan_file=plans[policy])[policy]["latency_ms"]
        run_ms = work.run(config, {**about, **alone, "placement.plan": plans[policy]})
        return predicted_ms, run_ms["cluster"]["experts_ms_per_token"]

    rows = []
    for (name, policy), (predicted_ms, run_ms) in zip(
            methods, settings.side_by_side(measure_both, [policy for _, policy in methods])):
        rows.append([name, f"{predicted_ms:.3f}", f"{run_ms:.3f}",
                     f"{100 * (run_ms / predicted_ms - 1):+.2f} %"])
        work.require(abs(run_ms / predicted_ms - 1) <= WITHIN,
                     f"{title}, {policy}: {predicted_ms} ms predicted, {run_ms} ms in the run")
    settings.table(f"{title}, ms a token", ["", "place", "run", "difference"], rows)
    return plans


def load(work, title, config, alone, plan, gaps, requests):
    """The same plan with more and more requests: one at a time in each home, then side by side"""
    for batch in (1, 8):
        rows, first = [], None
        for gap_s in gaps:
            report = work.run(config, {**alone, "placement.plan": plan, "run.batch": batch,
                                       "cluster.requests": requests,
                                       "cluster.workloads.poisson_s": gap_s})["cluster"]
            token, request = report["experts_ms_per_token"], report["latency_ms"]["mean"]
            first = first or (token, request)
            rows.append([f"{gap_s:g}", f"{token:.2f}", f"{100 * (token / first[0] - 1):+.1f} %",
                         f"{request:.0f}", f"{request / first[1]:.2f} x"])
        settings.table(f"{title}, up to {batch} requests of a home at a time",
                       ["s between requests", "ms a token", "more", "ms a request", "of alone"],
                       rows)
        work.require(float(rows[-1][3]) > float(rows[0][3]),
                     f"{title}, batch {batch}: load does not make requests slower")


def prefill(work, title, config, alone, plan, requests):
    rows = []
    for tokens in (1, 10, 100):
        report = work.run(config, {**alone, "placement.plan": plan, "cluster.requests": requests,
                                   "cluster.workloads.input_tokens": tokens})
        rows.append([tokens, f"{report['ttft_ms']['mean']:.1f}", f"{report['tpot_ms']['mean']:.2f}"])
    settings.table(f"{title}: input tokens, prefilled in one go",
                   ["input tokens", "to the first token, ms", "further ones, ms"], rows)


def main():
    work = settings.session("Latency that place predicts, and that run has")
    everyone = work.methods[:1] + [("SlimCaching, DP", "slim_dp")] + work.methods[1:]
    for seed in range(1, work.seeds + 1):
        plans = compare(work, f"Section VI-A, draw {seed}", settings.SLIMCACHING, everyone,
                        settings.seeded(seed), SLIM_ALONE)
    of_gpus = compare(work, "Prism's servers", GPUS, GPU_METHODS + work.methods[len(
        settings.PAPERS):], {}, GPU_ALONE)
    if not work.quick:
        drawn = {**settings.seeded(work.seeds), **SLIM_ALONE}
        for title, config, alone, plan, gaps in (
                ("SlimCaching", settings.SLIMCACHING, drawn, plans["slim_maxconv"],
                 (1000, 10, 3, 1, 0.3)),
                ("Prism", GPUS, GPU_ALONE, of_gpus["prism"], (100, 10, 3, 1, 0.3))):
            load(work, title, config, alone, plan, gaps, 50)
            prefill(work, title, config, alone, plan, 20)
    work.end()


if __name__ == "__main__":
    main()
