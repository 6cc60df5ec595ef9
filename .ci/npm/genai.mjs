// Drives a gateway with Google's own SDK and prints what it gave.
import { load, test, print, city } from "./cases.mjs";

const { GoogleGenAI, ApiError } = load("@google/genai");

// The gateway's root and key, by the names under which it says them.
const baseUrl = process.env.ANTHROPIC_BASE_URL;
const model = process.env.ANTHROPIC_MODEL;
const open = (apiKey) => new GoogleGenAI({ apiKey, vertexai: false, httpOptions: { baseUrl, retryOptions: { attempts: 1 } } });
const { models } = open(process.env.ANTHROPIC_API_KEY);
const ask = (contents, config, more) => ({ model, contents, config, ...more });
const weather = { functionDeclarations: [{ name: "weather", description: "The weather of a city.", parametersJsonSchema: city }] };
const plain = (r) => ({ text: r.text, calls: r.functionCalls, finish: r.candidates?.[0]?.finishReason, usage: r.usageMetadata, id: r.responseId });

// The SDK's error holds the body as its message.
const refused = (name, run) =>
  test(name, async () => {
    try {
      return { gave: plain(await run()) };
    } catch (e) {
      const body = JSON.parse(e.message.slice(e.message.indexOf("{")));
      return { api: e instanceof ApiError, status: e.status, ...body.error };
    }
  });

async function streamed(request) {
  let text = "";
  const calls = [];
  let last;
  for await (const chunk of await models.generateContentStream(request)) {
    text += chunk.text ?? "";
    calls.push(...(chunk.functionCalls ?? []));
    last = chunk;
  }
  return { ...plain(last), text, calls };
}

await test("create", async () => plain(await models.generateContent(ask("hello", { temperature: 0.5, topK: 3 }))));
await test("stream", () => streamed(ask("hello")));
await test("system", async () => plain(await models.generateContent(ask("hello", { systemInstruction: "Be brief." }))));
await test("max_tokens", async () => plain(await models.generateContent(ask("count", { maxOutputTokens: 5 }))));
await test("stop", async () => plain(await models.generateContent(ask("count", { stopSequences: ["four"] }))));
await test("tool", async () => plain(await models.generateContent(ask("What is the weather in Bern?", { tools: [weather] }))));
await test("tools", async () => {
  const first = ask([{ role: "user", parts: [{ text: "What is the weather in Bern and in Rome?" }] }], { tools: [weather] });
  const got = await streamed(first);
  const second = await models.generateContent({
    ...first,
    contents: [
      ...first.contents,
      { role: "model", parts: [{ text: got.text }, ...got.calls.map((functionCall) => ({ functionCall }))] },
      {
        role: "user",
        parts: got.calls.map((c) => ({ functionResponse: { id: c.id, name: c.name, response: { output: `rain in ${c.args.city}` } } })),
      },
    ],
  });
  return { ...got, second: plain(second) };
});
await test("chat", async () => {
  const chat = open(process.env.ANTHROPIC_API_KEY).chats.create({ model });
  await chat.sendMessage({ message: "hello" });
  return { ...plain(await chat.sendMessage({ message: "count" })), turns: chat.getHistory().length };
});
await test("no thoughts", async () => plain(await models.generateContent(ask("hello", { thinkingConfig: { thinkingBudget: 0 } }))));
await test("count", async () => ({
  counted: (await models.countTokens({ model, contents: "hello" })).totalTokens,
  used: (await models.generateContent(ask("hello"))).usageMetadata.promptTokenCount,
}));
await test("models", async () => {
  const ids = [];
  for await (const m of await models.list()) ids.push(m.name);
  return ids;
});
await test("alias", async () => plain(await models.generateContent(ask("hello", {}, { model: "policy-small" }))));

await refused("401", () => open("pst-wrong").models.generateContent(ask("hello")));
await refused("404", () => models.generateContent(ask("hello", {}, { model: "gemini-unknown" })));
await refused("400", () => models.generateContent(ask([{ role: "nobody", parts: [{ text: "x" }] }])));
await refused("400 code", () => models.generateContent(ask([{ role: "model", parts: [{ executableCode: { language: "PYTHON", code: "1" } }] }])));
await refused("400 file", () => models.generateContent(ask([{ role: "user", parts: [{ fileData: { fileUri: "gs://a/b", mimeType: "text/plain" } }] }])));
await refused("400 long", () => models.generateContent(ask("word ".repeat(5000))));
await refused("413", () => models.generateContent(ask("x".repeat(20_000_000))));
await refused("429", () => models.generateContent(ask("You are always busy")));
await refused("429 stream", () => streamed(ask("You are always busy")));
await refused("503", () => models.generateContent(ask("You are overloaded once")));
await refused("502", () => models.generateContent(ask("You are broken once")));
await refused("cut", () => models.generateContent(ask("This is cut short")));
await test("cut stream", () => streamed(ask("This is cut short")));

print();
