"""A judger of groups without the helper: each sample's reward is its place."""
import json
import sys

for line in sys.stdin:
    q = json.loads(line)
    if q["method"] == "describe":
        result = {"components": [{"kind": "judger", "name": "place", "protocol": 1, "methods": ["judge_group"]}]}
    elif q["method"] == "judge_group":
        result = [{"reward": i + 1} for i, _ in enumerate(q["params"]["rollouts"])]
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": q.get("id"), "result": result}), flush=True)
