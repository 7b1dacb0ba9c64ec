#!/usr/bin/env python3
"""table1.py - Table I: what TPOT is made of in S3; and how lifelike the routing used here is."""
import collections

import routing
import settings

ALPHAS = [0.25, 0.3, 0.35, 0.6]
EVERY = 7  # of the rows of a trace, for the shares below


def low_share(scores, top_k):
    """Of the `top_k` best of each list, the share within 1 + alpha of the next one, per alpha"""
    low, rows = [0] * len(ALPHAS), 0
    for row in scores:
        best = sorted(row, reverse=True)[:top_k + 1]
        rows += 1
        for index, alpha in enumerate(ALPHAS):
            low[index] += sum(score < (1 + alpha) * best[top_k] for score in best[:top_k])
    return [f"{100 * count / rows / top_k:.1f} %" for count in low]


def lists_of(values, width, stride=EVERY):
    return (values[first:first + width] for first in range(0, len(values), stride * width))


def habits(file):
    """Share of the choices that the most chosen quarter gets; share that the next token repeats"""
    tokens, layers, experts, top_k, _ = routing.sizes_of(file)
    chosen = routing.values_of(file, "experts")
    offsets = set(routing.values_of(file, "request_offsets"))
    counts = [collections.Counter() for _ in range(layers)]
    previous, repeated, could = {}, 0, 0
    for token in range(tokens):
        for layer in range(layers):
            first = (token * layers + layer) * top_k
            current = set(chosen[first:first + top_k])
            counts[layer].update(current)
            if token not in offsets:
                repeated += len(current & previous[layer])
                could += top_k
            previous[layer] = current
    of_quarter = sum(n for count in counts for _, n in count.most_common(experts // 4))
    return [f"{100 * of_quarter / (tokens * layers * top_k):.1f} %", f"{100 * repeated / could:.1f} %"]


def alike(work):
    rows = []
    for name, label in (("deepseek-v2-lite.intent-law", "V2-Lite, real: 5 best"),
                        ("gpt-oss-20b.a", "gpt-oss, real: 3 best")):
        file = work.find(name)
        if file is not None:
            top_k = routing.sizes_of(file)[3]
            weights = routing.values_of(file, "weights")
            rows.append([label, *habits(file), *low_share(lists_of(weights, top_k), top_k - 1)])
    for kind in work.kinds:
        for setting in settings.SETTINGS[0:3:2]:
            for file, _, _ in settings.workloads(work, setting, kind):
                experts, top_k = routing.sizes_of(file)[2:4]
                scores = routing.values_of(file, "gate_scores")
                habit = habits(file)
                label = file.stem.split("-top")[0].replace("qwen15moe-shape.", "shape, ")
                label = label.split("-")[0]
                for best in ([top_k - 1, top_k] if setting is settings.SETTINGS[0] else [top_k]):
                    rows.append([f"{label}: {best} best", *habit,
                                 *low_share(lists_of(scores, experts), best)])
    settings.table("Routing: choices of a layer's most chosen quarter, choices that the next\n"
                   "token repeats, low-score share (within 1 + alpha of the next score) by alpha",
                   ["", "quarter", "again", *map(str, ALPHAS)], rows)


def low_of_misses(file, tokens, slots, alpha):
    """Of what an LRU cache of all layers lacks, the share of low-score experts"""
    _, layers, experts, top_k, _ = routing.sizes_of(file)
    chosen = routing.values_of(file, "experts")
    scores = routing.values_of(file, "gate_scores")
    cache, low, missed = collections.OrderedDict(), 0, 0
    for place in range(tokens * layers):
        row = scores[place * experts:(place + 1) * experts]
        limit = (1 + alpha) * sorted(row, reverse=True)[top_k]
        pages = [(place % layers) * experts + expert
                 for expert in chosen[place * top_k:(place + 1) * top_k]]
        for page in pages:
            if page in cache:
                cache.move_to_end(page)
            else:
                missed += 1
                low += row[page % experts] < limit
        for page in pages:
            cache[page] = None
        while len(cache) > slots:
            cache.popitem(last=False)
    return low / missed


def split(work):
    setting, rows = settings.SETTINGS[2], [["the paper's", "42 %", "29 %", "29 %"]]
    about = {"router.plugin": "topk", "cache.plugin": "lru", "prefetch.plugin": "none",
             "dispatch.plugin": "load_all"}
    for kind in work.kinds:
        for load in settings.workloads(work, setting, kind):
            report = settings.run(work, settings.SMOE, setting, load, 1, about)
            _, layers, experts, _, _ = routing.sizes_of(load[0])
            slots = int(settings.room(setting) * layers * experts)
            low = low_of_misses(load[0], load[2], slots, setting["alpha"])
            time = report["time_ms"]
            computes = time["compute"] / (time["compute"] + time["stall"])
            work.require(0 < low < 1 and 0 < computes < 1, f"{load[0].stem}: shares are wrong")
            shares = [low * (1 - computes), (1 - low) * (1 - computes), computes]
            label = load[0].stem.split("-top")[0].replace("qwen15moe-shape.", "shape, ")
            rows.append([label.split("-")[0], *(f"{100 * share:.0f} %" for share in shares)])
    settings.table("Table I: TPOT of Qwen2-57B on an A6000, everything loaded, LRU",
                   ["", "low-score loading", "top-score loading", "GPU computing"], rows)


def main():
    work = settings.session(settings.arguments("Table I, and how real the routing is"))
    alike(work)
    split(work)
    work.end()


if __name__ == "__main__":
    main()
