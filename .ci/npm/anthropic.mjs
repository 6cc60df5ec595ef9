// Drives a gateway with Anthropic's own SDK and prints what it gave.
import { load, test, print, watched, city } from "./cases.mjs";

const { default: Anthropic } = load("@anthropic-ai/sdk");

const log = [];
const client = new Anthropic({ maxRetries: 0, fetch: watched(log) });
const model = process.env.ANTHROPIC_MODEL;
const ask = (content, more) => ({ model, max_tokens: 200, messages: [{ role: "user", content }], ...more });
const weather = { name: "weather", description: "The weather of a city.", input_schema: city };

await test("create", () => client.messages.create(ask("hello", { system: "Be brief.", metadata: { user_id: "u" } })));

await test("stream", async () => {
  const stream = client.messages.stream(ask("hello", { system: "Be brief.", metadata: { user_id: "u" } }));
  const events = [];
  let text = "";
  stream.on("streamEvent", (e) => events.push(e.type));
  stream.on("text", (t) => (text += t));
  return { message: await stream.finalMessage(), events, text };
});

await test("raw stream", async () => {
  const events = [];
  for await (const e of await client.messages.create(ask("hello", { stream: true }))) events.push(e);
  return events;
});

await test("max_tokens", () => client.messages.create(ask("count", { max_tokens: 5 })));
await test("stop_sequences", () => client.messages.create(ask("count", { stop_sequences: ["four"] })));

await test("tool", () => client.messages.create(ask("What is the weather in Bern?", { tools: [weather] })));
await test("tools", async () => {
  const first = ask("What is the weather in Bern and in Rome?", { tools: [weather] });
  const message = await client.messages.stream(first).finalMessage();
  const answers = message.content
    .filter((b) => b.type === "tool_use")
    .map((b) => ({ type: "tool_result", tool_use_id: b.id, content: `rain in ${b.input.city}` }));
  const second = await client.messages.create({
    ...first,
    messages: [...first.messages, { role: "assistant", content: message.content }, { role: "user", content: answers }],
  });
  return { message, second };
});
await test("one at a time", () =>
  client.messages.create(
    ask("What is the weather in Bern and in Rome?", {
      tools: [weather],
      tool_choice: { type: "auto", disable_parallel_tool_use: true },
    }),
  ),
);
await test("tool runner", () =>
  client.beta.messages
    .toolRunner({
      ...ask("What is the weather in Oslo?"),
      tools: [{ type: "custom", ...weather, run: (input) => `snow in ${input.city}`, parse: (input) => input }],
    })
    .runUntilDone(),
);

const counted = ask("Count these tokens, please.", { tools: [weather], system: [{ type: "text", text: "Be brief." }] });
await test("count", async () => {
  const { max_tokens: _, ...prompt } = counted;
  const count = await client.messages.countTokens(prompt);
  const message = await client.messages.create(counted);
  return { counted: count.input_tokens, used: message.usage.input_tokens };
});

await test("models", async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  return ids;
});
await test("alias", () => client.messages.create(ask("hello", { model: "policy-small" })));

await test("401", () => new Anthropic({ apiKey: "pst-wrong", maxRetries: 0 }).messages.create(ask("hello")));
await test("404", () => client.messages.create(ask("hello", { model: "claude-unknown" })));
await test("400", () => client.messages.create({ model, max_tokens: 10, messages: "none" }));
await test("400 choice", () => client.messages.create(ask("hello", { tools: [weather], tool_choice: { type: "tool", name: "tides" } })));
await test("400 long", () => client.messages.create(ask("word ".repeat(5000))));
await test("413", () => client.messages.create(ask("x".repeat(20_000_000))));
await test("429", () => client.messages.create(ask("You are always busy")));
await test("429 stream", () => client.messages.stream(ask("You are always busy")).finalMessage());
await test("cut stream", () => client.messages.stream(ask("This is cut short")).finalMessage());

for (const word of ["busy", "overloaded", "broken"]) {
  await test(`retry ${word}`, async () => {
    const tries = [];
    const patient = new Anthropic({ maxRetries: 2, fetch: watched(tries) });
    const message = await patient.messages.stream(ask(`You are ${word} once`)).finalMessage();
    return { message, tries };
  });
}

await test("aborted", async () => {
  const stream = client.messages.stream(ask("count"));
  stream.on("text", () => stream.abort());
  return stream.finalMessage();
});

print();
