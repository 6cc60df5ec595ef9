"""Write penstock judgers and hooks in Python: one file, no dependencies.

    import penstock

    @penstock.judger("exact")
    def exact(r):
        return r.final_text == str(r.task["answer"])

    penstock.main()

In a pipeline file:

    plugins:
      judger/exact: { exec: [python3, ./exact.py] }

A judger returns True or False, a number, a penstock.verdict(...), or None to
skip. An exception is a judge_error: the reward is then null, never 0. A hook
returns None to go on, penstock.replace(value) or penstock.deny(reason).

A config or input is declared as a JSON Schema of an object, or as a dict of
names and Python types:  @penstock.judger("exact", config={"strict": bool}).

The program speaks JSON-RPC 2.0 on standard input and output, one message a
line. print() goes to standard error, which penstock logs.
"""

import json
import math
import os
import re
import sys
import traceback

PROTOCOL = 1

_components = {}
_types = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class ConfigError(Exception):
    """A config field that can't be used; pointer is its JSON Pointer."""

    def __init__(self, pointer, message):
        super().__init__(message)
        self.pointer = pointer


class Retry(Exception):
    """A failure after which the same call may succeed."""


class Rollout(dict):
    """A rollout as penstock writes it, with its common fields as attributes."""

    @property
    def final_text(self):
        return self.get("final_text", "")

    @property
    def exit_status(self):
        return self.get("exit_status", "")

    @property
    def messages(self):
        return self.get("messages") or []

    @property
    def tool_calls(self):
        return self.get("tool_calls") or []

    @property
    def workspace(self):
        return self.get("workspace", "")


class Request(Rollout):
    """What a judger is given: the rollout itself, and task, input and config.

    A judger of groups finds the rollouts of a task in rollouts.
    """

    def __init__(self, document, config):
        super().__init__(document.get("rollout") or {})
        self.task = document.get("task") or {}
        self.input = document.get("input") or {}
        self.rollouts = [Rollout(r) for r in document.get("rollouts") or []]
        self.config = config


class Event:
    """What a hook is given: the point, its value, the task and the config."""

    def __init__(self, document, config):
        self.point = document["point"]
        self.value = document.get("stage" if self.point.startswith("stage.") else self.point)
        self.tools = document.get("tools") or []
        self.task = document.get("task") or {}
        self.rollout = Rollout(document.get("rollout") or {})
        self.config = config


def judger(name, summary="", config=None, input=None, group=False, version=""):
    """Register a function as a judger. With group=True it is given all samples
    of a task and returns a list with a verdict for each of r.rollouts."""
    methods = ["judge_group"] if group else ["judge"]
    return _register("judger", name, summary, version, config, input, methods=methods)


def hook(name, changes=(), observes=(), summary="", config=None, version=""):
    """Register a function as a hook at the points that it changes or observes:
    request, reply, tool_call, stage.before, stage.after, row."""
    return _register("hook", name, summary, version, config, None, methods=["hook_apply"],
                     changes=list(changes), observes=list(observes))


def _register(kind, name, summary, version, config, input, **more):
    def decorate(function):
        if (kind, name) in _components:
            raise ValueError("%s/%s is registered twice" % (kind, name))
        d = {"kind": kind, "name": name, "summary": summary or (function.__doc__ or "").strip().split("\n")[0],
             "version": version, "protocol": PROTOCOL, "config": _schema(config)}
        if input is not None:
            d["input"] = _schema(input)
        d.update(more)
        _components[kind, name] = ({k: v for k, v in d.items() if v not in ("", [])}, function)
        return function
    return decorate


