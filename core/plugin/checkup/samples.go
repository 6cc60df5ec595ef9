package checkup

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/trial"
)

// samples are requests as a run makes them, the odd ones too, for a kind.
func samples(kind string) []trial.Case {
	switch kind {
	case component.Judger:
		return rollouts()
	case component.Hook:
		return events()
	case component.Format:
		return texts()
	case component.Invoker:
		return ends()
	default:
		return []trial.Case{{Name: "no rows", Request: json.RawMessage(`{"rows":[]}`)}}
	}
}

func sample(name, request string) trial.Case {
	return trial.Case{Name: name, Request: json.RawMessage(request)}
}

const task = `"input":{},"task":{"id":"t1","prompt":"What is 2 + 2?","answer":"4"}`

func rollouts() []trial.Case {
	said := func(text string) string {
		return `{"role":"assistant","parts":[{"type":"text","text":` + text + `}]}`
	}
	rollout := func(text, exit, messages string) string {
		return `{` + task + `,"rollout":{"id":"t1~0","sample":0,"attempt":"t1~0~solve~0~1","final_text":` + text +
			`,"exit_status":"` + exit + `","status":"running","usage":{"input":10,"output":2},"tool_calls":[{"id":"c1","name":"add","arguments":{"a":2},"result":"4"}],"messages":[` + messages + `]}}`
	}
	user := `{"role":"user","parts":[{"type":"text","text":"What is 2 + 2?"}]}`
	long := strings.Repeat(said(`"all work and no play"`)+",", 3000)
	return []trial.Case{
		sample("an answer", rollout(`"4"`, "ok", user+","+said(`"4"`))),
		sample("no answer", rollout(`""`, "timeout", user)),
		sample("no messages", rollout(`""`, "agent_error", "")),
		sample("odd text", rollout(`"<&> \u0000 \ud83d\ude00 日本"`, "max_turns", user)),
		sample("250 KB", rollout(`"4"`, "ok", strings.TrimSuffix(long, ","))),
	}
}

// grouped reports whether a component judges groups alone.
func grouped(d component.Descriptor) bool {
	return slices.Contains(d.Methods, judger.MethodJudgeGroup) && !slices.Contains(d.Methods, judger.MethodJudge)
}

// groups makes of each request about one rollout one about two of them, and
// adds that about none.
func groups(all []trial.Case) []trial.Case {
	for i, c := range all {
		var q map[string]json.RawMessage
		if json.Unmarshal(c.Request, &q) != nil {
			continue
		}
		r := q["rollout"]
		delete(q, "rollout")
		q["rollouts"] = slices.Concat([]byte("["), r, []byte(","), r, []byte("]"))
		if request, err := json.Marshal(q); err == nil {
			all[i].Request = request
		}
	}
	none := all[0]
	none.Name, none.Request = "no rollouts", json.RawMessage(`{`+task+`,"rollouts":[]}`)
	return append(all, none)
}

func events() []trial.Case {
	const chat = `{"messages":[{"role":"system","parts":[{"type":"text","text":"Be brief."}]},{"role":"user","parts":[{"type":"text","text":"Hi"}]}],"tools":[{"name":"bash","parameters":{"type":"object"}}]}`
	return []trial.Case{
		sample("a request", `{"point":"request","request":`+chat+`,"task":{"id":"t1"}}`),
		sample("a reply", `{"point":"reply","reply":{"message":{"role":"assistant","parts":[{"type":"text","text":"Hello"}]},"finish":"stop"},"task":{"id":"t1"}}`),
		sample("a tool call", `{"point":"tool_call","tool_call":{"id":"c1","name":"bash","arguments":{"command":"ls"}},"tools":[{"name":"bash"}],"task":{"id":"t1"}}`),
		sample("before a stage", `{"point":"stage.before","stage":{"id":"solve","input":{}},"task":{"id":"t1"},"rollout":{"id":"t1~0"}}`),
		sample("after a stage", `{"point":"stage.after","stage":{"id":"solve","status":"completed","output":{"text":"4"}},"task":{"id":"t1"},"rollout":{"id":"t1~0"}}`),
		sample("a row", `{"point":"row","row":{"row":"r/main0/0","task":"t1","reward":1,"input_ids":[1],"loss_mask":[1],"logprobs":[-0.5]},"task":{"id":"t1"},"rollout":{"id":"t1~0"}}`),
	}
}

func texts() []trial.Case {
	return []trial.Case{
		sample("text", `{"text":"Hello, 日本 \ud83d\ude00."}`),
		sample("nothing", `{"text":""}`),
		sample("tags that fit nothing", `{"text":"<tool_call>{\"name\": </think> <|im_end|> [TOOL_CALLS] {\"a\":","tools":[{"name":"add","parameters":{"type":"object"}}]}`),
		sample("a prompt", `{"chat":{"messages":[{"role":"system","parts":[{"type":"text","text":"Be brief."}]},{"role":"user","parts":[{"type":"text","text":"Hi"}]}]}}`),
	}
}

func ends() []trial.Case {
	return []trial.Case{
		sample("no output", `{"exit":0,"exit_status":"ok","stdout":""}`),
		sample("a signal", `{"exit":-1,"signal":"killed","exit_status":"agent_error","stdout":"half a li","stderr":"Killed"}`),
		sample("a line that is no JSON", `{"line":"Traceback (most recent call last):"}`),
	}
}
