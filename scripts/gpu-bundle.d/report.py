# SPDX-License-Identifier: BSD-3-Clause
"""report.py <bundle> <results> <load>: writes report.md of the results of `run`: the machine, the figures in the form of
docs/use/gpu.md, and the outcomes. Prints the last line of the run; exits with 1 if not everything passed or was skipped."""

import collections
import datetime
import json
import pathlib
import re
import sys

bundle, results = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def read(file):
    return file.read_text() if file.exists() else ""


def load(case):
    try:
        return json.loads(read(results / f"{case}.json"))
    except ValueError:
        return {}


def number(value, digits):
    return f"{value:,.{digits}f}".replace(",", " ")


def us(nanoseconds):
    value = nanoseconds / 1000
    return number(value, 2 if value < 1 else 1 if value < 100 else 0) + " µs"


def size(nbytes):
    power = (nbytes.bit_length() - 1) // 10
    return f"{nbytes >> 10 * power} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def machine():
    info = load("info")
    cuda, host = info.get("cuda", {}), info.get("host", {})
    names = ", ".join(device["name"] for device in cuda.get("devices", [])) or "no device"
    version = re.search(r"\d{3,}\.\d+(\.\d+)?", read(pathlib.Path("/proc/driver/nvidia/version")))
    driver = (
        "EMULATED: no GPU was involved" if cuda.get("emulated") else f"driver {version[0] if version else 'unknown'}"
    )
    commit = re.search("commit=(.*)", read(bundle / "built"))[1]
    return (
        f"{names} ({driver}, {cuda.get('driver', 'no CUDA')}), {host.get('cpus')} x {host.get('cpu_model')}, "
        f"{host.get('kernel')}, Python {sys.version.split()[0]}, load {sys.argv[3]}, {datetime.date.today()}, commit {commit}"
    )


def rows(case, key):
    """Groups the rows of the case by the key: {value: {subject: row}}."""
    groups = collections.defaultdict(dict)
    for row in load(case).get("rows", []):
        groups[row[key]][row["subject"]] = row
    return groups


def figures():
    yield "| `pinfold perf import --cuda` | without a cache | pinfold | the copy alone |\n|---|---|---|---|"
    for case, what in (("copy", ""), ("to-host", " to host memory"), ("segments", " in segments")):
        for nbytes, of in rows(case, "size").items():
            medians = [
                us(of[subject]["p50_ns"]) if subject in of else "" for subject in ("uncached", "pinfold", "floor")
            ]
            yield f"| {size(nbytes)}{what} | {' | '.join(medians)} |"
    for nbytes, of in rows("weight-sync", "size").items():
        tensors, memory = (number(of["pinfold"][count], 0) for count in ("requests", "allocations"))
        steps = " | ".join(f"{of[subject]['seconds']:.2f} s" for subject in ("uncached", "pinfold"))
        yield f"| weight synchronisation, {tensors} tensors in {memory} allocations of {size(nbytes)} | {steps} | |"
    yield "\n| `--case open` | open | close |\n|---|---|---|"
    for row in load("open").get("rows", []):
        what = (" in segments" if row["memory"] == "segments" else "") + (
            f" beside {row['held']} open ones" if row["held"] else ""
        )
        yield f"| {size(row['size'])}{what} | {us(row['p50_ns'])} | {us(row['close_p50_ns'])} |"
    for of in rows("identity", "size").values():
        added = of["compared"]["p50_ns"] - of["announced"]["p50_ns"]
        yield f"\nComparing buffer ids adds {us(added)} to a hit of `cuda_memory`."


outcomes = [line.split("\t") for line in read(results / "outcomes.tsv").splitlines()]
ran = {name for _, name, _ in outcomes}
listed = [line.replace("\t", " ").rstrip() for line in read(bundle / "tests.list").splitlines()]
outcomes += [["not run", name, "0"] for name in listed if name not in ran]
counts = collections.Counter(re.sub(" with .*", "", outcome) for outcome, _, _ in outcomes)
bad = [f"- {name}: {outcome}" for outcome, name, _ in outcomes if outcome not in ("passed", "skipped")]
counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
try:
    table = "\n".join(figures())
except (KeyError, TypeError):  # a measurement was interrupted
    table = "The measurements are not complete."
lines = [f"{machine()}; medians.", "", table, "", f"Tests and measurements: {counted}.", *bad]
(results / "report.md").write_text("\n".join(lines) + "\n")
print(f"{'FAILED' if bad or not counts['passed'] else 'passed'}: {counted}: {machine()}")
sys.exit(1 if bad or not counts["passed"] else 0)
