// Drives a gateway with OpenAI's own SDK over Responses and prints what it gave.
import { load, test, print, watched, city } from "./cases.mjs";

const { default: OpenAI } = load("openai");

const client = new OpenAI({ maxRetries: 0 });
const model = process.env.OPENAI_MODEL;
const { responses } = client;
const ask = (input, more) => ({ model, input, store: false, ...more });
const weather = { type: "function", name: "weather", description: "The weather of a city.", parameters: city, strict: false };

async function streamed(request) {
  const stream = responses.stream(request);
  const events = [];
  let text = "";
  stream.on("event", (e) => events.push(e));
  stream.on("response.output_text.delta", (e) => (text += e.delta));
  const response = await stream.finalResponse();
  return {
    response,
    text,
    numbers: events.map((e) => e.sequence_number),
    first: events[0].type,
    last: events.at(-1).type,
    done: events.filter((e) => e.type === "response.output_item.done").map((e) => e.item),
  };
}

await test("create", () => responses.create(ask("hello", { instructions: "Be brief.", user: "u", metadata: { a: "b" } })));
await test("stream", () => streamed(ask("hello", { instructions: "Be brief." })));
await test("messages", () =>
  responses.create(
    ask([
      { role: "developer", content: "Be brief." },
      { role: "user", content: [{ type: "input_text", text: "hello" }] },
    ]),
  ),
);
await test("max_output_tokens", () => responses.create(ask("count", { max_output_tokens: 5 })));
await test("max_output_tokens stream", () => streamed(ask("count", { max_output_tokens: 5 })));
await test("tool", () => responses.create(ask("What is the weather in Bern?", { tools: [weather] })));
await test("tools", async () => {
  const input = [{ role: "user", content: "What is the weather in Bern and in Rome?" }];
  const got = await streamed(ask(input, { tools: [weather] }));
  const answers = got.response.output
    .filter((o) => o.type === "function_call")
    .map((o) => ({ type: "function_call_output", call_id: o.call_id, output: `rain in ${JSON.parse(o.arguments).city}` }));
  const second = await responses.create(ask([...input, ...got.response.output, ...answers], { tools: [weather] }));
  return { ...got, second };
});
await test("one at a time", () =>
  responses.create(ask("What is the weather in Bern and in Rome?", { tools: [weather], parallel_tool_calls: false })),
);
await test("alias", () => responses.create(ask("hello", { model: "policy-small" })));

await test("401", () => new OpenAI({ apiKey: "pst-wrong", maxRetries: 0 }).responses.create(ask("hello")));
await test("404", () => responses.create(ask("hello", { model: "gpt-unknown" })));
await test("400", () => responses.create(ask({})));
await test("400 item", () => responses.create(ask([{ type: "item_reference", id: "msg_1" }])));
await test("400 previous", () => responses.create(ask("hello", { previous_response_id: "resp_1" })));
await test("400 file", () => responses.create(ask([{ role: "user", content: [{ type: "input_file", file_id: "f" }] }])));
await test("400 long", () => responses.create(ask("word ".repeat(5000))));
await test("413", () => responses.create(ask("x".repeat(20_000_000))));
await test("429", () => responses.create(ask("You are always busy")));
await test("429 stream", () => streamed(ask("You are always busy")));
await test("cut stream", () => streamed(ask("This is cut short")));

for (const word of ["busy", "overloaded", "broken"]) {
  await test(`retry ${word}`, async () => {
    const tries = [];
    const patient = new OpenAI({ maxRetries: 2, fetch: watched(tries) });
    const response = await patient.responses.create(ask(`You are ${word} once`));
    return { response, tries };
  });
}

print();
