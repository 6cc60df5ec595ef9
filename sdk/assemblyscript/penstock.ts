// What a plugin in AssemblyScript needs. The entry file must hand on the mark:
//
//     export { penstock_v1 } from "./penstock";
//
// A judger exports judge, a hook hook_apply; each returns 0, or 1 for an error.

@external("penstock_v1", "field_read")
declare function field_read(pointer: usize, n: u32, to: usize, room: u32): i32;

@external("penstock_v1", "output_write")
declare function output_write(from: usize, n: u32): void;

@external("penstock_v1", "error_write")
declare function error_write(from: usize, n: u32): void;

@external("penstock_v1", "log")
declare function log_write(level: i32, from: usize, n: u32): void;

/** The mark of a plugin, and the minor version of what it was built for. */
export function penstock_v1(): i32 {
  return 0;
}

/** A field of the request by JSON Pointer, strings unquoted; null if it isn't
 * there. "-1" is the last item of a list. */
export function field(pointer: string): string | null {
  const path = String.UTF8.encode(pointer);
  let room = new ArrayBuffer(4096);
  let n = field_read(changetype<usize>(path), path.byteLength, changetype<usize>(room), room.byteLength);
  if (n < 0) return null;
  if (n > room.byteLength) {
    room = new ArrayBuffer(n);
    n = field_read(changetype<usize>(path), path.byteLength, changetype<usize>(room), n);
  }
  return String.UTF8.decodeUnsafe(changetype<usize>(room), n);
}

/** Writes JSON to the reply. */
export function output(text: string): void {
  const bytes = String.UTF8.encode(text);
  output_write(changetype<usize>(bytes), bytes.byteLength);
}

/** Writes the error and returns 1, what a function that failed returns. */
export function fail(text: string): i32 {
  const bytes = String.UTF8.encode(text);
  error_write(changetype<usize>(bytes), bytes.byteLength);
  return 1;
}

/** Writes a line to the log; levels as in slog: -4, 0, 4, 8. */
export function log(level: i32, text: string): void {
  const bytes = String.UTF8.encode(text);
  log_write(level, changetype<usize>(bytes), bytes.byteLength);
}

/** Where AssemblyScript reports a failure of the module itself; asc is told
 * to use it in the place of the host's abort. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  fail((message ? message : "aborted") + " (" + (file ? file : "") + ":" + line.toString() + ")");
  unreachable();
}
