// Renders the conversations of testdata/golden/chats with the chat templates of
// real models, by @huggingface/jinja, and writes the prompts beside them. The
// tests hold the prompts of our formats against these, byte for byte.
//
//   node generate.mjs NODE_MODULES GOLDEN_FOLDER
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { sources } from './sources.mjs';

const [modules, folder] = process.argv.slice(2).map((p) => path.resolve(p));
const read = (...p) => fs.readFileSync(path.join(...p), 'utf8');
const { Template } = await import(pathToFileURL(path.join(modules, '@huggingface/jinja/dist/index.js')));

// The list of @huggingface/ollama-utils is not exported, so it is cut out.
function ollamaTemplates() {
  const text = read(modules, '@huggingface/ollama-utils/dist/index.mjs');
  const list = text.match(/var OLLAMA_CHAT_TEMPLATE_MAPPING = (\[[\s\S]*?\n\]);/)[1];
  return Object.fromEntries(new Function(`return ${list}`)().map((e) => [e.model.replace('library/', ''), e.gguf]));
}

function templateOf(s, ollama) {
  if (s.package === '@huggingface/ollama-utils') return ollama[s.model];
  return JSON.parse(read(modules, s.package, 'models/tokenizer_config.json')).chat_template;
}

// The messages that templates are given, of a conversation in our own form.
function messages(c) {
  const text = (parts, type, sep) => parts.filter((p) => p.type === type).map((p) => p.text).join(sep);
  const names = Object.fromEntries(c.messages.flatMap((m) => m.parts).filter((p) => p.type === 'tool_call').map((p) => [p.id, p.name]));
  return c.messages.flatMap((m) => {
    if (m.role === 'tool') {
      return m.parts.map((p) => ({ role: 'tool', content: text(p.content, 'text', '\n'), tool_call_id: p.id, name: names[p.id] }));
    }
    const out = { role: m.role, content: text(m.parts, 'text', '\n') };
    const reasoning = text(m.parts, 'reasoning', '\n');
    if (reasoning) out.reasoning_content = reasoning;
    const calls = m.parts.filter((p) => p.type === 'tool_call');
    if (calls.length) out.tool_calls = calls.map((p) => ({ id: p.id, type: 'function', function: { name: p.name, arguments: p.arguments } }));
    return [out];
  });
}

function variables(c, s) {
  const v = { messages: messages(c), add_generation_prompt: true, bos_token: s.bos ?? '', eos_token: s.eos ?? '', tools: null, ...s.vars };
  if (c.tools && !s.untooled) {
    v.tools = c.tools.map(({ name, description, parameters }) => ({ type: 'function', function: { name, description, parameters } }));
  }
  if (c.thinking !== undefined) v.enable_thinking = v.thinking = c.thinking;
  if (s.nullContent) {
    for (const m of v.messages) if (m.tool_calls && !m.content) m.content = null;
  }
  if (s.argumentsText) {
    for (const m of v.messages) for (const t of m.tool_calls ?? []) t.function.arguments = python(t.function.arguments);
  }
  return v;
}

// JSON as Python's json.dumps spells it.
function python(v) {
  if (Array.isArray(v)) return `[${v.map(python).join(', ')}]`;
  if (v && typeof v === 'object') return `{${Object.entries(v).map(([k, x]) => `${JSON.stringify(k)}: ${python(x)}`).join(', ')}}`;
  return JSON.stringify(v);
}

const ollama = ollamaTemplates();
const chats = fs.readdirSync(path.join(folder, 'chats')).map((f) => [f.replace('.json', ''), JSON.parse(read(folder, 'chats', f))]);
for (const f of fs.readdirSync(folder)) if (f.includes('@')) fs.rmSync(path.join(folder, f), { recursive: true });
const index = [];
for (const s of sources) {
  const source = templateOf(s, ollama);
  const template = new Template(source);
  const name = `${s.format}@${(s.model ?? s.package.split('/')[1]).replace(/[^\w.-]/g, '-')}`;
  fs.mkdirSync(path.join(folder, name));
  const written = [];
  const refused = {};
  for (const [chat, c] of chats) {
    if (s.chats && !s.chats.includes(chat)) continue;
    try {
      fs.writeFileSync(path.join(folder, name, `${chat}.txt`), template.render(variables(c, s)));
      written.push(chat);
    } catch (e) {
      refused[chat] = e.message;
    }
  }
  const version = JSON.parse(read(modules, s.package, 'package.json')).version;
  index.push({
    folder: name, format: s.format, package: s.package, version, model: s.model, license: s.license, untooled: s.untooled,
    template_sha256: crypto.createHash('sha256').update(source).digest('hex'), chats: written, refused,
  });
}
fs.writeFileSync(path.join(folder, 'sources.json'), JSON.stringify(index, null, 1) + '\n');
console.log(`${index.length} templates, ${index.reduce((n, s) => n + s.chats.length, 0)} prompts`);
