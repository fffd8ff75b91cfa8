# SPDX-License-Identifier: BSD-3-Clause
"""Two processes and the weights of a model: a trainer writes them into memory that it shares, a worker reads them there.

The worker opens each allocation once. What the trainer replaces has another handle, which the worker opens anew.
"""

import multiprocessing

import numpy
import pinfold

LAYERS = 8
STEPS = 5


def work(handles, answers):
    """Adds up the weights of each step, as they lie in the trainer's memory."""
    while (shared := handles.get()) is not None:
        total = 0.0
        for handle in shared:
            with pinfold.open(handle) as tensor:
                weights = tensor.numpy()  # no copy; keeps the memory as long as it lives
                total += float(weights.sum(dtype="f8"))
                cache = tensor.lease.cache
            del weights
        answers.put((total, cache.statistics()["opens"]))


def train(layers, step):
    """Changes all weights; replaces the allocation of one layer by a larger one."""
    layers[step % LAYERS] = pinfold.memfd_array((500 + step, 1000), "f4")
    for number, layer in enumerate(layers):
        layer[:] = numpy.random.default_rng(step * LAYERS + number).random(layer.shape, "f4")


def main():
    context = multiprocessing.get_context("spawn")
    handles, answers = context.SimpleQueue(), context.SimpleQueue()
    worker = context.Process(target=work, args=(handles, answers), daemon=True)
    worker.start()
    layers = [pinfold.memfd_array((500, 1000), "f4") for _ in range(LAYERS)]
    for step in range(STEPS):
        train(layers, step)
        handles.put([pinfold.share(layer) for layer in layers])
        total, opens = answers.get()
        expected = sum(float(layer.sum(dtype="f8")) for layer in layers)
        if total != expected or opens != LAYERS + step:
            raise SystemExit(f"step {step}: {total} is not {expected}, or {opens} opens are not {LAYERS + step}")
        print(f"step {step}: {total:.3f} in both processes, {opens} opens so far")
    handles.put(None)
    worker.join()
    if worker.exitcode != 0:
        raise SystemExit("the worker failed")


if __name__ == "__main__":
    main()
