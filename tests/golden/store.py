#!/usr/bin/python3
"""Writes store.json: what PyTorch's HashStore gives for small sequences of calls, and where its TCPStore gives something else.

Run: /usr/bin/python3 tests/golden/store.py   (needs PyTorch; the committed file came from 1.13)

Each case begins with an empty store. A step is a call; its bytes stand in hexadecimal. A step that raises has "error" in the place of
a result. `meanwhile` are steps of another thread while the call waits.
"""

import datetime
import json
import pathlib
import threading
import time

import torch
from torch.distributed import HashStore, PrefixStore, TCPStore

SHORT_MS = 100


def hexed(value):
    return value.hex() if isinstance(value, bytes) else value.encode().hex()


def step(op, *args, **more):
    return {"op": op, "args": list(args), **more}


CASES = {
    "set, then get": [step("set", "a", hexed("1")), step("get", "a"), step("set", "a", hexed("2")), step("get", "a"), step("numKeys")],
    "bytes of every kind": [step("set", "b", bytes(range(256)).hex()), step("get", "b"), step("set", "e", ""), step("get", "e")],
    "text in UTF-8": [step("set", "schlüssel €", hexed("é € \U0001f642")), step("get", "schlüssel €")],
    "a get that comes too late": [step("get", "nothing")],
    "a get that waits": [step("get", "a", meanwhile=[step("set", "a", hexed("late"))])],
    "counters": [step("add", "n", 1), step("add", "n", 41), step("add", "n", -50), step("get", "n"), step("add", "n", 0), step("numKeys")],
    "adding to text that is a number": [step("set", "n", hexed("5")), step("add", "n", 2), step("get", "n"), step("add", "n", 1)],
    "adding to text that begins with a number": [step("set", "n", hexed(" \t-12abc")), step("add", "n", 2), step("get", "n")],
    "adding to a number with zeros and a sign": [step("set", "n", hexed("+007")), step("add", "n", 1), step("get", "n")],
    "adding to hexadecimal text": [step("set", "n", hexed("0x10")), step("add", "n", 1), step("get", "n")],
    "adding to a fraction": [step("set", "n", hexed("1.9")), step("add", "n", 1), step("get", "n")],
    "adding to no number": [step("set", "n", hexed("abc")), step("add", "n", 1)],
    "adding to nothing at all": [step("set", "n", ""), step("add", "n", 1)],
    "a counter that is set": [step("add", "n", 7), step("set", "n", hexed("x")), step("get", "n")],
    "compareSet: the value as expected": [step("set", "k", hexed("a")), step("compareSet", "k", hexed("a"), hexed("b")), step("get", "k")],
    "compareSet: another value": [step("set", "k", hexed("a")), step("compareSet", "k", hexed("x"), hexed("b")), step("get", "k")],
    "compareSet: no key, nothing expected": [step("compareSet", "k", "", hexed("b")), step("get", "k"), step("numKeys")],
    "compareSet: no key, a value expected": [step("compareSet", "k", hexed("x"), hexed("b")), step("numKeys")],
    "compareSet: a value, nothing expected": [step("set", "k", hexed("a")), step("compareSet", "k", "", hexed("b")), step("get", "k")],
    "compareSet: an empty value, nothing expected": [step("set", "k", ""), step("compareSet", "k", "", hexed("b")), step("get", "k")],
    "compareSet: to an empty value": [step("set", "k", hexed("a")), step("compareSet", "k", hexed("a"), ""), step("get", "k")],
    "compareSet: a counter as expected": [step("add", "n", 5), step("compareSet", "n", hexed("5"), hexed("x")), step("get", "n")],
    "compareSet: a counter that is written otherwise": [step("add", "n", 5), step("compareSet", "n", hexed("05"), hexed("x")), step("get", "n")],
    "compareSet: a number, then counted": [
        step("compareSet", "n", "", hexed("5")), step("add", "n", 1), step("compareSet", "n", hexed("6"), hexed("9")), step("add", "n", 1),
    ],
    "compareSet: a number that was set as text": [
        step("add", "n", 5), step("set", "n", hexed("5")), step("compareSet", "n", hexed("5"), hexed("6")), step("get", "n"),
    ],
    "deleteKey": [
        step("set", "k", hexed("a")), step("deleteKey", "k"), step("deleteKey", "k"), step("numKeys"), step("get", "k"),
    ],
    "a counter that was deleted begins at 0": [step("add", "n", 5), step("deleteKey", "n"), step("add", "n", 1)],
    "numKeys": [step("numKeys"), step("set", "a", ""), step("set", "b", ""), step("set", "a", hexed("x")), step("add", "c", 1), step("numKeys")],
    "wait for what is there": [step("set", "a", ""), step("add", "n", 1), step("wait", ["a", "n"]), step("wait", [])],
    "wait for several that come": [
        step("set", "b", ""), step("wait", ["a", "b", "n"], meanwhile=[step("set", "a", ""), step("add", "n", 1)]),
    ],
    "wait, one does not come": [step("set", "a", ""), step("wait", ["a", "z"])],
}


def call(store, one, timeout):
    op, args = one["op"], one["args"]
    if op == "set":
        return store.set(args[0], bytes.fromhex(args[1]))
    if op == "get":
        return store.get(args[0]).hex()
    if op == "add":
        return store.add(*args)
    if op == "compareSet":
        return store.compare_set(args[0], bytes.fromhex(args[1]), bytes.fromhex(args[2])).hex()
    if op == "deleteKey":
        return store.delete_key(*args)
    if op == "numKeys":
        return store.num_keys()
    if op == "wait":
        return store.wait(args[0], timeout)
    raise ValueError(op)


def run(store, steps, others=None):
    """Results of the steps, with {"error": text} for one that raises; `others` is a store for the other thread."""
    results = []
    for one in steps:
        ms = 10_000 if "meanwhile" in one else SHORT_MS
        timeout = datetime.timedelta(milliseconds=ms)
        store.set_timeout(timeout)
        thread = None
        if "meanwhile" in one:

            def meanwhile(steps=one["meanwhile"]):
                time.sleep(0.05)
                run(others or store, steps)

            thread = threading.Thread(target=meanwhile)
            thread.start()
        try:
            result = {"result": call(store, one, timeout)}
        except Exception as error:
            result = {"error": type(error).__name__ + ": " + str(error).split("\n")[0][:80]}
        if thread:
            thread.join()
        results.append(result)
    return results


def tcp_stores():
    master = TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=10), False)
    client = TCPStore("127.0.0.1", master.port, None, False, datetime.timedelta(seconds=10), False)
    return master, client


cases = []
for name, steps in CASES.items():
    results = run(HashStore(), steps)
    prefixed = run(PrefixStore("p", HashStore()), steps)
    master, client = tcp_stores()
    tcp = run(master, steps, client)
    told = []
    for one, ours, with_prefix, its in zip(steps, results, prefixed, tcp):
        assert ("error" in ours) == ("error" in with_prefix) and ours.get("result") == with_prefix.get("result"), (name, one, ours, with_prefix)
        isError = "error" in ours
        row = {**one, **({"error": ours["error"]} if isError else {"result": ours["result"]})}
        if ("error" in its) != isError or its.get("result") != ours.get("result"):
            row["tcpStore"] = its
        told.append(row)
    cases.append({"name": name, "steps": told})

target = pathlib.Path(__file__).with_suffix(".json")
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
target.write_text(f'{{"torch":"{torch.__version__}","cases":[\n{lines}\n]}}\n')
print(f"{target}: {len(cases)} cases, {target.stat().st_size} bytes")
