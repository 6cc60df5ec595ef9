// Package script is a scripted model: an upstream that needs no network and
// no weights, for demos and tests. A YAML file holds rules; the first rule
// that matches the rendered prompt writes the reply, as raw model text, from
// what it matched. An answer that a tool has to find can thus only come from
// the tool's result.
//
//	penstock: script/v1
//	defaults: { chunk: 16, delay: 5ms }
//	rules:
//	  - name: ask the calculator
//	    when: { last: 'What is ([-+*/.() \d]+)\?' }
//	    reply: |-
//	      <tool_call>
//	      <function=calculator>
//	      <parameter=expression>
//	      $1
//	      </parameter>
//	      </function>
//	      </tool_call>
//	  - name: answer
//	    when: { last: '<tool_response>\s*(-?\d+)\s*</tool_response>' }
//	    reply: $1
//
// A rule matches when all of its when does: last and prompt are regular
// expressions (RE2) that are found in the newest message as rendered and in
// the whole prompt, not holds those that must not be found, turn is 1 for a
// conversation in which the model has not spoken. $1, ${1} and ${name} in the
// reply are groups of last, or else of prompt; $$ is a dollar. Further keys,
// all but the last four also under defaults:
//
//	think_time: 20ms              before the first chunk
//	delay: 5ms                    before each of the others
//	chunk: 16                     tokens in a chunk; [7, 1] takes turns
//	logprob: -0.25                of every token; default Logprob's
//	logprobs: false               none are given
//	finish: length                also stop (the default), content_filter, abort
//	fail: { status: 529, retry_after: 2, after: 3, times: 2, message: busy }
//	                              instead of the reply, or after some chunks of
//	                              it; times counts in each session
//	usage: { prompt_tokens: 10 }  the engine's own count, if it is to be wrong
//	name: ask                     for logs
//
// Of the whole script: weights (the weight version), seed (of the logprobs),
// log (a file that each generation is written to, see Record), otherwise (the
// reply if no rule matches).
//
// The same prompt always gives the same tokens and logprobs. A prompt that no
// rule matches is refused, so that a hole in a script is never an answer.
//
// What never enters: client dialects, formats, and chance.
package script
