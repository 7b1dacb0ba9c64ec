#!/usr/bin/env python3
"""Fig. 7's TPOT on real routing, of DeepSeek-V2-Lite and gpt-oss-20b: no predictions recorded."""
from runs import BASELINES, arguments, below, session, table

MODELS = [
    dict(name="DeepSeek-V2-Lite", trace="deepseek-v2-lite.intent-law", shape="deepseek_v2_lite",
         top_k=6, experts=0, budgets=[277, 416, 832]),
    dict(name="gpt-oss-20b", trace="gpt-oss-20b.a", shape="gpt_oss_20b", top_k=4, experts=0,
         budgets=[128, 192, 384]),
]


def main():
    run = session(arguments(__doc__))
    run.until_idle = 600  # the longest request
    for model in [] if run.arguments.quick else MODELS:
        file = run.trace(model["trace"])
        if not file:
            continue
        for machine in run.machines:
            shared = run.settings(dict(model, trace=file), machine, tokens=15_000, run__prefill=32)
            sweep = [("memory.experts", model["budgets"])]
            # The next layer's gate is not in these traces: what relies on it fetches nothing.
            no_prefetch = dict(shared, **{"prefetch.plugin": "none"})
            runs = [(name, run.served([config], shared if name == "MoE-Infinity" else no_prefetch,
                                      sweep)) for name, config in BASELINES]
            runs += [("MoEpic", run.moepic(no_prefetch, sweep)),
                     ("MoEpic, unsplit", run.moepic(no_prefetch, sweep, budget__plugin="uniform",
                                                    memory__split=1))]
            rows = [[name, *(f"{result['tpot']:.1f}" for result in results)] for name, results in runs]
            best = [min(results[i]["tpot"] for _, results in runs[:-2]) for i in range(3)]
            rows.append(["MoEpic below the best",
                         *(below(result["tpot"], lowest) for result, lowest in zip(runs[-2][1], best))])
            table(f"{model['name']}, real routing, {machine}: TPOT, ms, by experts of memory",
                  ["", *model["budgets"]], rows)
    run.end()


main()
