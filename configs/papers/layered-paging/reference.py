"""reference.py - the paper's strategies by their definitions, slow, to compare the replays with."""
from collections import OrderedDict

from replays import read_tensor


def rounds(trace, shape, arrange=list):
    """The requests of a trace in the paper's order: all layers for the first experts of a token,
    then for the second ones. A page is layer * experts + expert. `arrange` makes another order of
    the experts of a token and layer."""
    tokens, layers, experts, top_k = shape
    chosen = read_tensor(trace, "experts")
    lists = [arrange(chosen[first:first + top_k]) for first in range(0, len(chosen), top_k)]
    return [layer * experts + lists[token * layers + layer][k]
            for token in range(tokens) for k in range(top_k) for layer in range(layers)]


def optimum(pages, slots, layers):
    """Belady: the page requested furthest ahead goes."""
    coming, later = {}, [0] * len(pages)
    for time in reversed(range(len(pages))):
        later[time] = coming.get(pages[time], len(pages))
        coming[pages[time]] = time
    cache, misses = {}, 0
    for time, page in enumerate(pages):
        if page not in cache:
            misses += 1
            if len(cache) == slots:
                del cache[max(cache, key=cache.get)]
        cache[page] = later[time]
    return misses


def lru(pages, slots, layers):
    cache, misses = OrderedDict(), 0
    for page in pages:
        if page in cache:
            cache.move_to_end(page)
            continue
        misses += 1
        if len(cache) == slots > 0:
            cache.popitem(last=False)
        if slots > 0:
            cache[page] = None
    return misses


def lru_dist(pages, slots, layers):
    """Each layer by itself; slots that do not divide go to the first layers."""
    return sum(lru(pages[layer::layers], slots // layers + (layer < slots % layers), layers)
               for layer in range(layers))


def llru(pages, slots, layers):
    """Definition 2: the largest round index goes, then the largest distance, 1 to all layers."""
    last, misses = {}, 0
    for time, page in enumerate(pages):
        if page not in last:
            misses += 1
            if len(last) == slots:
                def priority(cached):
                    return (time - last[cached]) // layers, (last[cached] - time - 1) % layers
                del last[max(last, key=priority)]
        last[page] = time
    return misses


STRATEGIES = {"OPT": optimum, "LRU": lru, "LRU-d": lru_dist, "LLRU": llru}