def _schema(fields):
    fields = fields or {}
    if fields.get("type") == "object":
        return fields
    properties = {n: t if isinstance(t, dict) else {"type": _types[t]} for n, t in fields.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def verdict(reward, components=None, label="", explanation=""):
    """A verdict with more than a reward; reward None skips."""
    v = {"reward": reward, "status": "skipped" if reward is None else "scored"}
    for name, value in (("components", components), ("label", label), ("explanation", explanation)):
        if value:
            v[name] = value
    return v


def replace(value, report=None):
    """Put value in the place of what the hook was given."""
    r = {"action": "replace", "value": value}
    if report is not None:
        r["report"] = report
    return r


def deny(reason):
    """Refuse what the hook was given."""
    return {"action": "deny", "reason": reason}


def _verdict(v):
    if v is None:
        return verdict(None)
    if isinstance(v, dict):
        return v
    if not math.isfinite(v):
        raise ValueError("reward is %r, want a finite number" % v)
    return verdict(int(v) if isinstance(v, bool) else v)


def _describe():
    return {"components": [d for d, _ in _components.values()]}


class _Failure(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message}
        if data:
            self.error["data"] = data


class _Server:
    def __init__(self):
        self.instances = {}

    def call(self, method, params):
        if method == "describe":
            return _describe()
        name = params.get("instance", "")
        if method == "open":
            self.instances[name] = self.open(params)
            return {}
        if method == "close":
            self.instances.pop(name, None)
            return {}
        if name not in self.instances:
            raise _Failure(-32602, "instance %r is not open" % name)
        d, function, config = self.instances[name]
        if method not in d["methods"]:
            raise _Failure(-32601, "%s/%s has no method %s" % (d["kind"], d["name"], method))
        if "document" in params:
            with open(params["document"], encoding="utf-8") as f:
                params = json.load(f)
        return self.run(method, function, params, config)

    def open(self, params):
        kind, _, name = params.get("component", "").partition("/")
        if (kind, name) not in _components:
            raise _Failure(-32602, "the program has no %s/%s" % (kind, name))
        d, function = _components[kind, name]
        return d, function, params.get("config") or {}

    def run(self, method, function, params, config):
        if method == "hook_apply":
            return function(Event(params, config)) or {"action": "continue"}
        result = function(Request(params, config))
        if method == "judge_group":
            return [_verdict(v) for v in result]
        return _verdict(result)

    def answer(self, line):
        """Answer one message; None for one that wants no answer."""
        number = None
        try:
            message = json.loads(line)
            number = message.get("id")
            result = {"result": self.call(message["method"], message.get("params") or {})}
            text = json.dumps({"jsonrpc": "2.0", "id": number, **result}, ensure_ascii=False, allow_nan=False)
        except _Failure as e:
            text = _error(number, e.error)
        except ConfigError as e:
            text = _error(number, {"code": -32602, "message": str(e), "data": {"code": "config", "pointer": e.pointer}})
        except Retry as e:
            text = _error(number, {"code": -32000, "message": str(e), "data": {"code": "retry", "retryable": True}})
        except Exception as e:
            traceback.print_exc()
            text = _error(number, {"code": -32000, "message": "%s: %s" % (type(e).__name__, e), "data": {"code": "exception"}})
        return None if number is None else text


def _error(number, error):
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}, ensure_ascii=False)


def try_cases(test, path):
    """Run the cases of a file, one a line, on what is registered here, as
    `penstock plugin test` does; test is a unittest.TestCase."""
    with open(path, encoding="utf-8") as f:
        cases = [json.loads(line) for line in f if line.strip()]
    test.assertTrue(cases, path + " holds no cases")
    for case in cases:
        with test.subTest(case.get("name", "")):
            request, server = case["request"], _Server()
            method = "hook_apply" if "point" in request else "judge_group" if "rollouts" in request else "judge"
            kind, name = next(id for id, (d, _) in _components.items() if method in d["methods"])
            opened = {"instance": "i", "component": kind + "/" + name, "config": case.get("config")}
            server.call("open", opened)
            if "error" in case:
                with test.assertRaisesRegex(Exception, re.escape(case["error"])):
                    server.call(method, {"instance": "i", **request})
                continue
            reply = server.call(method, {"instance": "i", **request})
            if "want" in case:
                test.assertEqual(json.loads(json.dumps(reply)), case["want"])


def main():
    """Serve what is registered until standard input ends. --describe prints
    the descriptions instead."""
    if sys.argv[1:] == ["--describe"]:
        print(json.dumps(_describe()))
        return
    if sys.stdin.isatty():
        sys.exit("This program is a penstock plugin, which penstock starts by itself. In a pipeline file:\n\n"
                 "  plugins:\n" + "".join("    %s/%s: { exec: [python3, %s] }\n" % (*id, sys.argv[0]) for id in _components))
    # The protocol keeps standard output for itself; a print goes to the log.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    server = _Server()
    for line in open(0, encoding="utf-8", newline="\n", closefd=False):
        text = server.answer(line)
        if text is not None:
            out.write(text + "\n")
            out.flush()
