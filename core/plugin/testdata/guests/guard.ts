// The hook guard in AssemblyScript: it denies calls of danger and renames
// those of old.
import { fail, field, output } from "../../../../sdk/assemblyscript/penstock";
export { penstock_v1 } from "../../../../sdk/assemblyscript/penstock";

export function hook_apply(): i32 {
  const name = field("/tool_call/name");
  if (name === null) return fail("the event has no tool call");
  if (name == "danger") output('{"action":"deny","reason":"danger is not a toy"}');
  else if (name == "old") output('{"action":"replace","value":{"id":"c1","name":"new","arguments":{}}}');
  else output('{"action":"continue"}');
  return 0;
}
