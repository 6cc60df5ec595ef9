// Drives a gateway with OpenAI's own SDK and prints what it gave.
import { load, test, print, watched, city } from "./cases.mjs";

const { default: OpenAI } = load("openai");

const log = [];
const client = new OpenAI({ maxRetries: 0, fetch: watched(log) });
const model = process.env.OPENAI_MODEL;
const chat = client.chat.completions;
const ask = (content, more) => ({ model, messages: [{ role: "user", content }], ...more });
const weather = { type: "function", function: { name: "weather", description: "The weather of a city.", parameters: city } };

await test("create", () => chat.create(ask("hello", { store: false, user: "u", service_tier: "auto" })));

await test("stream", async () => {
  const stream = chat.stream(ask("hello", { stream_options: { include_usage: true } }));
  let text = "";
  const chunks = [];
  stream.on("content", (t) => (text += t));
  stream.on("chunk", (c) => chunks.push(c));
  const completion = await stream.finalChatCompletion();
  return { completion, text, usage: await stream.totalUsage(), last: chunks.at(-1) };
});

await test("raw stream", async () => {
  const chunks = [];
  for await (const c of await chat.create(ask("hello", { stream: true }))) chunks.push(c);
  return chunks;
});

await test("max_tokens", () => chat.create(ask("count", { max_completion_tokens: 5 })));
await test("stop", () => chat.create(ask("count", { stop: ["four"] })));
await test("developer", () =>
  chat.create({ model, messages: [{ role: "developer", content: "Be brief." }, { role: "user", content: "hello" }] }),
);

await test("tool", () => chat.create(ask("What is the weather in Bern?", { tools: [weather] })));
await test("tools", async () => {
  const first = ask("What is the weather in Bern and in Rome?", { tools: [weather] });
  const completion = await chat.stream(first).finalChatCompletion();
  const message = completion.choices[0].message;
  const answers = message.tool_calls.map((c) => ({
    role: "tool",
    tool_call_id: c.id,
    content: `rain in ${JSON.parse(c.function.arguments).city}`,
  }));
  const second = await chat.create({ ...first, messages: [...first.messages, message, ...answers] });
  return { completion, second };
});
await test("one at a time", () =>
  chat.create(ask("What is the weather in Bern and in Rome?", { tools: [weather], parallel_tool_calls: false })),
);
await test("tool runner", async () => {
  const runner = chat.runTools({
    ...ask("What is the weather in Oslo?"),
    tools: [
      {
        type: "function",
        function: { ...weather.function, parse: JSON.parse, function: (input) => `snow in ${input.city}` },
      },
    ],
  });
  return { text: await runner.finalContent(), usage: await runner.totalUsage() };
});

await test("responses", () => client.responses.create({ model, input: "hello" }));
await test("responses stream", async () => {
  const stream = client.responses.stream({ model, input: "hello" });
  let text = "";
  stream.on("response.output_text.delta", (e) => (text += e.delta));
  return { response: await stream.finalResponse(), text };
});

await test("models", async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  return ids;
});
await test("alias", () => chat.create(ask("hello", { model: "policy-small" })));

await test("401", () => new OpenAI({ apiKey: "pst-wrong", maxRetries: 0 }).chat.completions.create(ask("hello")));
await test("404", () => chat.create(ask("hello", { model: "gpt-unknown" })));
await test("400", () => chat.create({ model, messages: "none" }));
await test("400 choice", () =>
  chat.create(ask("hello", { tools: [weather], tool_choice: { type: "function", function: { name: "tides" } } })),
);
await test("400 long", () => chat.create(ask("word ".repeat(5000))));
await test("413", () => chat.create(ask("x".repeat(20_000_000))));
await test("429", () => chat.create(ask("You are always busy")));
await test("429 stream", () => chat.stream(ask("You are always busy")).finalChatCompletion());
await test("cut stream", () => chat.stream(ask("This is cut short")).finalChatCompletion());

for (const word of ["busy", "overloaded", "broken"]) {
  await test(`retry ${word}`, async () => {
    const tries = [];
    const patient = new OpenAI({ maxRetries: 2, fetch: watched(tries) });
    const completion = await patient.chat.completions.stream(ask(`You are ${word} once`)).finalChatCompletion();
    return { completion, tries };
  });
}

await test("aborted", async () => {
  const stream = chat.stream(ask("count"));
  stream.on("content", () => stream.abort());
  return stream.finalChatCompletion();
});

print();
