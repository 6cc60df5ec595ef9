package telemetry

import (
	"cmp"
	"encoding/json"

	"go.opentelemetry.io/otel/attribute"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// names are what differs between versions of the conventions for generative
// AI. All of them are in development and change with each version.
type names struct {
	schema       string
	workflow     string // the operation of a rollout
	workflowName attribute.Key
}

var versions = map[string]names{
	"v1.41":     {"https://opentelemetry.io/schemas/1.41.0", "invoke_workflow", "gen_ai.workflow.name"},
	"genai-0.1": {"", "invoke_agent", "gen_ai.agent.name"},
}

// The names of attributes that all versions share.
const (
	operation      = attribute.Key("gen_ai.operation.name")
	provider       = attribute.Key("gen_ai.provider.name")
	conversation   = attribute.Key("gen_ai.conversation.id")
	agentName      = attribute.Key("gen_ai.agent.name")
	agentID        = attribute.Key("gen_ai.agent.id")
	requestModel   = attribute.Key("gen_ai.request.model")
	maxTokens      = attribute.Key("gen_ai.request.max_tokens")
	temperature    = attribute.Key("gen_ai.request.temperature")
	topP           = attribute.Key("gen_ai.request.top_p")
	topK           = attribute.Key("gen_ai.request.top_k")
	seed           = attribute.Key("gen_ai.request.seed")
	stopSequences  = attribute.Key("gen_ai.request.stop_sequences")
	streamed       = attribute.Key("gen_ai.request.stream")
	responseID     = attribute.Key("gen_ai.response.id")
	responseModel  = attribute.Key("gen_ai.response.model")
	finishReasons  = attribute.Key("gen_ai.response.finish_reasons")
	firstChunk     = attribute.Key("gen_ai.response.time_to_first_chunk")
	inputTokens    = attribute.Key("gen_ai.usage.input_tokens")
	outputTokens   = attribute.Key("gen_ai.usage.output_tokens")
	cachedTokens   = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	writtenTokens  = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	toolName       = attribute.Key("gen_ai.tool.name")
	toolType       = attribute.Key("gen_ai.tool.type")
	toolCallID     = attribute.Key("gen_ai.tool.call.id")
	toolArguments  = attribute.Key("gen_ai.tool.call.arguments")
	toolResult     = attribute.Key("gen_ai.tool.call.result")
	instructions   = attribute.Key("gen_ai.system_instructions")
	inputMessages  = attribute.Key("gen_ai.input.messages")
	outputMessages = attribute.Key("gen_ai.output.messages")
	definitions    = attribute.Key("gen_ai.tool.definitions")
	evaluation     = "gen_ai.evaluation.result"
	evaluationName = attribute.Key("gen_ai.evaluation.name")
	score          = attribute.Key("gen_ai.evaluation.score.value")
	scoreLabel     = attribute.Key("gen_ai.evaluation.score.label")
	errorType      = attribute.Key("error.type")
)

// providers are the names of who generates. An engine that has none in the
// conventions keeps its own.
var providers = map[string]string{"bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai", "gemini": "gcp.gemini"}

func providerOf(engine string) string {
	return cmp.Or(providers[engine], engine, "_OTHER")
}

// request is what was asked for.
func request(c *trace.Call) []attribute.KeyValue {
	out := []attribute.KeyValue{
		operation.String("chat"), provider.String(providerOf(c.Engine)), conversation.String(c.Session),
		requestModel.String(c.ModelServed), streamed.Bool(c.Stream),
	}
	s := &c.Effective
	if s.MaxTokens != nil {
		out = append(out, maxTokens.Int(*s.MaxTokens))
	}
	if s.Temperature != nil {
		out = append(out, temperature.Float64(*s.Temperature))
	}
	if s.TopP != nil {
		out = append(out, topP.Float64(*s.TopP))
	}
	if s.TopK != nil {
		out = append(out, topK.Int(*s.TopK))
	}
	if s.Seed != nil {
		out = append(out, seed.Int64(*s.Seed))
	}
	if len(s.Stop) > 0 {
		out = append(out, stopSequences.StringSlice(s.Stop))
	}
	return out
}

// response is what came of a call. Input tokens include cached ones, as
// everywhere in penstock.
func response(c *trace.Call) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("penstock.call", c.ID), attribute.String("penstock.call.status", c.Status),
		attribute.String("penstock.model_entry", c.ModelEntry), attribute.String("penstock.capture", c.Capture),
		attribute.String("penstock.format", c.Format), attribute.String("penstock.dialect", c.Dialect),
	}
	for key, value := range map[string]string{
		"penstock.lineage": c.Lineage, "penstock.lineage.kind": string(c.Kind), "penstock.fork": c.Fork, "penstock.replays": c.Replays,
		"penstock.weight_version": c.Weights,
	} {
		if value != "" {
			out = append(out, attribute.String(key, value))
		}
	}
	if r := c.Served; r != nil && c.Status == trace.CallOK {
		out = append(out, responseID.String(r.ID), responseModel.String(c.ModelServed), finishReasons.StringSlice([]string{string(r.Finish)}))
	}
	if !c.FirstByte.IsZero() {
		out = append(out, firstChunk.Float64(c.FirstByte.Sub(c.Received).Seconds()))
	}
	if c.Usage != (chat.Usage{}) {
		out = append(out, inputTokens.Int(c.Usage.Input), outputTokens.Int(c.Usage.Output))
	}
	if c.Usage.Cached > 0 {
		out = append(out, cachedTokens.Int(c.Usage.Cached))
	}
	if c.Usage.CacheWrite > 0 {
		out = append(out, writtenTokens.Int(c.Usage.CacheWrite))
	}
	if c.CostBasis != "" {
		out = append(out, attribute.String("penstock.cost.basis", c.CostBasis))
	}
	if c.Cost != nil {
		out = append(out, attribute.Float64("penstock.cost.usd", *c.Cost))
	}
	if c.Error != nil {
		out = append(out, errorType.String(c.Error.Kind))
	}
	if n := len(c.Redactions); n > 0 {
		out = append(out, attribute.Int("penstock.redactions", n))
	}
	return out
}

