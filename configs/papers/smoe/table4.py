#!/usr/bin/env python3
"""table4.py - Table IV's shape: perplexity of the demo model against alpha, 0 to 0.6."""
import json

import settings

DEMO = settings.PROJECT / "configs" / "demo"
EXPERTS = 192
ALPHAS = [step / 20 for step in range(13)]
TOLERANCE = 1  # percent of perplexity at the paper's alpha


def windows_of(work):
    """A file with so many windows of each kind of text, and how many"""
    count = int(work.arguments.windows)
    if work.arguments.quick:
        return settings.HERE / "windows.json"
    texts = json.loads((settings.PROJECT / "tests" / "data" / "demo_perplexity.json").read_text())
    file = work.new_file("windows.json")
    file.write_text(json.dumps({name: {"windows": text["windows"][:count]}
                                for name, text in texts.items()}))
    return file


def evaluate(work, windows, setting, alpha):
    slots = int(settings.room(setting) * EXPERTS)
    config = settings.demo_config(work, setting, slots, alpha, "true")
    return json.loads(work.call("eval", DEMO, "--config", config, "--windows", windows, "--json",
                                "-"))


def change(result, baseline):
    return 100 * (result["perplexity"] / baseline["perplexity"] - 1)


def main():
    arguments = settings.arguments("Table IV's shape: perplexity against alpha",
                                   [("--windows", 2, "windows of 257 ids of each text; default: 2")])
    work = settings.session(arguments)
    windows, rows, plain, found = windows_of(work), [], None, {}
    for alpha in [0, 0.35, 0.6] if arguments.quick else ALPHAS:
        result = evaluate(work, windows, settings.SETTINGS[0], alpha)
        plain = plain or result
        counts = result["report"]["experts"]
        found[alpha] = change(result, plain)
        rows.append([f"{alpha:.2f}", f"{result['perplexity']:.3f}", f"{found[alpha]:+.2f} %",
                     *(f"{change(part, plain['parts'][name]):+.1f} %"
                       for name, part in result["parts"].items()),
                     f"{100 * counts['substituted'] / counts['requested']:.1f} %",
                     f"{100 * counts['hit_rate']:.1f} %"])
        # Without substitution the model's own routing stands, to the bit.
        work.require(alpha > 0 or counts["substituted"] == 0 and
                     result["perplexity"] == evaluate_own(result), "alpha 0 changes the model")
    settings.table(f"demo model, {plain['tokens']} tokens, S1's share of the experts resident",
                   ["alpha", "perplexity", "change", *plain["parts"], "subst.", "hits"], rows)
    rows = []
    for setting in [] if arguments.quick else settings.SETTINGS:
        result = evaluate(work, windows, setting, setting["alpha"])
        rows.append([setting["name"], f"{setting['alpha']}", f"{result['perplexity']:.3f}",
                     f"{change(result, plain):+.2f} %"])
    if rows:
        settings.table("At the paper's alpha, and with each setting's share resident",
                       ["", "alpha", "perplexity", "change"], rows)
    work.require(abs(found[0.35]) < 3 * TOLERANCE, "perplexity at the paper's alpha is far off")
    work.end()


def evaluate_own(result):
    return result.get("own_routing", result)["perplexity"]


if __name__ == "__main__":
    main()
