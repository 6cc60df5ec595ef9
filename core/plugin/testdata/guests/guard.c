/* The hook guard in C: it denies calls of danger and renames those of old. */
#include "penstock.h"

static char name[256];

static int is(const char *text, int n) { return penstock_equal(name, n, text, penstock_len(text)); }

PENSTOCK_EXPORT("hook_apply") int hook_apply(void) {
  int n = penstock_field("/tool_call/name", name, sizeof name);
  if (n < 0) return penstock_error("the event has no tool call");
  if (is("danger", n))
    penstock_output("{\"action\":\"deny\",\"reason\":\"danger is not a toy\"}");
  else if (is("old", n))
    penstock_output("{\"action\":\"replace\",\"value\":{\"id\":\"c1\",\"name\":\"new\",\"arguments\":{}}}");
  else
    penstock_output("{\"action\":\"continue\"}");
  return 0;
}
