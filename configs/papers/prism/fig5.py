#!/usr/bin/env python3
"""fig5.py - Figure 5: time of a layer against the share of its experts that other servers have."""
import json

import settings

SHARES = [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]  # of the experts of each layer
TOKENS = [1, 16, 64, 256]  # that pass a layer together
REQUESTS = 60
SIZES = {settings.DEEPSEEK: (26, 64, "deepseek_v2_lite"), settings.QWEN: (24, 60, None)}


def plan_with(work, model, about, share):
    """A plan with so many experts of each layer elsewhere, which servers take in turn"""
    layers, experts, _ = SIZES[model]
    plan = json.loads(work.plan(LAYER[model], about)["placement.plan"].read_text())
    away = round(share * experts)
    plan["placement"] = [[1 + expert % 2 if expert < away else 0, 0, layer, expert]
                         for layer in range(layers) for expert in range(experts)]
    file = work.new_file(f"share-{share}.json")
    file.write_text(json.dumps(plan))
    return {"placement.plan": file}


LAYER = {model: settings.model(model.title, "fig5.toml", None, model.key, model.trace) for model in SIZES}


def main():
    work = settings.session("Figure 5: time of a layer against the share of remote experts")
    for model in work.models(settings.DEEPSEEK):
        layers, _, shape = SIZES[model]
        about = {"cluster.models.shape": shape} if shape else {}
        shares, tokens = (SHARES[::4], TOKENS[:2]) if work.quick else (SHARES, TOKENS)
        rows, previous = [], [0] * len(tokens)
        for share in shares:
            plan, times, local = plan_with(work, model, about, share), [], None
            for together in tokens:
                found = work.cluster(LAYER[model], {
                    **about, **plan, "cluster.workloads.input_tokens": together,
                    "cluster.requests": 10 if work.quick else REQUESTS})
                times.append(found["latency_ms"]["mean"] / layers)
                local = found["local_ratio"]
            rows.append([f"{100 * share:.1f} %", f"{100 * (1 - local):.1f} %",
                         *(f"{value:.3f}" for value in times)])
            work.require(all(a < b for a, b in zip(previous, times)),
                         f"{model.title}: a layer is not slower with {share} of its experts remote")
            previous = times
        settings.table(f"{model.title}: ms a layer, by tokens that pass it together",
                       ["experts remote", "calls remote", *map(str, tokens)], rows)
    work.end()


if __name__ == "__main__":
    main()