// message and part are the conventions' form of a message.
type message struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// content is what was said.
func content(c *trace.Call) []attribute.KeyValue {
	var out []attribute.KeyValue
	add := func(key attribute.Key, v any) {
		if b, err := chat.Marshal(v); err == nil {
			out = append(out, key.String(string(b)))
		}
	}
	if c.Chat != nil {
		var system []part
		var messages []message
		for _, m := range c.Chat.Messages {
			if m.Role == chat.System {
				system = append(system, parts(m.Parts)...)
			} else {
				messages = append(messages, message{Role: string(m.Role), Parts: parts(m.Parts)})
			}
		}
		if system != nil {
			add(instructions, system)
		}
		add(inputMessages, messages)
		if len(c.Chat.Tools) > 0 {
			add(definitions, c.Chat.Tools)
		}
	}
	if c.Served != nil {
		add(outputMessages, []message{{Role: string(chat.Assistant), Parts: parts(c.Served.Parts), Finish: string(c.Served.Finish)}})
	}
	return out
}

func parts(in []chat.Part) []part {
	out := make([]part, 0, len(in))
	for _, p := range in {
		switch p.Type {
		case chat.ToolCall:
			out = append(out, part{Type: "tool_call", ID: p.ID, Name: p.Name, Arguments: p.Arguments})
		case chat.ToolResult:
			out = append(out, part{Type: "tool_call_response", ID: p.ID, Response: chat.PlainText(p.Content)})
		case chat.Image:
			out = append(out, part{Type: "image", Content: p.MediaType})
		default:
			out = append(out, part{Type: string(p.Type), Content: p.Text})
		}
	}
	return out
}
