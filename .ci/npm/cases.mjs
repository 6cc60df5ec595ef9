// What the conformance clients share: loading an SDK from where PENSTOCK_NPM
// says, and printing what each case gave as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";

const npm = process.env.PENSTOCK_NPM;
if (!npm) {
  console.error("PENSTOCK_NPM must be the path of node_modules");
  process.exit(2);
}

export const load = createRequire(join(npm, "..", "client.cjs"));

// A case's value, or the error as the SDK shows it to its user.
const results = {};

export async function test(name, run) {
  try {
    results[name] = { value: await run() };
  } catch (e) {
    results[name] = {
      error: {
        class: e?.constructor?.name ?? typeof e,
        status: e?.status,
        type: e?.type ?? e?.error?.error?.type ?? e?.error?.type,
        code: e?.code ?? undefined,
        message: e?.message ?? String(e),
        retry_after: e?.headers?.get?.("retry-after") ?? undefined,
        request: e?.requestID ?? e?.headers?.get?.("request-id") ?? undefined,
      },
    };
  }
}

// A fetch that notes what went out: the status, and the SDK's retry header.
export function watched(log) {
  return async (url, init) => {
    const began = Date.now();
    const response = await fetch(url, init);
    log.push({
      status: response.status,
      retry: new Headers(init.headers).get("x-stainless-retry-count"),
      began,
    });
    return response;
  };
}

export function print() {
  console.log(JSON.stringify(results));
}

export const city = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer", default: null } },
  required: ["city"],
};
