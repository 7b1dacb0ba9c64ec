#!/usr/bin/env python3
"""fig17.py - Figure 17: how many of the experts predicted to be top-score are, and are active."""
import json

import routing
import settings

DEMO = settings.PROJECT / "configs" / "demo"


def counted(file, alpha, stride):
    """(right, active, found) in percent: of the predicted top-score experts those that are, those
    that are among the chosen; of the top-score ones those predicted. From the second layer on."""
    tokens, layers, experts, top_k, width = routing.sizes_of(file)
    scores = routing.values_of(file, "gate_scores")
    chosen = routing.values_of(file, "experts")
    predicted = routing.values_of(file, "pred_experts")
    predicted_scores = routing.values_of(file, "pred_scores")
    named, right, active, top_all = 0, 0, 0, 0
    for place in range(0, tokens * layers, stride):
        if place % layers == 0:
            continue
        row = scores[place * experts:(place + 1) * experts]
        active_experts = set(chosen[place * top_k:(place + 1) * top_k])
        limit = (1 + alpha) * max(row[e] for e in range(experts) if e not in active_experts)
        top = {expert for expert in active_experts if row[expert] >= limit}
        best = predicted[place * width:place * width + top_k]
        if predicted_scores:
            token_scores = predicted_scores[place * width:(place + 1) * width]
            best = [expert for expert, score in zip(best, token_scores)
                    if score >= (1 + alpha) * token_scores[top_k]]
        named += len(best)
        right += len(top.intersection(best))
        active += len(active_experts.intersection(best))
        top_all += len(top)
    return [100 * right / named, 100 * active / named, 100 * right / top_all]


def of_traces(work):
    rows = []
    for setting in settings.SETTINGS:
        found = [counted(file, setting["alpha"], 5)
                 for file, _, _ in settings.workloads(work, setting, "shape")]
        if found:
            rows.append([f"{setting['name']}, shape",
                         *(f"{settings.mean(column):.1f} %" for column in zip(*found))])
    demo = work.new_file("demo.safetensors")
    work.call("trace", "record", DEMO, "--windows", settings.HERE / "windows.json",
              "--predictions", 9, "--out", demo)
    for alpha in (0.25, 0.3, 0.35):
        found = counted(demo, alpha, 1)
        rows.append([f"demo model, alpha {alpha}", *(f"{value:.1f} %" for value in found)])
        work.require(found[0] <= found[1] <= 100, "more are top-score than active")
        work.require(found[1] > 50, "predictions are no better than chance")
    rows.append(["the paper's", "82 %", "95 %", "-"])
    settings.table("Predicted top-score experts, from the activation before the layer",
                   ["", "are top-score", "are active", "of the top-score"], rows)


def of_resident(work):
    """On a model: from what has been computed of the layer, as Section IV-C says, or before it."""
    rows = []
    setting = settings.SETTINGS[0]
    slots = int(settings.room(setting) * 192)
    for slots, label in ((slots, "S1's share resident"), (96, "half resident")):
        for flag, source in (("false", "activation before"), ("true", "shared, resident")):
            config = settings.demo_config(work, setting, slots, 0, flag)
            report = json.loads(work.call("eval", DEMO, "--config", config, "--windows",
                                          settings.HERE / "windows.json", "--json", "-"))["report"]
            layers = report["layers"][1:]
            accuracy = settings.mean(layer["prediction_accuracy"] for layer in layers)
            moved = report["bytes"]
            rows.append([label, source, f"{100 * accuracy:.1f} %",
                         f"{100 * moved['prefetch_used'] / moved['prefetched']:.1f} %"])
    settings.table("Demo model: share of the chosen experts among the first predicted ones, and\n"
                   "of the fetched experts those that were chosen, by what predicts",
                   ["", "from", "predicted", "fetched and chosen"], rows)


def main():
    work = settings.session(settings.arguments("Figure 17: accuracy of the prefetch"))
    of_traces(work)
    of_resident(work)
    work.end()


if __name__ == "__main__":
    main()
