// Package anthropic is the upstream for the Anthropic Messages API, and for
// servers that speak it.
//
// A request of the same dialect goes out as the client wrote it, with the
// upstream's own key: only the model's name, sampling that was decided
// elsewhere and the parts that a hook changed are written anew. The reply comes
// back as Raw beside its parsed Deltas, so that signatures of reasoning, cache
// breakpoints and whatever a later version of the protocol adds survive. Other
// requests are written from the canonical conversation:
//
//   - System messages at the start are the system prompt; later ones are said by
//     the user, where the protocol has no place for them.
//   - Neighbours of one side make one message, tool results first.
//   - Reasoning goes back only with the provider's signature, or redacted; the
//     provider refuses any other.
//   - Arguments that aren't an object are wrapped as clients wrap them.
//   - Thinking is asked for where the client did and Options.ThinkingBudget is
//     set.
//
// Usage counts tokens that were read from the cache or written to it as part of
// the prompt. What never enters: client dialects and trying again.
package anthropic
