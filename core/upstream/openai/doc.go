// Package openai is the upstream for servers that speak OpenAI's HTTP API:
// the provider itself, anything compatible, and the engines vLLM, SGLang and
// LMDeploy with what each adds to it.
//
// Which endpoint is asked depends on who renders and what is captured:
//
//	we render     openai, vllm       /v1/completions, text or ids
//	              sglang, lmdeploy   /generate, always ids; a prompt that is
//	                                 text is first tokenized by the server
//	it renders    all                /v1/chat/completions; of sglang whole where
//	                                 ids are wanted, as it doesn't stream them
//
// Where ids are wanted, every chunk has as many logprobs as ids, the names of
// tokens are held against the ids where the engine writes them, the prompt's
// ids against those that were sent, and the number of ids against the engine's
// own count. What doesn't agree is an error, never a gap. Sampling that isn't
// given is then neutral (temperature 1, no top_p, no top_k), not the model's
// own default, because logprobs are those of the neutral distribution.
//
// A stop string of the client is no part of Text, while its ids stay; a stop of
// the template is part of both, where the engine can be told so.
//
// New probes the server, so that what a capture needs and the server lacks is
// known before anything runs. What never enters: formats, client dialects and
// trying again (core/upstream/pool).
package openai
