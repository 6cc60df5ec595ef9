// Package engine is a stand-in for model servers: vLLM, SGLang, LMDeploy,
// anything that speaks OpenAI's API, and Anthropic's. It serves their wire
// shapes over HTTP, on top of a scripted model (core/upstream/script) with a
// byte tokenizer, and can fail in the ways in which servers fail, so that
// everything between an agent and a server can be driven without either.
//
// The shapes are written from the documented behaviour of those servers, not
// from running them: vLLM's return_token_ids, logprobs and
// return_tokens_as_token_ids; SGLang's cumulative /generate stream with
// meta_info; LMDeploy's incremental one; which of them report ids from which
// endpoint. What nothing here reads is left out.
//
// A chat endpoint renders with a format of its own (ChatML, tool calls as JSON
// in <tool_call>, reasoning in <think>) and parses the script's replies by it.
// A prompt that comes rendered is taken as it is; its newest message, which
// the script's rules look at, is what stands between the last two openings of
// a turn.
//
// What never enters: anything that a test of one package alone needs.
package engine
