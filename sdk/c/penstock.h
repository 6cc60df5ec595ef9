/* penstock.h: what a plugin in C needs. It is built without a C library:
 *
 *     clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -o exact.wasm exact.c
 *
 * A judger exports judge, a hook hook_apply; each returns 0, or 1 for an
 * error. The request is read field by field, by JSON Pointer ("/task/answer",
 * "/rollout/final_text"; "-1" is the last item of a list), strings unquoted.
 * The reply is JSON. All memory is the module's own. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#define PENSTOCK_IMPORT(name) __attribute__((import_module("penstock_v1"), import_name(name)))
#define PENSTOCK_EXPORT(name) __attribute__((export_name(name)))

/* The whole request: its length, and a piece of it. */
PENSTOCK_IMPORT("input_len") unsigned penstock_input_len(void);
PENSTOCK_IMPORT("input_read") unsigned penstock_input_read(void *to, unsigned offset, unsigned n);
/* A field: its length; -1 if it isn't there. One over room is not written. */
PENSTOCK_IMPORT("field_read") int penstock_field_read(const char *pointer, unsigned n, void *to, unsigned room);
PENSTOCK_IMPORT("output_write") void penstock_output_write(const void *from, unsigned n);
PENSTOCK_IMPORT("error_write") void penstock_error_write(const void *from, unsigned n);
/* Levels as in slog: -4 debug, 0 info, 4 warning, 8 error. */
PENSTOCK_IMPORT("log") void penstock_log(int level, const void *from, unsigned n);

/* The mark of a plugin, and the minor version of what it was built for. */
PENSTOCK_EXPORT("penstock_v1") int penstock_v1(void) { return 0; }

static inline unsigned penstock_len(const char *s) {
  unsigned n = 0;
  while (s[n]) n++;
  return n;
}

/* Reads a field of at most room bytes; -1 if it isn't there or is longer. */
static inline int penstock_field(const char *pointer, char *to, unsigned room) {
  int n = penstock_field_read(pointer, penstock_len(pointer), to, room);
  return n > (int)room ? -1 : n;
}

static inline void penstock_output(const char *text) { penstock_output_write(text, penstock_len(text)); }

static inline int penstock_error(const char *text) {
  penstock_error_write(text, penstock_len(text));
  return 1;
}

static inline int penstock_equal(const char *a, int n, const char *b, int m) {
  if (n != m || n < 0) return 0;
  for (int i = 0; i < n; i++)
    if (a[i] != b[i]) return 0;
  return 1;
}

#endif
