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
// The same prompt always gives the same tokens and logprobs. A prompt that no
// rule matches is refused, so that a hole in a script is never an answer.
//
// What never enters: client dialects, formats, and chance.
package script
