// The judger exact in AssemblyScript.
import { fail, field, output } from "../../../../sdk/assemblyscript/penstock";
export { penstock_v1 } from "../../../../sdk/assemblyscript/penstock";

export function judge(): i32 {
  const answer = field("/task/answer");
  if (answer === null) return fail("the task has no answer");
  const text = field("/rollout/final_text");
  output(text !== null && text == answer ? '{"reward":1}' : '{"reward":0}');
  return 0;
}
