"""Tests of penstock.py; run with: python3 -m unittest discover sdk/python -p '*_test.py'"""

import json
import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import penstock  # noqa: E402


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


@penstock.judger("exact", config={"strict": bool})
def exact(r):
    """Compare the final text with the answer."""
    if r.task.get("answer") is None:
        return None
    return r.final_text == r.task["answer"]


@penstock.hook("no_rm", changes=["tool_call"])
def no_rm(e):
    if "rm " in json.dumps(e.value["arguments"]):
        return penstock.deny("rm is not allowed")


class Test(unittest.TestCase):
    def setUp(self):
        self.server = penstock._Server()
        self.ask("open", {"instance": "j", "component": "judger/exact", "config": {}})
        self.ask("open", {"instance": "h", "component": "hook/no_rm", "config": {}})

    def ask(self, method, params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return json.loads(self.server.answer(json.dumps(message)))

    def test_judges(self):
        for answer, text, want in (("4", "4", {"reward": 1, "status": "scored"}), ("4", "5", {"reward": 0, "status": "scored"}),
                                   (None, "4", {"reward": None, "status": "skipped"})):
            got = self.ask("judge", {"instance": "j", "task": {"answer": answer}, "rollout": {"final_text": text}})
            self.assertEqual(got["result"], want)

    def test_denies(self):
        event = {"instance": "h", "point": "tool_call", "tool_call": {"arguments": {"command": "rm -r ."}}}
        self.assertEqual(self.ask("hook_apply", event)["result"], {"action": "deny", "reason": "rm is not allowed"})
        event["tool_call"]["arguments"] = {"command": "ls"}
        self.assertEqual(self.ask("hook_apply", event)["result"], {"action": "continue"})

    def test_describes(self):
        first = self.ask("describe", {})["result"]["components"][0]
        self.assertEqual(first["summary"], "Compare the final text with the answer.")
        self.assertEqual(first["config"]["properties"], {"strict": {"type": "boolean"}})

    def test_reads_the_workspace_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as outer:
            inner = os.path.join(outer, "w")
            os.makedirs(os.path.join(inner, "sub"))
            for path, text in (("secret", "no"), ("w/a.txt", "42"), ("w/sub/b", "b")):
                with open(os.path.join(outer, path), "w") as f:
                    f.write(text)
            for name, to in (("out", "../secret"), ("up", ".."), ("in", "sub/b"), ("loop", "loop")):
                os.symlink(to, os.path.join(inner, name))
            os.mkfifo(os.path.join(inner, "pipe"))
            r = penstock.Rollout({"workspace": inner})
            self.assertEqual([r.file("a.txt"), r.file("in"), r.file("./sub/../a.txt")], ["42", "b", "42"])
            self.assertEqual(r.files(), ["a.txt", "sub/b"])
            for name in ("none", "../secret", "out", "up/secret", "loop", "sub", "pipe", os.path.join(inner, "a.txt")):
                with self.subTest(name), self.assertRaises(OSError):
                    r.file(name)
            with self.assertRaisesRegex(OSError, "over 1 bytes"):
                r.file("a.txt", limit=1)
            self.assertEqual([r.exists("sub"), r.exists("out"), r.exists("none")], [True, False, False])
        with self.assertRaisesRegex(OSError, "no workspace"):
            penstock.Rollout().file("a.txt")

    def test_runs_commands_within_limits(self):
        with tempfile.TemporaryDirectory() as inner:
            r = penstock.Rollout({"workspace": inner})
            got = r.run(["sh", "-c", "cat; echo no >&2; exit 3"], stdin="in")
            self.assertEqual([got.code, got.stdout, got.stderr, got.ok, got.timed_out], [3, "in", "no\n", False, False])
            got = r.run(["sh", "-c", "seq 1 100000"], output=7)
            self.assertEqual([got.stdout, got.ok], ["100000\n", True])
            os.environ["SECRET_KEY"] = "s3cret"
            self.assertEqual(r.run(["sh", "-c", 'ls -A "$HOME"; test "$HOME" != "$PWD" && echo apart']).stdout, "apart\n")
            self.assertEqual(r.run(["sh", "-c", 'echo "$SECRET_KEY$GIVEN"'], env={"GIVEN": "x"}).stdout, "x\n")
            for text, timeout, ok in (("sleep 300 & echo $!", 60, True), ("sleep 300 & echo $!; sleep 300", 0.5, False)):
                got = r.run(["sh", "-c", text], timeout=timeout)
                self.assertEqual([got.ok, got.timed_out], [ok, not ok])
                for _ in range(1000):
                    if not alive(int(got.stdout)):
                        break
                    time.sleep(0.01)
                self.assertFalse(alive(int(got.stdout)))
            with self.assertRaises(OSError):
                r.run(["no-such-program-here"])

    def test_errors(self):
        self.assertEqual(self.ask("nothing", {"instance": "j"})["error"]["code"], -32601)
        self.assertIn("not open", self.ask("judge", {"instance": "x"})["error"]["message"])
        self.assertIsNone(self.server.answer("no json"))


if __name__ == "__main__":
    unittest.main()
