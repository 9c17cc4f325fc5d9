"""The tables of run/bench/speedup.py, in Markdown: measured seconds, and predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def efficiency(speedup: float, ranks: int) -> float:
    """S / P."""
    return speedup / ranks


def karp_flatt(speedup: float, ranks: int) -> float:
    """The serial fraction that Amdahl's law needs for this speedup, (1/S - 1/P) / (1 - 1/P); NaN on one rank."""
    return (1.0 / speedup - 1.0 / ranks) / (1.0 - 1.0 / ranks) if ranks > 1 else float("nan")


def print_weak(result: dict[str, Any]) -> None:
    first = result["measured"]["1"]["seconds"]
    print(f"\n{result['name']}, weak scaling (as many points a rank)\n")
    print("| ranks | points | seconds an iteration, median (min-max) | efficiency |\n|---|---|---|---|")
    for count, m in result["measured"].items():
        span = f"{m['seconds']:.3f} ({m['least']:.3f}-{m['most']:.3f})"
        print(f"| {count} | {result['points'][count]:,} | {span} | {first / m['seconds']:.2f} |")
    if found := result.get("predicted"):
        print("\n| ranks (prediction) | points | seconds an iteration | efficiency |\n|---|---|---|---|")
        for count, seconds in found.items():
            points = result["points"]["1"] * int(count)
            print(f"| {count} | {points:,} | {seconds:.3f} | {found['1'] / seconds:.2f} |")


COLUMNS = (
    *("ranks", "seconds an iteration, median (min-max)", "speedup", "efficiency", "undisturbed", "Karp-Flatt"),
    *("Z", "W", "exchange", "waiting", "rest", "GFLOP/s", "of dgemm", "others"),
)


def print_measured(result: dict[str, Any]) -> None:
    one, rate = result["measured"]["1"], result["dgemm"]
    print(
        f"\n{result['name']}: iterations 2-{result['iterations']}, {result['repeats']} launches, "
        f"{result['cores']} cores, dgemm {rate / 1e9:.1f} GFLOP/s, "
        f"{result['flops'] / 1e9:.1f} GFLOP of products an iteration\n"
    )
    print_row(COLUMNS)
    print_row(["---"] * len(COLUMNS))
    for count, m in result["measured"].items():
        ranks, seconds = int(count), m["seconds"]
        speedup, done = one["seconds"] / seconds, result["flops"] / seconds
        z, w, exchange, waiting = (m[f"seconds_{part}"] for part in ("z", "w", "comm", "wait"))
        print_row(
            [
                *(count, f"{seconds:.3f} ({m['least']:.3f}-{m['most']:.3f})", f"{speedup:.2f}"),
                *(
                    f"{efficiency(speedup, ranks):.3f}",
                    f"{efficiency(one['undisturbed'] / m['undisturbed'], ranks):.3f}",
                ),
                f"{karp_flatt(speedup, ranks):.3f}" if ranks > 1 else "-",
                *(f"{z:.3f}", f"{w:.3f}", f"{exchange:.4f}", f"{waiting:.4f}", f"{seconds - z - w - exchange:.4f}"),
                *(f"{done / 1e9:.1f}", f"{done / rate / ranks:.0%}", f"{m['others']:.2f}"),
            ]
        )


def print_row(cells: Sequence[str]) -> None:
    print("| " + " | ".join(cells) + " |")


def print_predicted(result: dict[str, Any]) -> None:
    machine, first = result["machine"], result["predicted"].get("1") or result["measured"]["1"]
    for count, seconds in result["held_out"].items():
        seen = result["measured"][count]["seconds"]
        error = abs(seconds / seen - 1.0)
        print(f"\nheld out: {count} ranks predicted {seconds:.3f} s, seen {seen:.3f} s, error {error:.1%}")
    print(
        f"\nprediction for {machine['cores']} cores a node, a core {machine['speed']:g} times this one: "
        f"alpha {machine['alpha'] * 1e6:.1f} us, beta {machine['beta'] * 1e9:.3f} ns a byte, "
        f"crowding {machine['crowding']:.3f}; at most {result['ceilings'][0]:.1f} times by points, "
        f"{result['ceilings'][1]:.1f} by units, {result['ceilings'][2]:.1f} in all\n"
    )
    print(
        "| ranks (prediction) | seconds | speedup | efficiency | even share | uneven points | uneven units, factors "
        "| on every rank | crowding | exchange | ParMAC's model |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    one = sum(first[k] for k in first) if "ideal" in first else first["seconds"]
    for count, terms in result["predicted"].items():
        total = sum(terms.values())
        print(
            f"| {count} | {total:.4f} | {one / total:.2f} | {one / total / int(count):.3f} | "
            + " | ".join(f"{s / total:.1%}" for s in terms.values())
            + f" | {result['parmac'][count]:.2f} |"
        )
