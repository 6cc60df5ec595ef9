// Package bedrock is the upstream for Anthropic's models on Amazon Bedrock: the
// Messages API of package anthropic, carried as Bedrock takes it.
//
//   - The model and whether the reply streams are in the path, and
//     anthropic_version and anthropic_beta in the body, after
//     https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages.html.
//   - A request is signed with Signature Version 4 for the service "bedrock", or
//     holds a Bedrock API key as a bearer token.
//   - A streamed reply comes in frames of AWS's event stream, each with one event
//     of the Messages API; a frame that is an exception is an error in
//     mid-stream.
//   - Tokens are counted by /model/ID/count-tokens.
//
// Credentials are those of the options alone: no file and no variable of the
// machine is read. What never enters: what the Messages API says, and trying
// again.
package bedrock
