"""The zoo of sdk/python: as far as it goes it is that of ../zoo."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../sdk/python"))

import penstock  # noqa: E402


@penstock.judger("tame", config={"ignore_case": bool, "weight": {"type": "number"}}, input={"expect": str})
def tame(r):
    if r.config.get("weight", 0) < 0:
        raise penstock.ConfigError("/weight", "is negative")
    got, want = r.final_text, r.input.get("expect") or r.task.get("answer", "")
    if got == "skip":
        return penstock.verdict(None, explanation="nothing to see")
    if got == "error":
        raise ValueError("can't tell")
    if got == "again":
        raise penstock.Retry("try again")
    ok = got == want or r.config.get("ignore_case", False) and got.lower() == want.lower()
    print("judging", got)
    return penstock.verdict(int(ok), components={"calls": len(r.tool_calls)}, explanation="got %s" % got)


@penstock.judger("vote", group=True)
def vote(r):
    texts = [o.final_text for o in r.rollouts]
    return [2 * texts.count(t) > len(texts) for t in texts]


@penstock.judger("wild", input={"act": str})
def wild(r):
    act = r.input.get("act")
    if act == "crash":
        os.write(2, b"panic: the lion is loose\n")
        os._exit(3)
    if act == "loop":
        time.sleep(60)
    if act == "nan":
        return float("nan")
    return 1


@penstock.hook("shout", changes=["request"])
def shout(e):
    for m in e.value["messages"]:
        for p in m["parts"]:
            p["text"] = p["text"].upper()
    return penstock.replace(e.value)


penstock.main()
