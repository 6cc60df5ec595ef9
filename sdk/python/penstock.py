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

A judger may look into its own copy of the workspace, of which nothing is to be
trusted: r.file("answer.txt") reads a file in it, and no path or link leads
out; r.files() lists them; r.run(["pytest", "-q"], timeout=60) runs a command
with limits of time and output, and leaves no process behind.

Modules that the program imports belong into files: of the plugin's entry, so
that a change in one of them is seen: { exec: [./exact.py], files:
[./penstock.py, ./helper.py] }.

The program speaks JSON-RPC 2.0 on standard input and output, one message a
line: describe, open, close, and judge, judge_group or hook_apply, whose
results are a verdict, a list of them and {"action": "continue"}. print() goes
to standard error, which penstock logs.
"""

import json
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
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

    def _below(self, name):
        """The real path of a file in the workspace; one outside is an error."""
        if not self.workspace:
            raise FileNotFoundError("the rollout has no workspace")
        root = os.path.realpath(self.workspace)
        path = os.path.realpath(os.path.join(root, name))
        if os.path.isabs(name) or os.path.commonpath([root, path]) != root:
            raise PermissionError("%r leads out of the workspace" % name)
        return path

    def file(self, name, limit=16 << 20):
        """The text of a file in the workspace, by its path below it."""
        path = self._below(name)
        f = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(f, "rb") as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                raise OSError("%r is no regular file" % name)
            data = f.read(limit + 1)
        if len(data) > limit:
            raise OSError("%r is over %d bytes" % (name, limit))
        return data.decode("utf-8", "replace")

    def exists(self, name):
        """Whether there is a file or folder of this path in the workspace."""
        try:
            return os.path.exists(self._below(name))
        except OSError:
            return False

    def files(self):
        """The paths of all regular files in the workspace, sorted."""
        root, found = self._below("."), []
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    found.append(os.path.relpath(path, root))
        return sorted(found)

    def run(self, argv, timeout=60, output=1 << 20, env=None, stdin=""):
        """Run a command in the workspace. What it started and left in its
        process group is killed at its end, or at the end of its time."""
        root = self._below(".")
        given = {n: os.environ[n] for n in ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR") if n in os.environ}
        # Not the workspace, in which an agent may have left settings that programs read.
        home = tempfile.mkdtemp(prefix="penstock-home-")
        try:
            return self._run(root, argv, timeout, output, {**given, "HOME": home, **(env or {})}, stdin)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _run(self, root, argv, timeout, output, given, stdin):
        p = subprocess.Popen(argv, cwd=root, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, start_new_session=True)
        ends = [_Tail(p.stdout, output), _Tail(p.stderr, output)]
        feed = threading.Thread(target=_feed, args=(p.stdin, stdin), daemon=True)
        feed.start()
        over = threading.Event()
        late = threading.Timer(timeout, lambda: (over.set(), _end(p.pid)))
        late.start()
        os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)  # not reaped yet: its number is no other's
        late.cancel()
        late.join()
        _end(p.pid)
        for end in ends:
            end.join(1)  # a process outside of the group may hold the pipe
        return Result(p.wait(), over.is_set(), ends[0].text(), ends[1].text())


class Result:
    """How a command ended: its exit code, negative for a signal, and the ends
    of what it wrote."""

    def __init__(self, code, timed_out, stdout, stderr):
        self.code, self.timed_out, self.stdout, self.stderr = code, timed_out, stdout, stderr
        self.ok = code == 0 and not timed_out


class _Tail(threading.Thread):
    """Reads a pipe to its end and keeps the last bytes."""

    def __init__(self, pipe, limit):
        super().__init__(daemon=True)
        self.pipe, self.limit, self.data = pipe, limit, b""
        self.start()

    def run(self):
        with self.pipe:
            for piece in iter(lambda: os.read(self.pipe.fileno(), 65536), b""):
                self.data = (self.data + piece)[-self.limit:]

    def text(self):
        return self.data.decode("utf-8", "replace")


def _feed(pipe, text):
    try:
        pipe.write(text.encode())
        pipe.close()
    except OSError:
        pass  # it doesn't read its input


def _end(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


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
    if "PENSTOCK_PLUGIN" in os.environ:  # started as { process: [python3, ...] }
        try:
            import penstock_grpc
        except ImportError as e:
            sys.exit("a process plugin in Python needs penstock_grpc.py and grpcio (Debian: python3-grpcio): %s; "
                     "as { exec: [python3, ...] } it needs neither" % e)
        penstock_grpc.serve()
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
