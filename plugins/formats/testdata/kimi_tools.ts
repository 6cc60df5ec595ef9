# Tools

## functions
namespace functions {
// A node.
interface Node {
  next?: Node
}
// Search it.

// Well.
type search = (_: {
  // What
  // maxLength: 9, minLength: 1
  q: string,
  // minItems: 1
  zed: Array<
    // one
    string
  >,
  any?: number | {
    // minimum: 0
    x?: number,
    [k: string]: string
  },
  arr?: Array<any>,
  // Default: "a"
  e?: "a" | "b",
  // Default: True
  flag?: boolean,
  // Default: 5
  k?: number,
  n?: Node,
  u?: string | null,
  [k: string]: never
}) => any;
type now = (_: {}) => any;
}
