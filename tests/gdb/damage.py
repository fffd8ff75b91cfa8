# SPDX-License-Identifier: BSD-3-Clause
"""In gdb: reads memory that is damaged in what matters, or random. Each round must end, and end with `Unreadable` at the
worst. The seed is PINFOLD_TEST_SEED, or random."""

import os
import random
import time

from pinfold_gdb import layout, target
from pinfold_gdb.memory import Memory, Unreadable
from pinfold_gdb.walk import Walk

ROUNDS = 300
seed = int(os.environ.get("PINFOLD_TEST_SEED") or random.randrange(1 << 32))
print(f"seed {seed}")
chance = random.Random(seed)
kept = {}


def read(address, count):
    if (address, count) not in kept:
        kept[address, count] = target.read(address, count)
    return kept[address, count]


def places(walk):
    """Returns the addresses and sizes of what leads a reader."""
    table, parts = walk.layout.table, []
    for at in walk.memory.along(walk.memory.word(table.caches), 0):
        parts.append((at, layout.CACHE.size))
        facts = layout.Facts(*walk.memory.unpack(layout.CACHE, at))
        for number in range(facts.shard_count if facts.changes % 2 == 0 else 0):
            shard = layout.Shard(*walk.memory.unpack(layout.SHARD, facts.shards + number * table.shard_bytes))
            parts += [
                (facts.shards + number * table.shard_bytes, layout.SHARD.size),
                (walk.memory.word(shard.pages), 64),
            ]
    found = [one for one in parts if one[0] != 0]
    return found + 20 * [(table.records, layout.RECORDS.size), (table.ledgers, layout.LEDGERS.size)]


def damaged(changes):
    def changed(address, count):
        raw = bytearray(read(address, count))
        for at, value in changes:
            for number, byte in enumerate(value.to_bytes(4, "little")):
                if 0 <= at + number - address < count:
                    raw[at + number - address] = byte
        return bytes(raw)

    return changed


def change(parts, table):
    at, count = chance.choice(parts + [(table + 16, layout.TABLE.size - 16)])
    value = chance.choice([0, 1, 7, 16384, 0xFFFFFFFF, chance.randrange(1 << 32)])
    return at + chance.randrange(count // 4) * 4, value


def visit(memory, table):
    """Returns the number of entries that were found."""
    walk = Walk(memory, table)
    return sum(len(list(walk.entries(one))) for one in walk.caches())


def read_damaged(rounds):
    real = next(target.walks())
    table = next(iter(set(target._tables(Memory(target.read)))))
    parts, whole = places(real), visit(Memory(read), table)
    same = failed = 0
    for _ in range(rounds):
        memory = Memory(damaged([change(parts, table) for _ in range(chance.randrange(4))]), 3000)
        try:
            same += visit(memory, table) == whole
        except Unreadable:
            failed += 1
    return same, failed


def read_random(rounds):
    start = layout.TABLE.pack(layout.MAGIC, 1, 80, 200, 56, 100, 0, 0, 0, 0, 0)[:36]
    for number in range(rounds):
        memory = Memory(lambda address, count: chance.randbytes(count), 300)
        first = [start] if number % 2 == 0 else []
        random_read = memory._read
        memory._read = lambda address, count: (
            (first.pop() + bytes(4) + chance.randbytes(40)) if first else random_read(address, count)
        )
        try:
            visit(memory, 0x1000)
        except Unreadable:
            continue
        raise AssertionError("random bytes are a table")


begin = time.monotonic()
same, failed = read_damaged(ROUNDS)
read_random(ROUNDS)
assert 60 < same < ROUNDS and failed > 10, "the damage hits what matters, but not always"
print(f"damage: {same} as without, {failed} refused, of {ROUNDS}; {time.monotonic() - begin:.1f} s")
