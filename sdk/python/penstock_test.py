"""Tests of penstock.py; run with: python3 -m unittest discover sdk/python -p '*_test.py'"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import penstock  # noqa: E402


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

    def test_errors(self):
        self.assertEqual(self.ask("nothing", {"instance": "j"})["error"]["code"], -32601)
        self.assertIn("not open", self.ask("judge", {"instance": "x"})["error"]["message"])
        self.assertIsNone(self.server.answer("no json"))


if __name__ == "__main__":
    unittest.main()
