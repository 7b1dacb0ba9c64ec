#!/usr/bin/env python3
"""Why Fig. 7's gap is what it is: what the link alone takes, and what predictions are worth."""
import json

from runs import BASELINES, LINK_BYTES_PER_S, MOEPIC, arguments, below, session, table, tpot


def floors(run, model, machine, tokens):
    """ms a token: the GPU's with everything in memory, the link's with LCP's and least misses."""
    replay = json.loads(run.run(
        ["replay", model["trace"], "--policies", "lcp", "--slots", model["experts"], "--sharing",
         "per-layer", "--tokens", tokens, "--json", "-"]))["results"][0]
    link = [1000 * model["expert_bytes"] * misses / tokens / LINK_BYTES_PER_S[machine]
            for misses in (replay["misses"], replay["opt_misses"])]
    everything = run.settings(model, machine, tokens=500, run__prefill=0,
                              memory__experts=model["layers"] * model["per_layer"])
    return [tpot(run.compare([MOEPIC], dict(everything, **{"memory.split": 1}))[0]), *link]


def decode(run, model, machine, tokens):
    """Reports of the baselines, of MoEpic and of MoEpic with whole experts: no prefill."""
    shared = run.settings(model, machine, tokens=tokens, run__prefill=0)
    return [*run.served([config for _, config in BASELINES], shared), *run.moepic(shared),
            *run.moepic(shared, budget__plugin="uniform", memory__split=1)]


def link_share(report, machine):
    """Of the time that tokens took: how long the link was busy."""
    busy_s = report["bytes"]["h2d"] / LINK_BYTES_PER_S[machine]
    return busy_s * report["tokens_per_s"] / report["tokens"]


def lost_share(report):
    """Of the bytes that crossed the link: prefetches that nobody asked for."""
    return report["bytes"]["prefetch_wasted"] / report["bytes"]["h2d"]


def main():
    run = session(arguments(__doc__))
    tokens = run.tokens(12_000)
    made_up = {accuracy: run.made_up("as in Table 1", accuracy, tokens) for accuracy in
               ([0.7] if run.arguments.quick else [0.5, 0.7, 1.0])}
    rows, by_accuracy = [], []
    for machine in run.machines:
        for model in [*run.models(), made_up[0.7]]:
            gpu, lcp, optimum = floors(run, model, machine, tokens)
            *baselines, ours, whole = decode(run, model, machine, tokens)
            best, least = min(result["tpot"] for result in baselines), max(gpu, lcp)
            name = "made up" if model is made_up[0.7] else model["name"].split("-")[0]
            rows.append([name, machine, f"{gpu:.1f}", f"{lcp:.1f}", f"{optimum:.1f}",
                         f"{best:.1f}", f"{ours['tpot']:.1f}", f"{whole['tpot']:.1f}",
                         f"{100 * link_share(ours['report'], machine):.0f}",
                         f"{100 * lost_share(ours['report']):.0f}",
                         below(ours["tpot"], best)[:-2], below(least, best)[:-2]])
            run.check(whole["tpot"] >= least * 0.99, f"{model['name']}: faster than the link")
        for accuracy, model in made_up.items():
            *baselines, ours, whole = decode(run, model, machine, tokens)
            best = min(result["tpot"] for result in baselines)
            by_accuracy.append([machine, accuracy, f"{best:.1f}", f"{ours['tpot']:.1f}",
                                f"{whole['tpot']:.1f}", below(ours["tpot"], best)])
    print("\nTPOT of decode alone, default budgets, ms. GPU: all in memory. LCP, OPT: what\n"
          "the link takes for the misses of LCP and of the offline optimum, whole. Best:\n"
          "of the baselines. Whole: MoEpic without splits. Link: % of the time that it is\n"
          "busy under MoEpic; lost: % of its bytes that nobody asked for. Gain: ours\n"
          "below the best, %; most: if all but max(GPU, LCP) were hidden")
    table("", ["", "", "GPU", "LCP", "OPT", "best", "ours", "whole", "link", "lost", "gain",
               "most"], rows)
    table("Made-up routing, by the share of the chosen experts that are predicted",
          ["", "right", "best", "MoEpic", "whole", "below"], by_accuracy)
    run.end()


main()
